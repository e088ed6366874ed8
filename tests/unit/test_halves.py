"""float16 and bfloat16 through all layers: what is kept, computed, rounded, checked, saved and tuned."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
from tensorwise.device.library import available
from tensorwise.device.verify import Checker, poison
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.program.workload import Workload, workload
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import limits, value_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.files import read, write
from tensorwise.toolchain.threads import available_threads
from tensorwise.tuning.operator import Operator

HALVES = ("float16", "bfloat16")
SPMM = "C[i,j] += A[i,k] * B[k,j]"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(41)


def matrix(rng: np.random.Generator, dtype: str = "float32", rows: int = 60, columns: int = 70) -> Entries:
    given = sp.random_array((rows, columns), density=0.1, format="csr", rng=rng, data_sampler=rng.normal)
    return entries_from(given, dtype)


def right(work: Workload, operands: list[np.ndarray], out: np.ndarray) -> None:
    """The componentwise bound holds, and is no excuse: most results are the nearest half."""
    reference = work.reference(operands)
    assert reference.mismatch(out) is None
    if out.dtype != np.float32:
        nearest = reference.value.astype(out.dtype)
        assert (nearest == out).mean() > 0.97


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(
    "schedule",
    [
        "",
        "parallel(i,dynamic,8) tile(j,2x8)",
        "tile(j,1x16)",
        "reorder(k,i,j)",  # partial results wait in memory
        "reorder(k,i,j) tile(j,1x8)",
        "reorder(k,i,j) parallel(k,dynamic,4)",
        "reorder(k,i,j) parallel(k,dynamic,4,private)",
    ],
)
def test_sums_are_rounded_once(half: str, schedule: str, rng: np.random.Generator) -> None:
    a = matrix(rng, half)
    b = rng.standard_normal((70, 21)).astype(value_dtype(half))
    by_columns = schedule.startswith("reorder")
    op = tw.compile(
        SPMM, A=a, B=b.shape, schedule=schedule, threads=3,
        format="(i,k) -> C(k) C(i)" if by_columns else "(i,k) -> U(i) C(k)",
    )  # fmt: skip
    assert ("float *restrict const work" in op.source()) == by_columns
    for _ in range(2):
        result = op(b)
        assert result.dtype == value_dtype(half)
        right(op.workload, [b], result)
    if by_columns:
        work = op._bound._parts[0].array("work")  # type: ignore[attr-defined]
        assert work.dtype == np.float32
        assert work.size == (min(3, available_threads()) if "private" in schedule else 1) * 60 * 21


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("kept", ["A", "B"])
def test_float32_and_halves_give_float32(half: str, kept: str, rng: np.random.Generator) -> None:
    kinds = {"A": half, "B": half} | {kept: "float32"}
    a = matrix(rng, "float64")
    b = rng.standard_normal((70, 16)).astype(value_dtype(kinds["B"]))
    op = tw.compile(SPMM, A=a, B=b.shape, dtype=kinds, schedule="tile(j,2x8)")
    assert op.tensors["A"].values.dtype == value_dtype(kinds["A"])
    assert op.dtype == np.float32
    assert repr(op).count(f"A {kinds['A']}, B {kinds['B']}") == 1
    right(op.workload, [b], op(b))
    assert op(b.astype(np.float64)).dtype == np.float64  # promoted, not narrowed


def test_two_kinds_of_halves_give_float32(rng: np.random.Generator) -> None:
    a, b = matrix(rng, "float16"), rng.standard_normal(70).astype(value_dtype("bfloat16"))
    op = tw.compile("y[i] += A[i,k] * x[k]", A=a, dtype={"x": "bfloat16"})
    assert op(b).dtype == op.dtype == np.float32
    right(op.workload, [b], op(b))


def test_float64_stays_among_itself(rng: np.random.Generator) -> None:
    with pytest.raises(InputError, match="A float64, B bfloat16: float64 goes with float64 only"):
        tw.compile(SPMM, A=matrix(rng, "float64"), B=(70, 4), dtype={"B": "bfloat16"})
    with pytest.raises(InputError, match="a dtype is given for 'X'"):
        tw.compile(SPMM, A=matrix(rng), B=(70, 4), dtype={"X": "float16"})
    with pytest.raises(InputError, match="a dtype is given for 'X'"):
        tw.tune(matrix(rng), "spmm", dtype={"X": "float16"}, trials=0, store=False)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("op", ["spmv", "sddmm", "mttkrp", "ttv"])
def test_every_operation(half: str, op: str, rng: np.random.Generator) -> None:
    if op in ("mttkrp", "ttv"):
        coordinates = [rng.integers(0, n, 200) for n in (11, 12, 13)]
        a = entries_from(((11, 12, 13), coordinates, rng.standard_normal(200)), half)
    else:
        a = matrix(rng, half)
    tuned = tw.tune(a, op, trials=3, store=False, threads=2)
    assert tuned.result is not None
    assert tuned.result.verified
    operands = tuned.workload.operands(rng)
    assert {operand.dtype for operand in operands} == {value_dtype(half)}
    out = np.empty(tuned.workload.output_shape, tuned.workload.output_dtype)
    assert tuned(*operands, out=out) is out
    right(tuned.workload, operands, out)
    if op == "sddmm":
        assert tuned(*operands).dtype == np.float32  # SciPy knows no halves
        np.testing.assert_array_equal(tuned(*operands).data, out.astype(np.float32))


@pytest.mark.parametrize("half", HALVES)
def test_overflow_nan_and_infinity_survive(half: str) -> None:
    dtype = value_dtype(half)
    big = limits(dtype).max
    values = np.array(
        [big, big, np.nan, np.inf, -np.inf, big, -big, limits(dtype).smallest_subnormal]
    ).astype(dtype)
    rows, columns = [0, 0, 1, 2, 3, 4, 4, 5], [0, 1, 0, 0, 0, 0, 1, 0]
    a = entries_from(((6, 2), (rows, columns), values))
    result = tw.compile("y[i] += A[i,k] * x[k]", A=a)(np.ones(2, dtype)).astype(np.float64)
    tiny = limits(dtype).smallest_subnormal
    np.testing.assert_array_equal(result, [np.inf, np.nan, np.inf, -np.inf, 0, tiny])


@pytest.mark.parametrize("half", HALVES)
def test_padding_is_masked_when_a_nan_appears(half: str, rng: np.random.Generator) -> None:
    a = matrix(rng, half)
    x = rng.standard_normal(70).astype(value_dtype(half))
    op = tw.compile("y[i] += A[i,k] * x[k]", A=a, format="(i,k) -> U(i1) C(k1) U(i0:4) U(k0:4)")
    x[3] = np.inf
    right(op.workload, [x], op(x))


@pytest.mark.parametrize("half", HALVES)
def test_the_shortest_call_gives_the_same(half: str, rng: np.random.Generator) -> None:
    op = tw.compile("y[i] += A[i,k] * x[k]", A=matrix(rng, half))
    assert op._fast is not None
    x = rng.standard_normal(70).astype(value_dtype(half))
    quick = op._fast(x)
    assert quick is not None
    np.testing.assert_array_equal(quick, op(x, out=np.empty(60, op.dtype)))
    x.setflags(write=False)
    np.testing.assert_array_equal(op(x), quick)
    assert op._fast(x.astype(np.float32)) is None


@pytest.mark.parametrize("half", HALVES)
def test_it_multiplies_like_a_matrix(half: str, rng: np.random.Generator) -> None:
    op = tw.compile("C[i] += A[i,k] * B[k]", A=matrix(rng, half))
    dense = op.workload.entries.to_scipy().toarray()
    X = rng.standard_normal((70, 5)).astype(value_dtype(half))
    wide, y = X.astype(np.float32), dense[:, 0]
    for given in (
        lambda x: x,
        lambda x: x.astype(value_dtype(half)),
    ):  # float32 is not narrowed, halves stay halves
        for got, expected in (
            (op @ given(wide), dense @ wide),
            (op @ given(wide[:, 0]), dense @ wide[:, 0]),
            (op.T @ given(y), dense.T @ y),
        ):
            assert got.dtype == given(y).dtype
            u = limits(got.dtype).eps
            np.testing.assert_allclose(got.astype(np.float64), expected, rtol=4 * u, atol=4 * u)


@pytest.mark.parametrize("half", HALVES)
def test_saving_keeps_every_dtype(half: str, tmp_path: Path, rng: np.random.Generator) -> None:
    b = rng.standard_normal((70, 8)).astype(value_dtype(half))
    for kinds in ({"A": half}, {"A": half, "B": "float32"}, {"A": "float32", "B": half}):
        op = tw.compile(SPMM, A=matrix(rng), B=b.shape, dtype=kinds, schedule="tile(j,1x8)")
        op.save(tmp_path / "op")
        loaded = tw.load(tmp_path / "op")
        assert loaded.workload.id == op.workload.id
        assert loaded.workload.entries.dtype == op.workload.entries.dtype
        given = b.astype(op.workload.dtype_of("B"))
        np.testing.assert_array_equal(loaded(given), op(given))


def test_ids_tell_dtypes_apart(rng: np.random.Generator) -> None:
    a = matrix(rng)
    made = [workload("spmm", a.astype(kind), n=4) for kind in ("float32", "float64", *HALVES)]
    made += [workload("spmm", a, n=4, dtypes={"B": value_dtype(half)}) for half in HALVES]
    made += [workload("spmm", a.astype(half), n=4, dtypes={"B": np.dtype(np.float32)}) for half in HALVES]
    assert len({work.id for work in made}) == len(made)
    assert [work.dtype_text for work in made][3:5] == ["bfloat16", "A float32, B float16"]
    assert content_id([np.ones(3, value_dtype("bfloat16"))]) != content_id([np.ones(3, np.float16)])


def test_half_the_bytes_are_moved(rng: np.random.Generator) -> None:
    a = matrix(rng, "float32")
    wide, narrow = (workload("spmm", a.astype(kind), n=4) for kind in ("float32", "bfloat16"))
    assert wide.compulsory_bytes - narrow.compulsory_bytes == 2 * (a.nnz + 70 * 4 + 60 * 4)
    op = tw.compile(SPMM, A=a, B=(70, 4), dtype="bfloat16")
    assert op.tensors["A"].values.nbytes == 2 * a.nnz


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("op", ["spmm", "sddmm"])
def test_libraries_compute_in_float32(half: str, op: str, rng: np.random.Generator) -> None:
    work = workload(op, matrix(rng, half), n=9)
    operands = work.operands(rng)
    kernels = available(work)
    assert "scipy" in [kernel.name for kernel in kernels]
    for kernel in kernels:
        out = np.empty(work.output_shape, work.output_dtype)
        kernel.bind(work, 2).run(operands, out)
        right(work, operands, out)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("limit", [{}, {"full_terms": 0}])
def test_verification_allows_one_rounding_and_no_more(
    half: str, limit: dict[str, int], rng: np.random.Generator
) -> None:
    work = workload("spmm", matrix(rng, half, rows=300), n=24)
    operands = work.operands(rng)
    checker = Checker(work, operands, rng, **limit)
    assert checker.mode == ("sampled" if limit else "full")
    exact = work.reference(operands).value
    out = exact.astype(work.output_dtype)
    assert checker.check(out) is None
    largest = np.unravel_index(np.argmax(np.abs(exact[0])), exact[0].shape)
    for wrong in (0.0, float(exact[0][largest]) * (1 + 40 * limits(out.dtype).eps), np.nan):
        spoilt = out.copy()
        spoilt[(0, *largest)] = wrong
        assert checker.check(spoilt) is not None
    poison(spoilt)
    assert checker.check(spoilt) is not None


@pytest.mark.parametrize("half", HALVES)
def test_tuning_measures_and_remembers(half: str, tmp_path: Path, rng: np.random.Generator) -> None:
    store = Store(tmp_path / "store")
    op: Operator = tw.tune(matrix(rng), "spmm", n=16, dtype=half, trials=4, threads=2, store=store)
    result: Any = op.result
    assert result.verified
    assert result.to_json()["dtype"] == half
    assert "scipy" in result.baselines
    assert any("they compute in float32" in note for note in result.notes)
    assert {record.workload["dtype"] for record in store.query()} == {half}
    assert half in op.report()
    mixed = tw.tune(matrix(rng), "spmm", n=16, dtype={"B": half}, trials=2, store=False)
    assert mixed.workload.dtype_of("B") == value_dtype(half)
    assert mixed.dtype == np.float32


@pytest.mark.parametrize("kind", [".mtx", ".tns", ".npz"])
@pytest.mark.parametrize("half", HALVES)
def test_files_hold_halves_as_float32(half: str, kind: str, tmp_path: Path, rng: np.random.Generator) -> None:
    a = matrix(rng, half)
    write(tmp_path / f"a{kind}", a)
    wide, narrow = read(tmp_path / f"a{kind}", np.float32), entries_from(tmp_path / f"a{kind}", half)
    np.testing.assert_array_equal(wide.values, a.values.astype(np.float32))
    np.testing.assert_array_equal(narrow.values, a.values)
    assert narrow.dtype == value_dtype(half)
