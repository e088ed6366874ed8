"""Neighbours: readings near the fastest are quiet, others are not, and those of children count."""

import os
from collections.abc import Iterator

import pytest

from tensorwise.device import quiet
from tensorwise.device.quiet import FIRST, Neighbours


class Clock:
    """Stands for ``time``: a reading takes what ``taken`` says next."""

    def __init__(self, taken: Iterator[float]) -> None:
        self.taken, self.now, self.slept, self.readings = taken, 0.0, 0.0, 0

    def perf_counter(self) -> float:
        self.readings += 1
        if self.readings % 2 == 0:  # the end of a reading
            self.now += next(self.taken)
        return self.now

    def monotonic(self) -> float:
        return self.now + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def clocked(monkeypatch: pytest.MonkeyPatch, taken: list[float], then: float) -> tuple[Neighbours, Clock]:
    def rest() -> Iterator[float]:
        yield from taken
        while True:
            yield then

    clock = Clock(rest())
    monkeypatch.setattr(quiet, "time", clock)
    return Neighbours(), clock


def test_readings_near_the_fastest_are_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = 50e-6, 75e-6
    taken = [slow, fast] * (FIRST // 2) + [fast, slow, 1.1 * fast, 1.2 * fast]
    found, _ = clocked(monkeypatch, taken, fast)
    assert [found.quiet() for _ in range(5)] == [True, False, True, False, True]


def test_waiting_ends_when_it_is_quiet_or_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = 50e-6, 75e-6
    found, clock = clocked(monkeypatch, [fast] * FIRST + [slow] * 7, fast)
    assert found.wait(1.0)
    assert clock.readings == 2 * (FIRST + 8)
    found, clock = clocked(monkeypatch, [fast] * FIRST, slow)
    assert not found.wait(0.2)
    assert clock.slept - FIRST * quiet.PAUSE_S / 10 == pytest.approx(0.2, abs=2 * quiet.PAUSE_S)


def test_a_machine_that_stays_slow_becomes_the_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = clocked(monkeypatch, [50e-6] * FIRST, 75e-6)
    states = [found.quiet() for _ in range(quiet.KEPT + 1)]
    assert not states[0]
    assert states[-1]


def test_what_a_child_reads_is_remembered() -> None:
    found = Neighbours()
    found.quiet()
    before = found._shared[0]
    child = os.fork()
    if not child:
        found.quiet()
        os._exit(0)
    os.waitpid(child, 0)
    assert found._shared[0] == before + 1
