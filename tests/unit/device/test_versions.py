"""Versions of a function must agree before their times count."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device import versions
from tensorwise.device.rounds import RoundTable
from tensorwise.device.versions import FAR, VersionsDevice, difference
from tensorwise.space.versions import Version, Versions


def double(x: np.ndarray) -> np.ndarray:
    return 2 * x


def twice(x: np.ndarray) -> np.ndarray:
    return x + x


def wrong(x: np.ndarray) -> np.ndarray:
    return 3 * x


def broken(x: np.ndarray) -> np.ndarray:
    raise RuntimeError("no such library")


def space(*functions: Any, **more: Any) -> Versions:
    listed = [Version(function.__name__, function) for function in functions]
    listed += [Version(name, *given) for name, given in more.items()]
    return Versions.of("double", listed, lambda x: (x.size,), {"size": "numbers"})


def measure(of: Versions, *arguments: Any, **options: Any) -> dict[str, Any]:
    device = VersionsDevice(of, rounds=2, budget_s=0.05, **options)
    measured = device.measure(of.call(*arguments), of.configs)
    return {str(config["version"]): one for config, one in zip(of.configs, measured, strict=True)}


def test_what_agrees_is_timed_and_what_does_not_fails_by_name() -> None:
    found = measure(space(double, twice, wrong, broken), np.ones(10))
    assert [one.status for one in found.values()] == ["ok", "ok", "wrong", "crash"]
    assert "not what 'double' returns: off by 1" in found["wrong"].note
    assert "RuntimeError: no such library" in found["broken"].note
    assert found["double"].samples
    assert found["twice"].samples


def test_versions_take_what_their_fastest_run_took(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = {"double": 2e-6, "twice": 1.5e-6, "slow": 9e-6}
    asked: list[set[str]] = []

    def rounds(calls: dict[str, Any], count: int, *rest: Any, **options: Any) -> RoundTable:
        table = [{name: usual[name] for name in calls} for _ in range(count)]
        if not asked:  # a neighbour slows one version down, in all of the first rounds
            for row in table:
                row["twice"] *= 2
        elif len(asked) < 4 and "double" in calls:  # ... and another one in most
            table[0]["double"], table[1]["double"] = 3e-6, 5e-6
        asked.append(set(calls))
        return RoundTable(tuple(calls), tuple(table), (False,) * count)

    monkeypatch.setattr(versions, "interleave", rounds)
    of = space(double, twice, slow=(double,))
    found = list(VersionsDevice(of, rounds=9).measure(of.call(np.ones(3)), of.configs))
    assert asked == [{"double", "twice", "slow"}, {"double", "twice"}]
    assert [one.seconds for one in found] == [2e-6, 1.5e-6, 9e-6]
    assert not any(one.note for one in found)


def test_it_is_said_where_rounds_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def rounds(calls: dict[str, Any], count: int, *rest: Any, **options: Any) -> RoundTable:
        nonlocal asked
        asked += count
        table = [{name: (1 + 0.1 * (asked - k)) * 1e-3 for name in calls} for k in range(count)]
        return RoundTable(tuple(calls), tuple(table), (False,) * count)

    monkeypatch.setattr(versions, "interleave", rounds)
    of = space(double)
    (found,) = VersionsDevice(of, rounds=8, budget_s=5.0).measure(of.call(np.ones(3)), of.configs)
    assert asked == 8
    assert found.seconds == pytest.approx(1.1e-3)
    assert found.samples == pytest.approx((1.1e-3, 1.2e-3, 1.3e-3))
    assert "differ by 18%" in found.note


def test_the_first_that_runs_is_what_others_must_agree_with() -> None:
    found = measure(space(broken, double, wrong), np.ones(10))
    assert [one.status for one in found.values()] == ["crash", "ok", "wrong"]


def test_a_version_that_fails_later_does_not_take_others_with_it() -> None:
    calls = 0

    def tired(x: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise MemoryError("enough")
        return 2 * x

    found = measure(space(double, tired), np.ones(10))
    assert (found["double"].status, found["tired"].status) == ("ok", "memory")


def test_moving_is_part_of_the_time_and_said_apart() -> None:
    def slow(x: np.ndarray) -> tuple[np.ndarray]:
        sum(range(200_000))
        return (x,)

    found = measure(space(double, there=(double, "gpu", slow)), np.ones(10))
    there = found["there"]
    assert 0 < there.conversion_s <= there.seconds
    assert there.conversion_s > there.seconds / 2
    assert found["double"].conversion_s == 0


def test_what_is_far_slower_is_called_twice() -> None:
    calls = 0

    def sleepy(x: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        import time

        time.sleep(0.03)
        return 2 * x

    found = measure(space(double, sleepy), np.ones(10))
    assert calls == 3, "once to warm up, twice for its time"
    assert found["sleepy"].ok
    assert "two calls" in found["sleepy"].note
    assert found["sleepy"].seconds > FAR * found["double"].seconds


def test_a_comparison_of_ones_own() -> None:
    found = measure(space(double, wrong), np.ones(3), agree=lambda result, expected: None)
    assert [one.status for one in found.values()] == ["ok", "ok"]


MATRIX = sp.csr_array(np.array([[1.0, 0.0], [0.0, 2.0]]))


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (1.0, 1.0),
        (np.float32([1, 2]), np.array([1.0, 2.0 + 1e-4])),
        (MATRIX, MATRIX.toarray()),
        ([np.ones(2), 3], (np.ones(2), 3)),
        (np.array([np.nan, 1.0]), np.array([np.nan, 1.0])),
        (np.zeros((0, 3)), np.zeros((0, 3))),
        (np.zeros(3), np.zeros(3)),
    ],
)
def test_the_same_up_to_rounding(result: Any, expected: Any) -> None:
    assert difference(result, expected) is None


@pytest.mark.parametrize(
    ("result", "expected", "words"),
    [
        (np.ones(2), np.ones(3), "shape"),
        (np.array([1, 2]), np.array([1, 3]), "1 of 2 values differ"),
        (np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-6]), "off by"),
        (np.array([np.nan, 1.0]), np.array([1.0, 1.0]), "NaN"),
        ((1, 2), (1, 2, 3), "instead of"),
        ((1, 5), (1, 2), "1 of 1 values differ"),
        (3.0, (1, 2), "instead of"),
    ],
)
def test_what_differs_is_said(result: Any, expected: Any, words: str) -> None:
    assert words in (difference(result, expected) or "")
