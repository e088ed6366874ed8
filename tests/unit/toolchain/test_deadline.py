"""How long work may take, which everything asks that may hang; and work that cannot be unwound."""

import math
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tensorwise.toolchain import deadline
from tensorwise.toolchain.deadline import (
    carried,
    counting_waits,
    is_over,
    left_s,
    uninterrupted,
    waiting,
    within,
)


def test_what_is_left_is_the_least_of_all_limits() -> None:
    assert left_s() == math.inf
    assert left_s(5.0) == 5.0
    with within(100.0):
        assert 0 < left_s() <= 100.0
        with within(1000.0):
            assert left_s() <= 100.0
        with within(0.0):
            assert is_over()
            assert left_s(5.0) == 0.0
            with within(50.0, afresh=True):
                assert 0 < left_s() <= 50.0
        assert not is_over()
    assert not is_over()


def test_a_limit_is_carried_into_other_threads() -> None:
    with within(0.0), ThreadPoolExecutor(1) as pool:
        assert pool.submit(carried(is_over)).result()
        assert not pool.submit(is_over).result()


def test_time_is_up_for_threads_whose_caller_was_interrupted() -> None:
    stopped = threading.Event()

    def work() -> None:
        while not is_over():
            time.sleep(0.001)
        stopped.set()

    def interrupted() -> None:
        with within(math.inf):
            threading.Thread(target=carried(work)).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stopped.wait(60)


def test_waits_are_counted_for_their_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1000))
    monkeypatch.setattr(deadline.time, "monotonic", lambda: float(next(now)))
    with counting_waits() as waited:
        for _ in range(3):
            with waiting():
                pass
        other = threading.Thread(target=carried(lambda: waiting().__enter__()))
        other.start()
        other.join()
    with waiting():
        pass
    assert waited.seconds == 3.0


def test_uninterrupted_work_returns_and_raises() -> None:
    assert uninterrupted(lambda: threading.current_thread() is threading.main_thread()) is False
    with pytest.raises(ZeroDivisionError):
        uninterrupted(lambda: 1 / 0)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(uninterrupted, threading.get_ident).result() != threading.get_ident()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_uninterrupted_work_ends_before_the_interrupt_goes_on() -> None:
    running = threading.Event()

    def work() -> None:
        running.set()
        while not is_over():
            time.sleep(0.001)
        running.clear()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for step in range(20):
            running.clear()
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + 0.0005 * step)
            with pytest.raises(KeyboardInterrupt):
                uninterrupted(work)
            assert not running.is_set()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
