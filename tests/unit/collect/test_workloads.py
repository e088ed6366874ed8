"""Workloads made again from records and files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorwise.collect.corpus import patterns
from tensorwise.collect.job import plan
from tensorwise.collect.measuring import measured
from tensorwise.collect.workloads import Workloads
from tensorwise.errors import InputError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write


def test_what_a_collection_measured_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "fem").mkdir()
    rng = np.random.default_rng(0)
    for k in range(2):
        write(tmp_path / "fem" / f"m{k}.mtx", entries_from((rng.random((30, 20)) < 0.2).astype(float)))
    known = patterns([tmp_path])
    workloads = Workloads(known)
    for job in plan(known, ["spmm", "sddmm", "spmv"], n=[4], variants=2, device="null", samples=2):
        record = measured(job)[0]
        work = workloads.of(record)
        assert workloads.has(record)
        assert (work.id, work.op) == (record.workload_id, job.op)
    nameless = replace(record, provenance={})
    assert not workloads.has(nameless)
    with pytest.raises(InputError, match="in none of the sources"):
        workloads.of(nameless)
    write(tmp_path / "fem" / "m0.mtx", entries_from(np.eye(30, 20)))
    write(tmp_path / "fem" / "m1.mtx", entries_from(np.eye(30, 20)))
    with pytest.raises(InputError, match="is not what was measured"):
        workloads.of(record)
