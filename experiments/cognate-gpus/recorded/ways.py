"""Ways to find the fastest config of a target with a few measurements."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from recorded.moved import Moved, lengths

BATCH: Final = 8
"""Configs that are measured before the model learns again."""
PREDICTED: Final = 5
"""Configs predicted best, of which the fastest counts."""
FASTEST: Final = 0.04
"""Share of the sources' configs that are worth a look before anything is known of the target."""
FAILED: Final = 0.5
"""A config that failed counts as so much slower, in logarithms, than the slowest that is known."""
NEAR: Final = 0.25
APART: Final = 0.1
"""What is nearer than ``NEAR`` to a config of the same batch counts as so much slower: a batch looks at several places."""


def zero_shot(source: np.ndarray, target: np.ndarray) -> float:
    """Return the least seconds of those that are the fastest on the source; nothing is measured to learn from."""
    return float(target[np.argsort(source, kind="stable")[:PREDICTED]].min())


def at_random(target: np.ndarray, budget: int, rng: np.random.Generator) -> float:
    """Return the least seconds of as many configs as the other ways measure in all, drawn at random."""
    return float(target[rng.choice(len(target), budget + PREDICTED, replace=False)].min())


def models_of(numbers: np.ndarray, *sources: np.ndarray) -> list[Moved]:
    """Return the models that begin with what is known of some sources: of all together, and of each.

    Args:
        numbers: (configs, fields), see `Recorded.numbers`.
        sources: (configs,) seconds each, infinite where a config failed.
    """
    logs = [_finite(np.log(source)) for source in sources]
    over = [lengths(numbers, one, np.random.default_rng(0)) for one in logs]
    each = [Moved(numbers / scale, one[None]) for scale, one in zip(over, logs, strict=True)]
    if len(each) == 1:
        return each
    return [Moved(numbers / np.exp(np.mean(np.log(over), axis=0)), np.array(logs)), *each]


def transferred(models: Sequence[Moved], target: np.ndarray, budget: int, rng: np.random.Generator) -> float:
    """Return the least seconds of the five configs predicted best after ``budget`` measurements, with known sources.

    Of several models that counts which makes what was measured likeliest.

    The first are the sources' fastest, some far apart among its fast ones, and some far apart among all.

    Args:
        models: see `models_of`; the first one chooses what is measured first.
        target: (configs,) seconds, infinite where a config failed.
        budget: measurements to learn from.
    """
    model, order = models[0], np.argsort(models[0].source, kind="stable")
    fast = order[: max(10 * PREDICTED, round(FASTEST * len(order)))]
    apart = _apart(model.numbers[fast], 5, rng), _apart(model.numbers, 4, rng)

    def likeliest(known: list[int]) -> Moved:
        rows, logs = np.array(known), _finite(np.log(target[known]))
        return models[0] if len(models) == 1 else max(models, key=lambda one: one.likeliest(rows, logs)[0])

    return _found(likeliest, [*order[:PREDICTED], *fast[apart[0]], *apart[1]], target, budget)


def alone(numbers: np.ndarray, target: np.ndarray, budget: int, rng: np.random.Generator) -> float:
    """Return the same without a source: the first are drawn at random, and lengths follow from what is measured."""

    def model(known: list[int]) -> Moved:
        scale = lengths(numbers[known], _finite(np.log(target[known])), rng)
        return Moved(numbers / scale, np.empty((0, len(target))))

    return _found(model, rng.choice(len(target), 2 * BATCH, replace=False).tolist(), target, budget)


def _found(learned: Callable[[list[int]], Moved], first: list[int], target: np.ndarray, budget: int) -> float:
    """Measure the first configs, then batches of those that may be fastest; see ``transferred``."""
    known = list(dict.fromkeys(int(place) for place in first))[:budget]
    while True:
        logs = _finite(np.log(target[known]))
        model = learned(known)
        mean, deviation = model.predict(np.array(known), logs)
        if len(known) >= budget:
            break
        hoped = mean - deviation
        hoped[known] = np.inf
        for _ in range(min(BATCH, budget - len(known))):
            chosen = int(hoped.argmin())
            known.append(chosen)
            hoped[chosen] = np.inf
            hoped += APART * (np.linalg.norm(model.numbers - model.numbers[chosen], axis=1) < NEAR)
    mean[known] = logs
    return float(target[np.argsort(mean, kind="stable")[:PREDICTED]].min())


def _apart(numbers: np.ndarray, count: int, rng: np.random.Generator) -> list[int]:
    """Places of rows that are far from each other: the first is drawn, each other one the farthest from those before."""
    chosen = [int(rng.integers(len(numbers)))]
    nearest = np.linalg.norm(numbers - numbers[chosen[0]], axis=1)
    while len(chosen) < min(count, len(numbers)):
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.linalg.norm(numbers - numbers[chosen[-1]], axis=1))
    return chosen


def _finite(logs: np.ndarray) -> np.ndarray:
    known = logs[np.isfinite(logs)]
    return np.where(np.isfinite(logs), logs, (known.max() if len(known) else 0.0) + FAILED)
