"""Workloads that have broken sparse libraries before: shared by the tests of this folder."""

from collections.abc import Iterator

import numpy as np

from tensorwise.program.workload import Workload, workload
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries

PATTERNS = {
    "random": ((40, 30), 200),
    "one row": ((1, 50), 20),
    "one column": ((50, 1), 20),
    "one entry": ((7, 9), 1),
    "no entry": ((6, 5), 0),
    "no row": ((0, 5), 0),
    "no column": ((5, 0), 0),
    "mostly empty rows": ((300, 12), 25),
    "full": ((9, 8), 72),
}


def matrix(name: str, rng: np.random.Generator, dtype: str = "float32") -> Entries:
    """The pattern ``name`` with random values in [-1, 1)."""
    shape, nnz = PATTERNS[name]
    return tensor(shape, nnz, rng, dtype)


def tensor(shape: tuple[int, ...], nnz: int, rng: np.random.Generator, dtype: str = "float32") -> Entries:
    """``nnz`` distinct random entries of a tensor."""
    places = rng.choice(max(1, int(np.prod(shape))), size=nnz, replace=False)
    coordinates = np.unravel_index(places, shape) if nnz else tuple(np.zeros(0, int) for _ in shape)
    values = rng.random(nnz) * 2 - 1
    return entries_from((shape, tuple(coordinates), values), dtype)


def dense_row(rng: np.random.Generator, dtype: str = "float32") -> Entries:
    """One full row among sparse ones."""
    array = rng.random((60, 80)) * (rng.random((60, 80)) < 0.05)
    array[17] = rng.random(80) + 0.5
    return entries_from(array, dtype)


def workloads(rng: np.random.Generator) -> Iterator[tuple[str, Workload]]:
    """All patterns under all matrix operations, and tensors of orders 3 to 5."""
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for name in PATTERNS:
            for op, n in (
                ("spmv", None),
                ("spmm", 1),
                ("spmm", 7),
                ("spmm", 32),
                ("sddmm", 1),
                ("sddmm", 20),
            ):
                yield f"{op} {name} n={n} {dtype}", workload(op, matrix(name, rng, dtype), n=n)
        for op, n in (("spmv", None), ("spmm", 16), ("sddmm", 8)):
            yield f"{op} dense row {dtype}", workload(op, dense_row(rng, dtype), n=n)
        for shape, nnz in (((9, 8, 7), 100), ((9, 8, 7), 0), ((5, 6, 4, 3), 80), ((3, 4, 5, 3, 2), 90)):
            a = tensor(shape, nnz, rng, dtype)
            for mode in range(len(shape)):
                yield f"mttkrp {shape} mode {mode} {dtype}", workload("mttkrp", a, n=5, mode=mode)
        a = tensor((9, 8, 7), 150, rng, dtype)
        yield f"ttv {dtype}", workload("ttv", a)
        yield f"ttm {dtype}", workload("ttm", a, n=6)


def spoiled(operands: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """The operands with some NaN and infinities."""
    fresh = []
    for operand in operands:
        copy = operand.copy(order="K")
        if copy.size:
            places = rng.integers(0, copy.size, size=max(1, copy.size // 20))
            copy.flat[places] = rng.choice([np.nan, np.inf, -np.inf], size=places.size)
        fresh.append(copy)
    return fresh


def strided(operand: np.ndarray) -> np.ndarray:
    """Equal to ``operand``, but neither C- nor Fortran-contiguous (where it has more than one element)."""
    wide = np.zeros(tuple(2 * n for n in operand.shape), operand.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in operand.shape)]
    view[...] = operand
    return view
