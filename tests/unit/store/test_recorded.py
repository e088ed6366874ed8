"""RecordedDevice: whose records it plays, and which."""

from pathlib import Path

import pytest

from tensorwise.errors import InputError
from tensorwise.space.config import Config
from tensorwise.store.recorded import RecordedDevice
from tensorwise.store.store import Store
from tests.unit.store.examples import W, record


def test_plays_the_last_record_of_a_config(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.append([record(1), record(2), record(1, seconds=7.0)])
        device = RecordedDevice(store)
    first, second, third = device.measure(W, [record(1).config, record(2).config, Config({"n": 9})])
    assert (first.seconds, second.seconds) == (7.0, record(2).seconds)
    assert third.status == "refused"
    assert "n=9" in third.note
    assert device.id == "device-1"
    assert device.configs(W) == [record(1).config, record(2).config]


def test_what_was_not_timed_alone_is_not_played() -> None:
    used = record(1, seconds=9.0, provenance={"measured_by": "use"})
    (one,) = RecordedDevice([record(1), used]).measure(W, [record(1).config])
    assert one.seconds == record(1).seconds


def test_needs_to_know_whose_records() -> None:
    records = [record(1), record(1, device_id="device-2", seconds=9.0)]
    with pytest.raises(InputError, match="device-1, device-2"):
        RecordedDevice(records)
    (one,) = RecordedDevice(records, "device-2").measure(W, [record(1).config])
    assert one.seconds == 9.0
    with pytest.raises(InputError, match="no record of device device-3"):
        RecordedDevice(records, "device-3")
    with pytest.raises(InputError, match="no record"):
        RecordedDevice([])


def test_other_workloads_are_refused() -> None:
    (one,) = RecordedDevice([record(1, workload_id="elsewhere")]).measure(W, [record(1).config])
    assert one.status == "refused"
