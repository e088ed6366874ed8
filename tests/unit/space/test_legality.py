"""What a space proposes is what directives allow: no rule of theirs is written again in a domain."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tensorwise.errors import ScheduleError
from tensorwise.program.loop_nest import LoopNest
from tensorwise.program.schedule import Parallel, Schedule
from tensorwise.program.workload import Workload
from tensorwise.runtime.work import Bounds
from tensorwise.space import cuda, readings, running, scheduling
from tensorwise.space.config import Config
from tensorwise.space.cuda import cuda_space
from tensorwise.space.param import Param
from tensorwise.space.scheduling import allows, directives_so_far, nest_so_far
from tests.unit.space.test_cpu import NAMES, space_of, works


def configs(work: Workload) -> Iterator[Config]:
    rng = np.random.default_rng(7)
    return (space_of(work).sample(work, rng) for _ in range(25))


def running_param(work: Workload, name: str) -> Param:
    return next(param for param in running.running(work.assignment) if param.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_that_is_allowed_is_proposed_and_no_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cutting is proposed where it is allowed and worth it: here it always is."""
    monkeypatch.setattr(running, "_worth_cutting", lambda earlier, w: True)
    work = works()[name]
    policy = running_param(work, "policy")
    for config in configs(work):
        domain = policy.domain(config, work)
        if config["parallel"] == "none":
            assert list(domain) == [None]
            continue
        for value in running.POLICIES:
            assert (value in domain) == allows(config, work, "policy", value)


@pytest.mark.parametrize("name", NAMES)
def test_every_loop_that_may_be_a_tile_is_proposed_and_no_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_worth_lanes", lambda loop, earlier, w: True)
    work = works()[name]
    if not work.assignment.monoid.single:  # of whose lanes some more are not proposed
        return
    tile = running_param(work, "tile")
    for config in configs(work):
        loops = readings.nest(config)
        allowed = [loop for loop in loops if allows(config, work, "tile", loop)]
        assert sorted(map(str, tile.domain(config, work))) == sorted(["none", *allowed])


@pytest.mark.parametrize("name", NAMES)
def test_threads_share_one_of_the_two_outer_loops_that_they_may(name: str) -> None:
    work = works()[name]
    parallel = running_param(work, "parallel")
    for config in configs(work):
        allowed = [loop for loop in readings.nest(config) if allows(config, work, "parallel", loop)]
        assert sorted(map(str, parallel.domain(config, work))) == sorted({"none", *allowed[:2]})


@pytest.mark.parametrize("name", NAMES)
def test_what_is_allowed_is_what_a_plan_passes(name: str) -> None:
    """Each value of a domain is asked with those before it alone: with the others, the program of a config passes, too."""
    work = works()[name]
    for config in configs(work):
        nest = nest_so_far(config, work)
        directives = (*nest.schedule.directives, *directives_so_far(config, work, nest))
        replace(nest, schedule=Schedule(directives)).check()
        assert nest.allows(*directives_so_far(config, work, nest))


@pytest.mark.parametrize("name", NAMES)
def test_every_program_of_a_space_passes_its_directives(name: str) -> None:
    work = works()[name]
    for config in configs(work):
        for part in space_of(work).program(work, config).parts:
            part.plan(work.elem, sizes=work.sizes).check()


def test_a_domain_follows_when_a_rule_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    work = works()["spmm"]
    policy = running_param(work, "policy")
    config = space_of(work).default(work)
    assert "balanced" in policy.domain(config, work)
    rule = Parallel.check

    def stricter(self: Parallel, nest: LoopNest) -> None:
        rule(self, nest)
        if self.policy == "balanced":
            raise ScheduleError(f"{self}: not today")

    monkeypatch.setattr(Parallel, "check", stricter)
    scheduling._NESTS.clear()  # of workloads of this kind it is remembered what is allowed
    scheduling._shared_nests.cache_clear()
    again = replace(work)
    assert list(policy.domain(config, again)) == ["dynamic"]


def test_choices_stand_in_the_order_of_the_table() -> None:
    """What a value is asked with are the choices before it."""
    cpu = tuple(param.name for param in running.running(works()["spmm"].assignment))
    assert cpu == scheduling.CHOICES
    layout, *gpu = (param.name for param in cuda_space(works()["spmm"].assignment).params)
    assert layout == "layout"
    assert tuple(gpu) == cuda.CHOICES


@pytest.mark.parametrize("name", NAMES)
def test_bounds_of_a_config_are_those_of_its_program(name: str) -> None:
    work = works()[name]
    for config in configs(work):
        program = replace(space_of(work).program(work, config), remainder=None)
        assert space_of(work).bounds(work, config).steps == Bounds.of(program, work).steps
