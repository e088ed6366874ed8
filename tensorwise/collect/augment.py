"""Augmentation: more patterns from real ones, as WACO's data set has them (section 4.1.3).

The paper resizes real matrices arbitrarily and makes each region that has an entry dense with a random block size
(its published names are ``NAME_RxC_n`` with R and C among 1, 2, 4, 8 and 16).

There are few real tensors, so tensors are also made from matrices, as by the published generator of SpTFS (SC'20). It takes
two real matrices: each entry of the first becomes a fibre along a third mode, with entries at random places. The extent of
that mode and the number of entries in a fibre (the mean of a row) come from the second. Here both are the same matrix, so
that a pattern needs one file only. All tensors, real and made, are then resized and made dense in blocks along all modes.

An augmentation is a text such as ``4x2-1000x800-7``: block, shape, seed; with fibres of 3 entries
``4x2x1-1000x800x500-7-3``. Together with the original it gives the same pattern on every machine and with every
version of NumPy, so that a name is all that has to be kept.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries

BLOCKS: Final = (1, 2, 4, 8, 16)
"""Extents of a dense block along a mode."""
MOST_EXTENT: Final = 2**17 - 1
"""Largest extent of a mode; the paper keeps rows below 131,072."""
MOST_ENTRIES: Final = 10_000_000
"""Most stored entries of an augmented pattern, as in the paper."""
FACTOR: Final = 4.0
"""A mode becomes longer or shorter by at most this factor: what is left of a pattern past it is its outline."""


@final
@dataclass(frozen=True)
class Augmentation:
    """What is done to a pattern: resized to a grid of blocks, each block that an entry meets is dense.

    Attributes:
        block: extent of a dense block along each mode, at least 1.
        shape: size of each mode afterwards, at least 1.
        seed: below 2**32; says where an entry goes when its mode becomes longer, and where a fibre's entries are.
        fibre: entries that each entry becomes first, along a new last mode; fewer where two meet. 0: no new mode.

    >>> Augmentation.parse("2x2-4x6-0").shape
    (4, 6)
    >>> pattern = entries_from(np.array([[0, 1.0], [0, 0]]))
    >>> Augmentation.parse("2x2-4x4-0").apply(pattern).to_scipy().toarray().astype(int)
    array([[0, 0, 1, 1],
           [0, 0, 1, 1],
           [0, 0, 0, 0],
           [0, 0, 0, 0]])
    >>> Augmentation.parse("1x1x1-2x2x500-0-3").apply(pattern).nnz
    3
    """

    block: tuple[int, ...]
    shape: tuple[int, ...]
    seed: int = 0
    fibre: int = 0

    def __post_init__(self) -> None:
        fits = len(self.block) == len(self.shape) and self.order >= 2 and min(*self.block, *self.shape) >= 1
        if not (fits and 0 <= self.seed < 2**32 and self.fibre >= 0):
            raise InputError(
                "an augmentation has a block and a shape of two or more positive extents (of three or more with "
                f"fibres) and a seed below 2**32, got {self.block}, {self.shape}, {self.seed}, {self.fibre}"
            )

    @property
    def order(self) -> int:
        """Number of modes of the patterns that it takes."""
        return len(self.shape) - (self.fibre > 0)

    def __str__(self) -> str:
        text = f"{'x'.join(map(str, self.block))}-{'x'.join(map(str, self.shape))}-{self.seed}"
        return f"{text}-{self.fibre}" if self.fibre else text

    @classmethod
    def parse(cls, text: str) -> "Augmentation":
        """Read back ``str(augmentation)``.

        Raises:
            InputError: the text is no augmentation.
        """
        number = r"\d{1,18}"
        pattern = rf"{number}(x{number})+-{number}(x{number})+-{number}(-{number})?"
        if len(text) > 200 or not re.fullmatch(pattern, text, re.ASCII):
            raise InputError(
                f"{text[:80]!r} is no augmentation; expected block, shape and seed, such as 4x2-1000x800-7"
            )
        block, shape, *numbers = text.split("-")
        return cls(tuple(map(int, block.split("x"))), tuple(map(int, shape.split("x"))), *map(int, numbers))

    @classmethod
    def draw(
        cls,
        shape: Sequence[int],
        nnz: int,
        rng: np.random.Generator,
        most_entries: int = MOST_ENTRIES,
        *,
        fibres: bool = False,
    ) -> "Augmentation":
        """Draw an augmentation for a pattern of ``shape`` with ``nnz`` entries.

        Half of the augmentations resize all modes by one factor, so that a square matrix stays square. The block is the
        largest of the drawn ones with at most ``most_entries`` entries, counted as if no two blocks overlapped.

        ``fibres`` adds a mode. Its extent is that of the last mode, resized like the others. A fibre has as many entries
        as a row has on average, times a random factor, and at most ``most_entries`` in all.
        """
        fibre = 0
        if fibres:
            mean = nnz / max(shape[0], 1) * FACTOR ** rng.uniform(-1, 1)
            fibre = max(1, min(round(mean), most_entries // max(nnz, 1)))
            shape, nnz = (*shape, shape[-1]), nnz * fibre
        common = rng.uniform(-1, 1)
        own = rng.uniform(-1, 1, len(shape))
        factors = FACTOR ** (np.full(len(shape), common) if rng.random() < 0.5 else own)
        block = [int(extent) for extent in rng.choice(BLOCKS, len(shape))]
        while max(block) > 1 and nnz * math.prod(block) > most_entries:
            block[block.index(max(block))] //= 2
        resized = (min(MOST_EXTENT, max(1, round(n * f))) for n, f in zip(shape, factors, strict=True))
        return cls(tuple(block), tuple(resized), int(rng.integers(2**32)), fibre)

    def apply(self, entries: Entries) -> Entries:
        """Return the augmented pattern: float32 values, all of them ones.

        The grid has one cell a block. A mode that has more indices than cells loses detail, entries that fall into one
        cell become one; where it has fewer, an entry goes to any of the cells that its index covers.

        Raises:
            InputError: the order is another one, or there are more than MOST_ENTRIES entries afterwards.
        """
        if entries.order != self.order:
            raise InputError(
                f"the augmentation {self} is for order {self.order}; this pattern has order {entries.order} "
                f"and shape {entries.shape}"
            )
        if self.fibre:
            self._check(max(entries.nnz, 1) * self.fibre)
            entries = _with_fibres(entries, self.fibre, self.shape[-1], self.seed)
        grid = [-(-extent // side) for extent, side in zip(self.shape, self.block, strict=True)]
        noise = _noise(entries.coordinates, self.seed)
        cells = []
        for mode, (cells_there, extent) in enumerate(zip(grid, entries.shape, strict=True)):
            index = entries.coordinates[mode].astype(np.int64)
            low, end = index * cells_there // extent, (index + 1) * cells_there // extent
            room = np.maximum(end - low, 1).astype(np.uint64)
            cells.append(low + (_mixed(noise + np.uint64(mode)) % room).astype(np.int64))
        met = _ones(grid, cells)
        self._check(met.nnz * math.prod(self.block))
        inside = np.indices(self.block).reshape(len(self.block), 1, -1)
        spread = [
            (side * cell.astype(np.int64)[:, None] + offset).ravel()
            for side, cell, offset in zip(self.block, met.coordinates, inside, strict=True)
        ]
        kept = np.logical_and.reduce(
            [place < extent for place, extent in zip(spread, self.shape, strict=True)]
        )
        return _ones(self.shape, [place[kept] for place in spread])

    def _check(self, entries: int) -> None:
        if entries > MOST_ENTRIES:
            raise InputError(
                f"the augmentation {self} gives up to {entries} entries, more than {MOST_ENTRIES}; "
                f"choose a smaller block{' or shorter fibres' if self.fibre else ''}"
            )


def _ones(shape: Sequence[int], coordinates: Sequence[np.ndarray]) -> Entries:
    merged = entries_from((tuple(shape), tuple(coordinates), np.ones(len(coordinates[0]), np.float32)))
    return merged.with_values(np.ones(merged.nnz, np.float32))


def _with_fibres(entries: Entries, fibre: int, extent: int, seed: int) -> Entries:
    """Give each entry ``fibre`` entries at random places of a new last mode; those that meet become one."""
    noise = np.repeat(_noise(entries.coordinates, seed), fibre)
    places = _mixed(noise + np.tile(np.arange(fibre, dtype=np.uint64), entries.nnz)) % np.uint64(extent)
    kept = [np.repeat(array, fibre) for array in entries.coordinates]
    return _ones((*entries.shape, extent), [*kept, places.astype(np.int64)])


def _noise(coordinates: Sequence[np.ndarray], seed: int) -> np.ndarray:
    """A number (nnz,) uint64 for each entry, that depends on its place and the seed: no stream that a version may change."""
    state = np.full(len(coordinates[0]), seed, np.uint64)
    for array in coordinates:
        state = _mixed(state + array.astype(np.uint64))
    return state


def _mixed(state: np.ndarray) -> np.ndarray:
    """One step of the generator SplitMix64; overflow is meant."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(state ^ (state >> np.uint64(31)))
