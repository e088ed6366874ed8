"""Bringing a model to another device: what is measured, what is kept, and what is expected of it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorwise.adapt.sampling import DOUBT, representative, select_informative
from tensorwise.adapt.transfer import Transferred, transfer
from tensorwise.analysis.footprint import FIELDS, Footprints
from tensorwise.device.device import Device, Measurement
from tensorwise.device.spade import Machine
from tensorwise.errors import InputError
from tensorwise.model.additive import AdditiveModel
from tensorwise.model.gains import mean_gain
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.space.strips import SPADE, cpu
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tests.contract.toys import GARDEN

SMALL = Machine.load("spade-small").space
MISSED = next(place for place, field in enumerate(FIELDS) if field.name == "gathered.1")


def work(seed: int, op: str = "spmm") -> Workload:
    """Scattered entries, within a band that is narrow or as wide as the matrix."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 300, 900)
    columns = (rows + rng.integers(0, 8 if seed % 2 else 300, 900)) % 300
    return workload(op, entries_from(((300, 300), (rows, columns), None)), n=64 if op == "spmm" else None)


WORKS = {f"m{seed}": work(seed) for seed in range(6)}


def seconds(w: Workload, config: Config) -> float:
    """What a small cache misses costs, and bypassing saves a tenth."""
    mapper = SPADE if "bypass" in config else cpu(w)
    missed = Footprints(w.entries, SMALL.processors).of(mapper.strips(w, config), 64)[MISSED] / (
        64 * w.entries.nnz
    )
    return float(1e-3 * (0.1 + missed) * (1.1 if not config.get("bypass", True) else 1.0))


class Counting(Device[Workload]):
    """Answers as a simulator would, counts, and is interrupted at the ``until``-th measurement."""

    name, id = "counting", "counting-1"

    def __init__(self, until: int = 10**9) -> None:
        self.asked: list[tuple[str, Config]] = []
        self.until = until
        self.provenance: dict[str, object] = {"simulated": True}

    def measure(self, workload: Workload, configs: Sequence[Config]) -> Iterator[Measurement]:
        for config in configs:
            if len(self.asked) == self.until:
                raise KeyboardInterrupt
            self.asked.append((workload.id, config))
            yield Measurement.of([seconds(workload, config)])


def test_it_measures_within_the_budget_and_says_what_to_expect() -> None:
    device, told = Counting(), list[tuple[str, float]]()
    found = transfer(
        None, device, SMALL, WORKS, budget=100, samples=32, progress=lambda now, share: told.append((now, share))
    )  # fmt: skip
    assert len(found.records) == 3
    assert found.fresh == len(device.asked) == 99  # a third of the budget each
    assert len(set(device.asked)) == 99
    assert [now for now, _ in told[:6]] == [f"looking at {name}" for name in WORKS]
    assert told[6 + 98][0].endswith("99 of 99 configs")
    assert all(0 <= share <= 1 for _, share in told)
    assert found.expected.keys() == found.records.keys()
    assert isinstance(found.model, AdditiveModel)
    expected = mean_gain(found.expected.values())
    assert expected["kendall"] > 0.4
    assert 0.7 < expected["top1"] <= expected["top5"] <= 1
    others = [WORKS[name] for name in WORKS if name not in found.records]
    configs = list(SMALL.enumerate(others[0]))
    costs = np.array([seconds(others[0], config) for config in configs])
    predicted = found.model.predict(others[0], configs, device)
    assert costs[predicted.argmin()] < 1.3 * costs.min()


def test_what_is_expected_comes_from_models_that_have_not_seen_the_matrix() -> None:
    """One matrix's times are turned round: a model that had seen it would know."""
    odd = WORKS["m1"].id

    class Turned(Counting):
        def measure(self, workload: Workload, configs: Sequence[Config]) -> Iterator[Measurement]:
            for one in super().measure(workload, configs):
                yield Measurement.of([1e-6 / one.seconds]) if workload.id == odd else one

    found = transfer(
        None, Turned(), SMALL, {name: WORKS[name] for name in ("m1", "m3", "m5")}, budget=150, samples=50
    )
    assert found.expected["m1"].kendall < 0 < found.expected["m1"].optimum


def run(device: Counting, store: Store, **more: int) -> Transferred:
    return transfer(None, device, SMALL, WORKS, budget=64, samples=32, store=store, **more)


def test_nothing_is_measured_twice(tmp_path: Path) -> None:
    first, whole = Counting(until=40), Counting()
    with Store(tmp_path / "records.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            run(first, store)
        assert len(store.query()) == 40
        second = Counting()
        found = run(second, store)
        assert found.fresh == len(second.asked) == 24
        assert run(Counting(), store).fresh == 0
    with Store(tmp_path / "other.sqlite") as store:
        again = run(whole, store)
    assert {*first.asked, *second.asked} == {*whole.asked}
    np.testing.assert_allclose(found.model.rates, again.model.rates)


def test_what_others_simulated_counts(tmp_path: Path) -> None:
    device = Counting()
    names = representative(WORKS, SMALL, 2)
    with Store(tmp_path / "records.sqlite") as store:
        for name in names:
            configs = list(SMALL.enumerate(WORKS[name]))
            default = SMALL.default(WORKS[name])
            about = {"job": "of a collection", "simulated": True, "drawn": "every"}
            found = device.measure(WORKS[name], configs)
            store.append(
                Record.of(m, WORKS[name], device, SMALL.name, c, about | ({"drawn": "default"} if c == default else {}))
                for c, m in zip(configs, found, strict=True)
            )  # fmt: skip
        simulated = run(device, store)
        assert simulated.fresh == 0
        assert [len(some) for some in simulated.records.values()] == [256, 256]
    with Store(tmp_path / "real.sqlite") as store:
        store.append(
            replace(record, provenance={**record.provenance, "simulated": False, "job": "of a collection"})
            for some in simulated.records.values()
            for record in some
        )
        device.provenance = {}
        assert run(device, store).fresh == 64


def test_what_cannot_be_done_is_said() -> None:
    device = Counting()
    with pytest.raises(InputError, match="a budget of 63 does not afford 2 matrices with 32 configs"):
        transfer(None, device, SMALL, WORKS, budget=63, samples=32)
    with pytest.raises(InputError, match="1 matrices are too few"):
        transfer(None, device, SMALL, {"m0": WORKS["m0"]}, budget=1000)
    with pytest.raises(InputError, match="computes spmm and sddmm"):
        transfer(None, device, SMALL, {"a": work(0, "spmv"), "b": work(1, "spmv")}, budget=1000)
    with pytest.raises(InputError, match="read as loops"):
        transfer(None, device, GARDEN, WORKS, budget=1000)


def test_chosen_matrices_are_of_different_kinds() -> None:
    names = representative(WORKS, SMALL, 2)
    assert {int(name[1:]) % 2 for name in names} == {0, 1}
    assert representative(WORKS, SMALL, 6) == list(WORKS)
    same = dict.fromkeys("abc", WORKS["m0"])
    assert len(representative(same, SMALL, 2)) == 2


def test_the_first_choice_leaves_the_least_doubt_about_all() -> None:
    rng = np.random.default_rng(0)
    things = [rng.random((7, 4)) ** 3 for _ in range(9)]
    usual = np.exp(np.mean([np.log(one.mean(axis=0)) for one in things], axis=0))
    sized = [np.hstack([np.ones((7, 1)), one / usual]) for one in things]
    shares = [one / one.sum(axis=1, keepdims=True) for one in sized]

    def doubt(seen: list[int]) -> float:
        known = DOUBT * np.eye(5) + sum(shares[place].T @ shares[place] / 7 for place in seen)
        return float(np.mean([row @ np.linalg.solve(known, row) for one in shares for row in one]))

    first, second = select_informative(things, 2)
    assert first == min(range(9), key=lambda place: doubt([place]))
    assert second == min(set(range(9)) - {first}, key=lambda place: doubt([first, place]))
    assert sorted(select_informative(things, 20)) == list(range(9))
