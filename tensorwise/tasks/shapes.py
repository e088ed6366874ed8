"""Shapes of a network's inputs, where a file leaves dimensions open: the batch is understood, all others are asked for."""

import math
from collections.abc import Mapping, Sequence

from tensorwise.errors import InputError

Extent = int | str
"""An extent, or the name of an open dimension; the empty name is of one that nobody named."""
Shapes = Mapping[str, tuple[int, ...]]
Inputs = Mapping[str, Sequence[Extent] | None]
"""What a file says of its inputs: extents, or None of one without a shape, whose rank is not known."""


def input_shapes(
    inputs: Inputs, batch: int | None = None, given: Shapes | None = None
) -> dict[str, tuple[int, ...]]:
    """Return the shapes with which a network is cut.

    An open dimension is the batch where it is the first of its input, and all of them have one name or none.

    Args:
        inputs: what the file says of each input.
        batch: inputs at a time, which must be what the shapes say (see `said_batch`); None: what they say, or 1 where
            all leave it open.
        given: shapes of some inputs, as a user gave them. Dimensions of one name have one extent.

    Raises:
        InputError: a shape does not fit the file; a dimension is open that is not plainly the batch; or the shapes are of
            another batch.
    """
    known: dict[str, int] = {}
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in (given or {}).items():
        if name not in inputs:
            raise InputError(f"there is no input {name!r}; the inputs are {_listed(inputs)}")
        sides = inputs[name]
        found[name] = shape
        if sides is None:
            continue
        if len(sides) != len(shape) or any(
            isinstance(side, int) and side != extent for side, extent in zip(sides, shape)
        ):
            raise InputError(f"the shape {shape} does not fit the input {_listed({name: sides})}")
        for side, extent in zip(sides, shape):
            if isinstance(side, str) and side and known.setdefault(side, extent) != extent:
                raise InputError(
                    f"the dimension {side} has the extents {known[side]} and {extent}; it has one"
                )
    if unranked := [name for name, sides in inputs.items() if sides is None and name not in found]:
        raise InputError(
            f"the file has no shape of the input {', '.join(unranked)}, not even how many dimensions; give it, "
            f"--shape {unranked[0]}=1,128"
        )
    rest = {
        name: [known.get(side, side) if isinstance(side, str) else side for side in sides]
        for name, sides in inputs.items()
        if name not in found and sides is not None
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
    for name, sides in rest.items():
        found[name] = tuple((batch or 1) if isinstance(side, str) else side for side in sides)
    shapes = {name: found[name] for name in inputs}
    if batch is not None and batch not in (said := _firsts(inputs, shapes) or {1}):
        times = " or ".join(map(str, sorted(said)))
        raise InputError(f"its inputs are {times} at a time, whatever is wanted: {_listed(shapes)}")
    return shapes


def said_batch(inputs: Inputs, given: Shapes | None = None) -> int:
    """Return the batch that the shapes of inputs say: the first extent, the same of all inputs that leave theirs open.

    Where none leaves it open, all inputs say it. Where nothing does, it is 1.

    Raises:
        InputError: as `input_shapes`; or first extents differ, so that one has to be named.
    """
    shapes = input_shapes(inputs, None, given)
    firsts = _firsts(inputs, shapes)
    if len(firsts) > 1:
        raise InputError(
            f"its inputs {_listed(shapes)} do not say which extent is the batch; name one, --batch {min(firsts)} or "
            f"--batch {max(firsts)}"
        )
    return firsts.pop() if firsts else 1


def _firsts(inputs: Inputs, shapes: Shapes) -> set[int]:
    """The first extents of inputs that the file leaves open, or of all where it leaves none."""
    every = {name: shape[0] for name, shape in shapes.items() if shape}
    is_open = {
        first for name, first in every.items() if not (sides := inputs[name]) or isinstance(sides[0], str)
    }
    return is_open or set(every.values())


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


def _listed(inputs: Inputs) -> str:
    return ", ".join(
        f"{name} ({'?' if sides is None else ', '.join(str(one) or '?' for one in sides)})"
        for name, sides in inputs.items()
    )
