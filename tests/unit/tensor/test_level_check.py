"""Levels of other packages that build something else than they say: nothing runs on their word."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from tensorwise.errors import FormatError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.format import Format
from tensorwise.tensor.levels import LEVELS
from tensorwise.tensor.levels.compressed import Compressed
from tensorwise.tensor.levels.level import PackingState
from tensorwise.tensor.pack import pack
from tensorwise.tensor.primitives import EntryPositions

MATRIX = np.array([[0, 1, 2, 0, 3], [0, 0, 0, 0, 0], [4, 5, 6, 7, 8]], np.float32)
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Foreign(Compressed):
    """As C, but what it builds is changed."""

    letter: ClassVar[str] = "Y"
    change: ClassVar[Callable[[Arrays], Any]]

    def build(self, stage: PackingState) -> tuple[Arrays, EntryPositions]:
        arrays, form = super().build(stage)
        arrays = {name: array.copy() for name, array in arrays.items()}
        return type(self).change(arrays) or arrays, form


@pytest.fixture
def level(monkeypatch: pytest.MonkeyPatch) -> type[Foreign]:
    monkeypatch.setitem(LEVELS._rows, "Y", Foreign)
    return Foreign


def put(name: str, place: Any, value: Any) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[name][place] = value

    return change


def test_what_is_right_is_packed(level: type[Foreign], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Foreign, "change", staticmethod(lambda arrays: None), raising=False)
    for text in ("(i,k) -> U(i) Y(k)", "(i,k) -> Y(i) Y(k)", "(i,k) -> Y(i1) Y(k) U(i0:2)"):
        tensor = pack(entries_from(MATRIX), Format.parse(text))
        assert tensor.counts[-1] >= 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("crd", 0, 100), "array crd holds 0 to 100; its facts say 0 to 4"),
        (put("crd", 0, -1), "array crd holds -1 to 4"),
        (put("crd", slice(None), 0), "ascend does not return"),
        (put("pos", -1, 10**6), "array pos holds 0 to 1000000; its facts say 0 to 8"),
        (put("pos", 1, 8), "does not ascend from 0"),
        (put("pos", 1, 2), "ascend does not return"),
        (lambda arrays: {**arrays, "crd": arrays["crd"][:4]}, "array crd has 4 elements; its facts say 8"),
        (lambda arrays: {**arrays, "crd": arrays["crd"] * 1.0}, "must be a vector of integers, got float64"),
        (lambda arrays: {"pos": arrays["pos"]}, r"build returns the arrays \['pos'\]"),
    ],
)
def test_what_differs_from_the_facts_is_refused(
    level: type[Foreign], monkeypatch: pytest.MonkeyPatch, change: Callable[[Arrays], Any], said: str
) -> None:
    monkeypatch.setattr(Foreign, "change", staticmethod(change), raising=False)
    with pytest.raises(FormatError, match=rf"level Y\(k\): .*{said}"):
        pack(entries_from(MATRIX), Format.parse("(i,k) -> U(i) Y(k)"))


def test_coordinates_are_read_as_kernels_read_them(
    level: type[Foreign], monkeypatch: pytest.MonkeyPatch
) -> None:
    def coordinate(
        self: Foreign, arrays: Arrays, parent: Any, position: Any, extent: Any, cursor: Any = None
    ) -> Any:
        return extent - 1 - arrays["crd"][position]

    monkeypatch.setattr(Foreign, "change", staticmethod(lambda arrays: None), raising=False)
    monkeypatch.setattr(Foreign, "coordinate", coordinate)
    with pytest.raises(FormatError, match=r"coordinate\(\) gives 3 at position 0, stored is 1"):
        pack(entries_from(MATRIX), Format.parse("(i,k) -> U(i) Y(k)"))
