"""Record: rows and JSON lines round-trip, and damage shows."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.device.device import Measurement, Status
from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError
from tensorwise.space.config import Config
from tensorwise.store.record import COLUMNS, Record
from tests.unit.store.examples import W, record

CASES = {
    "ok": record(1),
    "zero": record(2, seconds=-0.0, spread_s=0),
    "whole": record(3, seconds=3, spread_s=1),
    "failed": record(4, seconds=math.inf, status="crash", note="line one\nline two \udcff \0 end"),
    "censored": record(5, seconds=1e-300, status="censored"),
    "odd-texts": record(
        6, space="é\u2028'\"", provenance={"tuple": (1, 2), "none": None, "nested": {"a": [1.5]}}
    ),
}


@pytest.mark.parametrize("one", CASES.values(), ids=CASES.keys())
def test_row_and_json_round_trip(one: Record) -> None:
    for again in (Record.from_row(one.to_row()), Record.from_json(one.to_json())):
        assert again == one
        assert again.id == one.id
        assert again.to_row() == one.to_row()
        assert again.measurement == one.measurement
        assert again.provenance == one.provenance
    assert "\n" not in one.to_json()


@pytest.mark.parametrize("how", ["background", "use", None])
def test_what_was_not_timed_alone_is_told_apart_parsed_or_not(how: str | None) -> None:
    one = record(1, provenance={"note": "use"} if how is None else {"measured_by": how})
    for again in (one, Record.from_row(one.to_row(), parse=False), Record.from_row(one.to_row())):
        assert again.is_isolated == (how is None)


@given(seconds=st.floats(0, 1e300), spread=st.floats(0, 1e300))
@settings(max_examples=50, deadline=None)
def test_every_float_round_trips(seconds: float, spread: float) -> None:
    one = record(1, seconds=seconds, spread_s=spread)
    again = Record.from_json(one.to_json())
    assert (again.seconds, again.spread_s) == (seconds, spread)


def test_content_decides_equality() -> None:
    assert record(1) == record(1)
    assert len({record(1), record(1), record(2)}) == 2
    assert record(1) != record(1, provenance={"when": "later"})


def test_the_description_is_a_private_copy() -> None:
    workload = {"op": "spmm", "sizes": {"i": 1}}
    one = record(1, workload=workload)
    workload["sizes"]["i"] = 2  # type: ignore[index]
    assert one.workload == {"op": "spmm", "sizes": {"i": 1}}
    assert one.op == "spmm"


@pytest.mark.parametrize("column", range(len(COLUMNS)))
def test_a_changed_value_is_noticed(column: int) -> None:
    row: list[Any] = list(record(1).to_row())
    row[column] = row[column] * 2 if isinstance(row[column], float) else row[column] + " "
    with pytest.raises(InputError):
        Record.from_row(row)


@pytest.mark.parametrize("bad", [[], [1] * len(COLUMNS), [None] * len(COLUMNS), ["x"] * (len(COLUMNS) - 1)])
def test_malformed_rows_are_refused(bad: list[Any]) -> None:
    with pytest.raises(InputError):
        Record.from_row(bad)


@pytest.mark.parametrize(
    "bad", ["", "{", "[]", "null", '{"id": 1}', "[" * 3000, json.dumps(dict.fromkeys(COLUMNS))]
)
def test_malformed_lines_are_refused(bad: str) -> None:
    with pytest.raises(InputError):
        Record.from_json(bad)


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"status": "fine"},
        {"spread_s": -1.0},
        {"provenance": {"x": object()}},
        {"provenance": {"x": math.nan}},
        {"workload": {"x": {1, 2}}},
    ],
)
def test_impossible_records_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        record(1, **changes)


def test_of_adds_when_and_the_device() -> None:
    device = NullDevice()
    one = Record.of(Measurement.of([1.0, 2.0]), W, device, "garden", Config({"n": 1}), {"threads": 4})
    assert one.provenance["device"] == "null"
    assert str(one.provenance["when"]).endswith("+00:00")
    assert one.provenance["threads"] == 4
    assert one.workload == W.describe()
    assert json.loads(json.dumps(one.workload))["nnz"] == 300
    assert one.seconds == 1.5


def test_failures_are_recorded_too() -> None:
    statuses: tuple[Status, ...] = ("wrong", "crash", "timeout", "memory", "refused", "implausible")
    for status in statuses:
        one = Record.of(Measurement.failed(status, "why"), W, NullDevice(), "garden", Config({"n": 1}), {})
        assert Record.from_row(one.to_row()).measurement == Measurement.failed(status, "why")


def test_what_a_gpus_machine_code_takes_is_remembered() -> None:
    told = Measurement.from_json({**Measurement.of([1.0]).to_json(), "registers": 40, "frame_bytes": 8})
    assert Measurement.from_json(told.to_json()) == told
    kept = [
        Record.of(measurement, W, NullDevice(), "garden", Config({"n": 1}), {}).provenance
        for measurement in (told, Measurement.of([1.0]))
    ]
    assert (kept[0]["registers"], kept[0]["frame_bytes"]) == (40, 8)
    assert "registers" not in kept[1]
