"""Jobs: the plan, and what is measured of one."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorwise.collect import measuring
from tensorwise.collect.augment import Augmentation
from tensorwise.collect.corpus import patterns, read_pattern
from tensorwise.collect.job import Job, plan
from tensorwise.collect.measuring import CONFIGS_PER_BATCH, measured
from tensorwise.errors import InputError
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.space.portfolio import portfolio
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in "ab":
        write(tmp_path / f"{name}.mtx", entries_from(rng.random((30, 20)) < 0.2))
    write(tmp_path / "t.tns", entries_from(np.ones((4, 3, 5))))
    return tmp_path


def test_the_plan_is_the_same_every_time(folder: Path) -> None:
    def again(**changes: int) -> list[Job]:
        wanted = {"n": [8, 32], "threads": [1, 2], "variants": 2, **changes}
        return plan(patterns([folder]), ["spmm", "spmv", "mttkrp", "spmm"], **wanted)  # type: ignore[arg-type]

    jobs = again()
    assert jobs == again()
    assert [job.id for job in jobs] != [job.id for job in again(seed=1)]
    assert len({job.id for job in jobs}) == len(jobs)
    # Matrices: two extents of spmm and spmv; the tensor: two ranks. Each on two counts of threads, in three variants.
    # Of each matrix two variants are tensors.
    assert Counter(job.op for job in jobs) == {"spmm": 2 * 2 * 6, "spmv": 2 * 6, "mttkrp": 2 * 6 + 2 * 2 * 4}
    assert {(job.op, job.n) for job in jobs} == {
        ("spmm", 8),
        ("spmm", 32),
        ("spmv", None),
        ("mttkrp", 8),
        ("mttkrp", 32),
    }
    assert {job.family for job in jobs} == {folder.name}


def test_modes_of_mttkrp(folder: Path) -> None:
    jobs = plan(patterns([folder]), ["mttkrp", "ttv"], modes=[2, 0, 2, 5], device="null", samples=4)
    assert sorted((job.op, job.mode) for job in jobs) == [("mttkrp", 0), ("mttkrp", 2), ("ttv", 0)]
    last = next(job for job in jobs if job.mode == 2)
    _, work = last.load()
    assert work.output_shape == (5, 16)
    assert all(record.ok for record in measured(last))
    with pytest.raises(InputError, match="nothing to measure"):
        plan(patterns([folder]), ["mttkrp"], modes=[3])


def test_matrices_become_tensors_where_an_operation_takes_them(folder: Path) -> None:
    assert {job.name for job in plan(patterns([folder]), ["mttkrp"])} == {"t"}
    jobs = plan(patterns([folder / "a.mtx"]), ["mttkrp", "ttm"], modes=[1], variants=2, device="null")
    assert sorted((job.op, job.variant) for job in jobs) == [
        ("mttkrp", 1),
        ("mttkrp", 2),
        ("ttm", 1),
        ("ttm", 2),
    ]
    for job in jobs:
        name, work = job.load()
        assert work.entries.order == 3
        assert (
            read_pattern(job.path, Augmentation.parse(name.partition("~")[2])).pattern_id
            == work.entries.pattern_id
        )


def test_a_job_is_known_by_its_content(folder: Path) -> None:
    job = plan(patterns([folder]), ["spmm"], n=[8])[0]
    assert Job.from_json(job.to_json()) == job
    moved = Job.from_json({**job.to_json(), "path": "/elsewhere", "family": "other"})
    assert moved.id == job.id
    assert Job.from_json({**job.to_json(), "samples": 7}).id != job.id
    kinds = {replace(job, kind=kind).id for kind in ("", "zen4", "zen5")}
    assert len(kinds) == 3
    assert job.id in kinds  # jobs had ids before there were kinds
    with pytest.raises(InputError, match="a kind is up to 64 letters"):
        replace(job, kind="../zen4")
    for bad in (
        {},
        {**job.to_json(), "n": "8"},
        {**job.to_json(), "more": 1},
        {**job.to_json(), "samples": 0},
    ):
        with pytest.raises(InputError):
            Job.from_json(bad)
    with pytest.raises(InputError, match="known: cpu, cuda, null, spade"):
        Job.from_json({**job.to_json(), "device": "abacus"})


def test_nothing_to_do_is_an_error(folder: Path) -> None:
    with pytest.raises(InputError, match="unknown operation"):
        plan(patterns([folder]), ["spmx"])
    with pytest.raises(InputError, match="nothing to measure"):
        plan(patterns([folder / "a.mtx"]), ["mttkrp"])
    with pytest.raises(InputError, match="nothing to measure"):
        plan(patterns([folder / "t.tns"]), ["spmm"], variants=3)
    manifest = folder / "list.csv"
    manifest.write_text("name,file,order,nnz,group\na,a.mtx,2,120,x\n")
    assert len(plan(patterns([manifest]), ["spmm"], n=[8, 1000], most_terms=1000)) == 1


@pytest.mark.parametrize(("op", "variant"), [("spmm", 0), ("spmm", 3), ("mttkrp", 1)])
def test_a_job_is_measured(folder: Path, op: str, variant: int) -> None:
    jobs = plan(patterns([folder]), [op], n=[8], variants=3, device="null", samples=40)
    job = next(job for job in jobs if job.variant == variant)
    beats: list[int] = []
    records = measured(job, lambda: beats.append(1))
    name, work = job.load()
    assert {r.workload_id for r in records} == {work.id}
    assert {r.provenance["pattern"] for r in records} == {name}
    # The name and the original are enough to have the pattern again.
    original, _, change = name.partition("~")
    again = read_pattern(job.path, Augmentation.parse(change) if change else None)
    assert (original, again.pattern_id) == (job.name, work.entries.pattern_id)
    drawn = Counter(str(r.provenance["drawn"]) for r in records)
    batches = -(-30 // CONFIGS_PER_BATCH) + -(-10 // CONFIGS_PER_BATCH)
    assert drawn == {"default": batches, "random": 20, "known": 10, "mutated": 10}
    assert len(beats) == len(records) + batches + 2  # rounds, loading, and a measurement that does not count
    assert len({r.config for r in records}) == 41
    space = cpu_space(work.assignment, "A")
    for record in records:
        how = record.provenance
        assert space.why_not(record.config, work) is None
        assert (how["drawn"] == "random") == ("log_probability" in how)
        assert record.ok == ("conversion_s" in how) == ("bytes_held" in how)
        assert not record.ok or (how["conversion_s"] >= 0 and how["bytes_held"] >= 0)
        if how["drawn"] == "random":
            assert how["log_probability"] == space.log_probability(record.config, work)
    first = {batch: next(r for r in records if r.provenance["batch"] == batch) for batch in range(batches)}
    assert {r.config for r in first.values()} == {space.default(work)}
    parents = {r.provenance["parent"] for r in records if "parent" in r.provenance}
    assert parents <= {r.config.id for r in records}


def test_what_a_job_names_is_measured_besides(folder: Path) -> None:
    job = plan(patterns([folder / "a.mtx"]), ["spmm"], n=[8], device="null", samples=16)[0]
    _, work = job.load()
    space = cpu_space(work.assignment, "A")
    known = portfolio(space, work)
    named = replace(job, named=tuple(config.text for config in [*known[:6], known[3]]))
    assert named.id != job.id
    asked = replace(job, asked="a model 7")
    assert job.id != asked.id == replace(named, asked="a model 7").id != replace(named, asked="a model 8").id
    assert Job.from_json(json.loads(json.dumps(named.to_json()))) == named
    found: dict[str, list[Config]] = {}
    for record in measured(named):
        found.setdefault(str(record.provenance["drawn"]), []).append(record.config)
    # Nothing is measured twice: not the default, which is the anchor, nor what is named twice.
    assert found["named"] == known[1:6]
    assert not set(found["named"]) & {*found["known"], *found["random"]}
    assert [len(found[how]) for how in ("random", "known", "mutated")] == [8, 4, 4]
    with pytest.raises(InputError, match="JSON"):
        measured(replace(job, named=("fast",)))


def test_what_is_too_large_is_refused(folder: Path) -> None:
    job = plan(patterns([folder / "a.mtx"]), ["spmm"], n=[1000], most_terms=5000, device="null")[0]
    with pytest.raises(InputError, match="more than 5000; choose a smaller n"):
        measured(job)


def test_on_the_real_device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "NEAR", float("inf"))  # how many are near depends on the machine's mood
    monkeypatch.setattr(measuring, "ROUNDS_S", 60.0)
    job = plan(patterns([folder / "a.mtx"]), ["spmm"], n=[8], samples=4)[0]
    records = measured(job)
    assert len(records) == 6
    assert all(r.ok for r in records if r.provenance["drawn"] == "default")
    assert {"compiler", "flags", "host", "threads", "job", "family"} <= records[0].provenance.keys()
    compared = [r for r in records if "ratio" in r.provenance]
    assert len(compared) > 2
    assert all(r.ok and r.provenance["ratio"] > 0 and r.provenance["ratio_error"] >= 0 for r in compared)
    assert all(r.provenance["ratio"] == 1 for r in compared if r.provenance["drawn"] == "default")


@pytest.mark.parametrize("op", ["spmm", "sddmm"])
def test_a_small_space_is_measured_whole(folder: Path, op: str) -> None:
    job = plan(patterns([folder / "a.mtx"]), [op], n=[40], device="spade-small", samples=256)[0]
    records = measured(job)
    anchors = [record for record in records if record.provenance["drawn"] == "default"]
    others = [record.config for record in records if record.provenance["drawn"] == "every"]
    _, work = job.load()
    with job.open() as device:
        assert {anchor.config for anchor in anchors} == {device.space(work).default(work)}
    assert len({*others, anchors[0].config}) == len(others) + 1 == 256
    assert all(record.ok and record.provenance["simulated"] is True for record in records)
    assert {(record.space, record.provenance["device"]) for record in records} == {("spade-small",) * 2}
    assert [r.seconds for r in records] == [r.seconds for r in measured(job)]


def test_fewer_samples_of_a_small_space_are_drawn(folder: Path) -> None:
    job = plan(patterns([folder / "a.mtx"]), ["spmm"], n=[40], device="spade", samples=20)[0]
    drawn = Counter(str(record.provenance["drawn"]) for record in measured(job))
    assert drawn["random"] + drawn["mutated"] == 20
    assert drawn["mutated"] == 5


def test_what_an_accelerator_cannot_compute_is_recorded_as_refused(folder: Path) -> None:
    job = plan(patterns([folder / "a.mtx"]), ["spmv"], device="spade-small", samples=3)[0]
    assert {record.status for record in measured(job)} == {"refused"}


def test_a_job_of_another_version_is_another_job_and_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "m.npz", entries_from(np.eye(8)))
    (job,) = plan(patterns([tmp_path]), ["spmm"], n=[4], samples=2, device="null")
    before = {name: value for name, value in job.to_json().items() if name != "version"}
    assert Job.from_json(before).id == job.id, "jobs had ids before they had versions"
    later = replace(job, version=2)
    assert later.id != job.id
    assert Job.from_json(later.to_json()) == later
    with pytest.raises(
        InputError, match=r"planned as version 2 .* measures version 1; plan the collection again"
    ):
        later.measured()
    monkeypatch.setattr("tensorwise.collect.job.JOB_VERSION", 2)
    assert Job.from_json(before).version == 1
    with pytest.raises(InputError, match="planned as version 1 "):
        Job.from_json(before).measured()


def test_jobs_in_float32_keep_the_ids_of_plans_before_there_were_dtypes() -> None:
    job = Job("a", "a.mtx", "00ff", "fem", "spmm", 8)
    assert job.id == "4dc643124a83fff0f724fabf22ac9638"
    assert replace(job, dtype="float64").id != job.id
    with pytest.raises(InputError, match="unknown dtype 'int8'; expected float32"):
        replace(job, dtype="int8")
