"""Schedules as text: they print as they parse, and refusals name the directive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwise.errors import ScheduleError
from tensorwise.program.schedule import (
    Bound,
    Directive,
    Factor,
    Parallel,
    Prefetch,
    Reorder,
    Schedule,
    Split,
    Tile,
    Unroll,
)
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
        ("split(k)", "split does not take 1 arguments: 'split(k)'"),
        ("split(k,four)", "expected a whole number, got 'four'"),
        ("split(k,-4)", "expected a whole number, got '-4'"),
        ("split(k,99999999999)", "expected a whole number"),
        ("tile(j,8)", "expected a whole number, got ''"),
        ("tile(j,8x)", "expected a whole number, got ''"),
        ("tile(j)", "tile does not take 1 arguments"),
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
