"""Shapes of a network's inputs, where a file leaves dimensions open: the batch is understood, all others are asked for."""

import math
from collections.abc import Mapping, Sequence

from tensorwise.errors import InputError

Extent = int | str
"""An extent, or the name of an open dimension; the empty name is of one that nobody named."""
Shapes = Mapping[str, tuple[int, ...]]


def input_shapes(
    inputs: Mapping[str, Sequence[Extent]], batch: int, given: Shapes | None = None
) -> dict[str, tuple[int, ...]]:
    """Return the shapes with which a network is cut.

    An open dimension is the batch where it is the first of its input, and all of them have one name or none.

    Args:
        inputs: what the file says of each input.
        given: shapes of some inputs, as a user gave them. Dimensions of one name have one extent.

    Raises:
        InputError: a shape does not fit the file; a dimension is open that is not plainly the batch; or none is open, and
            the file has another batch.
    """
    known: dict[str, int] = {}
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in (given or {}).items():
        if name not in inputs:
            raise InputError(f"there is no input {name!r}; the inputs are {_listed(inputs)}")
        sides = inputs[name]
        if len(sides) != len(shape) or any(
            isinstance(side, int) and side != extent for side, extent in zip(sides, shape)
        ):
            raise InputError(f"the shape {shape} does not fit the input {_listed({name: sides})}")
        for side, extent in zip(sides, shape):
            if isinstance(side, str) and side and known.setdefault(side, extent) != extent:
                raise InputError(
                    f"the dimension {side} has the extents {known[side]} and {extent}; it has one"
                )
        found[name] = shape
    rest = {
        name: [known.get(side, side) if isinstance(side, str) else side for side in sides]
        for name, sides in inputs.items()
        if name not in found
    }
    is_open = [
        (place, side) for sides in rest.values() for place, side in enumerate(sides) if isinstance(side, str)
    ]
    named = {side for _, side in is_open if side}
    if any(place for place, _ in is_open) or len(named) > 1:
        unclear = {name: sides for name, sides in rest.items() if any(isinstance(one, str) for one in sides)}
        raise InputError(
            f"of the inputs {_listed(unclear)} it is not clear which extents are meant: only a first dimension, the same of "
            "all, is taken for the batch; give the shape of each such input, --shape NAME=1,128"
        )
    first = {sides[0] for sides in rest.values() if sides}
    if not is_open and not found and len(first) == 1 and batch not in first:
        raise InputError(f"its inputs are {first.pop()} at a time, whatever is wanted: {_listed(inputs)}")
    for name, sides in rest.items():
        found[name] = tuple(batch if isinstance(side, str) else side for side in sides)
    return {name: found[name] for name in inputs}


def read_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return ``NAME=EXTENT,EXTENT,...`` texts as shapes by input.

    Raises:
        InputError: one is something else, or an input is named twice.

    >>> read_shapes(["x=1,3,224,224", "length="])
    {'x': (1, 3, 224, 224), 'length': ()}
    """
    found: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, given, extents = text.partition("=")
        sides = [one.strip() for one in extents.split(",")] if extents.strip() else []
        sound = all(one.isascii() and one.isdigit() and 0 < len(one) < 10 for one in sides)
        if not name or not given or not sound or math.prod(map(int, sides)) == 0:
            raise InputError(f"a shape must be NAME=EXTENT,EXTENT,..., such as x=1,3,224,224; got {text!r}")
        if name in found:
            raise InputError(f"the shape of {name} is given twice")
        found[name] = tuple(map(int, sides))
    return found


def _listed(inputs: Mapping[str, Sequence[Extent]]) -> str:
    return ", ".join(
        f"{name} ({', '.join(str(one) or '?' for one in sides)})" for name, sides in inputs.items()
    )
