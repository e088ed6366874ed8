"""Compiled kernels by content: what was compiled once on this machine is loaded, not compiled again."""

import _ctypes
import atexit
import contextlib
import ctypes
import logging
import math
import os
import re
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, overload

from tensorwise.errors import CompilerError
from tensorwise.ids import content_id
from tensorwise.toolchain.compiler import HUNG_S, PROOF_S, Compiler, CompilerTimeoutError, find_compiler
from tensorwise.toolchain.deadline import carried, is_over, left_s, within
from tensorwise.toolchain.forks import LOADING
from tensorwise.toolchain.places import cache_dir, number_from
from tensorwise.toolchain.scratch import scratch_prefix
from tensorwise.toolchain.shelf import Shelf
from tensorwise.toolchain.threads import available_threads

_log = logging.getLogger(__name__)

PRELUDE = (Path(__file__).parent / "prelude.h").read_text()
_CAP_BYTES = 2 << 30
_BUNDLE = 32  # kernels a file: 21 ms a kernel, alone 53
_SMALLEST_SHARE = 4  # fewer kernels a file are not worth another compiler process
_LOCK_TIMEOUT_S = 60.0
_COMPILE_TIMEOUT_S = 60
"""Time limit of a compiler for one file, in seconds, unless ``TENSORWISE_COMPILE_TIMEOUT_S`` sets another."""
_ALL_FILES = 5
"""Time limit for all files of one request, as a multiple of that for one file, where the budget has more."""

_Recipe = Callable[[Sequence[str], Path], list[Path]]
"""Writes what must be compiled for some keys into a directory and returns the C files."""


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel that can be called.

    Attributes:
        key: content id of the text, the prelude, the compiler with its flags and the processor.
        path: the shared object it came from.
        address: of the function ``int f(void *const *buffers, const int64_t *sizes)``.
        function: the same for Python; takes the addresses of both arrays, returns 0 or an error code.
        compile_s: seconds spent on compiling it (its share of a bundle); 0 when it was there.
    """

    key: str
    path: Path
    address: int
    function: Callable[[Any, Any], int]
    compile_s: float


@dataclass(frozen=True)
class CacheInfo:
    """What the cache holds: ``entries`` kernels in ``held_bytes`` of at most ``cap_bytes`` under ``root``."""

    root: Path
    entries: int
    held_bytes: int
    cap_bytes: int


class KernelCache:
    """Kernels by content, on disk and in this process; safe under threads, processes, forks and kills.

    Args:
        root: where entries lie; made with mode 0700. If it cannot be used, kernels are compiled into a
            temporary directory of this process, with one warning.
        top: from where on folders must be this user's alone; default: ``root``.
        compiler: ``find_compiler()`` when first needed, unless given.
        cap_bytes: above it, the kernels not used for longest are removed.
    """

    def __init__(
        self,
        root: Path,
        compiler: Compiler | None = None,
        cap_bytes: int = _CAP_BYTES,
        top: Path | None = None,
    ) -> None:
        self.failures: dict[str, CompilerError] = {}
        """Key to error of what failed to compile (time limits: CompilerTimeoutError); not tried again in this process."""
        self._shelf = Shelf(root, top)
        self._private: dict[int, Shelf] = {}  # by process: a forked child leaves its parent's alone
        self._compiler = compiler
        self._cap_bytes = cap_bytes
        self._untrimmed_bytes = cap_bytes  # so that the first publication looks
        self._texts: dict[str, LoadedKernel] = {}
        self._loaded: dict[str, LoadedKernel] = {}
        self._passing: set[str] = set()  # failures that may not come back, as of a full disk
        self._warned = False
        self._mute = -math.inf, CompilerTimeoutError()
        """When the compiler did not answer, and what is said of it."""

    @property
    def compiler(self) -> Compiler:
        """The compiler in use; raises CompilerError when this machine has none."""
        if self._compiler is None:
            self._compiler = find_compiler()
        return self._compiler

    def key(self, text: str) -> str:
        """Return the key of a kernel's text; its function is called ``tw_<key>``."""
        return content_id(("kernel", text, PRELUDE, self.compiler.id))

    @overload
    def get(self, texts: Sequence[str], on_error: Literal["raise"] = "raise") -> list[LoadedKernel]: ...
    @overload
    def get(self, texts: Sequence[str], on_error: Literal["none"]) -> list[LoadedKernel | None]: ...
    def get(self, texts: Sequence[str], on_error: str = "raise") -> Sequence[LoadedKernel | None]:
        """Return the kernels of ``texts``, in order; what is missing is compiled, many to a file.

        A text holds ``TW_SYMBOL`` where its function's name, or a name made of it, must stand; names of
        vector types must stand in it as they are (``tw_f32x8``, not pasted together).

        Args:
            texts: C texts, without the prelude.
            on_error: ``raise``: CompilerError for the first that fails, after all others were compiled;
                ``none``: None in the place of each that fails, and the message in ``failures``.

        Raises:
            CompilerError: see ``on_error``; or no compiler works here.
        """
        with contextlib.suppress(KeyError):
            return [self._texts[text] for text in texts]
        keys = {text: self.key(text) for text in texts if text not in self._texts}
        by_key = {key: text for text, key in keys.items()}

        def write(names: Sequence[str], directory: Path) -> list[Path]:
            return [write_bundle({name: by_key[name] for name in names}, directory)]

        with within(_ALL_FILES * _compile_limit_s()):
            self._obtain(list(by_key), write)
        result: list[LoadedKernel | None] = []
        for text in texts:
            kernel = self._texts.get(text) or self._loaded.get(keys[text])
            if kernel is None and on_error == "raise":
                raise _afresh(self.failures[keys[text]])
            result.append(kernel)
        for text, key in keys.items():
            if key in self._loaded:
                self._texts[text] = replace(self._loaded[key], compile_s=0.0)
        return result

    def holds(self, texts: Sequence[str]) -> bool:
        """Whether ``get`` would return the kernels of ``texts`` without compiling."""
        try:
            return all(text in self._texts or self._shelf.find(self.key(text)) is not None for text in texts)
        except CompilerError:
            return False

    def library(self, sources: Sequence[Path], headers: Iterable[Path] = ()) -> Path:
        """Return the shared object of C files that do not change with the program, compiled once a machine.

        Raises:
            CompilerError: they do not compile, or no compiler works here.
        """
        key = self.library_key(sources, headers)

        def write(names: Sequence[str], directory: Path) -> list[Path]:
            marker = directory / "marker.c"  # so that a library can be told from any other file
            marker.write_text(f"int tw_{key}(void) {{ return 0; }}\n")
            return [*sources, marker]

        with within(_ALL_FILES * _compile_limit_s()):
            self._obtain([key], write)
        if key not in self._loaded:
            raise _afresh(self.failures[key])
        return self._loaded[key].path

    def library_key(self, sources: Sequence[Path], headers: Iterable[Path] = ()) -> str:
        """Return the key of the shared object of C files; raises CompilerError when this machine has no compiler."""
        return content_id(
            ("library", self.compiler.id, *(path.read_bytes() for path in (*sources, *headers)))
        )

    def find(self, key: str) -> LoadedKernel | None:
        """Return what was compiled before under ``key``, or None; no compiler is looked for."""
        return self._loaded[key] if key in self._loaded or self._load(key) else None

    def _obtain(self, keys: Sequence[str], recipe: _Recipe) -> None:
        """Have each key in ``_loaded`` or in ``failures``."""
        for key in self._passing.intersection(keys):
            self.failures.pop(key, None)
        missing = self._missing(keys)
        batch = _BUNDLE * available_threads()  # locks are given back in between: others wait for them
        for first in range(0, len(missing), batch):
            self._obtain_locked(missing[first : first + batch], recipe)

    def _obtain_locked(self, keys: Sequence[str], recipe: _Recipe) -> None:
        try:
            limit_s = left_s(_LOCK_TIMEOUT_S)
            with self._shelf.locked(keys, limit_s) as held:
                if not held and limit_s == _LOCK_TIMEOUT_S:
                    self._warn(f"its locks were not free within {_LOCK_TIMEOUT_S:g} s")
                self._build(self._missing(keys), recipe, held)  # others may have built some meanwhile
                return
        except OSError as error:
            self._warn(str(error))
        self._build(self._missing(keys), recipe, shared=False)

    def _missing(self, keys: Sequence[str]) -> list[str]:
        """Load what is there; return what is not and has not failed before."""
        return [
            key
            for key in keys
            if key not in self._loaded and key not in self.failures and not self._load(key)
        ]

    def _load(self, key: str, compile_s: float = 0.0) -> bool:
        for shelf in (self._shelf, *self._private.values()):
            path = shelf.find(key)
            if path is None:
                continue
            library = None
            try:
                with LOADING:
                    library = ctypes.CDLL(str(path))
                function = library[f"tw_{key}"]
            except (OSError, AttributeError) as error:
                shelf.discard(path, str(error))
                if library is not None:  # while it is open, its path would stand for it
                    _ctypes.dlclose(library._handle)
                continue
            function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int
            address = ctypes.cast(function, ctypes.c_void_p).value or 0
            self._loaded[key] = LoadedKernel(key, path, address, function, compile_s)
            return True
        return False

    def _build(self, keys: list[str], recipe: _Recipe, shared: bool) -> None:
        cores = available_threads()
        count = max(-(-len(keys) // _BUNDLE), min(cores, len(keys) // _SMALLEST_SHARE), 1)
        bundles = [bundle for part in range(count) if (bundle := keys[part::count])]
        stop = threading.Event()
        if len(bundles) == 1:
            self._compile(bundles[0], recipe, shared, stop)
        elif bundles:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(cores, count), "tensorwise-compile") as pool:
                try:
                    for done in [
                        pool.submit(carried(self._compile), bundle, recipe, shared, stop)
                        for bundle in bundles
                    ]:
                        done.result()
                finally:  # on an interrupt nobody waits for the other compilers
                    stop.set()
        if self._untrimmed_bytes > self._cap_bytes // 50:
            self._untrimmed_bytes = 0
            self._shelf.trim(self._cap_bytes)

    def _compile(self, keys: Sequence[str], recipe: _Recipe, shared: bool, stop: threading.Event) -> None:
        """Compile one file of ``keys``; of a file that fails find the culprits, so that only they fail."""
        if stop.is_set():
            return
        if time.monotonic() - self._mute[0] < HUNG_S:
            self._fail(keys, self._mute[1])
            return
        start_s = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory(
                prefix=scratch_prefix("compile"), ignore_cleanup_errors=True
            ) as directory:
                out = Path(directory) / "kernels.so"
                self.compiler.compile(recipe(keys, Path(directory)), out, _compile_limit_s(), stop)
                library = out.read_bytes()
        except OSError as error:
            message = f"cannot write to the temporary directory {tempfile.gettempdir()}: {error}; set TMPDIR"
            self._fail(keys, CompilerError(message))
        except CompilerError as error:
            if isinstance(error, CompilerTimeoutError) and (over := self._why_over(error)):
                self._fail(keys, over)
                return
            if len(keys) == 1:
                if not stop.is_set():
                    self.failures[keys[0]] = _afresh(error)
                return
            # Halves find one culprit soonest; but each half of a file that hangs may hang as well.
            size = 1 if isinstance(error, CompilerTimeoutError) else -(-len(keys) // 2)
            for first in range(0, len(keys), size):
                self._compile(keys[first : first + size], recipe, shared, stop)
        else:
            self._publish_and_load(library, keys, (time.perf_counter() - start_s) / len(keys), shared)

    def _why_over(self, error: CompilerTimeoutError) -> CompilerError | None:
        """Why nothing else need be compiled, if it is so: no time is left, or the compiler hangs whatever it is given."""
        if is_over() or self.compiler.answers():
            return _afresh(error) if is_over() else None
        why = CompilerTimeoutError(
            f"{shlex.join(self.compiler.command)} hangs: it was killed after {_compile_limit_s():g} s, and did not compile "
            f"a small file within {PROOF_S:g} s either; TENSORWISE_CC names another compiler"
        )
        self._mute = time.monotonic(), why
        return why

    def _publish_and_load(self, library: bytes, keys: Sequence[str], compile_s: float, shared: bool) -> None:
        """Publish and load; in a private directory if the shared one cannot be written or loaded from."""
        if shared:
            try:
                self._shelf.publish(library, keys)
                self._untrimmed_bytes += len(library)
            except OSError as error:
                self._warn(str(error))
        left = [key for key in keys if not (shared and self._load(key, compile_s))]
        if left:
            try:
                self._private_shelf().publish(library, left)
            except OSError as error:
                message = f"a compiled kernel cannot be kept in {tempfile.gettempdir()}: {error}; set TMPDIR"
                self._fail(left, CompilerError(message))
            for key in left:
                if key not in self.failures and not self._load(key, compile_s):
                    self.failures[key] = CompilerError(
                        f"the kernel compiled but cannot be loaded from {self._shelf.root} or "
                        f"{tempfile.gettempdir()} (mounted noexec?); set TENSORWISE_CACHE_DIR or TMPDIR"
                    )

    def _private_shelf(self) -> Shelf:
        process = os.getpid()
        if process not in self._private:
            shelf = self._private[process] = Shelf(Path(tempfile.mkdtemp(prefix=scratch_prefix("kernels"))))
            atexit.register(lambda: shelf.remove() if os.getpid() == process else None)
        return self._private[process]

    def _fail(self, keys: Sequence[str], error: CompilerError) -> None:
        self.failures.update(dict.fromkeys(keys, error))
        self._passing.update(keys)

    def _warn(self, reason: str) -> None:
        if not self._warned:
            _log.warning(
                "the kernel cache %s cannot be used: %s; kernels are compiled for this process alone. "
                "TENSORWISE_CACHE_DIR names another place",
                self._shelf.root,
                reason,
            )
        self._warned = True

    def info(self) -> CacheInfo:
        """Return what is held."""
        files = self._shelf.files()
        held_bytes = sum(status.st_size for status, _ in files)
        return CacheInfo(self._shelf.root, sum(len(paths) for _, paths in files), held_bytes, self._cap_bytes)

    def verify(self) -> list[Path]:
        """Check every entry; remove and return those that are damaged or not this user's."""
        return self._shelf.verify()

    def clear(self) -> None:
        """Remove all entries from disk; kernels that are loaded stay usable."""
        self._shelf.clear()


def _compile_limit_s() -> int:
    return number_from("TENSORWISE_COMPILE_TIMEOUT_S", _COMPILE_TIMEOUT_S, "seconds", least=1)


def _afresh(error: CompilerError) -> CompilerError:
    """Return the error without its traceback, which would keep the caller's operands in memory."""
    return type(error)(str(error))


def write_bundle(texts: dict[str, str], directory: Path) -> Path:
    """Write a C file with the prelude and the kernels of ``texts``, by key; return its path."""
    widths = {"F16": 0, "F32": 0, "F64": 0}
    for text in texts.values():
        for bits, lanes in re.findall(r"[fi](16|32|64)(?:x(\d+))?", text):
            if lanes or bits == "16":
                widths[f"F{bits}"] = max(widths[f"F{bits}"], int(lanes or 1))
    widths["F32"] = max(widths["F32"], widths["F16"])  # what vectors of halves become
    parts = [f"#define TW_{name}_LANES {lanes}\n" for name, lanes in widths.items()]
    parts.append(f"#define TW_EXP {int(any('tw_fexp_' in text for text in texts.values()))}\n")
    parts.append(PRELUDE)
    for key, text in texts.items():
        parts.append(f'\n#line 1 "tw_{key}.c"\n{text.replace("TW_SYMBOL", f"tw_{key}")}\n')
    path = directory / "kernels.c"
    path.write_text("".join(parts))
    return path


def default_cache() -> KernelCache:
    """Return this process's cache under ``TENSORWISE_CACHE_DIR`` (or the user's cache directory).

    Raises:
        InputError: ``TENSORWISE_CACHE_BYTES`` is not a whole number.
    """
    return _cache_at(cache_dir() / "kernels", number_from("TENSORWISE_CACHE_BYTES", _CAP_BYTES, "bytes"))


@cache
def _cache_at(root: Path, cap_bytes: int) -> KernelCache:
    return KernelCache(root, cap_bytes=cap_bytes, top=root.parent)
