"""Install the built wheels in an empty environment, use them as README.md says, and uninstall them.

Nothing of the checkout may help: the child processes run in an empty folder, with a home folder and caches of their own.
Run after ``packaging/build_dist.py``; the packages that Tensorwise needs come from the package index.

    python packaging/try_dist.py dist
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
MAX_WHEEL_BYTES: Final = 3_000_000
"""Size of the wheel without models. The target of issue trackers and mirrors is far above; ours is code alone."""
EXAMPLE: Final = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CHECKS: Final = """
import sys
from pathlib import Path

dense = A.toarray()
np.testing.assert_allclose(y, dense @ np.ones(2000), rtol=1e-12)
np.testing.assert_allclose(Y, dense @ np.ones((2000, 64)), rtol=1e-12)
np.testing.assert_allclose(A @ np.ones(2000), dense @ np.ones(2000), rtol=1e-12)  # SciPy's class, patched
tw.unpatch_scipy()
assert isinstance(fast, sp.csr_array)
from tensorwise.sparse.library import library

assert library(wait=True) is not None, "the kernels were not compiled"
for _ in range(3):
    np.testing.assert_allclose(fast @ np.ones(2000), y, rtol=1e-12)
spmv = tw.compile("C[i] += A[i,k] * B[k]", A=A)
np.testing.assert_allclose(spmv(np.ones(2000)), y, rtol=1e-12)
files = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "tensorwise"]
outside = [file for file in files if file and not Path(file).is_relative_to(sys.prefix)]
assert len(files) > 50 and not outside, outside
print("used", len(files), "modules")
"""
"""Runs after the README's lines, in their session: are the results right, and does all of it come from the wheel?"""


def expected_files() -> set[str]:
    """Return the files of the package in the checkout, by their path in the wheel."""
    folders = (("tensorwise", ROOT), ("tensorwise_models", ROOT / "models"))
    return {
        path.relative_to(root).as_posix()
        for name, root in folders
        for path in (root / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".so")
    }


def contents(wheel: Path) -> dict[str, str]:
    """Return the digest of each file of a wheel."""
    with zipfile.ZipFile(wheel) as file:
        return {name: hashlib.sha256(file.read(name)).hexdigest() for name in file.namelist()}


def check_files(dist: Path) -> None:
    """Check what the wheels hold, their size, and that the source distributions give the wheels of the tree."""
    wheels = sorted(dist.glob("*.whl"))
    assert len(wheels) == 2, f"{dist} holds {[one.name for one in wheels]}; expected two wheels: make dist"
    found = set[str]()
    for wheel in wheels:
        held = contents(wheel)
        assert held == contents(dist / "from-tree" / wheel.name), (
            f"{wheel.name}: the sdist gives another wheel"
        )
        found |= {name for name in held if ".dist-info/" not in name}
    assert found == expected_files(), sorted(found ^ expected_files())
    size = next(dist.glob("tensorwise-*.whl")).stat().st_size
    assert size <= MAX_WHEEL_BYTES, f"the wheel has {size} bytes; at most {MAX_WHEEL_BYTES} are allowed"
    print(f"the wheel of tensorwise has {size:,} bytes")


def installed(folder: Path) -> set[Path]:
    """Return all files of an environment that belong to Tensorwise."""
    return {path for path in folder.rglob("*tensorwise*") if path.is_file() or not any(path.iterdir())} | {
        path for parent in folder.rglob("*tensorwise*") if parent.is_dir() for path in parent.rglob("*")
    }


def read_example() -> str:
    """Return the first Python example of README.md."""
    found = EXAMPLE.search((ROOT / "README.md").read_text())
    assert found, "README.md has no Python example"
    return found[1]


def environment(home: Path) -> Mapping[str, str]:
    """Return environment variables without those that lead to the checkout or its caches."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "TENSORWISE_", "VIRTUAL_ENV", "XDG_"))
    }
    return {**kept, "HOME": str(home), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def use(dist: Path, scratch: Path) -> None:
    """Install the wheels into an empty environment, use them, uninstall them."""
    place, work, home = (scratch / name for name in ("venv", "empty", "home"))
    for folder in (work, home):
        folder.mkdir()
    venv.create(place, with_pip=True)
    programs = place / ("Scripts" if sys.platform == "win32" else "bin")
    about = environment(home)

    def run(*command: object) -> str:
        done = subprocess.run(
            list(map(str, command)), cwd=work, env=about, capture_output=True, text=True, timeout=900
        )
        if done.returncode:
            sys.exit(f"{command[:4]} failed in {work}:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    before = installed(place)
    python = programs / "python"
    run(python, "-m", "pip", "install", "--quiet", *sorted(dist.glob("*.whl")))
    print(run(python, "-c", read_example() + CHECKS).strip())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(programs / "tensorwise", "--version").startswith(f"tensorwise {version},")
    assert "Usage" in run(programs / "tensorwise", "--help")
    models = "from tensorwise.model.finding import bundled_model; print(bundled_model('latency'), bundled_model('spmm'))"
    found = run(python, "-c", models).split()
    assert all(Path(one).is_relative_to(place.resolve()) for one in found), found
    run(python, "-m", "pip", "check")
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "tensorwise", "tensorwise-models")
    left = installed(place) - before
    assert not left, f"left behind after pip uninstall: {sorted(map(str, left))[:5]}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Try the built wheels in an empty environment.")
    parser.add_argument("dist", type=Path, nargs="?", default=ROOT / "dist")
    dist = parser.parse_args(arguments).dist.resolve()
    check_files(dist)
    with tempfile.TemporaryDirectory(prefix="tensorwise-try-") as scratch:
        use(dist, Path(scratch))
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
