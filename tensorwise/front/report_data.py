"""What a report shows: plain fields, filled by the tuner or by hand."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from tensorwise.device.rounds import Ratio
from tensorwise.errors import InputError
from tensorwise.front.draw_pattern import Spy


@final
@dataclass(frozen=True)
class Attempt:
    """One candidate of the search, when it was measured and what a cost model had predicted."""

    number: int
    """In the order of the search, from 1."""
    seconds: float
    """Of a call, as measured in the search; a lower bound where it was given up, infinite where it failed."""
    status: str = "ok"
    """The measurement's status."""
    at_s: float = math.nan
    """Seconds since the tuning began when it had been measured; NaN: not known."""
    score: float | None = None
    """log2 of the predicted time up to a constant; of a model that only ranks its order counts; None: nothing predicted."""


@final
@dataclass(frozen=True)
class Candidate:
    """One measured kernel, generated or a library's."""

    name: str
    """Unique in the report: "mkl", "tensorwise 17"."""
    seconds: float
    """Median of a call; infinite when it failed."""
    spread_s: float = 0.0
    """Interquartile range of its samples."""
    format: str = ""
    """Storage format as text; empty for a library."""
    schedule: str = ""
    """The schedule in one line of text; empty for a library."""
    baseline: bool = False
    """True for a library routine."""
    moved_bytes: int | None = None
    """Memory a call must at least move: operands read once and the output written once; None if unknown."""
    status: str = "ok"
    """The measurement's status; anything else than "ok" keeps it out of the charts."""
    in_rounds: bool = True
    """Timed in the deciding rounds; False: screened in the search, so in the table but in no chart."""
    ratio: Ratio | None = None
    """Its seconds over the best library's, of the same rounds; None: not measured in rounds."""
    attempt: Attempt | None = None
    """What the search measured; None: it was no candidate of the search."""
    has_note: bool = False
    """A note of the report says on what condition it ran."""

    @property
    def valid(self) -> bool:
        """Whether it ran, gave right numbers and has a time."""
        return self.status == "ok" and 0 < self.seconds < math.inf


@final
@dataclass(frozen=True, eq=False)
class ReportData:
    """All that the report shows. Every text may hold anything: it is escaped."""

    title: str
    matrix: str
    """The matrix's name."""
    shape: tuple[int, ...]
    nnz: int
    dtype: str
    row_lengths: np.ndarray
    """(rows,) integers: stored entries in each row."""
    spy: Spy
    """The pattern's sketch, from `spy_of`."""
    op: str
    threads: int
    flops: float
    """Useful operations of one call: two for each multiply-add on a stored entry."""
    candidates: Sequence[Candidate]
    best: str
    """Name of the candidate that the operator calls."""
    best_generated: str | None
    """Name of the fastest verified generated kernel, None if there is none."""
    fibertree: str
    """The packed operand's levels as text."""
    loops: str
    """The chosen program's loops as text."""
    source: str
    """Its C text."""
    n: int | None = None
    """Columns of the dense operand, None where the op has none."""
    stored_positions: int | None = None
    """Value positions in the chosen format, padding included."""
    baseline: str = "SciPy"
    """What the user had, and `break_even_calls` of the costs is counted against."""
    break_even: tuple[float, float] | None = None
    """Fewest and most calls to break even that the rounds allow; None: not known."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """Prices by name; the suffix tells the unit: ``_s`` seconds, ``_bytes`` bytes, others are counts."""
    peak_flop_per_s: float | None = None
    """Measured on this machine with the same threads and dtype."""
    bandwidth_bytes_per_s: float | None = None
    """Measured on this machine with the same threads, at the level of memory that `bandwidth_of` names."""
    bandwidth_of: str = ""
    """``L1`` to ``DRAM``: the smallest level that holds all that a call moves; empty: not told."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """CPU, compiler and flags, versions, date: what a reader needs to judge the numbers."""
    notes: Sequence[str] = ()
    """Sentences a reader should not miss: interrupted, refused, what this machine cannot resolve."""

    def __post_init__(self) -> None:
        names = [c.name for c in self.candidates]
        if len(set(names)) != len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise InputError(f"candidates of a report: {twice!r} is there twice; give each a name of its own")

    def candidate(self, name: str | None) -> Candidate | None:
        """Return the candidate called ``name``, None if there is none."""
        return next((c for c in self.candidates if c.name == name), None)

    @property
    def measured(self) -> list[Candidate]:
        """Candidates with a valid time, fastest first."""
        return sorted((c for c in self.candidates if c.valid), key=lambda c: c.seconds)

    @property
    def best_library(self) -> Candidate | None:
        """The fastest library routine."""
        return next((c for c in self.measured if c.baseline), None)
