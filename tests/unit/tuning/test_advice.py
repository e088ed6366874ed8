"""What a tuning asks a model, and how far it believes the answers."""

import dataclasses
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device.cpu import CpuDevice
from tensorwise.device.host import host
from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError
from tensorwise.model import MeanModel, RandomModel
from tensorwise.model.model import ARRAYS, DESCRIPTION
from tensorwise.program.workload import Workload, workload
from tensorwise.search.graph import GRAPH
from tensorwise.space.cpu import cpu_space
from tensorwise.space.cuda import cuda_space
from tensorwise.space.params import Flag
from tensorwise.space.portfolio import portfolio
from tensorwise.tensor.convert import entries_from
from tensorwise.tuning.advice import Advisor, _opened
from tensorwise.tuning.forecast import CAUTION, DOUBTFUL, ERROR, STEPPED
from tensorwise.tuning.graphs import graph_of
from tensorwise.tuning.limits import Guidance, TuningLimits
from tensorwise.tuning.searching import Search
from tensorwise.tuning.tune import tune
from tests.unit.model.made_up import made_up


@cache
def work(op: str = "spmm", rows: int = 400) -> Workload:
    matrix = sp.random_array((rows, 300), density=0.03, rng=np.random.default_rng(3), dtype=np.float32)
    return workload(op, entries_from(matrix), n=None if op == "spmv" else 8)


SPACE = cpu_space(work().assignment)


# -- advisors ------------------------------------------------------------------------------------------------


def test_scores_of_all_kinds_of_models_become_logarithms() -> None:
    configs = portfolio(SPACE, work())[:6]
    for model, measures in ((made_up(SPACE), True), (RandomModel(), False)):
        found = Advisor(model).forecast(work(), NullDevice(), configs)
        predicted = model.predict(work(), configs, NullDevice())
        assert found.measures is measures
        assert [found.scores[config] for config in configs] == predicted.tolist()

    class Seconds(RandomModel):  # type: ignore[misc]  # a leaf is final, but for this
        returns = "seconds"

    model = Seconds()
    found = Advisor(model).forecast(work(), NullDevice(), configs)
    assert [2 ** found.scores[config] for config in configs] == pytest.approx(
        model.predict(work(), configs, NullDevice()).tolist()
    )
    with pytest.raises(InputError, match="learned nothing"):
        Advisor(MeanModel()).forecast(work(), NullDevice(), configs)


def test_doubts() -> None:
    facts = host().facts

    def doubts(**card: object) -> list[str]:
        return Advisor(made_up(SPACE, **card)).doubts(work(), 2, SPACE)

    assert doubts() == []
    assert doubts(machine=facts, threads=2, dtype="float32", data={"hosts": ["another name"]}) == []
    assert doubts(machine={**facts, "cpu": "another name", "physical_cores": 64}) == []
    wide = int(str(facts["vector_bytes"]))
    assert doubts(machine={**facts, "vector_bytes": 2 * wide}) == [
        f"vectors of {2 * wide} bytes, here {wide}"
    ]
    several = {"hosts": [], "host_ids": ["another", host().id]}  # it has learned from this machine, too
    assert doubts(machine={**facts, "vector_bytes": 2 * wide}, data=several) == []
    assert doubts(threads=4) == ["threads 4, here 2"]
    assert doubts(dtype="float64") == ["float64, here float32"]
    assert doubts(data={"hosts": ["Abacus 9000"]})[0].startswith("processor Abacus 9000, here ")


def test_caches_twice_as_large_are_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    here = dataclasses.replace(host(), l1d_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=0)
    monkeypatch.setattr("tensorwise.device.host.host", lambda: here)
    from tensorwise.device.host import unlike

    assert unlike(here.facts) == []
    assert unlike({**here.facts, "l2_bytes": 3 << 19, "l3_bytes": 1 << 25}) == []  # here it is not known
    assert unlike({**here.facts, "l2_bytes": 2 << 20}) == ["second-level caches of 2048 KiB, here 1024"]
    assert unlike({}) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a graph beside it."""
    place = tmp_path_factory.mktemp("shipped") / "spmm"
    model = made_up(SPACE, op="spmm", threads=1)
    model.save(place)
    graph_of(model, SPACE, [work(), work(rows=200)], 300, np.random.default_rng(0)).save(place)
    return place


def test_a_walk_names_the_best_of_the_graph_that_are_valid(folder: Path) -> None:
    advisor = Advisor.load(folder)
    assert advisor.graph is not None
    assert 200 < len(advisor.graph) <= 300
    model = made_up(SPACE)
    small = work(rows=30)
    found = advisor.propose(small, SPACE, NullDevice(), [], np.random.default_rng(0), lambda: True)
    assert all(SPACE.why_not(config, small) is None for config in found)
    scored = model.score(
        model.embed_pattern(small), advisor.graph.embeddings
    )  # of embeddings as they are kept
    pool = dict(zip(advisor.graph.pool, scored.tolist(), strict=True))
    best = [score for config, score in pool.items() if SPACE.why_not(config, small) is None]
    assert len(best) < len(advisor.graph)
    scores = [pool[config] for config in found]
    assert len(found) == 64
    assert scores == sorted(scores)
    assert len(set(sorted(best)[:64]) & set(scores)) >= 56  # of a pool this small nearly all are seen


def test_without_a_graph_configs_are_bred(folder: Path) -> None:
    known = portfolio(SPACE, work())
    found = Advisor(made_up(SPACE)).propose(
        work(), SPACE, NullDevice(), known, np.random.default_rng(0), lambda: True
    )
    assert set(known) <= set(found)
    assert len(found) < len(known) + 64


def test_a_graph_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    made_up(SPACE, seed=1).save(tmp_path)
    for name in GRAPH.files:
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(InputError, match="is not that of the model"):
        _ = Advisor.load(tmp_path).graph
    MeanModel().save(tmp_path)
    with pytest.raises(InputError, match="is not that of the model"):
        _ = Advisor.load(tmp_path).graph


def test_nothing_is_opened_before_it_is_asked_for_and_torch_never_is(folder: Path) -> None:
    code = f"""
import sys
sys.modules["torch"] = None
import tensorwise
assert "safetensors" not in sys.modules
import numpy as np
from tensorwise.tuning.advice import Advisor
from tensorwise.device.null import NullDevice
from tensorwise.program.workload import workload
from tensorwise.space.cpu import cpu_space
from tensorwise.tensor.convert import entries_from
w = workload("spmm", entries_from(np.eye(50, dtype=np.float32)), n=16)
found = Advisor.load({str(folder)!r}).propose(
    w, cpu_space(w.assignment), NullDevice(), [], np.random.default_rng(0), lambda: True)
assert len(found) == 64, len(found)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_steps_go_on_from_what_a_walk_ends_with(folder: Path) -> None:
    advisor, small = Advisor.load(folder), work(rows=30)
    known = portfolio(SPACE, small)
    some = np.random.default_rng(0)
    begun = [*known, *advisor.propose(small, SPACE, NullDevice(), known, some, lambda: True)]
    found = advisor.promising(small, SPACE, NullDevice(), known, np.random.default_rng(0), lambda: False)
    assert {*begun} < found.scores.keys()
    assert all(SPACE.why_not(config, small) is None for config in found.scores)
    _, spreads = advisor.model.estimate(small, list(found.scores), NullDevice())
    cautious = {
        config: score + CAUTION * spread
        for (config, score), spread in zip(found.scores.items(), spreads, strict=True)
    }
    ranks = [value + STEPPED * (config not in begun) for config, value in cautious.items()]
    assert ranks == sorted(ranks)
    assert min(cautious.values()) < min(cautious[config] for config in begun)
    assert sorted(map(str, found.named)) == sorted(map(str, found.scores))
    assert found.named[:7] == list(found.scores)[:7]
    assert {*found.named[7:10]} <= {*begun}
    assert advisor.top_configs(small, SPACE, NullDevice(), 12, np.random.default_rng(0)) == found.named[:12]
    hurried = advisor.promising(small, SPACE, NullDevice(), known, np.random.default_rng(0), lambda: True)
    assert hurried.scores.keys() == {*begun}


# -- shipped models, as a search takes them --------------------------------------------------------------------


@pytest.fixture
def shipped(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of shipped models with one of spmm for one thread."""
    root = tmp_path / "shipped"
    (root / "spmm").mkdir(parents=True)
    for file in folder.iterdir():
        (root / "spmm" / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr("tensorwise.model.finding.roots", lambda: (tmp_path / "calibrated", root))
    return root


def searching(op: str = "spmm", threads: int = 1) -> Search:
    return Search(
        work(op), CpuDevice(threads), TuningLimits(1.0, start=0.0, clock=lambda: 0.0), Guidance(store=False)
    )


def test_the_shipped_model_is_found_and_read_once(shipped: Path) -> None:
    search = searching()
    assert search.advisor is not None
    assert search.advisor.graph is not None
    assert search.advisor is searching().advisor
    assert not search.doubtful
    assert search.notes == []
    none = searching("spmv")
    assert none.advisor is None
    assert not none.doubtful
    assert none.notes == []


def test_other_threads_are_a_doubt(shipped: Path) -> None:
    search = searching(threads=2)
    assert search.doubtful
    assert any("threads 1, here 2" in note for note in search.notes)


def test_a_damaged_model_is_a_note_and_the_next_one_is_taken(shipped: Path, tmp_path: Path) -> None:
    own = tmp_path / "calibrated" / "spmm-1"
    made_up(SPACE, op="spmm", threads=1).save(own)
    (own / ARRAYS).write_bytes(b"")
    assert searching().advisor is not None
    _opened.cache_clear()
    (shipped / "spmm" / ARRAYS).write_bytes(b"")
    search = searching()
    assert search.advisor is None
    assert sum("the shipped model is not used: " in note and "damaged" in note for note in search.notes) == 2
    (shipped / "spmm" / DESCRIPTION).write_text("{")
    assert searching().advisor is None


def test_a_model_for_another_table_is_a_note_if_shipped_and_an_error_if_named(shipped: Path) -> None:
    other = made_up(cuda_space(work().assignment), op="spmm", threads=1)
    other.save(shipped / "spmm")
    search = searching()
    assert search.advisor is None
    assert any("not used: it was trained for another table of choices" in note for note in search.notes)
    with pytest.raises(InputError, match="cannot be used here: it was trained for another table"):
        tune(work().entries, "spmm", n=8, model=other, store=False)
    with pytest.raises(InputError, match="cannot be used here"):
        tune(work().entries, "spmm", n=8, model=shipped / "spmm", store=False)


def test_a_parameter_that_the_model_does_not_know_is_a_doubt_in_the_answers_notes(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warp = Flag("warp", binds="call", doc="A parameter that the model has never seen.")
    newer = dataclasses.replace(SPACE, params=(*SPACE.params, warp))
    monkeypatch.setattr(CpuDevice, "space", lambda self, work: newer)
    found = tune(work().entries, "spmm", n=8, trials=4, threads=1, model="shipped", store=False)
    doubt = (
        "the model was trained under other conditions (parameter warp is new): the expected error of its predictions is a "
        "factor of 1.6 instead of 1.3, so that more candidates are measured"
    )
    assert [note for note in found.result.notes if "model" in note] == [doubt]
    search = searching()
    assert search.doubtful
    assert search.advisor is not None
    known, rng = portfolio(newer, work())[:4], np.random.default_rng(0)
    forecast = search.advisor.promising(work(), newer, NullDevice(), known, rng, lambda: False)
    assert len(forecast.scores) > 64
    assert {config["warp"] for config in forecast.scores} == {False}  # its steps are left to the search


def test_a_doubtful_model_is_believed_less() -> None:
    configs = portfolio(SPACE, work())[:6]
    spreads = []
    for doubtful in (False, True):
        found = Advisor(made_up(SPACE)).forecast(work(), NullDevice(), configs, doubtful=doubtful)
        found.learn(configs[0], 1.0)
        spreads.append(found.prospect(configs[1], 0, 0).spread)
    assert spreads[0] < spreads[1]
    assert ERROR < DOUBTFUL
