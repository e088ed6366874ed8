"""Which matrices of the corpus everyday benchmarks take, and their arrays in a file that a process reads in milliseconds."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.corpus import Item, entries_of, items
from benchmarks.held_out import spread


def choose(count: int, known: Sequence[Item] | None = None) -> list[Item]:
    """Return ``count`` matrices of the corpus, smallest first, spread over its families and their sizes.

    Families get places in turns, the largest first, until ``count`` places are given or no family has more matrices. A
    family of n matrices that has m places gives those at equal distances when sorted by their nonzeros.

    Args:
        count: how many.
        known: the corpus; None: all matrices of it.
    """
    families = defaultdict[str, list[Item]](list)
    for item in items(2) if known is None else known:
        families[item.family].append(item)
    order = sorted(families, key=lambda name: (-len(families[name]), name))
    places = dict.fromkeys(order, 0)
    left = min(count, sum(map(len, families.values())))
    while left:
        for name in order:
            if left and places[name] < len(families[name]):
                places[name] += 1
                left -= 1
    found = [
        item
        for name, some in families.items()
        if places[name]
        for item in spread(sorted(some, key=lambda one: (one.nonzeros, one.name)), places[name])
    ]
    return sorted(found, key=lambda item: (item.nonzeros, item.name))


def matrix_of(path: Path, dtype: str) -> sp.csr_array:
    """Read a matrix of the corpus: CSR with 32-bit indices, as SciPy keeps it; of a mere pattern the values are random."""
    entries = entries_of(path)
    values = entries.values.astype(dtype)
    if len(values) and np.all(values == values[0]):
        values = np.random.default_rng(0).uniform(0.5, 1.5, len(values)).astype(dtype)
    matrix = sp.coo_array((values, entries.coordinates), entries.shape).tocsr()
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return matrix


def save(matrix: sp.csr_array, path: Path) -> Path:
    """Write the arrays of a matrix."""
    np.savez(path, data=matrix.data, indices=matrix.indices, indptr=matrix.indptr, shape=matrix.shape)
    return path


def load(path: Path) -> sp.csr_array:
    """Read what `save` wrote."""
    with np.load(path) as held:
        arrays = held["data"], held["indices"], held["indptr"]
        return sp.csr_array(arrays, shape=tuple(map(int, held["shape"])))
