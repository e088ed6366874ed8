"""Turns: a program runs until the fastest runs of some rounds agree, and the fastest of all counts."""

import mmap
import os
from collections.abc import Callable

import numpy as np
import pytest

from tensorwise.device.device import Measurement
from tensorwise.device.fastest import AGREE, BOUT, MIN_ROUNDS
from tensorwise.tasks.cpu import MAX_ROUNDS, in_turns, keep_off_workers


def replayed(programs: list[list[list[float]]]) -> Callable[[int], list[float]]:
    """What a child runs: the rounds of each program one after the other, counted where all children see it."""
    counts = np.frombuffer(mmap.mmap(-1, 8 * len(programs)), np.int64)

    def timed(place: int) -> list[float]:
        counts[place] += 1
        return programs[place][counts[place] - 1]

    return timed


def turns(*programs: list[list[float]], most_s: float = 1e9) -> list[Measurement]:
    first = [Measurement.of([rounds[0][0]]) for rounds in programs]
    return in_turns(first, replayed(list(programs)), 5.0, most_s)


def test_the_fastest_run_counts_once_some_rounds_have_hit_it() -> None:
    disturbed = [[1.8, 1.5], [1.7, 1.6], [1.9, 1.55], [2.0, 1.4], [1.8, 1.45], [1.7, 1.4]]
    quiet = [[1.01, 1.9], [1.8, 1.0], [1.7, 1.015]]
    (found,) = turns(disturbed + quiet)
    assert (found.seconds, found.note) == (1.0, "")
    assert found.samples == (1.0, 1.01, 1.015)


def test_programs_end_apart_from_each_other() -> None:
    # What comes after MIN_ROUNDS rounds of a steady program, and after MAX_ROUNDS of a restless one, is never run.
    steady, restless = [[1.0]] * MIN_ROUNDS + [[0.5]], [[40.0 - place] for place in range(MAX_ROUNDS + 1)]
    first, second = turns(steady, restless)
    assert (first.seconds, first.note) == (1.0, "")
    assert second.seconds == 41.0 - MAX_ROUNDS
    assert "differ by 12%" in second.note


def test_two_fast_rounds_are_not_enough() -> None:
    later = [[0.99], [1.5], [1.5], [0.98]]  # the last one is never run
    (found,) = turns([[1.0], [1.0], *([1.5 + place / 10] for place in range(MIN_ROUNDS - 2)), *later])
    assert AGREE == 3
    assert (found.seconds, found.note) == (0.99, "")


def test_a_slow_program_has_one_bout() -> None:
    (found,) = turns([[2.0], [3.0], [2.5]], most_s=1.0)
    assert found.samples == (2.0, 2.5, 3.0)
    assert found.seconds == 2.0
    assert "differ by 50%" in found.note


def test_what_failed_at_first_or_in_a_round_has_no_time() -> None:
    def timed(place: int) -> list[float]:
        if place == 1:
            os._exit(1)
        return [1.0]

    first = [Measurement.failed("wrong", "why"), Measurement.of([1.0]), Measurement.of([1.0])]
    wrong, crashed, fine = in_turns(first, timed, 5.0)
    assert (wrong.note, crashed.status, fine.seconds) == ("why", "crash", 1.0)


def test_what_agrees_on_shared_processors_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Asked before and after each bout: the first bout begins alone and ends shared, the second is not let begin shared.
    shares = iter([1.0, 0.5, 0.5, 0.5, *[1.0] * 9])
    monkeypatch.setattr("tensorwise.tasks.cpu.NAP_S", 0.0)
    slow = [[2.0]] * BOUT + [[1.0]] * MIN_ROUNDS
    (found,) = in_turns([Measurement.of([2.0])], replayed([[*slow, [0.5]]]), 5.0, 1e9, lambda: next(shares))
    assert (found.seconds, found.note) == (1.0, "")
    assert next(shares, None) is not None


def test_processors_that_stay_shared_are_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorwise.tasks.cpu.PATIENCE_S", 0.0)
    (found,) = in_turns([Measurement.of([2.0])], replayed([[[2.0]] * MIN_ROUNDS]), 5.0, 1e9, lambda: 0.5)
    assert (found.seconds, found.note) == (2.0, "its processors are shared with others")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads are bound on Linux only")
def test_nothing_is_bound_where_there_are_no_workers() -> None:
    child = os.fork()
    if not child:  # where this is the only thread
        before = os.sched_getaffinity(0)
        keep_off_workers()
        os._exit(0 if os.sched_getaffinity(0) == before else 1)
    assert os.waitpid(child, 0)[1] == 0
