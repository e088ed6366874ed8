"""How good a tree chooses on inputs that it has not seen, and how few inputs would have been enough."""

from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import Any, Final

import numpy as np

from tensorwise.adapt.active import MARGIN, ActiveSampling
from tensorwise.model.cases import Cases
from tensorwise.model.choosing import cross_validated, grow_choice
from tensorwise.store.record import Record

BATCH: Final = 100
"""Inputs that are added before the forest learns from them, at least ..."""
GROWTH: Final = 10
"""... and one for so many that are known."""
CURVE: Final = 0.5
"""Share of the inputs at which a learning curve ends, but for a last point, all of them: claims are about a fifth."""


def judged(cases: Cases, settings: Mapping[str, Any], initial: int) -> dict[str, Any]:
    """Return the measures of the choice: by cross-validation, on the outer test set, and of active learning.

    Args:
        cases: all that was measured.
        settings: ``folds``, ``outer``, ``seed``, ``seeds`` and ``within``; see values.toml.
        initial: inputs that active learning takes as they come.

    Raises:
        InputError: there are fewer cells of the generator than folds.
    """
    rng = np.random.default_rng(settings["seed"])
    held = cases.folds(settings["outer"], rng) == 0
    known, test = cases.take(~held), cases.take(held)
    tree = grow_choice(known)
    outer = test.quality(_chosen(tree, test)).to_json()
    curves = {
        kind: _mean([_curve(known, test, outer["ppp"], first, margin, seed) for seed in range(settings["seeds"])])
        for kind, (first, margin) in {
            "active": (initial, None), "Algorithm 1": (initial, MARGIN), "at random": (None, None),
        }.items()
    }  # fmt: skip
    goal = outer["ppp"] + settings["within"]
    return {
        "cross-validation": known.quality(cross_validated(known, settings["folds"], rng)).to_json(),
        "outer": outer,
        "shares": cases.quality(cases.best).to_json()["fastest"],
        "leaves": tree.leaves,
        "least_s": float(np.median(cases.seconds.min(axis=1))),
        "known": len(known),
        "goal": goal,
        "curves": curves,
        "needed": {kind: needed(curve, goal) for kind, curve in curves.items()},
    }


def repeated(first: Iterable[Record], second: Iterable[Record]) -> dict[str, Any]:
    """Return the measures of choosing, on inputs that were measured twice, what was the fastest the first time.

    What is missing to a perfect choice is noise: no tree is better, if not by chance.

    Raises:
        InputError: nothing was measured twice.
    """

    def order(record: Record) -> tuple[str, str]:
        return str(record.provenance["input"]), record.config.text

    again = sorted(second, key=order)
    met = {str(record.provenance["input"]) for record in again}
    before = sorted((record for record in first if record.provenance["input"] in met), key=order)
    return Cases.of(again).quality(Cases.of(before).best).to_json()


def _chosen(tree: Any, cases: Cases) -> np.ndarray:
    return np.asarray(tree.values_at(cases.features).astype(np.int64))


def _curve(
    known: Cases, test: Cases, whole: float, initial: int | None, margin: float | None, seed: int
) -> list[list[float]]:
    """Return pairs of how many of the known inputs were asked for and the penalty on the test set of what they taught.

    Args:
        whole: the penalty of what all known inputs teach.
        initial: inputs taken as they come before a forest guides; None: all are.
        margin: see `ActiveSampling`.
    """
    rng = np.random.default_rng(seed)
    order = cycle(rng.permutation(len(known)).tolist())

    def features(one: int) -> list[float]:
        row: list[float] = known.features[one].tolist()
        return row

    sampling = ActiveSampling[int](
        lambda rng: next(order), features, str, rng, initial=initial, margin=margin
    )
    taken: list[int] = []
    points: list[list[float]] = []
    end = int(CURVE * len(known))
    while len(taken) < end:
        wanted = min(max(BATCH, len(taken) // GROWTH), end - len(taken))
        asked = sampling.ask(wanted)
        if asked:
            taken += asked
            some = known.take(np.array(taken))
            sampling.tell(some.features, some.penalties)
            points.append([len(taken), test.quality(_chosen(grow_choice(some), test)).ppp])
        if len(asked) < wanted:  # hardly any is uncertain
            return points
    return [*points, [len(known), whole]]


def _mean(curves: list[list[list[float]]]) -> list[list[float]]:
    """Return the mean of curves up to where the first of them ends, at the sizes of that one."""
    shortest = min(curves, key=lambda curve: curve[-1][0])
    sizes = [size for size, _ in shortest]
    means = np.mean([np.interp(sizes, *np.array(curve).T) for curve in curves], axis=0)
    return [[int(size), float(ppp)] for size, ppp in zip(sizes, means, strict=True)]


def needed(curve: list[list[float]], goal: float) -> int | None:
    """Return how many inputs are enough: from there on the penalty exceeds ``goal`` nowhere; None if it does to the end.

    >>> needed([[100, 0.3], [200, 0.1], [300, 0.2], [400, 0.1], [500, 0.1]], goal=0.15)
    400
    """
    found = None
    for size, ppp in reversed(curve):
        if ppp > goal:
            break
        found = int(size)
    return found
