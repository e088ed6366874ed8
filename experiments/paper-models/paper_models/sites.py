"""Sites: the places where a sparse convolution has features, and which of them a kernel brings together.

Places are found by sorting and binary search of linearised coordinates, on whatever torch device they are.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.model.torch_extra import torch

if TYPE_CHECKING:
    from tensorwise.tensor.entries import Entries

Pairs: TypeAlias = "list[tuple[torch.Tensor, torch.Tensor]]"
"""For each offset of a kernel: rows of the input, and the rows of the output that they add to; int32 (or int64)."""

MOST_KEYS = 2**63
"""Linearised coordinates are int64."""


def offsets(order: int, size: int) -> list[tuple[int, ...]]:
    """Return the places of a kernel ``size`` wide in each of ``order`` dimensions, seen from its centre.

    >>> offsets(2, 3)[0], offsets(2, 3)[4], len(offsets(3, 5))
    ((-1, -1), (0, 0), 125)
    """
    if size < 1 or size % 2 == 0:
        raise InputError(f"the size of a kernel must be odd, so that it has a centre; got {size}")
    reach = range(-(size // 2), size // 2 + 1)
    return list(itertools.product(reach, repeat=order))


@final
class Sites:
    """Distinct places of a batch of patterns, sorted by pattern and then row-major; immutable.

    What is derived from them is kept: the coarser sites below each stride, the blocks, and the pairs of each kernel. All of
    it is freed with the finest sites.

    Args:
        places: int64, shape (n, 1 + order): pattern, then one coordinate a mode; distinct, sorted, inside
            ``extents``. Trusted.
        patterns: number of patterns in the batch; some may have no place.
        extents: largest size of each mode over the batch.

    Raises:
        InputError: a single mode has so many places that not even its part of a key fits 63 bits.
    """

    def __init__(self, places: "torch.Tensor", patterns: int, extents: Sequence[int]) -> None:
        self.places = places
        self.patterns = patterns
        self.extents = tuple(int(extent) for extent in extents)
        self._groups = _groups((patterns, *self.extents), len(places))
        self._coarser: dict[int, Sites] = {}
        self._pairs: dict[tuple[int, int], Pairs] = {}
        self._blocks: dict[int, torch.Tensor] = {}

    @classmethod
    def of(cls, patterns: "Sequence[Entries]", device: str = "cpu") -> "Sites":
        """Return the sites of a batch of tensors of one order: a place for each stored entry."""
        orders = {len(pattern.shape) for pattern in patterns}
        if len(orders) != 1:
            raise InputError(f"the patterns of a batch must have one order, got {sorted(orders)}")
        columns = [np.repeat(np.arange(len(patterns)), [pattern.nnz for pattern in patterns])]
        for mode in range(orders.pop()):
            columns.append(np.concatenate([pattern.coordinates[mode] for pattern in patterns]))
        places = torch.empty((len(columns[0]), len(columns)), dtype=torch.int64, device=device)
        for k, column in enumerate(columns):
            places[:, k] = torch.from_numpy(column.astype(np.int64, copy=False)).to(device)
        return cls(places, len(patterns), np.max([pattern.shape for pattern in patterns], axis=0))

    def __len__(self) -> int:
        return len(self.places)

    @property
    def order(self) -> int:
        """Number of modes."""
        return len(self.extents)

    @cached_property
    def counts(self) -> "torch.Tensor":
        """Number of places of each pattern: int64, shape (patterns,)."""
        return torch.bincount(self.places[:, 0], minlength=self.patterns)

    @property
    def nbytes(self) -> int:
        """Bytes held by these sites and everything kept that was derived from them."""
        tensors = [self.places, *itertools.chain.from_iterable(itertools.chain(*self._pairs.values()))]
        below = sum(coarser.nbytes for coarser in self._coarser.values())
        return below + sum(int(tensor.nbytes) for tensor in (*tensors, *self._blocks.values(), *self._keys))

    def coarser(self, stride: int) -> "Sites":
        """Return the sites whose place, times ``stride``, is the corner of a block with a site in it."""
        if stride == 1:
            return self
        if stride not in self._coarser:
            places = self.places.clone()
            places[:, 1:] //= stride
            extents = [-(-extent // stride) for extent in self.extents]
            self._coarser[stride] = Sites(
                _distinct(places, (self.patterns, *extents)), self.patterns, extents
            )
        return self._coarser[stride]

    def pairs(self, size: int, stride: int) -> Pairs:
        """Return which sites a convolution brings together: output site q gets input sites q * stride + offset.

        Returns:
            One pair of int tensors for each of ``offsets(order, size)``: rows of these sites, ascending, and the
            rows of ``coarser(stride)`` that they add to. Within an offset no row occurs twice.
        """
        if (size, stride) not in self._pairs:
            self._pairs[size, stride] = list(self._found(size, stride))
        return self._pairs[size, stride]

    def _found(self, size: int, stride: int) -> Iterator[tuple["torch.Tensor", "torch.Tensor"]]:
        kernel, targets = offsets(self.order, size), self.coarser(stride)
        index = torch.int32 if len(self) < 2**31 else torch.int64
        mirrored: Pairs = []
        for offset in kernel:
            if stride == 1 and len(mirrored) > len(kernel) // 2:
                # Place p is q + offset exactly if q is p - offset: the second half is the first one, seen from there.
                sources, hit = mirrored[len(kernel) - 1 - len(mirrored)]
                found = (hit, sources)
            else:
                rows = self.find(targets, stride, offset)
                (hit,) = torch.nonzero(rows >= 0, as_tuple=True)
                found = (rows[hit].to(index), hit.to(index))
            mirrored.append(found)
            yield found

    def blocks(self, stride: int) -> "torch.Tensor":
        """Return for each site the row of ``coarser(stride)`` whose block it lies in: int64, (n,); it is kept."""
        if stride not in self._blocks:
            columns = [self.places[:, 0], *(self.places[:, 1:] // stride).unbind(1)]
            self._blocks[stride] = self.coarser(stride)._rows(columns)
        return self._blocks[stride]

    def find(self, targets: "Sites", stride: int, offset: Sequence[int]) -> "torch.Tensor":
        """Return for each target the row of the site at ``target * stride + offset``, or -1: int64, (targets,)."""
        moved = targets.places[:, 1:] * stride + torch.tensor(offset, device=self.places.device)
        return self._rows([targets.places[:, 0], *moved.unbind(1)])

    def _rows(self, columns: "Sequence[torch.Tensor]") -> "torch.Tensor":
        """Return the row of the site at each place, given by column, or -1: int64, (places,)."""
        rows = torch.zeros(len(columns[0]), dtype=torch.int64, device=self.places.device)
        if not len(self):
            return rows - 1
        wanted = [columns[0]]
        inside = torch.ones_like(rows, dtype=torch.bool)
        for place, extent in zip(columns[1:], self.extents, strict=True):
            inside &= (place >= 0) & (place < extent)
            wanted.append(place.clamp(0, extent - 1))
        for (group, width), known in zip(self._groups, self._keys, strict=True):
            keys = rows * width + _linear([wanted[k] for k in group], [self._sizes[k] for k in group])
            rows = torch.searchsorted(known, keys).clamp(max=len(known) - 1)
            inside &= known[rows] == keys
        return torch.where(inside, rows, -1)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.patterns, *self.extents)

    @cached_property
    def _keys(self) -> list["torch.Tensor"]:
        """For each group of columns the distinct keys: (row among the previous group's keys) * width + place.

        One group is enough while the product of all extents fits 63 bits; otherwise the groups form a trie. The last
        one has a key for each site, because sites are distinct and sorted.
        """
        rows = torch.zeros(len(self), dtype=torch.int64, device=self.places.device)
        levels = []
        for group, width in self._groups:
            keys = rows * width + _linear([self.places[:, k] for k in group], [self._sizes[k] for k in group])
            known, rows = torch.unique_consecutive(keys, return_inverse=True)
            levels.append(known)
        return levels


def _groups(sizes: Sequence[int], count: int) -> list[tuple[list[int], int]]:
    """Divide columns into runs, each with the product of its sizes, so that row * product + place fits 63 bits."""
    groups: list[tuple[list[int], int]] = []
    for column, size in enumerate(sizes):
        before = 1 if len(groups) < 2 else max(count, 1)
        if groups and before * groups[-1][1] * size < MOST_KEYS:
            groups[-1] = ([*groups[-1][0], column], groups[-1][1] * size)
        elif (max(count, 1) if groups else 1) * size < MOST_KEYS:
            groups.append(([column], size))
        else:
            raise InputError(f"a mode of extent {size} with {count} entries is too large to be convolved")
    return groups


def _linear(columns: "Sequence[torch.Tensor]", sizes: Sequence[int]) -> "torch.Tensor":
    """Row-major numbers of the places given by columns."""
    keys = columns[0]
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        keys = keys * size + column
    return keys


def _distinct(places: "torch.Tensor", sizes: Sequence[int]) -> "torch.Tensor":
    """Sort rows lexicographically and drop repeated ones."""
    order = None
    for group, _ in reversed(_groups(sizes, 1)):  # the least significant columns first, each sort stable
        keys = _linear([places[:, k] for k in group], [sizes[k] for k in group])
        step = torch.sort(keys if order is None else keys[order], stable=True).indices
        order = step if order is None else order[step]
    places = places[order]
    fresh = torch.ones(len(places), dtype=torch.bool, device=places.device)
    fresh[1:] = (places[1:] != places[:-1]).any(dim=1)
    return places[fresh]
