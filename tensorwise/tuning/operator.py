"""The Operator: what tuning returns - a kernel bound to a packed operand, callable like the matrix it replaces."""

import os
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, final

import numpy as np

from tensorwise.device.library import LIBRARY
from tensorwise.errors import InputError, TensorwiseError
from tensorwise.program.generated import BoundProgram, GeneratedKernel
from tensorwise.program.kernel import BoundKernel, Kernel
from tensorwise.program.program import Program
from tensorwise.program.workload import Workload, workload
from tensorwise.space.cpu import cpu_space_of
from tensorwise.tensor.fibertree import Tensor
from tensorwise.toolchain.forks import lock
from tensorwise.tuning.result import TuneResult
from tensorwise.tuning.saving import read, save
from tensorwise.tuning.transposed import over, transposed

TRANSPOSED: Final = {"spmv": "spmv_t", "spmm": "spmm_t", "spmv_t": "spmv", "spmm_t": "spmm"}
"""Product with a matrix -> that with the matrix transposed."""
SEVERAL: Final = {"spmv": "spmm", "spmv_t": "spmm_t"}
"""Product with a vector -> that with several, side by side."""
MOST_WIDTHS: Final = 8
"""Widths of the dense operand besides the tuned one, whose call layouts are kept."""


@final
class Operator:
    """A tuned operation on one sparse operand.

    ``operator(B, ...)`` runs the operation on the dense operands. For SpMV and SpMM the operator also
    stands in for the matrix, or for the transposed one: ``operator @ X``, ``matvec``, ``rmatvec``, ``matmat``,
    ``rmatmat``, ``shape`` and ``dtype`` are what SciPy's ``cg``, ``gmres``, ``svds``, ``eigsh`` and ``lobpcg`` ask for.

    Attributes:
        workload: what is computed; the sparse operand's values are those given to ``tune``.
        kernel: name of the kernel: ``tensorwise`` for generated code, or a library's.
        program: format and schedule of generated code, None for a library.
        threads: threads of a call.
        result: what the tuning measured, None for an operator compiled by hand or loaded.
    """

    def __init__(self, bound: BoundKernel, workload: Workload, threads: int, kernel: Kernel) -> None:
        self.workload, self.threads = workload, threads
        self.kernel = kernel.name
        self.program: Program | None = kernel.program if isinstance(kernel, GeneratedKernel) else None
        self.result: TuneResult | None = None
        self._kernel, self._bound = kernel, bound
        self._others: OrderedDict[tuple[int, ...], tuple[Workload, BoundKernel]] = OrderedDict()
        self._transposed: Operator | None = None
        self._original: weakref.ref[Operator] | None = (
            None  # whose T this is; were it held, neither would be freed at once
        )
        self._lock = lock()
        self._fast = bound.fast_call() if isinstance(bound, BoundProgram) else None
        # Asked once: a small kernel runs in the time that these answers take.
        self._shapes = tuple(workload.shape(name) for name in workload.dense)
        self._dtypes = tuple(workload.dtype_of(name) for name in workload.dense)
        self._out = workload.output_shape, workload.output_dtype

    # -- calling ----------------------------------------------------------------------------------------

    def __call__(self, *operands: np.ndarray, out: np.ndarray | None = None) -> Any:
        """Run the operation.

        Args:
            operands: the dense operands in the einsum's order: B (k,) or (k, j) for SpMV and SpMM, B (i, k)
                and D (k, j) for SDDMM, the factor matrices for MTTKRP. Their dtype is that they were tuned for.
                The dense-only extent may differ from the tuned one; a layout that the kernel does not
                expect is copied.
            out: C-contiguous array for the result, overwritten.

        Returns:
            ``out``, or a new array. For SDDMM without ``out`` a ``csr_array`` with the operand's pattern
            (of float32 for float16 and bfloat16, which SciPy lacks); ``out`` takes its values, one an entry in
            row-major order.

        Raises:
            InputError: wrong number, shape or dtype of operands.
        """
        if out is None and self._fast is not None and len(operands) == 1:
            quick = self._fast(operands[0])
            if quick is not None:
                return quick
        work, bound, expected = self.workload, self._bound, self._out
        if not self._as_tuned(operands):
            if out is None and work.op in SEVERAL and np.ndim(operands[0] if operands else 0) == 2:
                return self.matmat(self._own_dtype(operands[0]))  # SciPy's lobpcg calls what can be called
            work, bound = self._for(operands)
            work.check_operands(operands)
            expected = work.output_shape, work.output_dtype
        if out is None:
            made = np.empty(*expected)
        else:
            made = self._checked(out, expected)
            if any(np.may_share_memory(out, operand) for operand in operands):
                raise InputError(
                    "out shares memory with an operand, which would be overwritten while it is read"
                )
        bound.run(operands, made)
        if out is None and work.keeps_pattern and work.entries.order == 2:
            return work.entries.with_values(made).to_scipy()
        return made

    def _own_dtype(self, operand: np.ndarray) -> np.ndarray:
        (dtype,) = self._dtypes
        if not isinstance(operand, np.ndarray) or operand.dtype != dtype:
            got = operand.dtype if isinstance(operand, np.ndarray) else type(operand).__name__
            raise InputError(f"operand must be a {dtype} array, got {got}; `operator @ X` converts")
        return operand

    def _as_tuned(self, operands: tuple[np.ndarray, ...]) -> bool:
        """Whether the operands are of the tuned shapes and dtypes."""
        return len(operands) == len(self._shapes) and all(
            isinstance(operand, np.ndarray) and operand.shape == shape and operand.dtype == dtype
            for operand, shape, dtype in zip(operands, self._shapes, self._dtypes)
        )

    def _checked(self, out: np.ndarray, expected: tuple[tuple[int, ...], np.dtype]) -> np.ndarray:
        if (
            not isinstance(out, np.ndarray)
            or (out.shape, out.dtype) != expected
            or not out.flags.c_contiguous
        ):
            got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
            raise InputError(
                f"out must be a C-contiguous {expected[1]} array of shape {expected[0]}, got {got}"
            )
        if not out.flags.writeable:
            raise InputError("out is read-only; give a writable array")
        return out

    def _for(self, operands: tuple[np.ndarray, ...]) -> tuple[Workload, BoundKernel]:
        """Return the workload and kernel for the operands' dense-only extents."""
        free = self._free()
        if not free or len(operands) != len(self.workload.dense):
            return self.workload, self._bound
        sizes = dict(self.workload.sizes)
        for name, operand in zip(self.workload.dense, operands, strict=True):
            indices = self.workload.assignment.access(name).indices
            for index, extent in zip(indices, getattr(operand, "shape", ()), strict=False):
                if index in free and len(operand.shape) == len(indices):
                    sizes[index] = extent
        key = tuple(sizes[index] for index in free)
        if key == tuple(self.workload.sizes[index] for index in free):
            return self.workload, self._bound
        if min(key) == 0:
            raise InputError(
                f"the dense operands of {self.workload.op} have an extent of 0; give at least one column"
            )
        with self._lock:
            if key not in self._others:
                other = replace(self.workload, sizes=sizes)
                bound = self._bound
                rebound = (
                    bound.resized(other)
                    if isinstance(bound, BoundProgram)
                    else self._kernel.bind(other, self.threads)
                )
                self._others[key] = other, rebound
                if len(self._others) > MOST_WIDTHS:
                    self._others.popitem(last=False)
            self._others.move_to_end(key)
            return self._others[key]

    def _free(self) -> tuple[str, ...]:
        stored = self.workload.assignment.indices_of(self.workload.sparse)
        return tuple(i for i in self.workload.assignment.indices if i not in stored)

    # -- standing in for the matrix -----------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix that it stands in for; of other operations, of the sparse operand."""
        shape = self.workload.entries.shape
        return shape[::-1] if self.workload.op.endswith("_t") else shape

    @property
    def dtype(self) -> np.dtype:
        """dtype of the results: that of all operands, or float32 where float32 and halves are mixed."""
        return self.workload.value_dtype

    @property
    def ndim(self) -> int:
        """Number of modes of the sparse operand."""
        return self.workload.entries.order

    __array_ufunc__ = None
    """NumPy leaves ``array @ operator`` to us."""

    def __matmul__(self, other: np.ndarray) -> np.ndarray:
        """Return ``A @ other`` for a vector or matrix; other dtypes are converted to the tuned one."""
        other = self._converted(other)
        return self.matvec(other) if other.ndim == 1 else self.matmat(other)

    def __rmatmul__(self, other: np.ndarray) -> np.ndarray:
        """Return ``other @ A`` for a vector or matrix."""
        other = self._converted(other)
        return self.rmatvec(other) if other.ndim == 1 else self.rmatmat(other.T).T

    def matvec(self, x: np.ndarray) -> np.ndarray:
        """Return A x for x of shape (k,) or (k, 1)."""
        self._as_matrix("matvec")
        x = self._converted(x)
        if x.shape not in ((self.shape[1],), (self.shape[1], 1)):
            raise InputError(
                f"matvec takes an array of shape ({self.shape[1]},) or ({self.shape[1]}, 1), got {x.shape}"
            )
        flat = x.reshape(-1)
        if self.workload.op in SEVERAL:
            made: np.ndarray = self(flat)
        else:
            made = self(flat.reshape(-1, 1))[:, 0]
        return made if np.ndim(x) == 1 else made.reshape(-1, 1)

    def matmat(self, X: np.ndarray) -> np.ndarray:
        """Return A X for X of shape (k, n).

        An operator for one vector takes the default kernel for n of them, and stores what that wants once for all n,
        unless it is stored already.
        """
        self._as_matrix("matmat")
        X = self._converted(X)
        if X.ndim != 2 or X.shape[0] != self.shape[1]:
            raise InputError(f"matmat takes an array of shape ({self.shape[1]}, n), got {X.shape}")
        if X.shape[1] == 0:
            return np.empty((self.shape[0], 0), self.dtype)
        if self.workload.op not in SEVERAL:
            return np.asarray(self(X))
        with self._lock:
            key = (X.shape[1],)
            if key not in self._others:
                other = self._related(SEVERAL[self.workload.op], X.shape[1])
                kernel = default_kernel(other)
                packed = (self._bound, *(bound for _, bound in self._others.values()))
                alike = filter(None, (over(bound, kernel, other) for bound in packed))
                self._others[key] = other, next(alike, None) or kernel.bind(other, self.threads)
                if len(self._others) > MOST_WIDTHS:
                    self._others.popitem(last=False)
            other, bound = self._others[key]
        out = np.empty(other.output_shape, other.output_dtype)
        bound.run([X], out)
        return out

    def rmatvec(self, x: np.ndarray) -> np.ndarray:
        """Return A^T x; the first call makes ``T``."""
        return self.T.matvec(x)

    def rmatmat(self, X: np.ndarray) -> np.ndarray:
        """Return A^T X; the first call makes ``T``."""
        return self.T.matmat(X)

    @property
    def T(self) -> "Operator":  # noqa: N802 - as NumPy and SciPy call it
        """The transposed operator, see ``transpose``."""
        return self.transpose()

    def transpose(self, copy: bool | None = None) -> "Operator":
        """Return the transposed operator, and keep it for ``T``, ``rmatvec`` and ``rmatmat``.

        It runs over what this one has stored, or over a copy stored for it in the default format. A copy takes the
        time of a conversion and about the memory of a compressed matrix; ``bytes_held`` of the operator returned
        tells, and counts what is shared as well.

        Args:
            copy: whether a copy is stored. None: where the matrix is small, where a few timed calls show that it is
                faster, or where nothing else is possible. False: never, even if calls then take longer: it saves
                memory, and conversion where there are few calls (but see ``matmat`` of operators for one vector).
                True: unless the default format is stored already.

        Raises:
            InputError: this is no product with a matrix; or no copy is wanted, but what is stored cannot serve.
        """
        self._as_matrix("the transpose")
        if copy is None and self._original is not None and (original := self._original()) is not None:
            return original
        with self._lock:
            if self._transposed is None or copy is not None:
                work = self._related(TRANSPOSED[self.workload.op], self.workload.sizes.get("j"))
                work.check_memory(work.assignment.output.tensor)
                kernel, bound = transposed(self._bound, default_kernel(work), work, self.threads, copy)
                self._transposed = Operator(bound, work, self.threads, kernel)
                self._transposed._original = weakref.ref(self)
            return self._transposed

    def _related(self, op: str, n: int | None) -> Workload:
        """Another product with the same matrix."""
        return workload(op, self.workload.entries, n=n, dtypes=self.workload.dtypes)

    def _as_matrix(self, what: str) -> None:
        if self.workload.op not in TRANSPOSED:
            raise InputError(
                f"{what} needs an operator for {', '.join(TRANSPOSED)}; this one computes {self.workload.op}"
            )

    def _converted(self, x: Any) -> np.ndarray:
        if hasattr(x, "toarray"):
            raise InputError(f"operands must be dense, got a sparse {type(x).__name__}; use .toarray()")
        if np.iscomplexobj(x):
            raise InputError(
                "complex operands are not supported; apply the operator to real and imaginary parts"
            )
        return np.asarray(x, dtype=self._dtypes[0])

    # -- telling --------------------------------------------------------------------------------------------

    @property
    def format(self) -> str:
        """Storage format of the sparse operand as text, both parts of a hybrid; empty for a library kernel."""
        return self.program.format_text if self.program else ""

    @property
    def schedule(self) -> str:
        """Schedule as text, that of a hybrid's part set apart behind a semicolon; empty for a library kernel."""
        return self.program.schedule_text if self.program else ""

    @property
    def bytes_held(self) -> int:
        """Bytes of the packed operand and workspaces."""
        return self._bound.bytes_held

    @property
    def conversion_s(self) -> float:
        """Seconds that packing or converting the operand took."""
        return self._bound.conversion_s

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The packed sparse operands by name; empty for a library kernel."""
        return self._bound.tensors if isinstance(self._bound, BoundProgram) else {}

    def source(self) -> str:
        """Return the C text of generated code; empty for a library kernel."""
        return self._bound.source if isinstance(self._bound, BoundProgram) else ""

    def report(self) -> str:
        """Return what the tuning found as text: format and schedule, times, costs, calls to break even."""
        if self.result is None:
            return repr(self)
        return self.result.text()

    def __repr__(self) -> str:
        chosen = f"{self.format}; {self.schedule}" if self.program else f"kernel {self.kernel}"
        return f"<Operator {self.workload.op} {self.shape} {self.workload.dtype_text}, {self.threads} threads: {chosen}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write operand and choice to one file, which :func:`load` reads.

        Raises:
            InputError: the file cannot be written.
        """
        save(self, path)


def load(path: str | os.PathLike[str], matrix: Any = None, *, check_machine: bool = True) -> Operator:
    """Read an operator that ``Operator.save`` wrote: pack its operand again and compile it through the cache.

    Args:
        path: the file.
        matrix: the sparse operand, of the same pattern, whose values are to be used in place of the
            stored ones; anything that ``tune`` takes.
        check_machine: refuse a file written on other hardware, where the choice may be a poor one.

    Returns:
        The operator; ``result`` is None. It runs on the threads it was tuned for, or on as many as this
        process may use if these are fewer.

    Raises:
        InputError: the file is missing, damaged or no operator; it belongs to another machine or matrix.
        MissingExtraError: the chosen library is not installed here.
        CompilerError: the chosen kernel is generated code, and no compiler works here.
    """
    kernel, work, threads = read(path, matrix, check_machine)
    return bind(kernel, work, threads)


def bind(kernel: Kernel, work: Workload, threads: int) -> Operator:
    """Return the operator of ``kernel`` on ``work``.

    Raises:
        InputError: the output would not fit into memory; and what ``Kernel.bind`` raises.
    """
    work.check_memory(work.assignment.output.tensor)
    return Operator(kernel.bind(work, threads), work, threads, kernel)


def default_kernel(work: Workload) -> Kernel:
    """Return the kernel used without tuning: the space's default program, or SciPy without a compiler."""
    from tensorwise.toolchain.compiler import find_compiler

    try:
        find_compiler()
    except TensorwiseError:
        return LIBRARY["scipy"]()
    space = cpu_space_of(work)
    return GeneratedKernel(space.program(work, space.default(work)))
