"""C files that come with the package: each is a library of its own, compiled once a machine, when it is first needed.

The parallel driver, the packing primitives and the counting in patterns take seconds to compile, and few need all of them.
"""

import ctypes
import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Final, final

from tensorwise.errors import CompilerError
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.compiler import find_compiler
from tensorwise.toolchain.deadline import carried, within
from tensorwise.toolchain.forks import LOADING

_log = logging.getLogger(__name__)
POINTER, SIZE, INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
"""Types of what routines take and return: addresses, numbers of things, and C's own int."""
Signature = tuple[type | None, tuple[type, ...]]
"""Of a routine: what it returns, None for nothing, and what it takes."""
HEADERS: Final = tuple(sorted(Path(__file__).parent.glob("*.h")))


@final
class Routines:
    """The functions of C files, which may be called in any thread.

    Args:
        purpose: what they do, in an infinitive, for messages.
        prefix: what their names begin with in C.
        signatures: by name, without the prefix.
        sources: the files.
    """

    def __init__(
        self, purpose: str, prefix: str, signatures: Mapping[str, Signature], *sources: Path
    ) -> None:
        self._purpose, self._prefix, self._signatures = purpose, prefix, signatures
        self.sources = sources
        self._found: dict[str, Callable[..., int]] = {}

    @cached_property
    def works(self) -> bool:
        """Whether they can be called here. Where no compiler works the log says so, once: NumPy has to do it then."""
        try:
            self.load()
        except CompilerError as error:
            _log.info("it takes NumPy to %s, many times slower: %s", self._purpose, error)
            return False
        return True

    @property
    def key(self) -> str:
        """Key of their library in the cache; raises CompilerError when this machine has no compiler."""
        return default_cache().library_key(self.sources, HEADERS)

    def load(self) -> None:
        """Have them ready: compiled once a machine, loaded once a process.

        Raises:
            CompilerError: no compiler works here.
        """
        if self._found:
            return
        self.load_from(default_cache().library(self.sources, HEADERS))

    def load_from(self, path: Path) -> None:
        """Have them ready from their library, which was compiled before."""
        with LOADING:
            library = ctypes.CDLL(str(path))
        found: dict[str, Callable[..., int]] = {}
        for name, (result, arguments) in self._signatures.items():
            function = library[f"{self._prefix}{name}"]
            function.restype, function.argtypes = result, arguments
            found[name] = function
        self._found = found

    def __call__(self, name: str, *arguments: object) -> int:
        """Call a routine; arrays are handed over as their addresses.

        Raises:
            MemoryError: it returned a negative number, by which ours say that there is no memory.
            CompilerError: no compiler works here.
        """
        self.load()
        result = self._found[name](*arguments)
        if result is not None and result < 0:
            raise MemoryError(f"no memory to {self._purpose} ({name})")
        return result

    def function(self, name: str) -> Callable[..., int]:
        """Return a routine that is called often. Raises CompilerError as ``load``."""
        self.load()
        return self._found[name]

    def address(self, name: str) -> int:
        """Return where a routine lies, for C code that calls it. Raises CompilerError as ``load``."""
        self.load()
        return ctypes.cast(self._found[name], ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def load_all(*libraries: Routines) -> None:
    """Load several C files of the package; those that are not compiled yet are compiled in parallel.

    Raises:
        CompilerError: no compiler works here.
    """
    if not libraries:
        return
    find_compiler()  # once, and not by each thread
    # over when interrupted
    with ThreadPoolExecutor(len(libraries), "tensorwise-load") as pool, within(math.inf):
        for loaded in [pool.submit(carried(library.load)) for library in libraries]:
            loaded.result()
