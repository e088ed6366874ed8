"""The library of in-place kernels: found by a table that `prepare` wrote, loaded when a product first needs it.

Where there is no table yet, or no compiler, the kernels are those that were compiled elsewhere (`prebuilt`), or products are
SciPy's. A table is looked for once more after it was missing, when a child process of lowest priority has made it. A process
that has a library keeps it.
"""

import contextlib
import ctypes
import itertools
import json
import logging
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, final

import numpy as np

from tensorwise.sparse.children import start_child
from tensorwise.sparse.kernels import (
    COMPRESSED_KERNELS,
    ELEMENTS,
    FAMILIES,
    INDICES,
    SHAPES,
    KernelFamily,
    KernelShape,
)
from tensorwise.sparse.prebuilt import prebuilt_kernels
from tensorwise.sparse.table import BACKGROUND, IN_PLACE, table_path
from tensorwise.system import at_fork
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.forks import LOADING, lock
from tensorwise.toolchain.places import distrusted
from tensorwise.toolchain.runtime import DRIVER
from tensorwise.toolchain.threads import unbound

_log = logging.getLogger(__name__)

HEADER: Final = object.__basicsize__
"""Bytes of an array object before its data pointer, in NumPy's published layout."""
_LOOK_AGAIN_S: Final = 1.0
"""Seconds between two looks for a table that a child process is making."""


class _Kernel(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def address(self) -> int: ...


class KernelSource(Protocol):
    """Where the kernels of a table come from: the kernel cache, or files that were compiled elsewhere."""

    def find(self, key: str) -> _Kernel | None:
        """Return the shared object and the address of a kernel, or None where it is not there."""


@final
class Library:
    """The kernels of a table, each loaded when it is first needed.

    Raises KeyError, AttributeError or OSError where the source does not hold what the table names.

    Args:
        table: of a family.
        source: of the kernels.
        level: of processors that they were compiled for; empty: they were compiled for this machine.
    """

    def __init__(self, table: dict[str, Any], source: KernelSource, level: str = "") -> None:
        self._table, self._source, self.level = table["kernels"], source, level
        self._layouts: dict[tuple[KernelShape, str, str], KernelLayout] = {}
        self._opened: list[ctypes.CDLL] = []
        for routines, name in ((DRIVER, "driver"), (IN_PLACE, "in_place")):
            found = source.find(str(table[name]))
            if found is None:
                raise KeyError(name)
            with unbound():  # as the driver is loaded it looks where our threads may run
                routines.load_from(found.path)
            self.file_name = found.path.stem  # of the last: in_place.c
        self.multiply = IN_PLACE.function("multiply")
        self.bounds = IN_PLACE.function("bounds")
        self.limit = IN_PLACE.function("limit")
        self.driver = DRIVER.address("parallel")
        if not _layout_is_known(IN_PLACE.function("data")):
            raise KeyError("NumPy's arrays have another layout")

    def layout(self, shape: KernelShape, element: str, index: str) -> "KernelLayout":
        """Return a kernel and how its arguments are laid out. Raises KeyError where the cache lost it."""
        key = shape, element, index
        known = self._layouts.get(key)
        if known is None:
            row = self._table[f"{element}-{index}-{shape.name}"]
            known = self._layouts[key] = KernelLayout(self._address(row["key"]), row["buffers"], row["sizes"])
        return known

    def _address(self, key: str) -> int:
        """Where a kernel lies. Many share a file, and looking at a file takes longer than asking those that are open."""
        for opened in self._opened:
            with contextlib.suppress(AttributeError):
                return ctypes.cast(opened[f"tw_{key}"], ctypes.c_void_p).value or 0
        found = self._source.find(key)
        if found is None:
            raise KeyError(key)
        with LOADING:
            self._opened.append(ctypes.CDLL(str(found.path)))
        return found.address


@final
class KernelLayout:
    """A kernel's address, the names of its sizes in their order, and where among the buffers each of its arrays stands."""

    def __init__(self, address: int, buffers: Sequence[str], sizes: Sequence[str]) -> None:
        self.address, self.sizes = address, tuple(sizes)
        self.places = {name: 2 + place for place, name in enumerate(buffers)}


def _layout_is_known(data: Callable[..., int]) -> bool:
    """Whether an array object keeps the address of its data where NumPy publishes it."""
    array = np.arange(3.0)
    return bool(data(id(array), HEADER) == array.ctypes.data)


@final
class _Finder:
    """Looks for the library of a family of kernels, and has it made where it is missing."""

    def __init__(self, family: KernelFamily) -> None:
        self._lock, self._family = lock(), family
        self.found: Library | None = None
        self._next_look_s = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self._looked_elsewhere = self._given_up = False

    def find(self, wait: bool) -> Library | None:
        """Return the library; None: it is being made (``wait``: never, it is made now), or cannot be."""
        if self.found is not None or self._given_up:
            return self.found
        if not wait and time.monotonic() < self._next_look_s:
            return None
        with self._lock:
            self.look()
            if self.found is None and not self._given_up:
                if wait:
                    self._make()
                if not self._looked_elsewhere:
                    self._looked_elsewhere = True
                    self._look_elsewhere()
                if not wait:
                    self._begin()
            self._next_look_s = time.monotonic() + _LOOK_AGAIN_S
            return self.found

    def look(self) -> None:
        """Load the library where there is a table of it."""
        if self.found is None:
            try:
                self.found = _load(table_path(self._family.name))
            except (OSError, KeyError, ValueError, TypeError):
                self.found = None

    def _look_elsewhere(self) -> None:
        """Load kernels that were compiled for a level of processors, where there are some and none of this machine."""
        elsewhere = None if self.found is not None else prebuilt_kernels()[0]
        if elsewhere is not None and self._family.name in elsewhere.tables:
            try:
                self.found = Library(elsewhere.tables[self._family.name], elsewhere, elsewhere.level)
            except (OSError, KeyError, AttributeError) as error:  # of another C library, as of Alpine Linux
                _log.warning("prebuilt kernels of level %s cannot be loaded: %s", elsewhere.level, error)

    def _make(self) -> None:
        from tensorwise.errors import TensorwiseError
        from tensorwise.sparse.prepare import prepare

        try:
            prepare(self._family)
        except (TensorwiseError, OSError):
            self._given_up = True
        else:
            self.look()

    def _begin(self) -> None:
        """Start a child that makes the library, once a process; if it ends without one, nobody tries again.

        As long as another child works none is started, and a later call looks again.
        """
        if self._child is not None:
            self._given_up = self._child.poll() is not None
        elif os.environ.get("TENSORWISE_AUTOTUNE", "").strip() == "off":
            self._given_up = True  # nothing is to be done in the background
        else:
            try:
                self._child = start_child("tensorwise.sparse.prepare", BACKGROUND, self._family.name)
            except OSError:
                self._given_up = True
            if self._child is not None:
                at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._child = None  # the parent's; a forked process has its own made, if it must


_FINDERS: Final = {family: _Finder(family) for family in FAMILIES.values()}


def library(wait: bool = False, family: KernelFamily = COMPRESSED_KERNELS) -> Library | None:
    """Return the library of this machine, or None where SciPy has to compute.

    Args:
        wait: make it now, in some ten seconds, where it is missing; else a child process makes it meanwhile.
        family: whose kernels are wanted.
    """
    return _FINDERS[family].find(wait)


def level_in_use(family: KernelFamily) -> str:
    """Return the level of the kernels of a family that this process uses; empty: this machine's own, or none."""
    found = _FINDERS[family].found
    return "" if found is None else found.level


def loaded_libraries() -> list[Library]:
    """Return the libraries that are there already."""
    return [finder.found for finder in _FINDERS.values() if finder.found is not None]


def preload() -> Library | None:
    """Load the library and its kernels for 32-bit indices where it was made before; nothing is made and nothing fails.

    Prebuilt kernels wait for a first product: `reproducible` prefers the machine's own.
    """
    finder = _FINDERS[COMPRESSED_KERNELS]
    finder.look()
    found = finder.found
    if found is not None:
        with contextlib.suppress(KeyError):
            for element, shape in itertools.product(ELEMENTS, SHAPES):
                found.layout(shape, element, INDICES[0])
    return found


def _load(path: Path) -> Library:
    if distrusted(path):
        raise OSError(f"{path} may be another user's work")
    return Library(json.loads(path.read_text()), default_cache())
