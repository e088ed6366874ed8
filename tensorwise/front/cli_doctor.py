"""The command that checks an installation: what accelerates products here, and what to do where nothing does."""

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Final, Literal, final

import typer

from tensorwise.errors import TensorwiseError
from tensorwise.front.terminal import FAILED, command, emit
from tensorwise.version import __version__

EXTRAS: Final = {
    "mkl": "mkl", "torch": "torch", "jax": "jax", "pyg": "torch_geometric", "parquet": "pyarrow", "binsparse": "h5py",
    "zig": "ziglang", "numba": "numba", "cuda": "cupy-cuda13x", "bfloat16": "ml_dtypes", "select": "scikit-learn",
    "tvm": "apache-tvm", "ray": "ray", "dask": "distributed",
}  # fmt: skip
"""Extra -> the package whose presence shows that the extra is installed."""
VARIABLES: Final = ("OMP_NUM_THREADS", "CC")
"""Variables of others that count here, besides all that begin with ``TENSORWISE_``."""


@final
@dataclass(frozen=True)
class Check:
    """A thing that was checked.

    Attributes:
        name: of the thing.
        status: ``ok``; ``missing``: something does without it; ``failed``: products cannot be accelerated.
        text: what there is, and what to do where it is not ok.
    """

    name: str
    status: Literal["ok", "missing", "failed"]
    text: str


@command
def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Check this installation: a line for each thing, ok or what to do. Exit status 1: products cannot be accelerated."""
    found = [_guarded(name, check) for name, check in CHECKS.items()]
    usable = {check.name: check.status == "ok" for check in found}
    able = usable["kernels"] or (usable["compiler"] and usable["cache"])
    found.append(
        Check("products", "ok", "sparse arrays multiply by kernels of Tensorwise")
        if usable["kernels"]
        else Check("products", "ok", "SciPy computes until the kernels are compiled")
        if able
        else Check("products", "failed", "SciPy computes all of them: see compiler, cache and kernels above")
    )
    for one in found:
        if json:
            emit(asdict(one))
        else:
            print(f"{one.status:<8} {one.name:<12} {one.text}")
    if not able:
        raise typer.Exit(FAILED)


def versions_text() -> str:
    """Return the versions that a report of a problem should name, in one line."""
    packages = ", ".join(f"{name} {version(name.lower())}" for name in ("NumPy", "SciPy"))
    return f"tensorwise {__version__}, {packages}, Python {platform.python_version()}"


def _guarded(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, "ok", check())
    except (TensorwiseError, OSError) as error:
        return Check(name, "missing", " ".join(str(error).split()))


def _compiler() -> str:
    from tensorwise.toolchain.compiler import find_compiler

    found = find_compiler()  # it has compiled a small file
    return f"{found.version} ({' '.join(found.command)}) compiles"


def _processor() -> str:
    from tensorwise.device.host import host
    from tensorwise.toolchain.threads import available_threads

    facts, threads = host(), available_threads()
    return f"{facts.cpu}, {facts.logical_cores} logical cores; {threads} thread{'s'[: threads > 1]} allowed"


def _kernels() -> str:
    from tensorwise.sparse.kernels import FAMILIES
    from tensorwise.sparse.library import preload
    from tensorwise.sparse.prebuilt import prebuilt_kernels
    from tensorwise.sparse.prepare import is_prepared
    from tensorwise.sparse.table import table_path

    missing = [name for name, family in FAMILIES.items() if not is_prepared(family)]
    if missing:
        found, refused = prebuilt_kernels()
        why = "; ".join(
            (
                f"{' and '.join(missing)} kernels are not compiled: run python -m tensorwise.sparse.prepare",
                *refused,
            )
        )
        if found is None or not set(missing) <= set(found.tables):
            raise OSError(why)
        return f"prebuilt kernels of level {found.level} are used: {found.folder}; {why}"
    if preload() is None:
        raise OSError(
            "the kernels cannot be loaded: run tensorwise cache clear and python -m tensorwise.sparse.prepare"
        )
    return f"compiled and loaded: {table_path(next(iter(FAMILIES))).parent}"


def _cache() -> str:
    from tensorwise.toolchain.cache import default_cache
    from tensorwise.toolchain.places import distrusted

    info = default_cache().info()
    _check_writable(info.root, "TENSORWISE_CACHE_DIR")
    if info.root.exists() and (why := distrusted(info.root)):
        raise OSError(f"{info.root}: {why}; name another folder with TENSORWISE_CACHE_DIR")
    return f"{info.root}: {info.entries} kernels, {info.held_bytes / 1e6:.1f} MB of at most {info.cap_bytes / 1e6:.0f} MB"


def _store() -> str:
    from tensorwise.store.store import default_path

    path = default_path()
    _check_writable(path.parent, "TENSORWISE_STORE")
    if not path.exists():
        return f"{path}: nothing is remembered so far"
    if not os.access(path, os.W_OK):
        raise OSError(f"{path} cannot be written to; name another file with TENSORWISE_STORE")
    return f"{path}: {path.stat().st_size / 1e6:.1f} MB"


def _check_writable(folder: Path, variable: str) -> None:
    """Raise OSError unless a folder can be written to, or be made where it is missing."""
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise OSError(f"{there} cannot be written to; name another place with {variable}")


def _models() -> str:
    from tensorwise.model.finding import NOT_INSTALLED, bundled_folders, calibrated, find_models

    if not bundled_folders():
        raise OSError(NOT_INSTALLED)
    names = sorted({path.name for path in find_models()})
    own = f"; calibrated on this machine below {calibrated()}" if calibrated().is_dir() else ""
    return f"{', '.join(names) or 'none'}{own}"


def _extras() -> str:
    found = []
    for extra, package in EXTRAS.items():
        try:
            found.append(f"{extra} ({package} {version(package)})")
        except PackageNotFoundError:
            continue
    return ", ".join(found) or "none installed; pip install 'tensorwise[EXTRA]' adds one"


def _environment() -> str:
    from tensorwise.sparse.limits import autotune

    names = sorted(name for name in os.environ if name.startswith("TENSORWISE_") or name in VARIABLES)
    given = " ".join(f"{name}={os.environ[name]}" for name in names)
    return f"autotune {autotune()}; {given or 'no variable is set'}"


def _versions() -> str:
    return f"{versions_text()} ({sys.executable})"


CHECKS: Final[dict[str, Callable[[], str]]] = {
    "versions": _versions,
    "compiler": _compiler,
    "processor": _processor,
    "kernels": _kernels,
    "cache": _cache,
    "store": _store,
    "models": _models,
    "extras": _extras,
    "environment": _environment,
}
"""Name -> what says in words what there is; an error says what to do."""
