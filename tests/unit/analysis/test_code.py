"""Compiled code as numbers."""

import math

import numpy as np
import pytest

from tensorwise.analysis.code import CODE, UNCOMPILED, Compiled
from tensorwise.analysis.loop_tree import BufferAccess, Leaf, Loop, LoopTree
from tensorwise.analysis.machine_code import MACHINE_CODE_NAMES, MachineCode
from tensorwise.analysis.misses import MISSED

STREAM = LoopTree(
    (Loop("serial", 16384, (Leaf({}, (BufferAccess("x", "read", 4, 16384, (1.0,), (1.0,)),)),)),)
)
NAMED = [field.name for field in CODE.fields]


def features(tree: LoopTree = STREAM, **numbers: float) -> dict[str, float]:
    told = {name.replace("_", "."): number for name, number in numbers.items()}
    found = CODE.features(Compiled(tree, MachineCode(dict.fromkeys(MACHINE_CODE_NAMES, 0.0) | told)))
    assert found.dtype == np.float32
    return dict(zip(NAMED, found.tolist(), strict=True))


def test_fields_are_the_numbers_of_code_and_of_misses() -> None:
    assert [*MACHINE_CODE_NAMES, *(f"missed.{name}" for name in MISSED)] == NAMED
    assert all(field.doc and field.unit.startswith("log2(") for field in CODE.fields)
    assert len(UNCOMPILED) == len(NAMED)


def test_how_long_it_runs_is_one_number_and_all_else_is_by_the_cycle() -> None:
    once = features(all_cycles=2.0**20 - 1, all_flops=2.0**10 - 1, hot_length=31)
    assert once["all.cycles"] == 20
    assert once["all.flops"] == 10 - 20
    assert once["all.instructions"] == -20  # none
    assert once["hot.length"] == 5  # instructions, however long they run
    assert once["missed.first"] == pytest.approx(math.log2(1025) - 20, rel=1e-6)
    # Twice as much of all in twice the time is the same, but for the time.
    double = LoopTree((*STREAM.nodes, *STREAM.nodes))
    twice = features(double, all_cycles=2.0**21, all_flops=2.0**11, all_instructions=1, hot_length=31)
    assert twice["all.cycles"] == pytest.approx(21, abs=1e-4)
    for name in ("all.flops", "all.instructions", "missed.first", "missed.pages", "hot.length"):
        assert twice[name] == pytest.approx(once[name], abs=2e-2 if name != "missed.pages" else 0.1)


def test_a_program_that_does_nothing_is_like_one_that_was_not_compiled() -> None:
    assert list(features(LoopTree(())).values()) == UNCOMPILED.tolist()
