"""A Gpu that is none: CUDA text compiled as C++ and run thread by thread (see ``shim.h``)."""

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorwise.errors import MeasurementError
from tensorwise.toolchain.gpu import PRELUDE, SYMBOL, Function, Gpu, Held, Launcher

SHIM = Path(__file__).parent / "shim.h"
COMPILER = shutil.which("g++")
STREAM = 42
"""The only one."""


class ShimGpu(Gpu):
    """Runs launches on the CPU. ``most_blocks`` makes grids smaller, so that blocks get several iterations."""

    name, multiprocessors = "shim", 2

    def __init__(self, folder: Path, seed: int = 0, most_blocks: int = 3) -> None:
        self.folder, self.rng, self.most_blocks = folder, np.random.default_rng(seed), most_blocks
        self.waiting: dict[str, dict[str, str]] = {}
        """Texts that are loaded but not compiled: text -> name -> name among those of other texts."""
        self.known: dict[str, Any] = {}

    def load(self, text: str, names: Sequence[str]) -> Mapping[str, Function]:
        stem = hashlib.sha256(text.encode()).hexdigest()[:16]
        apart = {name: name.replace(SYMBOL, f"k{stem}") for name in names}
        if not set(apart.values()) <= self.known.keys():
            self.waiting[text] = apart
        return apart

    def compile(self) -> None:
        """Compile what waits, in as many files as there are types of indices: the prelude takes longest."""
        groups: dict[str, list[str]] = {}
        names: dict[str, list[str]] = {}
        for text, apart in self.waiting.items():
            head, _, body = text.partition(PRELUDE)
            (stem,) = {name.rpartition("_")[0] for name in apart.values()}
            groups.setdefault(head, []).append(body.replace(SYMBOL, stem))
            names.setdefault(head, []).extend(apart.values())
        self.waiting.clear()
        for head, bodies in groups.items():
            stem = f"{head.split()[-1]}{len(self.known)}"
            file, library = self.folder / f"{stem}.cpp", self.folder / f"{stem}.so"
            entries = "".join(f"TW_SHIM_ENTRY({name})\n" for name in names[head])
            file.write_text(f'#include "{SHIM}"\n{head}{PRELUDE}{"".join(bodies)}\n{entries}')
            options = ["-std=c++14", "-O1", "-w", "-shared", "-fPIC"]
            command = [COMPILER or "g++", *options, str(file), "-o", str(library)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[:4000]
            loaded = ctypes.CDLL(str(library))
            self.known |= {name: loaded[f"run_{name}"] for name in names[head]}

    def upload(self, array: np.ndarray) -> Held:
        return np.array(array).reshape(-1)

    def empty(self, length: int, dtype: np.dtype) -> Held:
        poisoned = np.empty(length, dtype)
        poisoned.fill(np.nan if dtype.kind == "f" else -7)
        return poisoned

    def download(self, held: Held, out: np.ndarray) -> None:
        out[:] = held

    def launch(
        self, function: Function, grid: tuple[int, int], block: tuple[int, int], arguments: Sequence[Any]
    ) -> None:
        if function not in self.known:
            self.compile()
        blocks = [int(self.rng.integers(1, min(count, self.most_blocks) + 1)) for count in grid]
        kept = [
            ctypes.c_void_p(a if isinstance(a, int) else a.ctypes.data)
            if isinstance(a, np.ndarray | int)
            else (ctypes.c_int32 if a.dtype == np.int32 else ctypes.c_int64)(int(a))
            for a in arguments
        ]
        pointers = (ctypes.c_void_p * len(kept))(*(ctypes.addressof(k) for k in kept))
        shape = (ctypes.c_int * 4)(*blocks, *block)
        if self.known[function](pointers, shape, ctypes.c_uint(int(self.rng.integers(2**31)))):
            raise MeasurementError("threads wait for each other for ever")

    def launcher(
        self, function: Function, grid: tuple[int, int], block: tuple[int, int], arguments: Sequence[Any]
    ) -> Launcher:
        def launched(addresses: Mapping[str, int], stream: int) -> None:
            assert stream == STREAM
            self.launch(function, grid, block, [addresses[a] if isinstance(a, str) else a for a in arguments])

        return launched

    def clear(self, address: int, size: int, stream: int) -> None:
        assert stream == STREAM
        ctypes.memset(address, 0, size)

    def fill(self, held: Held, places: Held | None = None) -> None:
        held[places if places is not None else slice(None)] = 0

    def synchronize(self) -> None:
        pass

    def seconds(self, call: Callable[[], object], repeats: int) -> list[float]:
        for _ in range(repeats):
            call()
        return [1e-3] * repeats
