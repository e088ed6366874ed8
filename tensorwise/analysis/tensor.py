"""The pattern of a tensor of order 3 to 5 as numbers: of each mode, and of each pair of modes."""

from collections.abc import Iterable
from itertools import combinations
from typing import ClassVar, Final, final

import numpy as np

from tensorwise.analysis.counting import count_mode, count_pairs
from tensorwise.analysis.counts import WINDOWS
from tensorwise.analysis.featurizer import Featurizer, Field
from tensorwise.analysis.spectrum import line_fields, line_numbers
from tensorwise.errors import InputError
from tensorwise.tensor.entries import Entries

ORDERS: Final = (3, 4, 5)
"""Orders of tensors that have numbers."""
MODES: Final = range(max(ORDERS))
PAIRS: Final = tuple(combinations(MODES, 2))
PAIR_BLOCK_SIZES: Final = (1, 8, 64)
"""Coordinates of a block, in both modes of a pair."""


@final
class TensorPattern(Featurizer[Entries]):
    """Statistics of the pattern of a tensor of order 3, 4 or 5, in the order in which its entries are stored.

    Values do not enter. There are numbers for five modes and their ten pairs; those of modes that a tensor does not have
    are 0, and ``mode3.present`` and ``mode4.present`` tell them from others. Pairs of modes, of which far more are possible
    than there are entries, are estimated (to about one in a hundred).
    """

    name: ClassVar[str] = "tensor-pattern"
    version: ClassVar[int] = 1

    @property
    def fields(self) -> tuple[Field, ...]:
        return _TENSOR_FIELDS

    def features(self, described: Entries) -> np.ndarray:
        """Return the numbers of a tensor: float32, shape (len(fields),), all finite.

        Raises:
            InputError: the entries are those of a matrix, or of a tensor of more than five modes.
            MemoryError: there is none for a few words a coordinate (or a few dozen bytes an entry).
        """
        if described.order not in ORDERS:
            advice = "; use matrix-pattern" if described.order == 2 else ""
            raise InputError(
                f"{self.name} describes tensors of order 3, 4 and 5, got order {described.order}{advice}"
            )
        numbers = list(_whole(described))
        for mode in MODES:
            has = mode < described.order
            numbers.extend(_mode(described, mode) if has else [0.0] * len(_mode_fields(mode)))
        for first, second in PAIRS:
            has = second < described.order
            numbers.extend(_pair(described, first, second) if has else [0.0] * len(PAIR_BLOCK_SIZES))
        return np.array(numbers, np.float32)


def _whole(entries: Entries) -> Iterable[float]:
    nnz = entries.nnz
    density = np.log2(max(nnz, 1)) - sum(np.log2(float(max(size, 1))) for size in entries.shape)
    fresh = np.zeros(max(nnz - 1, 0), bool)
    nodes = [0.0] * (len(MODES) - 1)
    for depth, coordinates in enumerate(entries.coordinates[:-1]):
        fresh |= coordinates[1:] != coordinates[:-1]
        nodes[depth] = _per_entry(1 + int(fresh.sum()), nnz)
    return entries.order, np.log2(1.0 + nnz), density, *nodes


_WHOLE: Final = (
    Field("size.order", "modes", "the number of modes"),
    Field("size.entries", "log2(1 + entries)", "the number of entries"),
    Field("size.density", "log2(share)", "the share of all places that hold an entry"),
    *(
        Field(
            f"tree.depth{depth}",
            "log2(nodes / entries)",
            f"the nodes at depth {depth} of a tree of compressed levels in the order of the modes (CSF)",
        )
        for depth in MODES[1:]
    ),
)


def _mode(entries: Entries, mode: int) -> Iterable[float]:
    counts = count_mode(entries, mode)
    yield from (1.0, np.log2(1.0 + entries.shape[mode]), *line_numbers(counts.lines))
    yield counts.repeats / max(entries.nnz, 1)
    yield from (_per_entry(met, entries.nnz) for met in counts.meetings)


def _mode_fields(mode: int) -> tuple[Field, ...]:
    name = f"mode{mode}"
    return (
        Field(f"{name}.present", "0 or 1", f"whether the tensor has a mode {mode}"),
        Field(f"{name}.size", "log2(1 + coordinates)", f"the size of mode {mode}"),
        *line_fields(name, f"slice of mode {mode}", f"slices of mode {mode}"),
        Field(f"{name}.repeat", "share of entries", "how many have the same coordinate as the entry before"),
        *(
            Field(
                f"{name}.gathers{window}",
                "log2(coordinates / entries)",
                f"how many distinct coordinates each {window} entries in a row meet: what they read anew of a factor",
            )
            for window in WINDOWS
        ),
    )


def _pair(entries: Entries, first: int, second: int) -> Iterable[float]:
    for block in PAIR_BLOCK_SIZES:
        yield _per_entry(count_pairs(entries, first, second, block.bit_length() - 1), entries.nnz)


def _pair_fields(first: int, second: int) -> tuple[Field, ...]:
    return tuple(
        Field(
            f"modes{first}{second}.blocks{block}",
            "log2(blocks / entries)",
            f"how many blocks of {block} by {block} coordinates of modes {first} and {second} hold entries"
            if block > 1
            else f"how many pairs of coordinates of modes {first} and {second} occur: fibers, if stored in this order",
        )
        for block in PAIR_BLOCK_SIZES
    )


def _per_entry(number: float, entries: int) -> float:
    """Return log2(number / entries), 0 without entries."""
    return float(np.log2(number / entries)) if entries else 0.0


_TENSOR_FIELDS: Final = (
    *_WHOLE,
    *(field for mode in MODES for field in _mode_fields(mode)),
    *(field for pair in PAIRS for field in _pair_fields(*pair)),
)
