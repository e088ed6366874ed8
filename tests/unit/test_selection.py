"""A function with versions: registered, trained, called, kept."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorwise as tw
from tensorwise.device.device import Device, Measurement
from tensorwise.errors import InputError
from tensorwise.runtime.call import Call
from tensorwise.selection import Selection
from tensorwise.space.config import Config
from tensorwise.store.store import Store

pytest.importorskip("sklearn")


class Formula(Device[Call]):
    """Loops win up to 100 numbers, NumPy above; counts what it was asked, and may be interrupted."""

    name = "formula"
    id = "formula"

    def __init__(self, interrupt_after: int | None = None) -> None:
        self.asked: list[float] = []
        self.interrupt_after = interrupt_after

    def measure(self, workload: Call, configs: Sequence[Config]) -> Iterator[Measurement]:
        if len(self.asked) == self.interrupt_after:
            raise KeyboardInterrupt
        n = workload.features["n"]
        self.asked.append(n)
        took = {"loop": 1e-8 * n, "numpy": 9e-7 + 1e-9 * n}
        yield from (Measurement.of([took[str(config["version"])]]) for config in configs)


def draw(rng: np.random.Generator) -> dict[str, Any]:
    n = int(10 ** rng.uniform(0, 4))
    return {"n": n, "cell": f"{np.log2(n):.0f}"}


@pytest.fixture
def total() -> Selection:
    made = tw.versions(
        "total", features=lambda x: (len(x),), units={"n": "numbers"}, inputs=draw,
        make=lambda n: (np.arange(float(n)),),
    )  # fmt: skip

    @made.version
    def loop(x: Any) -> float:
        return sum(x)

    made.version(np.sum, name="numpy", device="cpu")
    return made


def test_before_it_is_trained_the_first_version_is_called(
    total: Selection, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert [tw.select("total")([1.0, 2.0]) for _ in range(3)] == [3.0] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "total is not trained: its first version, loop, is called; train it, or load a model"
    ]
    assert total.choose([1.0]).name == "loop"
    assert "not trained" in repr(total)


def test_trained_it_calls_what_suits(total: Selection) -> None:
    model = total.train(samples=200, store=False, device=Formula())
    assert total.model is model
    assert total.choose([0.0] * 20).name == "loop"
    assert total.choose([0.0] * 500).name == "numpy"
    assert isinstance(total(np.ones(3)), float)
    assert total(np.ones(500)) == 500.0
    assert model.card["inputs"] == 200


class ByZ(Device[Call]):
    """Whether z is small decides; a says nothing."""

    name, id = "by z", "by z"

    def __init__(self) -> None:
        self.asked: list[float] = []

    def measure(self, workload: Call, configs: Sequence[Config]) -> Iterator[Measurement]:
        self.asked.append(workload.features["z"])
        small = self.asked[-1] < 50
        for config in configs:
            yield Measurement.of([1e-6 if small == (config["version"] == "small") else 2e-6])


@pytest.mark.parametrize("as_parameters", [True, False])
def test_features_are_told_apart_by_name_not_by_place(as_parameters: bool) -> None:
    """Records keep them in alphabetical order."""
    made = tw.versions(
        "pick", features=lambda z, a: (z, a), units={"z": "1", "a": "1"}, make=lambda z, a: (z, a)
    )
    made.version(lambda z, a: "small z", name="small")
    made.version(lambda z, a: "large z", name="large")
    rng, device = np.random.default_rng(0), ByZ()
    drawn = [(float(z), float(a)) for z, a in rng.uniform(0, 100, (1000, 2))]
    inputs: list[Any] = [{"z": z, "a": a} for z, a in drawn] if as_parameters else list(drawn)
    model = made.train(inputs, samples=150, guided_after=100, store=False, device=device)
    assert model.fields == ("a", "z")
    assert made(10.0, 90.0) == "small z"
    assert made(90.0, 10.0) == "large z"
    assert np.abs(np.array(device.asked[100:]) - 50).mean() < 15, "the forest knows which one is z"


def test_what_was_passed_over_is_asked_for_later(total: Selection) -> None:
    device = Formula()
    total.train(
        [{"n": n} for n in range(1, 400)], guided_after=50, samples=70, batch=5, store=False, device=device
    )
    assert len(set(device.asked)) == len(device.asked) == 70


def test_it_measures_here_unless_told_otherwise(total: Selection) -> None:
    model = total.train([{"n": 5}, {"n": 50}], store=False)
    assert (model.predict(Call("total", {"n": 20.0}), total.space.configs) > 0).all()
    assert total.train([(np.ones(4),), (np.ones(9),)], store=False).card["inputs"] == 2


def test_an_interrupted_training_is_gone_on_with(total: Selection, tmp_path: Path) -> None:
    store = Store(tmp_path / "records.sqlite")
    first = Formula(interrupt_after=30)
    model = total.train(samples=100, store=store, device=first)
    assert model.card["inputs"] == 30
    assert "interrupted" in model.card["notes"][0]
    second, straight = Formula(), Formula()
    assert total.train(samples=100, store=store, device=second).card["inputs"] == 100
    total.train(samples=100, store=False, device=straight)
    assert first.asked + second.asked == straight.asked
    assert store.count() == 200
    assert total.train(samples=100, store=store, device=second).card["inputs"] == 100
    assert len(second.asked) == 70, "nothing was left to measure"


def test_inputs_that_are_known_do_not_end_a_training(
    total: Selection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same seed draws what was measured before once more: many draws in a row that give nothing new."""
    monkeypatch.setattr("tensorwise.adapt.active.MAX_REPEATED_DRAWS", 0)
    total.inputs = lambda rng: {"n": int(rng.integers(200))}
    store, device = Store(tmp_path / "records.sqlite"), Formula()
    assert total.train(samples=180, store=store, device=device).card["inputs"] == 180
    assert total.train(samples=190, store=store, device=device).card["inputs"] == 190
    assert len(set(device.asked)) == len(device.asked) == 190


def test_a_budget_ends_it(total: Selection) -> None:
    device = Formula()
    with pytest.raises(InputError, match="no record"):
        total.train(budget_s=1e-9, store=False, device=device)
    assert device.asked == []


def test_a_forest_guides_to_the_border(total: Selection) -> None:
    everywhere, guided = Formula(), Formula()
    total.train(samples=300, store=False, device=everywhere)
    total.train(samples=300, guided_after=100, batch=50, store=False, device=guided)

    def near(asked: list[float]) -> float:
        return float(np.mean([30 < n < 300 for n in asked[100:]]))

    assert near(guided.asked) > 2 * near(everywhere.asked)


def test_a_model_is_kept_and_loaded(total: Selection, tmp_path: Path) -> None:
    total.train(samples=200, store=False, device=Formula())
    total.save(tmp_path)
    again = tw.versions("total", features=lambda x: (len(x),), units={"n": "numbers"})
    with pytest.raises(InputError, match="needs a version"):
        again.load(tmp_path)
    again.version(sum, name="loop")
    with pytest.raises(InputError, match="has no version 'numpy'"):
        again.load(tmp_path)
    again.version(np.sum, name="numpy")
    again.version(max, name="unknown to the model")
    again.load(tmp_path)
    assert again.choose([0.0] * 500).name == "numpy"
    other = tw.versions("mean", features=lambda x: (len(x),), units={"n": "numbers"})
    other.version(sum, name="loop")
    with pytest.raises(InputError, match="a model of 'total', not of 'mean'"):
        other.load(tmp_path)
    fields = tw.versions("total", features=lambda x: (len(x),), units={"size": "numbers"})
    fields.version(sum, name="loop")
    with pytest.raises(InputError, match=r"chooses by n, but 'total' has the features size"):
        fields.load(tmp_path)


def test_versions_that_do_not_agree_are_never_chosen_and_named(
    total: Selection, caplog: pytest.LogCaptureFixture
) -> None:
    total.version(lambda x: 0.0, name="zero")
    model = total.train([{"n": n} for n in range(2, 30)], store=False)
    assert any("zero was wrong" in note for note in model.card["notes"])
    assert "zero was wrong" in caplog.text
    assert {total.choose([0.0] * n).name for n in range(2, 30)} <= {"loop", "numpy"}


def test_what_is_malformed_is_refused(total: Selection) -> None:
    with pytest.raises(InputError, match="there is no function 'nothing'"):
        tw.select("nothing")
    with pytest.raises(InputError, match="give name"):
        total.version(lambda x: x)
    with pytest.raises(InputError, match="samples must be positive"):
        total.train(samples=0)
    with pytest.raises(InputError, match="not trained"):
        total.save("nowhere")
    bare = tw.versions("bare", features=lambda x: (x,), units={"x": "1"})
    bare.version(abs)
    with pytest.raises(InputError, match="no generator of inputs"):
        bare.train(store=False)
    with pytest.raises(InputError, match="to make arguments"):
        bare.train([{"x": 1}], store=False)
    with pytest.raises(InputError, match="JSON-able"):
        bare.train([{"x": object()}], store=False)
    listed = tw.versions("listed", features=lambda x: (x,), units={"x": "1"}, make=lambda x: [x])  # type: ignore[arg-type, return-value]
    listed.version(abs)
    with pytest.raises(InputError, match="must return a tuple"):
        listed.train([{"x": 1}], store=False)
