"""What the results come to: speed-ups, shares of the long search, break-even, and whether the claims hold."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from benchmarks.baselines import BASELINES
from benchmarks.corpus import RESULTS
from benchmarks.kernels.targets import BEST_BASELINE, Speedups, of_case
from benchmarks.kernels.targets import speedups as kernel_speedups
from tuners.choices import Settings
from tuners.earning import Tuned
from tuners.steps import NAIVE, OURS

Run = Mapping[str, Any]
LIBRARIES: Final = "the best library"
NAMES: Final = {
    OURS: "best of ten",
    "top1": "first named",
    "long": "long search",
    "best_format": "BestFormat",
    "tiling": "ASpT-like tiling",
    "fixed_csr": "Fixed CSR",
    "mkl": "MKL inspected",
    NAIVE: "MKL untuned",
    "default": "our default",
}
"""How tables call what was timed."""


def kernel_runs() -> dict[str, Run]:
    """Return what ``benchmarks/kernels`` last measured."""
    runs: dict[str, Run] = json.loads((RESULTS / "kernels.json").read_text())["runs"]
    return runs


def compared(runs: Mapping[str, Run]) -> dict[str, list[Run]]:
    """Return the finished comparisons by operation."""
    found: dict[str, list[Run]] = {}
    for run in runs.values():
        if "over" in run:
            found.setdefault(run["op"], []).append(run)
    return found


def speedups(runs: Iterable[Run], over: str, of: str = OURS) -> Speedups:
    """Return the speed-up of one over another by matrix; over the best library it is that over the fastest on a matrix."""
    ratios = {}
    for run in runs:
        known = {name: ratio[0] for name, ratio in run["over"].items()}
        known[LIBRARIES] = min((known[name] for name in BASELINES if name in known), default=math.nan)
        if over in known and of in known and not math.isnan(known[over]):
            ratios[run["name"]] = known[over] / known[of]
    return Speedups(ratios)


def shares(runs: Iterable[Run], of: str) -> Speedups:
    """Return the share of the long search's speed that a choice reaches, by matrix."""
    return Speedups({run["name"]: run["share"][of] for run in runs if of in run["share"]})


def against_kernels(runs: Sequence[Run], kernels: Iterable[Run], op: str, settings: Settings) -> Speedups:
    """Return, on matrices that both have, our speed-up over the best library over that of `benchmarks/kernels`."""
    theirs = kernel_speedups(
        of_case(list(kernels), (op, settings.n(op), settings.threads)), BEST_BASELINE
    ).ratios
    ours = speedups(runs, LIBRARIES).ratios
    return Speedups({name: ours[name] / theirs[name] for name in ours if name in theirs})


def noise(runs: Sequence[Run]) -> float:
    """Return how far from 1 the time of the same kernel over its own lies, median over matrices."""
    return statistics.median(abs(float(run["over"]["again"][0]) - 1) for run in runs)


def tuned(run: Run, name: str) -> Tuned | None:
    """Return what a tuner came to on a matrix, in calls of untuned MKL; None where either was not timed."""
    if name not in run["prices"] or name not in run.get("naive", {}):
        return None
    return Tuned(run["prices"][name]["seconds"] / run["seconds"][NAIVE], run["naive"][name])


def break_even(runs: Iterable[Run], name: str) -> list[float]:
    """Return the calls after which a tuner has paid for itself, on each matrix where its choice is faster, ascending."""
    known = [tuned(run, name) for run in runs]
    return sorted(one.break_even for one in known if one is not None and one.call < 1)


def fates(runs: Iterable[Run], calls: int) -> dict[str, float]:
    """Return shares of the matrices when a tuning is told so many calls.

    ``tuned``: candidates were measured; ``left alone``: none was; ``never``: the choice is no faster than untuned MKL, so
    that nothing is ever earned back; ``earned``: it is earned back within these calls. The first two add up to 1.
    """
    name = f"told {calls}"
    known = [(run, one) for run in runs if (one := tuned(run, name)) is not None]
    if not known:
        return {}
    counts = {
        "tuned": sum(run["prices"][name]["measured"] > 0 for run, _ in known),
        "left alone": sum(run["prices"][name]["measured"] == 0 for run, _ in known),
        "never": sum(math.isinf(one.break_even) for _, one in known),
        "earned": sum(one.break_even <= calls for _, one in known),
    }
    return {what: count / len(known) for what, count in counts.items()}


def judge(
    runs: Mapping[str, Run], kernels: Mapping[str, Run], settings: Settings, expected: Mapping[str, Any]
) -> tuple[list[str], bool | None]:
    """Return a line for each claim, and whether all hold; None where nothing was measured.

    A mean counts as reached where it is at most the tolerance, a share, below what is wanted.

    Args:
        runs: of this experiment; kernels: of ``benchmarks/results/kernels.json``.
        expected: ``expected.json``.
    """
    wanted, room = expected["wanted"], 1 - expected["tolerance"]
    lines, holds = [], True
    for op, some in compared(runs).items():
        claims = [
            (f"{NAMES[of]} over the long search", shares(some, of), wanted[of]) for of in (OURS, "top1")
        ]
        claims += [
            (f"best of ten over {NAMES[name]}", speedups(some, name), by_op[op])
            for name, by_op in wanted["over"].items()
            if op in by_op
        ]
        known = against_kernels(some, kernels.values(), op, settings)
        claims.append(
            (f"best of ten over {LIBRARIES}, over what kernels reached there", known, wanted["libraries"])
        )
        for what, found, least in claims:
            if not found.ratios:
                lines.append(f"{op}: {what}: nothing was measured")
                continue
            met = found.mean >= least * room
            holds &= met
            lines.append(f"{op}: {what}: {_text(found)} (wanted {least:g}x): {_reached(met)}")
        if op in wanted["break_even"]:
            most = wanted["break_even"][op]
            paid = break_even(some, f"told {most}")
            if paid:
                met = statistics.median(paid) <= most / room
                holds &= met
                lines.append(
                    f"{op}: break-even when told {most} calls: median {statistics.median(paid):.0f} calls of untuned MKL "
                    f"over {len(paid)} of {len(some)} with a gain (wanted {most}): {_reached(met)}"
                )
        lines.append(f"{op}: the same kernel twice differs by {noise(some):.1%}, median over {len(some)}")
    return (lines, holds) if lines else (["nothing was measured yet"], None)


def _text(found: Speedups) -> str:
    name, worst = found.worst
    return f"{found.mean:.3f}x over {len(found.ratios)}, {found.slower:.0%} below 0.95x, worst {name} {worst:.2f}x"


def _reached(met: bool) -> str:
    return "reached" if met else "not reached"
