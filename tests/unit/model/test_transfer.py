"""TransferModel and AdditiveModel: what is learned on one device helps on another."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from tensorwise.analysis.footprint import FIELDS, Footprints
from tensorwise.device.gpus import gpu_called
from tensorwise.device.null import NullDevice
from tensorwise.device.spade import Machine
from tensorwise.errors import InputError
from tensorwise.model import AdditiveModel, CostModel, load_model
from tensorwise.model.metrics import kendall
from tensorwise.model.model import DESCRIPTION
from tensorwise.model.reader import LATENT, SHARED, Reader
from tensorwise.model.samples import Training
from tensorwise.model.table import Table
from tensorwise.model.transfer import TransferModel
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space_of
from tensorwise.space.cuda import cuda_space
from tensorwise.space.space import Space
from tensorwise.space.strips import CUDA, SPADE, Mapper, Processors, cpu
from tensorwise.store.record import Record
from tensorwise.tensor.convert import entries_from
from tests.contract.toys import GARDEN

pytestmark = pytest.mark.usefixtures("one_torch_thread")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
SMALL = Machine.load("spade-small").space
MISSED = next(place for place, field in enumerate(FIELDS) if field.name == "gathered.1")
FAST = Training(epochs=15, learning_rate=3e-3, loss="ratio", validation=0.0)


def work(seed: int) -> Workload:
    """Scattered entries, within a band that differs."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 400, 1500)
    columns = (rows + rng.integers(0, 16 << (seed % 5), 1500)) % 400
    return workload("spmm", entries_from(((400, 400), (rows, columns), None)), n=64)


WORKS = {one.id: one for one in map(work, range(8))}


def seconds(w: Workload, config: Config) -> float:
    """On both devices gathered rows that a small cache misses cost; and a flag of their own is good on each."""
    mapper = SPADE if "bypass" in config else cpu(w)
    missed = Footprints(w.entries, SMALL.processors).of(mapper.strips(w, config), 64)[MISSED] / (
        64 * w.entries.nnz
    )
    own = config["bypass"] if "bypass" in config else config["prefetch"]
    return float(1e-3 * (0.1 + missed) * (1.0 if own else 1.1))


DEVICE = NullDevice(seconds)


def records(space: Space, works: list[Workload], count: int) -> list[Record]:
    found = []
    for number, w in enumerate(works):
        rng = np.random.default_rng(number)
        configs = list({space.sample(w, rng) for _ in range(count)})
        measured = DEVICE.measure(w, configs)
        facts = {"family": str(number)}
        found += [
            Record.of(m, w, DEVICE, space.name, c, facts) for c, m in zip(configs, measured, strict=True)
        ]
    return found


def taus(model: CostModel, works: list[Workload]) -> float:
    configs = {w.id: list(SMALL.enumerate(w)) for w in works}
    found = []
    for w in works:
        true = np.array([seconds(w, config) for config in configs[w.id]])
        found.append(kendall(true, model.predict(w, configs[w.id], DEVICE)))
    return float(np.mean(found))


def test_a_config_is_read_as_strips_own_choices_and_a_footprint() -> None:
    w = work(0)
    reader = Reader(Table.of(SMALL), SPADE)
    configs = list(SMALL.enumerate(w))
    encoded = reader.encode(w, configs)
    assert encoded.values.shape == (256, 0)
    assert [order.shape for order in encoded.orders] == [(256, SHARED), (256, LATENT)]
    assert encoded.nests.shape == (256, len(FIELDS))
    assert not encoded.orders[1].any()  # no encoder: own choices are not seen
    assert len(np.unique(reader.own(configs), axis=0)) == 8  # barrier, bypassing, reordering
    assert not Reader(Table.of(SMALL), SPADE, footprints=False).encode(w, configs).nests.any()
    assert not Reader(Table.of(GARDEN), None).form.lookups


def test_readers_of_both_devices_return_numbers_of_one_form() -> None:
    w = work(0)
    forms = [Reader(Table.of(space), space.mapper(w)).form for space in (SMALL, cpu_space_of(w))]
    assert forms[0].orders == forms[1].orders
    assert forms[0].nest == forms[1].nest
    assert forms[0].id != forms[1].id


@needs_torch
def test_the_encoder_tells_own_choices_apart() -> None:
    from tensorwise.model.latent import autoencoder

    own = np.unique(Reader(Table.of(SMALL), SPADE).own(list(SMALL.enumerate(work(0)))), axis=0)
    first, again = (autoencoder(own, 16, seed=1) for _ in range(2))
    for (weight, bias), (same, too) in zip(first, again, strict=True):
        np.testing.assert_array_equal(weight, same)
        np.testing.assert_array_equal(bias, too)
    seen = Reader(Table.of(SMALL), SPADE, first).latent(own)
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)[~np.eye(len(own), dtype=bool)]
    assert apart.min() > 0.5
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-4)


@needs_torch
def test_the_encoder_is_trained_to_keep_what_choices_say() -> None:
    """Choices that vary along few directions are recovered linearly; a random encoder of this width loses a third."""
    from tensorwise.model.latent import autoencoder

    rng = np.random.default_rng(0)
    own = (rng.standard_normal((300, 3)) @ rng.standard_normal((3, 40))).astype(np.float32)
    seen = Reader(Table.of(SMALL), SPADE, autoencoder(own, 6)).latent(own)
    numbers = np.column_stack([seen, np.ones(len(seen))])
    left = own - numbers @ np.linalg.lstsq(numbers, own, rcond=None)[0]
    assert (left**2).sum() < 0.05 * ((own - own.mean(axis=0)) ** 2).sum()


@needs_torch
def test_what_was_learned_on_one_device_is_of_use_on_another(tmp_path: Path) -> None:
    works = list(WORKS.values())
    source = TransferModel(cpu_space_of(works[0]), WORKS.__getitem__, net="numbers", training=FAST)
    source.fit(records(cpu_space_of(works[0]), works[:5], 60))
    few = Training(epochs=10, learning_rate=1e-3, batch=32, loss="ratio", validation=0.0)
    target = source.transferred(SMALL, records(SMALL, works[:2], 60), WORKS.__getitem__, training=few)
    alone = TransferModel(SMALL, WORKS.__getitem__, net="numbers", training=few)
    alone.fit(records(SMALL, works[:2], 60))
    assert taus(target, works[5:]) > max(taus(alone, works[5:]), 0.5)
    assert "another table" in str(source.misfit(SMALL))
    assert target.misfit(SMALL) is None

    target.card = {"op": "spmm"}
    target.save(tmp_path)
    loaded = load_model(tmp_path)
    configs = list(SMALL.enumerate(works[6]))
    np.testing.assert_array_equal(
        loaded.predict(works[6], configs, DEVICE), target.predict(works[6], configs, DEVICE)
    )
    described = json.loads((tmp_path / DESCRIPTION).read_text())
    described["values"]["reader"]["mapper"]["order"] = "bypass"
    (tmp_path / DESCRIPTION).write_text(json.dumps(described))
    with pytest.raises(InputError, match="mapper"):
        load_model(tmp_path)


@needs_torch
def test_a_model_that_learned_nothing_has_nothing_to_transfer() -> None:
    with pytest.raises(InputError, match="nothing yet"):
        TransferModel(SMALL).transferred(SMALL, [], WORKS.__getitem__)


def test_sums_of_costs_are_found_again_from_two_workloads(tmp_path: Path) -> None:
    works = list(WORKS.values())
    few = records(SMALL, works[:2], 60)
    model = AdditiveModel(SMALL, WORKS.__getitem__)
    with pytest.raises(InputError, match="nothing yet"):
        model.predict(works[0], list(SMALL.enumerate(works[0])), DEVICE)
    model.fit(few)
    assert (model.rates >= 0).all()
    assert taus(model, works[5:]) > 0.9
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    configs = list(SMALL.enumerate(works[6]))
    predicted = model.predict(works[6], configs, DEVICE)
    np.testing.assert_array_equal(loaded.predict(works[6], configs, DEVICE), predicted)
    true = np.log2([seconds(works[6], config) for config in configs])
    assert np.std(predicted - true) < 0.1 < np.std(true)  # ratios, not only their order
    (group, *_) = model.groups(few)
    of_group = [record.config for record in few if record.workload_id == group.workload_id]
    np.testing.assert_allclose(
        model.scores(group), model.predict(works[0], list(dict.fromkeys(of_group)), DEVICE)
    )
    arrays = model.state()[1]
    with pytest.raises(InputError, match="the rates are not those"):
        AdditiveModel.from_state(model.state()[0], {**arrays, "rates": -arrays["rates"]})


@pytest.mark.parametrize("op", ["spmm", "sddmm"])
def test_rates_of_a_gpu_are_found_from_two_workloads(op: str) -> None:
    """What blocks and caches of a GPU do is counted as elsewhere; here each costs what the test says."""
    gpu = gpu_called("H200")
    works = {one.id: one for one in (workload(op, w.entries, n=64) for w in WORKS.values())}
    first = next(iter(works.values()))
    space = cuda_space(first.assignment, "A", gpu)
    mapper = space.mapper(first)
    assert mapper is not None
    assert mapper.processors == Processors(132, ((2**18, 1), (50 * 2**20, 132), (50 * 2**20, 132)))

    def took(w: Workload, config: Config) -> float:
        counts = Footprints(w.entries, mapper.processors).of(mapper.strips(w, config), 64)
        return float(1e-6 + 1e-9 * counts[0] + 2e-9 * counts[1] + 3e-9 * counts[2])

    device = NullDevice(took)
    made = []
    for number, w in enumerate(works.values()):
        rng = np.random.default_rng(number)
        configs = list({space.sample(w, rng) for _ in range(40)})
        for config, measured in zip(configs, device.measure(w, configs), strict=True):
            made.append(Record.of(measured, w, device, space.name, config, {"family": str(number)}))
    model = AdditiveModel(space, works.__getitem__)
    model.fit([record for record in made if record.provenance["family"] in "01"])
    for w in list(works.values())[5:]:
        some = [record for record in made if record.workload_id == w.id]
        predicted = model.predict(w, [record.config for record in some], device)
        assert kendall(np.array([record.seconds for record in some]), predicted) > 0.8


def test_a_gpus_loops_are_strips() -> None:
    w = work(0)
    space = cuda_space(w.assignment)
    config = space.default(w)
    assert space.mapper(workload("spmv", w.entries)) is None
    strips = space.mapper(w).strips(w, config)  # type: ignore[union-attr]
    held = [config[name] for name in ("registers", "vector", "threads")]
    assert strips.splits == (config["teams"], 400, np.prod(held))
    assert Mapper.from_json(json.loads(json.dumps(CUDA.to_json()))) == CUDA
