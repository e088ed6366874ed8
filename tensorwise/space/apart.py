"""What hybrids set apart on a CPU: long rows, or dense groups of columns, and when either is worth it."""

from typing import Final
from weakref import WeakKeyDictionary

from tensorwise.program.workload import Workload
from tensorwise.space.domain import Later, Listed
from tensorwise.space.param import Param
from tensorwise.space.params import Choice
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.partition import Partition

APART: Final = ("none", "rows8", "rows64", "columns")
"""Rows above 8 or 64 times the mean length, or dense groups of columns."""
GROUP: Final = 8
"""Rows of a dense group of columns: as many accumulators as leave registers for the operands."""
SHORTEST: Final = 64
"""No row up to this length is set apart as a long one."""
LEAST: Final = 1 / 64
"""Share of the entries that has to be set apart to pay for a second pass over the output."""
_SHARES: Final[WeakKeyDictionary[Entries, dict[str, float]]] = WeakKeyDictionary()


def setting_apart() -> Param:
    """Return the Param that makes a hybrid. It applies to matrices."""
    return Choice(
        "apart", APART, binds="pack", prefer="none",
        doc="Entries kept in a second format, whose results are added: rows above 8 or 64 times the mean length, cut "
        "into blocks of columns, so that they neither pad nor hold up the others; or columns that most of 8 rows "
        "share, as dense pieces (ASpT)",
        narrow=lambda earlier, w: _later(w) if w.entries.order == 2 else None,
    )  # fmt: skip


def _later(workload: Workload) -> Later:
    """Which of ``APART`` apply: results are sums, and enough entries are set apart, but not all.

    It is remembered with the workload, so it must not hold it: neither would ever be freed.
    """
    able, entries = _able(workload), workload.entries
    return Later("none", lambda: Listed(_shared_out(entries) if able else ("none",)))


def _able(workload: Workload) -> bool:
    """Whether anything can be set apart at all."""
    if workload.assignment.output.tensor in workload.halves or not workload.valued:
        return (
            False  # a pattern is a graph's: new ones come all the time, and counting takes more than a call
        )
    entries = workload.entries
    return entries.order == 2 and workload.assignment.monoid.name == "sum" and bool(entries.nnz)


def _shared_out(entries: Entries) -> tuple[str, ...]:
    """Which of ``APART`` set enough of the entries apart."""
    if entries not in _SHARES:  # asked for every config, counted once
        _SHARES[entries] = {kind: float(rule(kind, entries).apart(entries).mean()) for kind in APART[1:]}
    shares = _SHARES[entries]
    tall = entries.shape[0] >= 2 * GROUP
    able = [kind for kind in APART[1:] if LEAST <= shares[kind] < 1 and (tall or kind != "columns")]
    return ("none", *able)


def rule(kind: str, entries: Entries) -> Partition:
    """Return the rule of one of ``APART`` for these entries."""
    if kind == "columns":
        return Partition("columns", GROUP // 2, GROUP)
    mean = -(-entries.nnz // max(1, entries.shape[0]))
    return Partition("rows", max(SHORTEST, int(kind.removeprefix("rows")) * mean))
