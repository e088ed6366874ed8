"""The experiment on transfer to an accelerator: folds, ways, figures, and small runs up to the page."""

import importlib.util
import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cognate import judging
from cognate.data import sources, target_workload, targets
from cognate.folds import chosen, drawn, folds, informative
from cognate.judging import at_random, by_matrix, figures, judge, packed, rows, unpacked, ways
from cognate.networks import COGNATE, FEATURIZERS, READINGS, Networks, Reading, encoder
from cognate.page import page
from cognate.simulating import Simulations, each_simulated, simulated
from cognate.steps import Steps

from benchmarks.corpus import UnfinishedError
from tensorwise.analysis.footprint import FIELDS
from tensorwise.collect.corpus import patterns
from tensorwise.device.null import NullDevice
from tensorwise.device.spade import SpadeDevice
from tensorwise.errors import InputError
from tensorwise.model.reader import LATENT, SHARED, Reader
from tensorwise.model.samples import Group, featurizer
from tensorwise.model.table import Encoded, Table
from tensorwise.program.workload import Workload, workload
from tensorwise.space.cpu import cpu_space_of
from tensorwise.store.record import Record
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write

pytestmark = pytest.mark.usefixtures("one_torch_thread")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
HERE = Path(__file__).parents[3] / "experiments" / "cognate-transfer"
EXPECTED = json.loads((HERE / "expected.json").read_text())
VALUES = tomllib.loads((HERE / "values.toml").read_text())
SMALL: dict[str, Any] = VALUES | {
    "folds": 2, "draws": 2, "few": 2, "additive": {"matrices": [2], "configs": [8]},
    "networks": VALUES["networks"] | {
        "pretrain_epochs": 2, "tune_epochs": 2, "fine_tuning": [1], "pre_training": [2],
    },
}  # fmt: skip


def group(seed: int, side: int, configs: int = 24) -> Group:
    """Times are what the first field of the footprint counts, which is there on both sides."""
    rng = np.random.default_rng([seed, side])
    nests = rng.random((configs, len(FIELDS))).astype(np.float32)
    own = np.eye(5 if side else 7, dtype=np.float32)[rng.integers(0, 5, configs)]
    encoded = Encoded(
        np.zeros((configs, 0), np.int64), (rng.random((configs, SHARED)).astype(np.float32), own), nests
    )
    seconds = 64 + Reader.counts(encoded)[:, 0]
    numbers = rng.random(4 + 3)
    return Group(
        f"{side}-{seed}",
        f"family {seed % 4}",
        numbers,
        encoded,
        seconds,
        np.ones(configs, bool),
        float(seconds[0]),
    )


TARGET = {f"m{seed}": group(seed, 1) for seed in range(12)}
SOURCE = [group(seed, 0) for seed in range(8)]


def test_families_are_tested_by_models_that_have_not_seen_them() -> None:
    found = folds(TARGET, SOURCE, 2)
    assert sorted(name for fold in found for name in fold.tests) == sorted(TARGET)
    for fold in found:
        tested = {one.family for one in fold.tests.values()}
        assert not tested & {one.family for one in (*fold.learn.values(), *fold.source)}
        assert len(fold.source) == 4
        assert [one.workload_id for one in fold.some(3, 1)] == [
            one.workload_id for one in fold.some(5, 1)[:3]
        ]
    names = list(TARGET)
    assert len(set(drawn(names, 5, np.random.default_rng(0)))) == 5
    assert set(chosen(TARGET, 3)) < set(names)


def test_chance_is_exact() -> None:
    one = group(0, 1, 8)
    logs = np.log(one.default_s / one.seconds)
    rng = np.random.default_rng(0)
    drawn_five = [logs[rng.permutation(8)[:5]].max() for _ in range(20000)]
    first, five, optimum, *_ = at_random(one)
    assert first == pytest.approx(np.exp(logs.mean()), abs=1e-3)
    assert np.log(five) == pytest.approx(np.mean(drawn_five), abs=0.01)
    assert optimum == pytest.approx(np.exp(logs.max()), abs=1e-3)


def test_figures_go_over_matrices_and_draws() -> None:
    known = rows([TARGET["m0"], TARGET["m1"]], lambda one: one.seconds)
    assert known[0][0] == known[0][2]
    found = figures([[[1.0, 1.0, 4.0, 0.5, 0.0]], [[4.0, 4.0, 4.0, 1.0, 1.0]]])
    assert found["speedup1"] == pytest.approx(2.0)
    assert (found["workloads"], found["apart"], found["ordered"]) == (1, 0.75, 0.75)
    assert found["ape"] == pytest.approx(150)  # 300 % longer, and not at all


@pytest.mark.parametrize(
    ("way", "wanted"),
    [
        ("random", (0, 0)), ("network: zero-shot", (90, 0)), ("network: no transfer, of 5", (0, 1280)),
        ("counted, of all", (0, 2560)), ("one config for all, of 3", (0, 768)),
        ("counted, of 5 chosen", (0, 1280)), ("counted, of 5 with 16 drawn configs", (0, 80)),
        ("network: COGNATE, of 5, from 2", (60, 1280)),
        ("network: without mapper, of 5", (90, 1280)),
    ],
)  # fmt: skip
def test_samples_that_a_way_has_learned_from(way: str, wanted: tuple[int, int]) -> None:
    runs = {"plain": {"op": "spmm", "samples": {"source": [20, 30, 40], "learn": 10, "configs": 256}}}
    found = judging.samples(way, runs, "spmm")
    assert found == wanted
    assert judging.expense(found) == wanted[0] + 1000 * wanted[1]
    assert judging.samples(way, runs, "sddmm") is None


def test_configs_that_say_most_are_chosen() -> None:
    """Those of a plane first, whatever else is nearly the same; and no more than there is to know."""
    rng = np.random.default_rng(0)
    flat = np.concatenate([1e-12 * rng.random((5, 2)), np.eye(2), -np.eye(2)])
    assert set(informative(flat, 3)[1:]) <= {5, 6, 7, 8}
    assert len(informative(flat, 9)) < 5
    terms = rng.standard_normal((40, 6))
    assert len(set(informative(terms, 4, first=7))) == 4
    assert informative(terms, 4, first=7)[0] == 7


def test_rows_are_packed() -> None:
    known = [[1.25, 1.5, 2.0, 0.75, -0.1], [1.0, 1.0, 1.0, 0.5, 0.0]]
    assert unpacked(packed(known)) == known


def test_closed_form_steps_up_to_the_page() -> None:
    steps = Steps("spmm", TARGET, SOURCE, SMALL).planned()
    plain = [key for key in steps if key.endswith(" plain") or "additive" in key or " configs" in key]
    assert len(plain) == 2 * 4
    runs = {key: json.loads(json.dumps(steps[key]())) for key in plain}
    found = ways(runs, "spmm")
    assert found.keys() == {
        "default config", "random", "counted, of 2", "counted, of 2 chosen", "one config for all, of 2", "counted, of all",
        "one config for all, of all", "counted, of 2 with 8 drawn configs", "counted, of 2 with 8 informative configs",
    }  # fmt: skip
    assert all(len(draw) == 12 for draws in found.values() for draw in draws)
    assert len(found["counted, of 2"]) == 2 > len(found["counted, of 2 chosen"])
    best = figures(found["counted, of all"])
    assert best["top1"] > 0.9 > figures(found["random"])["top1"]
    assert by_matrix(runs, "spmm", "counted, of 2").keys() == TARGET.keys()
    lines, holds = judge(runs, EXPECTED, 2)
    assert holds is all("does not hold" not in line for line in lines)
    assert any("above the best baseline" in line for line in lines)
    del runs["spmm fold 1 plain"]
    assert "random" not in ways(runs, "spmm")  # it was judged on fewer matrices than the others
    runs["x"] = {"error": "<gone>"}
    text = page({"runs": runs, "machine": {}, "settings": SMALL}, EXPECTED)
    for words in ("figures 5 and 13 to 15", "one config for all, of 2", "&lt;gone&gt;", "<svg"):
        assert words in text


def test_nothing_is_claimed_of_nothing() -> None:
    assert judge({}, EXPECTED, 5) == ([], None)
    assert "Nothing is known yet" in page({"runs": {}, "machine": {}, "settings": SMALL}, EXPECTED)


@needs_torch
@pytest.mark.parametrize("reading", READINGS, ids=lambda one: one.name)
def test_readings_of_both_devices_have_one_form(reading: Reading) -> None:
    networks = Networks.of(reading, SOURCE, list(TARGET.values()), SMALL["networks"])
    first, second = networks.read(SOURCE[0], 0), networks.read(TARGET["m0"], 1)
    widths = [[order.shape[1] for order in one.configs.orders] for one in (first, second)]
    assert widths[0] == widths[1]
    assert len(first.numbers) == (7 if reading.featurizer else 4)
    assert first.configs.orders[0].any() == reading.mapper
    assert np.asarray(second.configs.nests).any() == reading.footprints
    if reading.encoder == "augmented":
        assert not first.configs.orders[1].any()
        assert not second.configs.orders[0].any()
        np.testing.assert_array_equal(second.configs.orders[1][:, SHARED:], TARGET["m0"].configs.orders[1])
    else:
        assert second.configs.orders[1].any() == (reading.encoder != "none")
        assert widths[0][1] == {"mapped": 7, "apart": 12}.get(reading.encoder, LATENT)


@needs_torch
def test_networks_learn_and_go_on() -> None:
    values = SMALL["networks"] | {"pretrain_epochs": 60, "tune_epochs": 60}
    networks = Networks.of(Reading("ours", footprints=True), SOURCE, list(TARGET.values()), values)
    start = networks.pretrained(SOURCE)
    tuned = networks.tuned([TARGET["m0"]], start)
    tests = [TARGET[name] for name in ("m5", "m6", "m7")]
    before, after, alone = (
        figures([rows(tests, lambda one, arrays=arrays: networks.scores(arrays, one))])["kendall"]  # type: ignore[misc]
        for arrays in (start, tuned, networks.tuned([TARGET["m0"]], None))
    )
    assert before > 0.5
    assert after > max(alone, 0.5)


@needs_torch
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "Transformer"])
def test_sequences_learn_and_go_on(kind: str) -> None:
    values = SMALL["networks"] | {"pretrain_epochs": 60, "tune_epochs": 60}
    networks = Networks.of(Reading(kind, predictor=kind), SOURCE, list(TARGET.values()), values)
    # what decides times is among the strips, since footprints are not seen here
    strips = [
        replace(one, configs=replace(one.configs, orders=(_seen(one), one.configs.orders[1])))
        for one in SOURCE
    ]
    tests = [TARGET[name] for name in ("m5", "m6", "m7")]
    shown = [
        replace(one, configs=replace(one.configs, orders=(_seen(one), one.configs.orders[1])))
        for one in tests
    ]
    start = networks.pretrained(strips)
    tuned = networks.tuned(shown[:1], start)
    assert tuned.keys() == start.keys()
    assert figures([rows(shown[1:], lambda one: networks.scores(tuned, one))])["kendall"] > 0.5
    np.testing.assert_array_equal(
        networks.scores(start, shown[0]), networks.scores(networks.pretrained(strips), shown[0])
    )


def _seen(one: Group) -> np.ndarray:
    shared = one.configs.orders[0].copy()
    shared[:, 0] = np.asarray(one.configs.nests)[:, 0]
    return shared


@needs_torch
def test_encoders_keep_apart_what_differs() -> None:
    own = np.unique(np.eye(6, dtype=np.float32)[[0, 1, 2, 3, 3]], axis=0)
    for kind in ("latent", "variational", "pca"):
        made = Reader(Table(()), None, encoder(kind, own)).latent(own)
        assert made.shape == (4, LATENT)
        assert np.linalg.norm(made[:, None] - made[None], axis=2)[~np.eye(4, dtype=bool)].min() > 0.1, kind
    assert encoder("none", own) == ()


@needs_torch
def test_the_curve_of_a_training_is_drawn() -> None:
    steps = Steps("sddmm", TARGET, SOURCE, SMALL).planned()
    run = steps["sddmm training"]()
    assert len(run["epochs"]) == SMALL["networks"]["pretrain_epochs"]
    assert np.isfinite(run["epochs"]).all()
    runs = {"sddmm training": run, "sddmm fold 0 plain": steps["sddmm fold 0 plain"]()}
    held = {"runs": runs, "settings": SMALL, "machine": {}}
    assert "figure 6" in page(held, EXPECTED)


@needs_torch
def test_steps_of_networks() -> None:
    steps = Steps("sddmm", TARGET, SOURCE, SMALL).planned()
    keys = [key for key in steps if key.startswith("sddmm fold 1 network")]
    assert len(keys) == len(READINGS) + 2
    runs = {key: steps[key]() for key in keys if "COGNATE" in key or " of 1" in key or " from 2" in key}
    assert ways(runs, "sddmm").keys() >= {
        "network: COGNATE, of 2", "network: no transfer, of 2", "network: zero-shot", "network: COGNATE, of 1",
        "network: no transfer, of 1", "network: COGNATE, of 2, from 2", "network: COGNATE with footprints, of 2",
    }  # fmt: skip
    again = Steps("sddmm", TARGET, SOURCE, SMALL).planned()[f"sddmm fold 1 network: {COGNATE.name}"]()
    assert again == runs[f"sddmm fold 1 network: {COGNATE.name}"]


@needs_torch
def test_featurizers_are_compared_on_small_patterns() -> None:
    def known(workload_id: str) -> Workload:
        side, seed = map(int, workload_id.split("-"))
        places = np.random.default_rng([seed, side]).integers(0, 40, (2, 90))
        return workload("spmm", entries_from(((40, 40), places, None)), n=8)

    steps = Steps("spmm", TARGET, SOURCE, SMALL, known).planned()
    runs = {key: step() for key, step in steps.items() if "featurizer" in key and "network" not in key}
    assert [run["featurizer"] for run in runs.values()] == [reading.name for reading in FEATURIZERS]
    assert len({tuple(run["draws"]) for run in runs.values()}) == len(FEATURIZERS)
    assert runs["spmm featurizer: COGNATE"]["counts"] == {"source": 4, "learn": 6, "tests": 6}
    text = page(
        {
            "runs": runs | {"spmm fold 0 plain": steps["spmm fold 0 plain"]()},
            "settings": SMALL,
            "machine": {},
        },
        EXPECTED,
    )
    assert "none of more than 5,000 entries" in text
    assert "sparse convolutions" in text


def test_enlarged_matrices_are_simulated_and_kept(tmp_path: Path) -> None:
    rows_of, columns = np.random.default_rng(0).integers(0, 60, (2, 200))
    write(tmp_path / "a.mtx", entries_from(((60, 60), (rows_of, columns), None)))
    files = {one.name: one for one in patterns([tmp_path / "a.mtx"])}
    assert target_workload("spmm", files, "a~2x2-600x600-1", 64).entries.shape == (600, 600)
    row = simulated(("spmm", "a~2x2-600x600-1"), "spade-small", files, 64)
    assert (row["rows"], row["family"], len(row["seconds"])) == (600, files["a"].family, 256)
    jobs = [("spmm", "a"), ("sddmm", "a")]
    about = {"machine_id": SpadeDevice("spade-small").id, "n": "64"}
    table = Simulations(tmp_path / "spade-small.parquet", about)
    assert list(each_simulated(jobs, "spade-small", files, 64, ends=0.0)) == []  # there is no time to begin
    for found in each_simulated(table.left(jobs), "spade-small", files, 64, ends=float("inf")):
        table.add(found)
    again = Simulations(table.path, about)
    assert again.left([*jobs, ("spmm", "b")]) == [("spmm", "b")]
    assert {one["op"]: one for one in again.rows}["spmm"] == simulated(
        ("spmm", "a"), "spade-small", files, 64
    )
    with pytest.raises(InputError, match="move it away"):
        Simulations(table.path, about | {"n": "128"})


def test_what_is_counted_is_kept(tmp_path: Path) -> None:
    """The target's table and the source's records, from a small corpus; without time nothing is half done."""
    import pyarrow
    from pyarrow.parquet import write_table

    rng = np.random.default_rng(0)
    rows_of, columns = rng.integers(0, 300, (2, 900))
    write(tmp_path / "a.mtx", entries_from(((300, 300), (rows_of, columns), None)))
    known, device = patterns([tmp_path / "a.mtx"]), SpadeDevice("spade-small")
    work = workload("spmm", entries_from(((300, 300), (rows_of, columns), None)), n=64)
    row = {"pattern": "a", "family": "f", "op": "spmm", "workload_id": work.id}
    about = {"machine_id": device.id, "n": "64"}
    table = pyarrow.Table.from_pylist([row | {"seconds": np.linspace(1, 2, 256).tolist()}])
    write_table(table.replace_schema_metadata(about), tmp_path / "t.parquet")
    with pytest.raises(UnfinishedError, match="0 matrices of the target"):
        targets(tmp_path / "t.parquet", known, "spmm", device, tmp_path / "kept", lambda: False)
    (found,) = targets(
        tmp_path / "t.parquet", known, "spmm", device, tmp_path / "kept", lambda: True
    ).values()
    again = targets(tmp_path / "t.parquet", known, "spmm", device, tmp_path / "kept", lambda: False)
    assert again["a"].id == found.id
    assert found.numbers.shape == (4 + len(featurizer(2).fields),)
    assert len(found) == 256

    null, space = NullDevice(), cpu_space_of(work)
    configs = list({space.sample(work, np.random.default_rng(seed)) for seed in range(6)})
    facts = {"pattern": "a", "family": "f", "job": "j"}
    records = [
        Record.of(measured, work, null, space.name, config, facts)
        for config, measured in zip(configs, null.measure(work, configs), strict=True)
    ]
    (one,) = sources(records, known, 1000, tmp_path / "kept", lambda: True)
    assert len(one) == len(configs)
    assert one.numbers.shape == found.numbers.shape
    assert sources(records, known, 10, tmp_path / "kept", lambda: True) == []
