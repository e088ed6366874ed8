"""The C compiler of this machine: finding one that works, and calling it."""

import contextlib
import importlib.util
import logging
import math
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from tensorwise.errors import CompilerError
from tensorwise.ids import content_id
from tensorwise.toolchain.child import run_bounded
from tensorwise.toolchain.deadline import is_over, left_s, whole_s
from tensorwise.toolchain.places import cache_dir, private_dir
from tensorwise.toolchain.processor import ON_ARM, cpu_id, narrowing
from tensorwise.toolchain.scratch import scratch_prefix

_log = logging.getLogger(__name__)

# No -ffast-math: NaN, Inf and signed zeros mean what they say. Contraction gives fused multiply-adds. Not
# -fno-trapping-math either: with it gcc 12 gets a conditional sum of maxima wrong (found by tests/oracle).
_FLAGS = tuple(
    shlex.split(
        "-O2 -fPIC -shared -std=gnu11 -pthread -fno-math-errno -ffp-contract=fast "
        "-fno-plt -fno-stack-protector -w"
    )
)
SANITIZE: Final = "TENSORWISE_SANITIZE"
"""Environment variable: ``address``, ``undefined`` or both behind each other, with a comma. For tests only."""
_SANITIZED = ("-O1", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
_STDERR_LINES = 20
_LIBRARIES = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""What shared objects begin with on Linux and macOS."""
_ADVICE = (
    "install gcc or clang (Debian, Ubuntu: apt install gcc; Fedora: dnf install gcc; "
    "macOS: xcode-select --install), or: pip install 'tensorwise[zig]'; "
    "TENSORWISE_CC names a compiler that is elsewhere"
)


VERSION_S: Final = 10.0
"""A compiler may take this long to say its version, ..."""
PROOF_S: Final = 30.0
"""... and this long to compile a small file. Where less time is left, it is half of that: others want to run as well."""
HUNG_S: Final = 60.0
"""One that did not answer is not asked again for so long."""
_HUNG: Final[dict[tuple[str, ...], tuple[float, float, str]]] = {}
"""Command -> when it did not answer, how long it was waited for, and what is said of it."""


class CompilerTimeoutError(CompilerError):
    """The compiler was killed because it ran out of time."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler of this machine.

    Attributes:
        command: the program and its first arguments, as in ``("/usr/bin/gcc",)``.
        kind: ``gcc``, ``clang`` or ``zig``.
        version: first line of what ``--version`` prints.
        flags: all flags of a compilation.
        cpu: id of the processor's model and features, since code is compiled for this processor.
    """

    command: tuple[str, ...]
    kind: str
    version: str
    flags: tuple[str, ...]
    cpu: str

    @cached_property
    def id(self) -> str:
        """Content id of all that decides what a source becomes."""
        return content_id(
            (self.kind, self.version, self.cpu, shlex.join(self.command), shlex.join(self.flags))
        )

    def compile(
        self, sources: Sequence[Path], out: Path, timeout_s: float = 60.0, stop: threading.Event | None = None
    ) -> None:
        """Compile C ``sources`` into the shared object ``out``, in a child process of low priority.

        When another thread sets ``stop``, the compilation is abandoned.

        Raises:
            CompilerTimeoutError: it took more than ``timeout_s``, or than is left; the whole process group was killed.
            CompilerError: the compiler refused; the message has the first lines of what it said.
        """
        names = ", ".join(source.name for source in sources)
        if is_over():
            raise CompilerTimeoutError(f"no time is left to compile {names}, of {_limit_text()}")
        paths = [str(source.absolute()) for source in sources]
        command = [*self.command, *self.flags, *paths, "-o", str(out.absolute()), "-lm"]
        try:
            with tempfile.TemporaryDirectory(
                prefix=scratch_prefix("cc"), ignore_cleanup_errors=True
            ) as scratch:
                status, said = run_bounded(command, Path(scratch), timeout_s, stop)
        except OSError as error:
            raise CompilerError(f"cannot run {shlex.join(self.command)}: {error}") from error
        if status is None and stop is not None and stop.is_set():
            raise CompilerError(f"the compilation of {names} was abandoned")
        if status is None and is_over():
            raise CompilerTimeoutError(
                f"{self.kind} was killed on {names}: the time for it is over, {_limit_text()}"
            )
        if status is None:
            raise CompilerTimeoutError(
                f"{self.kind} was killed on {names} after {timeout_s:g} s; simplify the kernel (less unrolling, smaller "
                f"tiles), or set TENSORWISE_COMPILE_TIMEOUT_S to more seconds\n{_first_lines(said)}"
            )
        if status != 0 or not out.is_file():
            raise CompilerError(f"{self.kind} refused {names} (exit status {status}):\n{_first_lines(said)}")

    def answers(self) -> bool:
        """Whether it compiles a small file within `PROOF_S`; else it hangs, whatever it is given."""
        try:
            _try(self)
        except CompilerTimeoutError:
            return False
        except CompilerError:
            pass
        return True


def _limit_text() -> str:
    return (
        f"{whole_s():.3g} s; a larger budget (budget_s, --budget) or TENSORWISE_COMPILE_TIMEOUT_S gives more"
    )


def _first_lines(said: str) -> str:
    lines = said.strip().splitlines()
    more = [f"... ({len(lines) - _STDERR_LINES} more lines)"] if len(lines) > _STDERR_LINES else []
    return "\n".join(lines[:_STDERR_LINES] + more) or "(it said nothing)"


def find_compiler() -> Compiler:
    """Return the compiler to use: ``TENSORWISE_CC``, ``CC``, gcc, clang, cc, or a pip-installed zig.

    It has compiled a small file on this machine. The answer is remembered while the variables stay
    as they are. ``TENSORWISE_VECTOR_BYTES`` adds flags that keep vectors narrow, ``TENSORWISE_SANITIZE`` checks
    in the code itself.

    Raises:
        CompilerError: none works; the message says what was tried and what to install. Or code is to be sanitized, and
            the process runs without the library that this needs.
        InputError: ``TENSORWISE_VECTOR_BYTES`` is no width of vectors.
    """
    own, common, path = (os.environ.get(name, "") for name in ("TENSORWISE_CC", "CC", "PATH"))
    found, more = _find(own.strip(), common.strip(), path), (*narrowing(), *_sanitizing())
    if not more:
        return found
    kept = [flag for flag in found.flags if not (flag == "-Wl,-z,defs" and os.environ.get(SANITIZE))]
    return replace(found, flags=(*kept, *more))


def _sanitizing() -> tuple[str, ...]:
    """Return the flags that ``TENSORWISE_SANITIZE`` asks for; raise CompilerError where the code could not be loaded."""
    asked = os.environ.get(SANITIZE, "").strip()
    if not asked:
        return ()
    if not set(asked.split(",")) <= {"address", "undefined"}:
        raise CompilerError(f"{SANITIZE} is {asked!r}; expected address, undefined or address,undefined")
    if "address" in asked and "asan" not in os.environ.get("LD_PRELOAD", ""):
        raise CompilerError(
            f"{SANITIZE} is {asked!r}, which needs a process started with LD_PRELOAD=$(gcc -print-file-name=libasan.so)"
        )
    return (*_SANITIZED, f"-fsanitize={asked}")


@cache
def _find(own: str, common: str, path: str) -> Compiler:
    tried: list[str] = []
    for command in _candidates(own, common):
        try:
            with _not_hung((path, *command)):
                compiler = describe_compiler(command)
                _prove(compiler)
            return compiler
        except CompilerError as error:
            tried.append(f"  {shlex.join(command)}: {error}")
            _log.info("C compiler %s does not work: %s", shlex.join(command), error)
    listed = "\n".join(tried) or "  nothing was found on PATH"
    if own:
        raise CompilerError(
            f"TENSORWISE_CC is {own!r}, which does not work:\n{listed}\nUnset it, or {_ADVICE}"
        )
    raise CompilerError(f"no C compiler works here:\n{listed}\nTo have one, {_ADVICE}")


def _candidates(own: str, common: str) -> Iterator[tuple[str, ...]]:
    if own:  # asked for by name: nothing else will do
        yield tuple(shlex.split(own))
        return
    if common:
        yield tuple(shlex.split(common))
    yield from ((name,) for name in ("gcc", "clang", "cc") if shutil.which(name))
    zig = importlib.util.find_spec("ziglang")
    for place in zig.submodule_search_locations or () if zig else ():
        yield str(Path(place) / "zig"), "cc"  # as python -m ziglang does, without another Python


def describe_compiler(command: tuple[str, ...]) -> Compiler:
    """Return the compiler behind ``command``; raises CompilerError when it is absent or mute."""
    program = shutil.which(command[0])
    if program is None:
        raise CompilerError("not found")
    command = (program, *command[1:])
    try:
        with tempfile.TemporaryDirectory(prefix=scratch_prefix("cc"), ignore_cleanup_errors=True) as scratch:
            asked = [*command, "--version"]
            status, said = run_bounded(
                asked, Path(scratch), _share_of_what_is_left(VERSION_S), wanted="stdout"
            )
    except OSError as error:
        raise CompilerError(f"--version failed: {error}") from error
    if status is None:
        raise CompilerTimeoutError("it did not answer --version in time, and was killed")
    said = said.strip()
    if status != 0 or not said:
        raise CompilerError(f"--version failed with exit status {status}")
    zig = Path(program).name.startswith("zig") or "ziglang" in command
    kind = "zig" if zig else "clang" if "clang" in said else "gcc"
    return Compiler(command, kind, said.splitlines()[0].strip(), _flags(kind, command), cpu_id())


def _flags(kind: str, command: tuple[str, ...]) -> tuple[str, ...]:
    named = any(word.startswith(("-march=", "-mcpu=")) for word in command)  # cross compilers have no native
    more = [] if named else ["-mcpu=native" if ON_ARM or kind == "zig" else "-march=native"]
    if kind == "gcc":
        more += ["-Wno-psabi"]  # -w alone leaves its notes on vectors as arguments
    elif kind == "zig":
        more += ["-fno-sanitize=undefined"]
    if sys.platform == "linux":
        more += ["-Wl,-z,defs"]  # an unknown function fails here, by name, and not when it is loaded
    return (*_FLAGS, *more)


def _prove(compiler: Compiler) -> None:
    """Compile a small file, once a machine; raises CompilerError when that fails."""
    stamp = cache_dir() / "compilers" / compiler.id
    if os.access(stamp, os.F_OK):
        return
    _try(compiler)
    with contextlib.suppress(OSError):
        private_dir(stamp.parent)
        stamp.touch(0o600)


def _try(compiler: Compiler) -> None:
    """Compile a small file, and look at what comes out; raises CompilerError when that fails."""
    try:
        with tempfile.TemporaryDirectory(prefix=scratch_prefix("cc"), ignore_cleanup_errors=True) as scratch:
            source, out = Path(scratch) / "probe.c", Path(scratch) / "probe.so"
            source.write_text(
                "#include <stdint.h>\n#include <pthread.h>\nint64_t tw_probe(void) { return 42; }\n"
            )
            compiler.compile([source], out, _share_of_what_is_left(PROOF_S))
            if not out.read_bytes().startswith(_LIBRARIES):
                raise CompilerError("what it wrote is no library")
    except OSError as error:
        raise CompilerError(f"cannot write a file to try it on: {error}") from error


def _share_of_what_is_left(most_s: float) -> float:
    return min(most_s, left_s() / 2)


@contextlib.contextmanager
def _not_hung(command: tuple[str, ...]) -> Iterator[None]:
    """Refuse a command that hung a moment ago, unless it may take much longer now; remember it when it hangs inside."""
    may_s, (when, waited_s, why) = _share_of_what_is_left(VERSION_S), _HUNG.get(command, (-math.inf, 0.0, ""))
    if time.monotonic() - when < HUNG_S and may_s < 2 * waited_s:
        raise CompilerTimeoutError(why)
    try:
        yield
    except CompilerTimeoutError as error:
        _HUNG[command] = time.monotonic(), may_s, str(error)
        raise
    _HUNG.pop(command, None)
