"""Packed products: the entries of a matrix as it is given, new values, and kernels that were compiled before."""

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device.cpu import CpuDevice
from tensorwise.lower.program import program_for
from tensorwise.sparse.given import GivenArrays
from tensorwise.sparse.packed import ROUTINES, masked_texts, pack_product
from tensorwise.sparse.searching import in_place_program
from tensorwise.sparse.ways import ProductWay
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.routines import load_all

FORMATS = {
    "csr": ("(i,k) -> U(i) C(k)", "parallel(i,balanced,4)"),
    "columns": ("(i,k) -> C(k) C(i)", "reorder(k,i)"),
    "blocks": ("(i,k) -> U(i1) C(k1) U(i0:4) U(k0:4)", "parallel(i1,dynamic,4)"),
    "slices": ("(i:length64,k) -> U(i1) P(k#) U(i0:8) S(k)", "parallel(i1,dynamic,4)"),
    "hybrid": (
        "(i,k) -> U(i) C(k); rows>4: (i,k) -> U(i) C(k)",
        "parallel(i,balanced,4); parallel(i,balanced,4)",
    ),
}


def a_matrix(kind, dtype=np.float64, index=np.int32):
    """Unsorted, with duplicates, an empty row and a full one."""
    rng = np.random.default_rng(3)
    rows, columns, count = 61, 47, 900
    major = np.sort(rng.integers(0, rows - 1, count))
    minor = rng.integers(0, columns, count)
    major[-columns:] = rows - 2
    major.sort()
    pointers = np.searchsorted(major, np.arange(rows + 1)).astype(index)
    values = rng.standard_normal(count).astype(dtype)
    cls = {"csr": sp.csr_array, "csc": sp.csc_array}[kind]
    shape = (rows, columns) if kind == "csr" else (columns, rows)
    return cls((values, minor.astype(index), pointers), shape=shape)


def packed(matrix, operation, columns, name, threads=2, known=(), schedule=None):
    given = GivenArrays.of(matrix, operation, columns)
    work = given.workload
    format, usual = FORMATS[name]
    schedule = schedule or usual
    program = program_for(
        work, format, schedule.replace(")", ",j)") if columns and name == "columns" else schedule
    )
    load_all(*ROUTINES)
    with CpuDevice(threads) as device:
        assert device.compile(work, [program]) == {}
    default_cache().get(masked_texts(program, work))
    return pack_product(program, work, given.stored, threads, 1.0, {}, known)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize("operation", ["spmv", "spmm", "spmv_t", "spmm_t"])
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_products_and_new_values_are_scipys(kind, operation, canonical, name):
    dtype, index = (np.float32, np.int64) if name == "blocks" else (np.float64, np.int32)
    matrix = a_matrix(kind, dtype, index)
    if canonical:
        matrix.sum_duplicates()
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.setflags(write=False)
    columns = 5 if operation.startswith("spmm") else None
    product = packed(matrix, operation, columns, name)
    rng = np.random.default_rng(0)
    for number in range(4):
        if number:
            matrix.data = rng.standard_normal(len(matrix.data)).astype(dtype)
            product.update(matrix.data)
        whole = (matrix.T if operation.endswith("_t") else matrix).copy()
        shape = () if columns is None else (columns,)
        x = rng.standard_normal((whole.shape[1], *shape)).astype(dtype)
        if number == 3:  # duplicates are one entry, their sum: SciPy's product of each would be Inf - Inf
            x[5] = np.inf
            whole.sum_duplicates()
        out = np.full((whole.shape[0], *shape), np.nan, dtype)
        product.run(x, out)
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(out, whole @ x, rtol=1e-4 if dtype == np.float32 else 1e-11, atol=1e-4)
    assert product.nbytes >= matrix.data.nbytes


def test_arrays_that_are_right_as_they_lie_are_shared():
    matrix = a_matrix("csr")
    matrix.sum_duplicates()
    entries = GivenArrays.of(matrix, "spmv", None).stored.entries
    assert np.shares_memory(entries.values, matrix.data)
    assert np.shares_memory(entries.coordinates[1], matrix.indices)
    assert matrix.data.flags.writeable
    product = packed(matrix, "spmv", None, "csr")
    before = product.nbytes
    product.update(matrix.data)
    assert product.nbytes == before, "values in the order given need no map"


def test_products_of_one_format_share_what_is_packed():
    matrix = a_matrix("csr")
    one = packed(matrix, "spmv", None, "slices")
    two = packed(matrix, "spmv", None, "slices", known=[one], schedule="parallel(i1,balanced,2)")
    other = packed(matrix, "spmv", None, "blocks", known=[one])
    assert two.values is one.values
    assert other.values is not one.values
    assert two.nbytes < 1000 < one.nbytes
    x, out = np.ones(matrix.shape[1]), np.empty(matrix.shape[0])
    one.update(2 * matrix.data)
    two.run(x, out)
    np.testing.assert_allclose(out, 2 * matrix @ x)


def test_a_kernel_that_was_not_compiled_before_is_not_offered(monkeypatch):
    matrix = a_matrix("csr")
    given = GivenArrays.of(matrix, "spmv", None)
    program = program_for(given.workload, *FORMATS["csr"])
    monkeypatch.setattr(type(default_cache()), "holds", lambda self, texts: False)
    assert pack_product(program, given.workload, given.stored, 1, 1.0, {}) is None


@pytest.mark.parametrize(("kind", "operation", "columns"), [
    (kind, operation, columns)
    for kind in ("csr", "csc") for operation in ("spmv", "spmm", "spmv_t", "spmm_t")
    for columns in ([None] if operation.startswith("spmv") else [3, 4, 7, 64])
])  # fmt: skip
@pytest.mark.parametrize("threads", [1, 2])
def test_the_product_in_place_is_a_program(kind, operation, columns, threads):
    given = GivenArrays.of(a_matrix(kind), operation, columns)
    program = in_place_program(given, given.workload, threads)
    with CpuDevice(threads) as device:
        assert device.compile(given.workload, [program]) == {}
    bound = program.plan(given.workload.elem)
    assert bound is not None
    assert ("U(i) C(k)" in program.format_text) == given.is_gather


def test_a_way_tells_what_maps_for_new_values_hold():
    matrix = a_matrix("csr")
    made = packed(matrix, "spmv", None, "slices")
    way = ProductWay("packed", 2, False, packed=made)
    before = way.nbytes
    way.refresh(2 * matrix.data)
    assert way.nbytes == made.nbytes > before
