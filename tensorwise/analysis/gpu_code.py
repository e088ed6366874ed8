"""Estimated cycles of kernels on a model GPU, by cause: instructions, sectors, bank conflicts, stalls, blocks.

The estimate is a weighted sum, because little of the work on a GPU overlaps completely. The weights were fitted to run
times on an H200.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from tensorwise.analysis.ptx import PtxKernel, kernels
from tensorwise.analysis.warps import COUNTED, WARP, Warps
from tensorwise.errors import InputError

COSTS: Final[Mapping[str, Mapping[str, float]]] = {
    "issue": {"instructions": 0.064},
    "arithmetic": {"arithmetic": 0.078, "special": 2.1, "convert": 2.1},
    "integer": {"integer": 0.35},
    "shared": {"shared.loaded": 0.51, "shared.stored": 0.51},
    "global": {"load": 0.16, "store": 0.16, "loaded": 0.73, "stored": 2.4},
    "local": {"local": 6.1},
}
"""Cycles of a multiprocessor for one of what warps do."""
WAITING: Final = {"alone": 0.053, "flowing": 0.6}
"""Shares of the cycles that a warp takes which is alone, for each turn of as many blocks as multiprocessors hold."""
BLOCK_START_CYCLES: Final = 134.0
"""Cycles of a multiprocessor to begin a block."""
BEGIN: Final = 3300.0
"""Cycles until a program begins, and until its end is known."""
CYCLES: Final = (*COSTS, "waiting", "blocks")
"""What cycles are for."""
WHOLE: Final = ("launches", "blocks", "threads", "resident", "registers", "frame", "shared")
"""Of a program: its launches. Of its longest kernel: blocks, threads of a block, resident warps of a multiprocessor,
registers of a thread, bytes of local memory of a thread, bytes of shared memory of a block."""
GPU_CODE_NAMES: Final = (
    *COUNTED,
    *(f"cycles.{name}" for name in CYCLES),
    *(f"whole.{name}" for name in WHOLE),
)
HELD: Final = {"warps": 64, "blocks": 32, "registers": 65536, "shared": 227 * 1024}
"""Resources of a multiprocessor, about those of GPUs since 2020."""


class LaunchShape(Protocol):
    """One launch."""

    @property
    def kernel(self) -> str:
        """Its name."""

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks, in two dimensions."""

    @property
    def block(self) -> tuple[int, int]:
        """Threads of a block, in two dimensions."""


def counts(
    text: str, launches: Sequence[LaunchShape], registers: int, frame_bytes: int, multiprocessors: int
) -> dict[str, float]:
    """Return what a program does on a GPU: GPU_CODE_NAMES, ``cycles``, ``instructions`` of warps, and ``flops``.

    Args:
        text: its kernels, as PTX.
        launches: one after the other.
        registers, frame_bytes: of a thread, as the assembler tells them.
        multiprocessors: that the GPU has.

    Raises:
        InputError: a kernel that is launched is not in the text.
    """
    known = {kernel.name: kernel for kernel in kernels(text)}
    if missing := {launch.kernel for launch in launches} - known.keys():
        raise InputError(f"the PTX has no kernel {min(missing)}")
    found = dict.fromkeys((*GPU_CODE_NAMES, "cycles", "instructions", "flops"), 0.0)
    found["cycles"], longest = BEGIN, 0.0
    for launch in launches:
        kernel = known[launch.kernel]
        does = Warps(kernel, launch.grid, launch.block).counted()
        blocks, threads = math.prod(launch.grid), math.prod(launch.block)
        resident = _resident(kernel, threads, registers)
        cycles = {
            name: sum(by * does[what] for what, by in cost.items()) / min(blocks, multiprocessors)
            for name, cost in COSTS.items()
        }
        turns = math.ceil(blocks / multiprocessors / resident)
        cycles["waiting"] = turns * sum(share * does[name] for name, share in WAITING.items())
        cycles["blocks"] = BLOCK_START_CYCLES * blocks / multiprocessors
        for name in (*COUNTED, "instructions", "flops"):
            found[name] += does[name]
        for name, taken in cycles.items():
            found[f"cycles.{name}"] += taken
        found["cycles"] += sum(cycles.values())
        if sum(cycles.values()) > longest:
            longest = sum(cycles.values())
            told = (
                len(launches),
                blocks,
                threads,
                resident * _warps(threads),
                registers,
                frame_bytes,
                kernel.shared_bytes,
            )
            found |= {f"whole.{name}": float(number) for name, number in zip(WHOLE, told, strict=True)}
    return found


def _warps(threads: int) -> int:
    return -(-threads // WARP)


def _resident(kernel: PtxKernel, threads: int, registers: int) -> int:
    """Return the resident blocks of a kernel on a multiprocessor."""
    warps = _warps(threads)
    fitting = (
        HELD["warps"] // warps, HELD["blocks"], HELD["registers"] // max(registers * warps * WARP, 1),
        HELD["shared"] // max(kernel.shared_bytes, 1),
    )  # fmt: skip
    return max(min(fitting), 1)
