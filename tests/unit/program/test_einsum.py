"""Einsum text: what it reads, what it prints, and errors that say what to write instead."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwise.errors import InputError
from tensorwise.program.einsum import Access, Apply, Assignment, Constant, Einsum, Expression
from tensorwise.program.ops import MONOIDS, NAMED, mttkrp


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("C[i]+=A[i,k]*B[k]", "C[i] += A[i,k] * B[k]"),
        ("C[i] sum= A[i,k]", "C[i] += A[i,k]"),
        ("  C [ i ] max = A[ i , k ]", "C[i] max= A[i,k]"),
        ("C[i]=A[i]-(B[i]-D[i])", "C[i] = A[i] - (B[i] - D[i])"),
        ("C[i]=A[i]-B[i]-D[i]", "C[i] = A[i] - B[i] - D[i]"),
        ("C[i]=A[i]/(B[i]*D[i])", "C[i] = A[i] / (B[i] * D[i])"),
        ("C[i]=(A[i]+B[i])*D[i]", "C[i] = (A[i] + B[i]) * D[i]"),
        ("C[i]=-A[i]*2", "C[i] = -(A[i]) * 2"),
        ("C[i]=max(abs(A[i]),0.5)", "C[i] = max(abs(A[i]), 0.5)"),
        ("C[i]=A[i]*0.1234567891", "C[i] = A[i] * 0.1234567891"),
        ("C[i]=A[i]*1e300", "C[i] = A[i] * 1e+300"),
        ("T[i]+=A[i,k];;C[i]=T[i]/2;", "T[i] += A[i,k]; C[i] = T[i] / 2"),
    ],
)
def test_text_is_normalised(text: str, printed: str) -> None:
    einsum = Einsum.parse(text)
    assert str(einsum) == printed
    assert Einsum.parse(printed) == einsum


LEAVES = st.one_of(
    st.sampled_from([Access("A", ("i", "k")), Access("B", ("k",)), Access("D", ("i",))]),
    st.floats(0, 1e300, allow_nan=False).map(Constant),
)
BINARY = st.sampled_from(["add", "sub", "mul", "div", "max", "min"])
EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda o, a, b: Apply(o, (a, b)), BINARY, inner, inner),
        st.builds(lambda o, a: Apply(o, (a,)), st.sampled_from(["neg", "abs"]), inner),
    ),
    max_leaves=12,
)


@given(EXPRESSIONS)
def test_any_expression_prints_as_what_it_is(expression: Expression) -> None:
    """Also every digit of its constants: the text is the key of kernels, records and saved operators."""
    whole = Apply("add", (Access("A", ("i", "k")), expression))
    einsum = Einsum((Assignment(Access("C", ("i",)), "sum", whole),))
    assert Einsum.parse(str(einsum)) == einsum


def test_an_assignment_knows_its_parts() -> None:
    assignment = Einsum.parse("C[i,r] max= A[i,k,l] * B[k,r] * D[l,r] + B[k,r]").single
    assert assignment.operands == ("A", "B", "D")
    assert assignment.indices == ("i", "r", "k", "l")
    assert assignment.reduced == ("k", "l")
    assert assignment.monoid is MONOIDS["max"]
    assert assignment.access("D") == Access("D", ("l", "r"))
    with pytest.raises(InputError, match="has no tensor 'X'; it has C, A, B, D"):
        assignment.access("X")


def test_a_cascade_knows_its_temporaries() -> None:
    einsum = Einsum.parse("T[i] max= A[i,k]*B[k]; S[i] += A[i,k] - T[i]; C[i] = S[i] / T[i]")
    assert einsum.temporaries == ("T", "S")
    assert einsum.operands == ("A", "B")
    with pytest.raises(InputError, match="expected a single assignment, got a cascade of 3"):
        _ = einsum.single


@pytest.mark.parametrize(
    ("expression", "annihilated"),
    [
        ("A[i,k] * B[k]", True),
        ("B[k] * (D[i] - B[k]) * A[i,k]", True),
        ("-abs(A[i,k]) * B[k]", True),
        ("A[i,k] / B[k]", True),
        ("B[k] / A[i,k]", False),
        ("A[i,k] + B[k]", False),
        ("A[i,k] * B[k] + A[i,k]", True),
        ("A[i,k] * B[k] + D[i]", False),
        ("max(A[i,k], B[k])", False),
        ("max(A[i,k] * B[k], A[i,k])", True),
        ("A[i,k] * 0 + 1", False),
    ],
)
def test_what_a_zero_annihilates(expression: str, annihilated: bool) -> None:
    assert Einsum.parse(f"C[i] += {expression}").single.annihilated_by("A") is annihilated
    assert not Einsum.parse(f"C[i] max= {expression}").single.annihilated_by("A")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "einsum '' has no assignment; write for instance 'C[i] += A[i,k] * B[k]'"),
        (" ; ", "has no assignment"),
        ("A", "cannot read 'A'; expected 'OUTPUT[i,...] += expression'"),
        ("C[i] == A[i]", "expected 'OUTPUT[i,...] += expression'"),
        ("C[i] ++= A[i]", "expected 'OUTPUT[i,...] += expression'"),
        ("C += A[i]", "expected 'OUTPUT[i,...] += expression'"),
        ("C[] += A[i]", "cannot read 'C[]'"),
        ("C[i] nand= A[i]", "unknown reduction 'nand' in 'C[i] nand= A[i]'; known: +, sum, prod, max"),
        ("C[i] += A[i", "cannot read 'A[i' in einsum 'C[i] += A[i'"),
        ("C[i] += A[i,]]", "cannot read"),
        ("C[i] += A[i+1]", "cannot read 'A[i + 1]'"),
        ("C[i] += A[0]", "cannot read 'A[0]'"),
        ("C[i] += A[i,0]", "cannot read 'A[i, 0]'"),
        ("C[0] += A[i]", "cannot read 'C[0]'"),
        ("C[i] += A[i]**2", "cannot read 'A[i] ** 2'"),
        ("C[i] += sin(A[i])", "expected tensors with named indices, numbers, + - * /, max(a, b)"),
        ("C[i] += max(A[i])", "cannot read 'max(A[i])'"),
        ("C[i] += max(A[i], key=B[i])", "cannot read"),
        ("C[i] += A[i] * True", "cannot read 'True'"),
        ("C[i] += A[i] * 1e999", "a number in einsum 'C[i] += A[i] * 1e999' is too large for float64"),
        ("C[i] += A[i] * " + "9" * 400, "is too large for float64"),
        ("C[i] += __import__('os')", "cannot read"),
        ("C[i] += A[i].real", "cannot read"),
        ("C[i] += (lambda: A[i])()", "cannot read"),
        ("C[i] += " + "-" * 3000 + "A[i]", ""),
        ("C[i] += " + "(" * 3000 + "A[i]" + ")" * 3000, ""),
        ("C[i] += A[i,i]", "A[i,i] repeats an index; take the diagonal before"),
        ("C[i] += A[i,k] * A[k]", "A has 2 indices in one place and 1 in A[k]"),
        ("C[i] += C[i] * A[i]", "C is assigned twice or read by its own assignment"),
        ("C[i] += A[i]; C[i] += B[i]", "C is assigned twice"),
        ("C[i,j] += A[i,k]", "index 'j' of C[i,j] appears in no operand"),
        ("C[i] = A[i,k]", "reduces 'k' without saying how; write '+=' or 'max='"),
        ("C[i] argmax= A[i,k,l]", "argmax reduces exactly one index, got ('k', 'l')"),
        ("C[i] argmin= A[i]", "argmin reduces exactly one index, got ()"),
        ("C[i] += B[k] for", "cannot read"),
        ("C[i] += B[k] for 3", "expected 'for A[i,k]'"),
        (
            "C[i] += A[i,k] * B[k] for A[i,k]",
            "reads the values of A, so that its entries are the terms anyhow",
        ),
        (
            "C[h,A] = B[i,h] for A[i,k]",
            "the number of one of its entries is the first index of a tensor; put it first",
        ),
        ("C[i] += B[k] if P[i] == j else 0 for A[i,k]", "compares with 'j', which is no index of it"),
        ("C[i] += B[k] if P[i] == 3 else 0 for A[i,k]", "cannot read"),
        ("C[i] += P[i] if P[i] == k else 0 for A[i,k]", "P holds coordinates to compare with"),
        ("C[i] += B[k] if B[k] > 0 else 0 for A[i,k]", "a if x < y else b"),
        ("C[i] argmax= B[k] * D[j] for A[i,k]", "argmax reduces exactly one index"),
        ("C[i] += A[i,k1]", "cannot use the names of A[i,k1]: indices are letters"),
        ("C[i] += A[i,_]", "cannot use the names of A[i,_]"),
        ("C[i] += A[i,\u00e9]", "cannot use the names"),
        ("C[i] += \u00c4[i]", "cannot use the names"),
    ],
)
def test_errors_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        Einsum.parse(text)
    assert message in str(error.value)
    assert len(str(error.value)) < 1000


def test_a_sum_of_many_terms_is_read_or_refused() -> None:
    try:
        Einsum.parse("C[i] += " + " + ".join(["A[i,k]"] * 3000))
    except InputError as error:
        assert re.search("nested too deeply|cannot read", str(error))  # noqa: PT017


@pytest.mark.parametrize("text", [*NAMED.values(), *(mttkrp(n, m) for n in (3, 4, 5) for m in range(n))])
def test_named_operations_are_written_as_they_print(text: str) -> None:
    assert str(Einsum.parse(text)) == text


@pytest.mark.parametrize(("order", "mode"), [(2, 0), (6, 0), (3, 3), (3, -1)])
def test_mttkrp_has_three_to_five_modes(order: int, mode: int) -> None:
    with pytest.raises(ValueError, match=r"order 3 to 5|mode must lie in"):
        mttkrp(order, mode)


def test_a_pattern_is_read_for_its_entries() -> None:
    assignment = Einsum.parse("C[A,h] += Q[i,h,d] * K[k,h,d] for A[i,k]").single
    assert str(assignment) == "C[A,h] += Q[i,h,d] * K[k,h,d] for A[i,k]"
    assert assignment.operands == ("Q", "K", "A")
    assert assignment.indices == ("i", "k", "h", "d")
    assert assignment.free_indices == ("i", "k", "h")
    assert assignment.reduced == ("d",)
    assert assignment.numbered == {"A"}
    assert assignment.has_pattern_of("A")
    assert not assignment.annihilated_by("A")


def test_what_an_argument_counts() -> None:
    assert Einsum.parse("P[i] argmax= A[i,k] * B[k]").single.argument == "k"
    chosen = Einsum.parse("P[i] argmin= B[k] for A[i,k]").single
    assert chosen.argument == "A"
    assert chosen.counted == {"A"}
    assert Einsum.parse("P[i] max= B[k] for A[i,k]").single.argument is None


def test_choices_are_read_and_written() -> None:
    text = (
        "G[k] += (D[i] if P[i] == A else 0) * (exp(B[k]) if B[k] <= 1 else (2 if D[i] < 0 else 3)) for A[i,k]"
    )
    assignment = Einsum.parse(text).single
    assert str(assignment) == text
    assert assignment.chosen == {"P": "A"}
