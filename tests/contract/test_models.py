"""What every CostModel promises. Models come from MODELS."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from paper_models.analytic import MetricsModel  # another package's model: importing it adds it to MODELS

from tensorwise.device.device import Measurement
from tensorwise.device.null import NullDevice, smooth_cost
from tensorwise.errors import InputError
from tensorwise.model import (
    MODELS,
    AdditiveModel,
    CostModel,
    RankingModel,
    TransferModel,
    load_model,
)
from tensorwise.model.model import ARRAYS, DESCRIPTION, Returns
from tensorwise.model.ranking import Training
from tensorwise.space.config import Config, Value
from tensorwise.space.param import Param
from tensorwise.space.params import Choice, Flag, Permutation
from tensorwise.store.record import Record
from tests.contract.toys import GARDEN, TINY, ToySpace, ToyWorkload, draw_many

if find_spec("torch") is not None:
    import paper_models.nets  # noqa: F401  (adds `waco`, a network that looks at entries)

W: Any = ToyWorkload()
DEVICE = NullDevice()
CONFIGS = draw_many(GARDEN, W, 0, 30)

LEARNS: set[str] = {"metrics", "additive", "ranking", "transfer"}
"""Models whose predictions follow the costs of the configs they were fitted on; add yours."""

FAST = Training(epochs=40, learning_rate=1e-3)
MAKING: dict[str, Callable[[], CostModel]] = {
    "metrics": lambda: MetricsModel(GARDEN, epochs=200),
    "additive": lambda: AdditiveModel(GARDEN, lambda workload_id: W),
    "ranking": lambda: RankingModel(GARDEN, lambda workload_id: W, net="waco", training=FAST),
    "transfer": lambda: TransferModel(GARDEN, lambda workload_id: W, net="numbers", training=FAST),
}
"""How models are made that need arguments; add yours."""

NEEDS = {"metrics": "torch", "ranking": "torch", "transfer": "torch", "tree": "sklearn"}
"""Model -> package without which it cannot learn; add yours."""


def changed(*params: Param, without: str = "") -> ToySpace:
    """The garden with other params of the same names, with params more, or without one."""
    given = {param.name: param for param in (*GARDEN.params, *params) if param.name != without}
    return replace(GARDEN, params=tuple(given.values()))


def chosen(config: Config, **choices: Value) -> Config:
    """The config with other choices where these parameters apply; one that is None is left out."""
    given = {**config, **{name: value for name, value in choices.items() if config.get(name, 0) is not None}}
    return Config({name: value for name, value in given.items() if choices.get(name, 0) is not None})


LOOPS, TILE = GARDEN.by_name["loops"], GARDEN.by_name["tile"]
assert isinstance(LOOPS, Permutation)
assert isinstance(TILE, Choice)
WARP = Flag("warp", binds="call", doc="A parameter that the models have never seen.")
CHANGES: dict[str, tuple[ToySpace, Callable[[Config], Config], str]] = {
    "a param more": (changed(WARP), lambda one: Config({**one, "warp": True}), "parameter warp is new"),
    "a listed param less": (
        changed(without="lanes"),
        lambda one: chosen(one, lanes=None),
        "parameter lanes is gone",
    ),
    "an order less": (
        changed(without="loops"),
        lambda one: chosen(one, loops=None),
        "parameter loops is gone",
    ),
    "a value more": (
        changed(replace(TILE, values=(1, 2, 4, 8))),
        lambda one: chosen(one, tile=8),
        "8 of parameter tile is new",
    ),
    "an item more": (
        changed(replace(LOOPS, items=(*LOOPS.items, "p"))),
        lambda one: chosen(one, loops=("p", *one["loops"])),  # type: ignore[misc]  # an order
        "p of parameter loops is new",
    ),
}
"""A space that is not that of the model any more, how a config of it differs from the garden's, and what is unknown."""
EXACT = {"a param more", "an item more"}
"""Changes that leave all that is known of a config as it was."""


def needed(kind: str) -> list[pytest.MarkDecorator]:
    """Skip the tests of a model whose package is not installed."""
    package = NEEDS.get(kind)
    missing = package is not None and find_spec(package) is None
    return [pytest.mark.skipif(missing, reason=f"{package} is not installed")]


pytestmark = [
    pytest.mark.usefixtures("one_torch_thread"),
    pytest.mark.parametrize(
        "make",
        [pytest.param(model, id=kind, marks=needed(kind)) for kind, model in MODELS.items()],
    ),
]


def new(make: type[CostModel]) -> CostModel:
    return MAKING.get(make.kind, make)()


def records() -> list[Record]:
    measured = [*DEVICE.measure(W, CONFIGS), Measurement.failed("crash", "by design")]
    configs = [*CONFIGS, GARDEN.default(W)]
    return [
        Record.of(one, W, DEVICE, GARDEN.name, config, {"threads": 1})
        for config, one in zip(configs, measured, strict=True)
    ]


def fitted(make: type[CostModel]) -> CostModel:
    model = new(make)
    model.fit(records())
    return model


@cache
def once_fitted(make: type[CostModel]) -> CostModel:
    """One for the tests that only ask it."""
    return fitted(make)


def reloaded(make: type[CostModel], folder: Path) -> CostModel:
    """A fitted model that was saved and loaded."""
    once_fitted(make).save(folder)
    return load_model(folder)


def test_predictions_are_finite_numbers_one_a_config(make: type[CostModel]) -> None:
    model = fitted(make)
    assert model.returns in get_args(Returns)
    for configs in (CONFIGS, CONFIGS[:1], []):
        predicted = model.predict(W, configs, DEVICE)
        assert isinstance(predicted, np.ndarray)
        assert predicted.shape == (len(configs),)
        assert predicted.dtype == np.float64
        assert np.isfinite(predicted).all()
        if model.returns == "seconds":
            assert (predicted > 0).all()


def test_other_workloads_and_devices_are_predicted_too(make: type[CostModel]) -> None:
    other: Any = ToyWorkload("elsewhere", op="sddmm")
    configs = draw_many(GARDEN, other, 1, 3)
    assert np.isfinite(fitted(make).predict(other, configs, NullDevice(name="unseen"))).all()


def test_predictions_do_not_depend_on_their_company(make: type[CostModel]) -> None:
    model = fitted(make)
    together = model.predict(W, CONFIGS, DEVICE)
    alone = [float(model.predict(W, [config], DEVICE)[0]) for config in CONFIGS]
    np.testing.assert_allclose(together, alone, rtol=1e-6)


def test_a_spread_is_not_negative_or_not_known(make: type[CostModel]) -> None:
    model = fitted(make)
    for configs in (CONFIGS, []):
        predicted, spread = model.estimate(W, configs, DEVICE)
        np.testing.assert_array_equal(predicted, model.predict(W, configs, DEVICE))
        assert (spread.shape, spread.dtype) == ((len(configs),), np.float64)
        assert ((spread >= 0) | np.isnan(spread)).all()


def test_seconds_are_of_the_right_size(make: type[CostModel]) -> None:
    model = fitted(make)
    if model.returns != "seconds":
        pytest.skip("predicts scores")
    true = [smooth_cost(W, config) for config in CONFIGS]
    predicted = model.predict(W, CONFIGS, DEVICE)
    assert min(true) / 10 < predicted.min() <= predicted.max() < max(true) * 10


def test_lower_is_better(make: type[CostModel]) -> None:
    if make.kind not in LEARNS:
        pytest.skip(f"{make.kind} does not learn")
    true = np.log([smooth_cost(W, config) for config in CONFIGS])
    predicted = fitted(make).predict(W, CONFIGS, DEVICE)
    ranks = [np.argsort(np.argsort(costs)) for costs in (true, predicted)]
    assert np.corrcoef(*ranks)[0, 1] > 0.3


def test_saved_and_loaded_it_predicts_the_same(make: type[CostModel], tmp_path: Path) -> None:
    model = fitted(make)
    model.save(tmp_path / "deep" / "model")
    model.save(tmp_path / "deep" / "model")  # again, over itself
    assert sorted(p.name for p in (tmp_path / "deep" / "model").iterdir()) == [DESCRIPTION, ARRAYS]
    for again in (make.load(tmp_path / "deep" / "model"), load_model(tmp_path / "deep" / "model")):
        assert type(again) is make
        np.testing.assert_array_equal(again.predict(W, CONFIGS, DEVICE), model.predict(W, CONFIGS, DEVICE))


def test_the_card_is_saved_with_it(make: type[CostModel], tmp_path: Path) -> None:
    model = fitted(make)
    assert not model.card
    model.card = {"metrics": {"spearman": 0.9}, "families": ["fem"]}
    model.save(tmp_path)
    assert load_model(tmp_path).card == model.card
    assert not new(make).card


def test_fitting_again_replaces_what_was_learned(make: type[CostModel]) -> None:
    model = fitted(make)
    before = model.predict(W, CONFIGS, DEVICE)
    model.fit(records())
    np.testing.assert_allclose(model.predict(W, CONFIGS, DEVICE), before, rtol=1e-3)


def test_nothing_to_learn_from_is_said_or_survived(make: type[CostModel]) -> None:
    model = new(make)
    try:
        model.fit([])
    except InputError:
        with pytest.raises(InputError, match="learned nothing"):
            model.predict(W, CONFIGS, DEVICE)
    else:
        assert np.isfinite(model.predict(W, CONFIGS, DEVICE)).all()


def test_damaged_files_are_refused(make: type[CostModel], tmp_path: Path) -> None:
    fitted(make).save(tmp_path)
    sound = {name: (tmp_path / name).read_bytes() for name in (DESCRIPTION, ARRAYS)}
    described = json.loads(sound[DESCRIPTION])
    damages: list[tuple[str, bytes | None]] = [
        (DESCRIPTION, None),
        (DESCRIPTION, b""),
        (DESCRIPTION, b"\x80\x04\x95"),
        (DESCRIPTION, b"[" * 5000),
        (DESCRIPTION, b"[]"),
        (DESCRIPTION, b"{}"),
        (DESCRIPTION, json.dumps({**described, "version": 99}).encode()),
        (DESCRIPTION, json.dumps({**described, "kind": "oracle"}).encode()),
        (DESCRIPTION, json.dumps({**described, "kind": 7}).encode()),
        (DESCRIPTION, json.dumps({**described, "values": []}).encode()),
        (DESCRIPTION, json.dumps({**described, "card": 7}).encode()),
        (DESCRIPTION, json.dumps({k: v for k, v in described.items() if k != "values"}).encode()),
        (DESCRIPTION, sound[DESCRIPTION][:-20]),
        (ARRAYS, None),
        (ARRAYS, b""),
        (ARRAYS, sound[ARRAYS][:-1]),
        (ARRAYS, (2**60).to_bytes(8, "little") + sound[ARRAYS][8:]),
        (ARRAYS, bytes([sound[ARRAYS][0] ^ 1]) + sound[ARRAYS][1:]),
    ]
    for name, data in damages:
        if data is None:
            (tmp_path / name).unlink()
        else:
            (tmp_path / name).write_bytes(data)
        for loading in (make.load, load_model):
            with pytest.raises(InputError):
                loading(tmp_path)
        (tmp_path / name).write_bytes(sound[name])
    make.load(tmp_path)


def test_another_kind_of_model_is_refused(make: type[CostModel], tmp_path: Path) -> None:
    fitted(make).save(tmp_path)
    for other in MODELS.values():
        if other is not make:
            with pytest.raises(InputError, match=f"holds a model {make.kind!r}"):
                other.load(tmp_path)


def test_a_folder_that_cannot_be_written(make: type[CostModel], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot be saved"):
        fitted(make).save(tmp_path / "file")
    with pytest.raises(InputError, match="no model"):
        make.load(tmp_path / "file")


def test_kind_is_its_name_in_the_table(make: type[CostModel]) -> None:
    assert MODELS[make.kind] is make
    assert math.isfinite(make.version)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_space_costs_accuracy_and_not_the_model(
    make: type[CostModel], change: str, tmp_path: Path
) -> None:
    space, other, unknown = CHANGES[change]
    model = reloaded(make, tmp_path)
    assert model.misfit(space) is None
    assert model.unknown_params(space) == ([] if model.table is None else [unknown])
    assert model.unknown_params(GARDEN) == []
    configs = [other(config) for config in CONFIGS]
    assert set(configs).isdisjoint(CONFIGS) or change == "a value more"  # some have no tile
    predicted, known = (model.predict(W, some, DEVICE) for some in (configs, CONFIGS))
    assert np.isfinite(predicted).all()
    if make.kind == "random":
        return  # it draws lots by the config's id
    if change == "a param more" or (change in EXACT and make.kind in LEARNS):
        np.testing.assert_array_equal(predicted, known)
    elif make.kind in LEARNS:
        assert np.abs(predicted - known).max() < 0.5 * np.ptp(known)
        assert np.corrcoef(predicted, known)[0, 1] > 0.8


REFUSED: dict[str, tuple[ToySpace, str]] = {
    "no parameter shared": (replace(TINY, name="garden"), "have 0 in common"),
    "too few shared": (replace(GARDEN, params=GARDEN.params[:3]), "have 3 in common"),
    "the name for another kind": (
        changed(Choice("tile", ("small", "large"), binds="compile", doc="Sizes that have names now.")),
        "parameter tile has values of another kind",
    ),
    "an order that is a choice": (
        changed(Choice("loops", ("i", "k"), binds="compile", doc="The outer loop alone.")),
        "parameter loops has values of another kind",
    ),
    "another device": (replace(changed(WARP), name="orchard"), "its table is of space 'garden'"),
}


@pytest.mark.parametrize("space", REFUSED)
def test_quite_another_space_is_refused(make: type[CostModel], space: str, tmp_path: Path) -> None:
    model, (other, why) = reloaded(make, tmp_path), REFUSED[space]
    if model.table is None:
        assert model.misfit(other) is None
        return
    assert f"for another table of choices than that of space {other.name!r}: " in (model.misfit(other) or "")
    assert why in (model.misfit(other) or "")
    with pytest.raises(InputError, match="another table of choices"):
        model.predict(W, list(TINY.enumerate(W))[:2], DEVICE)
