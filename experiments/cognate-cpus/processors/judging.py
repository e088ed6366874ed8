"""How well models rank on each machine: a row of figures a job, and the claims."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tensorwise.model.evaluation import MIN_TIMED_CONFIGS
from tensorwise.model.metrics import quality
from tensorwise.model.samples import Group

Row = list[float | None]
"""Of one job, in the order of FIGURES; None where a correlation does not exist."""
FIGURES: Final = ("spearman", "near", "fastest", "top1", "top10")
"""Rank correlations over all configs, those within ten times the best, and the fastest quarter; the best time over the best
of those predicted best."""
OWN, OTHERS = "own", "others"


def rows(groups: Sequence[Group], predict: Callable[[Group], np.ndarray]) -> list[Row]:
    """Return a row for each job that has times enough."""
    found: list[Row] = []
    for group in groups:
        if np.count_nonzero(group.exact) < MIN_TIMED_CONFIGS:
            continue
        one = quality(group.seconds, predict(group), group.exact)
        values = (
            one.spearman,
            one.near_spearman,
            one.fastest_spearman,
            one.best_of_top[1],
            one.best_of_top[10],
        )
        found.append([None if value != value else round(value, 4) for value in values])
    return found


def mean(some: Sequence[Row]) -> dict[str, float]:
    """Return the mean of each figure over jobs, and how many ``jobs`` there are."""
    found: dict[str, float] = {"jobs": len(some)}
    for place, name in enumerate(FIGURES):
        column = [value for row in some if (value := row[place]) is not None]
        found[name] = float(np.mean(column)) if column else float("nan")
    return found


def ways(runs: Mapping[str, Any], op: str) -> dict[tuple[str, str], dict[str, float]]:
    """Return the figures of each (machine, way) of an operation, means over draws; ``apart``: of top-1 between draws."""
    found = {}
    for run in runs.values():
        for one in run.get("ways", ()) if run.get("op") == op else ():
            draws = [mean(draw) for draw in one["draws"]]
            means = {name: float(np.mean([draw[name] for draw in draws])) for name in (*FIGURES, "jobs")}
            tops = [draw["top1"] for draw in draws]
            found[one["on"], one["way"]] = {**means, "apart": max(tops) - min(tops)}
    return found


def machines(runs: Mapping[str, Any], op: str) -> list[str]:
    """Return the machines of an operation, in the order of the steps."""
    return list(dict.fromkeys(on for on, _ in ways(runs, op)))


def judge(runs: Mapping[str, Any], expected: Mapping[str, Any]) -> tuple[list[str], bool | None]:
    """Return a line for each claim, and whether all hold; None while nothing is known.

    On a processor that nothing was learned from: the aims for what is named first and the best of ten; a few workloads of it
    make that no worse; and it is ahead of what the same few teach a model from scratch.
    """
    lines, holds = list[str](), list[bool]()

    def claim(text: str, value: bool) -> None:
        holds.append(value)
        lines.append(f"{text}: {'holds' if value else 'does not hold'}")

    slack = expected["tolerance"]
    for op in dict.fromkeys(run["op"] for run in runs.values() if "ways" in run):
        found = ways(runs, op)
        for on in machines(runs, op):
            plain, tuned = found.get((on, "all others")), found.get((on, "all others, calibrated"))
            scratch = found.get((on, "from scratch"))
            if plain:
                for figure, aim in expected["aims"].items():
                    text = f"{op} on {on}, learned on the others: {figure} {plain[figure]:.3f}, wanted {aim}"
                    claim(text, plain[figure] >= aim - slack)
            if plain and tuned:
                text = (
                    f"{op} on {on}: calibrated {tuned['top1']:.3f}, as it was {plain['top1']:.3f} of the best"
                )
                claim(text, tuned["top1"] >= plain["top1"] - slack)
            if plain and scratch:
                text = f"{op} on {on}: from scratch {scratch['top1']:.3f}, learned on the others {plain['top1']:.3f}"
                claim(text, scratch["top1"] <= plain["top1"] + slack)
    return lines, all(holds) if holds else None
