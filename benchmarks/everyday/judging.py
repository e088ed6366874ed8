"""What the regret curve's figures say: ratios at each number of calls, beside their targets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from benchmarks.corpus import geometric_mean

MARKS: Final = [m * 10**p for p in range(4) for m in (1, 2, 5)] + [10_000]
"""Numbers of calls after which a process reads the clock."""
READINGS: Final = (*MARKS, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
"""The same for processes that are to call more often."""
CALLS: Final = (10, 100, 1000, 10_000)
"""Numbers of calls that targets are of."""
SLOWER: Final = 0.95
"""A speed below this, as a share of the peer's, counts as slower."""
MOST_OF_NEVER, PLUS_S = 1.10, 1e-3
"""Bounds of the total time, as a multiple of never tuning and in seconds on top."""
MOST_OF_SEARCHED: Final = 1.05
"""Bound of a call's seconds in the end, as a multiple of the kernel that a long search finds."""
MKL: Final = ("mkl", "mkl, no hints")
INSPECTED: Final = "mkl with its inspector"
"""The peer that is told beside the faster of MKL's two, which is what targets are of."""

Target = tuple[float, float | None]
"""Geometric mean, and worst matrix."""
TARGETS: Final[dict[tuple[str, str], dict[int, Target]]] = {
    ("spmv", "scipy"): {10: (0.95, 1.05), 100: (0.70, 1.05), 1000: (0.42, 0.9), 10_000: (0.38, 0.85)},
    ("spmv", "mkl"): {10: (0.4, None), 100: (0.5, None), 1000: (0.6, None), 10_000: (0.6, None)},
    ("spmm", "scipy"): {10: (0.45, 1.05), 100: (0.28, None), 1000: (0.21, None), 10_000: (0.20, None)},
    ("spmm", "mkl"): {10: (0.5, None), 100: (0.5, None), 1000: (0.45, None), 10_000: (0.45, None)},
}
"""Seconds of ours over a peer's: those that were set for 64 columns hold for all widths."""


def seconds_at(line: str, calls: int) -> tuple[float, bool]:
    """Return seconds of so many calls from a line of seconds at `READINGS`, and whether they are extrapolated.

    Beyond the last reading a call takes what `call_seconds` says.

    >>> seconds_at("1 2 5 10", 5), seconds_at("1 2 5 10", 20)
    ((5.0, False), (20.0, True))
    """
    read = [float(word) for word in line.split()]
    if calls in READINGS[: len(read)]:
        return read[READINGS.index(calls)], False
    last, rate = READINGS[len(read) - 1], call_seconds(line)
    return read[-1] + (calls - last) * rate, True


def call_seconds(line: str) -> float:
    """Return seconds of a call since the reading before the last: of half of the calls and more.

    >>> call_seconds("10 11 14 16")
    0.4
    """
    read = [float(word) for word in line.split()]
    if len(read) == 1:
        return read[0]
    return (read[-1] - read[-2]) / (READINGS[len(read) - 1] - READINGS[len(read) - 2])


@final
@dataclass(frozen=True)
class Curve:
    """Totals of one contestant on one matrix.

    Attributes:
        lines: of seconds at `READINGS`, one a round.
        overheads_s: import and loading of kernels, one a round.
    """

    lines: Sequence[str]
    overheads_s: Sequence[float]

    @classmethod
    def of(cls, run: Mapping[str, Any], name: str) -> "Curve | None":
        """Return the curve of a contestant, None where it did not take part."""
        held = run["contestants"].get(name)
        if held is None:
            return None
        overheads = [a + b for a, b in zip(held["import_s"], held["load_s"], strict=True)]
        return cls(held["seconds"], overheads)

    def totals(self, calls: int, overhead: bool = False) -> np.ndarray:
        """Return the seconds of each round."""
        extra = np.array(self.overheads_s) if overhead else 0.0
        return np.array([seconds_at(line, calls)[0] for line in self.lines]) + extra

    def is_extrapolated(self, calls: int) -> bool:
        """Whether seconds of so many calls were not measured in some round."""
        return any(seconds_at(line, calls)[1] for line in self.lines)


def peer_of(run: Mapping[str, Any], peer: str, calls: int) -> Curve | None:
    """Return the curve of a peer; of MKL's two the one that is faster at so many calls, but for `INSPECTED`."""
    names = MKL if peer == "mkl" else ("mkl",) if peer == INSPECTED else (peer,)
    found = [curve for name in names if (curve := Curve.of(run, name))]
    return min(found, key=lambda curve: float(np.median(curve.totals(calls))), default=None)


def ratio(run: Mapping[str, Any], name: str, peer: str, calls: int, overhead: bool = False) -> float | None:
    """Return the median over rounds of seconds of ``name`` over those of ``peer``; None where one did not take part.

    Either may be ``mkl``: the faster of its two ways at so many calls.
    """
    mine, other = peer_of(run, name, calls), peer_of(run, peer, calls)
    if mine is None or other is None:
        return None
    return float(np.median(mine.totals(calls, overhead) / other.totals(calls, overhead)))


def group_of(case: str) -> tuple[str, str]:
    """Return operation and group of a case.

    >>> group_of("cage8 0 float64"), group_of("cage8 64 float32")
    (('spmv', 'SpMV, float64'), ('spmm', 'SpMM 64, float32'))
    """
    _, columns, dtype = case.split(" ")
    return ("spmv", f"SpMV, {dtype}") if columns == "0" else ("spmm", f"SpMM {columns}, {dtype}")


def groups_of(runs: Mapping[str, Any]) -> list[str]:
    """Return the groups of all cases, in their order."""
    return list(dict.fromkeys(group_of(case)[1] for case in runs))


def ratios_of(
    runs: Mapping[str, Mapping[str, Any]],
    group: str,
    name: str,
    peer: str,
    calls: int,
    overhead: bool = False,
) -> list[float]:
    """Return `ratio` of each matrix of a group on which both took part."""
    some = (run for case, run in runs.items() if group_of(case)[1] == group)
    return [value for run in some if (value := ratio(run, name, peer, calls, overhead))]


def summarize(runs: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, missed targets first, and whether it holds: for ``ours`` as it is."""
    missed, met, holds = list[str](), list[str](), bool(runs)
    groups: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for case, run in runs.items():
        groups.setdefault(group_of(case), {})[case.split(" ")[0]] = run
    for (op, group), cases in groups.items():
        for name in ("ours", "ours, frozen"):
            for peer in ("scipy", "mkl"):
                for calls, target in TARGETS[op, peer].items():
                    if line := compare(cases, name, peer, calls, target):
                        text, is_met = line
                        (met if is_met else missed).append(f"{group}, {calls:,} calls, {name}/{peer}: {text}")
                        holds &= is_met or name != "ours"
            for text, is_met in (never(cases, name), searched(cases, name)):
                if text:
                    (met if is_met else missed).append(f"{group}, {name}: {text}")
                    holds &= is_met or name != "ours"
    wrong = [f"{case} ({', '.join(run['wrong'])})" for case, run in runs.items() if run["wrong"]]
    lines = [f"{len(runs)} runs; wrong results: {', '.join(wrong) or 'none'}", *overheads(runs)]
    lines += [f"MISSED {line}" for line in missed] + [f"met {line}" for line in met]
    judged = any(", ours/" in line for line in (*missed, *met))
    return lines, holds and judged and not wrong


def compare(
    cases: Mapping[str, Mapping[str, Any]], name: str, peer: str, calls: int, target: Target
) -> tuple[str, bool] | None:
    """Return a line about one number of calls, and whether its target is met; None where nothing was measured."""
    ratios = {case: value for case, run in cases.items() if (value := ratio(run, name, peer, calls))}
    if not ratios:
        return None
    whole = [value for run in cases.values() if (value := ratio(run, name, peer, calls, overhead=True))]
    guessed = sum(
        any(
            curve is None or curve.is_extrapolated(calls)
            for curve in (Curve.of(run, name), peer_of(run, peer, calls))
        )
        for run in cases.values()
    )
    mean, worst = geometric_mean(ratios.values()), max(ratios, key=lambda case: ratios[case])
    slower = sum(value > 1 / SLOWER for value in ratios.values()) / len(ratios)
    goal, limit = target
    text = (
        f"{mean:.2f} in geometric mean of {len(ratios)} (target {goal:g}), worst {ratios[worst]:.2f} {worst}"
        + (f" (target {limit:g})" if limit else "")
        + f", {100 * slower:.0f} % below {SLOWER:g}x; with import and loading {geometric_mean(whole):.2f}"
        + (f"; extrapolated on {guessed}" if guessed else "")
    )
    if peer == "mkl" and (told := [r for run in cases.values() if (r := ratio(run, name, INSPECTED, calls))]):
        text += f"; beside {INSPECTED} {geometric_mean(told):.2f}"
    return text, mean <= goal and (limit is None or ratios[worst] <= limit)


def excess_of(cases: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, tuple[float, int]]:
    """Return for each matrix the largest multiple of the bound by never tuning, and after how many calls."""
    excess = dict[str, tuple[float, int]]()
    for case, run in cases.items():
        mine, other = Curve.of(run, name), Curve.of(run, "never tuned")
        if mine is None or other is None:
            continue
        for calls in MARKS:
            excess[case] = max(excess.get(case, (0.0, 0)), (over_bound(mine, other, calls), calls))
    return excess


def over_bound(mine: Curve, other: Curve, calls: int) -> float:
    """Return the total of one contestant as a multiple of what another one's allows: 1.10 times as much, plus 1 ms."""
    return float(np.median(mine.totals(calls) / (MOST_OF_NEVER * other.totals(calls) + PLUS_S)))


def never(cases: Mapping[str, Mapping[str, Any]], name: str) -> tuple[str, bool]:
    """Return a line about what tuning costs beyond never tuning, at any number of calls."""
    excess = excess_of(cases, name)
    if not excess:
        return "", True
    above = sum(over > 1 for over, _ in excess.values())
    worst = max(excess, key=lambda case: excess[case][0])
    over, calls = excess[worst]
    text = (
        f"more than {MOST_OF_NEVER:.2f} times never tuning plus 1 ms on {above} of {len(excess)} (target 0), "
        f"at worst {over:.2f} of that: {worst} after {calls:,} calls"
    )
    return text, not above


def searched(cases: Mapping[str, Mapping[str, Any]], name: str) -> tuple[str, bool]:
    """Return a line about a call in the end against one of the kernel that a long search finds; of the first round."""
    ratios = {
        case: call_seconds(mine.lines[0]) / call_seconds(other.lines[0])
        for case, run in cases.items()
        if (mine := Curve.of(run, name)) and (other := Curve.of(run, "searched"))
    }
    if not ratios:
        return "", True
    mean, worst = geometric_mean(ratios.values()), max(ratios, key=lambda case: ratios[case])
    calls = [READINGS[len(Curve.of(cases[case], name).lines[0].split()) - 1] for case in ratios]
    text = (
        f"a call in the end, after {min(calls):,} to {max(calls):,} calls, takes {mean:.2f} of that of a long search's "
        f"kernel in geometric mean of {len(ratios)} (target {MOST_OF_SEARCHED:g}), worst {ratios[worst]:.2f} {worst}"
    )
    return text, mean <= MOST_OF_SEARCHED


def overheads(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line about imports and loading, which ratios do not contain."""
    told = dict[str, tuple[list[float], list[float]]]()
    for run in runs.values():
        for name, held in run["contestants"].items():
            imports, loads = told.setdefault(name, ([], []))
            imports += held["import_s"]
            loads += held["load_s"]
    parts = (
        f"{name} {1e3 * np.median(imports):.1f} + {1e3 * np.median(loads):.1f} ms"
        for name, (imports, loads) in told.items()
    )
    return [f"import beyond SciPy's + loading of kernels, medians: {', '.join(parts)}"]
