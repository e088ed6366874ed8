"""Shapes of inputs: what is the batch, and what has to be asked for."""

import pytest

from tensorwise.errors import InputError
from tensorwise.tasks.shapes import input_shapes, read_shapes


def test_the_batch_is_understood() -> None:
    inputs = {"x": ["n", 3, 8], "mask": ["n", 8], "scale": []}
    assert input_shapes(inputs, 4) == {"x": (4, 3, 8), "mask": (4, 8), "scale": ()}
    assert input_shapes({"x": ["", 3], "y": ["", 2]}, 2) == {"x": (2, 3), "y": (2, 2)}
    assert input_shapes({"x": [1, 3], "y": [5]}, 7) == {
        "x": (1, 3),
        "y": (5,),
    }  # of several, none is the batch
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
    found = input_shapes(inputs, 1, {"ids": (2, 128)})  # the other inputs have dimensions of the same names
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


def test_another_batch_than_the_file_has() -> None:
    with pytest.raises(InputError, match=r"its inputs are 4 at a time.*x \(4, 10\)"):
        input_shapes({"x": [4, 10]}, 1)


@pytest.mark.parametrize("text", ["x", "=1,2", "x=1,a", "x=1,,2", "x=-1", "x=0,2", "x=1.5", "x=" + 20 * "9"])
def test_texts_that_are_no_shapes(text: str) -> None:
    with pytest.raises(InputError, match="NAME=EXTENT"):
        read_shapes([text])
    with pytest.raises(InputError, match="given twice"):
        read_shapes(["x=1", "x=2"])
