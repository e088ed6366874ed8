"""Registries: rows of this package, rows that are registered, and installed entry points."""

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from tensorwise.device.opening import DEVICES, DeviceOptions, open_device
from tensorwise.errors import InputError
from tensorwise.registry import Registry


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    points: list[EntryPoint] = []

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [point for point in points if point.group == group]

    monkeypatch.setattr("tensorwise.registry.entry_points", entry_points)
    monkeypatch.setattr(DEVICES, "_installed", {})  # which would be remembered for the tests behind
    return points


def letters(**rows: Any) -> Registry[Any]:
    return Registry("letter", "letters", rows)


def test_references_are_imported_when_they_are_looked_up() -> None:
    found = letters(square="math:sqrt", missing="no.such.module:thing")
    assert "missing" in found
    assert found["square"](9) == 3
    with pytest.raises(ModuleNotFoundError):
        found["missing"]


def test_entry_points_of_the_group_are_rows(installed: list[EntryPoint]) -> None:
    installed += [
        EntryPoint("root", "math:sqrt", "tensorwise.letters"),
        EntryPoint("other", "math:sqrt", "tensorwise.numbers"),
        EntryPoint("own", "math:cos", "tensorwise.letters"),
    ]
    found = letters(own="math:sin")
    assert list(found) == ["own", "root"]
    assert found["root"](4) == 2
    assert found["own"](0) == 0, "rows of this package cannot be replaced"
    with pytest.raises(InputError, match="unknown letter 'other'; known: own, root"):
        found["other"]


def test_an_entry_point_that_cannot_be_loaded_is_named(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("broken", "no.such.module:thing", "tensorwise.letters"))
    with pytest.raises(
        InputError, match=r"letter 'broken' is installed as no\.such\.module:thing, but cannot be loaded"
    ):
        letters()["broken"]


def test_a_name_is_registered_once() -> None:
    found = letters(a=1)
    assert found.register("b")(2) == 2
    assert found.register("b")(found["b"]) == 2
    with pytest.raises(InputError, match="letter 'a' is registered already"):
        found.register("a")(3)
    assert dict(found) == {"a": 1, "b": 2}


def test_a_device_of_another_package_is_opened_by_name(installed: list[EntryPoint]) -> None:
    installed.append(
        EntryPoint("zero", "tensorwise.device.null:NullDevice.from_options", "tensorwise.devices")
    )
    fresh: Registry[Any] = Registry("device", "devices", dict(DEVICES._rows))
    assert fresh["zero"](DeviceOptions()).name == "null"
    assert open_device("null", DeviceOptions()).name == "null"
    assert [name for name in DEVICES] == ["cpu", "cuda", "null", "spade", "spade-small"]


def test_a_broken_entry_point_stops_only_who_asks_for_it(installed: list[EntryPoint]) -> None:
    installed += [
        EntryPoint("missing", "no.such.module:thing", "tensorwise.letters"),
        EntryPoint("number", "math:pi", "tensorwise.letters"),
        EntryPoint("root", "math:sqrt", "tensorwise.letters"),
    ]
    found: Registry[Any] = Registry("letter", "letters", {"own": "math:sin"}, callable)
    with pytest.warns(RuntimeWarning) as said:
        assert list(found.sound()) == ["own", "root"]
    texts = [str(one.message) for one in said]
    assert "letter 'missing' is installed as no.such.module:thing, but cannot be loaded" in texts[0]
    assert "letter 'number' is installed as math:pi, which is 3.14" in texts[1]
    with pytest.raises(InputError, match="not a letter"):
        found["number"]


@pytest.mark.parametrize(
    ("opener", "said"),
    [
        ("tests.unit.test_registry:opens_nothing", "returns None, not a Device"),
        ("tests.unit.test_registry:fails", "cannot be opened: RuntimeError: no power"),
    ],
)
def test_an_opener_that_fails_is_named(
    installed: list[EntryPoint], monkeypatch: pytest.MonkeyPatch, opener: str, said: str
) -> None:
    monkeypatch.setitem(DEVICES._rows, "odd", opener)
    with pytest.raises(InputError, match=f"device 'odd' cannot be opened.*{said}|device 'odd' {said}"):
        open_device("odd", DeviceOptions())


def opens_nothing(options: DeviceOptions) -> None:
    return None


def fails(options: DeviceOptions) -> None:
    raise RuntimeError("no power")
