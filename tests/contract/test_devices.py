"""What every Device promises. Add a device as a row of DEVICES."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device.cpu import CpuDevice
from tensorwise.device.device import STATUSES, Device, MeasuredOnly, Measurement
from tensorwise.device.noisy import NoisyDevice
from tensorwise.device.null import NullDevice
from tensorwise.device.spade import SpadeDevice
from tensorwise.device.versions import VersionsDevice
from tensorwise.errors import CompilerError, InputError
from tensorwise.program.workload import Workload, workload
from tensorwise.space.cpu import cpu_space_of
from tensorwise.space.space import Space
from tensorwise.space.versions import Version, Versions
from tensorwise.store.record import Record
from tensorwise.store.recorded import RecordedDevice
from tensorwise.tensor.convert import entries_from
from tensorwise.toolchain.compiler import find_compiler
from tests.contract.toys import GARDEN, ToyWorkload


@dataclass(frozen=True)
class Rig:
    """A device with something it can measure."""

    device: Device[Any]
    workload: Any
    repeats: bool = False
    """Whether the same question gets exactly the same answer."""
    counts: Callable[[Sequence[float]], Any] = np.median
    """What of the samples is the time."""

    @property
    def space(self) -> Space[Any]:
        """What the device says can be chosen."""
        return self.device.space(self.workload)


def null() -> Iterator[Rig]:
    yield Rig(NullDevice(space=GARDEN), ToyWorkload(), repeats=True)


def null_that_crashes() -> Iterator[Rig]:
    def cost(workload: Any, config: Any) -> float:
        return math.inf if config["vector"] else 1e-3

    yield Rig(NullDevice(cost, "crashing", GARDEN), ToyWorkload(), repeats=True)


def noisy() -> Iterator[Rig]:
    rng = np.random.default_rng(0)
    yield Rig(NoisyDevice(NullDevice(space=GARDEN), rng, failure_rate=0.3, drift=0.01), ToyWorkload())


def recorded() -> Iterator[Rig]:
    workload: Any = ToyWorkload()
    rng, device = np.random.default_rng(0), NullDevice()
    configs = [GARDEN.sample(workload, rng) for _ in range(20)]
    records = [
        Record.of(measured, workload, device, GARDEN.name, config, {})
        for config, measured in zip(configs, device.measure(workload, configs), strict=True)
    ]
    yield Rig(RecordedDevice(records, space=GARDEN), workload, repeats=True)


def cpu() -> Iterator[Rig]:
    """The real one, on a matrix of a few hundred entries."""
    try:
        find_compiler()
    except CompilerError as error:
        pytest.skip(str(error))
    rng = np.random.default_rng(0)
    matrix = sp.random_array((60, 50), density=0.1, rng=rng, dtype=np.float32)
    work = workload("spmv", entries_from(matrix))
    yield Rig(CpuDevice(2), work)


def versions() -> Iterator[Rig]:
    listed = [Version("plus", lambda a, b: a + b), Version("minus", lambda a, b: a - b)]
    space = Versions.of("add", listed, lambda a, b: (a, b), {"a": "1", "b": "1"})
    device = VersionsDevice(space, rounds=2, budget_s=0.02)
    yield Rig(device, space.call(1.0, 2.0), counts=min)


def measured_only() -> Iterator[Rig]:
    """Programs of CPUs that are measured and cannot be called: what a device is that says nothing of kernels."""
    work = workload("spmv", entries_from(sp.eye_array(20, format="csr", dtype=np.float32)))
    yield Rig(NullDevice(space=cpu_space_of(work)), work, repeats=True)


def spade() -> Iterator[Rig]:
    """A simulated accelerator."""
    matrix = sp.random_array((60, 500), density=0.1, rng=np.random.default_rng(0), dtype=np.float32)
    device = SpadeDevice("spade-small")
    yield Rig(device, workload("spmm", entries_from(matrix), n=64), repeats=True)


DEVICES: dict[str, Callable[[], Iterator[Rig]]] = {
    "null": null,
    "null-that-crashes": null_that_crashes,
    "measured-only": measured_only,
    "noisy": noisy,
    "recorded": recorded,
    "cpu": cpu,
    "versions": versions,
    "spade": spade,
}
"""Name -> generator that yields one Rig and cleans up after it."""


@pytest.fixture(params=DEVICES.values(), ids=DEVICES.keys())
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with contextmanager(request.param)() as made:
        yield made
        made.device.close()


def some_configs(rig: Rig, count: int = 6) -> list[Any]:
    rng = np.random.default_rng(1)
    return [rig.space.default(rig.workload), *(rig.space.sample(rig.workload, rng) for _ in range(count - 1))]


def test_one_measurement_for_each_config(rig: Rig) -> None:
    configs = some_configs(rig)
    measured = list(rig.device.measure(rig.workload, configs))
    assert len(measured) == len(configs)
    for one in measured:
        assert isinstance(one, Measurement)
        assert one.status in STATUSES
        assert one.ok == (one.status == "ok")
        assert math.isfinite(one.seconds) == (one.status in ("ok", "censored"))
        assert one.seconds >= 0
        assert one.ok or one.note, "a failure says why"
        if one.samples:
            assert one.seconds == pytest.approx(float(rig.counts(one.samples)))


def test_some_config_can_be_measured(rig: Rig) -> None:
    configs = some_configs(rig)
    if isinstance(rig.device, RecordedDevice):
        configs = rig.device.configs(rig.workload)
    assert any(one.ok for one in rig.device.measure(rig.workload, configs))


def test_measurements_survive_json(rig: Rig) -> None:
    for one in rig.device.measure(rig.workload, some_configs(rig)):
        assert Measurement.from_json(json.loads(json.dumps(one.to_json(), allow_nan=False))) == one


def test_no_config_no_measurement(rig: Rig) -> None:
    assert list(rig.device.measure(rig.workload, [])) == []


def test_the_same_config_may_be_asked_twice(rig: Rig) -> None:
    config = some_configs(rig)[0]
    first, second = rig.device.measure(rig.workload, [config, config])
    (third,) = rig.device.measure(rig.workload, [config])
    if rig.repeats:
        assert first == second == third


def test_an_abandoned_iterator_does_no_harm(rig: Rig) -> None:
    configs = some_configs(rig)
    iterator = rig.device.measure(rig.workload, configs)
    next(iterator)
    del iterator
    assert len(list(rig.device.measure(rig.workload, configs[:2]))) == 2


@pytest.mark.parametrize("make", DEVICES.values(), ids=DEVICES.keys())
def test_it_has_a_name_and_a_stable_id(make: Callable[[], Iterator[Rig]]) -> None:
    named = []
    for _ in range(2):
        with contextmanager(make)() as made:
            named.append((made.device.name, made.device.id))
            made.device.close()
    assert named[0] == named[1]
    assert all(named[0])


def test_closing_twice_is_fine(rig: Rig) -> None:
    with rig.device as same:
        assert same is rig.device
    rig.device.close()


def test_its_measurements_become_records(rig: Rig) -> None:
    configs = some_configs(rig)
    for config, one in zip(configs, rig.device.measure(rig.workload, configs), strict=True):
        record = Record.of(one, rig.workload, rig.device, rig.space.name, config, {"threads": 1})
        assert Record.from_row(record.to_row()) == record
        assert record.device_id == rig.device.id


# -- what a tuner asks -----------------------------------------------------------------------------------------


def test_what_a_record_says_of_the_device_is_json(rig: Rig) -> None:
    assert json.loads(json.dumps(dict(rig.device.provenance))) == dict(rig.device.provenance)
    assert isinstance(rig.device.threads, int)
    assert rig.device.compile_s >= 0
    assert all(isinstance(one, str) for one in rig.device.warnings)


def test_libraries_are_candidates(rig: Rig) -> None:
    names = list(rig.device.libraries(rig.workload))
    measured = list(rig.device.measure(rig.workload, [*names, *some_configs(rig, 1)]))
    assert len(measured) == len(names) + 1
    assert rig.device.baseline in ("", *names)


def test_rounds_have_a_time_for_each_that_ran_and_a_reason_for_each_that_did_not(rig: Rig) -> None:
    configs = (
        rig.device.configs(rig.workload) if isinstance(rig.device, RecordedDevice) else some_configs(rig)
    )
    asked = {str(place): config for place, config in enumerate(configs[:4])}
    found = rig.device.rounds(rig.workload, asked, budget_s=0.5, max_rounds=4)
    timed = () if found.table is None else found.table.names
    assert {*timed, *found.failed} == asked.keys()
    assert not {*timed} & {*found.failed}
    assert all(found.failed.values())
    if found.table is not None:
        assert found.table.seconds
        assert all(row.keys() == {*timed} and min(row.values()) >= 0 for row in found.table.seconds)


def test_preparing_and_starting_change_no_answer(rig: Rig) -> None:
    configs = some_configs(rig, 2)
    rig.device.start(rig.workload)
    rig.device.prepare(rig.workload, configs)
    assert len(list(rig.device.resources(rig.workload, configs))) == 2
    measured = [one.ok for one in rig.device.measure(rig.workload, configs)]
    assert measured == [one.ok for one in rig.device.measure(rig.workload, configs)] or not rig.repeats


def test_its_kernels_compute_or_say_why_not(rig: Rig) -> None:
    if not isinstance(rig.workload, Workload):
        pytest.skip("toys and calls of functions have no kernels")
    for kernel in (
        rig.device.default_kernel(rig.workload),
        rig.device.kernel(rig.workload, some_configs(rig, 1)[0]),
    ):
        bound = kernel.bind(rig.workload, rig.device.threads)
        out = np.empty(rig.workload.output_shape, rig.workload.output_dtype)
        operands = rig.workload.operands(np.random.default_rng(0))
        if isinstance(kernel, MeasuredOnly):
            with pytest.raises(InputError, match=f"device '{rig.device.name}', which measures programs but"):
                bound.run(operands, out)
            continue
        bound.run(operands, out)
        assert rig.workload.reference(operands).mismatch(out) is None
