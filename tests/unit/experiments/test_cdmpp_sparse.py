"""Sparse kernels as programs: their loops are read once, families are held out, and the page says what came out."""

import json
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.corpus import UnfinishedError
from tensorwise.analysis.ast import LEAVES
from tensorwise.analysis.code import CODE
from tensorwise.analysis.hardware import HARDWARE
from tensorwise.collect.corpus import patterns, read_pattern
from tensorwise.collect.workloads import Workloads
from tensorwise.device.device import Measurement
from tensorwise.device.hardware import Hardware
from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError
from tensorwise.model.programs import Programs, context_of
from tensorwise.program.workload import workload
from tensorwise.space.cpu import cpu_space_of
from tensorwise.store.record import Record
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from latencies import patterned, sparse_steps

pytestmark = pytest.mark.usefixtures("one_torch_thread")
HERE = Path(__file__).parents[3] / "experiments" / "cdmpp-latency"
VALUES: dict[str, Any] = tomllib.loads((HERE / "sparse.toml").read_text())
EXPECTED = json.loads((HERE / "expected.json").read_text())["sparse"]
SMALL = VALUES | {
    "folds": 2, "configs": 6, "members": 1, "training": VALUES["training"] | {"epochs": 2},
    "sizes": VALUES["sizes"] | {"width": 16, "inner": 16, "embedding": 16, "decoder": [16]}, "boosted": {"max_iter": 5},
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(4):
        matrix = sp.random_array((30 + number, 20), density=0.2, rng=number, format="csr", dtype=np.float32)
        write(folder / f"m{number}.mtx", entries_from(matrix))
    return folder


@pytest.fixture(scope="module")
def records(corpus: Path) -> list[Record]:
    """Of each matrix a dozen configs, which take as long as it has entries, with a factor each."""
    found = []
    for number, pattern in enumerate(patterns([corpus])):
        work = workload("spmm", read_pattern(pattern.path), n=8)
        space, rng = cpu_space_of(work), np.random.default_rng(number)
        configs = {config.text: config for config in (space.sample(work, rng) for _ in range(12))}
        for place, config in enumerate(configs.values()):
            measured = Measurement(1e-8 * work.entries.nnz * (1 + place % 3))
            about = {"pattern": pattern.name, "family": f"f{number}", "threads": VALUES["hardware"]["cores"]}
            found.append(Record.of(measured, work, NullDevice(), space.name, config, about))
    return found


@pytest.fixture(scope="module")
def programs(corpus: Path, records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Programs:
    jobs = patterned.chosen(records, "spmm", SMALL)
    folder = tmp_path_factory.mktemp("read")
    works, device = Workloads(patterns([corpus])), Hardware.from_json(SMALL["hardware"])
    with pytest.raises(UnfinishedError, match="0 of 4"):
        patterned.programs_of(jobs, works, device, folder, lambda: False)
    whole = patterned.programs_of(jobs, works, device, folder, lambda: True)
    again = patterned.programs_of(
        jobs, Workloads([]), device, folder, lambda: False
    )  # nothing is read once more
    assert [row.config for row in again] == [row.config for row in whole]
    np.testing.assert_array_equal(again.context, whole.context)
    for one, other in zip(again, whole, strict=True):
        np.testing.assert_array_equal(one.ast.leaves, other.ast.leaves)
    return whole


def test_records_become_programs(programs: Programs, records: list[Record]) -> None:
    assert len(programs) == 4 * SMALL["configs"]
    beside = len(HARDWARE.fields) + len(CODE.fields)
    choices = patterned._reader(str(records[0].workload["einsum"])).own([records[0].config]).shape[1]
    operands = (
        choices + len(patterned.NEST.fields) + len(patterned.FIELDS) + len(patterned.PATTERN.fields) + 4
    )
    assert programs.context.shape == (len(programs), beside + operands)
    chosen = {row.config: row.ast.operands[:choices].tobytes() for row in programs}
    assert len(set(chosen.values())) == len(chosen)  # no two configs are told alike
    entries = len(HARDWARE.fields) + choices + len(patterned.NEST.fields)
    for row, told in zip(programs, programs.context, strict=True):  # all are read, at least once
        assert told[entries] >= np.log2(1 + row.flops / 2 / 8) - 1e-3
    took = {(record.workload_id, record.config.text): record.seconds for record in records}
    assert all(row.seconds == took[row.task, row.config] for row in programs)
    multiplied = [
        LEAVES.fields.index(field) for field in LEAVES.fields if field.name == "operations.float_mul"
    ]
    for row in programs:  # a product for each entry and column, more where formats store zeros
        done = (np.exp2(row.ast.leaves[:, multiplied].astype(float)) - 1).sum()
        assert done > 0.7 * row.flops / 2
    bare = sparse_steps.without_patterns(programs)
    assert bare.context.shape[1] == beside
    with pytest.raises(InputError, match="numbers of operands"):
        context_of([bare.rows[0].ast, programs.rows[0].ast], [programs.rows[0].hardware] * 2)


def test_far_configs_and_large_matrices_are_left_out(records: list[Record]) -> None:
    assert not patterned.chosen(records, "spmm", SMALL | {"most_entries": 1})
    near = patterned.chosen(records, "spmm", SMALL | {"far": 1.5, "configs": 100})
    assert all(len({record.seconds for record in some}) == 1 for some in near.values())


def test_families_are_held_out_once(programs: Programs) -> None:
    parts = patterned.folds(programs, 2, 0)
    assert sorted(chain(*parts)) == ["f0", "f1", "f2", "f3"]
    assert [len(part) for part in parts] == [2, 2]
    with pytest.raises(InputError, match="families"):
        patterned.folds(programs, 5, 0)


def test_steps_are_judged(programs: Programs, tmp_path: Path) -> None:
    todo = sparse_steps.steps("spmm", programs, SMALL, tmp_path, float("inf"))
    assert len(todo) == 2 * (1 + len(sparse_steps.OTHERS))
    runs: dict[str, Any] = {key: step() for key, step in todo.items()}
    assert all(np.isfinite(run["mape"]) for run in runs.values())
    found = sparse_steps.figures(runs, "spmm")
    assert found.keys() == {sparse_steps.OURS, *sparse_steps.OTHERS}
    lines, holds = sparse_steps.judge(runs, EXPECTED)
    assert len(lines) == 1 + len(sparse_steps.OTHERS)
    assert holds in (True, False)
    drawn = sparse_steps.page({"runs": runs, "summary": lines}, EXPECTED)
    assert "<svg" in drawn
    assert sparse_steps.judge({}, EXPECTED) == ([], None)
    over = sparse_steps.steps("spmm", programs, SMALL, tmp_path / "late", 0.0)
    assert over[f"spmm fold 0 {sparse_steps.OURS}"]() is None
