"""An emulated processor in a child process, which shares memory with this one and calls cross-compiled C there."""

import ctypes
import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

from tensorwise.ids import content_id
from tensorwise.lower.program import PlanKey, Program, kernel_text
from tensorwise.program.workload import Workload
from tensorwise.runtime.generated import BoundProgram, KernelCall
from tensorwise.runtime.packed import compute
from tensorwise.sparse.packed import UPDATING
from tensorwise.sparse.table import IN_PLACE
from tensorwise.tensor.primitives import PACKING
from tensorwise.toolchain.cache import LoadedKernel, write_bundle
from tensorwise.toolchain.compiler import Compiler, find_compiler
from tensorwise.toolchain.runtime import DRIVER

CC: Final = os.environ.get("TENSORWISE_CROSS_CC", "aarch64-linux-gnu-gcc")
EMULATOR: Final = os.environ.get("TENSORWISE_EMULATOR", "qemu-aarch64")
SYSROOT: Final = os.environ.get("TENSORWISE_SYSROOT", "/usr/aarch64-linux-gnu")
NEON: Final = "armv8.2-a"
SVE: Final = "armv8.2-a+sve"
BASES: Final = count(0x10_0000_0000, 1 << 30)
"""Where the shared memory of one emulator after the other is mapped on both sides: far from programs and libraries."""
ARENA_BYTES: Final = 1 << 28
ALIGNMENT: Final = 128
BUNDLE: Final = 24
"""Kernels a compiled file."""
HERE: Final = Path(__file__).parent


def missing() -> str | None:
    """Return what must be installed before anything can run here, or None."""
    wanted = ((CC.split()[0], "gcc-aarch64-linux-gnu"), (EMULATOR, "qemu-user"))
    lacking = [package for program, package in wanted if shutil.which(program) is None]
    return f"apt-get install {' '.join(lacking)}" if lacking else None


def cross_compiler(march: str) -> Compiler:
    """Return the cross compiler, with the flags that the package would give it on that processor."""
    with mock.patch.dict(os.environ, {"TENSORWISE_CC": f"{CC} -march={march}"}):
        return find_compiler()


@dataclass
class Emulated:
    """A running emulator. Memory is handed out of one arena, which `clear` empties.

    Attributes:
        process: the emulator, which reads commands.
        folder: for libraries.
        compiler: compiles for it.
        base: address of the arena.
    """

    process: "subprocess.Popen[str]"
    folder: Path
    compiler: Compiler
    base: int
    used: int = 0
    known: set[str] = field(default_factory=set)

    def ask(self, *words: object) -> int:
        """Send a command and return the answer; raises RuntimeError where the emulated process ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            said = "" if self.process.stderr is None else self.process.stderr.read()
            raise RuntimeError(f"{words[:2]}: the emulated process ended with {self.process.wait()}: {said}")
        return int(answer)

    def call(self, symbol: str, *arguments: int) -> int:
        """Call a function; arguments are numbers and addresses in the arena."""
        return self.ask("call", symbol, *arguments)

    def array(self, given: np.ndarray) -> np.ndarray:
        """Return a copy of an array in the arena, whose address is valid on both sides."""
        start = -(-self.used // ALIGNMENT) * ALIGNMENT
        self.used = start + max(given.nbytes, 1)
        if self.used > ARENA_BYTES:
            raise MemoryError("the arena is full; clear it between calls")
        raw = (ctypes.c_char * max(given.nbytes, 1)).from_address(self.base + start)
        order = "F" if given.flags.f_contiguous and not given.flags.c_contiguous else "C"
        made = np.frombuffer(raw, np.uint8, given.nbytes).view(given.dtype).reshape(given.shape, order=order)
        made[...] = given
        return made

    @contextmanager
    def packing(self) -> Iterator[None]:
        """Pack with the emulated primitives inside."""
        where, remote = "tensorwise.tensor.primitives", _EmulatedPacking(self)
        with (
            mock.patch(f"{where}._address", remote.lend),
            mock.patch(f"{where}.PACKING", remote),
        ):
            yield
        assert remote.calls, "nothing was packed by the emulated primitives"

    def clear(self) -> None:
        """Forget all arrays."""
        self.used = 0

    def open(self, name: str, *sources: Path) -> None:
        """Compile C files into a library and open it."""
        out = self.folder / f"{name}.so"
        self.compiler.compile(sources, out, timeout_s=600)
        self.ask("open", out)

    def compile(self, texts: Sequence[str]) -> None:
        """Compile kernels, many to a file; those that are known are not compiled again."""
        new = [text for text in dict.fromkeys(texts) if symbol_of(text) not in self.known]
        for first in range(0, len(new), BUNDLE):
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            source = write_bundle({symbol_of(text)[3:]: text for text in new[first : first + BUNDLE]}, folder)
            self.open(f"{folder.name}/kernels", source)
        self.known.update(map(symbol_of, new))

    def run(self, bound: "CrossBound", operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Compute into ``out`` what a bound program would, with the emulated kernels."""
        held = [*map(self.array, bound.program._arrange_operands(operands, out)[:-1]), self.array(out)]
        kernels = [self._laid_out(call, text, held) for call, text in bound.calls]
        masked = [self._laid_out(call, text, held) for call, text in bound.masked]
        compute(bound.program._parts, kernels, lambda _: masked, held)
        out[...] = held[-1]
        self.clear()

    def _laid_out(self, call: KernelCall, text: str, held: Sequence[np.ndarray]) -> Callable[[], int]:
        kept = {array.ctypes.data: array for array in call.keep}
        pointers = np.zeros(len(call.pointers), np.int64)
        pointers[0] = self.ask("address", "tw_parallel")
        for place, pointer in enumerate(call.pointers):
            if place and pointer:
                pointers[place] = self.array(kept[pointer]).ctypes.data
        pointers[list(call.places)] = [array.ctypes.data for array in held]
        sizes = self.array(np.array(call.sizes, np.int64))
        arguments = self.array(pointers).ctypes.data, sizes.ctypes.data
        return lambda: self.call(symbol_of(text), *arguments) & 0xFFFFFFFF  # it returns an int


class _EmulatedPacking:
    """Stands for `PACKING`: arrays are lent to the emulator for a call, and copied back after it."""

    works: Final = True

    def __init__(self, machine: Emulated) -> None:
        self.machine, self.calls = machine, 0
        self._lent: list[tuple[np.ndarray, np.ndarray]] = []

    def lend(self, array: np.ndarray | None) -> int | None:
        """Return the address of a copy."""
        if array is None:
            return None
        self._lent.append((array, self.machine.array(array)))
        return self._lent[-1][1].ctypes.data

    def __call__(self, name: str, *given: Any) -> int:
        words = [
            self.machine.array(np.frombuffer(one, np.uint8)).ctypes.data
            if isinstance(one, ctypes.Array)
            else int(one or 0)
            for one in given
        ]
        result = self.machine.call(f"tw_pack_{name}", *words)
        for array, copy in self._lent:
            if array.flags.writeable:
                array[...] = copy
        self._lent.clear()
        self.machine.clear()
        self.calls += 1
        return result & 0xFFFFFFFF if name == "sort" else result


def symbol_of(text: str) -> str:
    """Return the name of the function of a kernel's text."""
    return f"tw_{content_id(('cross', text))}"


@dataclass(frozen=True)
class CrossBound:
    """A bound program that was not compiled for this machine: its calls and masked calls, each with its C text."""

    program: BoundProgram
    calls: tuple[tuple[KernelCall, str], ...]
    masked: tuple[tuple[KernelCall, str], ...]

    @property
    def texts(self) -> list[str]:
        """All C texts."""
        return [text for _, text in (*self.calls, *self.masked)]


class _NotCompiled:
    """Stands for the kernel cache: kernels are laid out, and never called here."""

    def get(self, texts: Sequence[str]) -> list[LoadedKernel]:
        return [LoadedKernel("", Path(), 0, _uncalled, 0.0) for _ in texts]


def _uncalled(*_: object) -> int:
    raise AssertionError("a kernel for another processor was called")


def bind(program: Program, workload: Workload, threads: int) -> CrossBound:
    """Pack the operands and lay out the calls of a program, without compiling it."""
    where = "tensorwise.runtime.generated"
    with (
        mock.patch(f"{where}.default_cache", _NotCompiled),
        mock.patch(f"{where}.driver_address", return_value=0),
    ):
        bound = BoundProgram(program, workload, threads)
        calls, masked = [], []
        for packed, call in zip(bound._parts, bound._main, strict=True):
            plan = packed.plan(packed.program, None)
            calls.append((call, kernel_text(PlanKey(plan))[0]))
            if plan.padded and not plan.masked:
                key = PlanKey(packed.plan(packed.program.masked(), True))
                masked.append((bound._call(packed, key), kernel_text(key)[0]))
        return CrossBound(bound, tuple(calls), tuple(masked) if len(masked) == len(calls) else tuple(calls))


@contextmanager
def emulated(march: str = NEON, environment: Mapping[str, str] = {}) -> Iterator[Emulated]:
    """Start an emulator with the runtime, the packing primitives and the in-place library loaded."""
    compiler, base = cross_compiler(march), next(BASES)
    with tempfile.TemporaryDirectory(prefix="tensorwise-emulated-") as name:
        folder = Path(name)
        program, arena = folder / "loader", folder / "arena"
        subprocess.run([*compiler.command, "-O1", HERE / "loader.c", "-o", program, "-ldl"], check=True)
        with open(arena, "wb+") as file:
            file.truncate(ARENA_BYTES)
            _map(base, file.fileno())
        try:
            with subprocess.Popen(
                [EMULATOR, "-L", SYSROOT, program, arena, hex(base), str(ARENA_BYTES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **environment},
            ) as process:
                machine = Emulated(process, folder, compiler, base)
                sources = [
                    path for routines in (DRIVER, PACKING, IN_PLACE, UPDATING) for path in routines.sources
                ]
                machine.open("runtime", *sources)
                yield machine
                assert process.stdin is not None
                process.stdin.close()
                assert process.wait(60) == 0
        finally:
            _C.munmap(ctypes.c_void_p(base), ctypes.c_size_t(ARENA_BYTES))


_C: Final = ctypes.CDLL(None, use_errno=True)
_FIXED_NOREPLACE: Final = 0x100000


def _map(base: int, descriptor: int) -> None:
    _C.mmap.restype = ctypes.c_void_p
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _FIXED_NOREPLACE
    found = _C.mmap(
        ctypes.c_void_p(base), ctypes.c_size_t(ARENA_BYTES), protection, flags, descriptor, ctypes.c_long(0)
    )
    if found != base:
        raise OSError(ctypes.get_errno(), "the shared memory cannot be mapped at its address")
