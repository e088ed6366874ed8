"""The 30 quick cases: a computation by SciPy and by Tensorwise, on real matrices that other packages bring along."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import scipy.sparse as sp

from benchmarks.corpus import ROOT
from benchmarks.everyday.products import largest_error, operand

Call = Callable[[], object]
TUNE_S: Final = 3.0
"""Budget of the search, in seconds."""
BATCH: Final = 64
"""Rows of the input of the linear layer."""
OURS, SCIPY = "ours", "scipy"


def heat() -> sp.csr_array:
    """Return a heat equation on pyamg's airfoil mesh, refined four times: about 75,000 rows, 7 entries a row."""
    from examples.demo import airfoil

    return airfoil(refinements=4)


def elastic_bar() -> sp.csr_array:
    """Return pyamg's elastic bar: 600 rows in blocks of 3 x 3, 39 entries a row."""
    from examples.demo import bar

    return bar()


def neighbours() -> sp.csr_array:
    """Return the graph of the ten nearest neighbours of scikit-learn's 1,797 images of digits."""
    from sklearn.datasets import load_digits
    from sklearn.neighbors import kneighbors_graph

    return sp.csr_array(kneighbors_graph(load_digits().data, 10))


def digits() -> sp.csr_array:
    """Return scikit-learn's images of digits: 1,797 rows, 64 columns, half of the entries zero."""
    from sklearn.datasets import load_digits

    return sp.csr_array(load_digits().data)


def karate() -> sp.csr_array:
    """Return networkx's graph of a karate club: 34 rows, 156 entries."""
    import networkx as nx

    return sp.csr_array(nx.to_scipy_sparse_array(nx.karate_club_graph()))


MATRICES: Final[Mapping[str, Callable[[], sp.csr_array]]] = {
    "airfoil": heat,
    "bar": elastic_bar,
    "neighbours": neighbours,
    "digits": digits,
    "karate": karate,
}


@functools.cache
def matrix_of(name: str, dtype: str) -> sp.csr_array:
    """Return a matrix in CSR with 32-bit indices.

    Raises:
        ImportError: the package that brings it is not installed.
    """
    made = MATRICES[name]().astype(dtype)
    made.sort_indices()
    made.indices, made.indptr = made.indices.astype(np.int32), made.indptr.astype(np.int32)
    return made


@final
@dataclass(frozen=True)
class Pair:
    """One computation in two ways.

    Attributes:
        ours: with Tensorwise.
        scipy: with SciPy alone.
        matrix, operand: what both results are compared with is ``matrix @ operand``; None: there is nothing to compare.
        result_of: the array to compare, of what a call returns.
        budget_s: most seconds of the rounds; with 6, the 30 cases take three minutes besides preparing them.
    """

    ours: Call
    scipy: Call
    matrix: sp.csr_array | None
    operand: np.ndarray | None
    result_of: Callable[[Any], np.ndarray] = np.asarray
    budget_s: float = 6.0

    def wrong(self) -> list[str]:
        """Return the names of the ways whose result is outside its rounding bound."""
        if self.matrix is None or self.operand is None:
            return []
        calls = {OURS: self.ours, SCIPY: self.scipy}
        return [
            name
            for name, call in calls.items()
            if largest_error(self.result_of(call()), self.matrix, self.operand) > 1
        ]


def turned(array: np.ndarray) -> np.ndarray:
    """Return the transpose of the result of a product from the left."""
    return np.asarray(array).T


def product(
    matrix: str, dtype: str = "float64", columns: int = 0, form: str = "csr", side: str = "A @ x", order: str = "C"
) -> Pair:  # fmt: skip
    """Return a product of an array that stays: ``A @ x``, ``A.T @ x`` or ``x @ A``, for a vector where ``columns`` is 0."""
    import tensorwise as tw

    A = matrix_of(matrix, dtype)
    theirs = A.tobsr((3, 3)) if form == "bsr" else A.asformat(form)
    ours = tw.asarray(theirs)
    if side == "A @ x":
        x = np.asarray(operand(columns, A.shape[1], A.dtype), order=order)  # type: ignore[call-overload]
        return Pair(lambda: ours @ x, lambda: theirs @ x, A, x)
    x = operand(columns, A.shape[0], A.dtype)
    if side == "A.T @ x":
        return Pair(lambda: ours.T @ x, lambda: theirs.T @ x, A.T.tocsr(), x)
    left = np.ascontiguousarray(x.T)
    return Pair(lambda: left @ ours, lambda: left @ theirs, A.T.tocsr(), x, turned)


def creation(matrix: str, with_product: bool) -> Pair:
    """Return the creation of an array from ``data``, ``indices`` and ``indptr``, and its first product perhaps."""
    from tensorwise.sparse import csr_array

    A = matrix_of(matrix, "float64")
    arrays, x = (A.data, A.indices, A.indptr), operand(0, A.shape[1], A.dtype)
    if with_product:
        return Pair(
            lambda: csr_array(arrays, shape=A.shape) @ x, lambda: sp.csr_array(arrays, shape=A.shape) @ x, A, x
        )  # fmt: skip
    return Pair(
        lambda: csr_array(arrays, shape=A.shape), lambda: sp.csr_array(arrays, shape=A.shape), None, None
    )


def freezing(matrix: str) -> Pair:
    """Return a frozen copy and its first product, against a copy and its first product."""
    import tensorwise as tw

    theirs = matrix_of(matrix, "float64")
    ours, x = tw.asarray(theirs), operand(0, theirs.shape[1], theirs.dtype)
    return Pair(lambda: ours.freeze() @ x, lambda: theirs.copy() @ x, theirs, x)


def updating(matrix: str) -> Pair:
    """Return new values of a frozen array and a product, against the same with values that are overwritten."""
    import tensorwise as tw

    A = matrix_of(matrix, "float64")
    frozen, theirs, values = tw.asarray(A).freeze(), A.copy(), A.data.copy()
    x = operand(0, A.shape[1], A.dtype)

    def ours() -> object:
        frozen.update(values)
        return frozen @ x

    def scipy() -> object:
        theirs.data[:] = values
        return theirs @ x

    return Pair(ours, scipy, A, x)


def tuned(matrix: str, columns: int, threads: int) -> Pair:
    """Return a call of the operator that a short search finds."""
    import tensorwise as tw

    A = matrix_of(matrix, "float32")
    x = operand(columns, A.shape[1], A.dtype)
    found = tw.tune(A, "spmm", n=columns, budget_s=TUNE_S, threads=threads, store=False)
    return Pair(lambda: found(x), lambda: A @ x, A, x)


def layer(matrix: str, threads: int) -> Pair:
    """Return the forward pass of a sparse linear layer whose weight is the matrix, against ``x @ W.T``."""
    import torch

    import tensorwise as tw

    torch.set_num_threads(threads)
    A = matrix_of(matrix, "float32")
    W = sp.csr_array((operand(0, A.nnz, A.dtype), A.indices, A.indptr), shape=A.shape)  # weights, not ones
    rows = operand(W.shape[1], BATCH, W.dtype)
    linear, given = tw.nn.SparseLinear(W).requires_grad_(False), torch.from_numpy(rows)
    transposed = W.T
    return Pair(
        lambda: linear(given), lambda: rows @ transposed, W, np.ascontiguousarray(rows.T), lambda made: turned(made)
    )  # fmt: skip


def importing() -> Pair:
    """Return a fresh process that imports ``tensorwise.sparse``, against one that imports ``scipy.sparse``."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])

    def process(module: str) -> Call:
        return lambda: subprocess.run(
            [sys.executable, "-c", f"import {module}"], env={**os.environ, "PYTHONPATH": paths}, check=True
        )

    return Pair(process("tensorwise.sparse"), process("scipy.sparse"), None, None, budget_s=20)


def cases(threads: int) -> dict[str, Callable[[], Pair]]:
    """Return the cases by name: each prepares its two computations."""

    def made(**given: Any) -> Callable[[], Pair]:
        return lambda: product(**given)

    return {
        "SpMV, airfoil": made(matrix="airfoil"),
        "SpMV, airfoil, float32": made(matrix="airfoil", dtype="float32"),
        "SpMV, neighbours": made(matrix="neighbours"),
        "SpMV, digits": made(matrix="digits"),
        "SpMM 8, airfoil": made(matrix="airfoil", columns=8),
        "SpMM 8, airfoil, F order": made(matrix="airfoil", columns=8, order="F"),
        "SpMM 8, neighbours, float32": made(matrix="neighbours", columns=8, dtype="float32"),
        "SpMM 64, airfoil": made(matrix="airfoil", columns=64),
        "SpMM 64, airfoil, float32": made(matrix="airfoil", columns=64, dtype="float32"),
        "SpMM 64, neighbours": made(matrix="neighbours", columns=64),
        "SpMM 64, digits, F order": made(matrix="digits", columns=64, order="F"),
        "A.T @ x, airfoil": made(matrix="airfoil", side="A.T @ x"),
        "A.T @ X 8, airfoil": made(matrix="airfoil", side="A.T @ x", columns=8),
        "A.T @ X 8, digits": made(matrix="digits", side="A.T @ x", columns=8),
        "x @ A, airfoil": made(matrix="airfoil", side="x @ A"),
        "X 8 @ A, airfoil": made(matrix="airfoil", side="x @ A", columns=8),
        "CSC SpMV, airfoil": made(matrix="airfoil", form="csc"),
        "CSC SpMM 8, airfoil": made(matrix="airfoil", form="csc", columns=8),
        "BSR SpMV, bar": made(matrix="bar", form="bsr"),
        "BSR SpMM 8, bar": made(matrix="bar", form="bsr", columns=8),
        "BSR x @ A, bar": made(matrix="bar", form="bsr", side="x @ A"),
        "call, SpMV, karate": made(matrix="karate"),
        "call, SpMM 8, karate": made(matrix="karate", columns=8),
        "creation, karate": lambda: creation("karate", with_product=False),
        "creation and SpMV, airfoil": lambda: creation("airfoil", with_product=True),
        "freeze and SpMV, airfoil": lambda: freezing("airfoil"),
        "update and SpMV, airfoil": lambda: updating("airfoil"),
        "tuned, SpMM 64, neighbours": lambda: tuned("neighbours", 64, threads),
        "SparseLinear, neighbours": lambda: layer("neighbours", threads),
        "process that imports": importing,
    }
