"""The walk over a graph: what it finds, what it asks for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.device.null import smooth_cost
from tensorwise.errors import InputError
from tensorwise.search.building import ENTRIES, build_graph
from tensorwise.search.graph import ConfigGraph
from tensorwise.search.graph_walk import GraphWalk
from tensorwise.search.pool import Pool
from tensorwise.search.walk import Walk
from tensorwise.space.config import Config
from tensorwise.space.params import Flag
from tests.contract.toys import GARDEN, TINY, WIDE, ToyWorkload

W: Any = ToyWorkload()


def numbered(n: int) -> Pool:
    return Pool.of(Config({"number": k}) for k in range(n))


def of_links(n: int, ends: list[tuple[int, int]], entry_points: list[int]) -> ConfigGraph:
    """A graph with exactly these links, both ways."""
    both = sorted({(a, b) for one, other in ends if one != other for a, b in ((one, other), (other, one))})
    starts = np.searchsorted([a for a, _ in both], np.arange(n + 1)).astype(np.int64)
    links = np.array([b for _, b in both], np.int32)
    return ConfigGraph(numbered(n), np.zeros((n, 1), np.float32), starts, links, np.array(entry_points))


def cloud(n: int, dimensions: int, seed: int, entries: int = ENTRIES) -> ConfigGraph:
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n, dimensions)).astype(np.float32)
    return build_graph(numbered(n), points, entries=entries)


def by_table(costs: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda rows: costs[rows]


@pytest.mark.parametrize("seed", range(5))
def test_of_smooth_costs_it_finds_nearly_all_of_the_best_few(seed: int) -> None:
    """A quadratic, and a network of the kind that models end in."""
    graph = cloud(2000, 6, seed, entries=64)  # few, so that it is the walk that finds them
    rng = np.random.default_rng(seed)
    hidden = np.maximum(graph.embeddings @ rng.standard_normal((6, 24)) + rng.standard_normal(24), 0)
    for costs in (
        np.square(graph.embeddings - rng.standard_normal(6)).sum(axis=1),
        hidden @ rng.standard_normal(24),
    ):
        walk = Walk(graph, by_table(costs))
        found = walk.take(10)
        best = np.argsort(costs)
        assert len(set(found.tolist()) & set(best[:10].tolist())) >= 9
        assert found[0] in best[:2]
        assert walk.evaluated <= 600


def test_each_row_is_scored_once_and_a_hop_is_one_call() -> None:
    graph = cloud(2000, 8, 0)
    costs = np.square(graph.embeddings - 1).sum(axis=1)
    calls: list[np.ndarray] = []

    def score(rows: np.ndarray) -> np.ndarray:
        calls.append(rows)
        return costs[rows]

    walk = Walk(graph, score, beam=16, width=4)
    walk.take(5)
    asked = np.concatenate(calls)
    assert len(asked) == len(set(asked.tolist())) == walk.evaluated
    assert len(calls) == walk.hops
    assert all(rows.dtype == np.int64 for rows in calls)
    np.testing.assert_array_equal(calls[0], graph.entry_points)
    for hop, rows in enumerate(calls[1:], 1):
        before = np.concatenate(calls[:hop])
        cheapest = before[np.argsort(costs[before], kind="stable")[:16]]
        assert set(rows.tolist()) <= set(graph.neighbours(cheapest).tolist())


LINKS = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=40)
COSTS = st.lists(st.sampled_from([-1e9, -1.0, 0.0, 0.5, 2.0, np.inf]), min_size=20, max_size=20)


@settings(max_examples=200, deadline=None)
@given(
    ends=LINKS,
    costs=COSTS,
    forbidden=st.sets(st.integers(0, 19)),
    entry_points=st.sets(st.integers(0, 19), min_size=1),
    amounts=st.lists(st.integers(0, 25), min_size=1, max_size=5),
    beam=st.integers(1, 30),
    width=st.integers(1, 30),
)
def test_on_any_graph(
    ends: list[tuple[int, int]],
    costs: list[float],
    forbidden: set[int],
    entry_points: set[int],
    amounts: list[int],
    beam: int,
    width: int,
) -> None:
    graph = of_links(20, ends, sorted(entry_points))
    reached = set(entry_points)
    while more := set(graph.neighbours(np.array(sorted(reached))).tolist()) - reached:
        reached |= more
    table = np.array(costs)
    walk = Walk(graph, by_table(table), lambda row: row not in forbidden, beam=beam, width=width)
    taken: list[int] = []
    for amount in amounts:
        rows = walk.take(amount).tolist()
        assert len(rows) == min(amount, len(reached - forbidden) - len(taken))
        assert table[rows].tolist() == sorted(table[rows])
        taken += rows
    assert len(set(taken)) == len(taken)
    assert set(taken) <= reached - forbidden
    thorough = Walk(graph, by_table(table), lambda row: row not in forbidden, beam=20)
    best = sorted(table[sorted(reached - forbidden)].tolist())[:7]
    assert table[thorough.take(7)].tolist() == best


def test_what_is_forbidden_is_walked_over() -> None:
    """A line of configs, cheaper the further; all but its ends are forbidden."""
    graph = of_links(60, [(k, k + 1) for k in range(59)], [0])
    asked: list[int] = []

    def allowed(row: int) -> bool:
        asked.append(row)
        return row in (0, 59)

    walk = Walk(graph, by_table(-np.arange(60.0)), allowed, beam=2, width=1)
    assert walk.take(2).tolist() == [59, 0]
    assert len(asked) == len(set(asked)) == 60


def test_only_the_cheapest_are_asked_whether_they_are_allowed() -> None:
    graph = cloud(1000, 6, 0)
    costs = np.square(graph.embeddings).sum(axis=1)
    worst = set(np.argsort(costs)[:4].tolist())
    asked: list[int] = []

    def allowed(row: int) -> bool:
        asked.append(row)
        return row not in worst

    found = Walk(graph, by_table(costs), allowed).take(6)
    assert found.tolist() == np.argsort(costs)[4:10].tolist()
    assert sorted(asked) == sorted(np.argsort(costs)[:10].tolist())


def heaps(entries: int) -> ConfigGraph:
    """Eight heaps far from each other, larger than a beam and than the neighbours of a point."""
    rng = np.random.default_rng(0)
    points = [rng.standard_normal((40, 5)) * 0.1 + 20 * rng.standard_normal(5) for _ in range(8)]
    embeddings = np.concatenate(points).astype(np.float32)
    return build_graph(numbered(320), embeddings, neighbours=5, entries=entries)


def test_entry_points_reach_every_cluster() -> None:
    graph = heaps(entries=8)
    assert sorted(graph.entry_points // 40) == list(range(8))
    for target in range(0, 320, 40):
        costs = np.square(graph.embeddings - graph.embeddings[target]).sum(axis=1)
        walk = Walk(graph, by_table(costs), beam=8, width=2)
        assert walk.take(1).tolist() == [target]
        assert walk.evaluated < 120


def test_links_reach_every_cluster() -> None:
    graph = heaps(entries=1)
    costs = np.square(graph.embeddings - graph.embeddings[300]).sum(axis=1)
    assert (
        Walk(graph, by_table(costs), beam=8).take(320).tolist() == np.argsort(costs, kind="stable").tolist()
    )


def test_more_than_there_are() -> None:
    graph = cloud(50, 3, 0)
    costs = np.random.default_rng(0).random(50)
    walk = Walk(graph, by_table(costs))
    assert walk.take(80).tolist() == np.argsort(costs).tolist()
    assert walk.take(5).tolist() == []
    nothing = build_graph(Pool.of([]), np.empty((0, 3), np.float32))
    assert Walk(nothing, by_table(costs)).take(3).tolist() == []


def test_embeddings_that_coincide_are_all_found() -> None:
    graph = build_graph(numbered(200), np.zeros((200, 4), np.float32), neighbours=3, entries=5)
    costs = np.random.default_rng(0).permutation(200).astype(float)
    walk = Walk(graph, by_table(costs), beam=1)
    assert sorted(costs[walk.take(200)]) == list(range(200))


def test_the_same_twice() -> None:
    graph = cloud(800, 6, 1)
    costs = np.round(np.square(graph.embeddings).sum(axis=1))  # with many ties
    first, second = (Walk(graph, by_table(costs)).take(30).tolist() for _ in range(2))
    assert first == second


def test_a_score_that_is_none_is_refused() -> None:
    graph = cloud(30, 3, 0)
    for score in (
        lambda rows: np.full(len(rows), np.nan),
        lambda rows: np.zeros(len(rows) + 1),
        lambda rows: np.zeros((len(rows), 1)),
    ):
        with pytest.raises(InputError, match="as many numbers"):
            Walk(graph, score).take(1)
    for numbers in ({"beam": 0}, {"width": 0}):
        with pytest.raises(InputError, match="at least 1"):
            Walk(graph, by_table(np.zeros(30)), **numbers)
    with pytest.raises(InputError, match="negative"):
        Walk(graph, by_table(np.zeros(30))).take(-1)


def walking(space: Any, pool: Pool, **more: Any) -> GraphWalk:
    graph = build_graph(pool, np.stack([space.encode(config, W) for config in pool]))
    costs = np.array([smooth_cost(W, config) for config in pool])
    return GraphWalk(space, W, np.random.default_rng(0), graph=graph, score=by_table(costs), **more)


def test_the_strategy_proposes_the_best_of_the_pool_in_order() -> None:
    pool = Pool.sample(WIDE, [W], 1500, np.random.default_rng(0))
    ranked = sorted(pool, key=lambda config: smooth_cost(W, config))
    strategy = walking(WIDE, pool, seeds=[ranked[2]])
    assert strategy.ask(4) == [ranked[2], ranked[0], ranked[1], ranked[3]]
    strategy.tell(ranked[4:6], [1.0, 1.0])
    assert strategy.ask(2) == ranked[6:8]
    assert strategy.walk.evaluated < 1000


def test_the_strategy_proposes_what_its_workload_allows() -> None:
    small: Any = ToyWorkload("small", sizes={"i": 4, "k": 4, "j": 16})
    pool = Pool.sample(GARDEN, [W, small], 60, np.random.default_rng(0))  # each is an entry point
    graph = build_graph(pool, np.stack([GARDEN.encode(config, W) for config in pool]))
    costs = np.array([smooth_cost(W, config) for config in pool])
    strategy = GraphWalk(GARDEN, small, np.random.default_rng(0), graph=graph, score=by_table(costs))
    allowed = [config for config in pool if GARDEN.why_not(config, small) is None]
    assert 20 < len(allowed) < 50
    assert strategy.ask(len(allowed)) == sorted(allowed, key=lambda config: smooth_cost(W, config))
    assert not set(strategy.ask(5)) & set(pool)  # from here on by chance


def test_a_graph_of_an_older_table_is_walked_all_the_same() -> None:
    """A Param more takes its default; of a Param less there are fewer different configs, each proposed once."""
    pool = Pool.sample(GARDEN, [W], 60, np.random.default_rng(0))
    costs = np.array([smooth_cost(W, config) for config in pool])
    graph = build_graph(pool, np.stack([GARDEN.encode(config, W) for config in pool]))
    ranked = [pool[row] for row in np.argsort(costs, kind="stable").tolist()]
    warp = Flag("warp", binds="call", doc="A parameter that the pool does not have.")
    for params in ((*GARDEN.params, warp), tuple(p for p in GARDEN.params if p.name != "lanes")):
        space = replace(GARDEN, params=params)
        strategy = GraphWalk(space, W, np.random.default_rng(0), graph=graph, score=by_table(costs))
        kept = [{name: one[name] for name in space.by_name if name in one} for one in ranked]
        expected = list(
            dict.fromkeys(Config({**one, "warp": False} if warp in params else one) for one in kept)
        )
        assert strategy.ask(len(expected)) == expected
        assert all(space.why_not(config, W) is None for config in expected)


def test_a_graph_of_another_space_is_refused() -> None:
    pool = Pool.of(TINY.enumerate(W))
    graph = build_graph(pool, np.stack([TINY.encode(config, W) for config in pool]))
    with pytest.raises(InputError, match="of another space"):
        GraphWalk(GARDEN, W, np.random.default_rng(0), graph=graph, score=by_table(np.zeros(24)))
