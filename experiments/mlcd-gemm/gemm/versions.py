"""The versions of GEMM (MLCD, Table II, without a GPU), their features, and inputs drawn over the paper's ranges."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse as sp

import tensorwise as tw
from gemm.kernels import BLOCKED, NAIVE, product
from tensorwise.device.libraries.mkl import MklKernel
from tensorwise.operator import Operator, bind, default_kernel
from tensorwise.program.workload import workload
from tensorwise.selection import Selection
from tensorwise.tensor.entries import entries_from
from tensorwise.toolchain.threads import available_threads


@final
class Left:
    """The left operand, kept in each form that some version reads, as the paper keeps it: converting is no version's time.

    Attributes:
        dense: (m, k) float32.
        sparsity: share of its entries that are zero.
    """

    def __init__(self, dense: np.ndarray) -> None:
        self.dense = dense
        self.sparsity = 1.0 - np.count_nonzero(dense) / dense.size

    @cached_property
    def csr(self) -> sp.csr_array:
        """Its entries that are not zero."""
        return sp.csr_array(self.dense)

    def operator(self, kernel: str, n: int) -> Operator:
        """Return its product with matrices of ``n`` columns, made once: by ``mkl``, or by ``tensorwise``."""
        key = f"{kernel} {n}"
        if key not in self._operators:
            work = workload("spmm", entries_from(self.csr), n=n)
            chosen = MklKernel() if kernel == "mkl" else default_kernel(work)
            self._operators[key] = bind(chosen, work, available_threads())
        return self._operators[key]

    @cached_property
    def _operators(self) -> dict[str, Operator]:
        return {}


def features(a: Left, b: np.ndarray) -> tuple[float, float, float, float]:
    """Return m, n, k and the sparsity of A, which is known where A is made."""
    m, k = a.dense.shape
    return m, b.shape[1], k, a.sparsity


def make(m: int, n: int, k: int, sparsity: float) -> tuple[Left, np.ndarray]:
    """Return operands of a given shape; exactly so many entries of A as the sparsity says are zero."""
    rng = np.random.default_rng([m, n, k])
    dense = rng.random((m, k), np.float32) + np.float32(0.5)
    zeros = round(sparsity * dense.size)
    dense.reshape(-1)[rng.permutation(dense.size)[:zeros]] = 0
    return Left(dense), rng.random((k, n), np.float32)


def inputs(values: Mapping[str, Any]) -> Callable[[np.random.Generator], dict[str, Any]]:
    """Return a generator over the grid that ``values`` describes: sizes about 1.5^n, and some sparsities (section IV-B1).

    A cell is one shape with all its sparsities. Shapes whose product exceeds ``most_terms`` are not drawn.
    """
    rows, others = (sizes(values[name]) for name in ("most_rows", "most_others"))

    def draw(rng: np.random.Generator) -> dict[str, Any]:
        while True:
            m, n, k = (int(rng.choice(some)) for some in (rows, others, others))
            if m * n * k <= values["most_terms"]:
                sparsity = float(rng.choice(values["sparsities"]))
                return {"m": m, "n": n, "k": k, "sparsity": sparsity, "cell": f"{m} {n} {k}"}

    return draw


def nearby(values: Mapping[str, Any]) -> Callable[[np.random.Generator], dict[str, Any]]:
    """Return a generator of GEMM*: square products of many nearby sizes, from 50 in steps of 100."""
    steps = range(50, values["most_nearby"] + 1, 100)

    def draw(rng: np.random.Generator) -> dict[str, Any]:
        size, sparsity = int(rng.choice(steps)), float(rng.choice(values["sparsities"]))
        return {"m": size, "n": size, "k": size, "sparsity": sparsity, "cell": str(size)}

    return draw


def sizes(most: int) -> list[int]:
    """Return whole numbers from 2 to ``most``, about 1.5 times apart.

    >>> sizes(30)
    [2, 3, 5, 8, 11, 17, 26]
    """
    found, size = [], 1.5**2
    while size <= most:
        found.append(round(size))
        size *= 1.5
    return found


def gemm(name: str, draw: Callable[[np.random.Generator], dict[str, Any]]) -> Selection:
    """Return C = A B in float32 with its versions, under a name of its own."""
    made = tw.versions(
        name,
        features=features,
        units={"m": "rows of A", "n": "columns of B", "k": "columns of A", "sparsity": "share of zeros in A"},
        inputs=draw,
        make=make,
    )
    made.version(lambda a, b: a.dense @ b, name="blas")
    made.version(lambda a, b: product(NAIVE, a.dense, b, 1), name="naive")
    made.version(lambda a, b: product(BLOCKED, a.dense, b, available_threads()), name="blocked")
    made.version(lambda a, b: a.csr @ b, name="scipy sparse")
    made.version(lambda a, b: a.operator("tensorwise", b.shape[1])(b), name="own sparse")
    if MklKernel.installed():
        made.version(lambda a, b: a.operator("mkl", b.shape[1])(b), name="mkl sparse")
    return made
