"""The published sensitivities: graphs are what their names say, and figures are judged as the README says."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from sensitivities.graphs import kronecker, mesh, mycielskian
from sensitivities.runs import Run, bypassing, machine, planned, simulate
from sensitivities.table import lines

from tensorwise.tensor.entries import Entries

HERE = Path(__file__).parents[3] / "experiments" / "spade-calibration"
VALUES = tomllib.loads((HERE / "values.toml").read_text())
EXPECTED = json.loads((HERE / "expected.json").read_text())


def dense(entries: Entries) -> np.ndarray:
    return entries.to_scipy().toarray()


def is_canonical(entries: Entries) -> bool:
    rows, columns = (array.astype(np.int64) for array in entries.coordinates)
    keys = rows * entries.shape[1] + columns
    return bool((np.diff(keys) > 0).all()) and bool((dense(entries) == dense(entries).T).all())


def test_mycielskians() -> None:
    """The second is K2, the third the pentagon, the fourth the Groetzsch graph: 11 nodes, 20 edges, no triangle."""
    assert dense(mycielskian(2)).tolist() == [[0, 1], [1, 0]]
    pentagon, groetzsch = dense(mycielskian(3)), dense(mycielskian(4))
    assert pentagon.sum(axis=0).tolist() == [2] * 5
    assert (groetzsch.shape, groetzsch.sum()) == ((11, 11), 40)
    assert np.trace(groetzsch @ groetzsch @ groetzsch) == 0
    assert is_canonical(mycielskian(6))
    eighth = mycielskian(8)  # SuiteSparse's has 191 nodes and 4,720 entries
    assert (eighth.shape[0], eighth.nnz) == (191, 4720)


def test_kronecker_graphs_are_simple_and_have_hubs() -> None:
    entries = kronecker(9)
    assert is_canonical(entries)
    assert np.trace(dense(entries)) == 0
    degrees = np.sort(dense(entries).sum(axis=0))
    assert degrees[-1] > 5 * np.median(degrees)
    assert kronecker(9).pattern_id == entries.pattern_id != kronecker(9, seed=1).pattern_id


def test_points_of_a_mesh_have_18_neighbours_inside() -> None:
    entries = mesh((4, 5, 6))
    assert is_canonical(entries)
    assert sorted(set(np.diff(entries.row_pointers()).tolist()))[-1] == 18
    assert np.diff(entries.row_pointers())[0] == 6  # a corner


def test_all_that_is_planned_can_run() -> None:
    runs = list(planned(VALUES))
    small = mesh((4, 5, 6))
    for run in {
        (run.machine, run.kernel, run.width, run.row_panel, run.column_panel): run for run in runs
    }.values():
        assert simulate(run, small, VALUES)["entries"] == small.nnz
    assert machine("isca/8", VALUES).elements == 28


def told(seconds: dict[str, float]) -> dict[str, Any]:
    """Results in which every run takes 1 s, but for those named."""
    counted = {"read_lines": 1.6e9, "written_lines": 0, "entries": 1e9}
    runs = [run.name for run in planned(VALUES)]
    found: dict[str, Any] = {name: {"seconds": seconds.get(name, 1.0), **counted} for name in runs}
    for _, past in bypassing(VALUES, found):
        found[past.name] = {"seconds": seconds.get(past.name, 1.0), **counted}
    return found


def test_changes_are_judged_by_sign_and_size() -> None:
    plain = Run("KRO/8", "isca/8", "spmm", 128, 256, 16384)
    barrier = Run("KRO/8", "isca/8", "spmm", 128, 256, 16384, True)

    def judged(seconds: float) -> tuple[bool, float]:
        results = told({barrier.name: seconds, plain.name: 1.0})
        (line,) = (line for line in lines(VALUES, EXPECTED, results) if line.what == "barrier, spmm 128, KRO")
        return line.holds, line.ours

    assert judged(0.63) == (True, -37.0)  # as published
    assert judged(0.85) == (True, -15.0)  # less, but not by a factor of three
    assert judged(0.95) == (False, -5.0)
    assert judged(1.37) == (False, 37.0)


def test_figures_of_the_table_are_the_published_ones() -> None:
    found = {line.what: line for line in lines(VALUES, EXPECTED, told({}))}
    assert found["ms of HotTiles, MYC"].published == 108.6
    assert found["ms of HotTiles, MYC"].ours == 1000
    assert not found["ms of HotTiles, MYC"].holds
    assert found["lines an entry, hottiles-16"].holds
    assert sum(what.startswith("panels") for what in found) == 18
    assert sum(what.startswith("bypass") for what in found) == 13
    assert sum(what.startswith("barrier") for what in found) == 12
