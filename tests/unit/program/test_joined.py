"""Several sparse operands: what is computed where not all have an entry is either nothing, or refused."""

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
from tensorwise.errors import InputError
from tensorwise.lower.program import Program
from tensorwise.program.einsum import Access, Apply, Constant, Einsum, Expression
from tensorwise.program.joined import ANY, check_joined, value_without
from tensorwise.program.ops import COMBINE
from tensorwise.program.reference import reference
from tensorwise.program.schedule import Schedule
from tensorwise.program.workload import einsum_workload
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.format import csr

REFUSED = (
    "C[i,k] = A[i,k] + P[i,k]",
    "C[i,k] = A[i,k] - P[i,k]",
    "y[i] += A[i,k] * x[k] + P[i,k] * x[k]",
    "C[i,k] = max(A[i,k], P[i,k])",
    "C[i,k] = min(A[i,k], P[i,k])",
    "C[i,k] = A[i,k] * P[i,k] + A[i,k]",
    "C[i,k] = A[i,k] / P[i,k]",
    "C[i] += x[k] / P[i,k] for A[i,k]",
    "C[i,k] = P[i,k] * (A[i,k] / P[i,k])",
    "C[i] += A[i,k] if P[i,k] < 1 else 0",
    "C[i] += A[i,k] if x[k] < 0 else P[i,k]",
    "C[i,k] = exp(A[i,k] * P[i,k])",
    "C[i,k] = abs(A[i,k]) + abs(P[i,k])",
    "C[i,k] = A[i,k] * P[i,k] + 1",
    "C[i,k] = 0 * exp(1000) * A[i,k] * P[i,k]",
    "C[i] max= A[i,k] * P[i,k]",
    "C[i] min= A[i,k] * P[i,k]",
    "C[i] prod= A[i,k] * P[i,k]",
    "C[i] mean= A[i,k] * P[i,k]",
    "C[i] argmax= A[i,k] * P[i,k]",
    "C[i] max= A[i,k] * x[k] for P[i,k]",
    "C[i] += A[i,k] + x[k] for P[i,k]",
    "C[i,j] += A[i,k] * x[j] + P[k,j] * x[i]",
)
COMPUTED = (
    "C[i,k] = A[i,k] * P[i,k]",
    "C[i] += A[i,k] * P[i,k] * x[k]",
    "C[i,j] += A[i,k] * P[k,j]",
    "C[i] += A[i,k] * x[k] for P[i,k]",
    "C[i] += A[i,k] * P[i,k] - x[k] * P[i,k] * A[i,k]",
    "C[i,k] = max(A[i,k] * P[i,k], 0)",
    "C[i,k] = abs(-A[i,k] * P[i,k]) / 2",
    "C[i] += exp(A[i,k] * P[i,k]) - 1",
    "C[i,k] = A[i,k] / P[i,k] if 0 < P[i,k] else 0",
    "C[i] += x[k] * P[i,k] if A[i,k] < 0 else 0",
)


def matrices() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    first, second = ((rng.random((2, 9, 9)) < 0.4) * rng.standard_normal((2, 9, 9))).astype(np.float64)
    assert ((first != 0) != (second != 0)).any()
    return first, second


@pytest.mark.parametrize("text", REFUSED)
def test_terms_that_one_operand_has_alone_are_refused(text: str) -> None:
    assignment = Einsum.parse(text).single
    a, p = (entries_from(matrix) for matrix in matrices())
    sparse = {name: {"A": a, "P": p}[name] for name in assignment.operands if name in "AP"}
    with pytest.raises(InputError, match=r"several sparse operands \([AP], [AP]\)") as error:
        einsum_workload(text, sparse, {index: 9 for index in assignment.indices})
    assert text.split()[0] in str(error.value)
    assert "with SciPy before" in str(error.value)
    given = {"A": sp.csr_array(matrices()[0]), "P": sp.csr_array(matrices()[1]), "x": (9,)}
    given = {name: operand for name, operand in given.items() if name in assignment.operands}
    with pytest.raises(InputError, match="several sparse operands"):
        tw.compile(text, operands=given)
    with pytest.raises(InputError, match="several sparse operands"):
        Program(assignment, {name: csr() for name in sparse}, Schedule(()))
    with pytest.raises(InputError, match="several sparse operands"):
        reference(assignment, sparse, {"x": np.ones(9)}, dict.fromkeys(assignment.indices, 9))
    check_joined(assignment, ["A"])  # its entries are the terms, whatever else there is


@pytest.mark.parametrize("text", COMPUTED)
def test_terms_that_count_where_all_have_an_entry_are_what_numpy_gives(text: str) -> None:
    first, second = matrices()
    x = np.random.default_rng(1).standard_normal(9)
    dense = {"x": x} if "x[" in text else {}
    operator = tw.compile(text, A=sp.csr_array(first), P=sp.csr_array(second), operands=dense)
    got = operator(*[x for _ in operator.workload.dense])
    got = got.toarray() if sp.issparse(got) else got
    assignment = Einsum.parse(text).single
    terms = _evaluated(
        assignment.expression, {"A": first, "P": second, "x": x}, assignment.indices, dict.fromkeys("ikj", 9)
    )
    if assignment.pattern is not None:
        terms = terms * (second != 0)
    axes = tuple(place for place, index in enumerate(assignment.indices) if index in assignment.reduced)
    kept = [index for index in assignment.indices if index not in assignment.reduced]
    wanted = terms.sum(axes).transpose([kept.index(index) for index in assignment.output.indices])
    np.testing.assert_allclose(got, wanted, atol=1e-12)


def _evaluated(
    expression: Expression, values: dict[str, np.ndarray], indices: tuple[str, ...], sizes: dict[str, int]
) -> np.ndarray:
    """The expression at all coordinates, with 0 where there is no entry."""
    match expression:
        case Constant(value=value):
            return np.full([sizes[index] for index in indices], value)
        case Access(tensor=name, indices=own):
            places = [slice(None) if index in own else None for index in indices]
            ordered = values[name].transpose([own.index(index) for index in sorted(own, key=indices.index)])
            return np.broadcast_to(ordered[tuple(places)], [sizes[index] for index in indices])
        case Apply(operator=operator, arguments=arguments):
            parts = [_evaluated(argument, values, indices, sizes) for argument in arguments]
            with np.errstate(all="ignore"):
                result: np.ndarray = COMBINE[operator].evaluate(*parts)
            return result
    raise TypeError(expression)


def _drawn(rng: np.random.Generator, depth: int = 0) -> Expression:
    kind = rng.random()
    if depth > 3 or kind < 0.3:
        if rng.random() < 0.3:
            return Constant(float(rng.choice([0, 1, 2, -1])))
        return Access(str(rng.choice(["A", "P", "B"])), ("i",))
    one, other = _drawn(rng, depth + 1), _drawn(rng, depth + 1)
    if kind < 0.4:
        return Apply(str(rng.choice(["neg", "abs", "exp"])), (one,))
    if kind < 0.5:
        condition = Apply(str(rng.choice(["lt", "le"])), (_drawn(rng, depth + 2), _drawn(rng, depth + 2)))
        return Apply("where", (condition, one, other))
    operator = str(rng.choice(["mul", "mul", "mul", "add", "sub", "div", "max", "min"]))
    if operator == "div":  # by what is not 0, or depends on A
        a = Access("A", ("i",))
        other = (
            Access("B", ("i",)) if rng.random() < 0.5 else Apply(str(rng.choice(["add", "max"])), (other, a))
        )
    return Apply(operator, (one, other))


def test_what_is_said_of_an_operand_without_an_entry_is_true() -> None:
    """Whatever the others are: numbers of both signs, and 0 where another one has no entry either."""
    rng = np.random.default_rng(0)
    zeros = 0
    for _ in range(3000):
        expression = _drawn(rng)
        value = value_without(expression, "A")
        if value is ANY or not np.isfinite(value):
            continue
        zeros += value == 0
        others = rng.standard_normal((2, 40)) * rng.choice([0.5, 3], (2, 40))
        operands = {"A": np.zeros(40), "P": others[0], "B": others[1]}
        got = _evaluated(expression, operands, ("i",), {"i": 40})
        np.testing.assert_array_equal(got, np.full(40, value), err_msg=str(expression))
    assert zeros > 500


def test_dense_operands_hold_what_is_compared_with_indices() -> None:
    a = entries_from(np.eye(3, dtype=np.float32))
    with pytest.raises(InputError, match="compares P with an index, so that it has to be a dense array"):
        einsum_workload("C[i] += x[k] if P[i,k] == k else 0", {"P": a}, {})


def test_a_cascade_is_judged_step_by_step() -> None:
    first, second = (sp.csr_array(matrix) for matrix in matrices())
    with pytest.raises(InputError, match="where A has no entry its terms are not surely 0"):
        tw.compile("T[i] += A[i,k] * x[k]; y[i] += A[i,k] * T[k] + P[i,k]", A=first, P=second, x=(9,))
    x = np.random.default_rng(1).standard_normal(9)
    both = tw.compile("T[i] += A[i,k] * x[k]; y[i] += P[i,k] * T[k]", A=first, P=second, x=(9,))
    np.testing.assert_allclose(both(x), second @ (first @ x))
