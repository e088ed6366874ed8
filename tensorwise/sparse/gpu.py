"""Products of CSR matrices in a GPU's memory, tuned by being used.

A matrix's arrays are read where they lie at each call. The library that the matrix is of computes (CuPy, PyTorch: cuSPARSE)
until programs of this package are compiled, in a thread. Then calls are timed by events on the GPU, for which nobody waits,
and the fastest way stays. The first result of each way is compared with the library's.
"""

import abc
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, final

import numpy as np

from tensorwise.device.gpus import gpu_named
from tensorwise.errors import TensorwiseError
from tensorwise.lower.program import PlanKey, Program
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.launched import cuda_text
from tensorwise.space.cuda import cuda_space
from tensorwise.sparse.limits import autotune, is_reproducible
from tensorwise.sparse.products import MOST_PRODUCTS
from tensorwise.sparse.summary import ProductTuning, Tuning
from tensorwise.sparse.trials import GROWTH, TriedWay, WayTrial
from tensorwise.tensor.convert import entries_from
from tensorwise.toolchain.forks import lock
from tensorwise.toolchain.gpu import NARROW, SYMBOL, Gpu, Held, Launcher, source

_log = logging.getLogger(__name__)
INDEX_TYPES: Final = {"int32": "i32", "int64": "i64"}
FIRST_CALLS: Final = 30
"""Calls before the first trial: a trial of three programs takes about as many."""
ALIGNMENT: Final = 16
"""Bytes to which operands are aligned that programs load in vectors."""
CLOSE: Final = 1 << 10
"""Largest difference of the first results of two ways, in units of the rounding error of the largest element."""


class GpuTimer(Protocol):
    """Times what is queued on the GPU between two calls."""

    def start(self) -> None:
        """Queue the first event."""

    def stop(self) -> None:
        """Queue the second one."""

    def nanoseconds(self) -> int | None:
        """What lay between them, or None while the GPU is not done; never waits."""


class GpuLibrary(abc.ABC):
    """What products need of the library whose arrays they read.

    Attributes:
        name: of the way that it computes.
    """

    name: str

    @abc.abstractmethod
    def gpu(self) -> Gpu:
        """Return the GPU that is in use. Raises MissingExtraError, MeasurementError: there is none."""

    @abc.abstractmethod
    def empty(self, shape: tuple[int, ...], like: Held) -> Held:
        """Return space for an array by rows, of the dtype of ``like``."""

    @abc.abstractmethod
    def address(self, array: Held) -> int:
        """Return where an array by rows lies; 0 for others."""

    @abc.abstractmethod
    def stream(self) -> int:
        """Return the stream on which the library computes now."""

    @abc.abstractmethod
    def timer(self) -> GpuTimer:
        """Return a new timer for that stream."""

    @abc.abstractmethod
    def is_close(self, made: Held, expected: Held, share: float) -> bool:
        """Whether two arrays differ by ``share`` of the largest finite element at most, NaN where the other is; waits."""


@final
@dataclass(frozen=True, eq=False)
class GpuCsr:
    """A CSR matrix in the GPU's memory.

    Attributes:
        data, indices, indptr: arrays of the library.
        shape: rows and columns.
        dtype, index: names of the types of values, and of both arrays of indices, as NumPy has them.
        by_library: multiplies by a dense operand as the library does.
    """

    data: Held
    indices: Held
    indptr: Held
    shape: tuple[int, int]
    dtype: str
    index: str
    by_library: Callable[[Held], Held]

    @property
    def is_read(self) -> bool:
        """Whether programs read these arrays."""
        return (
            self.dtype in ("float32", "float64")
            and self.index in INDEX_TYPES
            and min(*self.shape, len(self.data)) > 0
        )


@final
class GpuWay(TriedWay):
    """A program's launches; without any the library computes.

    Attributes:
        name: what users see.
        launchers: of the program.
        took_ns: nanoseconds of the calls of the best turn of the last trial.
        is_verified: whether a result was compared with the library's.
    """

    same_bits = False

    def __init__(self, name: str, launchers: tuple[Launcher, ...] = ()) -> None:
        self.name, self.launchers = name, launchers
        self.took_ns: list[int] = []
        self.is_verified = not launchers

    @property
    def settle_ns(self) -> int:
        """The first call of a turn: a GPU loads a program when it is launched."""
        return 1


@final
class GpuProduct:
    """Products of one matrix with operands of one number of columns.

    Args:
        library: whose arrays they are.
        matrix: of which programs are made; each call is given the matrix as it is then.
        columns: None: operands are vectors.
    """

    def __init__(self, library: GpuLibrary, matrix: GpuCsr, columns: int | None) -> None:
        self.library, self.columns = library, columns
        self._made_of = matrix
        self.current = GpuWay(library.name)
        self.ways = [self.current]
        self.calls, self._next_calls = 0, FIRST_CALLS
        self._trial: WayTrial[GpuWay] | None = None
        self._timed: tuple[GpuWay, GpuTimer] | None = None
        self._thread: threading.Thread | None = None
        self._lock = lock()

    def multiply(self, matrix: GpuCsr, x: Held) -> Held:
        """Return ``matrix @ x``; ``x`` lies by rows and is of the matrix's dtype."""
        with self._lock:
            self.calls += 1
            if self._trial is None and self.calls >= self._next_calls and autotune() != "off":
                self._begin()
            trial = self._trial
            if trial is None or is_reproducible():
                return self._compute(self.ways[0] if is_reproducible() else self.current, matrix, x)
            if self._timed is not None:
                way, timer = self._timed
                took = timer.nanoseconds()
                if took is None:
                    return self._compute(self.current, matrix, x)
                self._timed = None
                trial.note(way, took)
            tried = trial.next_way()
            if tried is None:
                self._trial, self.current = None, trial.fastest()
                return self._compute(self.current, matrix, x)
            if not tried.is_verified:
                return self._verified(tried, trial, matrix, x)
            timer = self.library.timer()
            timer.start()
            made = self._compute(tried, matrix, x)
            timer.stop()
            self._timed = tried, timer
            return made

    def _compute(self, way: GpuWay, matrix: GpuCsr, x: Held) -> Held:
        if not way.launchers:
            return matrix.by_library(x)
        library = self.library
        rows = matrix.shape[0]
        out = library.empty((rows,) if self.columns is None else (rows, self.columns), x)
        arrays = {
            "A1_pos": matrix.indptr,
            "A1_crd": matrix.indices,
            "A_values": matrix.data,
            "B_values": x,
            "out": out,
        }
        addresses = {name: library.address(array) for name, array in arrays.items()}
        if not all(addresses.values()) or (addresses["B_values"] | addresses["out"]) % ALIGNMENT:
            return matrix.by_library(x)
        for launcher in way.launchers:
            launcher(addresses, library.stream())
        return out

    def _verified(self, way: GpuWay, trial: "WayTrial[GpuWay]", matrix: GpuCsr, x: Held) -> Held:
        """The library's result; ``way`` stays where its own agrees."""
        expected, made = matrix.by_library(x), self._compute(way, matrix, x)
        share = CLOSE * float(np.finfo(matrix.dtype).eps)
        way.is_verified = self.library.is_close(made, expected, share)
        if not way.is_verified:
            _log.warning("%s gave another product than %s and is not used", way.name, self.library.name)
            trial.drop(way)
            self.ways.remove(way)
        return expected

    def _begin(self) -> None:
        """Compile, the first time; begin a trial when there is something to try."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._compile, name="tensorwise-gpu")
            try:
                self._thread.start()
            except RuntimeError:  # no more threads, or the interpreter ends
                self._next_calls = 1 << 62
        elif not self._thread.is_alive():
            self._next_calls = GROWTH * self.calls
            others = [way for way in self.ways if way is not self.current]
            if others:
                self._trial = WayTrial(self.current, others)

    def _compile(self) -> None:
        """In a thread: make the ways that are tried."""
        try:
            made = gpu_ways(self.library.gpu(), self._made_of, self.columns)
        except TensorwiseError as error:
            _log.info("no program for products on the GPU: %s", error)
            return
        self.ways += made


def gpu_ways(gpu: Gpu, matrix: GpuCsr, columns: int | None) -> list[GpuWay]:
    """Return programs that read a CSR matrix where it lies: a row a team of threads, of several widths.

    Raises:
        CompilerError: NVRTC refused a program.
    """
    rows, inner = matrix.shape
    work, found = _example(matrix, columns), list[GpuWay]()
    sizes = {"N_i": rows, "N_k": inner, "N_j": columns or 1, "n_entries": len(matrix.data)}
    narrow = max(max(rows, inner) * (columns or 1), len(matrix.data)) < NARROW
    integer = np.int32 if narrow else np.int64
    known = set[str]()
    for program in _programs(work, gpu):
        if program.accumulate or program.schedule_text in known:
            continue
        known.add(program.schedule_text)
        plan = program.plan(work.elem, sizes=work.sizes)
        index = INDEX_TYPES[matrix.index]
        widths: Any = {name: tuple((index,) * len(one) for one in all) for name, all in plan.widths.items()}
        text, launches, _, _ = cuda_text(PlanKey(replace(plan, widths=widths)))
        names = [launch.name.replace("TW_SYMBOL", SYMBOL) for launch in launches]
        functions = gpu.load(source(text, "int" if narrow else "long long"), names)
        launchers = tuple(
            gpu.launcher(
                functions[name],
                launch.grid(sizes, {}),
                (launch.threads, launch.teams),
                (*launch.buffers, *(integer(sizes[size]) for size in launch.sizes)),
            )
            for name, launch in zip(names, launches, strict=True)
        )
        found.append(GpuWay(program.schedule_text, launchers))
    return found


def _example(matrix: GpuCsr, columns: int | None) -> Workload:
    """A workload of the matrix's shape and types: programs of whole rows depend on nothing else."""
    one = np.zeros(1, np.int64)
    entries = entries_from((matrix.shape, (one, one), np.ones(1, matrix.dtype)))
    return workload("spmv" if columns is None else "spmm", entries, n=columns)


def _programs(work: Workload, gpu: Gpu) -> list[Program]:
    """Programs to try: few threads a row and many, one entry at a time and several."""
    space = cuda_space(work.assignment, "A", gpu_named(gpu.name))
    vector = work.sizes.get("j") is None
    choices = (
        [{"threads": threads} for threads in (2, 8, 32)]
        if vector
        else [{}, {"unroll": 2}, {"threads": 8, "registers": 1}]
    )
    whole_rows = {"layout": "rows", "balance": "none"}
    return [space.program(work, space.complete({**whole_rows, **choice}, work)) for choice in choices]


@final
class GpuProducts:
    """The products of one matrix object."""

    def __init__(self, library: GpuLibrary) -> None:
        self.library = library
        self._products: dict[int | None, GpuProduct] = {}
        self._lock = lock()

    def multiply(self, matrix: GpuCsr, x: Held, dtype: str) -> Held:
        """Return ``matrix @ x``.

        Args:
            matrix: as it is now.
            x: (k,) or (k, n).
            dtype: name of its type; another one than the matrix's is the library's to promote.
        """
        fits = len(x.shape) in (1, 2) and x.shape[0] == matrix.shape[1] and dtype == matrix.dtype
        if not (fits and matrix.is_read and min(x.shape) and self.library.address(x)):
            return matrix.by_library(x)
        columns = None if len(x.shape) == 1 else int(x.shape[1])
        if columns == 1:  # a program of one column is SpMV's, and the library knows which it wants
            return matrix.by_library(x)
        with self._lock:
            product = self._products.get(columns)
            if product is None or not _is_alike(product, matrix):
                while len(self._products) >= MOST_PRODUCTS:
                    self._products.pop(next(iter(self._products)))
                product = self._products[columns] = GpuProduct(self.library, matrix, columns)
        return product.multiply(matrix, x)

    @property
    def tuning(self) -> Tuning:
        """What is known of the products; seconds are of the best turns of the last trial."""
        found = []
        for columns, product in list(self._products.items()):
            what = "A @ x" if columns is None else f"A @ X, {columns} columns"
            tried = {way.name: way.median_ns / 1e9 if way.took_ns else None for way in product.ways}
            spent = sum(sum(way.took_ns) for way in product.ways) / 1e9
            found.append(ProductTuning(what, product.current.name, spent, tried))
        return Tuning(tuple(found), 0.0, 0)


def _is_alike(product: GpuProduct, matrix: GpuCsr) -> bool:
    """Whether programs made for a product's matrix read this one: its arrays may have been replaced."""
    made_of = product._made_of
    return (made_of.shape, made_of.dtype, made_of.index, len(made_of.data)) == (
        matrix.shape,
        matrix.dtype,
        matrix.index,
        len(matrix.data),
    )
