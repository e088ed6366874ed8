"""Links by timing what moves data."""

import time

import pytest

from tensorwise.plan import measure, measured_link


def test_latency_and_bandwidth_are_those_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_seconds", lambda move, size: 1e-5 + size / 1e9)
    link = measured_link("cpu", "gpu", len, lambda size: size)
    assert (link.source, link.target, link.move) == ("cpu", "gpu", len)
    assert link.latency_s == pytest.approx(1e-5)
    assert link.bytes_per_s == pytest.approx(1e9)


def test_noise_gives_no_negative_latency_and_no_endless_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_seconds", lambda move, size: 1e-3 / (1 + size))
    link = measured_link("a", "b", len, lambda size: size)
    assert link.latency_s >= 0
    assert 0 < link.bytes_per_s < float("inf")


def test_moves_are_timed() -> None:
    def move(value: bytes) -> bytes:
        time.sleep(1e-3)
        return value

    assert measured_link("a", "b", move, bytes).seconds(1) > 5e-4
