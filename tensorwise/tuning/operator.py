"""The Operator: what tuning returns - a kernel bound to a packed operand, callable like the matrix it replaces."""

import os
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import numpy as np

from tensorwise.device.default import default_kernel as default_kernel
from tensorwise.device.libraries.contraction import Contraction, contraction
from tensorwise.errors import InputError, MeasurementError
from tensorwise.foreign import as_foreign, as_numpy, namespace_of
from tensorwise.lower.program import Program
from tensorwise.moved import forward_names
from tensorwise.program.schedule import LoopPass
from tensorwise.program.workload import Workload
from tensorwise.registry import Registry, needs_function
from tensorwise.runtime.generated import BoundProgram, GeneratedKernel
from tensorwise.runtime.kernel import BoundKernel, Kernel
from tensorwise.tensor.elements import is_float, is_half
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.fibertree import Tensor
from tensorwise.toolchain.forks import lock
from tensorwise.tuning.matrix import Matrix
from tensorwise.tuning.result import TuneResult

if TYPE_CHECKING:
    from tensorwise.front.page import Report

TRANSPOSED: Final = {"spmv": "spmv_t", "spmm": "spmm_t", "spmv_t": "spmv", "spmm_t": "spmm"}
"""Product with a matrix -> that with the matrix transposed."""
MOST_WIDTHS: Final = 8
"""Widths of the dense operand besides the tuned one, whose call layouts are kept."""

MOST_COMPARED_TERMS: Final = 10_000_000
"""Terms of a program with directives of other packages that is compared with the reference when it is bound."""
MATRIX_ONLY: Final = frozenset(
    {"matvec", "rmatvec", "matmat", "rmatmat", "dot", "transpose", "adjoint", "T", "H", "trace", "diagonal"}
)
"""What an operator has only where it stands in for a matrix."""


METHODS: Final[Registry[Callable[..., Any]]] = Registry(
    "method of operators",
    "operator_methods",
    {
        "reduce": "tensorwise.tuning.saving:reduce_operator",
        "save": "tensorwise.tuning.saving:save",
        "transpose": "tensorwise.tuning.related:transpose",
        "widen": "tensorwise.tuning.related:widen",
        "convert": "tensorwise.tuning.related:convert",
        "multiply_by_scipy": "tensorwise.tuning.related:multiply_by_scipy",
        "array": "tensorwise.sparse.operators:array_of",
        "report": "tensorwise.front.reporting:report_of",
    },
    needs_function,
)
"""Name -> what an operator does beyond the calls that it was tuned for. The modules stand on this one: the registry imports
them when they are first used."""


class NoMatrixError(InputError, AttributeError):
    """The operator stands in for no matrix; for ``hasattr`` it lacks what was looked for."""


class Operator:
    """A tuned operation on one sparse operand.

    ``operator(B, ...)`` runs the operation on the dense operands. For products with a matrix it is a `MatrixOperator`,
    which stands in for the matrix as well.

    An operator never changes: its arrays are read-only, ``copy`` and ``deepcopy`` return it. A pickle holds the sparse
    operand and the chosen program, like a file of ``save``. Unpickling packs the operand and compiles the kernel again,
    or takes the kernel from the cache. The unpickled content is validated, but unpickling untrusted data is never safe
    in Python: use ``save`` and ``load`` for files of others.

    Attributes:
        workload: what is computed; the sparse operand's values are those given to ``tune``.
        kernel: name of the kernel: ``tensorwise`` for generated code, or a library's.
        program: format and schedule of generated code, None for a library.
        threads: threads of a call.
        result: what the tuning measured, None for an operator compiled by hand, loaded or unpickled.
        saved_report: of one that was loaded or unpickled the text of the report when it was tuned, else empty.
    """

    def __init__(self, bound: BoundKernel, workload: Workload, threads: int, kernel: Kernel) -> None:
        self.workload, self.threads = workload, threads
        self.kernel = kernel.name
        self.program: Program | None = kernel.program
        self.result: TuneResult | None = None
        self.saved_report = ""
        self._kernel, self._bound = kernel, bound
        self._others: OrderedDict[tuple[int, ...], tuple[Workload, BoundKernel]] = OrderedDict()
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
            ``out``, or a new array, of the operands' library (PyTorch, the array API standard). For SDDMM without
            ``out`` a ``csr_array`` with the operand's pattern (of float32 for float16 and bfloat16, which SciPy
            lacks); ``out`` takes its values, one an entry in row-major order.

        Raises:
            InputError: wrong number, shape or dtype of operands.
        """
        if out is None and self._fast is not None and len(operands) == 1:
            quick = self._fast(operands[0])
            if quick is not None:
                return quick
        namespaces = [namespace_of(operand) for operand in operands]
        if any(namespaces):
            held = [
                operand if of is None else as_numpy(operand, of) for operand, of in zip(operands, namespaces)
            ]
            made = self(*held, out=out)
            return made if made is out else as_foreign(made, next(filter(None, namespaces)))
        work, bound, expected = self.workload, self._bound, self._out
        if not self._as_tuned(operands):
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
        if out is None and work.keeps_pattern and work.entries.order == 2 and made.ndim == 1:
            return _as_csr(made, work.entries)
        return made

    def _as_tuned(self, operands: tuple[np.ndarray, ...]) -> bool:
        """Whether the operands are of the tuned shapes and dtypes."""
        return len(operands) == len(self._shapes) and all(
            isinstance(operand, np.ndarray)
            and operand.shape == shape
            and operand.dtype == dtype
            and not isinstance(operand, np.ma.MaskedArray)
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

    # -- standing in for no matrix ---------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix that it stands in for; of other operations, of the sparse operand."""
        return self.workload.entries.shape

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

    def __getattr__(self, name: str) -> Any:
        if name in MATRIX_ONLY:
            self._no_matrix(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __matmul__(self, other: Any) -> Any:
        self._no_matrix("@")

    def __rmatmul__(self, other: Any) -> Any:
        self._no_matrix("@")

    def _no_matrix(self, what: str) -> NoReturn:
        raise NoMatrixError(
            f"{what} needs an operator for a product with a matrix ({', '.join(TRANSPOSED)}); this one computes "
            f"{self.workload.op if self.workload.op != 'einsum' else self.workload.einsum}"
        )

    # -- copying -----------------------------------------------------------------------------------------------

    def __copy__(self) -> "Operator":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Operator":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: tuple[Any, ...] = METHODS["reduce"](self)
        return reduced

    # -- properties -----------------------------------------------------------------------------------------

    @property
    def format(self) -> str:
        """Storage format of the sparse operand as text, both parts of a hybrid; empty for a library kernel."""
        return self.program.format_text if self.program else ""

    @property
    def schedule(self) -> str:
        """Schedule as text, a hybrid's outlier schedule after a semicolon; empty for a library kernel."""
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
        return self._bound.source

    def report(self) -> "Report":
        """Return what the tuning found as text (kernel, times, costs, calls to break even); its ``save`` writes a page."""
        return METHODS["report"](self)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        chosen = f"{self.format}; {self.schedule}" if self.program else f"kernel {self.kernel}"
        what = f"{type(self).__name__} {self.workload.op} {self.shape} {self.workload.dtype_text}"
        return f"<{what}, {self.threads} threads: {chosen}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write operand and choice to one file, which :func:`load` reads.

        Raises:
            InputError: the file cannot be written.
        """
        METHODS["save"](self, path)


@final
class MatrixOperator(Operator, Matrix):  # type: ignore[override] # where SciPy has attributes there are properties
    """A tuned product with a matrix, or with its transpose: a ``scipy.sparse.linalg.LinearOperator``.

    ``operator @ x``, ``operator(x)``, ``matvec``, ``rmatvec``, ``matmat``, ``rmatmat``, ``T``, ``H``, ``shape`` and
    ``dtype`` are what SciPy's ``cg``, ``gmres``, ``svds``, ``eigsh``, ``lobpcg`` and ``expm_multiply`` ask for; sums,
    products and powers of operators are operators. Operands of other dtypes than the tuned one are computed with as NumPy
    promotes them, see `Matrix`: a matrix tuned in float32 gives float64 where the operand is float64, by a float64 copy of
    it and an untuned kernel. Tune in float64 (``dtype="float64"``) where that is what will be called.
    """

    def __init__(self, bound: BoundKernel, workload: Workload, threads: int, kernel: Kernel) -> None:
        Operator.__init__(self, bound, workload, threads, kernel)
        product = product_of(workload)
        assert product is not None
        self._product, self._column = product
        self._transposed: MatrixOperator | None = None
        self._original: weakref.ref[MatrixOperator] | None = (
            None  # whose T this is; a strong reference would delay freeing both until a garbage collection
        )
        self._wider: dict[np.dtype, MatrixOperator] = {}
        self._plain: dict[np.dtype, Any] = {}
        self.is_long = _is_long(workload.entries)
        if self.is_long:
            self._fast = None

    def __call__(self, *operands: Any, out: np.ndarray | None = None) -> Any:
        """Return ``self @ operand``, or run the operation into ``out``.

        Args:
            operands: one: x (k,) or B (k, n), of any dtype of numbers; a layout that the kernel does not expect is copied.
            out: C-contiguous array for the result, of the dtype that NumPy promotes matrix and operand to (a float);
                overwritten. Then the operand has the number of dimensions that the operator was tuned for.

        Raises:
            InputError: wrong number, shape or dtype of operands.
        """
        if len(operands) != 1:
            return Operator.__call__(self, *operands, out=out)
        (operand,) = operands
        if out is None:
            quick = None if self._fast is None else self._fast(operand)
            return self @ operand if quick is None else quick
        if isinstance(operand, np.ndarray) and (operand.dtype != self.operand_dtype or self.is_long):
            dtype = self.result_dtype(operand.dtype)
            if not is_float(dtype):
                raise InputError(f"a result of {dtype} is not computed into out; leave out= out")
            return Operator.__call__(self._in(dtype), operand.astype(dtype), out=out)
        return Operator.__call__(self, operand, out=out)

    __matmul__ = Matrix.__matmul__
    __rmatmul__ = Matrix.__rmatmul__

    @property  # type: ignore[misc]
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix that the operator represents."""
        rows, columns = self.workload.entries.shape
        return (columns, rows) if self.is_transposed else (rows, columns)

    @property
    def dtype(self) -> np.dtype:  # type: ignore[override]
        """dtype of the given matrix, integers included, or the ``dtype`` passed to ``tune``."""
        return self.workload.entries.given or self.workload.value_dtype

    @property
    def operand_dtype(self) -> np.dtype:
        """dtype of the operands of the tuned kernel; `Matrix` describes how operands of other dtypes are computed."""
        return self._dtypes[0]

    @property
    def array(self) -> Any:
        """The matrix as a frozen sparse array (`tensorwise.sparse.csr_array`), multiplied by this operator's kernel.

        A copy with values of its own: ``array.update(values)`` does not change the operator, which never changes. It is
        kept in the operator's format besides CSR. Of an operator that multiplies by a transpose it is a CSC array, and its
        products are computed in place.

        Raises:
            InputError: the operator keeps its values in 16 bits.
        """
        return METHODS["array"](self)

    def diagonal(self) -> np.ndarray:
        """Return the main diagonal, in ``dtype``; zero where nothing is stored."""
        entries = self.workload.entries
        rows, columns = entries.coordinates
        found = np.zeros(min(self.shape), self.dtype)
        on = rows == columns
        found[rows[on]] = entries.as_given()[on]
        return found

    def trace(self) -> Any:
        """Return the sum of the main diagonal."""
        return self.diagonal().sum()

    def transpose(self, copy: bool | None = None) -> "MatrixOperator":  # type: ignore[override]
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
            InputError: no copy is wanted, but what is stored cannot serve.
        """
        if copy is None and self._original is not None and (original := self._original()) is not None:
            return original
        with self._lock:
            if self._transposed is None or copy is not None:
                made: MatrixOperator = METHODS["transpose"](self, copy)
                made._original = weakref.ref(self)
                self._transposed = made
            return self._transposed

    @property
    def bytes_held(self) -> int:
        """Bytes of the packed operand and workspaces, and of copies in other dtypes."""
        copies = sum(wide.bytes_held + wide.workload.entries.values.nbytes for wide in self._wider.values())
        return self._bound.bytes_held + copies + sum(int(one.data.nbytes) for one in self._plain.values())

    @property
    def is_transposed(self) -> bool:
        """Whether it multiplies by the transpose of the matrix that was given."""
        return self._product.endswith("_t")

    @property
    def width(self) -> int | None:
        """Columns of the operand that it was tuned for, None for a vector."""
        return None if self._column is None else self.workload.sizes[self._column]

    def _quick(self, x: Any) -> np.ndarray | None:
        return None if self._fast is None else self._fast(x)

    def _tuned(self, x: np.ndarray) -> np.ndarray:
        """Return the product with x (k,) or (k, n), n > 0, of the tuned dtype."""
        if x.ndim == 1 and self._column is not None:
            return self._run(x.reshape(-1, 1)).reshape(-1)
        if x.ndim == 2 and self._column is None:
            return self._run(x[:, 0]).reshape(-1, 1) if x.shape[1] == 1 else self._several(x)
        return self._run(x)

    def _run(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(Operator.__call__(self, x))

    def _several(self, X: np.ndarray) -> np.ndarray:
        """Return the product with X (k, n) of an operator for a vector."""
        with self._lock:
            key = (X.shape[1],)
            if key not in self._others:
                self._others[key] = METHODS["widen"](self, X.shape[1])
                if len(self._others) > MOST_WIDTHS:
                    self._others.popitem(last=False)
            other, bound = self._others[key]
        out = np.empty(other.output_shape, other.output_dtype)
        bound.run([X], out)
        return out

    def _in(self, dtype: np.dtype) -> "MatrixOperator":
        """Return the operator for operands of another dtype, and keep it; the transposed one has its transpose."""
        if dtype == self.operand_dtype:
            return self
        with self._lock:
            if dtype not in self._wider:
                turned = self._transposed if self._original is None else self._original()
                known = None if turned is None else turned._wider.get(dtype)
                self._wider[dtype] = METHODS["convert"](self, dtype) if known is None else known.transpose()
            return self._wider[dtype]

    def _by_scipy(self, x: Any) -> Any:
        return METHODS["multiply_by_scipy"](self, x)


def bind(kernel: Kernel, work: Workload, threads: int, in_process: bool = True) -> Operator:
    """Return the operator of ``kernel`` on ``work``.

    Args:
        in_process: the kernel runs on this process's CPU: only then can the operator stand in for a matrix, whose
            transpose, widths and dtypes need other kernels there.

    Raises:
        InputError: the output would not fit into memory; and what ``Kernel.bind`` raises.
    """
    work.check_memory(work.assignment.output.tensor)
    if product_of(work) is None and any(_is_long(entries) for entries in work.sparse.values()):
        raise InputError(
            f"{work.op} of a longdouble operand would be computed in float64; ask for that with dtype='float64'"
        )
    operator = operator_of(kernel.bind(work, threads), work, threads, kernel, in_process)
    foreign = _loop_passes(kernel)
    if foreign and work.terms > MOST_COMPARED_TERMS:
        warnings.warn(
            f"{foreign[0]}: the numbers of a program of so many terms were not compared", stacklevel=2
        )
    elif foreign and (wrong := mismatch(operator)):
        raise MeasurementError(f"{foreign[0]}: a program with this directive computes wrong numbers: {wrong}")
    return operator


def mismatch(operator: Operator) -> str | None:
    """Compare one call of an operator with the reference; return None, or how they differ in words."""
    work = operator.workload
    operands = work.operands(np.random.default_rng(0))
    out = np.full(work.output_shape, np.nan, work.output_dtype)
    Operator.__call__(operator, *operands, out=out)
    return work.reference(operands).mismatch(out)


def _loop_passes(kernel: Kernel) -> list[LoopPass]:
    """The directives of other packages, which nothing proves to compute the same."""
    if not isinstance(kernel, GeneratedKernel):
        return []
    directives = (one for part in kernel.program.parts for one in part.schedule.directives)
    return [one for one in directives if isinstance(one, LoopPass)]


def _is_long(entries: Entries) -> bool:
    return entries.given is not None and entries.given.kind == "f"


def operator_of(
    bound: BoundKernel, work: Workload, threads: int, kernel: Kernel, in_process: bool = True
) -> Operator:
    """Return the operator of a bound kernel: a `MatrixOperator` where it computes a product with a matrix; see `bind`."""
    kind = MatrixOperator if in_process and product_of(work) is not None else Operator
    return kind(bound, work, threads, kernel)


def product_of(work: Workload) -> tuple[str, str | None] | None:
    """Recognise a product of a sparse matrix, or its transpose, and one vector or several, however it is spelled.

    Returns:
        The operation's name, such as ``spmm_t``, and the index of the columns, None for a vector; None for all else.
    """
    shape = contraction(work)
    if not isinstance(shape, Contraction) or len(shape.sparse) != 2 or len(shape.factors) != 1:
        return None
    (factor,) = shape.factors
    if shape.keeps_pattern or shape.summed or len(shape.rows) != 1 or len(shape.columns) > 1:
        return None
    if factor.axes != tuple(range(len(factor.axes))) or factor.free != shape.columns:
        return None
    if {*shape.rows, *factor.bound} != {*shape.sparse} or len(factor.bound) != 1:
        return None
    turned = "_t" if shape.rows == shape.sparse[1:] else ""
    return ("spmm" if shape.columns else "spmv") + turned, next(iter(shape.columns), None)


def _as_csr(values: np.ndarray, entries: Entries) -> Any:
    """Values of entries as a csr_array of its own, which may be changed: these patterns are read-only."""
    made = entries.to_scipy()
    made.data = values.astype(made.dtype) if is_half(values.dtype) else values
    made.indices, made.indptr = made.indices.copy(), made.indptr.copy()
    return made


__getattr__ = forward_names(
    __name__, {"load": "tensorwise.tuning.saving", "unpickled": "tensorwise.tuning.saving"}
)
