"""ConfigGraph: built, kept, read back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.search.building import build_graph
from tensorwise.search.graph import GRAPH, ConfigGraph
from tensorwise.search.pool import Pool
from tests.contract.toys import GARDEN, ToyWorkload

W: Any = ToyWorkload()
ARRAYS = ("embeddings", "starts", "links", "entry_points")


@pytest.fixture(scope="module")
def graph() -> ConfigGraph:
    pool = Pool.sample(GARDEN, [W], 120, np.random.default_rng(0))
    embeddings = np.stack([GARDEN.encode(config, W) for config in pool])
    return build_graph(pool, embeddings, neighbours=4, entries=6)


def test_neighbours_come_once_and_in_order(graph: ConfigGraph) -> None:
    both = graph.neighbours(np.array([3, 5]))
    each = [graph.neighbours(np.array([row])) for row in (3, 5)]
    assert both.tolist() == sorted({*each[0].tolist(), *each[1].tolist()})
    assert min(map(len, each)) >= 4
    assert len(graph.neighbours(np.array([], np.int64))) == 0
    assert len(graph.entry_points) == 6


def test_read_back_it_is_the_same(graph: ConfigGraph, tmp_path: Path) -> None:
    graph.save(tmp_path / "deep" / "model")
    graph.save(tmp_path / "deep" / "model")  # again, over itself
    assert sorted(path.name for path in (tmp_path / "deep" / "model").iterdir()) == sorted(GRAPH.files)
    again = ConfigGraph.load(tmp_path / "deep" / "model")
    assert list(again.pool) == list(graph.pool)
    for name in ARRAYS:
        one, other = getattr(graph, name), getattr(again, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_no_config_at_all_can_be_kept_too(tmp_path: Path) -> None:
    build_graph(Pool.of([]), np.empty((0, 8), np.float32)).save(tmp_path)
    assert len(ConfigGraph.load(tmp_path)) == 0


def test_damaged_files_are_refused(graph: ConfigGraph, tmp_path: Path) -> None:
    graph.save(tmp_path)
    description, arrays = GRAPH.files
    sound = {name: (tmp_path / name).read_bytes() for name in GRAPH.files}
    described = json.loads(sound[description])
    few = {**described["values"], "lanes": described["values"]["lanes"][:1]}
    damages: list[tuple[str, bytes | None]] = [
        (description, None),
        (description, b""),
        (description, b"\x80\x04\x95"),
        (description, b"[" * 5000),
        (description, b"{}"),
        (description, json.dumps({**described, "version": 99}).encode()),
        (description, json.dumps({**described, "kind": "ranking"}).encode()),
        (description, json.dumps({**described, "values": []}).encode()),
        (description, json.dumps({**described, "values": few}).encode()),
        (description, json.dumps({k: v for k, v in described.items() if k != "values"}).encode()),
        (description, sound[description][:-20]),
        (arrays, None),
        (arrays, b""),
        (arrays, sound[arrays][:-1]),
        (arrays, bytes([sound[arrays][0] ^ 1]) + sound[arrays][1:]),
    ]
    for name, data in damages:
        if data is None:
            (tmp_path / name).unlink()
        else:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError):
            ConfigGraph.load(tmp_path)
        (tmp_path / name).write_bytes(sound[name])
    assert len(ConfigGraph.load(tmp_path)) == len(graph)


def test_arrays_that_do_not_go_together_are_refused(graph: ConfigGraph, tmp_path: Path) -> None:
    """As a file could hold whose checksum is right."""
    arrays = {name: getattr(graph, name) for name in ARRAYS}
    n, m = len(graph), len(graph.links)
    nan = graph.embeddings.copy()
    nan[3, 4] = np.nan
    changes: list[dict[str, np.ndarray]] = [
        {"embeddings": graph.embeddings[:-1]},
        {"embeddings": graph.embeddings.astype(np.float64)},
        {"embeddings": nan},
        {"starts": graph.starts[:-1]},
        {"starts": graph.starts.astype(np.int32)},
        {"starts": graph.starts + 1},
        {"starts": np.array([0, *[m + 1] * (n - 1), m])},
        {"links": np.full(m, n, np.int32)},
        {"links": np.full(m, -1, np.int32)},
        {"links": graph.links[:-1]},
        {"links": graph.links.astype(np.int64)},
        {"entry_points": np.array([n])},
        {"entry_points": np.array([-1])},
        {"entry_points": np.array([3, 5, 3])},
        {"entry_points": np.array([], np.int64)},
        {"entry_points": np.array([0.0])},
    ]
    for change in changes:
        with pytest.raises(InputError):
            ConfigGraph(graph.pool, **{**arrays, **change})
    described = {"kind": "configs", "version": 1, "values": graph.pool.to_json()}
    GRAPH.save(tmp_path, described, {"choices": graph.pool.choices, **arrays, "more": graph.links})
    with pytest.raises(InputError, match="damaged"):
        ConfigGraph.load(tmp_path)


def test_embeddings_that_are_none_are_refused(graph: ConfigGraph) -> None:
    for bad in (graph.embeddings[:-1], graph.embeddings[0], np.full_like(graph.embeddings, np.inf)):
        with pytest.raises(InputError, match="finite embedding for each of 120"):
            build_graph(graph.pool, bad)
    for numbers in ({"neighbours": 0}, {"entries": 0}):
        with pytest.raises(InputError, match="at least 1"):
            build_graph(graph.pool, graph.embeddings, **numbers)


def test_a_folder_that_cannot_be_written(graph: ConfigGraph, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="the graph cannot be saved"):
        graph.save(tmp_path / "file")
    with pytest.raises(InputError, match="there is no graph"):
        ConfigGraph.load(tmp_path / "file")


def test_the_old_name_of_building_works() -> None:
    with pytest.warns(DeprecationWarning, match="building"):
        assert len(ConfigGraph.build(Pool.of([]), np.empty((0, 8), np.float32))) == 0
