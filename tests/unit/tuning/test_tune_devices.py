"""One tuner for every device: named ones, simulated ones, and a device of thirty lines that only measures."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
from tensorwise.device.device import Candidate, Device, Measurement, Rounds
from tensorwise.device.noisy import NoisyDevice
from tensorwise.device.null import NullDevice
from tensorwise.device.rounds import RoundTable
from tensorwise.device.spade import SpadeDevice
from tensorwise.errors import InputError, MeasurementError
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.kernel import BoundKernel, Kernel
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space_of
from tensorwise.space.space import Space
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tensorwise.tuning.operator import MatrixOperator
from tensorwise.tuning.result import TuneResult


@pytest.fixture
def matrix() -> sp.csr_array:
    rng = np.random.default_rng(3)
    return sp.random_array((60, 50), density=0.2, rng=rng, dtype=np.float32, format="csr")


class Chip(Device[Workload]):
    """Says choices and times, and nothing else."""

    name, id = "chip", "chip-1"

    def __init__(self) -> None:
        self.asked: list[Config] = []
        self.closed = 0

    def space(self, workload: Workload) -> Space[Any]:
        return cpu_space_of(workload)

    def measure(
        self,
        workload: Workload,
        candidates: Sequence[Candidate],
        *,
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        for config in candidates:
            assert isinstance(config, Config)
            self.asked.append(config)
            yield Measurement.of([1e-3 if config["parallel"] == "none" else 2e-3])

    def close(self) -> None:
        self.closed += 1


def result_of(operator: tw.Operator) -> TuneResult:
    assert operator.result is not None
    return operator.result


def test_a_device_that_only_measures_is_tuned(matrix: sp.csr_array) -> None:
    chip = Chip()
    operator = tw.tune(matrix, "spmm", n=4, device=chip, trials=12, store=False)
    result = result_of(operator)
    assert len(result.trials) == 12
    assert [trial.config for trial in result.trials] == list(dict.fromkeys(chip.asked))[:12]
    assert result.best.seconds == 1e-3
    assert result.best.program == next(t.program for t in result.trials if t.measurement.seconds == 1e-3)
    assert result.baselines == {}
    assert result.verified
    assert chip.closed == 0, "a device that is given stays open"
    assert "on chip" in result.text()
    assert json.loads(json.dumps(result.to_json()))["device"] == "chip"
    assert not isinstance(operator, MatrixOperator)
    with pytest.raises(InputError, match=r"'chip'.*cannot be called"):
        operator(np.ones((50, 4), np.float32))
    with pytest.raises(InputError, match="only operators that run on a CPU"):
        operator.save("nowhere.tw")


def test_measurements_of_any_device_are_remembered(matrix: sp.csr_array, tmp_path: Any) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        first = result_of(tw.tune(matrix, "spmm", n=4, device=Chip(), trials=12, store=store))
        again = Chip()
        tw.tune(matrix, "spmm", n=4, device=again, trials=2, store=store)
        assert {record.device_id for record in store} == {"chip-1"}
    fastest = {t.config for t in first.trials if t.measurement.seconds == 1e-3}
    assert again.asked[0] in fastest


def test_a_device_without_choices_is_refused(matrix: sp.csr_array) -> None:
    class Mute(Chip):
        space = Device.space  # type: ignore[assignment]

    with pytest.raises(InputError, match=r"'chip' says no choices \(`Device.space`\)"):
        tw.tune(matrix, "spmm", n=4, device=Mute(), trials=2, store=False)


@pytest.mark.parametrize("op", ["spmm", "sddmm"])
def test_a_simulated_accelerator_is_tuned_and_computes(matrix: sp.csr_array, op: str) -> None:
    operator = tw.tune(matrix, op, n=32, device="spade-small", trials=6, store=False)
    result = result_of(operator)
    assert (result.device, result.host, len(result.trials)) == ("spade-small", "spade-small", 6)
    times = [trial.measurement.seconds for trial in result.trials if trial.measurement.ok]
    assert result.best.seconds == min(times), "what is simulated is the same in the rounds"
    rng = np.random.default_rng(0)
    if op == "spmm":
        given = rng.standard_normal((50, 32)).astype(np.float32)
        np.testing.assert_allclose(operator(given), matrix @ given, rtol=1e-4, atol=1e-5)
    else:
        left, right = (rng.standard_normal(shape).astype(np.float32) for shape in ((60, 32), (32, 50)))
        found = operator(left, right)
        expected = matrix.multiply(left @ right)
        np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-4, atol=1e-4)


def test_an_open_simulated_device_serves(matrix: sp.csr_array) -> None:
    with SpadeDevice("spade-small") as device:
        named = tw.tune(matrix, "spmm", n=32, device="spade-small", trials=4, store=False)
        given = tw.tune(matrix, "spmm", n=32, device=device, trials=4, store=False)
    assert result_of(named).best == result_of(given).best


def test_noise_is_met_with_rounds(matrix: sp.csr_array) -> None:
    device = NoisyDevice(NullDevice(), np.random.default_rng(0), sigma=0.05)
    result = result_of(tw.tune(matrix, "spmm", n=4, device=device, trials=8, store=False))
    assert result.table is not None
    assert len(result.table.seconds) > 3
    assert result.best.rounds == len(result.table.seconds)


def test_what_fails_in_the_rounds_makes_room_for_the_next(matrix: sp.csr_array) -> None:
    """The fastest of the search crashes when it is timed again."""

    class Fragile(Chip):
        def measure(
            self, workload: Workload, candidates: Sequence[Candidate], **limits: Any
        ) -> Iterator[Measurement]:
            for config, measurement in zip(candidates, super().measure(workload, candidates)):
                fast = isinstance(config, Config) and config["parallel"] == "none"
                crashed = fast and self.asked.count(config) > 1
                yield Measurement.failed("crash", "it broke") if crashed else measurement

    result = result_of(tw.tune(matrix, "spmm", n=4, device=Fragile(), trials=12, store=False))
    assert result.best.seconds == 2e-3
    assert any("it broke" in note for note in result.notes)


def test_a_device_that_is_lost_leaves_what_was_found(matrix: sp.csr_array) -> None:
    class Lost(Chip):
        def measure(
            self, workload: Workload, candidates: Sequence[Candidate], **limits: Any
        ) -> Iterator[Measurement]:
            for measurement in super().measure(workload, candidates):
                if len(self.asked) > 5:
                    raise MeasurementError("the chip is gone")
                yield measurement

    result = result_of(tw.tune(matrix, "spmm", n=4, device=Lost(), trials=12, store=False))
    assert 0 < len(result.trials) <= 5
    assert "the chip is gone" in result.notes
    assert np.isfinite(result.best.seconds)


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("abacus", "unknown device 'abacus'; known: cpu, cuda, null, spade, spade-small"),
        (3, "device is a name"),
    ],
)
def test_what_is_no_device_is_refused(matrix: sp.csr_array, device: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        tw.tune(matrix, "spmm", n=4, device=device)


def test_threads_are_of_devices_that_are_opened_here(matrix: sp.csr_array) -> None:
    with pytest.raises(InputError, match="threads=2 is given with the open device 'chip'"):
        tw.tune(matrix, "spmm", n=4, device=Chip(), threads=2)


class Zeroing(BoundKernel):
    """Computes nothing."""

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        out[...] = 0


class Fake(Kernel):
    name = "fake"

    def bind(self, workload: Workload, threads: int) -> BoundKernel:
        return Zeroing()


def test_a_kernel_that_computes_something_else_is_not_returned(matrix: sp.csr_array) -> None:
    class Wrong(Chip):
        def kernel(self, workload: Workload, candidate: Candidate) -> Kernel:
            return Fake()

    with pytest.raises(MeasurementError, match=r"device 'chip' gives .* computes wrong numbers"):
        tw.tune(matrix, "spmm", n=4, device=Wrong(), trials=2, store=False)


def answers(*given: Any) -> type[Chip]:
    """A device that yields these, or raises one that is an exception."""

    class Odd(Chip):
        def measure(
            self, workload: Workload, candidates: Sequence[Candidate], **limits: Any
        ) -> Iterator[Measurement]:
            for one in given:
                if isinstance(one, Exception):
                    raise one
                yield one

    return Odd


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "the device 'chip' gave no measurement"),
        ((0.5,), "the device 'chip' failed: TypeError: measure yields 0.5, not a Measurement"),
        ((RuntimeError("fuse blown"),), "the device 'chip' failed: RuntimeError: fuse blown"),
        ((InputError("no such thing"),), "the device 'chip' failed: no such thing"),
        ((Measurement.of([1e-3]), ValueError("later")), "the device 'chip' failed: ValueError: later"),
    ],
)
def test_a_device_that_fails_in_its_own_way_is_named_and_what_was_found_stays(
    matrix: sp.csr_array, given: tuple[Any, ...], said: str
) -> None:
    result = result_of(tw.tune(matrix, "spmm", n=4, device=answers(*given)(), trials=8, store=False))
    assert said in "\n".join(result.notes)
    assert len(result.trials) == sum(isinstance(one, Measurement) for one in given)


def test_why_nothing_ran_is_said(matrix: sp.csr_array) -> None:
    class Broken(Chip):
        def measure(
            self, workload: Workload, candidates: Sequence[Candidate], **limits: Any
        ) -> Iterator[Measurement]:
            yield from (Measurement.failed("crash", "it burnt") for _ in candidates)

    operator = tw.tune(matrix, "spmm", n=4, device=Broken(), trials=3, store=False)
    assert "no candidate ran; the first of 3: crash: it burnt" in result_of(operator).notes
    assert "nan" not in operator.report()


def test_times_of_zero_do_not_end_a_report(matrix: sp.csr_array) -> None:
    class Instant(Chip):
        def libraries(self, workload: Workload) -> list[str]:
            return ["oracle"]

        def measure(
            self, workload: Workload, candidates: Sequence[Candidate], **limits: Any
        ) -> Iterator[Measurement]:
            yield from (Measurement.of([0.0]) for _ in candidates)

    operator = tw.tune(matrix, "spmm", n=4, device=Instant(), trials=3, store=False)
    assert "oracle" in operator.report()


def test_rounds_of_a_device_that_answers_too_few(matrix: sp.csr_array) -> None:
    work = workload("spmm", entries_from(matrix), n=4)
    device = answers(Measurement.of([1e-3]))()
    config = device.space(work).default(work)
    found = device.rounds(work, {"a": config, "b": config}, budget_s=0.1, max_rounds=3)
    assert found.failed == {"b": "the device gave no measurement"}
    assert found.table is not None
    assert found.table.names == ("a",)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"id": None}, "id must be a text"), ({"threads": 0}, "threads must be a")],
)
def test_a_device_must_say_who_it_is(matrix: sp.csr_array, change: dict[str, Any], said: str) -> None:
    device = Chip()
    for name, value in change.items():
        setattr(device, name, value)
    with pytest.raises(InputError, match=said):
        tw.tune(matrix, "spmm", n=4, device=device, trials=2, store=False)


def test_what_a_device_says_of_itself_is_kept_or_refused_before_it_measures(
    matrix: sp.csr_array, tmp_path: Path
) -> None:
    chip = Chip()
    chip.provenance = {"clock_ghz": np.float32(1.5), "units": np.int64(4)}  # type: ignore[misc, assignment]
    with Store(tmp_path / "s.sqlite") as store:
        tw.tune(matrix, "spmm", n=4, device=chip, trials=2, store=store)
        assert {(record.provenance["clock_ghz"], record.provenance["units"]) for record in store} == {
            (1.5, 4)
        }
    chip = Chip()
    chip.provenance = {"handle": object()}  # type: ignore[misc, assignment]
    with pytest.raises(InputError, match="provenance of a record must be JSON-able"):
        tw.tune(matrix, "spmm", n=4, device=chip, trials=2)
    assert chip.asked == []


def test_break_even_is_counted_against_the_untuned_kernel_where_the_baseline_is_not_there(
    matrix: sp.csr_array,
) -> None:
    result = result_of(tw.tune(matrix, "spmm", n=4, device=Chip(), trials=4, store=False))
    slow = replace(result.best, seconds=1.0)
    other = replace(slow, name="other")
    found = replace(result, default=slow, baselines={"other": other}, baseline="mistyped", tuning_s=2.0)
    assert found.break_even_calls == replace(found, baselines={}).break_even_calls < np.inf


def test_a_deterministic_device_needs_one_round(matrix: sp.csr_array) -> None:
    notes = result_of(tw.tune(matrix, "spmm", n=4, device="null", trials=4, store=False)).notes
    assert not any("rounds fitted" in note for note in notes)


class Busy(Chip):
    """In the search, configs without threads take half as long; the rounds tell by what factor they really differ."""

    def __init__(self, *factors: float) -> None:
        super().__init__()
        self.factors = factors

    def rounds(self, workload: Workload, candidates: Any, *, budget_s: float, max_rounds: int = 30) -> Rounds:
        if "tensorwise" not in candidates:  # the choosing rounds: the fastest of the search goes on
            return Rounds(None, {}, {})
        default = self.space(workload).default(workload)
        rows = tuple(
            {name: 1e-3 if config == default else 1e-3 * factor for name, config in candidates.items()}
            for factor in self.factors
        )
        table = RoundTable(tuple(candidates), rows, (False,) * len(rows)) if rows else None
        return Rounds(table, {}, {})


@pytest.mark.parametrize(
    ("factors", "tuned"),
    [
        ((0.5,) * 7, True),
        ((1.4,) * 7, False),  # slower than untuned
        ((0.8, 0.9, 0.9, 0.9, 1.1, 1.1, 1.1), False),  # a tie: 1 is in the interval
        ((0.95, 0.9, 0.9), True),  # three rounds: the extremes
        ((0.95, 0.9, 1.0), False),
        ((0.9,), True),  # too few rounds, but the search says the same
        ((), True),  # no rounds: half the time in the search, and no spread
    ],
)
def test_the_answer_is_not_slower_than_the_untuned_kernel(
    matrix: sp.csr_array, factors: tuple[float, ...], tuned: bool
) -> None:
    device = Busy(*factors)
    operator = tw.tune(matrix, "spmm", n=4, device=device, trials=12, store=False)
    result = result_of(operator)
    work = operator.workload
    untuned = device.space(work).program(work, device.space(work).default(work))
    assert (operator.schedule != untuned.schedule_text) == tuned
    assert any("the untuned kernel is the answer" in note for note in result.notes) != tuned
    assert result.best.schedule == operator.schedule
    text = operator.report()
    if factors == (0.95, 0.9, 1.0):
        assert "is not certainly faster (0.90 to 1.00 times its time in 3 rounds); a larger budget_s" in text
    if factors == (0.95, 0.9, 0.9):  # the untuned kernel beside it, with the interval of the ratio
        assert "1.11x    1.05-1.11" in text


def test_a_search_that_measured_nothing_says_how_to_go_on(matrix: sp.csr_array) -> None:
    class Late(Chip):
        def measure(self, workload: Workload, candidates: Any, **limits: Any) -> Iterator[Measurement]:
            raise MeasurementError("too late")

    operator = tw.tune(matrix, "spmm", n=4, device=Late(), trials=2, store=False)
    text = operator.report()
    assert "compared with nothing; a larger budget_s (--budget) measures more" in text
    assert "(untuned, not timed)" in text
    assert not re.search(r"–|nan|inf", text)  # no rows of nothing
    assert "breaks even" not in text
