"""What a space proposes is what directives allow: no rule of theirs is written again in a domain."""

from collections.abc import Iterator

import numpy as np
import pytest

from tensorwise.errors import ScheduleError
from tensorwise.program.loop_nest import LoopNest
from tensorwise.program.schedule import Parallel
from tensorwise.program.workload import Workload
from tensorwise.space import running
from tensorwise.space.config import Config
from tensorwise.space.readings import loop_axes, nest_so_far, operand
from tests.unit.space.test_cpu import NAMES, space_of, works


def configs(work: Workload) -> Iterator[Config]:
    rng = np.random.default_rng(7)
    return (space_of(work).sample(work, rng) for _ in range(25))


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_that_is_allowed_is_proposed_and_no_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cutting is proposed where it is allowed and worth it: here it always is."""
    monkeypatch.setattr(running, "_worth_cutting", lambda earlier, w: True)
    work = works()[name]
    policy = next(param for param in running.running(work.assignment) if param.name == "policy")
    for config in configs(work):
        domain = policy.domain(config, work)
        if config["parallel"] == "none":
            assert list(domain) == [None]
            continue
        loop = loop_axes(config, operand(work).indices)[str(config["parallel"])].name
        for value in running.POLICIES:
            assert (value in domain) == nest_so_far(config, work).allows(Parallel(loop, value))


@pytest.mark.parametrize("name", NAMES)
def test_every_program_of_a_space_passes_its_directives(name: str) -> None:
    work = works()[name]
    for config in configs(work):
        for part in space_of(work).program(work, config).parts:
            part.plan(work.elem, sizes=work.sizes).check()


def test_a_domain_follows_when_a_rule_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    work = works()["spmm"]
    policy = next(param for param in running.running(work.assignment) if param.name == "policy")
    config = space_of(work).default(work)
    assert "balanced" in policy.domain(config, work)
    rule = Parallel.check

    def stricter(self: Parallel, nest: LoopNest) -> None:
        rule(self, nest)
        if self.policy == "balanced":
            raise ScheduleError(f"{self}: not today")

    monkeypatch.setattr(Parallel, "check", stricter)
    assert list(policy.domain(config, work)) == ["dynamic"]
