"""The dense reference by hand: what an einsum means, and how far a result may be off."""

import math

import numpy as np
import pytest

from tensorwise.program.reference import Reference
from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries

INF, NAN = math.inf, math.nan
# row 0: 2 at column 0, 3 at column 2; row 1: nothing; row 2: an explicit zero at column 1
MATRIX = entries_from(((3, 3), ([0, 0, 2], [0, 2, 1]), [2.0, 3.0, 0.0]))


def value(text: str, *operands: list[float] | list[list[float]], j: int = 2, **sparse: Entries) -> np.ndarray:
    """The value of an einsum on MATRIX (and other sparse operands)."""
    given = {"A": MATRIX, **sparse}
    sizes = {"j": j} if "j]" in text and not sparse else {}
    work = einsum_workload(text, given, sizes)
    return work.reference([np.array(operand, float) for operand in operands]).value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("C[i] += A[i,k] * B[k]", [2 * 5 + 3 * -1, 0, 0]),
        ("C[i] prod= A[i,k] * B[k]", [10 * -3, 0, 0]),
        ("C[i] max= A[i,k] * B[k]", [10, 0, 0]),
        ("C[i] min= A[i,k] + B[k]", [2, 0, 7]),
        ("C[i] mean= A[i,k] * B[k]", [3.5, 0, 0]),
        ("C[i] argmax= A[i,k] * B[k]", [0, -1, 1]),
        ("C[i] argmin= A[i,k] * B[k]", [2, -1, 1]),
        ("C[i] += max(A[i,k], B[k]) - 1", [4 + 2, 0, 6]),
        ("C[i] += -abs(B[k]) / A[i,k]", [-5 / 2 - 1 / 3, 0, -INF]),
        ("C[k] += A[i,k] * B[k]", [10, 0, -3]),
        ("C[k,i] = A[i,k] * B[k]", [[10, 0, 0], [0, 0, 0], [-3, 0, 0]]),
        ("C[i,k] = A[i,k] * B[k]", [10, -3, 0]),  # the pattern is kept: a value an entry
    ],
)
def test_only_stored_entries_contribute(text: str, expected: list[float]) -> None:
    np.testing.assert_array_equal(value(text, [5, 7, -1]), expected)


def test_non_numbers_reach_only_the_rows_that_store_them() -> None:
    np.testing.assert_array_equal(value("C[i] += A[i,k] * B[k]", [5, INF, 1]), [13, 0, NAN])  # 0 * inf
    np.testing.assert_array_equal(value("C[i] += A[i,k] * B[k]", [INF, 7, -INF]), [NAN, 0, 0])
    np.testing.assert_array_equal(value("C[i] max= A[i,k] * B[k]", [NAN, 7, 9]), [NAN, 0, 0])
    np.testing.assert_array_equal(value("C[i] argmax= A[i,k] * B[k]", [5, 7, NAN]), [2, -1, 1])
    np.testing.assert_array_equal(value("C[i] argmax= A[i,k] * B[k]", [NAN, 7, NAN]), [0, -1, 1])


def test_outputs_numbered_by_entries_have_coordinates_of_sparse_operands_beside() -> None:
    other = entries_from(((3, 2), ([0, 2, 2], [1, 0, 1]), [5.0, 7.0, 11.0]))
    np.testing.assert_array_equal(
        value("C[A,g] += A[i,k] * S[k,g]", S=other), [[0, 10], [21, 33], [0, 0]]
    )  # S has its g
    np.testing.assert_array_equal(
        value("C[A,i] += A[i,k] * B[k]", [5, 7, -1]), [[10, 0, 0], [-3, 0, 0], [0, 0, 0]]
    )  # and A its i
    np.testing.assert_array_equal(value("C[A] += A[i,k] * B[k]", [5, 7, -1]), [10, -3, 0])


def test_dense_indices() -> None:
    b = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    np.testing.assert_array_equal(value("C[i,j] += A[i,k] * B[k,j]", b), [[17, 22], [0, 0], [0, 0]])
    np.testing.assert_array_equal(value("C[j] += A[i,k] * B[k,j]", b), [17, 22])
    np.testing.assert_array_equal(value("C[i] max= A[i,k] * B[k,j]", b), [18, 0, 0])
    np.testing.assert_array_equal(value("C[i,k] argmax= A[i,k] * B[j]", [1.0, 2.0]), [1, 1, 0])


def test_two_sparse_operands_meet_where_both_store() -> None:
    other = entries_from(((3, 3), ([0, 1, 2], [2, 1, 1]), [10.0, 20.0, 30.0]))
    np.testing.assert_array_equal(value("C[i] += A[i,k] * S[i,k]", S=other), [30, 0, 0])
    np.testing.assert_array_equal(value("C[i,k] = A[i,k] * S[i,k] / 2", S=other), [0, 15, 0])
    np.testing.assert_array_equal(
        value("C[i,j] += A[i,k] * S[k,j]", S=other), [[0, 90, 20], [0, 0, 0], [0, 0, 0]]
    )


def test_no_terms_give_zero() -> None:
    empty = entries_from(((0, 3), ([], []), np.zeros(0)))
    assert workload("spmv", empty).reference([np.ones(3)]).value.shape == (0,)
    sddmm = workload("sddmm", MATRIX, n=1)
    nothing = Workload("sddmm", sddmm.einsum, {"A": MATRIX}, {**sddmm.sizes, "k": 0})
    reference = nothing.reference([np.zeros((3, 0)), np.zeros((0, 3))])
    np.testing.assert_array_equal(reference.value, [0, 0, 0])
    np.testing.assert_array_equal(reference.terms, [0, 0, 0])


def test_large_work_is_done_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorwise.program import reference as module

    rng = np.random.default_rng(3)
    a = entries_from((rng.random((20, 15)) < 0.4) * rng.standard_normal((20, 15)))
    for text in (
        "C[i,j] += A[i,k] * B[k,j]",
        "C[i,j] argmin= A[i,k] * B[k,j]",
        "C[i,j] mean= A[i,k] * B[k,j]",
    ):
        work = einsum_workload(text, {"A": a}, {"j": 7})
        operands = work.operands(rng)
        dense = dict(zip(work.dense, operands, strict=True))
        whole = work.reference(operands)
        pieces = module.reference(work.assignment, work.sparse, dense, work.sizes, chunk_terms=20)
        np.testing.assert_allclose(pieces.value, whole.value)
        np.testing.assert_array_equal(pieces.terms, whole.terms)


# -- mismatch --------------------------------------------------------------------------------------------


def reference(value: list[float], magnitude: list[float], finite: bool = True) -> Reference:
    return Reference(np.array(value), np.array(magnitude), np.ones(len(value)), 2, finite)


def test_the_bound_is_componentwise() -> None:
    expected = reference([1.0, 1000.0], [1.0, 1000.0])
    u = 2.0**-24
    assert expected.mismatch(np.array([1 + 9 * u, 1000], np.float32)) is None
    message = expected.mismatch(np.array([1 + 60 * u, 1000], np.float32))
    assert message is not None
    assert "element (0,) is 1.00000358, expected 1 within" in message
    assert "(1 of 2 elements differ)" in message
    assert reference([0.0], [1e6]).mismatch(np.array([1.0], np.float32)) is None  # cancellation
    assert reference([0.0], [0.0]).mismatch(np.array([1e-30], np.float32)) is not None


def test_what_nobody_wrote_is_found() -> None:
    assert reference([1.0], [1.0]).mismatch(np.array([NAN])) is not None
    assert reference([0.0], [0.0]).mismatch(np.array([np.iinfo(np.int64).min])) is not None
    assert "shape (2,) instead of (1,)" in str(reference([1.0], [1.0]).mismatch(np.zeros(2)))
    assert reference([], []).mismatch(np.zeros(0)) is None


def test_non_numbers_must_agree() -> None:
    """Fill-in turns an infinity into NaN: the difference matters."""
    expected = reference([INF, -INF, NAN, 1.0], [INF, INF, INF, 1.0], finite=False)
    assert expected.mismatch(np.array([INF, -INF, NAN, 1.0])) is None
    for place, wrong in ((0, NAN), (0, -INF), (0, 1e300), (2, INF), (2, 0.0), (3, NAN), (3, INF)):
        actual = np.array([INF, -INF, NAN, 1.0])
        actual[place] = wrong
        assert expected.mismatch(actual) is not None


def test_overflow_is_nobodys_fault() -> None:
    expected = reference([3.5e38], [3.5e38])
    assert expected.mismatch(np.array([INF], np.float32)) is None
    assert expected.mismatch(np.array([1.0], np.float32)) is not None
    assert reference([INF], [INF]).mismatch(np.array([NAN])) is None  # inf - inf on the way, in any order
    assert reference([3.5e38], [3.5e38]).mismatch(np.array([INF])) is not None  # float64 has room


def test_a_close_runner_up_may_win() -> None:
    """Two products that float32 cannot tell apart; and two that it can."""
    a = entries_from(((1, 3), ([0, 0, 0], [0, 1, 2]), np.array([1, 1, 1], np.float32)))
    work = einsum_workload("C[i] argmax= A[i,k] * B[k] * D[k]", {"A": a}, {})
    b = np.array([1 + 2.0**-23, 1 + 2.0**-22, 0.5], np.float32)
    d = np.array([1 - 2.0**-23, 1 - 2.0**-22, 0.5], np.float32)
    close = work.reference([b, d])
    assert close.value.tolist() == [0]
    assert close.mismatch(np.array([0])) is None
    assert close.mismatch(np.array([1])) is None
    clear = work.reference([np.array([1, 1.001, 1.001], np.float32), np.ones(3, np.float32)])
    assert clear.value.tolist() == [1]  # the lowest coordinate of a tie
    assert clear.mismatch(np.array([2])) is not None
    assert clear.mismatch(np.array([0])) is not None


def test_errors_of_a_divisor_count() -> None:
    a = entries_from(((1, 1), ([0], [0]), np.array([1.0], np.float32)))
    work = einsum_workload("C[i] += A[i,k] / (B[k] - D[k])", {"A": a}, {})
    b, d = np.array([1 + 2.0**-10], np.float32), np.array([1.0], np.float32)
    reference = work.reference([b, d])
    assert reference.value.tolist() == [1024.0]
    assert 2e6 < reference.magnitude[0] < 6e9  # the difference is a thousandth of its terms


@pytest.mark.parametrize(
    "text",
    [
        "C[k] += A[i,k] * max(B[k], D[k])",
        "C[k] += A[i,k] / max(B[k], D[k])",
        "C[k] += max(B[k], abs(D[k])) / E[k] * A[i,k]",
        "C[k] += A[i,k] * min(B[k], E[k]) - exp(D[k])",
        "C[k] += A[i,k] * (min(B[k], D[k]) / E[k] if B[k] < E[k] else D[k] / E[k])",
        "C[k] max= A[i,k] * max(min(B[k], D[k]), E[k])",
    ],
)
def test_the_bound_of_a_finite_value_is_finite(text: str) -> None:
    """Infinite operands are exact: where they cancel, what is left has an error of its own only."""
    some = np.array([2.0, -3.0, 0.5, INF, -INF])
    b, d, e = (grid.ravel() for grid in np.meshgrid(some, some, some))
    ones = entries_from(np.ones((1, b.size)))
    work = einsum_workload(text, {"A": ones}, {})
    operands = {"B": b, "D": d, "E": e}
    reference = work.reference([operands[name] for name in work.dense])
    finite = np.isfinite(reference.value)
    assert finite.any()
    assert np.isfinite(reference.bound(np.dtype(np.float64))[finite]).all()


def test_nothing_is_known_of_what_overflows_on_the_way() -> None:
    """In float32 these are NaN, infinite, or what they are in float64."""
    a = entries_from(((1, 2), ([0, 0], [0, 1]), np.array([0.0, 1.0], np.float32)))
    big, one = np.array([200.0, 1.0], np.float32), np.ones(2, np.float32)
    for text in (
        "C[i] += A[i,k] * exp(B[k])",
        "C[i] += exp(B[k]) / exp(B[k]) + A[i,k]",
        "C[i] += A[i,k] + (exp(B[k]) - exp(B[k]))",
        "C[i] += A[i,k] * (1 if exp(B[k]) < 2 * exp(B[k]) else 2)",
    ):
        work = einsum_workload(text, {"A": a}, {})
        found = work.reference([big])
        assert np.isfinite(found.value).all()
        assert np.isnan(found.magnitude).all()
        for got in (np.nan, np.inf, 7.0):
            assert found.mismatch(np.array([got], np.float32)) is None
        sure = work.reference([one])
        assert np.isfinite(sure.magnitude).all()
        assert sure.mismatch(np.array([np.nan], np.float32)) is not None
    exact = einsum_workload("C[i] += max(A[i,k], exp(-B[k])) + exp(-exp(B[k]))", {"A": a}, {}).reference(
        [big]
    )
    assert np.isfinite(exact.magnitude).all()
    assert exact.mismatch(np.array([np.inf], np.float32)) is not None


def test_products_may_overflow_in_another_order() -> None:
    values = np.array([1e30, 1e30, 1e-30, 1e-30, 1e-10], np.float32)
    for count, known in ((5, False), (3, False), (1, True)):
        some = values[:count] if count > 1 else np.array([2.0], np.float32)
        a = entries_from(((1, len(some)), ([0] * len(some), list(range(len(some)))), some))
        found = einsum_workload("C[i] prod= A[i,k]", {"A": a}, {}).reference([])
        assert np.isfinite(found.value).all()
        assert (found.mismatch(np.array([np.nan], np.float32)) is not None) == known
        assert found.mismatch(found.value.astype(np.float32)) is None


def test_a_term_that_overflows_meets_an_infinity() -> None:
    """In float64 the sum is infinite; in float32 it may be inf - inf. What is infinite by itself stays so."""
    a = entries_from(((2, 2), ([0, 0, 1, 1], [0, 1, 0, 1]), np.array([-1.0, np.inf, -1.0, 1.0], np.float32)))
    work = einsum_workload("C[i] += A[i,k] * exp(B[k])", {"A": a}, {})
    found = work.reference([np.array([200.0, 1.0], np.float32)])
    assert found.value[0] == np.inf
    assert found.mismatch(np.array([np.nan, -np.inf], np.float32)) is None
    sure = work.reference([np.array([2.0, 1.0], np.float32)])
    assert sure.mismatch(np.array([np.nan, sure.value[1]], np.float32)) is not None


def test_nothing_is_known_of_what_is_lost_on_the_way() -> None:
    """exp(-200) is 0 in float32: 0 times infinity is NaN, and 0 times a large number 0."""
    a = entries_from(((1, 2), ([0, 0], [0, 1]), np.array([np.inf, 1.0], np.float32)))
    for text in ("C[i] += A[i,k] * exp(-B[k])", "C[i] += A[i,k] + (A[i,k] - A[i,k]) / exp(-B[k])"):
        found = einsum_workload(text, {"A": a}, {}).reference([np.array([200.0, 1.0], np.float32)])
        assert found.mismatch(np.array([np.nan], np.float32)) is None
    work = einsum_workload("C[i] += A[i,k] * exp(-B[k])", {"A": a}, {})
    assert work.reference([np.ones(2, np.float32)]).mismatch(np.array([np.nan], np.float32)) is not None
