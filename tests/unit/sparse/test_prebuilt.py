"""Kernels that were compiled for a level of processors serve a process without a compiler, where they are intact."""

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tensorwise.errors import CompilerError
from tensorwise.front import cli_doctor
from tensorwise.sparse import prebuilt
from tensorwise.sparse.kernels import COMPRESSED_KERNELS, FAMILIES
from tensorwise.sparse.prebuilding import build_level, compiler_for, main
from tensorwise.sparse.prebuilt import MANIFEST, PROCESSOR_LEVELS, VARIABLE, ProcessorLevel, prebuilt_kernels
from tensorwise.sparse.prepare import kernel_of
from tensorwise.toolchain.compiler import find_compiler
from tensorwise.toolchain.processor import ON_ARM, describe_processor

LEVEL: Final = PROCESSOR_LEVELS["aarch64" if ON_ARM else "x86-64-v2"]
KERNEL_FILE: Final = "compressed-f64-i32.so"
CHILD: Final = """
import json
import numpy as np
import scipy.sparse as sp
import tensorwise as tw
from tensorwise.sparse.library import loaded_libraries

A = sp.random_array((400, 300), density=0.05, format="csr", rng=np.random.default_rng(0))
fast, x, X = tw.asarray(A), np.linspace(-1, 1, 300), np.ones((300, 5))
for _ in range(3):
    np.testing.assert_allclose(fast @ x, A @ x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(fast @ X, A @ X, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(fast.T @ (A @ x), A.T @ (A @ x), rtol=1e-12, atol=1e-12)
print(json.dumps({"levels": [one.level for one in loaded_libraries()], "tuning": str(fast.tuning)}))
"""
Change = Callable[[dict[str, Any]], object]

pytestmark = pytest.mark.skipif(
    not set(LEVEL.features) <= describe_processor()[1], reason=f"this processor runs no code of {LEVEL.name}"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of levels' folders: one level of the products of float64."""
    out = tmp_path_factory.mktemp("levels")
    build_level(LEVEL, out, shlex.join(find_compiler().command), [COMPRESSED_KERNELS], ["f64"])
    return out


@pytest.fixture
def copied(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy that may be changed, and that this process finds."""
    folder = Path(shutil.copytree(built, tmp_path / "levels"))
    monkeypatch.setenv(VARIABLE, str(folder))
    prebuilt_kernels.cache_clear()
    yield folder
    prebuilt_kernels.cache_clear()


def change(folder: Path, edit: Change) -> None:
    path = folder / MANIFEST
    made = json.loads(path.read_text())
    edit(made)
    path.write_text(json.dumps(made))


def run(code: str, tmp_path: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run Python where no program is on PATH, with a kernel cache of its own."""
    empty = tmp_path / "empty"
    empty.mkdir(exist_ok=True)
    own = {"TENSORWISE_CC": "/nonexistent", "TENSORWISE_AUTOTUNE": "off", "PATH": str(empty)}
    own |= {"TENSORWISE_CACHE_DIR": str(tmp_path / "cache"), "TENSORWISE_STORE": str(tmp_path / "records")}
    environment = {**os.environ, **own, **variables}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )


def test_a_process_without_a_compiler_multiplies_by_them(built: Path, tmp_path: Path) -> None:
    ran = run(CHILD, tmp_path, **{VARIABLE: str(built)})
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["levels"] == [LEVEL.name]
    assert "A @ x: in place" in found["tuning"]
    assert f"prebuilt kernels of level {LEVEL.name}" in found["tuning"]
    assert not (tmp_path / "cache" / "kernels").exists()


def test_reproducible_processes_use_them_where_nothing_else_works(built: Path, tmp_path: Path) -> None:
    code = CHILD.replace("fast @ x, A @ x", "fast @ x, fast @ x")
    ran = run(code, tmp_path, TENSORWISE_REPRODUCIBLE="1", **{VARIABLE: str(built)})
    assert json.loads(ran.stdout)["levels"] == [LEVEL.name], ran.stderr


def test_the_kernels_of_this_machine_come_first(copied: Path, tmp_path: Path) -> None:
    own = {"TENSORWISE_CACHE_DIR": os.environ.get("TENSORWISE_CACHE_DIR", ""), VARIABLE: str(copied)}
    own |= {name: os.environ.get(name, "") for name in ("TENSORWISE_CC", "PATH")}
    ran = run(CHILD, tmp_path, **own)
    assert json.loads(ran.stdout)["levels"] == [""], ran.stderr


def test_a_damaged_file_is_refused(copied: Path, tmp_path: Path) -> None:
    path = copied / LEVEL.name / KERNEL_FILE
    text = bytearray(path.read_bytes())
    text[len(text) // 2] ^= 1
    path.write_bytes(text)
    found, (refused,) = prebuilt_kernels()
    assert found is None
    assert f"{path} is damaged" in refused
    ran = run(CHILD, tmp_path, **{VARIABLE: str(copied)})
    assert json.loads(ran.stdout)["levels"] == [], ran.stderr  # SciPy computes
    assert "is damaged" in ran.stderr


def test_kernels_of_other_sources_are_refused(copied: Path, tmp_path: Path) -> None:
    change(copied / LEVEL.name, lambda made: made.update(sources="0" * 64))
    found, (refused,) = prebuilt_kernels()
    assert found is None
    assert "other sources; install the release of tensorwise-kernels" in refused
    ran = run(CHILD, tmp_path, **{VARIABLE: str(copied)})
    assert json.loads(ran.stdout)["levels"] == [], ran.stderr


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"features": 3}'])
def test_a_broken_manifest_is_refused(copied: Path, text: str) -> None:
    (copied / LEVEL.name / MANIFEST).write_text(text)
    found, refused = prebuilt_kernels()
    assert found is None
    assert len(refused) == 1


def test_a_feature_that_the_processor_lacks(copied: Path) -> None:
    change(copied / LEVEL.name, lambda made: made["features"].append("avx99"))
    assert prebuilt_kernels()[0] is None
    assert "this processor has no avx99" in prebuilt_kernels()[1][0]


@pytest.mark.skipif(ON_ARM, reason="there is one level for aarch64")
@pytest.mark.parametrize("runs", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_the_highest_level_that_the_processor_runs(
    copied: Path, runs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in {*PROCESSOR_LEVELS} - {LEVEL.name}:
        shutil.copytree(copied / LEVEL.name, copied / name)
    able = frozenset(PROCESSOR_LEVELS[runs].features)
    monkeypatch.setattr(prebuilt, "describe_processor", lambda: ("some", able))
    monkeypatch.setattr(prebuilt, "vector_bytes", lambda: PROCESSOR_LEVELS[runs].register_bytes)
    found, refused = prebuilt_kernels()
    assert found is not None
    assert (found.level, found.folder) == (runs, copied / runs)
    assert len(refused) == list(PROCESSOR_LEVELS).index(runs)
    prebuilt_kernels.cache_clear()
    monkeypatch.setattr(prebuilt, "vector_bytes", lambda: 16)  # TENSORWISE_VECTOR_BYTES
    narrow, _ = prebuilt_kernels()
    assert narrow is not None
    assert narrow.level == "x86-64-v2"


def test_doctor_says_what_is_used(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tensorwise.sparse.prepare.is_prepared", lambda family: family is not COMPRESSED_KERNELS
    )
    assert f"prebuilt kernels of level {LEVEL.name} are used: {copied / LEVEL.name}" in cli_doctor._kernels()
    change(copied / LEVEL.name, lambda made: made.update(sources=""))
    prebuilt_kernels.cache_clear()
    with pytest.raises(OSError, match="compiled from other sources"):
        cli_doctor._kernels()


def test_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("off", "/nonexistent"):
        prebuilt_kernels.cache_clear()
        monkeypatch.setenv(VARIABLE, given)
        assert prebuilt_kernels() == (None, ())
    prebuilt_kernels.cache_clear()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--for", LEVEL.name, "--out", str(tmp_path)]
    assert main([*given, "--compiler", "/nonexistent"]) == 1
    assert f"cannot be compiled for {LEVEL.name}: not found" in capsys.readouterr().err
    assert main([*given, "lattices"]) == 1
    assert "expected some of compressed, blocks" in capsys.readouterr().err


def test_flags_follow_from_the_level(tmp_path: Path) -> None:
    """And not from the machine, whatever it is; zig is told the C library's version besides."""
    zig = tmp_path / "zig"
    zig.write_text("#!/bin/sh\necho clang version 99\n")
    zig.chmod(0o755)
    for level in PROCESSOR_LEVELS.values():
        made = compiler_for(level, f"{zig} cc")
        assert made.command[2:] == level.zig_flags
        assert made.kind == "zig"
        assert not any("native" in flag for flag in made.flags)
    with pytest.raises(CompilerError, match="not found"):
        compiler_for(LEVEL, str(tmp_path / "gcc"))


def test_level_of_this_architecture() -> None:
    assert ("asimd" in LEVEL.features) == (platform.machine() == "aarch64")


@pytest.mark.parametrize("level", PROCESSOR_LEVELS.values(), ids=lambda level: level.name)
def test_no_vector_is_wider_than_a_register(level: ProcessorLevel) -> None:
    """Gcc keeps wider ones in memory, and the kernel is slower than SciPy's."""
    widest = 0
    for family in FAMILIES.values():
        for shape in family.shapes:
            for element, size in (("f64", 8), ("f32", 4)):
                text, _, _ = kernel_of(shape, element, "i32", level.register_bytes)
                found = [size * int(lanes) for lanes in re.findall(rf"{element}x(\d+)", text)]
                assert max(found, default=0) <= level.register_bytes, (shape.name, element)
                widest = max([widest, *found])
    assert widest == level.register_bytes
