"""Misses: what caches do with known sequences of lines, and compiled code against Python."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.analysis import misses
from tensorwise.analysis.loop_tree import BufferAccess, Kind, Leaf, Loop, LoopTree, Mode
from tensorwise.analysis.misses import MISSED, WINDOW, Walked, missed, plain
from tensorwise.errors import CompilerError, InputError

LINE = 16
"""Elements of a line."""


def nest(
    extents: list[float],
    *strides: list[float],
    mode: Mode = "read",
    moves: float = 1.0,
    count: float = 1.0,
    kinds: list[Kind] | None = None,
) -> LoopTree:
    """Loops around a leaf that goes through some buffers of floats."""
    accesses = tuple(
        BufferAccess(f"b{k}", mode, 4, 2.0**24, tuple(one), (moves,) * len(one), count)
        for k, one in enumerate(strides)
    )
    node: Loop | Leaf = Leaf({}, accesses)
    for extent, kind in reversed(list(zip(extents, kinds or ["serial"] * len(extents), strict=True))):
        node = Loop(kind, extent, (node,))
    return LoopTree((node,))


def test_a_stream_misses_each_line_once_and_is_foreseen() -> None:
    found = missed(nest([16384], [1]))
    assert found["first"] == found["second"] == 1024
    assert found["pages"] == found["pages.far"] == 16
    assert found["first.far"] <= 2  # its begin
    assert found["second.written"] == 0
    assert missed(nest([16384], [1], mode="update"))["second.written"] == 1024


def test_what_fits_is_missed_once() -> None:
    found = missed(nest([10, 4096], [0, 1]))
    assert found["first"] == 256
    assert missed(nest([10, 16384], [0, 1]))["first"] == 10 * 1024  # 64 KiB do not
    assert missed(nest([10, 16384], [0, 1]))["second"] == 1024


@pytest.mark.parametrize(("lines", "each"), [(8, 1), (9, 1000)])
@pytest.mark.parametrize("mode", ["read", "update"])
def test_lines_that_meet_in_a_set_throw_each_other_out(lines: int, each: int, mode: Mode) -> None:
    """A set has eight ways, however little is touched."""
    found = missed(nest([1000, lines], [0, 64 * LINE], kinds=["parallel", "serial"], mode=mode))
    written = mode == "update"
    assert found["first"] == lines * each
    assert found["first.written"] == lines * each * written
    assert found["first.conflict"] == lines * (each - 1)
    assert found["first.conflict.written"] == lines * (each - 1) * written
    assert found["second"] == lines
    assert found["second.conflict"] == 0


def test_lines_that_do_not_fit_are_no_conflict() -> None:
    found = missed(nest([100, 16384], [0, 1]))
    assert found["first"] == 100 * 1024
    assert found["first.conflict"] < 0.01 * found["first"]
    across = missed(nest([1000, 9], [0, 2048 * LINE], kinds=["parallel", "serial"]))
    assert across["second"] == 9000
    assert across["second.conflict"] == 9 * 999


@pytest.mark.parametrize(("kind", "each"), [("unrolled", 1), ("serial", 1), ("parallel", 4)])
def test_straight_code_touches_an_element_once(kind: Kind, each: int) -> None:
    """An element of each of twelve lines of a set, four times; registers hold it where a compiler made straight code."""
    tree = nest([1000, 4, 12], [12 * 64 * LINE, 0, 64 * LINE], kinds=["parallel", kind, "serial"])
    assert missed(tree)["first"] == 1000 * 12 * each


def test_elements_of_a_line_are_touched_each_on_its_own() -> None:
    tree = nest([1000, 4, 12], [12 * 64 * LINE, 1, 64 * LINE], kinds=["parallel", "unrolled", "serial"])
    assert missed(tree)["first"] == 1000 * 12 * 4


@pytest.mark.parametrize(
    ("step", "mode", "part"), [(1, "update", 1.0), (1, "read", 0), (4, "write", 0.5), (8, "update", 0)]
)
def test_lines_in_which_two_threads_write_are_counted(step: int, mode: Mode, part: float) -> None:
    """Of four iterations each thread has two: the other one is twice a step away, of 16 elements of a line."""
    tree = nest([4, 4096], [step, 64 * LINE], kinds=["parallel", "serial"], mode=mode)
    assert missed(tree)["shared"] == 4 * 4096 * part
    assert missed(nest([4096], [1], mode=mode))["shared"] == 0


def test_lanes_touch_a_line_together() -> None:
    """What a loop around straight code does in vectors, eight of its iterations at once."""
    tree = nest([50, 4096, 12], [0, 1, 4096 * LINE], kinds=["parallel", "serial", "unrolled"])
    assert missed(tree)["first"] == pytest.approx(50 * 4096 * 12 / 8, rel=1e-3)


def test_long_jumps_are_foreseen_by_nobody() -> None:
    across = missed(nest([64, 512], [1, 1 << 13]))
    assert across["first"] == 64 * 512  # 512 lines of two sets
    assert across["first.far"] >= 64 * 511
    assert across["pages"] == 64 * 512


def test_one_execution_may_touch_several_lines() -> None:
    assert missed(nest([100], [4 * LINE], count=4 * LINE))["first"] == 400


def test_long_accesses_are_run_less_often() -> None:
    found = missed(nest([10_000, 10_000], [1 << 20, 0], count=2.0**18))  # 1 MiB each, the same again
    assert found["first"] == pytest.approx(1e8 * 2**14, rel=1e-3)
    assert found["second"] < found["first"]
    assert missed(nest([3], [0], count=2.0**40))["first"] == 3 * misses.LONGEST / 64  # not endless


def test_a_mean_step_may_be_a_part_of_an_element() -> None:
    assert missed(nest([1000], [1], moves=1 / 16))["first"] == 4


def test_conditions_and_fractions_are_means() -> None:
    whole = missed(nest([100, 64], [64 * LINE, LINE]))
    half = missed(nest([100, 0.5, 64], [64 * LINE, 0, LINE], kinds=["serial", "condition", "serial"]))
    assert half == pytest.approx({name: count / 2 for name, count in whole.items()})
    more = missed(nest([100.25, 64], [64 * LINE, LINE]))
    assert more == pytest.approx({name: count * 1.0025 for name, count in whole.items()})


def test_of_many_executions_windows_are_run() -> None:
    long = 8 * WINDOW
    found = missed(nest([long], [1]))
    assert found["first"] == pytest.approx(long / LINE, rel=1e-3)
    across = missed(nest([long // 512, 512], [1, 1 << 13]))
    assert across["second.far"] == pytest.approx(long, rel=1e-3)
    again = missed(nest([long // 4096, 4096], [0, 1]))  # has long been there when windows begin
    assert again["first"] == 0


def test_leaves_add_up() -> None:
    one, other = nest([16384], [1]).nodes[0], nest([100], [LINE]).nodes[0]
    assert missed(LoopTree((one, other)))["first"] == 1024 + 100
    assert not any(missed(LoopTree(())).values())
    assert not any(missed(LoopTree((Loop("serial", 9, (Leaf({"float_add": 1}, ()),)),))).values())


@pytest.mark.parametrize("extents", [[2.0**40, 2.0**40], [2.0**70]])
def test_what_no_program_does_is_refused(extents: list[float]) -> None:
    with pytest.raises(InputError, match="executions"):
        missed(nest(extents, [1.0] * len(extents)))


def test_addresses_beyond_all_memory_are_refused() -> None:
    with pytest.raises(InputError, match="bytes"):
        missed(nest([2.0**20], [2.0**40]))


@given(data=st.data(), windows=st.booleans())
@settings(deadline=None)  # the first example compiles
def test_compiled_code_counts_what_python_does(data: st.DataObject, windows: bool) -> None:
    extents = data.draw(st.lists(st.integers(1, 9), max_size=4))
    accesses = [
        BufferAccess(
            data.draw(st.sampled_from("abc")), data.draw(st.sampled_from(["read", "write", "update"])),
            data.draw(st.sampled_from([1, 4, 8])), float(data.draw(st.integers(1, 5000))),
            tuple(data.draw(st.sampled_from([0.0, 1.0, 7.0, 16.0, 1024.0, 4096.0])) for _ in extents),
            tuple(data.draw(st.sampled_from([0.0, 0.3, 1.0])) for _ in extents),
            data.draw(st.sampled_from([1.0, 3.0, 20.0])),
        )
        for _ in range(data.draw(st.integers(1, 4)))
    ]  # fmt: skip
    loops = [Loop("serial", extent, ()) for extent in extents]
    walked = Walked.of(loops, Leaf({}, tuple(accesses)))
    if windows and walked.window > 9:
        starts = np.array([walked.window // 5, 0], np.int64)
        walked = Walked(
            walked.extents, walked.first, walked.steps, walked.held, walked.written, starts,
            walked.window // 2, walked.window // 4, walked.stretch, walked.grains, walked.thread_distances,
        )  # fmt: skip
    apart = np.array([data.draw(st.sampled_from([0, 4, 60, 4096])) for _ in accesses], np.int64)
    walked = replace(
        walked, stretch=data.draw(st.sampled_from([1, 3, walked.stretch])), thread_distances=apart
    )
    assert misses._compiled(walked).tolist() == plain(walked).tolist()
    assert math.prod(walked.extents.tolist()) == math.prod(extents)


def test_without_a_compiler_python_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = nest([12, 300], [5000, 64], [1, 0])
    known = missed(tree)

    def missing() -> None:
        raise CompilerError("no compiler")

    misses.MISSES.__dict__.pop("works", None)
    monkeypatch.setattr(misses.MISSES, "load", missing)
    try:
        assert missed(tree) == known
    finally:
        misses.MISSES.__dict__.pop("works", None)


def test_all_is_named() -> None:
    assert list(missed(nest([3], [1]))) == list(MISSED)
