"""The Python door: compile by hand, tune with a report."""

import inspect
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
from tensorwise.errors import FormatError, InputError, ScheduleError
from tensorwise.front.api import Cascade
from tensorwise.front.benching import bench
from tensorwise.front.gnn import Graph
from tensorwise.front.reporting import report_data, report_of
from tensorwise.tensor.elements import value_dtype
from tensorwise.toolchain.threads import most_threads
from tests.unit.front.test_report import check

RNG = np.random.default_rng(0)
A = sp.random_array((40, 30), density=0.15, format="csr", dtype=np.float32, rng=RNG)
B = RNG.random((30, 8), dtype=np.float32)
SPMM = "C[i,j] += A[i,k] * B[k,j]"


def test_schedule_and_format_by_hand() -> None:
    op = tw.compile(
        SPMM, A=A, format="(i,k) -> U(i) C(k)", schedule="parallel(i,dynamic,16) tile(j,1x8)", sizes={"j": 8}
    )
    np.testing.assert_allclose(op(B), A @ B, rtol=1e-5)
    assert op.schedule == "parallel(i,dynamic,16) tile(j,1x8)"
    assert "TW_SYMBOL" in op.source()
    assert "parallel[dynamic] for i" in str(op.program)
    assert op.workload.op == "spmm"  # the named operation is recognised, so it stands in for the matrix
    np.testing.assert_allclose(op @ B, A @ B, rtol=1e-5)


@pytest.mark.parametrize("given", [B, (30, 8)])
def test_sizes_from_dense_operands(given: object) -> None:
    np.testing.assert_allclose(tw.compile(SPMM, A=A, B=given)(B), A @ B, rtol=1e-5)


@pytest.mark.parametrize("stored", [A, A.tocsc(), A.tocoo(), tw.entries_from(A)])
def test_kinds_of_sparse_operands(stored: object) -> None:
    np.testing.assert_allclose(tw.compile(SPMM, A=stored, B=B)(B), A @ B, rtol=1e-5)


def test_an_array_with_a_format_is_stored() -> None:
    for chosen in ({"format": "(i,k) -> C(i) C(k)"}, {"formats": {"A": "(i,k) -> C(i) C(k)"}}):
        op = tw.compile(SPMM, A=A.toarray(), B=B, **chosen)
        assert op.workload.entries.nnz == A.nnz
        np.testing.assert_allclose(op(B), A @ B, rtol=1e-5)


def test_a_path_and_another_dtype(tmp_path: Path) -> None:
    tw.write(tmp_path / "a.mtx", tw.entries_from(A))
    op = tw.compile("y[i] += A[i,k] * x[k]", A=tmp_path / "a.mtx", dtype="float32")
    np.testing.assert_allclose(op(B[:, 0].copy()), A @ B[:, 0], rtol=1e-5)


def test_other_reductions_and_formats_of_another_order() -> None:
    op = tw.compile("y[i] max= A[i,k] * x[k]", A=A, format="(i,k) -> U(k) C(i)", schedule="reorder(k,i)")
    x = B[:, 0].copy()
    expected = np.where(A.toarray() != 0, A.toarray() * x, -np.inf).max(axis=1)
    np.testing.assert_allclose(op(x), np.where(np.isinf(expected), 0, expected), rtol=1e-5)


def test_tensor_of_order_3() -> None:
    dense = RNG.random((5, 6, 7)) * (RNG.random((5, 6, 7)) < 0.3)
    X, Y = RNG.random((6, 4)), RNG.random((7, 4))
    op = tw.compile("C[i,r] += A[i,k,l] * B[k,r] * D[l,r]", A=tw.entries_from(dense), sizes={"r": 4})
    np.testing.assert_allclose(op(X, Y), np.einsum("ikl,kr,lr->ir", dense, X, Y), rtol=1e-12)
    assert op.workload.op == "mttkrp"


def test_cascade() -> None:
    S = (A.T @ A).tocsr()
    op = tw.compile("T[i,j] += A[i,k] * B[k,j]; C[i,j] += A[i,k] * T[k,j]", A=S, B=B)
    assert isinstance(op, Cascade)
    np.testing.assert_allclose(op(B), S @ (S @ B), rtol=1e-4)
    assert op.dense == ("B",)
    assert op.source().count("int TW_SYMBOL(") == 2
    with pytest.raises(InputError, match="takes 1 operands"):
        op(B, B)


@pytest.mark.parametrize(
    ("error", "match", "arguments"),
    [
        (InputError, "no sparse operand", {"A": A.toarray(), "B": B}),
        (InputError, "no sparse operand", {}),
        (InputError, "no operand 'Z'", {"A": A, "Z": B}),
        (InputError, "size of index 'j'", {"A": A}),
        (InputError, "extent 31", {"A": A, "B": (31, 8)}),
        (InputError, "2 indices", {"A": A, "B": (30,)}),
        (InputError, "no index 'q'", {"A": A, "B": B, "sizes": {"q": 3}}),
        (InputError, "positive integer", {"A": A, "sizes": {"j": 0}}),
        (InputError, "but 9 elsewhere", {"A": A, "B": B, "sizes": {"j": 9}}),
        (InputError, "threads", {"A": A, "B": B, "threads": 0}),
        (InputError, "given twice", {"A": A, "B": B, "format": "U(i) C(k)", "formats": {"A": "U(i) C(k)"}}),
        (InputError, "format is given for 'B'", {"A": A, "B": (30, 8), "formats": {"B": "U(k) U(j)"}}),
        (ScheduleError, "no loop 'z'", {"A": A, "B": B, "schedule": "parallel(z)"}),
        (FormatError, "Q", {"A": A, "B": B, "format": "(i,k) -> U(i) Q(k)"}),
    ],
)
def test_what_does_not_fit_is_refused(
    error: type[Exception], match: str, arguments: dict[str, object]
) -> None:
    with pytest.raises(error, match=match):
        tw.compile(SPMM, **arguments)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("format", [None, "(i,k) -> U(k) C(i)"])
def test_a_cascade_keeps_its_totals_in_float32(dtype: str, format: str | None, tmp_path: Path) -> None:
    """70,000 terms are more than float16 holds, and than bfloat16 counts; what comes out is a half all the same."""
    half = value_dtype(dtype)
    ones = sp.csr_array(np.ones((2, 70_000), np.float32))
    text = "T[i] += A[i,k]; M[i] max= A[i,k] * x[k]; C[i] += A[i,k] * x[k] / T[i] * exp(M[i] - 1)"
    op = tw.compile(text, A=ones, dtype=dtype, format=format)
    assert isinstance(op, Cascade)
    assert [step.workload.output_dtype for step in op.steps] == [np.float32, np.float32, half]
    x = np.ones(70_000, half)
    out = op(x)
    assert out.dtype == half
    assert np.all(abs(out.astype(float) - 1) < 0.01)
    op.steps[0].save(tmp_path / "total.tw")
    assert tw.load(tmp_path / "total.tw")().tolist() == [70_000.0, 70_000.0]
    ids = {step.workload.id for step in op.steps}
    assert tw.compile("T[i] += A[i,k]", A=ones, dtype=dtype, format=format).workload.id not in ids


def test_cascade_whose_step_has_a_value_for_each_entry() -> None:
    with pytest.raises(
        InputError, match=r"later steps of a cascade read T as a dense array; write its expression"
    ):
        tw.compile("T[i,k] = A[i,k] * 2; C[i] += T[i,k] * P[i,k] * x[k]", A=A, P=A)


def test_cascade_with_a_step_without_sparse_operand() -> None:
    with pytest.raises(InputError, match="NumPy"):
        tw.compile("T[i] += A[i,k] * B[k]; C[i] = T[i] / 2", A=A)


def test_tune_writes_a_report(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    op = tw.tune(A, "spmm", n=8, trials=4, budget_s=60, threads=1, store=False, report=path)
    np.testing.assert_allclose(op(B), A @ B, rtol=1e-4)
    checked = check(path.read_text())
    for words in ("spmm", "scipy", "How it is stored", "How it runs", "Calls to break even"):
        assert words in checked.text
    assert op.result is not None
    ends = [trial.at_s for trial in op.result.trials]
    assert ends == sorted(ends)
    assert 0 < ends[0] <= ends[-1] < op.result.tuning_s
    data = report_data(op, "A")
    assert sorted(c.attempt.at_s for c in data.candidates if c.attempt) == ends
    assert data.best in [c.name for c in data.candidates]
    assert data.spy.counts.sum() == A.nnz
    assert data.row_lengths.sum() == A.nnz


@pytest.mark.parametrize(("op", "shape"), [("spmv", (40, 30)), ("sddmm", (40, 30)), ("mttkrp", (6, 7, 8))])
@pytest.mark.parametrize("trials", [0, 2])
def test_report_of_every_kind_of_answer(op: str, shape: tuple[int, ...], trials: int, tmp_path: Path) -> None:
    dense = RNG.random(shape) * (RNG.random(shape) < 0.2)
    made = tw.tune(dense, op, trials=trials, budget_s=60, threads=1, store=False)
    report_of(made, "<b>a & b</b>").save(tmp_path / "r.html")
    check((tmp_path / "r.html").read_text())


def test_report_of_an_operator_made_by_hand(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not tuned"):
        report_of(tw.compile(SPMM, A=A, B=B)).save(tmp_path / "r.html")


def test_a_report_that_cannot_be_written_is_known_before_the_search(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        tw.tune(A, "spmv", budget_s=1000, report=tmp_path / "no" / "r.html")
    with pytest.raises(InputError, match="folder"):
        tw.tune(A, "spmv", budget_s=1000, report=tmp_path)


def test_tune_calls_back() -> None:
    said, tried = [], []
    tw.tune(
        A, "spmv", trials=3, budget_s=120, threads=1, store=False,
        progress=lambda what, share: said.append((what, share)), observe=tried.append,
    )  # fmt: skip
    assert said
    assert all(0 <= share <= 1 for _, share in said)
    assert len(tried) == 3


def test_public_names_are_no_modules() -> None:
    """A submodule of the same name would take the place of a function, once it is imported."""
    import pkgutil

    for name in tw.__all__:
        assert not inspect.ismodule(getattr(tw, name))
    assert not {module.name for module in pkgutil.iter_modules(tw.__path__)} & set(tw.__all__)


def test_dense_arrays_that_do_not_fit_are_refused_at_every_door() -> None:
    huge = tw.entries_from(((2**20, 2**21, 9), ([5], [7], [1]), [1.0]))
    for use in (
        lambda: tw.tune(huge, "ttv", budget_s=1.0),
        lambda: bench(huge, "ttv"),
        lambda: tw.compile("C[i,k] += A[i,k,l] * B[l]", A=huge),
    ):
        with pytest.raises(InputError, match="GiB of memory are free"):
            use()


def test_a_large_dense_result_of_small_operands_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it takes is told before anything is allocated, at every door; results in proportion are not asked for."""
    monkeypatch.setattr("tensorwise.program.workload.available_bytes", lambda: 2**40)
    nodes = 16390
    a = sp.csr_array((np.ones(3, np.float32), ([0, 1, nodes - 1], [3, 4, 5])), shape=(nodes, nodes))
    with pytest.raises(
        InputError, match="multiply the matrices with SciPy; if the dense one is meant"
    ) as error:
        tw.compile("C[i,k] += A[i,j] * B[j,k]", A=a, B=a)
    assert "of shape (16390, 16390), 1.0 GiB, from operands of 0.0 MiB" in str(error.value)
    with pytest.raises(
        InputError, match="set the environment variable TENSORWISE_RESULT_BYTES to 1074528400"
    ):
        tw.compile("C[k,i] += A[i,k] * B[i]", A=a, formats={"A": "(i,k) -> C(i) C(k)"})
    graph = Graph([0, 1], [1, 2], (nodes, nodes))
    with pytest.raises(InputError, match="gives a dense array C of shape"):
        graph.einsum("C[k,i] = B[k] for A[i,k]", B=np.ones(nodes, np.float32))
    small = sp.csr_array((np.ones(3, np.float32), ([0, 1, 2], [0, 1, 2])), shape=(40, 40))
    monkeypatch.setenv("TENSORWISE_RESULT_BYTES", "1000")
    with pytest.raises(InputError, match="gives a dense array"):
        tw.compile("C[i,k] += A[i,j] * B[j,k]", A=small, B=small)
    tw.compile("C[i,k] += A[i,j] * B[j,k]", A=small, B=(40, 5))  # as large as an operand
    monkeypatch.setenv("TENSORWISE_RESULT_BYTES", "6400")
    result = tw.compile("C[i,k] += A[i,j] * B[j,k]", A=small, B=small)()
    np.testing.assert_array_equal(result, (small @ small).toarray())
    monkeypatch.setenv("TENSORWISE_RESULT_BYTES", "much")
    with pytest.raises(InputError, match="TENSORWISE_RESULT_BYTES is 'much'; expected a number of bytes"):
        tw.compile("C[i,k] += A[i,j] * B[j,k]", A=small, B=small)


def test_partial_results_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    a = sp.csr_array(np.eye(40, dtype=np.float32))
    monkeypatch.setattr("tensorwise.runtime.packed.available_bytes", lambda: 1000)
    monkeypatch.setattr("tensorwise.front.api.granted_threads", lambda asked: asked)
    with pytest.raises(InputError, match="partial results of 8 threads take"):
        tw.compile(
            "C[k] += A[i,k] * B[i]", A=a, schedule="parallel(i,dynamic,4,private)", threads=8,
            format="(i,k) -> U(i) C(k)",
        )  # fmt: skip


@pytest.mark.parametrize(
    "name", ["sizes", "threads", "format", "formats", "schedule", "dtype", "operands", "einsum"]
)
def test_operands_called_like_arguments(name: str) -> None:
    a, x = sp.csr_array(np.arange(12, dtype=np.float32).reshape(3, 4)), np.ones(4, np.float32)
    text = f"C[i] += {name}[i,k] * x[k]"
    np.testing.assert_array_equal(tw.compile(text, operands={name: a}, x=x)(x), a @ x)
    np.testing.assert_array_equal(tw.compile(f"C[i] += A[i,k] * {name}[k]", A=a)(x), a @ x)
    if name == "einsum":
        np.testing.assert_array_equal(tw.compile(text, einsum=a)(x), a @ x)
        np.testing.assert_array_equal(tw.compile(einsum="C[i] += A[i,k] * x[k]", A=a)(x), a @ x)  # type: ignore[call-overload, unused-ignore]
        return
    told = f"the argument {name} of compile is .*; the operand {name} of .* is given in operands={{'{name}': ...}}"
    with pytest.raises(InputError, match=told):
        tw.compile(text, **{name: a})  # type: ignore[arg-type, unused-ignore]
    with pytest.raises(InputError, match=f"the argument {name} of compile is [a-z ,]*, got csr_array$"):
        tw.compile("C[i] += A[i,k] * x[k]", A=a, **{name: a})  # type: ignore[arg-type, unused-ignore]


def test_operands_given_twice_or_without_an_einsum() -> None:
    a = sp.csr_array(np.eye(3, dtype=np.float32))
    with pytest.raises(InputError, match="operand A is given twice, by name and in operands"):
        tw.compile("C[i] += A[i,k] * x[k]", A=a, operands={"A": a})
    with pytest.raises(InputError, match=r"compile takes an einsum first, .*, got NoneType"):
        tw.compile(A=a)
    with pytest.raises(InputError, match=r"compile takes an einsum first, .*, got csr_array"):
        tw.compile(a)  # type: ignore[arg-type, unused-ignore]


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("C[i,k] += A[i,j] * B[j,k]", "i,j,k"),
        ("C[i,j] += A[i,k] * B[j,k]", "i,j,k"),
        ("C[i] += A[i,k] * B[k,i]", "i,k"),
        ("C[i,j] += A[i,j] * B[j,k] * D[k,i]", "i,j,k"),
    ],
)
def test_loops_over_several_sparse_operands_follow_what_is_stored(text: str, loops: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (sp.random_array((9, 9), density=0.3, rng=rng, format="csr") for _ in range(2))
    d = rng.random((9, 9))
    operator = tw.compile(text, A=a, B=b, operands={"D": d} if "D[" in text else {})
    assert operator.schedule == f"reorder({loops})"
    given = {"A": a.toarray(), "B": b.toarray(), "D": d}
    output, _, expression = text.replace("[", " ").replace("]", " ").partition("+=")
    names, indices = expression.split()[::3], expression.split()[1::3]
    wanted = np.einsum(
        ",".join(i.replace(",", "") for i in indices) + "->" + output.split()[1].replace(",", ""),
        *(given[n] for n in names),
    )
    got = operator(*([d] if "D[" in text else []))
    np.testing.assert_allclose(got.toarray() if sp.issparse(got) else got, wanted, atol=1e-12)


def test_more_threads_than_processors_are_not_used() -> None:
    """Threads that wait for a processor hold up all others: calls took a hundred times as long."""
    a = sp.csr_array(np.eye(40, dtype=np.float32))
    most = most_threads()
    assert tw.compile("C[i] += A[i,k] * B[k]", A=a, threads=64 * most).threads == most
    operator = tw.tune(a, "spmv", threads=64 * most, trials=1, store=False)
    assert operator.threads == operator.result.threads == most  # type: ignore[union-attr]
    assert f"{64 * most} threads were asked for; {most} are used" in operator.report()


def test_operands_called_like_levels() -> None:
    """The arrays of A's levels are called A0_pos, A1_pos, ...; operands A0 and A1 have names of their own."""
    x = RNG.random(A.shape[1])
    for text in ("y[i] += A[i,k] * A1[k]", "y[i] += A[i,k] * A0[k]", "y[i] += M[i,k] * M1[k]"):
        op = tw.compile(text, operands={text[8]: A.astype(np.float64)})
        np.testing.assert_allclose(op(x), A.astype(np.float64) @ x)
    long = tw.entries_from(((2,) * 11, list(RNG.integers(0, 2, (11, 20))), RNG.random(20)))
    with pytest.raises(ScheduleError, match="call one of them differently"):
        tw.compile(
            "y[a] += A[a,b,c,d,e,f,g,h,i,j,l] * A1[l,m] * z[m]",
            operands={"A": long, "A1": A[:2, :3].astype(np.float64)}, sizes={"m": 3},
        )  # fmt: skip


def test_long_sums_are_taken_or_refused() -> None:
    few, many = "+".join(["A[i,k]"] * 150), "+".join(["A[i,k]"] * 700)
    np.testing.assert_allclose(tw.compile(f"y[i] += {few}", A=A)(), 150 * A.sum(axis=1), rtol=1e-5)
    with pytest.raises(InputError, match="nested too deeply to be read: more than 200"):
        tw.compile(f"y[i] += {many}", A=A)


def test_arguments_of_the_wrong_kind_are_not_taken_for_others() -> None:
    with pytest.raises(InputError, match="the format of A is a Format or its text"):
        tw.compile(SPMM, A=A, B=B, formats={"A": 3})  # type: ignore[dict-item]
    for store in ("my.sqlite", 3):
        with pytest.raises(InputError, match="store is a Store"):
            tw.tune(A, "spmv", trials=0, store=store)  # type: ignore[arg-type]
    for op, mode in (("spmm", 5), ("spmm", "a"), ("spmv", 1)):
        with pytest.raises(InputError, match="mode is the output mode of mttkrp"):
            tw.tune(A, op, trials=0, store=False, mode=mode)  # type: ignore[arg-type]
    for threads in (True, 1.0, "1", 0, np.int64(0)):
        with pytest.raises(InputError, match="threads"):
            tw.tune(A, "spmv", trials=0, store=False, threads=threads)  # type: ignore[arg-type]
    made = tw.tune(A, "spmm", n=np.int64(3), trials=0, store=False, threads=np.int64(1))  # type: ignore[arg-type]
    assert made.threads == 1
    assert made.workload.sizes["j"] == 3
