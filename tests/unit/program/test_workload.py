"""Workloads: ids, shapes, sizes of the work, operands, and what is refused."""

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.program.einsum import Einsum
from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries


def entries(shape: tuple[int, ...], *places: tuple[int, ...], dtype: str = "float32") -> Entries:
    """Entries of value 1, 2, ... at ``places``."""
    columns = np.array(places, np.int64).reshape(-1, len(shape)).T
    return entries_from((shape, list(columns), np.arange(1.0, len(places) + 1).astype(dtype)))


MATRIX = entries((4, 3), (0, 0), (2, 1), (2, 2))
CUBE = entries((4, 3, 2), (0, 0, 1), (3, 2, 0))


@pytest.mark.parametrize(
    ("op", "a", "arguments", "output", "dense", "terms"),
    [
        ("spmv", MATRIX, {}, (4,), [(3,)], 3),
        ("spmm", MATRIX, {"n": 5}, (4, 5), [(3, 5)], 15),
        ("spmm", MATRIX, {}, (4, 64), [(3, 64)], 192),
        ("sddmm", MATRIX, {"n": 5}, (3,), [(4, 5), (5, 3)], 15),
        ("ttv", CUBE, {}, (4, 3), [(2,)], 2),
        ("ttm", CUBE, {"n": 5}, (4, 3, 5), [(2, 5)], 10),
        ("mttkrp", CUBE, {"n": 5}, (4, 5), [(3, 5), (2, 5)], 10),
        ("mttkrp", CUBE, {"n": 5, "mode": 2}, (2, 5), [(4, 5), (3, 5)], 10),
        ("mttkrp", CUBE, {}, (4, 16), [(3, 16), (2, 16)], 32),
    ],
)
def test_named_operations(
    op: str,
    a: Entries,
    arguments: Mapping[str, int],
    output: tuple[int, ...],
    dense: list[tuple[int, ...]],
    terms: int,
) -> None:
    work = workload(op, a, **arguments)
    assert work.op == op
    assert work.output_shape == output
    assert [work.shape(name) for name in work.dense] == dense
    assert work.terms == terms
    assert work.flops == terms * (1 + len(dense))
    stored = a.nnz * (4 + 4)
    moved = stored + 4 * sum(int(np.prod(shape)) for shape in (*dense, output))
    assert work.compulsory_bytes == moved
    drawn = work.operands(np.random.default_rng(0))
    assert [operand.shape for operand in drawn] == dense
    assert all(operand.dtype == np.float32 for operand in drawn)
    work.check_operands(drawn)


def test_the_layout_a_call_prefers() -> None:
    work = workload("sddmm", MATRIX, n=5)
    assert [work.column_major(name) for name in work.dense] == [False, True]
    b, d = work.operands(np.random.default_rng(0))
    assert b.flags.c_contiguous
    assert d.flags.f_contiguous
    assert not workload("spmm", MATRIX, n=5).column_major("B")


def test_coordinates_come_out_as_integers() -> None:
    work = einsum_workload("C[i] argmax= A[i,k] * B[k]", {"A": MATRIX}, {})
    assert work.output_dtype == np.int32  # as wide as the values beside them
    assert work.dtype == np.float32
    wide = einsum_workload("C[i] argmax= A[i,k] * B[k]", {"A": MATRIX.astype(np.float64)}, {})
    assert wide.output_dtype == np.int64


def test_what_an_id_depends_on() -> None:
    base = workload("spmm", MATRIX, n=5)
    other_values = MATRIX.with_values(np.array([7, 8, 9], np.float32))
    assert workload("spmm", other_values, n=5).id == base.id  # values do not change the cost
    different = [
        workload("spmm", MATRIX, n=6),
        workload("spmm", MATRIX.astype(np.float64), n=5),
        workload("spmm", entries((4, 3), (0, 0), (2, 1), (3, 2)), n=5),
        workload("spmm", entries((5, 3), (0, 0), (2, 1), (2, 2)), n=5),
        einsum_workload("C[i,j] max= A[i,k] * B[k,j]", {"A": MATRIX}, {"j": 5}),
        einsum_workload("C[i,j] += A[i,k] * B[k,j] * 0.1234567", {"A": MATRIX}, {"j": 5}),
        einsum_workload("C[i,j] += A[i,k] * B[k,j] * 0.1234568", {"A": MATRIX}, {"j": 5}),
    ]
    ids = [base.id, *(work.id for work in different)]
    assert len(set(ids)) == len(ids)
    assert all(len(i) == 32 for i in ids)


@pytest.mark.parametrize(
    ("op", "a", "arguments", "message"),
    [
        (
            "gemm",
            MATRIX,
            {},
            "unknown operation 'gemm'; known: spmv, spmm, spmv_t, spmm_t, sddmm, ttv, ttm, mttkrp",
        ),
        ("spmv", CUBE, {}, "spmv needs a tensor of order 2, got order 3 with shape (4, 3, 2)"),
        ("mttkrp", MATRIX, {}, "mttkrp needs a tensor of order 3 to 5, got order 2 with shape (4, 3)"),
        ("mttkrp", CUBE, {"mode": 3}, "mttkrp mode must lie in 0..2, got 3"),
        ("spmv", MATRIX, {"n": 5}, "spmv has no dense-only index, so n must be left out (got n=5)"),
        ("spmv", MATRIX, {"n": [3]}, "so n must be left out (got n="),
        ("spmm", MATRIX, {"n": 0}, "n must be a positive integer, got 0"),
        ("spmm", MATRIX, {"n": 2.5}, "n must be a positive integer, got 2.5"),
        ("spmm", MATRIX, {"n": True}, "n must be a positive integer, got True"),
    ],
)
def test_operations_that_do_not_fit(op: str, a: Entries, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(InputError) as error:
        workload(op, a, **arguments)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "sparse", "sizes", "message"),
    [
        ("C[i] += A[i,k] * B[k]", {}, {}, "has no sparse operand; give one, or use numpy.einsum"),
        ("C[i] += A[i,k] * B[k]", {"X": MATRIX}, {}, "has no operand 'X'; it has A, B"),
        ("C[i] += A[i] * B[i]", {"A": MATRIX}, {}, "A[i] has 1 indices, but A has shape (4, 3)"),
        ("C[i] += A[i,k] * S[k,i]", {"A": MATRIX, "S": MATRIX}, {}, "index 'k' has extent 4 in S of shape (4, 3)"),
        ("C[i] += A[i,k] * S[i,k]", {"A": MATRIX, "S": MATRIX.astype(np.float64)}, {}, "float64 goes with float64 only"),
        ("C[i,j] += A[i,k] * B[k,j]", {"A": MATRIX}, {}, "size of index 'j' is not known; give sizes={'j': ...}"),
        ("C[i,j] += A[i,k] * B[k,j]", {"A": MATRIX}, {"j": 0}, "must be a positive integer, got 0"),
        ("C[i,j] += A[i,k] * B[k,j]", {"A": MATRIX}, {"j": 2, "k": 4}, "index 'k' has extent 4 in sizes, but 3"),
        ("C[i] += A[i,k] * B[k]", {"A": MATRIX}, {"q": 4}, "has no index 'q'; it has i, k"),
        ("C[i,j] += A[i,k] * A[j,k]", {"A": MATRIX}, {"j": 4}, "sparse operand A is read as A[i,k] and as A[j,k]"),
        ("C[i] += A[i,k] * B[i] * B[k]", {"A": MATRIX}, {}, "B[i] and B[k] are the same tensor, but its extents"),
        ("T[i] += A[i,k]; C[i] = T[i]", {"A": MATRIX}, {}, "expected a single assignment"),
    ],
)  # fmt: skip
def test_einsums_that_do_not_fit(
    text: str, sparse: dict[str, Entries], sizes: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError) as error:
        einsum_workload(text, sparse, sizes)
    assert message in str(error.value)


def test_einsums_by_hand() -> None:
    assert einsum_workload("C[i]+=A[i,k]*B[k]", {"A": MATRIX}, {}).op == "spmv"
    assert einsum_workload("C[i] += A[i,k] * X[k]", {"A": MATRIX}, {}).op == "einsum"
    square = entries((3, 3), (0, 1))
    both = einsum_workload("C[i,j] = B[i] * A[i,j] * B[j]", {"A": square}, {})
    assert both.dense == ("B",)
    assert both.keeps_pattern
    assert both.output_shape == (1,)
    assert einsum_workload("C[j,i] = A[i,j] * B[j]", {"A": MATRIX}, {}).output_shape == (3, 4)


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ([], "spmm takes 1 operands (B), got 0"),
        ([[1.0]], "operand B must be a NumPy array, got list"),
        ([np.zeros((5, 3), np.float32)], "operand B must have shape (3, 5), got (5, 3)"),
        (
            [np.zeros((3, 5))],
            "operand B must be float32 as the sparse operand is, got float64; convert it with",
        ),
    ],
)
def test_operands_that_do_not_fit(operands: list[np.ndarray], message: str) -> None:
    with pytest.raises(InputError) as error:
        workload("spmm", MATRIX, n=5).check_operands(operands)
    assert message in str(error.value)


def test_sizes_are_counted_without_overflow() -> None:
    huge = Entries((2**40, 2**40), (np.zeros(0, np.int64),) * 2, np.zeros(0, np.float32), None)
    work = Workload(
        "spmm", Einsum.parse("C[i,j] += A[i,k] * B[k,j]"), {"A": huge}, dict(i=2**40, k=2**40, j=2**30)
    )
    assert work.compulsory_bytes == 4 * 2 * 2**70


def test_dense_arrays_that_do_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = entries((2**20, 2**21, 9), (5, 7, 1))
    work = workload("ttm", huge, n=16)
    work.check_memory("B")
    with pytest.raises(InputError) as error:
        work.check_memory("B", "C")
    assert "take 131,072.0 GiB, most of them C[i,j,r] of shape (1048576, 2097152, 16)" in str(error.value)
    with pytest.raises(InputError, match=re.escape("B[k,j] of shape (1099511627776, 64)")):
        workload("spmm", entries((3, 2**40), (1, 7))).check_memory("B")
    monkeypatch.setattr("tensorwise.program.workload.available_bytes", lambda: 4 * 12 + 7)
    workload("spmv", MATRIX).check_memory("B", "C")  # 3 + 4 elements
    with pytest.raises(InputError):
        workload("spmm", MATRIX, n=2).check_memory("B", "C")  # 6 + 8, neither alone too many
    sampled = workload("sddmm", entries((2**20, 2**20), (1, 7)), n=1)
    sampled.check_memory(sampled.assignment.output.tensor)  # one value an entry


def test_chosen_numbers_are_mostly_of_entries_that_a_row_has() -> None:
    rng = np.random.default_rng(0)
    places = np.argwhere(rng.random((30, 20)) < 0.1)
    edges, count = entries((30, 20), *map(tuple, places)), len(places)
    edges = replace(edges, numbers=rng.permutation(count).astype(np.int32))
    einsum = Einsum.parse("G[k,f] += D[i,f] if aC[i,f] == A else 0 for A[i,k]")
    work = Workload("einsum", einsum, {"A": edges}, {"i": 30, "k": 20, "f": 50})
    chosen = work.operands(np.random.default_rng(1))[list(work.dense).index("aC")]
    assert chosen.shape == (30, 50)
    row_of = dict(zip(edges.numbers.tolist(), edges.coordinates[0].tolist(), strict=True))
    own = np.array(
        [[row_of.get(number) == row for number in numbers] for row, numbers in enumerate(chosen.tolist())]
    )
    length = np.bincount(edges.coordinates[0], minlength=30)
    filled = length > 0
    assert 0.85 < own[filled].mean() < 1
    assert not own[~filled].any()
    assert chosen.min() >= -1
    assert chosen.max() < count
    for row in np.flatnonzero(length > 2):
        assert len(set(chosen[row])) > 2
