"""Registries: rows of this package, rows that are registered, and installed entry points."""

import abc
import contextlib
import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import tensorwise
from tensorwise.device.opening import DEVICES, DeviceOptions, open_device
from tensorwise.errors import InputError, MissingExtraError
from tensorwise.registry import Misfit, Registry, needs_function, needs_instance, needs_subclass
from tensorwise.tensor.levels import LEVELS, Compressed, Level

PACKAGE = Path(tensorwise.__file__).parent


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
    found: Registry[Any] = Registry("letter", "letters", {"own": "math:sin"}, needs_function)
    with pytest.warns(RuntimeWarning) as said:
        assert list(found.sound()) == ["own", "root"]
    texts = [str(one.message) for one in said]
    assert "letter 'missing' is installed as no.such.module:thing, but cannot be loaded" in texts[0]
    assert "letter 'number' is installed as math:pi, but 3.14" in texts[1]
    with pytest.raises(InputError, match="cannot be called"):
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


class Base(abc.ABC):
    @abc.abstractmethod
    def answer(self) -> int: ...


class Leaf(Base):
    def answer(self) -> int:
        return 42


@pytest.mark.parametrize(
    ("misfit", "right", "wrong", "said"),
    [
        (needs_instance(str), "a", 3, "3 is no str"),
        (needs_function, len, 3, "3 cannot be called"),
        (needs_subclass(Base), Leaf, 3, "3 is no class derived from Base"),
        (needs_subclass(Base), Leaf, int, "is no class derived from Base"),
        (needs_subclass(Base), Leaf, Base, "does not define answer"),
    ],
)
def test_what_is_registered_is_checked(misfit: Misfit, right: Any, wrong: Any, said: str) -> None:
    found: Registry[Any] = Registry("letter", "letters", {}, misfit)
    assert found.register("right")(right) is right
    with pytest.raises(InputError, match=f"letter 'wrong': .*{said}"):
        found.register("wrong")(wrong)
    assert list(found) == ["right"]


def test_a_name_is_a_text() -> None:
    with pytest.raises(InputError, match="registered under a name, got 3"):
        letters().register(3)(1)  # type: ignore[arg-type]


def test_every_registry_checks_what_others_add() -> None:
    modules = []
    for path in PACKAGE.rglob("*.py"):
        if re.search(r"\bRegistry(\[.+\])?\(", path.read_text(encoding="utf-8")):
            name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
            with contextlib.suppress(MissingExtraError):
                modules.append(importlib.import_module(name))
    registries = {
        id(one): one for module in modules for one in vars(module).values() if isinstance(one, Registry)
    }
    assert len(registries) >= 10
    for registry in registries.values():
        with pytest.raises(InputError, match="'odd'"):
            registry.register("odd")(3)


@pytest.mark.parametrize(
    ("letter", "kind", "said"),
    [
        ("Q", type("Sparse", (Compressed,), {"letter": "R"}), "has the letter 'R'"),
        ("q", type("Sparse", (Compressed,), {"letter": "q"}), "needs a capital letter"),
        ("QQ", type("Sparse", (Compressed,), {"letter": "QQ"}), "needs a capital letter"),
        ("Q", Level, "does not define"),
        ("Q", 3, "is no class derived from Level"),
    ],
)
def test_a_level_has_the_letter_that_formats_name_it_by(letter: str, kind: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"level '{letter}': .*{said}"):
        LEVELS.register(letter)(kind)
    assert letter not in LEVELS


MODULE = """
from dataclasses import dataclass
from tensorwise.space.extensions import PARAMS, ParamExtension
from tensorwise.space.params import Flag
from tensorwise.tensor.levels import LEVELS, Compressed

@LEVELS.register("Q")
@dataclass(frozen=True)
class Listed(Compressed):
    letter = "Q"
    proposed = True

PARAMS.register("shiny")(ParamExtension(
    lambda assignment, sparse: Flag("shiny", binds="call", doc="Changes nothing at all."),
    lambda program, workload, value: program))
"""
SCRIPT = """
import warnings
import scipy.sparse as sp
import tensorwise as tw
from tensorwise.device.cpu import CpuDevice
from tensorwise.program.workload import workload
from tensorwise.space.cpu import cpu_space_of
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.levels import LEVELS, Compressed, proposed_levels

work = workload("spmv", entries_from(sp.eye_array(50, format="csr", dtype="f4")))
assert "shiny" not in cpu_space_of(work).by_name
device = CpuDevice(1)
print(*(one.status for one in device.measure(work, [cpu_space_of(work).default(work)])))
import shiny_levels
space = cpu_space_of(work)
assert "shiny" in space.by_name
config = space.complete({"kind_k1": "Q", "shiny": True}, work, strict=True)
print(*(f"{one.status} {one.note}" for one in device.measure(work, [config])))
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    LEVELS.register("X")(type("Local", (Compressed,), {"letter": "X", "proposed": True}))
print(*(str(one.message) for one in said))
assert "Q" in proposed_levels() and "X" not in proposed_levels() and "X" in LEVELS
"""


def test_what_a_module_registers_is_tried_and_known_where_it_is_measured(tmp_path: Path) -> None:
    """After the space was asked for once, and a worker was started."""
    (tmp_path / "shiny_levels.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    before, after, said = found.stdout.splitlines()
    assert (before.strip(), after.strip()) == ("ok", "ok")
    assert said.startswith("level 'X' is registered in a script or a notebook")


def test_the_environment_names_modules(tmp_path: Path) -> None:
    (tmp_path / "shiny_levels.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    script = "from tensorwise.tensor.levels import LEVELS; print(LEVELS['Q'].__name__, sorted(LEVELS)[-2:])"
    environment = {**os.environ, "PYTHONPATH": path, "TENSORWISE_EXTENSIONS": "shiny_levels, no_such_module"}
    found = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert found.stdout.startswith("Listed ["), found.stderr
    assert "TENSORWISE_EXTENSIONS names 'no_such_module', which cannot be imported" in found.stderr
