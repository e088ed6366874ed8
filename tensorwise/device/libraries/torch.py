"""torch.sparse on the CPU: CSR matrix products, and ``sampled_addmm`` for SDDMM.

torch is imported at the first ``bind``. Index arrays stay 32-bit where they fit: torch hands them
to MKL, which would otherwise convert them at every call.
"""

import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.device.libraries.contraction import contraction
from tensorwise.program.workload import Workload
from tensorwise.runtime.kernel import BoundKernel


class TorchKernel(LibraryKernel):
    """``torch.mv``, ``torch.mm`` and ``torch.sparse.sampled_addmm`` on sparse CSR tensors."""

    name = "torch"
    package = "torch"
    extra = "torch"
    opaque = True

    @classmethod
    def installed(cls) -> bool:
        """Whether torch is found (it is not imported)."""
        return importlib.util.find_spec("torch") is not None

    @classmethod
    def preload(cls) -> None:
        """Import torch: that takes seconds."""
        import torch  # noqa: F401

    def why_not(self, workload: Workload) -> str | None:
        """SpMV, SpMM and SDDMM."""
        shape = contraction(workload)
        if isinstance(shape, str):
            return shape
        if shape.product is None and shape.sampled is None:
            return "torch has routines for sparse matrix products and sampled dense products only"
        return None

    def convert(self, workload: Workload, threads: int) -> BoundKernel:
        """Wrap the entries in a sparse CSR tensor; arrays are shared, not copied."""
        shape = contraction(workload)
        assert not isinstance(shape, str)
        return _Product(workload, threads) if shape.product is not None else _Sampled(workload, threads)


class _Product(BoundKernel):
    def __init__(self, workload: Workload, threads: int) -> None:
        import torch

        shape = contraction(workload)
        assert not isinstance(shape, str)
        assert shape.product is not None
        self._factor = shape.product
        self._threads = threads
        self._columns = tuple(workload.sizes[index] for index in shape.columns)
        self._empty = 0 in (workload.entries.nnz, *workload.entries.shape, *self._columns)
        self._matrix, self.bytes_held = _csr(workload, workload.entries.values)
        self._multiply = torch.mm if self._columns else torch.mv

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Multiply into ``out``'s own memory."""
        if self._empty:
            out.fill(0)
            return
        dense, target = self._arranged(operands[self._factor.operand], out)
        with _threads(self._threads):
            self._multiply(self._matrix, _tensor(dense), out=_tensor(target))

    def ready(self, operands: Sequence[np.ndarray], out: np.ndarray) -> Callable[[], object]:
        """Return ``run`` on tensors that share the arrays' memory."""
        operand = operands[self._factor.operand]
        dense, target = self._arranged(operand, out) if not self._empty else (out, out)
        if self._empty or not np.shares_memory(dense, operand):
            return lambda: self.run(operands, out)
        matrix, multiply, right, result = self._matrix, self._multiply, _tensor(dense), _tensor(target)

        def again() -> None:
            with _threads(self._threads):
                multiply(matrix, right, out=result)

        return again

    def _arranged(self, operand: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the operand and the output as torch multiplies them."""
        if len(self._columns) == 0:
            return np.ascontiguousarray(operand), out
        if len(self._columns) == 1 and self._factor.axes == (0, 1) and operand.flags.forc:
            return operand, out
        return self._factor.matrix(operand), out.reshape(out.shape[0], -1)


class _Sampled(BoundKernel):
    """``sampled_addmm`` gives the dense products at the pattern's places; A's values are multiplied after it.

    Its sum ``beta * input`` starts from a pattern of zeros, since 0 * NaN would be NaN.
    """

    def __init__(self, workload: Workload, threads: int) -> None:
        shape = contraction(workload)
        assert not isinstance(shape, str)
        assert shape.sampled is not None
        self._left, self._right = shape.sampled
        self._threads = threads
        values = workload.entries.values
        self._values = None if bool(np.all(values == 1)) else values
        self._workload = workload
        inner = [workload.sizes[index] for index in shape.summed]
        self._empty = 0 in (workload.entries.nnz, *inner)
        self._pattern, self.bytes_held = _csr(workload, np.zeros_like(values))
        self.bytes_held += 0 if self._values is None else self._values.nbytes

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Compute the sampled products into ``out``'s own memory, then scale them."""
        if self._empty:
            out.fill(0)
            return
        import torch

        left = _tensor(self._left.matrix(operands[self._left.operand]))
        right = _tensor(self._right.matrix(operands[self._right.operand])).t()
        pattern = self._pattern
        target = _wrap(pattern.crow_indices(), pattern.col_indices(), _tensor(out), pattern.shape)
        with _threads(self._threads):
            torch.sparse.sampled_addmm(pattern, left, right, beta=0.0, alpha=1.0, out=target)
            if target.values().data_ptr() != out.ctypes.data:
                np.copyto(out, target.values().numpy())
        if self._values is not None:
            np.multiply(out, self._values, out=out)


def _csr(workload: Workload, values: np.ndarray) -> tuple[Any, int]:
    entries = workload.entries
    index = np.int32 if max(entries.nnz, *entries.shape) < 2**31 else np.int64
    pointers = entries.row_pointers().astype(index, copy=False)
    columns = entries.coordinates[1].astype(index, copy=False)
    held = pointers.nbytes + columns.nbytes + values.nbytes
    return _wrap(_tensor(pointers), _tensor(columns), _tensor(values), entries.shape), held


def _wrap(pointers: Any, columns: Any, values: Any, shape: Sequence[int]) -> Any:
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse .* tensor support is in beta")
        # entries are validated already
        return torch.sparse_csr_tensor(pointers, columns, values, size=tuple(shape), check_invariants=False)


def _tensor(array: np.ndarray) -> Any:
    """A tensor on the same memory; torch warns about read-only arrays, which nobody writes here."""
    import torch

    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        return torch.from_numpy(array)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Run with ``count`` threads and put the user's number back."""
    import torch

    previous = torch.get_num_threads()
    if previous == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(previous)
