"""Versions of MLCD's functions agree, inputs keep within their ranges, and the choice is judged on what it has not seen."""

import itertools
import json
import os
import subprocess
import sys
import threading
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from selections import (
    gemm,
    gpu,
    graphs,
    judging,
    laid_out,
    motifs,
    nbody,
    networks,
    page,
    pagerank,
    placing,
    products_gpu,
    rivals,
    stages,
    table,
    threads,
)

from tensorwise.device.versions import VersionsDevice, difference
from tensorwise.errors import CompilerError, InputError
from tensorwise.model.cases import Cases, features_of
from tensorwise.model.choosing import TreeModel
from tensorwise.plan.graph import Link, Network
from tensorwise.space.config import Config
from tensorwise.store.parquet import read_records, write_records
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tensorwise.toolchain.compiler import find_compiler
from tests.simt.gpu import COMPILER, ShimGpu

FOLDER = Path(__file__).parents[3] / "experiments" / "mlcd"
VALUES = tomllib.loads((FOLDER / "values.toml").read_text())
REAL_GRAPHS = graphs.real_graphs
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.fixture(scope="module", autouse=True)
def _needs_a_compiler() -> None:
    try:
        find_compiler()
    except CompilerError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _without_a_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "real_graphs", lambda most=None: {})


# -- GEMM ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k", "sparsity"),
    [
        (1, 1, 1, 0.0),
        (2, 3, 5, 0.6),
        (37, 300, 141, 0.9),
        (9, 261, 129, 0.5),
        (130, 2, 400, 0.995),
        (8, 12, 9, 1.0),
    ],
)
def test_all_products_agree(m: int, n: int, k: int, sparsity: float, relu: bool) -> None:
    (one,) = gemm.make(relu, m, n, k, sparsity)
    a, _, b, _ = one.operands
    expected = a.toarray().astype(np.float64) @ b
    expected = (np.maximum(expected, 0) if relu else expected).astype(np.float32)
    selection = table.selection("gemm-relu" if relu else "gemm", VALUES["scaled"])
    for version in selection.space.versions:
        assert difference(version.whole(one), expected) is None, version.name
    assert a.nnz == m * k - round(sparsity * m * k)


def test_products_without_room_for_a_dense_operand_have_sparse_versions_only() -> None:
    a, b = (
        sp.random_array((30, 20), density=0.2, dtype=np.float32, format="csr"),
        np.ones((20, 4), np.float32),
    )
    one = gemm.lay_out(a, b, 0.8, False, dense=False)
    assert np.allclose(one.run("own sparse"), a @ b, atol=1e-5)
    with pytest.raises(MemoryError, match="blas is not tried"):
        one.run("blas")


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("name", "k"), [("gemm-relu", 0), ("pagerank", 0), ("nbody", 0), ("kmotif", 3), ("kmotif", 4)]
)
def test_versions_of_a_gpu_move_operands(name: str, k: int) -> None:
    pytest.importorskip("torch")
    selection = table.selection(name, VALUES["scaled"])
    known = len(selection.space.versions)
    if name == "pagerank":
        gpu.add_ranks(selection, pagerank.DAMPING, pagerank.TOLERANCE, device="cpu")
        one = pagerank.lay_out(graphs.graph("rmat", 300, 3.0, 0))
    elif name == "nbody":
        gpu.add_simulation(selection, nbody.GRAVITY, nbody.SOFTENING, device="cpu")
        (one,) = nbody.make(**numbers(gpu.TILE + 100))
    elif name == "kmotif":
        gpu.add_counts(selection, motifs.induced, device="cpu")
        one = motifs.lay_out(graphs.undirected(graphs.graph("rmat", 300, 6.0, 0)), k)
    else:
        gpu.add_products(selection, device="cpu")
        (one,) = gemm.make(True, 20, 30, 40, 0.9)
    expected = one.run(selection.space.versions[0].name)
    agree = selection.agree or difference
    added = (
        selection.space.versions[known:] or selection.space.versions[-1:]
    )  # with a GPU they replace its own
    for version in added:
        assert (version.device, version.moves) == ("gpu", True)
        assert agree(version.whole(one), expected) is None, version.name


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("relu", [False, True])
def test_the_naive_product_of_a_gpu_agrees(tmp_path: Path, relu: bool) -> None:
    selection = table.selection("gemm-relu" if relu else "gemm", VALUES["scaled"])
    products_gpu.add_naive(selection, ShimGpu(tmp_path))
    (one,) = gemm.make(relu, 37, 50, 20, 0.5)
    found = selection.space.versions[-1].whole(one)
    assert difference(found, one.run("rows")) is None
    (a, _, b, relu_) = one.operands
    with pytest.raises(MemoryError, match="no dense form"):
        selection.space.versions[-1].whole(gemm.lay_out(a, b, 0.5, relu_, dense=False))


def test_tiles_in_triton_agree() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    # Triton interprets what is decorated while the variable is set, also what it brings along: a process of its own
    done = subprocess.run(
        [sys.executable, "-c", TILES],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{FOLDER}{os.pathsep}{FOLDER.parents[1]}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


TILES = """
import numpy as np, torch
from selections.triton_tiles import product

rng = np.random.default_rng(0)
for m, k, n in ((70, 100, 40), (5, 3, 200)):
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n)))
    for relu in (False, True):
        expected = np.maximum(a @ b, 0) if relu else a @ b
        np.testing.assert_allclose(product(*map(torch.from_numpy, (a, b)), relu), expected, rtol=1e-4, atol=1e-4)
"""


def test_products_keep_within_their_ranges() -> None:
    rng, ranges = np.random.default_rng(0), VALUES["scaled"]["gemm"]
    for _ in range(300):
        one = gemm.inputs(ranges, rng)
        assert one["terms"] == one["m"] * one["n"] * one["k"] <= ranges["most_terms"]
        assert min(one["m"], one["n"], one["k"]) >= 2
        assert one["sparsity"] in ranges["sparsities"]
        assert one["cell"] == f"{one['m']} {one['n']} {one['k']}"
        square = gemm.nearby(ranges, rng)
        assert square["m"] == square["n"] == square["k"] <= ranges["most_nearby"]
    rows = gemm.sizes(VALUES["full"]["gemm"]["most_rows"]), gemm.sizes(VALUES["full"]["gemm"]["most_others"])
    assert [len(some) for some in rows] == [21, 24]


# -- graphs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", graphs.KINDS)
def test_graphs_are_of_the_size_asked_for_and_have_no_loops(kind: str) -> None:
    made = graphs.graph(kind, 500, 4.0, 1)
    assert made.shape == (500, 500)
    assert not made.diagonal().any()
    assert 0.8 * 2000 < made.nnz <= 2000
    assert (made.data == 1).all()
    assert abs(made - graphs.graph(kind, 500, 4.0, 1)).nnz == 0
    assert abs(made - graphs.graph(kind, 500, 4.0, 2)).nnz > 0


def test_graphs_of_some_kinds_have_hubs_and_of_others_are_wide() -> None:
    most, diameter = {}, {}
    for kind in graphs.KINDS:
        made = graphs.undirected(graphs.graph(kind, 2000, 4.0, 0))
        most[kind], diameter[kind] = np.diff(made.indptr).max(), pagerank.described(made)[0]["diameter"]
    assert min(most["rmat"], most["barabasi-albert"]) > 2 * max(most["erdos-renyi"], most["small-world"])
    assert diameter["small-world"] > diameter["barabasi-albert"]


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ({"kind": "star", "nodes": 9, "ratio": 1.0}, "no kind of graph 'star'; there are rmat"),
        ({"kind": "rmat", "nodes": 1, "ratio": 1.0}, "two nodes and some edges, got 1"),
    ],
)
def test_bad_graphs_are_refused(of: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        graphs.graph(**of)


def test_real_graphs_are_patterns_of_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ring.mtx").write_text(
        "%%MatrixMarket matrix coordinate pattern general\n3 3 4\n1 2\n2 3\n3 1\n2 2\n"
    )
    rows = ["name,file,group,order,dims,nnz", "ring,ring.mtx,road,2,3x3,4", "wide,wide.mtx,lp,2,3x9,4"]
    (tmp_path / "MANIFEST.csv").write_text("\n".join(rows) + "\n")
    monkeypatch.setenv("TENSORWISE_CORPUS", str(tmp_path))
    monkeypatch.setattr(graphs, "real_graphs", REAL_GRAPHS.__wrapped__)
    assert graphs.real_graphs() == {"ring": ("ring.mtx", "road")}
    assert graphs.real_graphs(3) == {}
    assert graphs.graph(graphs.CORPUS, name="ring").toarray().tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    drawn = graphs.drawn({"most_real": None, "share_real": 1.0}, 2.0, np.random.default_rng(0))
    assert drawn == {"kind": "corpus", "name": "ring", "cell": "corpus road"}


# -- PageRank --------------------------------------------------------------------------------------------


def ranks(a: sp.csr_array) -> np.ndarray:
    """PageRank by solving its equations; the rank of nodes without edges is spread evenly."""
    nodes = a.shape[0]
    degrees = np.diff(a.indptr)
    follow = a.toarray().T / np.maximum(degrees, 1) + (degrees == 0) / nodes
    return np.linalg.solve(np.eye(nodes) - 0.85 * follow, np.full(nodes, 0.15 / nodes))


@pytest.mark.parametrize(("kind", "ratio"), [*itertools.product(graphs.KINDS, (1.5, 12.0))])
def test_all_ranks_agree(kind: str, ratio: float) -> None:
    a = graphs.graph(kind, 300, ratio, 0)
    one, expected = pagerank.lay_out(a), ranks(a)
    for version in pagerank.VERSIONS:
        assert np.abs(one.run(version) - expected).sum() < 5e-5, version
        assert pagerank.agree(one.run(version), expected) is None
    assert len(one.features) == len(pagerank.pagerank("pagerank", {}).units)


@pytest.mark.parametrize("library", pagerank.LIBRARIES)
def test_libraries_agree(library: str) -> None:
    pytest.importorskip(library)
    a = graphs.graph("rmat", 200, 3.0, 0)
    one = pagerank.lay_out(a, libraries=True)
    assert pagerank.agree(one.run(library), one.run("pull")) is None


def test_ranks_of_graphs_without_edges_are_all_the_same() -> None:
    one = pagerank.lay_out(sp.csr_array((4, 4), dtype=np.float32))
    for version in pagerank.VERSIONS:
        assert one.run(version) == pytest.approx(0.25), version


def test_ranks_that_differ_are_told_and_bad_graphs_refused() -> None:
    assert "off by 0.001 in all" in str(pagerank.agree(np.array([0.501, 0.5]), np.array([0.5, 0.5])))
    with pytest.raises(InputError, match=r"square adjacency matrix, got shape \(2, 3\)"):
        pagerank.lay_out(sp.csr_array(np.ones((2, 3), np.float32)))


# -- bodies ----------------------------------------------------------------------------------------------


def numbers(
    bodies: int, position: float = 1.0, mass: float = 1.0, dt: float = 1e-4, steps: int = 3
) -> dict[str, float]:
    return {"bodies": bodies, "velocity": 1.0, "position": position, "mass": mass, "dt": dt, "steps": steps}


@pytest.mark.parametrize(
    ("bodies", "position", "mass"),
    [(1, 1.0, 1.0), (2, 1e5, 1e-5), (37, 1e-5, 1e5), (700, 1.0, 1e5), (1300, 1e5, 1.0)],
)
def test_all_simulations_agree(bodies: int, position: float, mass: float) -> None:
    (one,) = nbody.make(**numbers(bodies, position, mass))
    rng = np.random.default_rng(bodies)
    state = 1 + np.repeat([position, 1.0, mass], [3, 3, 1])[:, None] * rng.normal(size=(7, bodies))
    state[6] = abs(state[6])
    x, v, m = state[:3].astype(np.float32).astype(float), state[3:6], state[6]
    firsts = []
    for _ in range(3):
        apart = x[:, None, :] - x[:, :, None]
        pull = nbody.GRAVITY * m * apart / ((apart**2).sum(0) + nbody.SOFTENING**2) ** 1.5
        firsts.append(pull.sum(-1))
        v = v + 1e-4 * firsts[-1]
        x = x + 1e-4 * v
    expected, first = np.concatenate([x, firsts[0]]), firsts[0]
    for version in [name for name in nbody.VERSIONS if name != "naive" or bodies <= nbody.MOST_NAIVE]:
        result = one.run(version)
        assert nbody.agree(result, expected) is None, version
        assert np.allclose(result[:3], x, atol=1e-4 * position + 1e-6, rtol=1e-5), version
        if not version.startswith("barnes"):
            scale = np.sqrt(np.square(first).mean())
            assert np.allclose(result[3:], first, atol=1e-4 * scale, rtol=1e-3), version


def test_simulations_that_differ_are_told() -> None:
    good = np.ones((6, 5))
    assert "off by 100.00%" in str(nbody.agree(2 * good, good))
    assert nbody.agree(np.full((6, 5), np.nan), good) == "not all is finite"


def test_bad_bodies_are_refused() -> None:
    heavy = np.ones((7, 3), np.float32)
    with pytest.raises(InputError, match="needs a step, got 0"):
        nbody.lay_out(heavy, numbers(3, steps=0))
    heavy[6, 1] = -1
    with pytest.raises(InputError, match="no negative mass"):
        nbody.lay_out(heavy, numbers(3))


def test_simulations_keep_within_their_ranges() -> None:
    rng, ranges = np.random.default_rng(0), VALUES["scaled"]["nbody"]
    for _ in range(200):
        one = nbody.inputs(ranges, rng)
        assert one["bodies"] ** 2 * one["steps"] <= ranges["most_pairs"]
        assert list(one)[:-1] == list(nbody.UNITS)


# -- motifs ----------------------------------------------------------------------------------------------

DEGREES = {
    3: [(1, 1, 2), (2, 2, 2)],
    4: [(1, 1, 2, 2), (1, 1, 1, 3), (2, 2, 2, 2), (1, 2, 2, 3), (2, 2, 3, 3), (3, 3, 3, 3)],
}


def brute(a: sp.csr_array, k: int) -> list[int]:
    """Count motifs by looking at all sets of k nodes: degrees tell the connected ones apart."""
    dense, found = a.toarray() > 0, dict.fromkeys(DEGREES[k], 0)
    for nodes in itertools.combinations(range(len(dense)), k):
        degrees = tuple(sorted(dense[np.ix_(nodes, nodes)].sum(1).tolist()))
        if degrees in found:
            found[degrees] += 1
    return list(found.values())


@pytest.mark.parametrize("k", [3, 4])
@pytest.mark.parametrize(("kind", "ratio"), [*itertools.product(graphs.KINDS, (1.0, 6.0))])
def test_all_counts_are_exact(kind: str, ratio: float, k: int) -> None:
    a = graphs.undirected(graphs.graph(kind, 18, ratio, 0))
    one = motifs.lay_out(a, k)
    for version in motifs.VERSIONS:
        assert one.run(version).tolist() == brute(a, k), version


@pytest.mark.parametrize(("kind", "nodes", "ratio"), [("rmat", 700, 9.0), ("erdos-renyi", 130, 20.0)])
def test_counts_of_larger_graphs_are_the_same(kind: str, nodes: int, ratio: float) -> None:
    one = motifs.lay_out(graphs.undirected(graphs.graph(kind, nodes, ratio, 0)), 4)
    counts = [one.run(version).tolist() for version in motifs.VERSIONS]
    assert all(count == counts[0] for count in counts)
    assert min(counts[0]) > 0


def test_large_graphs_are_not_kept_as_bits() -> None:
    one = motifs.lay_out(graphs.undirected(graphs.graph("small-world", motifs.MOST_BITS + 1, 1.0, 0)), 3)
    with pytest.raises(MemoryError, match="bits is not tried"):
        one.run("bits")


def test_bad_graphs_for_motifs_are_refused() -> None:
    with pytest.raises(InputError, match="of 3 or 4 nodes are counted, not of 5"):
        motifs.lay_out(graphs.undirected(graphs.graph("rmat", 9, 1.0, 0)), 5)
    with pytest.raises(InputError, match="each edge both ways"):
        motifs.lay_out(sp.csr_array(np.array([[0, 1], [0, 0]], np.float32)), 3)


# -- inputs, choices and pages ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", table.BENCHMARKS)
def test_inputs_can_be_made_and_have_all_features(name: str) -> None:
    selection = table.selection(name, VALUES["scaled"])
    ranges = {**VALUES["scaled"]["pagerank"], "most_power": 10}
    small = {
        "gemm": {"most_rows": 30, "most_others": 30, "most_nearby": 50}, "pagerank": ranges,
        "nbody": {"most_bodies": 20}, "kmotif": {**ranges, "least_power": 9},
    }  # fmt: skip
    key = name.partition("-")[0]
    selection = table.selection(name, {key: {**VALUES["scaled"][key], **small[key]}})
    model = selection.train(samples=2, store=False)
    assert sorted(model.fields) == sorted(selection.units)
    assert model.card["inputs"] == 2
    assert not model.card["notes"]
    assert table.described_s(selection, 3) > 0


def cases(count: int, rng: np.random.Generator) -> Cases:
    """Two versions whose border is a wave, which a few inputs do not show, and cells of four inputs."""
    points = rng.uniform(1, 10, (count, 2))
    took = np.column_stack([points[:, 0] + 0.2, points[:, 1] + 2 * np.sin(2 * points[:, 0])])
    seconds = np.maximum(took, 0.2) * 1e-3
    configs = tuple(Config({"version": name}) for name in ("a", "b"))
    return Cases(("m", "n"), configs, points, seconds, tuple(str(place // 4) for place in range(count)))


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    pytest.importorskip("sklearn")
    settings = {**VALUES["settings"], "seeds": 1}
    return judging.judged(cases(800, np.random.default_rng(0)), settings, initial=100)


def test_choices_are_judged_on_cells_that_were_not_seen(found: dict[str, Any]) -> None:
    assert found["known"] + found["outer"]["inputs"] == 800
    assert found["known"] == found["cross-validation"]["inputs"] == 640
    assert 0.95 < found["outer"]["pois"] < 1
    assert found["shares"]["a"] + found["shares"]["b"] == 1


def test_active_learning_needs_fewer_inputs(found: dict[str, Any]) -> None:
    assert found["goal"] == found["outer"]["ppp"] + VALUES["settings"]["within"]
    assert found["needed"]["active"] < found["needed"]["at random"]
    assert found["curves"]["at random"][-1] == [640, pytest.approx(found["outer"]["ppp"], abs=0.01)]


def test_stages_go_on_where_they_were_stopped_and_judge_what_is_complete(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("pyarrow")
    few = {"folds": 3, "seeds": 1, "outer": 3}
    ranges = {"nbody": {**VALUES["scaled"]["nbody"], "most_bodies": 20}}
    values = {**VALUES, "settings": {**VALUES["settings"], **few}, "scaled": ranges}
    options = {"full": False, "samples": 12, "libraries": False, "judge": False}

    def stage(budget_s: float) -> str:
        return stages.benchmark("nbody", tmp_path / "nbody", values, budget_s=budget_s, **options)

    told = stage(0.02)
    known = len(list(read_records(tmp_path / "nbody.parquet"))) // len(nbody.VERSIONS)
    assert told == f"nbody: {known} of 12 inputs are measured"
    assert known < 12
    assert stage(60.0) == "nbody: judged by 12 inputs"
    at_other_times = list(read_records(tmp_path / "nbody-again.parquet"))
    assert len(at_other_times) == 12 * len(nbody.VERSIONS)
    exported = list(read_records(tmp_path / "nbody.parquet"))
    assert len(exported) == 12 * len(nbody.VERSIONS)
    assert all(record.ok for record in exported)
    (tmp_path / "nbody.sqlite").unlink()  # a fresh checkout has exports only
    assert stage(60.0) == "nbody: done"
    assert list(read_records(tmp_path / "nbody.parquet")) == exported
    held = json.loads((tmp_path / "nbody.json").read_text())
    assert (held["measured"], held["benchmark"]) == (12, "nbody")
    assert held["again"]["inputs"] == 12
    assert 0 < held["again"]["pois"] <= 1
    assert judging.repeated(exported, exported[::-1])["pois"] == 1
    assert TreeModel.load(tmp_path / "nbody").fields == tuple(sorted(nbody.UNITS))
    assert "<svg" in page.page(tmp_path, EXPECTED)

    (tmp_path / "nbody.sqlite").unlink()
    write_records(tmp_path / "nbody.parquet", [replace(record, device_id="other") for record in exported])
    with pytest.raises(InputError, match="another machine"):
        stage(60.0)


def test_networks_wait_for_the_tree_and_are_placed_by_it(
    records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    write_records(tmp_path / "gnn.parquet", records)
    known = {f"{kind} small": networks.network(kind, SMALL, 2, 4) for kind in ("gcn", "graphsage")}
    known["gcn large"] = networks.network("gcn", SMALL, 3, 99)
    monkeypatch.setattr(stages, "drawn", lambda *ranges: known)

    def stage() -> str:
        return stages.networks(tmp_path / "gnn", VALUES, full=False, budget_s=1.0, judge=True)

    assert "waits for" in stage()
    model = TreeModel()
    model.fit(records)
    model.save(tmp_path / "gemm")
    assert stage() == "gnn: 2 of 3 networks are placed"
    held = json.loads((tmp_path / "gnn.json").read_text())
    assert held["links"]["cpu"] == VALUES["link"]
    assert "2 of 3 networks have all of their kernels measured" in page.page(tmp_path, EXPECTED)


def test_figure_7_is_of_gcns_that_differ_in_edges_and_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "DATA", {})  # they are in the corpus
    ranges = VALUES["scaled"]["gnn"]
    swept = networks.swept(ranges)
    assert len(swept) == len(ranges["ratio"]) * len(ranges["features"])
    assert {len(kernels) for kernels in swept.values()} == {2 * 9}
    assert swept.keys() <= networks.drawn(ranges, 1, 0).keys()


def test_links_are_measured() -> None:
    pytest.importorskip("torch")
    there, back = gpu.links(device="cpu") or []
    assert (there.source, there.target, back.source, back.target) == ("cpu", "gpu", "gpu", "cpu")
    assert min(there.bytes_per_s, back.bytes_per_s) > 0


# -- against a tuning compiler ---------------------------------------------------------------------------


def run_of(ratio: float) -> dict[str, Any]:
    """What was found for a shape: TVM takes ``ratio`` times as long, from a sparsity of 95 % on twice that."""
    cases = [
        {"sparsity": s, "version": "rows", "tvm_s": r * 1e-5, "ours_s": 1e-5, "ratio": r, "low": r, "high": r, "note": ""}
        for s, r in ((0.6, ratio), (0.95, 2 * ratio))
    ]  # fmt: skip
    return {"lookup_s": 1e-3, "select_s": 1e-6, "untuned_s": 1e-4, "cases": cases, "note": ""}


def test_shapes_are_those_of_the_paper() -> None:
    assert len(rivals.shapes(VALUES["full"]["tvm"])) == 143
    scaled = rivals.shapes(VALUES["scaled"]["tvm"])
    assert (len(scaled), scaled[0], scaled[-1]) == (23, (26, 26, 26), (986, 986, 26))


def test_ratios_to_the_compiler_are_summed_up(tmp_path: Path) -> None:
    runs = {
        "tune (26, 26, 26)": {"search_s": 30.0, "trials": 32, "ok": 32},
        "tune (26, 26, 130)": {"error": "none"},
    }
    assert rivals.summary(runs, EXPECTED) == ([], None)
    runs |= {"compare (26, 26, 26)": run_of(0.75), "compare (26, 26, 130)": run_of(9.0)}
    found = rivals.figures(runs)
    assert (found["shapes"], found["faster"], found["sparse"]) == (1, 0.5, 1.5)
    assert found["speedup"] == pytest.approx(1.125)
    assert (found["seen"], found["unseen"]) == (pytest.approx(1000), pytest.approx(3e7))
    told, holds = rivals.summary(runs, EXPECTED)
    assert holds
    document = {"runs": runs, "settings": VALUES["scaled"]["tvm"], "summary": told}
    (tmp_path / "tvm.json").write_text(json.dumps(document))
    text = page.page(tmp_path, EXPECTED)
    assert "7.28x" in text
    assert text.count("<svg") == 1
    assert rivals.summary({**runs, "compare (26, 26, 26)": run_of(0.1)}, EXPECTED)[1] is False


def test_the_tree_that_is_compared_has_not_seen_the_shapes() -> None:
    pytest.importorskip("sklearn")
    rng, names = np.random.default_rng(0), sorted(gemm.UNITS)
    drawn = [gemm.inputs(VALUES["scaled"]["gemm"], rng) for _ in range(60)]
    seen = (drawn[0]["m"], drawn[0]["n"], drawn[0]["k"])
    features = np.array([[one[name] for name in names] for one in drawn], float)
    configs = tuple(Config({"version": name}) for name in ("rows", "of another machine", "blocked"))
    seconds = np.full((60, 3), [2e-6, 1e-6, 3e-6])
    seconds[0] = 3e-6, 1e-6, 2e-6  # what only this shape tells
    given = Cases(tuple(names), configs, features, seconds, tuple(one["cell"] for one in drawn))
    function = rivals.chooser(VALUES["scaled"], given, [seen])
    assert function.model is not None
    assert [config["version"] for config in function.model.configs] == ["rows", "blocked"]
    assert (function.model.choose(features) == 0).all()


def test_a_compiler_tunes_a_product_and_is_compared(tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    pytest.importorskip("xgboost")
    from selections import compiler

    on, shape = compiler.device(), (16, 24, 8)
    found = compiler.tuned(shape, tmp_path / "tuned", trials=4, on=on, seed=0)
    assert 0 < found["ok"] <= found["trials"]
    rng = np.random.default_rng(0)
    drawn = [gemm.inputs(VALUES["scaled"]["gemm"], rng) for _ in range(30)]
    names = tuple(sorted(gemm.UNITS))
    features = np.array([[one[name] for name in names] for one in drawn], float)
    configs = tuple(Config({"version": name}) for name in ("rows", "blocked"))
    given = Cases(names, configs, features, np.full((30, 2), [1e-6, 2e-6]), tuple(map(str, range(30))))
    function = rivals.chooser(VALUES["scaled"], given, [shape])
    run = compiler.compared(shape, [0.6, 0.9], tmp_path / "tuned", function, on, rounds=3, budget_s=0.05)
    assert [case["version"] for case in run["cases"]] == ["rows", "rows"]
    assert min(case["tvm_s"] for case in run["cases"]) > 0
    with pytest.raises(InputError, match="nothing was searched yet"):
        compiler.compared(shape, [0.6], tmp_path / "none", function, on, rounds=3, budget_s=0.05)


def test_the_page_shows_what_was_found_and_which_claims_hold(found: dict[str, Any], tmp_path: Path) -> None:
    model = TreeModel()
    model.fit_cases(cases(400, np.random.default_rng(1)))
    model.save(tmp_path / "pagerank")
    (tmp_path / "pagerank.json").write_text(
        json.dumps({"benchmark": "pagerank", "described_s": 2e-3, **found})
    )
    text = page.page(tmp_path, EXPECTED)
    assert "does not hold: 2 versions are fastest on 10%" in text
    assert f"{found['outer']['pois']:.2%}" in text
    assert "1.58x" in text
    assert "from its data takes 2.00 ms, once" in text
    assert text.count("<svg") == 2


def test_laid_out_calls_return_what_the_function_says() -> None:
    counts = np.zeros(5, np.int64)
    triangle = sp.csr_array(np.ones((3, 3)) - np.eye(3))
    arrays = (triangle.indptr.astype(np.int32), triangle.indices.astype(np.int32), counts)
    assert laid_out.compiled("motifs_merge", arrays, (3, 3, 1))() == 0
    assert counts[0] == 1


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_other_threads_are_kept_off_the_first_processor_for_a_while() -> None:
    first, *rest = sorted(os.sched_getaffinity(0))
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        with threads.placed():
            assert os.sched_getaffinity(0) == {first}
            assert os.sched_getaffinity(other.native_id or 0).isdisjoint({first}) == bool(rest)
        assert os.sched_getaffinity(0) == os.sched_getaffinity(other.native_id or 0) == {first, *rest}
    finally:
        over.set()
        other.join()


# -- networks --------------------------------------------------------------------------------------------

GRAPH = {"kind": "rmat", "nodes": 40, "ratio": 2.0, "seed": 0}
SMALL = {"graph": GRAPH, "features": 30}


@pytest.mark.parametrize("kind", ["gcn", "graphsage"])
def test_kernels_of_networks_fit_each_other(kind: str) -> None:
    kernels = networks.network(kind, SMALL, layers=3, hidden=8)
    assert len(kernels) == 6
    shapes = {}
    for kernel in kernels:
        (one,) = networks.make(**kernel.what)
        a, _, b, _ = one.operands
        shapes[kernel.name] = a.shape[0], b.shape[1]
        assert kernel.result_bytes == 4 * a.shape[0] * b.shape[1]
        assert one.run("own sparse").shape == shapes[kernel.name]
        wide = a.shape[1] if kernel.name.startswith("combine") else b.shape[1]
        given = SMALL["features"] if kernel.given_bytes else 0
        assert sum(shapes[name][1] for name in kernel.after) + given == wide
    assert shapes[kernels[-1].name] == (40, networks.CLASSES)
    assert len({kernel.key for kernel in networks.network(kind, SMALL, 9, 8)}) < 18


def test_networks_are_placed_by_what_a_model_says_and_judged_by_what_was_measured() -> None:
    kernels = networks.network("gcn", SMALL, layers=2, hidden=8)
    measured = object.__new__(placing.Measured)
    took = {"own sparse": 1e-3, "gpu": 2e-3}
    measured.took = {kernel.key: dict(took) for kernel in kernels}
    measured._said = {kernel.key: dict(took) for kernel in kernels}
    first = kernels[0].key
    measured.took[first]["gpu"] = measured._said[first]["gpu"] = 1e-5
    network = Network(("cpu", "gpu"), (Link("cpu", "gpu", 1e-5, 1e10), Link("gpu", "cpu", 1e-5, 1e10)))
    devices = {"cpu": ["own sparse"], "gpu": ["gpu"]}
    found = placing.planned(kernels, measured, devices, network)
    assert found["moves"] == ["aggregate 1"]
    assert found["planned_s"] == found["ideal_s"] < min(found["alone_s"].values())
    measured._said[first]["gpu"] = 1.0  # the model is wrong about it
    wrong = placing.planned(kernels, measured, devices, network)
    assert wrong["moves"] == []
    assert wrong["planned_s"] == wrong["alone_s"]["cpu"] > wrong["ideal_s"] == found["ideal_s"]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Of all kernels of two small networks."""
    pytest.importorskip("sklearn")
    store = Store(tmp_path_factory.mktemp("gnn") / "records.sqlite")
    kernels = [k for kind in ("gcn", "graphsage") for k in networks.network(kind, SMALL, layers=2, hidden=4)]
    device = VersionsDevice(networks.kernels_of_networks().space, rounds=1, budget_s=0.01)
    networks.measure(kernels, store=store, device=device)
    return store.query()


def test_kernels_are_measured_once_and_all_networks_judged(records: list[Record]) -> None:
    model = TreeModel()
    model.fit(records)
    measured = placing.Measured(records, model, VALUES["gpu"])
    known = {f"{kind} small": networks.network(kind, SMALL, 2, 4) for kind in ("gcn", "graphsage")}
    assert set(measured.took) == {kernel.key for kernels in known.values() for kernel in kernels}
    assert not measured.has_gpu
    for record in records:
        key = json.dumps(json.loads(str(record.provenance["input"])), sort_keys=True)
        features = [[features_of(record.workload)[field] for field in model.fields]]
        choice = str(model.configs[int(model.choose(np.array(features))[0])]["version"])
        _, took, least = measured.chosen(key, measured.versions(gpu=False))
        assert took == measured.took[key][choice]
        assert least == min(measured.took[key][name] for name in measured.versions(gpu=False))
    slower = [replace(record, seconds=2 * record.seconds) for record in records]
    assert placing.Measured([*records, *slower], model, VALUES["gpu"]).took == measured.took
    ways = [Link("cpu", "gpu", **VALUES["link"]), Link("gpu", "cpu", **VALUES["link"])]
    found = placing.judged(known, measured, ways, ["gcn small"])
    for setting, devices in (("threads", {"all threads", "one thread"}), ("gpu", {"cpu", "gpu"})):
        for kind in ("gcn", "graphsage"):
            assert found[setting][kind]["networks"] == 1
            assert set(found[setting][kind]["speedup"]) == devices
            assert 0 < found[setting][kind]["pois"] <= 1
            assert found[setting][kind]["figure 7 networks"] == (kind == "gcn")


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(InputError, match="combine and aggregate, got 'attend'"):
        networks.make("attend", 3, False)
