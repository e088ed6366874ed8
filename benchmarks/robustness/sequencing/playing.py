"""Plays the lines of a sequence with SciPy's classes and with ours, and stops at the first difference."""

import contextlib
import copy
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any, Final, final

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sla

import tensorwise.sparse as ours
from sequencing import making
from sequencing.comparing import difference, result_difference
from sequencing.packing import ListedFormats
from sequencing.steps import NAMES, next_line
from tensorwise.sparse import frozen, product, products, trials, ways

KINDS: Final = ("arrays", "arrays", "wrapped", "patched", "both")
"""Our classes; SciPy's that ``asarray`` wraps; SciPy's under the patch; our classes under the patch."""
SETTINGS: Final = ("plain", "reproducible", "trials", "trials", "packed")
MARK: Final = "  #~ "
counted: Final[Counter[str]] = Counter()
"""Sequences of this process in which our kernels multiplied, and matrices."""
_KNOBS: Final[Mapping[tuple[Any, str], Any]] = {
    (products, "MAKING_NS"): -1,
    (product, "THREADS_NS"): 0,
    (product, "FIRST_NS"): 2000,
    (product, "FIRST_CALLS"): 0,
    (trials, "COUNTED_NS"): 0,
    (ways, "SETTLE_NS"): 2000,
}
"""With the setting ``trials`` every product is ours from its first call, and other kernels are tried after some calls."""
_SEARCH_KNOBS: Final[Mapping[tuple[Any, str], Any]] = {
    (product, "SOON_NS"): 2000,
    (frozen, "slices_ns"): lambda entries, gather: 0.0,
    (frozen, "SEARCH_NS"): 0,
    (frozen, "needed_s"): lambda entries, call_s, threads: 0.0,
    (frozen, "FormatSearch"): ListedFormats,
    (frozen, "machine_is_busy"): lambda: None,
}
"""With the setting ``packed`` frozen matrices also have packed forms after some calls."""


class _Wrapped:
    """SciPy's classes, whose objects are wrapped when they are made."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given, **named: ours.asarray(getattr(sp, name)(*given, **named))


@contextlib.contextmanager
def set_up(setting: str) -> Iterator[None]:
    """Set the package up as one of `SETTINGS` says."""
    if setting == "reproducible":
        with ours.reproducible():
            yield
        return
    knobs = {"plain": {}, "trials": _KNOBS, "packed": {**_KNOBS, **_SEARCH_KNOBS}}[setting]
    before = {(module, name): getattr(module, name) for module, name in knobs}
    try:
        for (module, name), value in knobs.items():
            setattr(module, name, value)
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


def _names(S: Any, is_ours: bool) -> dict[str, Any]:
    """Return the names that lines use."""

    helpers = {
        name: getattr(making, name)
        for name in (
            "numbers", "operand", "compressed", "coordinates", "widen", "grow_in_place", "repeat", "repickle", "copied",
            "matmul", "in_fork", "in_threads", "magnitude", "freeze", "update", "blocked",
        )
    }  # fmt: skip
    return {
        **helpers, "S": S, "SP": sp, "np": np, "sla": sla, "copy": copy, 
        "asarray": ours.asarray if is_ours and S is not sp else lambda A: A,
        "limit_threads": ours.limit_threads if is_ours else lambda most: None,
    }  # fmt: skip


_DERIVED: Final = re.compile(r"([ABD]) = (?!.*(?:SP\.|todia))(.*)")
_NAME: Final = re.compile(r"\b[ABD]\b")


@final
class Pair:
    """Two namespaces in which the same lines are run.

    Args:
        kind: one of `KINDS`, or ``scipy``: both are SciPy's, which tells whose fault a crash is.
    """

    def __init__(self, kind: str) -> None:
        self.patched = kind in ("patched", "both")
        S = {"arrays": ours, "both": ours, "patched": sp, "scipy": sp, "wrapped": _Wrapped()}[kind]
        self.keeps_class = kind in ("arrays", "both", "wrapped")
        self.right, self.ours = _names(sp, False), _names(S, kind != "scipy")

    @property
    def foreign(self) -> set[str]:
        """Names of matrices of SciPy's classes though there is one of ours for them."""
        found = {name: self.ours.get(name) for name in NAMES}
        known = {name for name, one in found.items() if hasattr(ours, type(one).__name__)}
        return {
            name for name in known if not isinstance(found[name], getattr(ours, type(found[name]).__name__))
        }

    def step(self, line: str) -> str | None:
        """Run one line in both; return how they differ, or None."""
        text, _, bound_text = line.partition(MARK)
        foreign = self.foreign
        code = compile(text, "<line>", "exec")
        right = _run(code, self.right)
        if self.patched:
            ours.patch_scipy()
        try:
            got = _run(code, self.ours)
        finally:
            ours.unpatch_scipy()
        if right != got:
            return f"{got}, expected {right}"
        bound = None
        if bound_text and right[0] is None:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    # Of copies: what is asked of a matrix is remembered by it, as whether it is sorted.
                    copies = {name: copy.copy(one) for name, one in self.right.items() if sp.issparse(one)}
                    bound = eval(bound_text, {**self.right, **copies})
                except (TypeError, ValueError):  # of operands whose product is no product of numbers
                    bound = np.nan
        with np.errstate(all="ignore"):
            found = result_difference(self.right.pop("result", None), self.ours.pop("result", None), bound)
            if found:
                return found
            for name in (*NAMES, "x"):
                if found := difference(self.right.get(name), self.ours.get(name)):
                    return f"{name} afterwards: {found}"
            if got[0] is None and self.keeps_class and (derived := _DERIVED.match(text)):
                target, source = derived.groups()
                if not foreign.intersection(_NAME.findall(source)) and target in self.foreign:
                    return f"{target} afterwards: of SciPy's class"
        return None


def _run(code: Any, names: dict[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """Run a line; return its exception's type, and the categories of warnings."""
    error = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            exec(code, names)
        except Exception as caught:
            names.pop("result", None)
            error = type(caught).__name__
            if isinstance(caught, TimeoutError):
                raise
    return error, tuple(sorted({one.category.__name__ for one in warned}))


def play(lines: Iterable[str], kind: str, setting: str) -> tuple[int, str] | None:
    """Play lines; return the number of the first that differs, and how, or None."""
    pair = Pair(kind)
    with set_up(setting):
        try:
            for number, line in enumerate(lines):
                if found := pair.step(line):
                    return number, found
        finally:
            ours.limit_threads(None)
    return None


def draw(rng: Random) -> tuple[str, str, int]:
    """Return kind, setting and number of lines of a sequence."""
    return rng.choice(KINDS), rng.choice(SETTINGS), rng.randint(4, 16)


def invent(
    rng: Random, kind: str, setting: str, count: int, write: Callable[[str], None]
) -> tuple[list[str], str | None]:
    """Invent lines and play them.

    Args:
        write: is called with each line before it is run.

    Returns:
        The lines, and how the last one differs, or None.
    """
    pair = Pair(kind)
    lines: list[str] = []
    with set_up(setting):
        try:
            for _ in range(count):
                line = next_line(rng, pair.right)
                lines.append(line)
                write(line)
                if found := pair.step(line):
                    return lines, found
        finally:
            ours.limit_threads(None)
    count_products(pair.ours)
    return lines, None


def count_products(names: dict[str, Any]) -> None:
    """Count the matrices that our kernels multiplied."""
    known = [vars(names[name]).get("_tensorwise") for name in NAMES if sp.issparse(names.get(name))]
    multiplied = sum(one is not None and bool(one.table.products) for one in known)
    counted["matrices multiplied by our kernels"] += multiplied
    counted["sequences with such matrices"] += multiplied > 0
    tables = [one.table for one in known if one is not None]
    made = [product for table in tables for product in list(table.products.values())]
    counted["products with packed forms"] += sum(any(way.is_packed for way in one.ways) for one in made)


def shorten(lines: list[str], differs: Callable[[list[str]], bool]) -> list[str]:
    """Return fewer lines that still differ: each is left out where the rest differs without it."""
    kept = list(lines)
    for place in range(len(lines) - 2, -1, -1):
        fewer = kept[:place] + kept[place + 1 :]
        if differs(fewer):
            kept = fewer
    return kept


def script(lines: list[str], kind: str, setting: str, title: str) -> str:
    """Return a program that plays the lines again and tells the difference."""
    body = "\n".join(f"    {line!r}," for line in lines)
    return f"""# {title}
import sys; sys.path.insert(0, "benchmarks/robustness")  # run in the project's root
from sequencing.playing import play
print(play([
{body}
], {kind!r}, {setting!r}))
"""
