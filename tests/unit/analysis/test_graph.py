"""Numbers of graphs, by hand and against SciPy's shortest paths."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import shortest_path

from tensorwise.analysis import graph as module
from tensorwise.analysis.graph import GraphPattern, distances, distances_plain
from tensorwise.errors import CompilerError, InputError
from tensorwise.tensor.convert import entries_from


def numbers(adjacency: object) -> dict[str, float]:
    pattern = GraphPattern()
    values = pattern.features(entries_from(adjacency))
    assert values.dtype == np.float32
    assert np.isfinite(values).all()
    assert list(pattern.units) == [field.name for field in pattern.fields]
    return dict(zip(pattern.units, values.tolist(), strict=True))


def random_graph(seed: int, nodes: int = 60) -> sp.csr_array:
    return sp.random_array((nodes, nodes), density=0.03, rng=np.random.default_rng(seed), format="csr")


def test_a_star_by_hand() -> None:
    """Node 0 points at the four others."""
    star = sp.csr_array((np.ones(4), ([0] * 4, [1, 2, 3, 4])), shape=(5, 5))
    found = numbers(star)
    assert (found["nodes"], found["edges"], found["size"]) == (5, 4, 9)
    assert found["density"] == pytest.approx(0.8)
    assert found["diameter"] == 1
    assert [found[f"out.q{q}"] for q in (25, 50, 75)] == [0, 0, 0]
    assert [found[f"in.q{q}"] for q in (25, 50, 75)] == [1, 1, 1]


def test_a_ring_has_long_paths() -> None:
    ring = sp.csr_array(np.roll(np.eye(100), 1, axis=1))
    found = numbers(ring)
    assert 50 <= found["diameter"] <= 99
    assert found == numbers(ring), "the same every time"


def test_a_graph_without_edges_and_one_without_nodes() -> None:
    assert numbers(sp.csr_array((7, 7)))["diameter"] == 0
    assert set(numbers(sp.csr_array((0, 0))).values()) == {0.0}


@pytest.mark.parametrize("seed", range(5))
def test_distances_are_scipys(seed: int) -> None:
    graph = random_graph(seed)
    every = shortest_path(graph, unweighted=True)
    expected = np.where(np.isfinite(every), every, -1).astype(int)
    pointers, targets = graph.indptr.astype(np.int32), graph.indices.astype(np.int32)
    for source in range(0, graph.shape[0], 7):
        for found in (distances(pointers, targets, source), distances_plain(pointers, targets, source)):
            assert found.tolist() == expected[source].tolist()


def test_without_a_compiler_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise CompilerError("none here")

    graph = random_graph(9)
    compiled = numbers(graph)
    monkeypatch.setattr(module.WALKING, "load", none)
    assert numbers(graph) == compiled


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(InputError, match="square"):
        GraphPattern().features(entries_from(sp.csr_array((3, 4))))
