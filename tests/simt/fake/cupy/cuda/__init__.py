"""The device: one GPU whose clock is the CPU's."""

import time

from cupy.cuda import driver as driver
from cupy.cuda import runtime

spoiled = []
captured = None
"""Launches of the stream that captures; None: none does."""


class Device:
    compute_capability = "90"

    def __init__(self, number):
        self.number = number

    def use(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class _Stream:
    def synchronize(self):
        if spoiled:
            raise runtime.CUDARuntimeError(spoiled[0])


class Stream(_Stream):
    def __init__(self, non_blocking=False):
        assert non_blocking  # the default stream waits for others, and cannot be captured beside them

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def begin_capture(self):
        global captured
        captured = []

    def end_capture(self):
        global captured
        found, captured = captured, None
        return _Graph(found)


class _Graph:
    def __init__(self, launches):
        self.launches = launches

    def launch(self, stream):
        for launch in self.launches:
            launch()


def get_current_stream():
    return _Stream()


class Event:
    def record(self):
        self.at = time.perf_counter()


def get_elapsed_time(first, second):
    return 1e3 * (second.at - first.at)
