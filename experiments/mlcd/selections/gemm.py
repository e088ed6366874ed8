"""C = A B in float32, and max(A B, 0), with A more or less sparse (MLCD, sections II-A and V-A; Table II)."""

import ctypes
import time
from collections.abc import Mapping
from functools import cache, partial
from operator import attrgetter, methodcaller
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

import tensorwise as tw
from selections.gpu import add_products
from selections.laid_out import LaidOut, compiled
from tensorwise.analysis.operands import share_of_zeros
from tensorwise.device.libraries.mkl import MklKernel, load
from tensorwise.program.workload import workload
from tensorwise.selection import Selection
from tensorwise.space.params import powers
from tensorwise.tensor.convert import entries_from
from tensorwise.toolchain.threads import available_threads
from tensorwise.tuning.operator import default_kernel

UNITS: Final = {
    "m": "rows of A",
    "n": "columns of B",
    "k": "columns of A",
    "sparsity": "share of zeros in A",
    "terms": "m n k",
    "stored": "terms without those that are zero",
    "tail": "columns of B behind those that fill whole cache lines",
}
VERSIONS: Final = {
    "blas": "the BLAS that SciPy brings along",
    "naive": "Algorithm 3 of the paper in C, one thread",
    "rows": "over stored entries only, row by row, in C, one thread",
    "blocked": "C in blocks that stay in registers, in C",
    "own sparse": "the SpMM that Tensorwise generates",
    "own sparse, one thread": "the same on one thread",
    "mkl blas": "MKL's sgemm",
    "mkl sparse": "MKL's inspector-executor SpMM",
}
"""The last two need the extra ``mkl``. All have as many threads as there are processors, unless they say otherwise."""
GPU: Final = {
    "gpu blas": "torch's product of dense matrices, cuBLAS",
    "gpu sparse": "torch's product with A in CSR, cuSPARSE",
    "gpu naive": "Algorithm 3 of the paper in CUDA C++, a thread an element",
    "gpu triton": "tiles of C from tiles of A and B, in Triton",
}
"""Where torch finds a GPU; operands and the result are moved, which is part of a call."""
LINE: Final = 16
"""Numbers in a cache line. Where rows of B begin with one, gathering them takes up to a third less."""
MOST_NAIVE: Final = 2e9
"""Products of more terms are not made naively: it would take seconds up to minutes, and never win."""


def features(m: int, n: int, k: int, sparsity: float) -> dict[str, float]:
    """Return the features of a product, by name."""
    terms = m * n * k
    return {
        "m": m, "n": n, "k": k, "sparsity": sparsity, "terms": terms, "stored": terms * (1 - sparsity), "tail": n % LINE,
    }  # fmt: skip


def lay_out(a: sp.csr_array, b: np.ndarray, sparsity: float, relu: bool, *, dense: bool = True) -> LaidOut:
    """Lay out the product of A and B in every version.

    A is kept in each form that a version reads, as the paper keeps it: converting it is no version's time.

    Args:
        a: (m, k) float32.
        b: (k, n) float32, by rows.
        sparsity: share of zeros in A, which is known where A is made.
        relu: negative results become 0.
        dense: whether there is room for A as a dense matrix; if not, versions that read one are left out.
    """
    (m, k), n, threads = a.shape, b.shape[1], available_threads()
    whole = a.toarray() if dense else None
    start = time.perf_counter()
    if whole is not None:
        share_of_zeros(whole)  # what it would take where nobody knows it
    took_s = time.perf_counter() - start
    made = LaidOut(tuple(features(m, n, k, sparsity).values()), (a, whole, b, relu), took_s)
    sizes = (m, n, k, int(relu), threads)
    if whole is not None:
        for name, function, routine in (
            ("blas", "gemm_blas", scipy_sgemm()), ("mkl blas", "gemm_blas", mkl_sgemm()),
            ("naive", "gemm_naive", 0 if m * n * k <= MOST_NAIVE else None), ("blocked", "gemm_blocked", 0),
        ):  # fmt: skip
            if routine is not None:
                out = np.empty((m, n), np.float32)
                made.add(name, compiled(function, (whole, b, out, routine), sizes), out)
    held = a.indptr.astype(np.int32), a.indices.astype(np.int32), a.data, b
    out = np.empty((m, n), np.float32)
    made.add("rows", compiled("gemm_rows", (*held, out), (m, n, int(relu))), out)
    work = workload("spmm", entries_from(a), n=n)
    own, inspected = default_kernel(work), MklKernel() if MklKernel.installed() else None
    for name, kernel, count in (
        ("own sparse", own, threads), ("own sparse, one thread", own, 1), ("mkl sparse", inspected, threads),
    ):  # fmt: skip
        if kernel is not None:
            out = np.empty((m, n), np.float32)
            call = kernel.bind(work, count).ready([b], out)
            if relu:
                call = partial(_one_after_the_other, call, compiled("gemm_relu", (out,), (out.size, count)))
            made.add(name, call, out)
    return made


def _one_after_the_other(first: Any, second: Any) -> None:
    first()
    second()


def make(relu: bool, m: int, n: int, k: int, sparsity: float, **derived: float) -> tuple[LaidOut]:
    """Return operands of a given shape, laid out; exactly so many entries of A as the sparsity says are zero."""
    rng = np.random.default_rng([m, n, k])
    sign = np.float32(0.5 if relu else -0.5)  # with sums of both signs where it matters
    stored = np.sort(rng.choice(m * k, m * k - round(sparsity * m * k), replace=False, shuffle=False))
    values = rng.random(len(stored), np.float32) + np.float32(0.5)
    a = sp.csr_array((values, np.divmod(stored, k)), shape=(m, k))
    return (lay_out(a, rng.random((k, n), np.float32) - sign, sparsity, relu),)


def inputs(ranges: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Draw an input: sizes about 1.5^n, and some sparsities (section IV-B1); columns also by powers of two, as in networks.

    A cell is one shape with all its sparsities. Shapes with more than ``most_terms`` products are not drawn.
    """
    rows, others = sizes(ranges["most_rows"]), sizes(ranges["most_others"])
    others = sorted({*others, *powers(4, ranges["most_others"])})
    while True:
        m, n, k = (int(rng.choice(some)) for some in (rows, others, others))
        if m * n * k <= ranges["most_terms"]:
            sparsity = float(rng.choice(ranges["sparsities"]))
            return {**features(m, n, k, sparsity), "cell": f"{m} {n} {k}"}


def nearby(ranges: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Draw an input of GEMM*: square products of many nearby sizes, from 50 in equal steps."""
    size = int(rng.choice(np.arange(50, ranges["most_nearby"] + 1, ranges["step_nearby"])))
    return {**features(size, size, size, float(rng.choice(ranges["sparsities_nearby"]))), "cell": str(size)}


@cache
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


def gemm(name: str, ranges: Mapping[str, Any]) -> Selection:
    """Return ``gemm``, ``gemm-relu`` or ``gemm-near`` with its versions."""
    relu = name == "gemm-relu"
    made = tw.versions(
        name, features=attrgetter("features"), units=UNITS, make=partial(make, relu),
        inputs=partial(nearby if name == "gemm-near" else inputs, ranges),
    )  # fmt: skip
    for version in VERSIONS:
        if MklKernel.installed() or not version.startswith("mkl"):
            made.version(methodcaller("run", version), name=version)
    add_products(made)
    return made


@cache
def scipy_sgemm() -> int:
    """Return the address of the sgemm that SciPy is linked with."""
    from scipy.linalg import cython_blas

    capsule, api = cython_blas.__pyx_capi__["sgemm"], ctypes.pythonapi
    name_of, pointer_of = api.PyCapsule_GetName, api.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    found: int = pointer_of(capsule, name_of(capsule))
    return found


@cache
def mkl_sgemm() -> int | None:
    """Return the address of MKL's sgemm; None without the extra ``mkl``."""
    return ctypes.cast(load().sgemm_, ctypes.c_void_p).value if MklKernel.installed() else None
