"""How well choosing by predictions does: sums over matrices that later become the figures of COGNATE's evaluation."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from math import comb
from typing import Any, Final

import numpy as np

from tensorwise.model.gains import Gain, gain, mean_gain
from tensorwise.model.samples import Group

FEWER: Final = 3
"""Matrices that are to do, when they are chosen."""
TARGET_COSTS: Final = 1000
"""What a sample of the accelerator costs, in samples of the CPU: the paper's figure."""
_SOURCE: Final = re.compile(r", from (?P<count>\d+)$")
_TARGET: Final = re.compile(
    r", of (?P<count>\d+|all)(?: chosen)?(?: with (?P<configs>\d+) \w+ configs)?(?:, from \d+)?$"
)
Predict = Callable[[Group], np.ndarray]
"""What a way says of the configs of a group: lower is better."""
Row = list[float]
"""What choosing on one matrix gains: speed-ups of the first and of the best of five, of the optimum, pairs, tau."""
Run = Mapping[str, Any]
"""A step's result: ``ways``, each a list of draws, each the ``packed`` rows in the order of ``names``."""


def rows(tests: Sequence[Group], predict: Predict) -> list[Row]:
    """Return a row for each matrix."""
    found = [gain(group.seconds, predict(group), group.default_s) for group in tests]
    return [list(astuple(one)) for one in found]


def packed(some: Sequence[Row]) -> str:
    """Return rows as a text, a tenth as long in a file as lists of numbers, which have a line each."""
    return "; ".join(" ".join(f"{value:.4g}" for value in row) for row in some)


def unpacked(text: str) -> list[Row]:
    """Read back what ``packed`` returned."""
    return [[float(value) for value in row.split()] for row in text.split("; ")]


def at_random(group: Group) -> Row:
    """Return what a config drawn by chance gains, and the best of five: geometric means over all draws."""
    logs = np.sort(np.log(group.default_s / group.seconds))[::-1]
    n = len(logs)
    first = [comb(n - 1 - place, 4) / comb(n, 5) for place in range(n)]  # the best of five has this place
    one, five = float(np.exp(logs.mean())), float(np.exp(logs @ np.array(first)))
    return [one, five, float(np.exp(logs[0])), 0.5, 0.0]


def figures(draws: Sequence[Sequence[Row]]) -> dict[str, float]:
    """Return the figures over matrices and draws, and two more.

    ``apart``: how far ``top1`` of one draw is from another's, at most. ``ape``: the absolute percentage error of Appendix A,
    by how much the config predicted best takes longer than the best one, in the mean.
    """
    found = mean_gain(Gain(*row) for draw in draws for row in draw)
    shares = [mean_gain(Gain(*row) for row in draw)["top1"] for draw in draws]
    longer = [optimum / one - 1 for draw in draws for one, _, optimum, *_ in draw]
    return {
        **found,
        "workloads": len(draws[0]),
        "apart": max(shares) - min(shares),
        "ape": 100 * float(np.mean(longer)),
    }


def samples(way: str, runs: Mapping[str, Run], op: str) -> tuple[int, int] | None:
    """Return how many samples of the source and of the target a way has learned from, in the mean over folds.

    None where that is not known: of results from before it was noted.
    """
    known = [run["samples"] for run in runs.values() if run.get("op") == op and "samples" in run]
    if not known:
        return None
    source = float(np.mean([sum(one["source"]) for one in known]))
    a_workload = float(np.mean([np.mean(one["source"]) for one in known]))
    configs, learn = known[0]["configs"], float(np.mean([one["learn"] for one in known]))
    if found := _SOURCE.search(way):
        source = int(found["count"]) * a_workload
    elif "no transfer" in way or not way.startswith("network"):
        source = 0.0
    target = 0.0
    if found := _TARGET.search(way):
        if found["configs"]:
            configs = int(found["configs"])
        target = (learn if found["count"] == "all" else int(found["count"])) * configs
    return round(source), round(target)


def expense(found: tuple[int, int]) -> int:
    """Return what samples cost by Appendix A: one of the accelerator as much as a thousand of the CPU."""
    return found[0] + TARGET_COSTS * found[1]


def ways(runs: Mapping[str, Run], op: str) -> dict[str, list[list[Row]]]:
    """Return the draws of each way of an operation, the matrices of all folds that are done together.

    A way that lacks folds which another one has is left out: it would be compared on other matrices.
    """
    found: dict[str, list[list[Row]]] = {}
    for run in runs.values():
        if run.get("op") == op:
            for way, draws in run["ways"].items():
                known = found.setdefault(way, [[] for _ in draws])
                for draw, some in zip(known, draws, strict=True):
                    draw += unpacked(some)
    most = max((len(draws[0]) for draws in found.values()), default=0)
    return {way: draws for way, draws in found.items() if len(draws[0]) == most}


def by_matrix(runs: Mapping[str, Run], op: str, way: str) -> dict[str, Row]:
    """Return the row of each matrix in the first draw of a way."""
    return {
        name: row
        for run in runs.values()
        if run.get("op") == op and way in run["ways"]
        for name, row in zip(run["names"], unpacked(run["ways"][way][0]), strict=True)
    }


def judge(runs: Mapping[str, Run], expected: Mapping[str, Any], few: int) -> tuple[list[str], bool | None]:
    """Return a line for each claim, and whether all hold; None while nothing is known.

    The aims are those of a model that has seen ``few`` matrices of the target, drawn by chance. The paper's figures are
    compared as shares of the optimum, since ours is another machine: no claims, but lines.
    """
    lines, holds = list[str](), list[bool]()

    def claim(text: str, value: bool) -> None:
        holds.append(value)
        lines.append(f"{text}: {'holds' if value else 'does not hold'}")

    slack = expected["tolerance"]
    for op, aims in expected["aims"].items():
        found = {way: figures(draws) for way, draws in ways(runs, op).items()}
        name = f"counted, of {few}"
        if name not in found:
            continue
        ours = found[name]
        for figure, aim in aims.items():
            claim(f"{op}, {name}: {figure} {ours[figure]:.3f}, wanted {aim}", ours[figure] >= aim - slack)
        others = {way: found[way]["top1"] for way in baselines(few) if way in found}
        if others:
            rival = max(others, key=lambda way: others[way])
            better = ours["top1"] > others[rival]
            claim(
                f"{op}, {name}: {ours['top1']:.3f}, above the best baseline, {rival}: {others[rival]:.3f}",
                better,
            )
        if (fewer := f"counted, of {FEWER} chosen") in found:
            chosen = found[fewer]["top1"]
            claim(f"{op}, {fewer}: {chosen:.3f}, as good as {few} drawn", chosen >= ours["top1"] - slack)
        lines += _compared(op, found, expected["paper"].get(op, {}), few, slack)
    return lines, all(holds) if holds else None


def _compared(
    op: str, found: Mapping[str, Mapping[str, float]], paper: Mapping[str, Any], few: int, slack: float
) -> list[str]:
    """Lines on the paper's figures, as shares of the optimum, where it gives one."""
    lines = []
    for way, speedup in paper.get("speedup1", {}).items() if "optimum" in paper else ():
        named = named_here(way, few)
        if named in found:
            share, value = speedup / paper["optimum"], found[named]["top1"]
            apart = "more" if value > share + slack else "less" if value < share - slack else "the same"
            lines.append(f"{op}, {named}: {value:.3f} of the optimum, the paper's {way} {share:.3f}: {apart}")
    return lines


def named_here(way: str, few: int) -> str:
    """Return our name of one of the paper's ways: the network's."""
    return {
        "zero-shot": "network: zero-shot", "no transfer": f"network: no transfer, of {few}",
        "COGNATE": f"network: COGNATE, of {few}",
    }.get(way, f"network: {way}, of {few}")  # fmt: skip


def baselines(few: int) -> list[str]:
    """Return the ways that the aims have to beat."""
    networks = ("COGNATE", "no transfer", "WACO+FA", "WACO+FM", "zero-shot")
    plain = ["default config", "random", f"one config for all, of {few}"]
    return [*plain, *(named_here(name, few) for name in networks)]
