"""Whether what a level of another package has built is what it says: generated code is proved on its word."""

from collections.abc import Mapping

import numpy as np

from tensorwise.errors import FormatError
from tensorwise.tensor import primitives
from tensorwise.tensor.levels.level import ArrayFacts, Level, PackingState
from tensorwise.tensor.primitives import EntryPositions

OWN_PREFIX = __name__.partition(".")[0] + "."
"""Levels of modules with this prefix are tested, and not checked each time."""
MAX_PARENTS_CHECKED = 64
"""Parents below which coordinates are read one by one, as kernels read them."""


def check_built(
    level: Level, stage: PackingState, arrays: Mapping[str, np.ndarray], form: EntryPositions
) -> None:
    """Raise FormatError unless the arrays of a foreign level agree with its `facts`, and hold the entries' coordinates.

    A level of this package is not looked at.
    """
    if type(level).__module__.startswith(OWN_PREFIX):
        return
    try:
        _check(level, stage, arrays, form)
    except FormatError:
        raise
    except Exception as error:  # whatever the other package raises
        raise FormatError(
            f"level {level}: what it has built cannot be read: {type(error).__name__}: {error}"
        ) from error


def _check(level: Level, stage: PackingState, arrays: Mapping[str, np.ndarray], form: EntryPositions) -> None:
    if set(arrays) != set(level.arrays):
        raise FormatError(
            f"level {level}: build returns the arrays {sorted(arrays)}, expected {sorted(level.arrays)}"
        )
    for name, known in _facts(level, stage.parents.count, form.count, stage.extent, arrays).items():
        array = arrays[name]
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise FormatError(
                f"level {level}: array {name} must be a vector of integers, got {array.dtype} {array.shape}"
            )
        if len(array) != known.length:
            raise FormatError(
                f"level {level}: array {name} has {len(array)} elements; its facts say {known.length}"
            )
        if not len(array):
            continue
        low, high = int(array.min()), int(array.max())
        if (known.low is not None and low < known.low) or (
            known.high is not None and high > max(known.high, 0)
        ):
            raise FormatError(
                f"level {level}: array {name} holds {low} to {high}; its facts say {known.low} to {known.high}"
            )
        if known.ascending and (int(array[0]) != 0 or bool((array[1:] < array[:-1]).any())):
            raise FormatError(f"level {level}: array {name} does not ascend from 0, as its facts say")
    if level.full or not stage.entries:
        return
    if form.terms:
        positions = primitives.evaluate(stage.entries, form.terms).astype(np.int64)
    elif form.count == stage.entries:
        # the last level does not say them: entries come in the order of their positions
        positions = np.arange(stage.entries)
    else:
        raise FormatError(
            f"level {level}: build says {form.count} positions for {stage.entries} entries, and not which"
        )
    parents, coordinates = level.ascend(arrays, positions, stage.extent)
    wanted = primitives.evaluate(stage.entries, [stage.coordinate])
    above = primitives.evaluate(stage.entries, stage.parents.terms)
    if not (np.array_equal(coordinates, wanted) and np.array_equal(parents, above)):
        raise FormatError(
            f"level {level}: ascend does not return the coordinates and parents that were stored"
        )
    expected = {int(p): int(c) for p, c in zip(positions, coordinates)}
    for parent in np.unique(above)[:MAX_PARENTS_CHECKED].tolist():
        for coordinate, position in level.children(arrays, parent, stage.extent):
            if expected.get(position, coordinate) != coordinate:
                raise FormatError(
                    f"level {level}: coordinate() gives {coordinate} at position {position}, stored is {expected[position]}"
                )


def _facts(
    level: Level, parents: int, positions: int, extent: int, arrays: Mapping[str, np.ndarray]
) -> Mapping[str, ArrayFacts]:
    """The facts in numbers; a count of the level's own follows from the first array whose length it decides."""
    counts: dict[str, int] = {}

    def unknown(name: str) -> int:
        return counts.setdefault(name, 0)

    level.facts(parents, positions, extent, unknown)
    for name in list(counts):
        base = level.facts(parents, positions, extent, unknown)
        counts[name] = 1
        more = level.facts(parents, positions, extent, unknown)
        counts[name] = 0
        decided = next((array for array in base if more[array].length != base[array].length), None)
        if decided is not None:
            counts[name] = max(0, len(arrays[decided]) - int(base[decided].length))
    return level.facts(parents, positions, extent, unknown)
