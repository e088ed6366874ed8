"""What running CUDA C++ takes: compile a text, keep arrays in a GPU's memory, launch. CuPy does it on real GPUs.

CuPy is looked for when a GPU is, not before: the extra ``cuda`` brings it. Texts are compiled by NVRTC, once a machine.
"""

import abc
import contextlib
import ctypes
import importlib.util
import logging
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import numpy as np

from tensorwise.errors import CompilerError, InputError, MeasurementError, MissingExtraError
from tensorwise.ids import content_id
from tensorwise.toolchain import forks
from tensorwise.toolchain.cubin import Resources, resources
from tensorwise.toolchain.places import cache_dir, distrusted, private_dir
from tensorwise.toolchain.scratch import scratch_prefix
from tensorwise.toolchain.threads import available_threads
from tensorwise.writing import replacing

_log = logging.getLogger(__name__)

PRELUDE: Final = (Path(__file__).parent / "prelude.cuh").read_text()
SYMBOL: Final = "tw_kernel"
"""What TW_SYMBOL becomes: a module holds the launches of one text."""
NARROW: Final = 2**30
"""Below so many elements and iterations indices are ints, whose products cost a GPU a quarter of the time."""

Held: TypeAlias = Any
"""An array in the memory of a GPU."""
Function: TypeAlias = Any
"""A kernel that can be launched."""
Launcher: TypeAlias = Callable[[Mapping[str, int], int], None]
"""Launches a kernel on arrays at addresses, by name, on a stream, which is an address, too."""


class Gpu(abc.ABC):
    """A GPU, as far as launched programs need one.

    Attributes:
        name: of the model, as it calls itself.
        multiprocessors: how many it has.
        compile_s: seconds spent compiling so far.
    """

    name: str
    multiprocessors: int
    compile_s: float = 0.0

    @property
    def facts(self) -> dict[str, object]:
        """What times depend on, for records."""
        return {"name": self.name, "multiprocessors": self.multiprocessors, "runtime": "", "driver": ""}

    @abc.abstractmethod
    def load(self, text: str, names: Sequence[str]) -> Mapping[str, Function]:
        """Return kernels of a CUDA C++ text by name, compiled unless they were before.

        Raises CompilerError when the text is refused.
        """

    def functions(self, code: bytes, names: Sequence[str]) -> Mapping[str, Function]:
        """Return kernels by name of machine code that was made elsewhere.

        Raises MeasurementError when the GPU cannot run it.
        """
        raise MeasurementError(f"{self.name} runs no machine code")

    def prepare(self, texts: Sequence[str]) -> None:  # noqa: B027 - nothing unless a leaf says so
        """Compile texts side by side, ahead of ``load``; those that are refused are refused there."""

    def resources(self, text: str) -> Resources | None:
        """Return what a thread of a text's kernels takes; None where the machine code does not tell."""
        return None

    @abc.abstractmethod
    def upload(self, array: np.ndarray) -> Held:
        """Return a copy of an array in the GPU's memory."""

    @abc.abstractmethod
    def empty(self, length: int, dtype: np.dtype) -> Held:
        """Return space for ``length`` elements, whatever it holds."""

    @abc.abstractmethod
    def download(self, held: Held, out: np.ndarray) -> None:
        """Wait for all launches and copy what is held into ``out``, one-dimensional."""

    @abc.abstractmethod
    def launch(
        self, function: Function, grid: tuple[int, int], block: tuple[int, int], arguments: Sequence[Any]
    ) -> None:
        """Launch a kernel on arrays that are held and NumPy scalars; returns before it ends."""

    def launcher(
        self, function: Function, grid: tuple[int, int], block: tuple[int, int], arguments: Sequence[Any]
    ) -> Launcher:
        """Return what launches a kernel where its arrays are addresses, in a few microseconds.

        Args:
            arguments: arrays that are held, NumPy scalars, and names of arrays whose addresses each launch is given.

        Raises MeasurementError where there are only arrays.
        """
        raise MeasurementError(f"{self.name} takes no addresses")

    def clear(self, address: int, size: int, stream: int) -> None:
        """Zero ``size`` bytes at an address, on a stream. Raises as ``launcher``."""
        raise MeasurementError(f"{self.name} takes no addresses")

    @abc.abstractmethod
    def fill(self, held: Held, places: Held | None = None) -> None:
        """Zero what is held, all of it or the elements at ``places``."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait for all launches.

        Raises MeasurementError where one of them failed, which leaves the GPU unusable for this process.
        """

    def captured(self, call: Callable[[], object]) -> Callable[[], object] | None:
        """Return a function that replays all launches of ``call`` as one CUDA graph; None where capturing fails."""
        return None

    @abc.abstractmethod
    def seconds(self, call: Callable[[], object], repeats: int) -> list[float]:
        """Return the seconds of each of ``repeats`` calls, as events on the GPU saw them."""


def source(text: str, integer: str) -> str:
    """Return a whole CUDA C++ file: the prelude and a printed text, whose indices are of type ``integer``."""
    return f"#define TW_INT {integer}\n{PRELUDE}\n{text.replace('TW_SYMBOL', SYMBOL)}"


def check_cupy(purpose: str) -> None:
    """Raise MissingExtraError, which says what for, where CuPy is not installed; importing it takes a second."""
    if not has_cupy():
        raise MissingExtraError("CuPy", "cuda", purpose)


def has_cupy() -> bool:
    """Return whether CuPy is installed."""
    return importlib.util.find_spec("cupy") is not None


@cache
def find_gpu(number: int = 0) -> Gpu:
    """Return a GPU of this machine.

    Raises:
        MissingExtraError: CuPy is not installed.
        MeasurementError: there is no GPU, or its driver does not answer; the message says what CUDA said.
    """
    try:
        import cupy
    except ImportError:
        raise MissingExtraError("CuPy", "cuda", "running on a GPU") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MeasurementError(
            f"no GPU can be used here: CUDA says {error}; it takes an NVIDIA GPU and its driver"
        ) from None
    if number >= count:
        raise MeasurementError(f"GPU {number} was asked for, but there are {count}")
    return _CupyGpu(cupy, number)


@final
class _CupyGpu(Gpu):
    """A GPU through CuPy, which brings NVRTC."""

    def __init__(self, cupy: Any, number: int) -> None:
        self._cupy = cupy
        self._device = cupy.cuda.Device(number)
        self._device.use()
        facts = cupy.cuda.runtime.getDeviceProperties(number)
        name = facts["name"]
        self.name = name.decode() if isinstance(name, bytes) else str(name)
        self.multiprocessors = int(facts["multiProcessorCount"])
        self.arch = f"sm_{self._device.compute_capability}"
        self._modules: dict[str, Any] = {}

    @property
    def facts(self) -> dict[str, object]:
        runtime = self._cupy.cuda.runtime
        versions = {"runtime": str(runtime.runtimeGetVersion()), "driver": str(runtime.driverGetVersion())}
        return {**super().facts, "arch": self.arch, "cupy": self._cupy.__version__, **versions}

    def load(self, text: str, names: Sequence[str]) -> Mapping[str, Function]:
        if text not in self._modules:
            start = time.perf_counter()
            path = compiled(text, self.arch)
            self._modules[text] = self._cupy.RawModule(path=str(path))
            self.compile_s += time.perf_counter() - start
        return {name: self._modules[text].get_function(name) for name in names}

    def functions(self, code: bytes, names: Sequence[str]) -> Mapping[str, Function]:
        module = self._cupy.cuda.function.Module()
        try:
            module.load(code)
            return {name: module.get_function(name) for name in names}
        except self._cupy.cuda.driver.CUDADriverError as error:
            raise MeasurementError(f"{self.name} cannot run the machine code: {error}") from error

    def resources(self, text: str) -> Resources | None:
        try:
            return resources(compiled(text, self.arch).read_bytes())
        except InputError:
            return None

    def prepare(self, texts: Sequence[str]) -> None:
        start = time.perf_counter()

        def one(text: str) -> None:
            with contextlib.suppress(CompilerError):
                compiled(text, self.arch)

        with ThreadPoolExecutor(available_threads(), "tensorwise-nvrtc") as pool:
            list(pool.map(one, dict.fromkeys(texts)))
        self.compile_s += time.perf_counter() - start

    def upload(self, array: np.ndarray) -> Held:
        return self._cupy.asarray(np.ascontiguousarray(array).reshape(-1))

    def empty(self, length: int, dtype: np.dtype) -> Held:
        return self._cupy.empty(length, dtype)

    def download(self, held: Held, out: np.ndarray) -> None:
        self.synchronize()
        out[:] = held.get()

    def launch(
        self, function: Function, grid: tuple[int, int], block: tuple[int, int], arguments: Sequence[Any]
    ) -> None:
        function(grid, block, tuple(arguments))

    def launcher(
        self, function: Function, grid: tuple[int, int], block: tuple[int, int], arguments: Sequence[Any]
    ) -> Launcher:
        kernel, launch = function.kernel.ptr, self._cupy.cuda.driver.launchKernel
        grid, block = (int(grid[0]), int(grid[1])), (int(block[0]), int(block[1]))
        # A slot of eight bytes for each argument: a smaller one is at its beginning.
        slots, names = (ctypes.c_int64 * len(arguments))(), dict[int, str]()
        for place, given in enumerate(arguments):
            if isinstance(given, str):
                names[place] = given
            else:
                slots[place] = int(given) if isinstance(given, np.generic) else given.data.ptr
        begin = ctypes.addressof(slots)
        pointers = (ctypes.c_void_p * len(arguments))(*(begin + 8 * k for k in range(len(arguments))))
        table, held, lock = ctypes.addressof(pointers), (slots, pointers, arguments), forks.lock()

        def launched(addresses: Mapping[str, int], stream: int) -> None:
            with lock:  # CUDA copies the arguments before it returns, but Python's lock is not held meanwhile
                for place, name in names.items():
                    held[0][place] = addresses[name]
                launch(kernel, *grid, 1, *block, 1, 0, stream, table, 0)

        return launched

    def clear(self, address: int, size: int, stream: int) -> None:
        self._cupy.cuda.runtime.memsetAsync(address, 0, size, stream)

    def fill(self, held: Held, places: Held | None = None) -> None:
        if places is None:
            held.fill(0)
        else:
            held[places] = 0

    def synchronize(self) -> None:
        try:
            self._cupy.cuda.get_current_stream().synchronize()
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            raise MeasurementError(f"a launch failed: CUDA says {error}") from error

    def captured(self, call: Callable[[], object]) -> Callable[[], object] | None:
        errors = self._cupy.cuda.runtime.CUDARuntimeError, RuntimeError
        self.synchronize()
        with self._cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            try:
                call()
                graph = stream.end_capture()
            except errors:  # what was captured until then is not the call
                with contextlib.suppress(*errors):
                    stream.end_capture()
                return None
        return lambda: graph.launch(self._cupy.cuda.get_current_stream())

    def seconds(self, call: Callable[[], object], repeats: int) -> list[float]:
        events = [self._cupy.cuda.Event() for _ in range(repeats + 1)]
        self.synchronize()
        events[0].record()
        for event in events[1:]:
            call()
            event.record()
        self.synchronize()
        pairs = pairwise(events)
        return [1e-3 * self._cupy.cuda.get_elapsed_time(first, second) for first, second in pairs]


def compiled(text: str, arch: str, standard: str = "c++14") -> Path:
    """Return the file of a text's machine code for GPUs such as ``sm_90``; NVRTC makes it unless it is there.

    No GPU is needed.

    Raises:
        MissingExtraError: CuPy, which brings NVRTC, is not installed.
        CompilerError: NVRTC refused the text; the message has the first lines of what it said.
    """
    options = _options(arch, standard)
    key = content_id([text, *options, repr(_nvrtc().getVersion())])
    path = cache_dir() / "cuda" / f"{key}.cubin"
    fault = None
    with contextlib.suppress(FileNotFoundError):
        fault = distrusted(path)
        if fault is None:
            return path
    code, _ = assembled(text, arch, standard)
    if fault is not None:
        _log.warning("compiled code for GPUs is not kept: %s", fault)
        path = Path(tempfile.mkdtemp(prefix=scratch_prefix("cuda"))) / path.name
    with replacing(private_dir(path.parent) / path.name) as file:
        file.write(code)
    return path


def assembled(text: str, arch: str, standard: str = "c++14") -> tuple[bytes, str]:
    """Return a text's machine code for GPUs such as ``sm_90``, and the PTX that it is made of, from NVRTC.

    Raises: as `compiled`.
    """
    nvrtc = _nvrtc()
    program = nvrtc.createProgram(text, "kernel.cu", (), ())
    try:
        nvrtc.compileProgram(program, _options(arch, standard))
        code, ptx = nvrtc.getCUBIN(program), nvrtc.getPTX(program)
    except nvrtc.NVRTCError as error:
        said = nvrtc.getProgramLog(program).strip().splitlines()[:20]
        raise CompilerError("\n".join([f"NVRTC refused a kernel: {error}", *said])) from error
    finally:
        nvrtc.destroyProgram(program)
    return code, ptx if isinstance(ptx, str) else ptx.decode()


def _options(arch: str, standard: str) -> tuple[str, ...]:
    return f"-arch={arch}", f"-std={standard}"


def _nvrtc() -> Any:
    try:
        from cupy.cuda import nvrtc
    except ImportError:
        raise MissingExtraError("CuPy", "cuda", "compiling for a GPU") from None
    return nvrtc
