"""Build the wheels of tensorwise-kernels: compile each level of processors, and use the wheel that fits this machine.

The shared objects are not in the repository. ``zig cc`` (``pip install ziglang``) compiles every level on one machine,
with an old glibc. Another compiler makes the levels that it can; the wheel's tag then names the glibc that the files need.

    python packaging/build_kernels.py --out dist/kernels [--compiler "zig cc"] [--machine x86_64] [--machine aarch64]
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LEVELS: Final = {"x86_64": ("x86-64-v2", "x86-64-v3", "x86-64-v4"), "aarch64": ("aarch64",)}
"""Machine of a wheel -> the levels that it holds."""
GLIBC: Final = re.compile(rb"GLIBC_(\d+)\.(\d+)")
OLDEST_GLIBC: Final = (2, 17)
"""What ``zig cc`` links against; the first of aarch64."""
USE: Final = """
import numpy as np, scipy.sparse as sp, tensorwise as tw
from tensorwise.sparse.library import loaded_libraries

A = sp.random_array((500, 400), density=0.05, format="csr", rng=np.random.default_rng(0))
np.testing.assert_allclose(tw.asarray(A) @ np.ones(400), A @ np.ones(400), rtol=1e-12)
levels = [one.level for one in loaded_libraries()]
assert levels and all(levels), "no prebuilt kernel was used"
print("used without a compiler:", *levels)
"""


def platform_tag(folder: Path, machine: str) -> str:
    """Return the platform tag of a wheel, from the versions of glibc whose symbols its shared objects need.

    Args:
        folder: with the shared objects, at any depth.
        machine: as in ``x86_64``.
    """
    needed = {
        (int(major), int(minor))
        for path in folder.rglob("*.so")
        for major, minor in GLIBC.findall(path.read_bytes())
    }
    major, minor = max({OLDEST_GLIBC, *needed})
    return f"manylinux_{major}_{minor}_{machine}"


def build_wheel(machine: str, out: Path, compiler: str) -> Path:
    """Compile the levels of a machine and build their wheel; return its path.

    Args:
        machine: as in ``x86_64``.
        out: folder of wheels.
        compiler: command of a C compiler; empty: what ``tensorwise.sparse.prepare --for`` chooses.
    """
    with tempfile.TemporaryDirectory(prefix="tensorwise-kernels-") as scratch:
        tree = Path(
            shutil.copytree(
                ROOT / "kernels",
                Path(scratch) / "tree",
                ignore=shutil.ignore_patterns(".*", "build", "*.egg-info"),
            )
        )
        package = tree / "tensorwise_kernels"
        for level in LEVELS[machine]:
            more = ["--compiler", compiler] if compiler else []
            command = [
                sys.executable,
                "-m",
                "tensorwise.sparse.prepare",
                "--for",
                level,
                "--out",
                str(package),
                *more,
            ]
            subprocess.run(command, check=True)
        tag = platform_tag(package, machine)
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out.absolute()), str(tree)]
        subprocess.run(
            [*command, f"-C--build-option=--plat-name={tag}"], check=True, stdout=subprocess.DEVNULL
        )
    (made,) = out.glob(f"*{tag}.whl")
    print(f"{made}: {made.stat().st_size:,} bytes")
    return made


def use(wheel: Path) -> None:
    """Install a wheel into an empty folder and multiply by it, without a compiler and with an empty kernel cache."""
    with tempfile.TemporaryDirectory(prefix="tensorwise-kernels-") as scratch:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            scratch,
            str(wheel),
        ]
        subprocess.run(command, check=True)
        known = os.pathsep.join(filter(None, (scratch, os.environ.get("PYTHONPATH", ""))))
        own = {
            "PYTHONPATH": known,
            "TENSORWISE_CC": "/nonexistent",
            "TENSORWISE_CACHE_DIR": f"{scratch}/cache",
        }
        environment = {**os.environ, **own, "TENSORWISE_AUTOTUNE": "off"}
        environment.pop("TENSORWISE_KERNELS", None)
        subprocess.run([sys.executable, "-c", USE], check=True, env=environment)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build the wheels of tensorwise-kernels.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "kernels")
    parser.add_argument("--compiler", default="", help="C compiler; default: TENSORWISE_CC, ziglang, gcc")
    parser.add_argument("--machine", action="append", choices=LEVELS, help="of the wheels; default: all")
    given = parser.parse_args(arguments)
    shutil.rmtree(given.out, ignore_errors=True)
    for machine in given.machine or LEVELS:
        wheel = build_wheel(machine, given.out, given.compiler)
        if machine == platform.machine():
            use(wheel)


if __name__ == "__main__":
    main()
