"""Graph operators against dense references: every message, reduction, broadcast, target and dtype."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorwise.device.rounds import RoundTable
from tensorwise.errors import InputError
from tensorwise.front import gnn, spelling
from tensorwise.program.schedule import Schedule
from tensorwise.tensor.elements import value_dtype
from tensorwise.tuning import retuning

SOURCES, DESTINATIONS = 9, 7
EVALUATE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "copy_lhs": lambda a, _: a,
    "copy_rhs": lambda _, b: b,
    "dot": lambda a, b: (a * b).sum(-1, keepdims=True),
}
REDUCE: dict[str, Callable[..., np.ndarray]] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}
FEATURES = [
    ((), ()), ((5,), (5,)), ((19,), (1,)), ((3, 1), (3, 6)), ((3, 6), (1,)), ((2, 1, 5), (1, 3, 5)), ((), (4,)),
    ((1, 1), (1, 1)), ((2, 1, 3), (1, 4, 1)),
]  # fmt: skip
"""Features of both operands that broadcast."""


def drawn_graph(rng: np.random.Generator, edges: int) -> tuple[gnn.Graph, np.ndarray, np.ndarray]:
    """A graph with parallel edges, in any order; the last two destinations are never reached."""
    u, v = rng.integers(0, SOURCES, edges), rng.integers(0, DESTINATIONS - 2, edges)
    return gnn.Graph(u, v, (DESTINATIONS, SOURCES), threads=2), u, v


def expected(
    u: np.ndarray, v: np.ndarray, message: str, reduce: str | None, operands: list[tuple[np.ndarray, str]]
) -> np.ndarray:
    """The same, with a row for each edge, in float64."""
    place = {"u": u, "v": v, "e": np.arange(len(u))}
    rows = [operand.astype(np.float64)[place[target]] for operand, target in operands]
    if message.startswith("copy"):
        rows = [rows[message == "copy_rhs"]] * 2
    rank = max(row.ndim for row in rows)
    a, b = (row.reshape(row.shape[:1] + (1,) * (rank - row.ndim) + row.shape[1:]) for row in rows)
    messages = EVALUATE[message](a, b)
    if reduce is None:
        return messages
    out = np.zeros((DESTINATIONS, *messages.shape[1:]))
    for node in np.unique(v):
        out[node] = REDUCE[reduce](messages[v == node], axis=0)
    return out


@given(
    message=st.sampled_from([*spelling.MESSAGES, "dot"]),
    reduce=st.sampled_from([*spelling.REDUCTIONS, None]),
    features=st.sampled_from(FEATURES),
    swapped=st.booleans(),
    targets=st.tuples(st.sampled_from("uve"), st.sampled_from("uve")),
    dtype=st.sampled_from(["float32", "float64", "bfloat16"]),
    edges=st.sampled_from([0, 1, 23]),
    seed=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_operators_agree_with_a_row_for_each_edge(
    message: str,
    reduce: str | None,
    features: tuple[tuple[int, ...], tuple[int, ...]],
    swapped: bool,
    targets: tuple[str, str],
    dtype: str,
    edges: int,
    seed: int,
) -> None:
    if message == "dot" and (reduce is not None or () in features):
        reduce, features = None, FEATURES[3]
    rng = np.random.default_rng(seed)
    graph, u, v = drawn_graph(rng, edges)
    rows = {"u": SOURCES, "v": DESTINATIONS, "e": edges}
    kind = value_dtype(dtype)
    lhs, rhs = (
        (rng.choice([-1, 1], (rows[target], *shape)) * rng.uniform(0.5, 2, (rows[target], *shape))).astype(
            kind
        )
        for target, shape in zip(targets, features[::-1] if swapped else features, strict=True)
    )
    got = (
        gnn.gsddmm(graph, message, lhs, rhs, *targets)
        if reduce is None
        else gnn.gspmm(graph, message, reduce, lhs, rhs, *targets)
    )
    want = expected(u, v, message, reduce, list(zip((lhs, rhs), targets)))
    assert got.dtype == kind
    assert got.shape == want.shape
    tolerance = {"float32": 1e-5, "float64": 1e-13, "bfloat16": 1e-2}[dtype]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=20 * tolerance)


def test_destinations_that_no_edge_reaches_get_zero() -> None:
    graph = gnn.Graph([0, 1], [0, 0], (3, 2))
    x = np.full((2, 4), -5, np.float32)
    for reduce in spelling.REDUCTIONS:
        np.testing.assert_array_equal(gnn.gspmm(graph, "copy_lhs", reduce, x)[1:], np.zeros((2, 4)))


def test_edges_come_in_any_order_and_may_be_parallel() -> None:
    graph = gnn.Graph([1, 0, 1, 1], [1, 0, 0, 1], (2, 2))
    weights = np.array([1, 10, 100, 1000], np.float32)
    np.testing.assert_array_equal(gnn.gspmm(graph, "copy_rhs", "sum", rhs=weights), [110, 1001])
    np.testing.assert_array_equal(gnn.gsddmm(graph, "copy_lhs", weights, lhs_target="e"), weights)
    chosen = graph.einsum("P[i] argmax= E[A] for A[i,k]", E=weights)
    np.testing.assert_array_equal(chosen, [2, 3])


def test_a_graph_of_pointers_numbers_its_edges_as_they_stand() -> None:
    graph = gnn.Graph.from_pointers([0, 2, 2, 3], [3, 0, 1], columns=4)
    assert graph.shape == (3, 4)
    assert graph.entries.numbers is None
    weights = np.array([1, 2, 4], np.float32)
    np.testing.assert_array_equal(gnn.gspmm(graph, "copy_rhs", "sum", rhs=weights), [3, 0, 4])
    reversed_sums = graph.einsum("C[k] += E[A] for A[i,k]", E=weights)
    np.testing.assert_array_equal(reversed_sums, [2, 4, 0, 1])


def test_numbers_given_to_a_graph_of_pointers() -> None:
    graph = gnn.Graph.from_pointers([0, 2, 3], [0, 1, 0])
    graph.renumber([2, 0, 1])
    np.testing.assert_array_equal(
        gnn.gspmm(graph, "copy_rhs", "sum", rhs=np.array([1, 10, 100], np.float32)), [101, 10]
    )
    with pytest.raises(InputError, match="a permutation of 0 to 2"):
        graph.renumber([0, 0, 1])


def test_nothing_as_large_as_edges_times_features_is_held() -> None:
    rng = np.random.default_rng(0)
    graph, *_ = drawn_graph(rng, 500)
    gnn.gspmm(graph, "mul", "max", np.ones((SOURCES, 64), np.float32), np.ones((500, 1), np.float32))
    (bound,) = graph._kernels.values()
    assert bound.bytes_held < 500 * 64


def test_tuning_what_was_evaluated_changes_no_result() -> None:
    rng = np.random.default_rng(5)
    graph, u, _ = drawn_graph(rng, 40)
    x = rng.random((SOURCES, 8), np.float32)
    w = rng.random((len(u), 1), np.float32)
    text = "C[i,f] max= L[k,f] for A[i,k]"

    def results() -> list[np.ndarray]:
        out = graph.einsum(text, L=x)
        return [
            out,
            graph.gradient(text, "L", np.ones_like(out), L=x),
            gnn.gspmm(graph, "mul", "sum", x, w),
            gnn.gsddmm(graph, "dot", x, x[:DESTINATIONS]),
        ]

    with pytest.raises(InputError, match="nothing ran on this graph yet"):
        graph.tune(trials=3)
    before = results()
    found = graph.tune(trials=3, model=None, store=False)
    assert found[0].text().startswith("C[i,f] max= ")
    assert [result.workload.assignment.reduction for result in found] == [
        "max",
        "argmax",
        "sum",
        "sum",
        "sum",
    ]
    assert all(result.verified and result.candidates_measured == 3 for result in found)
    for known, again in zip(before, results(), strict=True):
        np.testing.assert_allclose(again, known, rtol=1e-6)
    assert graph.tune(trials=3, store=False) == []  # all of it is tuned
    gnn.gspmm(graph, "copy_lhs", "sum", x)
    (last,) = graph.tune(trials=1, expected_calls=10, model=None, store=False)
    assert "against the untuned kernel" in last.text()


@pytest.mark.parametrize("ratio", [0.9, 1.1])
def test_what_was_found_gives_way_where_it_is_not_faster(
    ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(calls: Mapping[str, Callable[[], object]], rounds: int, *_: object) -> RoundTable:
        for call in calls.values():
            call()
        rows = tuple({"now": 1.0, "found": ratio} for _ in range(rounds))
        return RoundTable(("now", "found"), rows, (False,) * rounds, "warm", 0.0)

    monkeypatch.setattr(retuning, "interleave", timed)
    graph, *_ = drawn_graph(np.random.default_rng(6), 40)
    gnn.gspmm(graph, "copy_lhs", "sum", np.ones((SOURCES, 64), np.float32))
    (before,) = graph._kernels.values()
    texts = "reorder(i,k,f)", "reorder(i,f,k)"
    others = [replace(before.program, schedule=Schedule.parse(text)) for text in texts]
    other = next(program for program in others if program != before.program)
    tuned = SimpleNamespace(program=other, result=SimpleNamespace(notes=[]))
    monkeypatch.setattr(retuning, "tune_workload", lambda *given, **more: tuned)
    (result,) = graph.tune(trials=1, model=None, store=False)
    (after,) = graph._kernels.values()
    assert (after is before) == (ratio > 1)
    assert (retuning.KEPT in result.notes) == (ratio > 1)


def test_where_few_calls_are_expected_the_untuned_kernel_stays() -> None:
    graph, *_ = drawn_graph(np.random.default_rng(6), 40)
    gnn.gspmm(graph, "copy_lhs", "sum", np.ones((SOURCES, 8), np.float32))
    (result,) = graph.tune(expected_calls=3, model=None, store=False)
    assert result.trials == ()
    assert "no search" in result.text()


def test_softmax_sums_to_one_over_the_edges_of_a_destination() -> None:
    rng = np.random.default_rng(1)
    graph, _, v = drawn_graph(rng, 40)
    scores = 30 * rng.standard_normal((40, 3))
    shares = gnn.edge_softmax(graph, scores)
    sums = gnn.gspmm(graph, "copy_rhs", "sum", rhs=shares)
    np.testing.assert_allclose(sums[np.unique(v)], 1)
    for node in np.unique(v):
        powers = np.exp(scores[v == node] - scores[v == node].max(0))
        np.testing.assert_allclose(shares[v == node], powers / powers.sum(0))


@pytest.mark.parametrize("most", [0, spelling.WEIGHTS_BYTES])
def test_attention_is_softmax_of_scores_and_a_weighted_sum(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spelling, "WEIGHTS_BYTES", most)
    rng = np.random.default_rng(2)
    graph, *_ = drawn_graph(rng, 40)
    x, a = rng.standard_normal((SOURCES, 2, 5)), rng.standard_normal((SOURCES, 2))
    b = rng.standard_normal((DESTINATIONS, 2))
    scores = gnn.gsddmm(graph, "add", a, b)
    weights = gnn.edge_softmax(graph, np.where(scores > 0, scores, 0.2 * scores))
    want = gnn.gspmm(graph, "mul", "sum", x, weights[:, :, None])
    np.testing.assert_allclose(gnn.attention(graph, x, a, b), want)
    kept = [key for key in graph._kernels if str(key[0]).startswith("W[A,h]")]
    assert bool(kept) == (most > 0)
    with pytest.raises(InputError, match="slope of a leaky rectifier is at most 1"):
        gnn.attention(graph, x, a, b, slope=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: gnn.gspmm(g, "pow", "sum", x, x), "the message is one of add, sub"),
        (lambda g, x: gnn.gspmm(g, "dot", "sum", x, x), "the message is one of add, sub"),
        (lambda g, x: gnn.gspmm(g, "add", "prod", x, x), "reduced by sum, mean, max, min, got 'prod'"),
        (lambda g, x: gnn.gspmm(g, "add", "sum", x), "add needs rhs, which was not given"),
        (lambda g, x: gnn.gspmm(g, "add", "sum", x, x, "w"), "lhs_target is u"),
        (lambda g, x: gnn.gspmm(g, "add", "sum", x, x[:, :2], "u", "u"), "do not broadcast"),
        (lambda g, x: gnn.gspmm(g, "add", "sum", x, x), "R must have shape (1, 3)"),
        (lambda g, x: gnn.gsddmm(g, "dot", x[:, 0], x[:, 0]), "dot sums over the last feature dimension"),
        (
            lambda g, x: gnn.gspmm(g, "copy_lhs", "sum", x.astype(np.int64)),
            "dtype int64 is not supported for values",
        ),
        (lambda g, x: g.einsum("C[i] += B[k] for A[i,k]"), "takes B, got nothing"),
        (lambda g, x: g.einsum("C[i] += A[i,k] * B[k]", A=x, B=x), "is not read for the edges of a graph"),
        (lambda g, x: gnn.Graph([0, 5], [0, 0], (1, 2)), "edge 1 has the source 5, outside 0 to 1"),
        (lambda g, x: gnn.Graph([0, 1], [0]), "as many sources as destinations, got 2 and 1"),
    ],
)
def test_errors_say_what_is_wrong(call: Callable[[gnn.Graph, np.ndarray], object], message: str) -> None:
    with pytest.raises(InputError) as error:
        call(gnn.Graph([1], [0], (2, 2)), np.ones((2, 3), np.float32))
    assert message in str(error.value)


@pytest.mark.parametrize("reduce", ["max", "min"])
@given(width=st.integers(1, 19), seed=st.integers(0, 2**16))
@settings(max_examples=20, deadline=None)
def test_arguments_among_infinities_and_nans(reduce: str, width: int, seed: int) -> None:
    """Entries in order: the first extreme one, the first NaN before all, -1 where there is none; as NumPy has it."""
    rng = np.random.default_rng(seed)
    pointers = np.r_[0, rng.integers(0, 5, 6).cumsum()]
    graph = gnn.Graph.from_pointers(pointers, rng.integers(0, SOURCES, pointers[-1]), SOURCES, threads=2)
    x = rng.choice(
        np.array([-np.inf, np.inf, np.nan, 0, 1], np.float32), (SOURCES, width), p=[0.4, 0.2, 0.1, 0.2, 0.1]
    )
    got = graph.evaluate(spelling.chosen(f"C[i,f] {reduce}= L[k,f] for A[i,k]"), [x])
    rows = x[graph.entries.coordinates[1]]
    first = {"max": np.argmax, "min": np.argmin}[reduce]
    wanted = [
        first(rows[low:high], axis=0) + low if low < high else np.full(width, -1)
        for low, high in itertools.pairwise(pointers)
    ]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ordered", [True, False])
def test_numbers_of_edges_are_compared_in_lanes(dtype: type, ordered: bool) -> None:
    """Numbers of edges are stored as 32-bit integers, and compared in lanes as wide as the values are."""
    sources, destinations = np.array([3, 1, 2, 5, 4, 3, 0, 1, 4, 2]), np.array([1, 0, 0, 0, 0, 0, 0, 1, 0, 0])
    if ordered:
        order = np.lexsort((sources, destinations))
        sources, destinations = sources[order], destinations[order]
    graph = gnn.Graph(sources, destinations, (2, 6), threads=1)
    values = np.arange(1, 7).astype(dtype)
    integers = np.int64 if dtype == np.float64 else np.int32
    for edge, (source, destination) in enumerate(zip(sources, destinations)):
        wanted = np.zeros(2)
        wanted[destination] = values[source]
        text = "C[i] += L[k] * (1 if a[i] == A else 0) for A[i,k]"
        got = graph.einsum(text, L=values, a=np.array([edge, edge], integers))
        np.testing.assert_array_equal(got, wanted, err_msg=f"edge {edge}, by destination")
        text = "C[i] += L[k] * (1 if a[k] == A else 0) for A[i,k]"
        got = graph.einsum(text, L=values, a=np.full(6, edge, integers))
        np.testing.assert_array_equal(got, wanted, err_msg=f"edge {edge}, by source")
        text = "C[i] += L[k] * (1 if a[k] == k else 0) for A[i,k]"
        got = graph.einsum(text, L=values, a=np.where(np.arange(6) == source, source, -1).astype(integers))
        wanted = np.bincount(
            destinations[sources == source], minlength=2, weights=values[sources[sources == source]]
        )
        np.testing.assert_array_equal(got, wanted, err_msg=f"source {source}")


def test_factors_that_are_sums_have_a_default_program() -> None:
    """A factor changes in a loop if any of its terms does."""
    rng = np.random.default_rng(0)
    sources, destinations = rng.integers(0, 6, 17), rng.integers(0, 5, 17)
    graph = gnn.Graph(sources, destinations, (5, 6), threads=1)
    D, L, R = (rng.standard_normal(n).astype(np.float32) for n in ((5, 3), (6, 3), 17))
    got = graph.einsum("C[A] += D[i,f] * (L[k,f] + R[A]) for A[i,k]", D=D, L=L, R=R)
    np.testing.assert_allclose(got, (D[destinations] * (L[sources] + R[:, None])).sum(1), atol=1e-5)


@pytest.mark.parametrize("name", ["text", "self", "operand", "given", "operands"])
def test_operands_may_be_called_like_arguments(name: str) -> None:
    graph, x = gnn.Graph([1, 0], [0, 1], (2, 2)), np.array([2.0, 3.0])
    text = f"C[i] += {name}[k] for A[i,k]"
    np.testing.assert_array_equal(graph.einsum(text, **{name: x}), [3, 2])
    np.testing.assert_array_equal(graph.gradient(text, name, x, **{name: x}), [3, 2])
    with pytest.raises(InputError, match=f"takes {name}, got nothing"):
        graph.gradient(text, name, x)


def test_what_is_refused_is_refused_again() -> None:
    """Also once a kernel for arrays of these shapes and dtypes is there."""
    graph, x, scores = gnn.Graph([0, 1, 2, 0], [1, 1, 0, 2], (3, 3)), np.ones((3, 2)), np.ones((4, 2))
    calls: list[Callable[[np.ndarray, np.ndarray], object]] = [
        lambda x, _: gnn.gspmm(graph, "copy_lhs", "sum", x),
        lambda x, _: gnn.gsddmm(graph, "dot", x, x),
        lambda x, _: graph.einsum("C[i,f] += L[k,f] for A[i,k]", L=x),
        lambda _, scores: gnn.edge_softmax(graph, scores),
        lambda x, _: gnn.attention(graph, x[:, :, None], x, x),
    ]
    for call in calls:
        for _ in range(2):
            with pytest.raises(InputError, match="MaskedArray"):
                call(np.ma.masked_array(x, mask=True), np.ma.masked_array(scores, mask=True))
            call(x, scores)
        np.testing.assert_array_equal(call(x.view(np.memmap), scores.view(np.memmap)), call(x, scores))


def test_degrees_cannot_be_changed() -> None:
    graph = gnn.Graph([0, 1, 2, 0, 2], [1, 1, 0, 2, 2], (3, 3))
    assert graph.in_degrees.tolist() == [1, 2, 2]
    with pytest.raises(ValueError, match="read-only"):
        graph.in_degrees += 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: gnn.attention(g, x, x, x), "values are of shape (2, 3)"),
        (lambda g, x: gnn.attention(g, x[:, :, None], x[:, 0], x), "sources are of shape (2,)"),
        (
            lambda g, x: gnn.attention(g, x[:, :, None].tolist(), x, x),
            "values: expected a NumPy array, got list",
        ),
        (lambda g, x: gnn.attention(g, x[:, :, None], x, x, np.inf), "at most 1, and finite"),
        (lambda g, x: gnn.attention(g, x[:, :, None], x, x, True), "at most 1, and finite"),
        (lambda g, x: gnn.edge_softmax(g, [1.0]), "scores: expected a NumPy array, got list"),
        (lambda g, x: gnn.edge_softmax(g, x), "a row for each of 1 edges, got shape (2, 3)"),
        (lambda g, x: g.einsum("C[i,f] += B[k,f] for A[i,k]", B=x.tolist()), "operands are arrays, got list"),
        (lambda g, x: g.einsum(3, B=x), "an assignment is a text"),
        (
            lambda g, x: g.gradient("C[i,f] += B[k,f] for A[i,k]", "B", [1], B=x),
            "expected a NumPy array, got list",
        ),
        (
            lambda g, x: g.gradient("C[i,f] += B[k,f] for A[i,k]", "B", np.ones((2, 7)), B=x),
            "a result of shape (2, 3); its gradient was given as (2, 7)",
        ),
    ],
)
def test_other_shapes_and_kinds_are_named(
    call: Callable[[gnn.Graph, np.ndarray], object], message: str
) -> None:
    with pytest.raises(InputError) as error:
        call(gnn.Graph([1], [0], (2, 2)), np.ones((2, 3), np.float32))
    assert message in str(error.value)


def test_a_slope_may_be_of_any_type_of_numbers() -> None:
    graph, x = gnn.Graph([1, 0], [0, 1], (2, 2)), np.array([[0.5, -1.0], [-2.0, 3.0]])
    for slope in (np.float64(0.25), np.float32(0.25)):
        np.testing.assert_array_equal(
            gnn.attention(graph, x[:, :, None], x, x, slope), gnn.attention(graph, x[:, :, None], x, x, 0.25)
        )


def test_one_number_as_the_shape_of_a_graph_names_two() -> None:
    with pytest.raises(
        InputError, match=r"got 3; expected the numbers of destinations and of sources, \(3, 3\)"
    ):
        gnn.Graph([0, 1], [1, 2], 3)  # type: ignore[arg-type]
