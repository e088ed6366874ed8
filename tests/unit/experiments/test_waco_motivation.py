"""The experiment on WACO's motivation: what its tuning spaces freeze, and one small run up to the page."""

import json
import tomllib
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from motivation.page import _case, page
from motivation.spaces import (
    SPACES,
    block_fill,
    class_of,
    factors,
    format_only,
    joint,
    moved,
    schedule_only,
)
from motivation.steps import Settings, Steps, _told

from benchmarks.baselines.fixed_csr import FixedCsr
from benchmarks.corpus import Item
from tensorwise.device.cpu import CpuDevice
from tensorwise.errors import InputError
from tensorwise.lower.program import program_for
from tensorwise.program.workload import Workload, workload
from tensorwise.space.portfolio import portfolio
from tensorwise.tensor.convert import entries_from

HERE = Path(__file__).parents[3] / "experiments" / "waco-motivation"
VALUES = tomllib.loads((HERE / "values.toml").read_text())
EXPECTED = json.loads((HERE / "expected.json").read_text())


def matrix(rows: int, columns: int, seed: int = 0) -> sp.coo_array:
    return sp.random_array(
        (rows, columns), density=min(0.05, 10 / columns), rng=np.random.default_rng(seed), dtype=np.float32
    )


def work(op: str, rows: int = 300, columns: int = 200) -> Workload:
    return workload(op, entries_from(matrix(rows, columns), None), n=None if op == "spmv" else 32)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("op", ["spmv", "spmm", "sddmm"])
def test_every_part_holds_the_default_and_configs_of_the_whole(name: str, op: str) -> None:
    here, rng = work(op), np.random.default_rng(0)
    space, whole = SPACES[name](here), joint(here)
    assert space.default(here) == whole.default(here)
    configs = [space.sample(here, rng) for _ in range(30)]
    assert len(set(configs)) > 5
    for config in [*configs, *portfolio(space, here)]:
        assert whole.why_not(config, here) is None


def test_schedule_only_keeps_csr_and_format_only_the_schedule() -> None:
    here, rng = work("spmm"), np.random.default_rng(0)
    schedules, formats = schedule_only(here), format_only(here)
    default = joint(here).default(here)
    csr = str(joint(here).program(here, default).formats["A"])
    orders = set()
    for _ in range(60):
        config = schedules.sample(here, rng)
        assert str(schedules.program(here, config).formats["A"]) == csr
        config = formats.sample(here, rng)
        assert config["split_j"] == 1
        assert config["tile"] == "j1"
        assert config["vectors"] == default["vectors"]
        assert ("i1", "j1") in pairwise(config["order"])
        orders.add(config["order"])
    assert ("k1", "i1", "j1") in orders  # concordant with a format by columns


def test_a_config_moves_to_another_matrix() -> None:
    here, small = work("spmm"), work("spmm", 20, 20)
    config = joint(here).complete({"split_i": 64, "split_k": 1}, here)
    assert moved(config, here) == (config, [])
    there, changed = moved(config, small)
    assert joint(small).why_not(there, small) is None
    assert there["split_i"] == 8  # the nearest that is allowed
    assert "split_i" in changed
    wide = work("spmm", 20, 70_000)
    short = joint(here).complete({"kind_k1": "C16"}, here)
    there, changed = moved(short, wide)
    assert (there["kind_k1"], changed) == ("C", ["kind_k1"])  # short coordinates do not reach so far


def test_a_config_that_a_rule_forbids_is_refused() -> None:
    here, wide = work("spmv", 200, 60), work("spmv", 5000, 60_000)
    dense = joint(here).complete({"kind_k1": "U"}, here)
    assert dense["kind_k1"] == "U"
    with pytest.raises(InputError, match="work: refused"):
        moved(dense, wide)


def test_turning_a_param_back_takes_along_what_follows() -> None:
    here = work("spmv")
    default = joint(here).default(here)
    config = joint(here).complete({**default, "split_i": 8, "policy": "dynamic", "chunk": 64}, here)
    back, follow = moved(config, here, ["chunk"])
    assert (back["chunk"], back["split_i"], follow) == (32, 8, [])
    back, follow = moved(config, here, ["split_i"])
    assert back["split_i"] == 1
    assert back["chunk"] == 64
    assert "order" in follow
    everything = [name for names in factors(here).values() for name in names]
    assert sorted(everything) == sorted(joint(here).by_name)
    assert moved(config, here, everything)[0] == default


def test_blocks_are_told_by_how_full_they_are() -> None:
    dense = sp.kron(matrix(50, 40), np.ones((4, 4), np.float32), format="csr")
    full = workload("spmv", entries_from(dense, None))
    blocks = {"split_i": 4, "split_k": 4}
    config = joint(full).complete(blocks, full)
    assert block_fill(config, full) == 1.0
    assert class_of("blocks", config, full) == "Dense block > 50 % filled"
    thin = work("spmv", 200, 160)
    config = joint(thin).complete(blocks, thin)
    assert class_of("blocks", config, thin) == "Dense block < 50 % filled"
    config = joint(thin).complete({"split_k": 64, "kind_k0": "C"}, thin)
    assert class_of("blocks", config, thin) == "Sparse block"


def test_both_parts_of_a_hybrid_reach_the_page() -> None:
    program = program_for(
        work("spmm"), "(i,k) -> U(i) C(k); rows>5: (i,k) -> C(i) C(k)", "parallel(i,dynamic,32); "
    )
    told = _told(program)
    bounds = [1.0, 1.0, 1.0]
    run = {
        **told,
        "shape": [300, 200],
        "nonzeros": 9,
        "longest_row": 7,
        "empty_rows": 1,
        "speedup": {base: {"best": bounds} for base in ("fixed_csr", "default")},
        "config": "{}",
        "loss": {},
    }
    text = _case("x", ("spmm", "m"), run, "")
    assert "rows&gt;5" in text
    assert text.count("C(i) C(k)") == 2  # in the format's text and above the loops of the part set apart


@pytest.mark.skipif(not FixedCsr.installed(), reason="Fixed CSR is compiled with gcc")
def test_from_the_search_to_the_page(tmp_path: Path) -> None:
    items = {}
    for seed, name in enumerate(("<a>", "b")):
        path = tmp_path / f"{seed}.mtx"
        scipy.io.mmwrite(path, matrix(150, 120 + seed, seed))
        items[name] = Item(name, path, 2, 900, True, "made")
    values = {
        **VALUES,
        "motivation": {"pli": "<a>", "TSOPF": "b"},
        "sources": {"ops": ["spmm", "spmv"], "matrices": ["b"]},
        "case_studies": {"mip1_3": {"op": "spmm", "matrix": "b"}},
    }
    settings = Settings(16, 3, (0,), 3, 0.2, 3, 0.2, 1)
    runs: dict = {}
    with CpuDevice(1) as device:
        steps = Steps(device, items, settings).planned(values, ["spmm", "spmv"])
        for key, step in steps.items():
            runs[key] = step(runs)
    compared = runs["compare spmm <a>"]
    assert compared["failed"] == {}
    assert compared["seconds"].keys() == {"fixed_csr", "default", *SPACES, "opt b"}
    assert compared["loss"]["joint"] == [1.0, 1.0, 1.0]
    sources = runs["sources spmv b"]
    assert all(low <= median <= high for median, low, high in sources["loss"].values())
    held = {"runs": runs | {"search x": {"error": "<gone>"}}, "machine": {}, "settings": asdict(settings)}
    text = page(json.loads(json.dumps(held)), values, EXPECTED)
    assert "&lt;a&gt;" in text
    assert "<a>" not in text
    assert "search x: &lt;gone&gt;" in text
    assert "theirs 2.02x" in text
    assert "for i" in text  # the loops of the case study
