"""Packed kernels of a product of a read-only matrix: found by a search, packed here, and given new values."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.lower.program import PlanKey, Program, kernel_text
from tensorwise.program.workload import Workload
from tensorwise.runtime.generated import BoundProgram, KernelCall
from tensorwise.runtime.kernel import address
from tensorwise.runtime.packed import PackedOperands, packed_parts
from tensorwise.sparse.given import StoredEntries
from tensorwise.sparse.slices import write_values
from tensorwise.sparse.table import IN_PLACE
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.primitives import PACKING
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.forks import lock
from tensorwise.toolchain.routines import POINTER, SIZE, Routines
from tensorwise.toolchain.runtime import DRIVER, driver_address

UPDATING: Final = Routines(
    "add up new values of duplicates",
    "tw_update_",
    {"add": (None, (POINTER, SIZE, SIZE, POINTER, POINTER, SIZE, POINTER, SIZE, POINTER))},
    Path(__file__).with_name("update.c"),
)
ROUTINES: Final = (DRIVER, PACKING, IN_PLACE, UPDATING)
"""What a process needs that packs: a search's child compiles it."""


@final
class PackedValues:
    """The values of a packed matrix, which products of one format share, and what new values need.

    Duplicates of the matrix are one entry, their sum.
    """

    def __init__(self, parts: Sequence[PackedOperands], stored: StoredEntries) -> None:
        self.parts, self._stored = parts, stored
        self._sources: list[tuple[np.ndarray, np.ndarray | None]] | None = None
        self._sums: np.ndarray | None = None
        self._lock = lock()

    @property
    def nbytes(self) -> int:
        """Bytes held besides the matrix's own arrays: packed operands, entries, and maps for new values."""
        entries, as_given = self._stored.entries, self._stored.order is None
        held = [array for part in self.parts for tensor in part.tensors.values() for array in _arrays(tensor)]
        if as_given:  # CSR takes the matrix's own indices
            held = [array for array in held if not np.may_share_memory(array, entries.coordinates[1])]
        else:
            held += [entries.coordinates[1], entries.values]
        held += [array for _, array in self._sources or () if array is not None]
        held += [
            array for array in (entries.coordinates[0], entries.pointers, self._sums) if array is not None
        ]
        distinct = {id(array): array.nbytes for array in held}
        return sum(distinct.values()) + self._stored.nbytes

    def update(self, values: np.ndarray, threads: int) -> None:
        """Take new values: (given,) in the order of the array's ``data``. Raises InputError as `PackedProduct.update`."""
        entries, order, starts = self._stored.entries, self._stored.order, self._stored.starts
        count = entries.nnz if order is None else len(order)
        given = np.ascontiguousarray(values)
        if given.shape != (count,) or given.dtype != entries.dtype:
            raise InputError(
                f"expected {count} values of {entries.dtype} for this pattern, got {values.dtype} {values.shape}"
            )
        with self._lock:
            if self._sources is None:
                self._sources = self._make_sources()
            driver, size = driver_address(), given.dtype.itemsize
            if order is not None and starts is not None:
                if self._sums is None:
                    self._sums = np.empty(entries.nnz, entries.dtype)
                UPDATING(
                    "add", driver, threads, entries.nnz, order.ctypes.data, starts.ctypes.data,
                    int(order.itemsize == 8), given.ctypes.data, size, self._sums.ctypes.data,
                )  # fmt: skip
                given = self._sums
            for packed, source in self._sources:
                write_values(driver, given, packed, source, threads)

    def _make_sources(self) -> list[tuple[np.ndarray, np.ndarray | None]]:
        """Packed values, and for each the given value's number from 1, 0 for padding; None: they are the given values."""
        order = self._stored.order if self._stored.starts is None else None
        found: list[tuple[np.ndarray, np.ndarray | None]] = []
        for part in self.parts:
            for name, tensor in part.tensors.items():
                source = np.ascontiguousarray(part.source(name))
                if order is not None:
                    table = np.zeros(len(order) + 1, source.dtype)
                    table[1:] = order
                    table[1:] += 1
                    source = table[source]
                is_copy = len(source) == self._stored.entries.nnz and bool(
                    (source == np.arange(1, len(source) + 1, dtype=source.dtype)).all()
                )
                found.append((tensor.values, None if is_copy else source))
        return found


def _arrays(tensor: Tensor) -> list[np.ndarray]:
    return [
        tensor.values,
        *(array for level in tensor.arrays for array in level.values()),
        *tensor.permutations.values(),
    ]


@final
class PackedProduct:
    """A product by a kernel over a packed copy of the matrix.

    Attributes:
        name: format and schedule, as in ``(i,k) -> U(i) C(k); parallel(i,balanced,4)``.
        expected_s: seconds that a call is expected to take.
        threads: that it runs on.
        values: what it reads; products of the same format share it.
        facts: what a record of it says besides seconds, as the search's child gave it; see `record_outcome`.
    """

    def __init__(
        self,
        bound: BoundProgram,
        values: PackedValues,
        is_owner: bool,
        expected_s: float,
        facts: Mapping[str, Any],
    ) -> None:
        """Take a kernel and what it reads; `pack_product` makes both."""
        self.name, self.expected_s, self.facts = bound.program.name, expected_s, facts
        self.threads, self.values = bound.threads, values
        self._bound, self._single, self._is_owner = bound, bound.single_call, is_owner
        self._free: list[Any] = []

    @property
    def nbytes(self) -> int:
        """Bytes held besides the matrix's own arrays; what products share counts once, for the first of them."""
        packed = sum(
            array.nbytes for part in self.values.parts for t in part.tensors.values() for array in _arrays(t)
        )
        return max(0, self._bound.bytes_held - packed) + (self.values.nbytes if self._is_owner else 0)

    @property
    def single_call(self) -> KernelCall | None:
        """The kernel and its arguments, for calls from C; None where a call takes more than one kernel.

        A kernel that returns another number than 0 got a NaN which padding may have caused: `run` computes it again.
        """
        return self._single

    def run(self, x: np.ndarray, out: np.ndarray) -> None:
        """Multiply ``x`` into ``out``: both C-contiguous, of the matrix's dtype and the product's shapes."""
        call = self._single
        if call is None:
            self._bound.run([x], out)
            return
        try:  # arguments that no other thread uses
            pointers = self._free.pop()
        except IndexError:
            pointers = type(call.pointers).from_buffer_copy(call.pointers)
        place, out_place = call.places
        pointers[place], pointers[out_place] = address(x), address(out)
        flag = call.function(pointers, call.sizes)
        self._free.append(pointers)
        if flag:
            self._bound.run([x], out)

    def reads_as(self, program: Program) -> bool:
        """Whether ``program`` reads what this one has packed."""
        return program.remainder is None and program.format_texts == self._bound.program.format_texts

    def update(self, values: np.ndarray) -> None:
        """Take new values: (given,) in the order of the array's own ``data``. No call may run meanwhile.

        The first time it makes the maps from given to packed positions; later it costs a pass over memory, in parallel.
        Products that share their values all get them.

        Raises:
            InputError: they are of another number or dtype.
        """
        self.values.update(values, self.threads)


def pack_product(
    program: Program,
    work: Workload,
    stored: StoredEntries,
    threads: int,
    expected_s: float,
    facts: Mapping[str, Any],
    known: Sequence[PackedProduct] = (),
) -> PackedProduct | None:
    """Pack the matrix for a program and bind its kernel; None where the kernel was not compiled before.

    Nothing is compiled here, now or by a later call: kernels that consult the source map are looked for as well.

    Args:
        program: what is run.
        work: what it computes.
        stored: the entries of the workload, and where they come from.
        threads: of the kernel.
        expected_s: seconds that a call is expected to take.
        facts: see `PackedProduct`.
        known: products of the same entries: the packed operands of one with the same formats are shared.

    Raises:
        TensorwiseError: the program does not fit the workload.
        MemoryError: the packed matrix does not fit into memory.
    """
    cache = default_cache()
    if any(cache.find(routines.key) is None for routines in ROUTINES):
        return None
    like = next((one.values for one in known if one.reads_as(program)), None)
    if like is None:
        parts, _ = packed_parts(program, work, threads)
    else:
        parts = [PackedOperands(program, work, threads, like.parts[0].tensors)]
    texts = [kernel_text(PlanKey(part.plan(part.program, None)))[0] for part in parts]
    if multiplies_padding(program):
        texts += [kernel_text(PlanKey(part.plan(part.program.masked(), True)))[0] for part in parts]
    if not cache.holds(texts):
        return None
    cache.get(texts)
    bound = BoundProgram(program, work, threads, parts)
    return PackedProduct(bound, like or PackedValues(parts, stored), like is None, expected_s, facts)


def multiplies_padding(program: Program) -> bool:
    """Whether a kernel may get a NaN from padding, so that its masked form must be there."""
    return any(
        format.padded and part.can_multiply_padding()
        for part in program.parts
        for format in part.formats.values()
    )


def masked_texts(program: Program, work: Workload) -> list[str]:
    """Return the C texts of the masked form of a program for 32-bit indices; none where it is never needed."""
    if not multiplies_padding(program):
        return []
    renumbered = frozenset(work.sparse) if program.remainder else work.renumbered
    plans = (
        part.masked().plan(
            work.elem, sizes=work.sizes, halves=work.halves, renumbered=renumbered, masked=True
        )
        for part in program.parts
    )
    return [kernel_text(PlanKey(plan))[0] for plan in plans]
