"""What CDMPP is compared with, on the same programs and the same parts: each fits times and predicts seconds."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tensorwise.model.program_net import estimate_leaf_times
from tensorwise.model.programs import Measured, ProgramKey, Programs

Predict = Callable[[Programs], np.ndarray]
"""Programs -> (n,) seconds."""
LARGEST: Final = 2
"""Leaves that a flat row has in full."""
DECISIONS: Final = 48
"""Numbers of a schedule's decisions; of the longest the rest is left out."""


def flat(programs: Programs) -> np.ndarray:
    """Return programs as rows of equal length: sums, maxima and the leaves that take longest, then the device."""
    rows = []
    for row, device in zip(programs, programs.context, strict=True):
        leaves = row.ast.leaves
        work = estimate_leaf_times(leaves[None], device[None])[0]
        order = np.argsort(-work, kind="stable")[:LARGEST]
        full = np.zeros((LARGEST, leaves.shape[1]), np.float32)
        full[: len(order)] = leaves[order]
        # Fields are logarithms: of sums, so that two equal leaves count twice.
        sums = np.log2(np.exp2(np.clip(leaves, 0, 60)).sum(0))
        rows.append(np.concatenate([sums, leaves.max(0), full.ravel(), [len(leaves)], device]))
    return np.array(rows)


def primitives(programs: Programs) -> np.ndarray:
    """Return schedules as TLP reads them: the decisions of their primitives in order, and the size of the task."""
    rows = []
    for row in programs:
        config = dict(json.loads(row.config))
        numbers: list[float] = []
        for number, value in json.loads(str(config.get("decisions", "[]"))):
            numbers += [
                number,
                *(np.log2(1 + abs(x)) for x in (value if isinstance(value, list) else [value])),
            ]
        padded = np.zeros(DECISIONS)
        padded[: min(len(numbers), DECISIONS)] = numbers[:DECISIONS]
        sizes = np.log2(1 + np.array([row.flops, row.bytes]))
        rows.append([float(config.get("design", 0)), *sizes, *padded])
    return np.hstack([np.array(rows), programs.context])


def boosted(
    read: Callable[[Programs], np.ndarray], training: Programs, settings: Mapping[str, Any], seed: int
) -> Predict:
    """Return gradient-boosted trees on rows that ``read`` makes, of how much longer programs take than at best rates.

    Without that scale, which CDMPP's network has where it adds leaves up, they are some points further off.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    trees = HistGradientBoostingRegressor(random_state=seed, early_stopping=False, **settings)
    trees.fit(read(training), np.log(training.seconds) - _scales(training))
    return lambda programs: np.exp(trees.predict(read(programs)) + _scales(programs))


def _scales(programs: Programs) -> np.ndarray:
    """Logs of the microseconds that all leaves would take at their device's best rates."""
    context = programs.context
    work = (
        estimate_leaf_times(row.ast.leaves[None], one[None])[0]
        for row, one in zip(programs, context, strict=True)
    )
    return np.array([np.logaddexp.reduce(one) for one in work])


def mean(training: Programs) -> Predict:
    """Return the geometric mean of each device's times, or of all for another."""
    logs = np.log(training.seconds)
    names = np.array([row.device for row in training])
    known = {device: float(logs[names == device].mean()) for device in training.devices}
    other = float(logs.mean())
    return lambda programs: np.exp([known.get(row.device, other) for row in programs])


def bound(row: Measured) -> float:
    """Return the seconds that nobody can beat: operations or bytes of the task at the device's best rate."""
    one = row.hardware
    return max(row.flops / one.flops, row.bytes / one.bandwidth, 1e-9)


def roofline(training: Programs) -> Predict:
    """Return the bound, times what programs took beyond it in the median (of each device, or of all for another)."""
    logs = np.log(training.seconds) - np.log([bound(row) for row in training])
    names = np.array([row.device for row in training])
    known = {device: float(np.median(logs[names == device])) for device in training.devices}
    other = float(np.median(logs))
    return lambda programs: np.array([bound(row) * np.exp(known.get(row.device, other)) for row in programs])


def scaled(measured: Programs) -> Predict:
    """Return Habitat's way: the time of the same program on the most similar known device, by the ratio of their bounds.

    A program that no known device ran is scaled by the roofline.
    """
    times: dict[ProgramKey, list[Measured]] = {}
    for row in measured:
        times.setdefault(row.key, []).append(row)
    otherwise = roofline(measured)

    def predict(programs: Programs) -> np.ndarray:
        found = otherwise(programs)
        for place, row in enumerate(programs):
            if some := times.get(row.key):
                near = min(some, key=lambda one: abs(np.log(one.hardware.flops / row.hardware.flops)))
                found[place] = near.seconds * bound(row) / bound(near)
        return found

    return predict
