"""Hybrids on a CPU: which remainder (long rows, or dense groups of columns) gets a format of its own, and when it pays."""

from typing import Final
from weakref import WeakKeyDictionary

from tensorwise.program.workload import Workload
from tensorwise.space.domain import Later, Listed
from tensorwise.space.param import Param
from tensorwise.space.params import Choice
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.partition import Partition

HYBRID_PARAM: Final = "apart"
"""Name of the param of a hybrid, as stored configs have it."""
HYBRIDS: Final = ("none", "rows8", "rows64", "columns")
"""Rows above 8 or 64 times the mean length, or dense groups of columns."""
GROUP: Final = 8
"""Rows of a dense group of columns: as many accumulators as leave registers for the operands."""
SHORTEST: Final = 64
"""Maximum length of a row that never belongs to the remainder."""
MIN_SHARE: Final = 1 / 64
"""Minimum share of the entries in the remainder: it has to pay for a second pass over the output."""
_SHARES: Final[WeakKeyDictionary[Entries, dict[str, float]]] = WeakKeyDictionary()


def hybrid_param() -> Param:
    """Return the Param that makes a hybrid. It applies to matrices."""
    return Choice(
        HYBRID_PARAM, HYBRIDS, binds="pack", prefer="none",
        doc="Entries kept in a second format, whose results are added: rows above 8 or 64 times the mean length, cut "
        "into blocks of columns, so that they neither pad nor hold up the others; or columns that most of 8 rows "
        "share, as dense pieces (ASpT)",
        narrow=lambda earlier, w: _lazy_domain(w) if w.entries.order == 2 else None,
    )  # fmt: skip


def _lazy_domain(workload: Workload) -> Later:
    """Return which of ``HYBRIDS`` apply: results are sums, and the remainder has enough entries, but not all.

    It is remembered with the workload, so it must not hold it: neither would ever be freed.
    """
    able, entries = _is_divisible(workload), workload.entries
    return Later("none", lambda: Listed(_applicable(entries) if able else ("none",)))


def _is_divisible(workload: Workload) -> bool:
    """Return whether the workload can be computed by a hybrid."""
    if workload.assignment.output.tensor in workload.halves or not workload.valued:
        return (
            False  # a pattern is a graph's: new ones come all the time, and counting takes more than a call
        )
    entries = workload.entries
    return entries.order == 2 and workload.assignment.monoid.name == "sum" and bool(entries.nnz)


def _applicable(entries: Entries) -> tuple[str, ...]:
    """Return which of ``HYBRIDS`` have enough entries in their remainder."""
    if entries not in _SHARES:  # asked for every config, counted once
        _SHARES[entries] = {
            kind: float(rule(kind, entries).select_remainder(entries).mean()) for kind in HYBRIDS[1:]
        }
    shares = _SHARES[entries]
    tall = entries.shape[0] >= 2 * GROUP
    able = [kind for kind in HYBRIDS[1:] if MIN_SHARE <= shares[kind] < 1 and (tall or kind != "columns")]
    return ("none", *able)


def rule(kind: str, entries: Entries) -> Partition:
    """Return the rule of one of ``HYBRIDS`` for these entries."""
    if kind == "columns":
        return Partition("columns", GROUP // 2, GROUP)
    mean = -(-entries.nnz // max(1, entries.shape[0]))
    return Partition("rows", max(SHORTEST, int(kind.removeprefix("rows")) * mean))
