"""Schedules as text: they print as they parse, and refusals name the directive."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwise.errors import InputError, ScheduleError
from tensorwise.lower.ir import LoweredFunction
from tensorwise.lower.lower import lower
from tensorwise.lower.plan import Plan
from tensorwise.lower.program import program_for
from tensorwise.program.schedule import DIRECTIVES as REGISTERED
from tensorwise.program.schedule import (
    Bound,
    Directive,
    Factor,
    LoopPass,
    Parallel,
    Prefetch,
    Reorder,
    Schedule,
    Split,
    Tile,
    Unroll,
)
from tensorwise.program.workload import workload
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.remap import Axis

LOOPS = st.sampled_from(["i", "k", "k1", "k0", "j"])
NUMBERS = st.integers(1, 10**9)
DIRECTIVES: st.SearchStrategy[Directive] = st.one_of(
    st.builds(Split, st.sampled_from("ikj"), NUMBERS),
    st.builds(Reorder, st.lists(LOOPS, min_size=1, max_size=5).map(tuple)),
    st.builds(
        Parallel,
        LOOPS,
        st.sampled_from(["dynamic", "balanced", "merge-path"]),
        NUMBERS,
        st.sampled_from(["atomic", "private"]),
    ),
    st.builds(Unroll, LOOPS, st.integers(0, 16)),
    st.builds(Tile, LOOPS, st.integers(1, 32), st.sampled_from([1, 2, 4, 8, 16])),
    st.builds(Prefetch, st.sampled_from(["B", "D_1"]), NUMBERS),
    st.builds(Bound, st.sampled_from("ikj"), NUMBERS),
    st.builds(Factor, LOOPS),
)


@given(st.lists(DIRECTIVES, max_size=8).map(tuple))
def test_every_schedule_prints_as_it_parses(directives: tuple[Directive, ...]) -> None:
    schedule = Schedule(directives)
    assert Schedule.parse(str(schedule)) == schedule
    assert Schedule.parse(str(schedule).replace(",", " ,  ").replace(") ", ")\n\t")) == schedule


def test_defaults() -> None:
    assert Schedule.parse("") == Schedule()
    assert Schedule.parse("parallel(i)").parallel == Parallel("i", "dynamic", 32, "atomic")
    assert Schedule.parse("unroll(i)") == Schedule.parse("unroll(i,0)")
    assert Schedule.parse("split(k,4)parallel(i,balanced)").splits == {"k": 4}
    assert Schedule.parse("factor(k)").factor == Factor("k")
    assert Schedule.parse("").factor is None


def test_loops_in_their_order() -> None:
    schedule = Schedule.parse("split(k,4) reorder(k1,i,k0)")
    assert schedule.loops(("i", "k")) == (Axis("k", "outer"), Axis("i"), Axis("k", "inner"))
    assert Schedule.parse("split(k,4)").loops(("i", "k")) == (
        Axis("i"),
        Axis("k", "outer"),
        Axis("k", "inner"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo(k)", "cannot read schedule at 'foo(k)'; known directives: split, reorder, parallel"),
        ("split(k,4) what", "cannot read schedule at 'what'"),
        ("split(k,4", "cannot read schedule at 'split(k,4'"),
        ("split(k)", "split does not take 1 argument: 'split(k)'; expected split(index,size)"),
        ("split()", "split does not take 0 arguments: 'split()'; expected split(index,size)"),
        ("factor( )", "factor does not take 0 arguments"),
        ("split(k,four)", "split(k,four): expected a whole number, got 'four'"),
        ("split(k,-4)", "expected a whole number, got '-4'"),
        ("split(k,99999999999)", "expected a whole number"),
        ("tile(j,8)", "tile(j,8): expected tile(LOOP,VECTORSxLANES), as tile(j,2x8)"),
        ("tile(j,8x)", "tile(j,8x): expected tile(LOOP,VECTORSxLANES), as tile(j,2x8)"),
        ("tile(j)", "tile does not take 1 argument: 'tile(j)'; expected tile(loop,shape)"),
        ("factor(k,l)", "factor does not take 2 arguments: 'factor(k,l)'"),
        ("parallel(i,dynamic,32,atomic,more)", "parallel does not take 5 arguments"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        Schedule.parse(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("split(x,4)", "split(x,4): no index 'x'; the einsum has i, j, k"),
        ("split(k,0)", "split(k,0): the size must be at least 1"),
        ("split(k,4) split(k,8)", "at most one split of k"),
        ("reorder(i,j)", "reorder(i,j) must list each of these loops once: i, j, k"),
        ("reorder(i,j,k,k)", "must list each of these loops once"),
        ("reorder()", "must list each of these loops once"),
        ("reorder(i,j,k) reorder(i,k,j)", "at most one reorder directive"),
        ("parallel(i) parallel(j)", "at most one parallel directive"),
        ("tile(i,1x1) tile(j,1x1)", "at most one tile directive"),
        ("unroll(i,2) unroll(i,4)", "at most one unroll of i"),
        ("factor(i) factor(k)", "at most one factor directive, got: factor(i) factor(k)"),
        ("factor(x)", "factor(x): no loop 'x'; there are i, j, k"),
        ("split(k,8) factor(k)", "factor(k): no loop 'k'; there are i, j, k1, k0"),
        ("parallel(k1)", "parallel(k1,dynamic,32): no loop 'k1'; there are i, j, k"),
        ("parallel(i,fair)", "the policy is dynamic, balanced, merge-path or pieces, got 'fair'"),
        ("parallel(i,dynamic,0)", "the chunk must be at least 1"),
        ("parallel(i,dynamic,1,shared)", "the reduction is atomic or private, got 'shared'"),
        ("tile(j,1x3)", "lanes are 1, 2, 4, 8 or 16 and vectors 1 to 32"),
        ("tile(j,0x4)", "lanes are 1, 2, 4, 8 or 16 and vectors 1 to 32"),
        ("tile(j,33x4)", "vectors 1 to 32"),
        ("unroll(i)", "only the inner loop of a split up to 16 is unrolled completely; give a factor, as in unroll(i,4)"),
        ("split(k,32) unroll(k0)", "only the inner loop of a split up to 16"),
        ("split(k,8) unroll(k0,4)", "k0 has a constant extent; write unroll(k0)"),
        ("unroll(i,17)", "the factor is at most 16"),
        ("unroll(i,2) parallel(i)", "i cannot be unrolled, because it is already a tile or parallel"),
        ("unroll(i,2) tile(i,1x4)", "i cannot be unrolled, because it is already a tile or parallel"),
        ("tile(i,1x4) parallel(i)", "i cannot be both a tile and parallel; split it"),
    ],
)  # fmt: skip
def test_what_does_not_fit(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        Schedule.parse(text).loops(("i", "j", "k"))
    assert message in str(error.value)


class Noop(LoopPass):
    def __str__(self) -> str:
        return "noop()"

    def rewrite(self, kernel: LoweredFunction, plan: Plan) -> LoweredFunction:
        return kernel


class Wordless(LoopPass):
    def rewrite(self, kernel: LoweredFunction, plan: Plan) -> LoweredFunction:
        return kernel


class OldRewrite(Noop):
    def rewrite(self, kernel: LoweredFunction) -> LoweredFunction:  # type: ignore[override]
        return kernel


class Misspelled(Noop):
    def __str__(self) -> str:
        return "Misspelled"


class Careless(Noop):
    def rewrite(self, kernel: LoweredFunction, plan: Plan) -> LoweredFunction:
        return None  # type: ignore[return-value]


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(REGISTERED, "_rows", rows := dict(REGISTERED._rows))
    return rows


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Wordless, "does not define __str__; __str__ returns its text, as 'reverse(k)'"),
        (OldRewrite, "defines rewrite(self, kernel: "),
        (OldRewrite, "; expected rewrite(self, kernel, plan)"),
        (3, "cannot be called"),
    ],
)
def test_a_directive_that_could_not_be_loaded_or_run_is_not_registered(
    rows: dict[str, Any], kind: Any, said: str
) -> None:
    with pytest.raises(InputError) as error:
        REGISTERED.register("noop")(kind)
    assert said in str(error.value)
    if callable(kind):  # what a function makes is looked into when it is made
        rows["noop"] = lambda: kind()
        with pytest.raises(ScheduleError, match=r"noop\(\): .*(__str__|expected rewrite)"):
            Schedule.parse("noop()")


def test_directives_of_others_parse_and_run(rows: dict[str, Any]) -> None:
    rows["noop"] = Noop
    schedule = Schedule.parse("noop() parallel(i)")
    assert str(schedule) == "noop() parallel(i,dynamic,32)"
    with pytest.raises(ScheduleError, match=r"noop does not take 1 argument: 'noop\(k\)'; expected noop\(\)"):
        Schedule.parse("noop(k)")
    rows["noop"] = Misspelled
    with pytest.raises(
        ScheduleError, match=r"__str__ returns 'Misspelled', which does not parse as noop\(\)"
    ):
        Schedule.parse("noop()")
    rows["noop"] = Careless
    work = workload("spmv", entries_from(np.eye(4, dtype="f4")))
    program = program_for(work, "(i,k) -> U(i) C(k)", "noop()")
    with pytest.raises(ScheduleError, match=r"noop\(\): rewrite returned None, no LoweredFunction"):
        lower(program.plan())
