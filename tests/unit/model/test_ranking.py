"""RankingModel: it learns an order that depends on pattern and config, and survives kills."""

import importlib.util
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorwise.device.device import Measurement
from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError, MissingExtraError
from tensorwise.model import MeanModel, RankingModel, load_model
from tensorwise.model.metrics import mean_quality, quality, spearman
from tensorwise.model.ranking import Epoch, Training
from tensorwise.model.samples import divide, groups_of
from tensorwise.model.table import Table
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.store.record import Record
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tests.contract.toys import GARDEN, TINY

TORCH = importlib.util.find_spec("torch") is not None
pytestmark = pytest.mark.usefixtures("one_torch_thread")
needs_torch = pytest.mark.skipif(not TORCH, reason="torch is not installed")
FAST = Training(epochs=30, learning_rate=1e-3)
if TORCH:
    import paper_models.nets  # noqa: F401  (adds `waco`, which looks at entries, `dense` and `resnet`)


def scattered(seed: int) -> Entries:
    rng = np.random.default_rng(seed)
    return entries_from(((64, 64), rng.integers(0, 64, (2, 500)), None))


def blocked(seed: int) -> Entries:
    """As many entries, in blocks 8 by 8."""
    rng = np.random.default_rng(seed)
    corners = 8 * np.stack(np.unravel_index(rng.choice(64, 8, replace=False), (8, 8)))
    inside = np.stack(np.unravel_index(np.arange(64), (8, 8)))
    places = (corners[:, :, None] + inside[:, None, :]).reshape(2, -1)[:, : scattered(seed).nnz]
    return entries_from(((64, 64), places, None))


def cost(w: Any, config: Config) -> float:
    """Scattered entries want small splits and rows, blocked ones large splits and blocks."""
    filled = len(set(zip(*(c // 8 for c in w.entries.coordinates), strict=True)))
    best = 3 if filled < 20 else 0
    layout = {"row": 0.0, "column": 0.5, "block": 1.0}[str(config["layout"])]
    miss = abs(math.log2(int(config["split"])) - best)  # type: ignore[call-overload]
    return 1e-3 * math.exp(0.5 * miss + (1 - layout if best else layout) + 0.1 * bool(config["balanced"]))


DEVICE = NullDevice(cost)


def toy(entries: Entries) -> Workload:
    return workload("spmm", entries, n=16)


def measured(w: Workload, configs: list[Config], family: str = "") -> list[Record]:
    facts = {"family": family} if family else {}
    measurements = DEVICE.measure(w, configs)
    return [
        Record.of(one, w, DEVICE, "tiny", config, facts)
        for one, config in zip(measurements, configs, strict=True)
    ]


def garden(count: int = 8) -> tuple[list[Record], dict[str, Workload]]:
    """Records of all configs on ``count`` workloads, half of them blocked, each a family."""
    records, works = [], {}
    for seed in range(count):
        w = toy((scattered if seed % 2 else blocked)(seed))
        works[w.id] = w
        records += measured(w, list(TINY.enumerate(w)), f"family {seed}")
    return records, works


@pytest.fixture(scope="module")
def learned(one_torch_thread: None) -> RankingModel:
    pytest.importorskip("torch")
    records, works = garden(12)
    model = RankingModel(TINY, works.__getitem__, net="waco", training=FAST)
    model.fit(records)
    return model


def test_unseen_workloads_are_ranked_better_than_by_the_mean(learned: RankingModel) -> None:
    mean = MeanModel()
    mean.fit(garden(2)[0])
    found: dict[str, list[Any]] = {"ranking": [], "mean": []}
    for seed in range(100, 106):
        w = toy((scattered if seed % 2 else blocked)(seed))
        configs = list(TINY.enumerate(w))
        true = [cost(w, config) for config in configs]
        for model in (learned, mean):
            found[model.kind].append(quality(true, model.predict(w, configs, DEVICE)))
    ours, null = mean_quality(found["ranking"]), mean_quality(found["mean"])
    assert ours.spearman > 0.8
    assert ours.best_of_top[1] > null.best_of_top[1]
    assert math.isnan(null.spearman)


def test_the_history_is_told_and_saved(learned: RankingModel, tmp_path: Path) -> None:
    assert [epoch.number for epoch in learned.history] == list(range(1, len(learned.history) + 1))
    assert learned.history[-1].training_loss < learned.history[0].training_loss
    assert "validation" in str(learned.history[0])
    learned.save(tmp_path)
    again = load_model(tmp_path)
    assert isinstance(again, RankingModel)
    assert again.history == learned.history
    assert again.table.id == learned.table.id


def test_embeddings_and_scores_are_what_predict_returns(learned: RankingModel) -> None:
    w = toy(blocked(50))
    configs = list(TINY.enumerate(w))
    pattern, embedded = learned.embed_pattern(w), learned.embed_configs(configs)
    assert (pattern.shape, embedded.shape) == ((128,), (24, 128))
    assert learned.embed_pattern(w) is pattern
    said = learned.predict(w, configs, DEVICE)
    np.testing.assert_allclose(learned.score(pattern, embedded), said, rtol=1e-6, atol=2e-6)  # in float32
    other = workload("mttkrp", entries_from(np.ones((3, 3, 3), np.float32)), n=16)
    with pytest.raises(InputError, match=r"order 2; .* order 3"):
        learned.embed_pattern(other)


@needs_torch
def test_scoring_needs_no_torch(learned: RankingModel, tmp_path: Path) -> None:
    """A search that has a pattern's embedding goes on without torch; only looking at a pattern asks for it."""
    learned.save(tmp_path / "model")
    w = toy(blocked(50))
    configs = list(TINY.enumerate(w))
    np.save(tmp_path / "pattern.npy", learned.embed_pattern(w))
    code = f"""
import sys
sys.modules["torch"] = None
import numpy as np
from tensorwise.errors import MissingExtraError
from tensorwise.model import load_model
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tests.unit.model.test_ranking import blocked, toy
model = load_model({str(tmp_path / "model")!r})
configs = [Config.parse(text) for text in {[config.text for config in configs]!r}]
print(model.score(np.load({str(tmp_path / "pattern.npy")!r}), model.embed_configs(configs)).tolist())
try:
    model.embed_pattern(toy(blocked(50)))
except MissingExtraError as error:
    print(error)
"""
    root = Path(__file__).parents[3]
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    scores, error = out.stdout.splitlines()
    np.testing.assert_allclose(json.loads(scores), learned.predict(w, configs, DEVICE), rtol=1e-6, atol=2e-6)
    assert "tensorwise[torch]" in error


def test_importing_imports_no_torch() -> None:
    code = "import sys, tensorwise, tensorwise.model; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


@pytest.mark.skipif(TORCH, reason="torch is installed")
def test_without_torch_the_extra_is_named() -> None:
    records, works = garden(2)
    with pytest.raises(MissingExtraError, match=r"tensorwise\[torch\]"):
        RankingModel(TINY, works.__getitem__).fit(records)


# -- checkpoints ---------------------------------------------------------------------------------------


class KilledError(Exception):
    pass


def weights(model: RankingModel) -> dict[str, np.ndarray]:
    return model.state()[1]


@needs_torch
@pytest.mark.parametrize("looks", [5, 17, 30])
def test_a_killed_training_goes_on_as_if_nothing_had_happened(looks: int, tmp_path: Path) -> None:
    records, works = garden(6)
    settings = replace(FAST, epochs=4, checkpoint_s=0.0, kept_bytes=0, averaged=0.9)
    whole = RankingModel(TINY, works.__getitem__, net="waco", training=settings)
    whole.fit(records)
    left = looks

    def dying(workload_id: str) -> Entries:
        nonlocal left
        left -= 1
        if left < 0:
            raise KilledError
        return works[workload_id]

    model = RankingModel(TINY, dying, net="waco", training=settings, checkpoint=tmp_path / "a" / "training")
    runs = 0
    while not model.history:
        runs, left = runs + 1, looks
        try:
            model.fit(records)
        except KilledError:
            assert runs < 20
    assert (runs > 1) == (looks < 24)  # four epochs look at six works each
    for name, array in weights(whole).items():
        np.testing.assert_array_equal(weights(model)[name], array)
    assert [replace(e, seconds=0) for e in model.history] == [replace(e, seconds=0) for e in whole.history]


@needs_torch
def test_members_are_models_side_by_side(tmp_path: Path) -> None:
    """Two members say the mean of what two models say that were trained with their seeds."""
    records, works = garden(6)
    settings = replace(FAST, epochs=4, validation=0.0)
    alone = [
        RankingModel(TINY, works.__getitem__, net="waco", training=replace(settings, seed=seed), heads=2)
        for seed in (0, 1)
    ]
    for one in alone:
        one.fit(records)
    both = RankingModel(
        TINY,
        works.__getitem__,
        net="waco",
        training=settings,
        heads=2,
        members=2,
        checkpoint=tmp_path / "training",
    )
    both.fit(records)
    both.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert isinstance(again, RankingModel)
    assert (again.members, again.heads) == (2, 2)
    w = toy(blocked(50))
    configs = list(TINY.enumerate(w))
    pattern, embedded = again.embed_pattern(w), again.embed_configs(configs)
    assert (pattern.shape, embedded.shape) == ((256,), (24, 256))
    said = np.mean([one.predict(w, configs, DEVICE) for one in alone], axis=0)
    for model in (both, again):
        np.testing.assert_allclose(model.predict(w, configs, DEVICE), said, rtol=1e-5, atol=1e-6)
    said = again.predict(w, configs, DEVICE)
    np.testing.assert_allclose(again.score(pattern, embedded), said, rtol=1e-6, atol=2e-6)
    assert again.estimate(w, configs, DEVICE)[1].max() > 0
    assert again.last_layers.shape[0] == 4
    same = again.with_last_layers(again.last_layers)
    np.testing.assert_allclose(same.predict(w, configs, DEVICE), said, rtol=1e-5, atol=1e-6)
    seen = again.seen_last(w, again.encode(w, configs))
    np.testing.assert_allclose(  # up to a constant
        np.diff(np.einsum("hnw,hw->n", seen, again.last_layers) / 4), np.diff(said), rtol=1e-3, atol=1e-5
    )
    told = list[Epoch]()
    once_more = RankingModel(
        TINY, works.__getitem__, net="waco", training=settings, heads=2, members=2, checkpoint=tmp_path / "training",
        progress=told.append,
    )  # fmt: skip
    once_more.fit(records)
    assert not told
    with pytest.raises(InputError, match="2 members cannot go on from one of 1"):
        once_more.learn(once_more.groups(records), alone[0])
    with pytest.raises(InputError, match="one head and one member"):
        RankingModel(TINY, members=0)


@needs_torch
def test_a_finished_training_is_not_repeated_but_may_be_prolonged(tmp_path: Path) -> None:
    records, works = garden(4)
    told: list[Epoch] = []
    path = tmp_path / "training"

    def fit(settings: Training, records: list[Record] = records) -> RankingModel:
        told.clear()
        made = RankingModel(
            TINY, works.__getitem__, net="waco", training=settings, checkpoint=path, progress=told.append
        )
        made.fit(records)
        return made

    first = fit(replace(FAST, epochs=2))
    assert len(told) == 2
    again = fit(replace(FAST, epochs=2))
    assert told == []
    for name, array in weights(first).items():
        np.testing.assert_array_equal(weights(again)[name], array)
    assert len(fit(replace(FAST, epochs=3)).history) == 3
    assert len(told) == 1
    for settings, rows in ((replace(FAST, seed=1), records), (FAST, records[:-24])):
        with pytest.raises(InputError, match="other records"):
            fit(settings, rows)
    sound = path.read_bytes()
    for data in (b"", sound[:-1], b"\0" * 100, sound[:8] + b"x" + sound[9:]):
        path.write_bytes(data)
        with pytest.raises(InputError, match="no checkpoint, or damaged"):
            fit(FAST)


@needs_torch
def test_training_stops_when_validation_no_longer_improves() -> None:
    records, works = garden(4)
    # Times without any order to learn.
    rng = np.random.default_rng(0)
    noise = [replace(record, seconds=float(rng.random()) + 0.1) for record in records]
    model = RankingModel(
        TINY, works.__getitem__, net="waco", training=replace(FAST, epochs=200, patience=3, validation=0.3)
    )
    model.fit(noise)
    losses = [epoch.validation_loss for epoch in model.history]
    assert len(losses) < 200
    assert int(np.argmin(losses)) == len(losses) - 1 - 3


@needs_torch
@pytest.mark.parametrize("net", ["statistics", "numbers", "dense", "resnet"])
def test_other_networks_train_too(net: str) -> None:
    records, works = garden(4)
    model = RankingModel(TINY, works.__getitem__, net=net, training=replace(FAST, epochs=3))
    model.fit(records)
    assert model.history[-1].training_loss < model.history[0].training_loss


@needs_torch
def test_statistics_tell_works_of_the_same_shape_apart(tmp_path: Path) -> None:
    records, works = garden(12)
    model = RankingModel(TINY, works.__getitem__, net="statistics", training=FAST)
    model.fit(records)
    found = []
    for seed in range(100, 106):
        w = toy((scattered if seed % 2 else blocked)(seed))
        configs = list(TINY.enumerate(w))
        found.append(quality([cost(w, config) for config in configs], model.predict(w, configs, DEVICE)))
    assert mean_quality(found).spearman > 0.8
    assert np.isnan(model.estimate(w, configs, DEVICE)[1]).all()
    values, arrays = model.state()
    assert values["families"] == model.families
    with pytest.raises(InputError, match="other statistics"):
        RankingModel.from_state({**values, "features": "before"}, arrays)
    spoiled = {name: array for name, array in arrays.items() if name != "net.joined.0.weight"}
    with pytest.raises(InputError, match="do not fit"):
        RankingModel.from_state(values, spoiled).embed_pattern(w)


@needs_torch
def test_scores_may_say_how_many_times_slower(tmp_path: Path) -> None:
    """Taught ratios, scores are log2 of the ratio to the default config's time, and heads say how sure that is."""
    records, works = garden(12)
    default = TINY.default(toy(scattered(0)))
    records = [
        replace(
            record,
            provenance={**record.provenance, "drawn": "default" if record.config == default else "random"},
        )
        for record in records
    ]
    settings = replace(FAST, loss="ratio", epochs=120, learning_rate=3e-3)
    model = RankingModel(TINY, works.__getitem__, net="waco", training=settings, heads=3)
    model.fit(records)
    w = toy(blocked(100))
    configs = list(TINY.enumerate(w))
    true = np.log2([cost(w, config) for config in configs])
    pattern, embedded = model.embed_pattern(w), model.embed_configs(configs)
    error = model.score(pattern, embedded) - (true - np.log2(cost(w, default)))
    assert np.std(error) < 0.5 * np.std(true)
    assert abs(error.mean()) < np.std(true)
    assert (model.estimate(w, configs, DEVICE)[1] > 0).all()
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert isinstance(again, RankingModel)
    np.testing.assert_array_equal(
        again.estimate(w, configs, DEVICE)[1], model.estimate(w, configs, DEVICE)[1]
    )
    with pytest.raises(InputError, match="at least one head"):
        RankingModel(TINY, heads=0)


@needs_torch
def test_tensors_of_order_3() -> None:
    rng = np.random.default_rng(0)
    entries = entries_from(((20, 30, 10), [rng.integers(0, size, 200) for size in (20, 30, 10)], None))
    w = workload("mttkrp", entries, n=16)
    configs = list(TINY.enumerate(w))
    records = [
        Record.of(Measurement.of([float(k + 1)]), w, DEVICE, "tiny", config, {})
        for k, config in enumerate(configs)
    ]
    model = RankingModel(TINY, lambda _: w, net="waco", training=replace(FAST, epochs=2))
    model.fit(records)
    assert np.isfinite(model.predict(w, configs, DEVICE)).all()


@needs_torch
def test_loops_are_counted_on_the_cpu_and_hidden_from_walks() -> None:
    w = toy(scattered(0))
    space = cpu_space(w.assignment)
    rng = np.random.default_rng(0)
    configs = [space.sample(w, rng) for _ in range(20)]
    records = [
        Record.of(Measurement.of([1e-3 * space.steps(w, config)]), w, DEVICE, "cpu", config, {})
        for config in configs
    ]
    model = RankingModel(space, lambda _: w, net="statistics", training=replace(FAST, loss="ratio"))
    model.fit(records)
    full = model.predict(w, configs, DEVICE)
    assert spearman(np.array([float(space.steps(w, config)) for config in configs]), full) > 0.9
    blind = model.score(model.embed_pattern(w), model.embed_configs(configs))
    assert not np.allclose(full, blind)


# -- what is learned from ------------------------------------------------------------------------------


def test_groups_and_their_pairs() -> None:
    w = toy(scattered(0))
    configs = list(TINY.enumerate(w))[:4]
    records = measured(w, configs, "f")
    times = [3.0, 1.0, 2.0, 2.0]
    given = [replace(record, seconds=s) for record, s in zip(records, times, strict=True)]
    given[2] = replace(given[2], status="censored")  # at least 2 s
    given += [replace(given[0], status="crash", seconds=math.inf), replace(given[1], space="other")]
    (group,) = groups_of(given, "tiny", Table.of(TINY))
    assert group.family == "f"
    assert group.order.tolist() == [[0, 1, 0, 1], [-1, 0, -1, -1], [0, 1, 0, 0], [-1, 1, 0, 0]]
    np.testing.assert_allclose(group.ratios, np.log2(times), rtol=1e-6)
    with pytest.raises(InputError, match="no two records of space 'garden'"):
        groups_of(given, "garden", Table.of(GARDEN))
    with pytest.raises(InputError, match="no two records"):
        groups_of(given[:1], "tiny", Table.of(TINY))


def test_what_failed_is_slower_than_what_did_not() -> None:
    w = toy(scattered(0))
    records = measured(w, list(TINY.enumerate(w))[:3])
    times = [1.0, 4.0, math.inf]
    given = [replace(record, seconds=s) for record, s in zip(records[:2], times, strict=False)]
    failed = replace(records[2], status="crash", seconds=math.inf)
    (group,) = groups_of([*given, failed], "tiny", Table.of(TINY))
    assert group.order.tolist() == [[0, -1, -1], [1, 0, -1], [1, 1, 0]]
    assert group.ratios.tolist() == [0, 2, 2]
    anchors = [replace(given[0], seconds=s, provenance={"drawn": "default"}) for s in (2.0, 2.0, 8.0)]
    (group,) = groups_of([*given, failed, *anchors], "tiny", Table.of(TINY))
    assert (group.default_s, group.ratios.tolist()) == (2.0, [0, 1, 1])
    lost = replace(failed, provenance={"lost": True})
    assert len(groups_of([*given, lost], "tiny", Table.of(TINY))[0]) == 2
    used = replace(records[2], seconds=0.5, provenance={"measured_by": "use"})
    assert len(groups_of([*given, used], "tiny", Table.of(TINY))[0]) == 2


def test_times_of_different_jobs_are_not_compared() -> None:
    w = toy(scattered(0))
    records = measured(w, list(TINY.enumerate(w))[:4])
    jobs = [replace(record, provenance={"job": str(k // 2)}) for k, record in enumerate(records)]
    assert [len(group) for group in groups_of(jobs, "tiny", Table.of(TINY))] == [2, 2]
    again = [replace(record, seconds=2 * record.seconds) for record in records]
    (group,) = groups_of([*records, *again], "tiny", Table.of(TINY))
    np.testing.assert_allclose(group.seconds, [1.5 * record.seconds for record in records])


def test_families_are_not_divided() -> None:
    records, _ = garden(10)
    mixed = [replace(r, provenance={"family": f"f{int(r.provenance['family'][-1]) % 5}"}) for r in records]  # type: ignore[index]
    groups = groups_of(mixed, "tiny", Table.of(TINY))
    training, validation = divide(groups, 0.2, 0)
    assert {g.family for g in training} & {g.family for g in validation} == set()
    assert (len(training), len(validation)) == (8, 2)
    assert divide(groups, 0.0, 0) == (groups, [])
    assert len(divide(groups, 0.99, 0)[0]) == 2
    assert divide(groups[:1], 0.5, 0)[1] == []


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in (
        {"epochs": 0},
        {"batch": 1},
        {"learning_rate": 0.0},
        {"validation": 1.0},
        {"loss": "square"},
    ):
        with pytest.raises(InputError):
            Training(**wrong)  # type: ignore[arg-type]
    records, works = garden(2)
    with pytest.raises(InputError, match="workloads="):
        RankingModel(TINY).fit(records)
    if TORCH:
        with pytest.raises(InputError, match="no network 'vgg'"):
            RankingModel(TINY, works.__getitem__, net="vgg").fit(records)


def test_foreign_tables_and_arrays_are_refused(learned: RankingModel) -> None:
    values, arrays = learned.state()
    spoiled: list[tuple[dict[str, object], dict[str, np.ndarray]]] = [
        ({**values, "table_id": "0"}, arrays),
        ({**values, "table": Table.of(GARDEN).to_json(), "table_id": Table.of(GARDEN).id}, arrays),
        (values, {**arrays, "numbers.std": -arrays["numbers.std"]}),
        (values, {**arrays, "scoring.values": arrays["scoring.values"] * np.nan}),
        (values, {k: v for k, v in arrays.items() if k != "scoring.values"}),
    ]
    for some_values, some_arrays in spoiled:
        with pytest.raises(InputError):
            RankingModel.from_state(some_values, some_arrays)
    other = RankingModel.from_state({**values, "net": "resnet"}, arrays)
    with pytest.raises(InputError, match="do not fit"):
        other.embed_pattern(toy(blocked(1)))
