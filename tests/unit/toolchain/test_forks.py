"""A child that is forked at any moment can use whatever its parent could: no lock is left behind."""

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
from tensorwise.device import timing
from tensorwise.device.timing import measuring_slot
from tensorwise.toolchain import forks
from tensorwise.toolchain.shelf import Shelf

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
LIMIT_S = 60


def in_child(work: Callable[[], object]) -> None:
    """Run ``work`` in a child, which is ended when it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT_S)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def beside(held: Callable[[threading.Event, threading.Event], None], work: Callable[[], object]) -> None:
    """Fork a child that does ``work`` while another thread holds something."""
    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=held, args=(ready, done))
    thread.start()
    try:
        assert ready.wait(LIMIT_S)
        in_child(work)
    finally:
        done.set()
        thread.join()


def test_a_lock_of_a_thread_that_is_not_there_is_free() -> None:
    one = forks.lock()

    def held(ready: threading.Event, done: threading.Event) -> None:
        with one:
            ready.set()
            done.wait()

    def work() -> None:
        assert one.acquire(timeout=1)

    beside(held, work)


def test_a_lock_of_the_thread_that_forks_stays_its_own() -> None:
    one = forks.lock()

    def work() -> None:
        other = threading.Thread(target=lambda: found.append(one.acquire(blocking=False)))
        other.start()
        other.join()
        assert found == [False]
        one.release()

    found: list[bool] = []
    with one:
        in_child(work)


class Slow:
    """What takes long to know, as much of a workload."""

    ready, done = threading.Event(), threading.Event()

    @cached_property
    def answer(self) -> int:
        self.ready.set()
        self.done.wait()
        return 1


Slow.__module__ = "tensorwise.slow"


def test_a_property_that_a_thread_was_computing_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    module = types.ModuleType("tensorwise.slow")
    module.Slow = Slow  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorwise.slow", module)

    def held(ready: threading.Event, done: threading.Event) -> None:
        Slow.ready, Slow.done = ready, done
        assert Slow().answer == 1

    def work() -> None:
        Slow.done = threading.Event()
        Slow.done.set()
        assert Slow().answer == 1

    beside(held, work)


def test_a_slot_of_another_thread_is_not_the_child_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "cache_dir", lambda: tmp_path)

    def held(ready: threading.Event, done: threading.Event) -> None:
        with measuring_slot():
            ready.set()
            done.wait()

    def work() -> None:
        with measuring_slot(0.1) as slot:  # the parent's thread times
            assert not slot.exclusive
            assert "process" in slot.note

    beside(held, work)
    with measuring_slot(0.0) as slot:
        assert slot.exclusive


def test_a_lock_of_a_file_does_not_live_on_in_a_child(tmp_path: Path) -> None:
    """Else a child that lives longer than its parent would keep others from building for ever."""
    shelf = Shelf(tmp_path / "shelf")
    number = threading.local()

    def held(ready: threading.Event, done: threading.Event) -> None:
        with shelf.locked(["ab"], 1):
            number.known = True
            ready.set()
            done.wait()

    def work() -> None:
        mine = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if n != "3000"
                if os.path.lexists(f"/proc/self/fd/{n}")]  # fmt: skip
        assert not any(name.endswith("locks/ab") for name in mine)

    if os.path.isdir("/proc/self/fd"):
        beside(held, work)


@pytest.mark.parametrize("schedule", ["parallel(i,merge-path,16)", "parallel(i,dynamic,16)"])
def test_children_of_a_process_whose_thread_is_in_a_kernel(schedule: str) -> None:
    rng = np.random.default_rng(0)
    matrix = sp.random_array((20_000, 2_000), density=0.01, format="csr", rng=rng, dtype=np.float32)
    op = tw.compile(
        "C[i] += A[i,k] * B[k]", A=matrix, format="(i,k) -> U(i) C(k)", schedule=schedule, threads=2
    )
    vector = np.ones(2_000, np.float32)
    expected = op(vector)
    stop = threading.Event()

    def call_on() -> None:
        while not stop.is_set():
            op(vector)

    thread = threading.Thread(target=call_on)
    thread.start()
    try:
        for _ in range(25):
            in_child(lambda: np.testing.assert_array_equal(op(vector), expected))
            time.sleep(0.001)
    finally:
        stop.set()
        thread.join()


def test_a_child_that_is_forked_while_a_thread_makes_operators() -> None:
    rng = np.random.default_rng(0)
    matrix = sp.random_array((300, 300), density=0.05, format="csr", rng=rng, dtype=np.float32)
    op = tw.compile("C[i] += A[i,k] * B[k]", A=matrix, threads=2)
    stop, vector = threading.Event(), np.ones(300, np.float32)
    operands = {width: np.ones((300, width), np.float32) for width in range(1, 13)}
    for operand in operands.values():
        op @ operand  # compiled

    def make_on() -> None:
        while not stop.is_set():
            for operand in operands.values():
                op @ operand
            tw.compile("C[i] += A[i,k] * B[k]", A=matrix, threads=2).transpose()

    def work() -> None:
        for operand in operands.values():
            op @ operand
        op.T(vector)

    thread = threading.Thread(target=make_on)
    thread.start()
    try:
        for _ in range(15):
            in_child(work)
    finally:
        stop.set()
        thread.join()
