"""Generated kernels: a Program compiled, its operands packed, ready to be called."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, final

import numpy as np

from tensorwise.errors import InputError, MeasurementError, ScheduleError
from tensorwise.program.kernel import BoundKernel, Kernel, address
from tensorwise.program.packed import PackedOperands, arranged, packed_parts, workspace_length
from tensorwise.program.plan import Plan
from tensorwise.program.program import PlanKey, Program, kernel_text
from tensorwise.program.workload import Workload
from tensorwise.tensor.elements import as_bits
from tensorwise.tensor.fibertree import Tensor
from tensorwise.toolchain.cache import default_cache
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
            workspace_length(part, workload, threads) * workload.dtype.itemsize
            for part, plan in zip(self.program.parts, self._plans(workload), strict=True)
            if "work" in kernel_text(PlanKey(plan))[1]
        )

    def _plans(self, workload: Workload) -> list[Plan]:
        """The plan of each part for 32-bit indices."""
        return [
            part.plan(workload.elem, sizes=workload.sizes, halves=workload.halves)
            for part in self.program.parts
        ]


@dataclass(frozen=True)
class _Call:
    """A compiled kernel and its arguments; those of dense operands and the output are filled in later."""

    function: Any
    pointers: tuple[int, ...]
    sizes: "ctypes.Array[ctypes.c_int64]"
    places: tuple[int, ...]
    keep: tuple[np.ndarray, ...]
    free: list["ctypes.Array[ctypes.c_void_p]"]
    """Argument arrays that are not in use: laid out once and handed from call to call."""
    exclusive: bool
    """Calls share a workspace that they write to, so that one runs at a time."""


@final
class BoundProgram(BoundKernel):
    """A compiled program with packed operands; a hybrid is a kernel for each part.

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
        self._masked: list[_Call] | None = None
        # Asked once: a small kernel runs in the time that these answers take.
        self._out = workload.output_shape, workload.output_dtype
        self._column_major = tuple(workload.column_major(name) for name in workload.dense)
        self._lock = Lock()
        plans = [packed.plan(packed.program, None) for packed in self._parts]
        self.source = "\n".join(kernel_text(PlanKey(plan))[0] for plan in plans)
        self._main = [self._call(packed, plan) for packed, plan in zip(self._parts, plans, strict=True)]

    def _call(self, packed: PackedOperands, plan: Plan) -> _Call:
        """Compile a plan of one part and lay out its arguments."""
        text, buffer_names, size_names = kernel_text(PlanKey(plan))
        (loaded,) = default_cache().get([text])
        self.compile_s += loaded.compile_s
        bounds = packed.bounds()
        keep = [] if bounds is None else [bounds]
        pointers = [driver_address(), 0 if bounds is None else bounds.ctypes.data]
        places: dict[str, int] = {}
        for name in buffer_names:
            array = packed.array(name)
            if array is None:
                places[name] = len(pointers)
            else:
                keep.append(array)
            pointers.append(0 if array is None else array.ctypes.data)
        parallel = plan.schedule.parallel
        sizes = [self.threads, parallel.chunk if parallel else 1, 0 if bounds is None else len(bounds) - 1]
        sizes.extend(packed.size(name) for name in size_names)
        self.bytes_held = sum(packed.bytes_held for packed in self._parts)
        return _Call(
            loaded.function,
            tuple(pointers),
            (ctypes.c_int64 * len(sizes))(*sizes),
            tuple(places[name] for name in (*(f"{name}_values" for name in self.workload.dense), "out")),
            tuple(keep),
            [],
            "work" in buffer_names,
        )

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Compute into ``out``; see :class:`BoundKernel`."""
        if not out.flags.c_contiguous or (out.shape, out.dtype) != self._out:
            raise InputError(
                f"out must be a C-contiguous {self._out[1]} array of shape {self._out[0]}, "
                f"got {out.dtype} {out.shape}"
            )
        held = [
            arranged(operand, by_columns)
            for operand, by_columns in zip(operands, self._column_major, strict=True)
        ]
        held.append(out)
        if self._run(self._main, held):
            self._run_masked(held)
        self._parts[0].finish(out)

    def ready(self, operands: Sequence[np.ndarray], out: np.ndarray) -> Callable[[], object]:
        """Return ``run`` with its pointers in place; see :class:`BoundKernel`."""
        held = [*operands, out]
        call, first = self._main[0], self._parts[0]
        copied = any(
            arranged(operand, by_columns) is not operand
            for operand, by_columns in zip(operands, self._column_major, strict=True)
        )
        several = len(self._main) > 1 or call.exclusive or first.program.accumulate
        if copied or several or first.unreached is not None or not out.flags.c_contiguous:
            return lambda: self.run(operands, out)
        pointers = (ctypes.c_void_p * len(call.pointers))(*call.pointers)
        for place, array in zip(call.places, held, strict=True):
            pointers[place] = address(array)
        function, sizes = call.function, call.sizes

        def again() -> None:
            flag = function(pointers, sizes)
            if flag:
                self._check_flag(flag)
                self._run_masked(held)

        return again

    def _run(self, calls: Sequence[_Call], held: Sequence[np.ndarray]) -> bool:
        """Run the parts on the operands and the output, up to one that raises its flag; return whether one did."""
        if self._parts[0].program.accumulate:
            held[-1].fill(0)
        return any(self._invoke(call, held) for call in calls)

    def _run_masked(self, held: Sequence[np.ndarray]) -> None:
        """Compute again: a NaN came out, and padding may have met an Inf, which only the masked program can tell."""
        if self._masked is None:
            self._masked = [
                self._call(packed, packed.plan(packed.program.masked(), True)) for packed in self._parts
            ]
        self._run(self._masked, held)

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
        """The packed operands by name; what a hybrid sets apart is named with the rule, as in ``A rows>64``."""
        found = dict(self._parts[0].tensors)
        if self.program.apart is not None:
            found |= {f"{name} {self.program.apart.rule}": t for name, t in self._parts[1].tensors.items()}
        return found

    def fast_call(self) -> Callable[[np.ndarray], np.ndarray | None] | None:
        """Return the shortest way to call a single kernel with one dense operand, None where there is none.

        It returns a new output array, or None for an operand that needs ``run`` (other shape, dtype or
        layout). Argument arrays are laid out once and handed from call to call, one a thread at a time.
        """
        workload, call = self.workload, self._main[0]
        if len(self._main) > 1 or call.exclusive:
            return None
        if len(workload.dense) != 1 or self._parts[0].unreached is not None:
            return None
        if workload.column_major(workload.dense[0]) or workload.keeps_pattern:
            return None
        shape, out_shape = workload.shape(workload.dense[0]), workload.output_shape
        dtype, out_dtype = workload.dtype_of(workload.dense[0]), workload.output_dtype
        function, sizes, keep = call.function, call.sizes, self
        place, out_place = call.places
        layout = ctypes.c_void_p * len(call.pointers)
        free = call.free
        empty, ndarray, addressof = np.empty, np.ndarray, ctypes.addressof
        at: Any = ctypes.c_char.from_buffer  # arrays have the buffer protocol, but their type does not say so
        if "bfloat16" in (dtype.name, out_dtype.name):  # and these do not have it
            at = lambda array: ctypes.c_char.from_buffer(as_bits(array))  # type: ignore[arg-type] # noqa: E731
        if 0 in shape or 0 in out_shape:
            return None  # an empty array has no address

        def quick(operand: np.ndarray) -> np.ndarray | None:
            if type(operand) is not ndarray or operand.shape != shape or operand.dtype != dtype:
                return None
            if not operand.flags.c_contiguous:
                return None
            out = empty(out_shape, out_dtype)
            try:  # another thread may have taken the last one since we looked
                pointers = free.pop()
            except IndexError:
                pointers = layout(*call.pointers)
            # Through the buffer protocol an address costs 0.4 us, by ndarray.ctypes 1.4, by the interface 3.
            pointers[place] = addressof(at(operand)) if operand.flags.writeable else operand.ctypes.data
            pointers[out_place] = addressof(at(out))
            flag = function(pointers, sizes)
            free.append(pointers)
            if flag:
                keep._check_flag(flag)
                keep._run_masked([operand, out])
            return out

        return quick

    def _invoke(self, call: _Call, arrays: Sequence[np.ndarray]) -> bool:
        """Call a kernel; return whether it raised its flag."""
        try:
            pointers = call.free.pop()
        except IndexError:
            pointers = (ctypes.c_void_p * len(call.pointers))(*call.pointers)
        for place, array in zip(call.places, arrays, strict=True):
            pointers[place] = address(array)
        if call.exclusive:
            with self._lock:
                flag = call.function(pointers, call.sizes)
        else:
            flag = call.function(pointers, call.sizes)
        call.free.append(pointers)
        self._check_flag(flag)
        return bool(flag)

    def _check_flag(self, flag: int) -> None:
        if flag not in (0, 1):
            raise MeasurementError(f"the kernel of {self.program.name} returned error {flag}")
