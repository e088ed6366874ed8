"""Kernels that were compiled elsewhere for a level of processors: which level this processor can run, and its files.

A level's folder holds shared objects and ``kernels.json``, which `tensorwise.sparse.prebuilding` writes. The package
``tensorwise-kernels`` installs such folders. Decision 0129.
"""

import ctypes
import hashlib
import importlib.util
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, final

from tensorwise.errors import TensorwiseError
from tensorwise.reading import read_json, user_path
from tensorwise.sparse.table import sources_digest
from tensorwise.toolchain.forks import LOADING
from tensorwise.toolchain.processor import describe_processor, vector_bytes

_log = logging.getLogger(__name__)

VARIABLE: Final = "TENSORWISE_KERNELS"
"""Environment variable: a folder of levels' folders in the place of the package's; ``off``: there is none."""
PACKAGE: Final = "tensorwise_kernels"
"""Import name of the package that installs levels' folders."""
MANIFEST: Final = "kernels.json"
_V2: Final = ("cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3")
_V3: Final = (*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")
_V4: Final = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")


@final
@dataclass(frozen=True)
class ProcessorLevel:
    """A class of processors that run the same code.

    Attributes:
        name: as the psABI of x86-64 names it; of ARM that of the architecture.
        features: of the processor that the code uses, as ``/proc/cpuinfo`` names them.
        register_bytes: bytes of a vector register.
        flags: of gcc and clang.
        zig_flags: of ``zig cc``, which links against this old glibc.
    """

    name: str
    features: tuple[str, ...]
    register_bytes: int
    flags: tuple[str, ...]
    zig_flags: tuple[str, ...]


def _x86(version: int, features: tuple[str, ...], register_bytes: int) -> ProcessorLevel:
    zig = "-target", "x86_64-linux-gnu.2.17", f"-mcpu=x86_64_v{version}"
    return ProcessorLevel(f"x86-64-v{version}", features, register_bytes, (f"-march=x86-64-v{version}",), zig)


PROCESSOR_LEVELS: Final = {
    level.name: level
    for level in (
        _x86(4, _V4, 64),
        _x86(3, _V3, 32),
        _x86(2, _V2, 16),
        ProcessorLevel(
            name="aarch64",
            features=("asimd", "fp"),
            register_bytes=16,
            flags=("-march=armv8-a",),
            zig_flags=("-target", "aarch64-linux-gnu.2.17", "-mcpu=generic"),
        ),
    )
}
"""Name -> level; of one architecture the highest stands first."""


class KernelFile(NamedTuple):
    """A shared object, and the address of a kernel in it; 0 where a file is asked for."""

    path: Path
    address: int


@final
@dataclass(frozen=True)
class PrebuiltKernels:
    """The kernels of a level. It finds files by key, as the kernel cache does.

    Attributes:
        level: name of the level.
        folder: holds the files.
        tables: name of a family -> its table, as `prepare` writes one.
        files: key of a kernel, of the driver or of ``in_place.c`` -> file name.
    """

    level: str
    folder: Path
    tables: Mapping[str, dict[str, Any]]
    files: Mapping[str, str]

    def find(self, key: str) -> KernelFile | None:
        """Return the file of a key and the address of its kernel, or None. Raises OSError where it cannot be loaded."""
        name = self.files.get(key)
        if name is None:
            return None
        path = self.folder / name
        if key == name:  # no kernel: Routines load it
            return KernelFile(path, 0)
        with LOADING:
            library = ctypes.CDLL(str(path))
        return KernelFile(path, ctypes.cast(library[f"tw_{key}"], ctypes.c_void_p).value or 0)


@cache
def prebuilt_kernels() -> tuple[PrebuiltKernels | None, tuple[str, ...]]:
    """Return the kernels of the highest level that this processor can run, and why others are not used.

    Used are kernels of the same sources, whose files have the SHA-256 that the manifest says. The answer is kept for the
    process.
    """
    refused: list[str] = []
    folder = _folder()
    for level in PROCESSOR_LEVELS.values():
        if folder is None or not (folder / level.name / MANIFEST).is_file():
            continue
        try:
            return read_level(folder / level.name, level), tuple(refused)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            refused.append(f"prebuilt kernels of level {level.name} are not used: {error}")
            _log.log(logging.WARNING if isinstance(error, _DamageError) else logging.INFO, "%s", refused[-1])
    return None, tuple(refused)


class _DamageError(ValueError):
    """A file is not what the manifest says."""


def _folder() -> Path | None:
    """Where the levels' folders lie; None: nowhere."""
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        try:
            return None if given == "off" else user_path(given).absolute()
        except TensorwiseError as error:
            _log.warning("%s: %s", VARIABLE, error)
            return None
    found = importlib.util.find_spec(PACKAGE)  # the package is not imported
    return Path(found.origin).parent if found and found.origin else None


def read_level(folder: Path, level: ProcessorLevel) -> PrebuiltKernels:
    """Return the kernels of a folder.

    Raises:
        ValueError: the manifest cannot be read, or this process may not use them; the message says why.
        OSError: another file cannot be read.
        KeyError: the manifest is incomplete.
    """
    made = read_json(folder / MANIFEST, "is no list of prebuilt kernels")
    # The manifest lists what the code uses; an emulator shows the features of its host.
    lacking = sorted({*level.features, *made["features"]} - describe_processor()[1])
    if lacking:
        raise ValueError(f"this processor has no {', '.join(lacking)}")
    if level.register_bytes > vector_bytes():
        raise ValueError(
            f"vectors of {vector_bytes()} bytes are wanted, and its are {level.register_bytes} wide"
        )
    if made["sources"] != sources_digest():
        raise ValueError(
            f"they were compiled from other sources; install the release of {PACKAGE.replace('_', '-')} of this version"
        )
    for name, digest in made["files"].items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise _DamageError(f"{folder / name} is damaged, its SHA-256 differs; install the package again")
    files = {name: name for name in made["files"]}
    for table in made["tables"].values():
        files |= {row["key"]: row["file"] for row in table["kernels"].values()}
    return PrebuiltKernels(level.name, folder, made["tables"], files)
