"""The bundled models in a CPU's space that has changed since they were trained: they know less, and go on."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from tensorwise.device.null import NullDevice
from tensorwise.model import RankingModel
from tensorwise.model.finding import bundled_model
from tensorwise.model.neural import prefix
from tensorwise.model.scoring import WIDTH
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import CpuSpace, cpu_space_of
from tensorwise.space.cuda import cuda_space
from tensorwise.space.param import Param
from tensorwise.space.params import Choice, Flag, Permutation
from tensorwise.tensor.convert import entries_from
from tensorwise.tuning.advice import Advisor

OPS: dict[str, dict[str, int]] = {"spmv": {}, "spmm": {"n": 32}, "sddmm": {"n": 32}, "mttkrp": {"n": 16}}
DEVICE = NullDevice()


@cache
def work(op: str) -> Workload:
    shape = (300, 200, 20)[: 3 if op == "mttkrp" else 2]
    places = np.random.default_rng(0).integers(0, np.array(shape)[:, None], (len(shape), 3000))
    return workload(op, entries_from((shape, places, None)), **OPS[op])


@cache
def drawn(op: str) -> list[Config]:
    space, rng = cpu_space_of(work(op)), np.random.default_rng(0)
    return [space.sample(work(op), rng) for _ in range(60)]


@cache
def advisor(op: str) -> Advisor:
    return Advisor.load(bundled_model(op))


class Change(NamedTuple):
    """How a space has changed.

    Attributes:
        params: the new table.
        config: a config of the old table -> one of the new table.
        unknown: what the models do not know.
        exact: whether predictions stay what they were.
    """

    params: Callable[[tuple[Param, ...]], list[Param]]
    config: Callable[[Config], Config]
    unknown: str
    exact: bool


def letter_more(param: Param) -> Param:
    """A level of the outer rows may be run-length coded, too."""
    if param.name != "kind_i1":
        return param
    assert isinstance(param, Choice)
    return replace(param, values=(*param.values, "R"))


def loop_more(param: Param) -> Param:
    if param.name != "order":
        return param
    assert isinstance(param, Permutation)
    return replace(param, items=(*param.items, "p"))


def with_loop(config: Config) -> Config:
    loops = config["order"]
    assert isinstance(loops, tuple)
    return Config({**config, "order": (loops[0], "p", *loops[1:])})


WARP = Flag("warp", binds="call", doc="A parameter that the models have never seen.")
CHANGES = {
    "a param more": Change(
        lambda params: [*params, WARP],
        lambda one: Config({**one, "warp": True}),
        "parameter warp is new",
        True,
    ),
    "a param more, in front": Change(
        lambda params: [WARP, *params],
        lambda one: Config({"warp": True, **one}),
        "parameter warp is new",
        True,
    ),
    "a param less": Change(
        lambda params: [param for param in params if param.name != "prefetch"],
        lambda one: Config({name: value for name, value in one.items() if name != "prefetch"}),
        "parameter prefetch is gone",
        False,
    ),
    "a level more": Change(
        lambda params: list(map(letter_more, params)),
        lambda one: Config({**one, "kind_i1": "R"}),
        "R of parameter kind_i1 is new",
        False,
    ),
    "a loop more": Change(
        lambda params: list(map(loop_more, params)), with_loop, "p of parameter order is new", False
    ),
}


def changed(op: str, change: Change) -> CpuSpace:
    space = cpu_space_of(work(op))
    return replace(space, params=tuple(change.params(space.params)))


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("op", OPS)
def test_a_bundled_model_predicts_in_a_changed_space(op: str, name: str) -> None:
    change, model = CHANGES[name], advisor(op).model
    space = changed(op, change)
    assert model.misfit(space) is None
    assert model.unknown_params(space) == [change.unknown]
    configs = [change.config(config) for config in drawn(op)]
    known, predicted = (model.predict(work(op), some, DEVICE) for some in (drawn(op), configs))
    assert np.isfinite(predicted).all()
    if change.exact:
        np.testing.assert_array_equal(predicted, known)
    else:
        assert np.abs(predicted - known).max() < np.ptp(known)
        assert np.corrcoef(predicted, known)[0, 1] > (0.95 if name == "a param less" else 0.7)


@pytest.mark.parametrize("name", CHANGES)
def test_the_graph_of_a_bundled_model_names_configs_of_the_changed_space(name: str) -> None:
    change, op = CHANGES[name], "spmm"
    space = changed(op, change)
    found, before = (
        advisor(op).propose(work(op), one, DEVICE, [], np.random.default_rng(0), lambda: True)
        for one in (space, cpu_space_of(work(op)))
    )
    assert len(found) > 32
    assert all(space.why_not(config, work(op)) is None for config in found)
    if change.exact:
        assert [Config({name: one[name] for name in before[0]}) for one in found] == before
        assert {config["warp"] for config in found} == {False}  # its default


@pytest.mark.parametrize("op", OPS)
def test_a_space_of_another_device_is_refused(op: str) -> None:
    assert "another table of choices than that of space 'cuda'" in str(
        advisor(op).model.misfit(cuda_space(work("spmm").assignment))
    )


def test_an_unknown_value_is_the_mean_of_the_known_ones() -> None:
    """Of the rows of one param's values: neither of those of others, nor of "does not apply"."""
    model = advisor("spmm").model
    assert isinstance(model, RankingModel)
    table = model.table
    column = [param.name for param in table.listed].index("kind_i1")
    known, (unknown,) = (
        table.encode([Config({**drawn("spmm")[0], "kind_i1": kind}) for kind in kinds]).values[:, column]
        for kinds in (("U", "C", "C16", "B"), ("R",))
    )
    for member, scoring in enumerate(model._scorings):
        learned = model.state()[1][f"{prefix(member)}scoring.values"]
        assert len(learned) == table.form.lookups <= unknown
        np.testing.assert_allclose(scoring["values"][unknown], learned[known].mean(axis=0), rtol=1e-6)
        assert scoring["values"].shape == (table.form.lookups + len(table.listed), WIDTH)
