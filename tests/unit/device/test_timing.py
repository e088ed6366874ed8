"""Timing is tested on its rules, not on times: clocks are replaced where a rule depends on them."""

import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwise.collect.measuring import levels
from tensorwise.device import timing
from tensorwise.device.host import CpuTime
from tensorwise.device.rounds import RoundTable, _rank
from tensorwise.device.timing import interleave, measuring_slot, preparing, resolution, time_calls
from tensorwise.errors import InputError


class Clock:
    """A clock that only calls move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.busy = 0.0
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: round(self.now * 1e9))
        monkeypatch.setattr(timing, "cpu_time", lambda: CpuTime(self.now, self.busy, 0.0, 2))
        monkeypatch.setattr(timing, "_clock_s", lambda: 1e-7)

    def call(self, *seconds: float) -> Callable[[], None]:
        """A variant that takes ``seconds`` in turn, the last for ever."""
        left = list(seconds)

        def one() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return one


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_short_calls_are_batched(clock: Clock) -> None:
    samples = time_calls(clock.call(1e-6))
    assert samples == pytest.approx([1e-6] * len(samples), rel=1e-2)
    assert len(samples) == pytest.approx(0.005 / 1e-5, rel=0.15)


def test_long_calls_are_sampled_one_by_one(clock: Clock) -> None:
    assert len(time_calls(clock.call(0.01))) == 3
    assert len(time_calls(clock.call(0.01), min_calls=5)) == 5
    assert len(time_calls(clock.call(0.4))) == 3
    assert len(time_calls(clock.call(0.6))) == 2
    assert time_calls(clock.call(7.0)) == pytest.approx([7.0])


def test_the_first_call_is_never_timed(clock: Clock) -> None:
    assert max(time_calls(clock.call(0.5, 0.01))) == pytest.approx(0.01)
    calls = []
    time_calls(lambda: calls.append(clock.call(0.0005)()), warm_s=0.0019, min_s=0, min_calls=1, max_s=0)
    assert len(calls) == 4 + 1


@pytest.mark.parametrize(("spins_s", "waits_s"), [(0.0, 0.0005), (0.008, 0.0085), (1.0, timing.SETTLE_S)])
def test_threads_that_a_library_left_spinning_are_waited_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, spins_s: float, waits_s: float
) -> None:
    begin = clock.now
    events: list[float] = []

    def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(timing.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(timing.time, "process_time", lambda: min(clock.now - begin, spins_s))
    monkeypatch.setattr(timing.time, "sleep", sleep)
    call = clock.call(0.01)

    def variant() -> None:
        events.append(clock.now)
        call()

    time_calls(variant, min_s=0, min_calls=1, max_s=0)
    assert events[0] - begin == pytest.approx(waits_s, abs=0.00051)


def test_a_flush_comes_before_every_timed_call(clock: Clock) -> None:
    order: list[str] = []
    call = clock.call(1e-6)

    def one() -> None:
        call()
        order.append("call")

    time_calls(one, min_s=0, min_calls=4, warm_s=0, flush=lambda: order.append("flush"))
    assert order == ["call"] + ["flush", "call"] * 4


def test_garbage_collection_is_put_back() -> None:
    import gc

    gc.enable()
    time_calls(lambda: None, min_s=0, min_calls=1)
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        time_calls(lambda: 1 // 0)
    assert gc.isenabled()


def test_every_round_has_every_variant_in_shuffled_order(clock: Clock) -> None:
    order: list[str] = []

    def variant(name: str) -> Callable[[], None]:
        def one() -> None:
            clock.now += 0.01
            if not order or order[-1] != name:
                order.append(name)

        return one

    table = interleave({name: variant(name) for name in "abcd"}, 20, 100.0, rng())
    assert len(table.seconds) == 20
    assert all(set(row) == set("abcd") for row in table.seconds)
    assert len({tuple(order[i : i + 4]) for i in range(0, 80, 4)}) > 5
    assert table.note == ""
    assert table.cache == "warm"


def test_of_a_variants_calls_in_a_round_the_fastest_count(clock: Clock) -> None:
    seconds = iter([0.01, 0.03, 0.01, 0.03, 0.01, 0.03, 0.03, 0.02])  # one untimed, three timed, twice

    def call() -> None:
        clock.now += next(seconds)

    table = interleave({"a": call}, 2, 100.0, rng())
    assert [row["a"] for row in table.seconds] == pytest.approx([0.01, 0.02])


def test_budget_ends_after_three_rounds_or_twice_the_budget(clock: Clock) -> None:
    def rounds(one_s: float, budget_s: float) -> int:
        return len(interleave({"a": clock.call(one_s)}, 50, budget_s, rng()).seconds)

    # a round of a call that takes t: one untimed, then three timed
    assert rounds(0.01, 0.39) == 10
    assert rounds(0.03, 0.21) == 3
    assert rounds(0.03, 0.13) == 3
    assert rounds(0.03, 0.09) == 2
    # but no further one after a tenth of a second
    assert rounds(0.2, 1.21) == 4
    assert rounds(1.0, 0.1) == 1
    short = interleave({"a": clock.call(1.0)}, 50, 0.1, rng())
    assert "only 1 rounds" in short.note


def test_rounds_beside_other_processes_are_repeated(clock: Clock) -> None:
    count = 0

    def call() -> None:
        nonlocal count
        clock.now += 0.03
        count += 1
        if 8 < count <= 16:  # rounds 3 and 4: another process keeps a processor busy
            clock.busy += 0.05

    table = interleave({"a": call}, 6, 100.0, rng())
    assert table.disturbed == (False, False, True, True, False, False, False, False)
    assert len(table.rounds) == 6
    assert table.disturbed_rounds == 2
    assert "2 of 8 rounds were disturbed (left out)" in table.note


def test_repetition_is_bounded_and_disturbed_rounds_count_when_nothing_else_is_left(clock: Clock) -> None:
    def call() -> None:
        clock.now += 0.05
        clock.busy += 0.05

    table = interleave({"a": call}, 4, 100.0, rng())
    assert len(table.seconds) == len(table.rounds) == 8
    assert "counted" in table.note


def test_short_rounds_share_a_window(clock: Clock) -> None:
    """Ticks of 10 ms say nothing about a round of 10 ms: rounds are judged together."""
    count = 0

    def call() -> None:
        nonlocal count
        clock.now += 0.002
        count += 1
        clock.busy += 0.002 * (count < 50)

    table = interleave({"a": call}, 30, 100.0, rng())
    assert sum(table.disturbed) > 5
    assert table.disturbed[0]
    assert not table.disturbed[-1]


def test_variants_stopped_by_the_scheduler_are_seen() -> None:
    assert timing._stopped([0.0001, 0.0001, 0.0041, 0.0001], None)
    assert not timing._stopped([0.0001] * 9 + [0.0041], None)
    assert timing._stopped([0.0081, 0.0081, 0.0081], 0.0001)
    assert not timing._stopped([0.0081, 0.0081, 0.0081], None)
    assert not timing._stopped([0.0061, 0.0061, 0.0061], 0.0001)
    assert not timing._stopped([0.0110, 0.0111, 0.0109], 0.0100)


def test_ratios_are_taken_within_rounds() -> None:
    drift = [1.0, 2.0, 0.5, 3.0, 1.5, 1.0, 2.5]
    rows = tuple({"a": 2 * d, "b": d * (1.01 if d > 1 else 0.99)} for d in drift)
    table = RoundTable(("a", "b"), rows, (False,) * 7)
    ratio = table.ratio("a", "b")
    assert ratio.median == pytest.approx(2 / 1.01)
    assert ratio.spread < 0.05
    assert ratio.low == pytest.approx(2 / 1.01)
    assert ratio.high == pytest.approx(2 / 0.99)
    assert ratio.rounds == 7
    assert table.median("a") == 3.0
    assert table.spread("a") > 1
    assert table.best() == "b"
    assert table.resolution("b", "b") == 0
    with pytest.raises(InputError, match="no variant 'c'"):
        table.median("c")


def test_the_best_variant_survives_drift() -> None:
    rows = tuple({"a": 1.0 * d, "b": 0.9 * d, "c": 1.1 * d} for d in (1, 10, 1, 10, 100))
    assert RoundTable(("a", "b", "c"), rows, (False,) * 5).best() == "b"


def test_levels_are_free_of_the_speed_of_a_round() -> None:
    """Rounds differ by a factor of ten, and one time in one of them is off; ratios are those of the others."""
    rows = [{"a": speed, "b": 2 * speed, "c": 4 * speed} for speed in (1.0, 10.0, 1.0, 3.0, 10.0)]
    found = levels(RoundTable(("a", "b", "c"), tuple(rows), (False,) * 5), "b")
    assert {name: ratio for name, (ratio, _) in found.items()} == pytest.approx({"a": 0.5, "b": 1, "c": 2})
    assert all(error == pytest.approx(0, abs=1e-9) for _, error in found.values())
    rows[1]["c"] *= 2
    found = levels(RoundTable(("a", "b", "c"), tuple(rows), (False,) * 5), "b")
    assert found["c"][0] == pytest.approx(2)
    assert found["c"][1] > found["a"][1] > 0


def test_ranks_give_95_percent() -> None:
    assert [_rank(n) for n in (1, 3, 5, 6, 8, 9, 12, 20, 30)] == [1, 1, 1, 1, 1, 2, 3, 6, 10]


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=30), st.integers(0, 5))
def test_tables_survive_json(times: list[float], bad: int) -> None:
    rows = tuple({"a": s, "b": 2 * s} for s in times)
    table = RoundTable(("a", "b"), rows, tuple(i < bad for i in range(len(times))), "cold", 1.5)
    assert RoundTable.from_json(table.to_json()) == table
    ratio = table.ratio("a", "b")
    assert ratio.low <= ratio.median <= ratio.high
    renamed = table.renamed({"a": "x"})
    assert renamed.names == ("x", "b")
    assert renamed.median("x") == table.median("a")


@pytest.mark.parametrize(
    "spoil",
    [
        {"names": 3},
        {"seconds": [[1.0]]},
        {"seconds": [[1.0, -1.0]]},
        {"seconds": [[1.0, float("inf")]]},
        {"disturbed": []},
        {"elapsed_s": "x"},
    ],
)
def test_tables_that_are_none_are_refused(spoil: dict[str, object]) -> None:
    good = RoundTable(("a", "b"), ({"a": 1.0, "b": 2.0},), (False,)).to_json()
    with pytest.raises(InputError):
        RoundTable.from_json({**good, **spoil})
    with pytest.raises(InputError):
        RoundTable.from_json({})
    with pytest.raises(InputError, match="share a name"):
        RoundTable.from_json(good).renamed({"a": "b"})


def test_refusals() -> None:
    with pytest.raises(InputError, match="need a variant"):
        interleave({}, 3, 1.0, rng())
    with pytest.raises(InputError, match="at least 1"):
        interleave({"a": lambda: None}, 0, 1.0, rng())
    with pytest.raises(InputError, match="warm or cold"):
        interleave({"a": lambda: None}, 1, 1.0, rng(), cache="hot")


def test_real_rounds_warm_and_cold() -> None:
    data = np.ones(1000)
    for cache in ("warm", "cold"):
        table = interleave({"a": data.sum, "b": data.max}, 3, 2.0, rng(), min_s=0.0005, cache=cache)
        assert table.cache == cache
        assert 3 <= len(table.seconds) <= 6
        assert table.median("a") > 0
        assert table.elapsed_s > 0
    assert 0 <= resolution(data.sum, 3, rng(), budget_s=1.0) < 1000


def test_an_error_in_a_variant_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        interleave({"a": lambda: 1 // 0}, 3, 1.0, rng())


# -- the lock ------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


HOLDER = """
import sys
from tensorwise.device.timing import measuring_slot, preparing
with {}(30) as slot:
    print("held" if slot is None or slot.exclusive else "not held", flush=True)
    sys.stdin.read()
"""


def holder(of: str = "measuring_slot") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(of)], stdin=-1, stdout=-1, text=True, env=dict(os.environ)
    )


def waits(process: "subprocess.Popen[str]") -> bool:
    """Whether a holder has not got what it wants."""
    return not select.select([process.stdout], [], [], 0.6)[0]


def test_only_one_process_times_at_once(place: Path) -> None:
    with holder() as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with measuring_slot(0.05) as slot:
            assert not slot.exclusive
            assert "kept timing" in slot.note
        other.send_signal(signal.SIGKILL)
        other.wait()
        with measuring_slot(10) as slot:
            assert slot.exclusive
            assert slot.note == ""


def test_a_slot_can_be_taken_inside_itself_and_again(place: Path) -> None:
    for _ in range(3):
        with measuring_slot(1) as outer:
            with measuring_slot(1) as inner:
                assert inner is outer
            with pytest.raises(ValueError, match="x"), measuring_slot(1):
                raise ValueError("x")
            assert outer.exclusive


def test_the_slot_is_free_after_an_error(place: Path) -> None:
    with pytest.raises(ValueError, match="x"), measuring_slot(1):
        raise ValueError("x")
    with holder() as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        other.communicate("")


def test_threads_wait_for_each_other(place: Path) -> None:
    seen: list[bool] = []

    def other() -> None:
        with measuring_slot(0.05) as slot:
            seen.append(slot.exclusive)

    with measuring_slot(1):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [False]
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [False, True]


def _inside() -> bool:
    with measuring_slot(1) as slot:
        return slot.exclusive


def test_a_forked_child_shares_the_slot_and_does_not_free_it(place: Path) -> None:
    with measuring_slot(1):
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply(_inside)
        with holder() as other:
            assert waits(other)
            other.kill()


def test_several_prepare_at_once_and_none_while_one_times(place: Path) -> None:
    with holder("preparing") as first, preparing(1):
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        first.communicate("")
    with holder() as timing_one:
        assert timing_one.stdout is not None
        assert timing_one.stdout.readline() == "held\n"
        with holder("preparing") as other:
            assert waits(other)
            timing_one.communicate("")
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            other.communicate("")


def test_who_wants_to_time_is_not_kept_waiting_by_those_that_come_later(place: Path) -> None:
    with preparing(1), holder() as timing_one:
        assert waits(timing_one)
        with holder("preparing") as later:
            assert waits(later)
            later.kill()
        timing_one.kill()


def test_inside_a_slot_its_holder_may_prepare(place: Path) -> None:
    with measuring_slot(1) as slot, preparing(0):
        assert slot.exclusive
    with preparing(1):
        pass
    with measuring_slot(1) as slot:
        assert slot.exclusive


def test_without_a_place_for_the_lock_it_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.parent.mkdir(exist_ok=True)
    place.write_text("a file, not a directory")
    with measuring_slot(1) as slot:
        assert slot.exclusive  # the temporary directory serves instead
    monkeypatch.setattr(timing.tempfile, "gettempdir", lambda: str(place / "absent"))
    with measuring_slot(1) as slot:
        assert not slot.exclusive
        assert "no lock file" in slot.note
