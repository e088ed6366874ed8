"""Products of dense matrices on a GPU by kernels of our own: one thread an element in CUDA C++, and tiles in Triton."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from selections.laid_out import LaidOut
from tensorwise.selection import Selection
from tensorwise.toolchain.gpu import SYMBOL, Gpu, Held, source

SIDE: Final = 16
"""A block of the naive kernel makes so many rows and columns of C."""
NAIVE: Final = """
extern "C" __global__ void TW_SYMBOL_product(const float *a, const float *b, float *c, int m, int n, int k, int relu)
{
    for (int i = blockIdx.y * blockDim.y + threadIdx.y; i < m; i += gridDim.y * blockDim.y)
        for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < n; j += gridDim.x * blockDim.x) {
            float sum = 0;
            for (int l = 0; l < k; l++)
                sum += a[(long long)i * k + l] * b[(long long)l * n + j];
            c[(long long)i * n + j] = relu && sum < 0 ? 0 : sum;
        }
}
"""
NAME: Final = f"{SYMBOL}_product"
MOST_BLOCKS: Final = 65535
"""Of a grid's second dimension."""


def dense(one: LaidOut) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return A and B of a product, dense, and whether negative results become 0; MemoryError without room for A."""
    _, whole, b, relu = one.operands
    if whole is None:
        raise MemoryError("the operand has no dense form")
    return whole, b, relu


def add_naive(made: Selection, gpu: Gpu) -> None:
    """Register ``gpu naive``: Algorithm 3 of the paper, a thread an element."""

    def bring(one: LaidOut) -> tuple[Any, ...]:
        a, b, relu = dense(one)
        return gpu.upload(a), gpu.upload(b), (a.shape[0], b.shape[1], a.shape[1]), relu

    def product(a: Held, b: Held, sizes: tuple[int, int, int], relu: bool) -> tuple[Held, tuple[int, int]]:
        m, n, _ = sizes
        function = gpu.load(source(NAIVE, "int"), [NAME])[NAME]
        c, grid = gpu.empty(m * n, np.dtype(np.float32)), (-(-n // SIDE), min(MOST_BLOCKS, -(-m // SIDE)))
        gpu.launch(function, grid, (SIDE, SIDE), (a, b, c, *map(np.int32, (*sizes, relu))))
        gpu.synchronize()
        return c, (m, n)

    def fetch(result: tuple[Held, tuple[int, int]]) -> np.ndarray:
        held, (m, n) = result
        out = np.empty(m * n, np.float32)
        gpu.download(held, out)
        return out.reshape(m, n)

    made.version(product, name="gpu naive", device="gpu", bring=bring, fetch=fetch)


def add_tiles(made: Selection, there: Callable[[np.ndarray], Any], back: Callable[[Any], np.ndarray]) -> None:
    """Register ``gpu triton``: tiles of C from tiles of A and B.

    Args:
        there: moves an array into a tensor of the device; back: a tensor into an array, which waits.

    Raises:
        ImportError: Triton is not installed.
    """
    from selections.triton_tiles import product

    def bring(one: LaidOut) -> tuple[Any, ...]:
        a, b, relu = dense(one)
        return there(a), there(b), relu

    made.version(product, name="gpu triton", device="gpu", bring=bring, fetch=back)
