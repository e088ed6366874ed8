"""A stored tensor: the arrays of each level and the values, printed as the tree that they stand for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import final

import numpy as np

from tensorwise.errors import FormatError
from tensorwise.tensor.format import Format

MOST_CHILDREN, MOST_LINES = 8, 40
"""What a printed tree shows before it says how much is left out."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Tensor:
    """A sparse tensor stored in a format; made by ``pack``.

    Attributes:
        format: the format.
        shape: size of each mode, in the order of ``format.modes``.
        arrays: index arrays of each level, by name; a compressed level has ``pos``
            (positions above + 1,) and ``crd`` (positions,). int32 where counts and extents are below
            2**31, otherwise int64. They may be shared with the entries and must not be written to.
        counts: how many positions each level has.
        values: (positions of the last level,), of the entries' dtype; zero where nothing is stored.
        permutations: mode -> (size,) the coordinate stored at each place, where the format orders the mode.

    >>> from tensorwise.tensor.convert import entries_from
    >>> from tensorwise.tensor.format import bcsr, csf, csr
    >>> from tensorwise.tensor.pack import pack
    >>> matrix = entries_from(((3, 4), ([0, 0, 2], [0, 2, 3]), [1.0, 2.0, 3.0]))
    >>> print(pack(matrix, csr()))
    (i,k) -> U(i) C(k)  3 x 4, 3 values of float64, 52 bytes
    |-- i=0
    |   `-- k: 0=1.0 2=2.0
    |-- i=1
    `-- i=2
        `-- k: 3=3.0
    >>> print(pack(matrix, bcsr(2, 2)))
    (i,k) -> U(i1) C(k1) U(i0:2) U(k0:2)  3 x 4, 12 values of float64, 120 bytes
    |-- i1=0
    |   |-- k1=0
    |   |   |-- i0=0
    |   |   |   `-- k0: 1.0 0.0
    |   |   `-- i0=1
    |   |       `-- k0: 0.0 0.0
    |   `-- k1=1
    |       |-- i0=0
    |       |   `-- k0: 2.0 0.0
    |       `-- i0=1
    |           `-- k0: 0.0 0.0
    `-- i1=1
        `-- k1=1
            |-- i0=0
            |   `-- k0: 0.0 3.0
            `-- i0=1
                `-- k0: 0.0 0.0
    >>> cube = entries_from(((2, 2, 9), ([0, 1, 1], [1, 0, 0], [4, 2, 8]), [1.0, 2.0, 3.0]))
    >>> print(pack(cube, csf(3)))
    (i,k,l) -> C(i) C(k) C(l)  2 x 2 x 9, 3 values of float64, 84 bytes
    |-- i=0
    |   `-- k=1
    |       `-- l: 4=1.0
    `-- i=1
        `-- k=0
            `-- l: 2=2.0 8=3.0
    """

    format: Format
    shape: tuple[int, ...]
    arrays: tuple[Mapping[str, np.ndarray], ...]
    counts: tuple[int, ...]
    values: np.ndarray
    permutations: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise FormatError where the numbers of levels, arrays and values do not agree."""
        levels = self.format.levels
        if not len(levels) == len(self.arrays) == len(self.counts) or len(self.values) != self.counts[-1]:
            raise FormatError(
                f"{self.format} has {len(levels)} levels; got arrays of {len(self.arrays)}, counts "
                f"{self.counts} and {len(self.values)} values"
            )
        for level, arrays in zip(levels, self.arrays):
            if tuple(arrays) != level.arrays:
                raise FormatError(f"{level} keeps the arrays {level.arrays}, got {tuple(arrays)}")

    @property
    def extents(self) -> tuple[int, ...]:
        """How many coordinates the axis of each level has."""
        return self.format.extents(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes held by values and index arrays."""
        tables = (*self.arrays, self.permutations)
        return self.values.nbytes + sum(array.nbytes for table in tables for array in table.values())

    def freeze(self) -> None:
        """Mark values and index arrays read-only: a kernel that is bound to them relies on what they hold."""
        for array in (
            self.values,
            *(array for table in (*self.arrays, self.permutations) for array in table.values()),
        ):
            array.setflags(write=False)

    def __repr__(self) -> str:
        return f"Tensor({self._headline()})"

    def __str__(self) -> str:
        lines = list(islice(self._lines(0, 0, ""), MOST_LINES + 1))
        if len(lines) > MOST_LINES:
            lines[MOST_LINES:] = ["..."]
        return "\n".join([self._headline(), *lines])

    def _headline(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return (
            f"{self.format}  {shape}, {len(self.values)} values of {self.values.dtype}, {self.nbytes} bytes"
        )

    def _lines(self, depth: int, parent: int, indent: str) -> Iterator[str]:
        level, arrays, extent = self.format.levels[depth], self.arrays[depth], self.extents[depth]
        children = list(islice(level.children(arrays, parent, extent), MOST_CHILDREN + 1))
        left_out = len(children) > MOST_CHILDREN
        children = children[:MOST_CHILDREN]
        if depth == len(self.format.levels) - 1:
            fiber = [f"{'' if level.full else f'{c}='}{self.values[p]}" for c, p in children]
            if fiber:
                yield f"{indent}`-- {level.axis.name}: {' '.join(fiber)}{' ...' if left_out else ''}"
            return
        for number, (coordinate, position) in enumerate(children):
            last = number == len(children) - 1 and not left_out
            yield f"{indent}{'`' if last else '|'}-- {level.axis.name}={coordinate}"
            yield from self._lines(depth + 1, position, f"{indent}{' ' if last else '|'}   ")
        if left_out:
            yield f"{indent}`-- ..."
