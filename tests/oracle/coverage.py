"""What the drawn cases touched: einsum x level x directive, particular features, and refusals."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from tensorwise.errors import TensorwiseError
from tensorwise.program.einsum import Einsum
from tensorwise.tensor.levels import LEVELS
from tensorwise.tensor.orders import ORDERS
from tests.oracle.cases import EINSUMS, Case

DIRECTIVES = ("split", "reorder", "parallel", "unroll", "tile", "prefetch", "bound", "factor")
FEATURES = (
    "float32", "float64", "float16", "bfloat16", "mixed float32", "mixed float16", "mixed bfloat16",
    "extent 0", "extent 1", "no entries", "empty rows", "dense row", "duplicates",
    "nan stored", "inf stored", "nan in a dense operand", "inf in a dense operand",
    "column-major operand", "strided operand", "entries with numbers of their own", "arguments in lanes",
    "dynamic", "balanced", "merge-path", "carries", "atomic", "private", "partial results of halves",
    "searched", "found by number", "unrolled completely", "unrolled in copies",
    *(f"order {order}" for order in ORDERS), "stored by slot", "stored by diagonal",
    "vectors held before a loop", "gathered by words",
    "lanes over stored levels", "lanes along a compressed level", "overlapping strips",
    "masked", "watched", "watched, then masked",
    "edges", "random", "64-bit indices", "default program", "program of the space",
    "hybrid", "hybrid with an empty part", "hybrid in a kept pattern", "hybrid of watched and plain",
)  # fmt: skip
"""What must come up in every run."""

Combination = tuple[str, ...]
"""An einsum, a level and a directive, of which one may be left open (""); or a feature alone."""


@dataclass
class Coverage:
    """Counts; those of several processes add up."""

    drawn: int = 0
    executed: int = 0
    seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, case: Case, features: Iterable[str]) -> None:
        """Count a case that ran."""
        self.executed += 1
        self.features.update({*case.features, *features})
        formats = [format for part in case.program.parts for format in part.formats.values()]
        letters = {level.letter for format in formats for level in format.levels}
        orders = {order.rstrip("0123456789") for format in formats for order in format.orders.values()}
        parts = {axis.part for format in formats for axis in format.axes}
        self.features.update(f"order {order}" for order in orders)
        self.features.update(f"stored by {part}" for part in parts & {"slot", "diagonal"})
        schedules = [part.schedule for part in case.program.parts]
        self.features["found by number"] += any(schedule.located for schedule in schedules)
        directives = {type(d).__name__.lower() for schedule in schedules for d in schedule.directives}
        self.seen.update((case.name, letter, d) for letter in letters for d in directives)

    def refuse(self, error: TensorwiseError) -> None:
        """Count a draw that was refused, by its reason without names and numbers."""
        plain = re.sub(r"\([^()]*\)|'[^']*'", "_", str(error))
        self.refused[re.sub(r"\b([a-z][01]?|[A-Z]|[\d.e+]+)\b", "_", plain)[:90]] += 1

    def merge(self, other: "Coverage") -> None:
        """Add the counts of another process."""
        self.drawn += other.drawn
        self.executed += other.executed
        self.seen.update(other.seen)
        self.features.update(other.features)
        self.refused.update(other.refused)

    @property
    def met(self) -> set[Combination]:
        """What came up."""
        combined = {part for n, level, d in self.seen for part in ((n, level, d), (n, "", d), ("", level, d))}
        return combined | {(feature,) for feature in self.features}

    def missing(self) -> list[Combination]:
        """Return what should have come up and did not."""
        met = self.met
        return [combination for combination in _wanted() if combination not in met]

    def table(self) -> str:
        """Return a row an einsum and a column a level x directive, the features, and the rate of refusals."""
        columns = [(letter, directive) for letter in LEVELS for directive in DIRECTIVES]
        width = max(len(name) for name, _, _ in EINSUMS)
        head = f"{'':<{width}} " + " ".join(f"{letter} {directive:<8}" for letter, directive in columns)
        rows = [
            f"{name:<{width}} " + " ".join(f"{self.seen[(name, *column)]:>10}" for column in columns)
            for name, _, _ in EINSUMS
        ]
        features = ", ".join(f"{name} {self.features[name]}" for name in FEATURES)
        number = sum(self.refused.values())
        rate = f"{number} of {self.drawn} draws refused ({number / max(1, self.drawn):.1%})"
        reasons = [f"  {count:>6}  {reason}" for reason, count in self.refused.most_common(6)]
        return "\n".join([head, *rows, f"{self.executed} cases: {features}", rate, *reasons])


@cache
def _wanted() -> list[Combination]:
    return [
        *((name, letter, "reorder") for name, text, sparse in EINSUMS for letter in _letters(text, sparse)),
        *((name, "", d) for name, text, sparse in EINSUMS for d in _directives(text, sparse)),
        *(("", letter, d) for letter in LEVELS for d in DIRECTIVES),
        *((feature,) for feature in FEATURES),
    ]


def _directives(text: str, sparse: tuple[str, ...]) -> list[str]:
    """Directives that apply to an einsum: a prefetch needs a dense operand, lanes a loop that may touch padding.

    A padded place has no number: lanes cannot run where several operands are stored and one of them is numbered.
    """
    assignment = Einsum.parse(text).single
    able = set(DIRECTIVES)
    if assignment.reduction != "sum" or len(assignment.factors) < 3 or not assignment.reduced:
        able.remove("factor")
    if set(assignment.operands) == set(sparse):
        able.remove("prefetch")
    stored = {index for name in sparse for index in assignment.access(name).indices}
    unpadded = len(sparse) > 1 and assignment.numbered and stored == set(assignment.indices)
    if unpadded or assignment.access(sparse[0]).indices == assignment.output.indices == assignment.indices:
        able.remove("tile")
    return sorted(able)


def _letters(text: str, sparse: tuple[str, ...]) -> list[str]:
    """Levels that apply to an einsum: slots are for matrices, lists need partial results that can wait in memory."""
    assignment = Einsum.parse(text).single
    unable = set() if assignment.monoid.single else {"N", "P", "S", "S16"}
    if all(len(assignment.access(name).indices) != 2 for name in sparse):
        unable.add("P")
    return [letter for letter in LEVELS if letter not in unable]
