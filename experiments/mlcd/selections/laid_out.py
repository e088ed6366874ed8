"""Inputs whose versions differ in what they compute, and not in what it takes to call them."""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, final

import numpy as np

from tensorwise.runtime.kernel import address
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.runtime import driver_address

HERE = Path(__file__).parent
PRELUDE = HERE.parents[2] / "tensorwise" / "toolchain" / "prelude.h"


@final
class LaidOut:
    """One input, with a call for each version that finds everything in place: forms of the operands, arguments, a result.

    The smallest inputs take less time than Python takes to prepare a call; the paper's versions are called from C++.

    Attributes:
        features: what the choice may depend on, in the order of the function's fields.
        operands: for versions on other devices, which move them.
        described_s: seconds that reading the features from the data took: sampled zeros, spreads, a graph's statistics.
    """

    def __init__(
        self, features: Sequence[float], operands: tuple[Any, ...] = (), described_s: float = 0.0
    ) -> None:
        self.features, self.operands, self.described_s = tuple(features), operands, described_s
        self._calls: dict[str, tuple[Callable[[], object], Any]] = {}

    def add(self, version: str, call: Callable[[], object], result: Any) -> None:
        """Keep the call of a version, which leaves its answer in ``result``."""
        self._calls[version] = call, result

    def run(self, version: str) -> Any:
        """Call a version and return its result, which its next call overwrites.

        Raises:
            MemoryError: the version is not tried on inputs of this size.
        """
        try:
            call, result = self._calls[version]
        except KeyError:
            raise MemoryError(f"{version} is not tried on inputs of this size") from None
        call()
        return result


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(default_cache().library(sorted(HERE.glob("*.c")), [PRELUDE])))


def compiled(function: str, arrays: Sequence[np.ndarray | int], sizes: Sequence[int]) -> Callable[[], int]:
    """Return a call of a function of this folder's C files; what it returns is the call's answer.

    Args:
        arrays: ``buffers[1]`` and so on, arrays that lie by rows or addresses; ``buffers[0]`` is the parallel driver.
        sizes: ``sizes[0]`` and so on.

    Raises:
        CompilerError: no compiler works here.
    """
    entry = _library()[function]
    held = tuple(arrays)  # they live as long as the call
    places = (address(one) if isinstance(one, np.ndarray) else one for one in held)
    buffers = (ctypes.c_void_p * (1 + len(held)))(driver_address(), *places)
    extents = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)

    def call(_held: object = held) -> int:
        answer: int = entry(buffers, extents)
        return answer

    return call
