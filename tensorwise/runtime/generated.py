"""Generated kernels: a Program compiled, its operands packed, ready to be called."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

from tensorwise.errors import InputError, ScheduleError
from tensorwise.lower.plan import Plan
from tensorwise.lower.program import PlanKey, Program, kernel_text
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import BoundKernel, Kernel, address
from tensorwise.runtime.packed import (
    WORKSPACES,
    Kernels,
    PackedOperands,
    arranged,
    compute,
    packed_parts,
    workspace_length,
)
from tensorwise.tensor.fibertree import Tensor
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.forks import lock
from tensorwise.toolchain.runtime import driver_address


@final
class GeneratedKernel(Kernel):
    """A program as a Kernel."""

    name = "tensorwise"

    def __init__(self, program: Program) -> None:
        self.program = program

    def bind(self, workload: Workload, threads: int) -> "BoundProgram":
        """Pack the sparse operands into the program's formats and compile the kernel.

        Raises:
            FormatError: the format would store far more than the entries.
            ScheduleError: the schedule does not fit.
            CompilerError: there is no compiler, or it failed.
        """
        return BoundProgram(self.program, workload, threads)

    def texts(self, workload: Workload) -> tuple[str, ...]:
        """Return the C text of each part for 32-bit indices: what can be compiled before anything is packed."""
        return tuple(kernel_text(PlanKey(plan))[0] for plan in self._plans(workload))

    def workspace_bytes(self, workload: Workload, threads: int) -> int:
        """Return the bytes that a bound kernel holds for partial results, besides its packed operands."""
        return sum(
            workspace_length(name, part, workload, threads) * workload.dtype.itemsize
            for part, plan in zip(self.program.parts, self._plans(workload), strict=True)
            for name in kernel_text(PlanKey(plan))[1]
            if name in WORKSPACES
        )

    def _plans(self, workload: Workload) -> list[Plan]:
        """The plan of each part for 32-bit indices."""
        renumbered = frozenset(workload.sparse) if self.program.remainder else workload.renumbered
        return [
            part.plan(workload.elem, sizes=workload.sizes, halves=workload.halves, renumbered=renumbered)
            for part in self.program.parts
        ]


@dataclass(frozen=True)
class KernelCall:
    """A compiled kernel and its arguments, but for the addresses of dense operands and the output.

    Attributes:
        address: of the kernel.
        function: the kernel for Python; where it has a workspace, calls take turns.
        pointers: its buffers; those of dense operands and the output are 0.
        sizes: its numbers.
        places: where in ``pointers`` the dense operands and the output belong.
        exclusive: whether it has a workspace.
        keep: what the pointers point to.
    """

    address: int
    function: Callable[..., int]
    pointers: "ctypes.Array[ctypes.c_void_p]"
    sizes: "ctypes.Array[ctypes.c_int64]"
    places: tuple[int, ...]
    exclusive: bool
    keep: tuple[np.ndarray, ...]


@final
class _Frame:
    """Calls of all parts with their arguments laid out, for one thread at a time.

    Attributes:
        slots: the pointers of each, and their places for the dense operands and the output.
        kernels: the calls.
    """

    def __init__(self, calls: Sequence[KernelCall]) -> None:
        self.slots = [(type(call.pointers).from_buffer_copy(call.pointers), call.places) for call in calls]
        self.kernels = [
            partial(call.function, pointers, call.sizes)
            for call, (pointers, _) in zip(calls, self.slots, strict=True)
        ]

    def on(self, held: Sequence[np.ndarray]) -> Kernels:
        """Return the calls on these operands and this output."""
        addresses = [address(array) for array in held]
        for pointers, places in self.slots:
            for place, where in zip(places, addresses, strict=True):
                pointers[place] = where
        return self.kernels


@final
class BoundProgram(BoundKernel):
    """A compiled program with its packed operands. A hybrid, in several formats, has several kernels.

    Attributes:
        compile_s: seconds spent compiling (0 when the kernels were in the cache).
        source: the C text.
    """

    def __init__(
        self,
        program: Program,
        workload: Workload,
        threads: int,
        packed: Sequence[PackedOperands] | None = None,
    ) -> None:
        self.program, self.workload, self.threads = program, workload, threads
        self.conversion_s = 0.0
        if packed is None:
            packed, self.conversion_s = packed_parts(program, workload, threads)
        self._parts = packed
        self.compile_s = 0.0
        self._lock = lock()
        self._masked: list[KernelCall] | None = None
        self._free: list[_Frame] = []  # one a thread that has called
        # Asked once: a small kernel runs in the time that these answers take.
        self._out = workload.output_shape, workload.output_dtype
        self._column_major = tuple(workload.column_major(name) for name in workload.dense)
        self._given = [(np.ndarray, workload.shape(name), workload.dtype_of(name)) for name in workload.dense]
        keys = [PlanKey(packed.plan(packed.program, None)) for packed in self._parts]
        self.source = "\n".join(kernel_text(key)[0] for key in keys)
        self._main = [self._call(packed, key) for packed, key in zip(self._parts, keys, strict=True)]
        first = self._parts[0]  # nothing is to be done before its kernel or after it
        self._direct = len(self._parts) == 1 and not first.program.accumulate and first.unreached is None

    def _call(self, packed: PackedOperands, key: PlanKey) -> KernelCall:
        """Compile a plan of one part and lay out its arguments."""
        text, buffers, size_names = kernel_text(key)
        (loaded,) = default_cache().get([text])
        self.compile_s += loaded.compile_s
        bounds = packed.bounds()
        keep = [] if bounds is None else [bounds]
        pointers = [driver_address(), 0 if bounds is None else bounds.ctypes.data]
        places: dict[str, int] = {}
        for name, elem in buffers.items():
            array = packed.array(name, elem)
            if array is None:
                places[name] = len(pointers)
            else:
                keep.append(array)
            pointers.append(0 if array is None else array.ctypes.data)
        parallel = key.plan.schedule.parallel
        chunk = parallel.chunk if parallel and parallel.policy == "dynamic" else 1
        sizes = [self.threads, chunk, 0 if bounds is None else len(bounds) - 1]
        sizes.extend(packed.size(name) for name in size_names)
        self.bytes_held = sum(packed.bytes_held for packed in self._parts)
        exclusive = not set(WORKSPACES).isdisjoint(buffers)
        return KernelCall(
            loaded.address,
            _one_at_a_time(loaded.function, self._lock) if exclusive else loaded.function,
            (ctypes.c_void_p * len(pointers))(*pointers),
            (ctypes.c_int64 * len(sizes))(*sizes),
            tuple(places[name] for name in (*(f"{name}_values" for name in self.workload.dense), "out")),
            exclusive,
            tuple(keep),
        )

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Compute into ``out``; see :class:`BoundKernel`."""
        held = self._arrange_operands(operands, out)
        frame = self._frame()
        kernels = frame.on(held)
        if not self._direct or kernels[0]():  # a flag is rare: all is computed again then
            compute(self._parts, kernels, self._masked_on, held)
        self._free.append(frame)

    def _frame(self) -> _Frame:
        """Return laid-out arguments that nobody uses, to be put back after a call."""
        try:  # another thread may have taken the last one since we looked
            return self._free.pop()
        except IndexError:
            return _Frame(self._main)

    def ready(self, operands: Sequence[np.ndarray], out: np.ndarray) -> Callable[[], object]:
        """Return ``run`` with its pointers in place; see :class:`BoundKernel`."""
        held = self._arrange_operands(operands, out)
        if any(mine is not given for mine, given in zip(held, operands, strict=False)):
            return lambda: self.run(operands, out)  # what is copied is copied anew for each call
        parts, direct, masked = self._parts, self._direct, self._masked_on
        kernels = _Frame(self._main).on(held)

        def call() -> None:
            if not direct or kernels[0]():
                compute(parts, kernels, masked, held)

        return call

    def _arrange_operands(self, operands: Sequence[np.ndarray], out: np.ndarray) -> list[np.ndarray]:
        """Return the operands in the layout that kernels expect, and the output; InputError where they are others."""
        if not out.flags.c_contiguous or (out.shape, out.dtype) != self._out:
            raise InputError(
                f"out must be a C-contiguous {self._out[1]} array of shape {self._out[0]}, "
                f"got {out.dtype} {out.shape}"
            )
        if [(type(operand), operand.shape, operand.dtype) for operand in operands] != self._given:
            self.workload.check_operands(operands)
        return [*map(arranged, operands, self._column_major), out]

    def _masked_on(self, held: Sequence[np.ndarray]) -> Kernels:
        """Return the masked kernels on these operands and this output; they are compiled when first needed."""
        if self._masked is None:
            self._masked = [
                self._call(packed, PlanKey(packed.plan(packed.program.masked(), True)))
                for packed in self._parts
            ]
        return _Frame(self._masked).on(held)

    def resized(self, workload: Workload) -> "BoundProgram":
        """Return the same program and packed operands for a workload that differs in dense-only extents."""
        return self.sharing(self.program.fitting(workload), workload)

    def sharing(self, program: Program, workload: Workload) -> "BoundProgram":
        """Return another program on the same packed operands: nothing is packed or copied.

        Args:
            program: what is to be run; its formats are those of this program.
            workload: what it computes, from the same stored entries.

        Raises:
            ScheduleError: the formats or the stored entries differ; and what ``GeneratedKernel.bind`` raises.
        """
        if program.format_texts != self.program.format_texts:
            raise ScheduleError(
                f"a program that reads {'; '.join(program.format_texts.values())} cannot share the operands packed as "
                f"{'; '.join(self.program.format_texts.values())}; pack them anew"
            )
        if any(workload.sparse.get(name) is not entries for name, entries in self.workload.sparse.items()):
            raise ScheduleError(
                "packed operands are shared by workloads of the same Entries; pack these anew"
            )
        parts = [
            PackedOperands(one, workload, self.threads, packed.tensors, packed.part)
            for one, packed in zip(program.parts, self._parts, strict=True)
        ]
        return BoundProgram(program, workload, self.threads, parts)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The packed operands by name; a hybrid's remainder has its rule in the name, as in ``A rows>64``."""
        found = dict(self._parts[0].tensors)
        if self.program.remainder is not None:
            found |= {
                f"{name} {self.program.remainder.rule}": t for name, t in self._parts[1].tensors.items()
            }
        return found

    @property
    def single_call(self) -> KernelCall | None:
        """The one kernel that computes all of the output, unless it raises its flag; None where more is to be done."""
        return self._main[0] if self._direct else None

    def fast_call(self) -> Callable[[np.ndarray], np.ndarray | None] | None:
        """Return the shortest way to call a program with one dense operand, None where there is none.

        It returns a new output array, or None for an operand that needs ``run`` (other shape, dtype or
        layout). Arguments are laid out once and handed from call to call, one a thread at a time.
        """
        workload = self.workload
        if len(workload.dense) != 1 or self._column_major[0] or workload.keeps_pattern:
            return None
        (name,) = workload.dense
        shape, dtype = workload.shape(name), workload.dtype_of(name)
        out_shape, out_dtype = self._out
        parts, direct, masked, a_frame, free = (
            self._parts,
            self._direct,
            self._masked_on,
            self._frame,
            self._free,
        )
        empty, ndarray = np.empty, np.ndarray

        def quick(operand: np.ndarray) -> np.ndarray | None:
            if type(operand) is not ndarray or operand.shape != shape or operand.dtype != dtype:
                return None
            if not operand.flags.c_contiguous:
                return None
            out = empty(out_shape, out_dtype)
            frame = a_frame()
            from_, to = address(operand), address(out)
            for pointers, (place, out_place) in frame.slots:
                pointers[place], pointers[out_place] = from_, to
            if not direct or frame.kernels[0]():
                compute(parts, frame.kernels, masked, (operand, out))
            free.append(frame)
            return out

        return quick


def _one_at_a_time(function: Callable[..., int], turn: Any) -> Callable[..., int]:
    """Calls of a kernel with a workspace share it, and write to it."""

    def alone(*arguments: object) -> int:
        with turn:
            return function(*arguments)

    return alone
