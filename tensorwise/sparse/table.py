"""Where the table of compiled in-place kernels lies, and the C that calls them."""

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Final

from tensorwise.toolchain.places import cache_dir
from tensorwise.toolchain.processor import describe_processor, vector_bytes
from tensorwise.toolchain.routines import POINTER, SIZE, Routines
from tensorwise.version import __version__

IN_PLACE: Final = Routines(
    "multiply where arrays lie",
    "tw_",
    {
        "multiply": (SIZE, (SIZE, SIZE, SIZE)),
        "data": (SIZE, (SIZE, SIZE)),
        "limit": (None, (SIZE, SIZE)),
        "bounds": (None, (POINTER, SIZE, SIZE, SIZE, POINTER)),
        "slice_rows": (SIZE, (POINTER, SIZE, SIZE, SIZE, POINTER, POINTER)),
        "slice_columns": (
            None,
            (SIZE, SIZE, POINTER, POINTER, SIZE, SIZE, SIZE, POINTER, POINTER, SIZE, POINTER),
        ),
        "slice_values": (
            None,
            (SIZE, SIZE, POINTER, SIZE, SIZE, SIZE, POINTER, POINTER, POINTER, POINTER, SIZE, POINTER),
        ),
        "slice_numbers": (
            None,
            (SIZE, SIZE, POINTER, SIZE, SIZE, SIZE, POINTER, POINTER, POINTER, POINTER),
        ),
        "update": (None, (SIZE, SIZE, SIZE, POINTER, SIZE, POINTER, SIZE, POINTER)),
    },
    Path(__file__).with_name("in_place.c"),
    Path(__file__).with_name("slices.c"),
)
"""``multiply`` runs a way, ``limit`` says which ways are wanted, ``bounds`` cuts lines into parts, and ``data`` reads where
an array object keeps its elements. ``update`` writes new values, and the others pack; see `tensorwise.sparse.slices`."""
BACKGROUND: Final = "--background"
"""Argument of the child that makes the library."""
_MADE_FROM: Final = ("lower", "program", "runtime", "tensor", "toolchain")
"""Folders of the package whose code the kernels follow from."""


def table_path(family: str) -> Path:
    """Return where the table of a family of compiled kernels lies for this code, processor and environment."""
    return cache_dir() / "products" / f"{_digest()}-{family}.json"


def _sources() -> list[tuple[str, Path]]:
    """Name below the package, and path, of each file that the kernels follow from."""
    root = Path(__file__).resolve().parent.parent
    sources = [path for folder in _MADE_FROM for path in (root / folder).rglob("*.[pch]*")]
    sources += [Path(__file__).with_name(name) for name in ("kernels.py", "in_place.c", "slices.c")]
    return [
        (str(path.relative_to(root)), path) for path in sorted(sources) if path.suffix in (".py", ".c", ".h")
    ]


@cache
def sources_digest() -> str:
    """Return the digest of the contents of the files that the kernels follow from: installers change files' times."""
    found = hashlib.sha256()
    for name, path in _sources():
        text = path.read_bytes()
        found.update(f"{name} {len(text)}\n".encode() + text)
    return found.hexdigest()


@cache
def _digest() -> str:
    """Digest of what the kernels follow from: version and files of the package, by size and time, and the processor.

    The version, because some installers give every file of every release the same time.
    """
    found = hashlib.sha256(__version__.encode())
    for name, path in _sources():
        status = path.stat()
        found.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    given = [os.environ.get(name, "") for name in ("TENSORWISE_CC", "CC")]
    found.update(
        repr((describe_processor()[0], sorted(describe_processor()[1]), vector_bytes(), given)).encode()
    )
    return found.hexdigest()[:32]
