"""Gradients as assignments: their texts, and their values against differences."""

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.front import gnn, spelling
from tensorwise.program.einsum import Einsum
from tensorwise.program.gradient import argument, batched, gradients, tangent

EXTENTS = {"i": 6, "k": 8, "A": 20, "f": 4, "g": 3, "h": 2}


def texts(einsum: str, operand: str) -> list[str]:
    return [str(found) for found in gradients(Einsum.parse(einsum).single, operand)]


@pytest.mark.parametrize(
    ("einsum", "operand", "expected"),
    [
        ("C[i,j] += B[k,j] for A[i,k]", "B", "dB[k,j] += dC[i,j] for A[i,k]"),
        ("C[i,j] += B[k,j] * E[A] for A[i,k]", "E", "dE[A] += dC[i,j] * B[k,j] for A[i,k]"),
        ("C[A] += Q[i,d] * K[k,d] for A[i,k]", "K", "dK[k,d] += dC[A] * Q[i,d] for A[i,k]"),
        ("C[i] += A[i,k] * B[k]", "B", "dB[k] += dC[i] * A[i,k]"),
        ("C[i,j] mean= B[k,j] for A[i,k]", "B", "dB[k,j] += dC[i,j] * nC[i] for A[i,k]"),
        ("C[i,j] max= B[k,j] for A[i,k]", "B", "dB[k,j] += (dC[i,j] if aC[i,j] == A else 0) for A[i,k]"),
        ("C[A] = Q[i] - K[k] for A[i,k]", "K", "dK[k] += -(dC[A]) for A[i,k]"),
        ("C[A] = Q[i] / K[k] for A[i,k]", "Q", "dQ[i] += dC[A] * (1 / K[k]) for A[i,k]"),
        ("C[A] = exp(Q[i]) for A[i,k]", "Q", "dQ[i] += dC[A] * exp(Q[i]) for A[i,k]"),
        ("C[i] += X[k,f] - B[k] for A[i,k]", "B", "dB[k] += -(oC[f] * dC[i]) for A[i,k]"),
        ("dX[i] += D[i,f] for A[i,k]", "D", "dD[i,f] += odX[f] * ddX[i] for A[i,k]"),
        ("C[A,f] = X[k,f] if B[k,f] < 0 else 0 for A[i,k]", "B", "dB[k,f] += oC[f] * 0 for A[i,k]"),
        ("C[i] += B[k] * dC[i] * dB[k] for A[i,k]", "B", "dB_[k] += dC_[i] * (dC[i] * dB[k]) for A[i,k]"),
    ],
)
def test_what_gradients_are(einsum: str, operand: str, expected: str) -> None:
    assert texts(einsum, operand) == [expected]
    assert str(Einsum.parse(expected)) == expected


def test_an_operand_read_in_two_ways_has_two() -> None:
    assert texts("C[A] = B[i] * B[k] for A[i,k]", "B") == [
        "dB[i] += dC[A] * B[k] for A[i,k]",
        "dB[k] += dC[A] * B[i] for A[i,k]",
    ]
    assert texts("C[A] = B[i] for A[i,k]", "X") == []


@pytest.mark.parametrize(
    ("einsum", "operands", "expected"),
    [
        ("C[i,j] += B[k,j] * E[A] for A[i,k]", "BE", "C[i,j] += tB[k,j] * E[A] + tE[A] * B[k,j] for A[i,k]"),
        ("C[i,j] mean= B[k,j] + E[A] for A[i,k]", "E", "C[i,j] mean= oC[j] * tE[A] for A[i,k]"),
        ("C[i,j] max= B[k,j] for A[i,k]", "B", "C[i,j] += (tB[k,j] if aC[i,j] == A else 0) for A[i,k]"),
        ("C[A] = B[k] if E[A] < 0 else 0 for A[i,k]", "E", None),
        ("C[A] = B[i] * tB[k] * tB_[k] for A[i,k]", "B", "C[A] = tB__[i] * (tB[k] * tB_[k]) for A[i,k]"),
    ],
)  # fmt: skip
def test_what_tangents_are(einsum: str, operands: str, expected: str | None) -> None:
    found = tangent(Einsum.parse(einsum).single, operands)
    assert found is None if expected is None else str(found) == expected


def test_a_batch_is_an_index_more() -> None:
    single = Einsum.parse("C[i,b] += B[k,b] * E[A] for A[i,k]").single
    assert str(batched(single, "E")) == "C[i,c,b] += B[k,b] * E[A,c] for A[i,k]"
    assert str(batched(single, "B")) == "C[i,c,b] += B[k,c,b] * E[A] for A[i,k]"


def test_which_entry_a_maximum_comes_from() -> None:
    chosen = argument(Einsum.parse("C[i,j] min= B[k,j] for A[i,k]").single)
    assert str(chosen) == "aC[i,j] argmin= B[k,j] for A[i,k]"


@pytest.mark.parametrize(
    ("einsum", "message"),
    [
        ("C[i] prod= B[k] for A[i,k]", "prod has no gradient"),
        ("C[i] argmax= B[k] for A[i,k]", "argmax has no gradient"),
        ("C[i] max= A[i,k] * B[k]", "a max chooses among entries"),
        ("C[i] mean= A[i,k] * B[k]", "a mean is taken over rows of entries"),
        ("C[i] += A[i,k] * X[f] + B[k]", "it counts once for each k, f"),
    ],
)
def test_what_has_none(einsum: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        gradients(Einsum.parse(einsum).single, "B")


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        ("C[i,f] max= L[k,f] * R[A,f] for A[i,k]", "LR"),
        ("C[i,f] min= L[k,f] - R[i,f] for A[i,k]", "LR"),
        ("C[i,f,g] mean= L[k,f,g] / R[A,f] for A[i,k]", "LR"),
        ("C[A,f] += L[k,f,g] * R[i,f,g] for A[i,k]", "LR"),
        ("C[A,f] = exp(S[A,f] - M[i,f]) / Z[i,f] for A[i,k]", "SMZ"),
        ("C[i] += abs(S[A]) + max(L[k], -R[i]) - min(L[k], S[A]) for A[i,k]", "SLR"),
        ("C[i] += L[k] * L[i] if S[A] < 0 else 3 for A[i,k]", "L"),
        ("C[i,f] += -(L[k,f] * R[i,f]) for A[i,k]", "LR"),
        ("C[i] += S[A] - -L[k] * (R[i] - L[k]) for A[i,k]", "SLR"),
        (spelling.attention_texts(0.2)[2], "UVXZ"),
    ],
)
def test_gradients_are_what_differences_say(text: str, operands: str) -> None:
    rng = np.random.default_rng(0)
    extents = dict(EXTENTS, i=8) if "L[i]" in text else EXTENTS
    u, v = rng.integers(0, extents["k"], 20), rng.integers(0, 5, 20)
    graph = gnn.Graph(u, v, (extents["i"], extents["k"]), threads=2)
    assignment = spelling.parsed(text)
    given = {
        name: rng.standard_normal([extents[index] for index in assignment.access(name).indices])
        + (3 if name in "RZ" else 0)
        for name in spelling.operands_of(text)
    }
    upstream = rng.standard_normal(graph.einsum(text, **given).shape)
    for name in operands:
        gradient = graph.gradient(text, name, upstream, **given)
        assert gradient.shape == given[name].shape
        step = 1e-6 * rng.standard_normal(given[name].shape)
        there = graph.einsum(text, **{**given, name: given[name] + step})
        back = graph.einsum(text, **{**given, name: given[name] - step})
        assert ((there - back) * upstream).sum() / 2 == pytest.approx((gradient * step).sum(), rel=1e-5)


def test_what_an_operand_does_not_enter_has_no_gradient() -> None:
    graph = gnn.Graph([0], [0])
    with pytest.raises(InputError, match="does not read the values of 'X'"):
        graph.gradient("C[i] += B[k] for A[i,k]", "X", np.ones(1), B=np.ones(1))
