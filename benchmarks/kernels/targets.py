"""The targets of the kernels, and how far measured runs reach them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.corpus import geometric_mean

Run = Mapping[str, Any]
FLOOR: Final = 0.95
BEST_BASELINE: Final = "the best baseline"


@dataclass(frozen=True)
class Target:
    """Speed-ups of our best generated kernel that are aimed at, on one operation.

    Attributes:
        against: a baseline's name, or ``BEST_BASELINE``: for each matrix the fastest of them all.
        mean: geometric mean over the matrices.
        share: of the matrices that may not be slower than FLOOR; None where nothing is asked.
        part: beginning of the names of the matrices that count; empty for all.
    """

    op: str
    against: str
    mean: float
    share: float | None
    part: str = ""


TARGETS: Final = (
    Target("spmv", BEST_BASELINE, 1.5, 0.97),
    Target("spmm", BEST_BASELINE, 2.0, 0.99),
    Target("spmm", BEST_BASELINE, 2.2, 1.0, "dlmc"),
    Target("sddmm", BEST_BASELINE, 1.8, 0.99),
    Target("sddmm", "torch", 2.5, None),
    Target("mttkrp", "fixed_csr", 1.5, 0.95),
    Target("mttkrp", "numba", 2.0, 0.95),
)


@dataclass(frozen=True)
class Speedups:
    """Speed-ups by name of the matrix.

    Attributes:
        ratios: the medians of rounds.
        widths: of the 95 % interval of each median, as a share of it; empty where none was noted.
    """

    ratios: Mapping[str, float]
    widths: Mapping[str, float] = field(default_factory=dict)

    @property
    def unsure(self) -> float:
        """Half the width of the interval of a single matrix, as a share, in the median; NaN where none was noted."""
        return statistics.median(self.widths.values()) / 2 if self.widths else math.nan

    @property
    def mean(self) -> float:
        """Geometric mean; NaN of none."""
        return geometric_mean(self.ratios.values())

    @property
    def worst(self) -> tuple[str, float]:
        """The matrix on which we do worst, and its speed-up."""
        return min(self.ratios.items(), key=lambda pair: pair[1], default=("", math.nan))

    @property
    def slower(self) -> float:
        """Share of the matrices on which we are slower than FLOOR."""
        return sum(ratio < FLOOR for ratio in self.ratios.values()) / max(1, len(self.ratios))


@dataclass(frozen=True)
class Reached:
    """A target with what was measured for one dense extent and number of threads."""

    target: Target
    n: int | None
    threads: int
    speedups: Speedups

    @property
    def met(self) -> bool:
        """Whether the mean and the share are reached."""
        share = self.target.share
        enough = share is None or 1 - self.speedups.slower >= share - 1e-9
        return bool(self.speedups.ratios) and self.speedups.mean >= self.target.mean and enough

    def __str__(self) -> str:
        name, ratio = self.speedups.worst
        wanted = f"target {self.target.mean:g}x"
        if self.target.share is not None:
            wanted += f", at most {100 * (1 - self.target.share):.3g} % slower"
        on = f" on {self.target.part}" if self.target.part else ""
        return (
            f"{case_name(self.target.op, self.n)}{on}, {threads_name(self.threads)}, against {self.target.against}: "
            f"{self.speedups.mean:.2f}x over {len(self.speedups.ratios)}, {100 * self.speedups.slower:.1f} % below "
            f"{FLOOR:g}x, worst {name} {ratio:.2f}x, each +-{100 * self.speedups.unsure:.0f} % ({wanted}): "
            f"{'reached' if self.met else 'not reached'}"
        )


def case_name(op: str, n: int | None) -> str:
    """Return ``spmv`` or ``spmm n=32``; MTTKRP has a rank."""
    return op if n is None else f"{op} {'rank ' if op == 'mttkrp' else 'n='}{n}"


def threads_name(threads: int) -> str:
    """Return ``1 thread`` or ``2 threads``."""
    return f"{threads} thread{'s'[: threads > 1]}"


def cases(runs: Sequence[Run]) -> list[tuple[str, int | None, int]]:
    """Return operation, dense extent and threads of the runs, in the order in which pages show them."""
    ops = list(dict.fromkeys(target.op for target in TARGETS))
    found = {(run["op"], run["n"], run["threads"]) for run in runs}
    return sorted(found, key=lambda case: (ops.index(case[0]), case[1] or 0, case[2]))


def of_case(runs: Sequence[Run], case: tuple[str, int | None, int]) -> list[Run]:
    """Return the runs of one case."""
    return [run for run in runs if (run["op"], run["n"], run["threads"]) == case]


def speedups(runs: Sequence[Run], against: str, ours: str = "best") -> Speedups:
    """Return the speed-ups of our ``best`` or ``default`` kernel over a baseline, or the best of all, by matrix."""
    ratios: dict[str, float] = {}
    widths: dict[str, float] = {}
    for run in runs:
        intervals = run.get("speedup", {})
        known = {name: interval[0] for name, interval in intervals.items()}
        if ours != "best":
            known = run.get("default", {})
        name = min(known, key=known.__getitem__, default="") if against == BEST_BASELINE else against
        if name in known:
            ratios[run["name"]] = known[name]
            if ours == "best":
                middle, low, high = intervals[name]
                widths[run["name"]] = (high - low) / middle
    return Speedups(ratios, widths)


def reached(runs: Sequence[Run]) -> list[Reached]:
    """Return all targets with what was measured, for every case that has runs."""
    found = []
    for target in TARGETS:
        for case in cases([run for run in runs if run["op"] == target.op]):
            some = [run for run in of_case(runs, case) if run["name"].startswith(target.part)]
            if some:
                found.append(Reached(target, case[1], case[2], speedups(some, target.against)))
    return found
