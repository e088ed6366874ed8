"""Shapes of inputs: what is the batch, and what has to be asked for."""

import pytest

from tensorwise.errors import InputError
from tensorwise.tasks.shapes import Inputs, input_shapes, read_shapes, said_batch


def test_the_batch_is_understood() -> None:
    inputs = {"x": ["n", 3, 8], "mask": ["n", 8], "scale": []}
    assert input_shapes(inputs, 4) == {"x": (4, 3, 8), "mask": (4, 8), "scale": ()}
    assert input_shapes({"x": ["", 3], "y": ["", 2]}, 2) == {"x": (2, 3), "y": (2, 2)}
    assert input_shapes({"x": [1, 3], "y": [5]}, 5) == {"x": (1, 3), "y": (5,)}
    assert input_shapes({"x": [7, 3]}, 7) == {"x": (7, 3)}


@pytest.mark.parametrize(
    "inputs",
    [
        {"x": ["batch", "sequence"]},
        {"x": ["batch", 3, "height", "width"]},
        {"x": [1, "sequence", 64]},
        {"x": ["batch", 3], "y": ["queries", 3]},
        {"x": ["", ""]},
        {"x": ["batch", "batch"]},
    ],
)
def test_what_is_not_plainly_the_batch_is_asked_for(inputs: dict[str, list[int | str]]) -> None:
    with pytest.raises(InputError, match="--shape NAME=1,128"):
        input_shapes(inputs, 1)


def test_shapes_that_are_given() -> None:
    inputs = {"ids": ["batch", "sequence"], "mask": ["batch", "sequence"], "x": ["batch", 3]}
    found = input_shapes(
        inputs, None, {"ids": (2, 128)}
    )  # the other inputs have dimensions of the same names
    assert found == {"ids": (2, 128), "mask": (2, 128), "x": (2, 3)}
    assert input_shapes({"x": ["", ""], "y": ["n", 2]}, 3, {"x": (5, 6)}) == {"x": (5, 6), "y": (3, 2)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"z": (1, 2)}, r"no input 'z'; the inputs are x \(batch, 3\), y \(batch, \?\)"),
        ({"x": (1, 4)}, r"does not fit the input x \(batch, 3\)"),
        ({"x": (1, 3, 1)}, "does not fit"),
        ({"x": (2, 3), "y": (1, 4)}, "batch has the extents 2 and 1"),
        ({"x": (2, 3)}, r"of the inputs y \(2, \?\)"),
    ],
)
def test_shapes_that_do_not_fit(given: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        input_shapes({"x": ["batch", 3], "y": ["batch", ""]}, 1, given)


@pytest.mark.parametrize(
    ("inputs", "batch", "given", "message"),
    [
        ({"x": [4, 10]}, 1, {}, r"its inputs are 4 at a time.*x \(4, 10\)"),
        ({"x": [8, 16], "y": [3, 16]}, 64, {}, r"its inputs are 3 or 8 at a time"),
        ({"x": [], "y": []}, 2, {}, r"its inputs are 1 at a time"),
        ({"x": ["N", "S", 16]}, 7, {"x": (64, 4, 16)}, r"its inputs are 64 at a time"),
        ({"x": ["N", "S"], "y": [1, 16]}, 1, {"x": (64, 4)}, r"its inputs are 64 at a time"),
        ({"x": None}, 1, {"x": (64, 4)}, r"its inputs are 64 at a time"),
        ({"x": ["N", "S"], "y": ["N", 3]}, 1, {"x": (64, 4)}, r"its inputs are 64 at a time"),
    ],
)
def test_another_batch_than_the_shapes_say(
    inputs: Inputs, batch: int, given: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        input_shapes(inputs, batch, given)


@pytest.mark.parametrize(
    ("inputs", "given", "batch"),
    [
        ({"x": ["N", 3], "scale": [5]}, {}, 1),  # what is open is the batch
        ({"x": [8, 3], "y": [8], "z": []}, {}, 8),
        ({"x": ["N", "S"]}, {"x": (64, 4)}, 64),
        ({"x": ["N", "S"], "scale": [1]}, {"x": (64, 4)}, 64),
        ({"x": ["N", "S"], "y": ["N", 3]}, {"x": (64, 4)}, 64),
        ({"x": None}, {"x": (64, 4)}, 64),
        ({"x": None}, {"x": ()}, 1),
        ({}, {}, 1),
    ],
)
def test_the_batch_that_the_shapes_say(inputs: Inputs, given: dict[str, tuple[int, ...]], batch: int) -> None:
    assert said_batch(inputs, given) == batch
    assert input_shapes(inputs, None, given) == input_shapes(inputs, batch, given)


@pytest.mark.parametrize(
    ("inputs", "given"),
    [({"x": [8, 16], "y": [3, 16]}, {}), ({"x": ["", ""], "y": ["n", 2]}, {"x": (5, 6)})],
)
def test_shapes_that_do_not_say_the_batch(inputs: Inputs, given: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(InputError, match="do not say which extent is the batch; name one, --batch"):
        said_batch(inputs, given)


def test_an_input_without_a_shape_is_asked_for() -> None:
    with pytest.raises(
        InputError, match=r"no shape of the input x, not even how many dimensions.*--shape x=1,128"
    ):
        input_shapes({"x": None, "y": ["n", 2]}, 1)
    assert input_shapes({"x": None, "y": ["n", 2]}, 4, {"x": (4, 7)}) == {"x": (4, 7), "y": (4, 2)}


@pytest.mark.parametrize("text", ["x", "=1,2", "x=1,a", "x=1,,2", "x=-1", "x=0,2", "x=1.5", "x=" + 20 * "9"])
def test_texts_that_are_no_shapes(text: str) -> None:
    with pytest.raises(InputError, match="NAME=EXTENT"):
        read_shapes([text])
    with pytest.raises(InputError, match="given twice"):
        read_shapes(["x=1", "x=2"])
