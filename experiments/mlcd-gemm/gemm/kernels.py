"""Two products of dense matrices in C: as it is written down, and in blocks that threads share out."""

import ctypes
from functools import cache
from typing import Final

import numpy as np

from tensorwise.program.kernel import address
from tensorwise.toolchain.cache import LoadedKernel, default_cache
from tensorwise.toolchain.runtime import driver_address

NAIVE: Final = """
/* MLCD, Algorithm 3. */
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    const float *a = buffers[1], *b = buffers[2];
    float *c = buffers[3];
    const int64_t m = sizes[0], n = sizes[1], k = sizes[2];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++) sum += a[i * k + l] * b[l * n + j];
            c[i * n + j] = sum;
        }
    return 0;
}
"""

BLOCKED: Final = """
/* Four rows at a time take a block of B, 128 rows by 256 columns, which stays in the second-level cache. */
enum { TW_SYMBOL_ROWS = 4, TW_SYMBOL_DEEP = 128, TW_SYMBOL_WIDE = 256 };
typedef struct { const float *a, *b; float *c; int64_t m, n, k; } TW_SYMBOL_of;

__attribute__((optimize("O3")))
static void TW_SYMBOL_rows(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    const TW_SYMBOL_of *of = context;
    const int64_t m = of->m, n = of->n, k = of->k;
    const int64_t first = lo * TW_SYMBOL_ROWS, last = tw_min_i64(hi * TW_SYMBOL_ROWS, m);
    __builtin_memset(of->c + first * n, 0, (size_t)((last - first) * n) * sizeof(float));
    for (int64_t l0 = 0; l0 < k; l0 += TW_SYMBOL_DEEP)
        for (int64_t j0 = 0; j0 < n; j0 += TW_SYMBOL_WIDE) {
            const int64_t l1 = tw_min_i64(l0 + TW_SYMBOL_DEEP, k), width = tw_min_i64(TW_SYMBOL_WIDE, n - j0);
            int64_t i = first;
            for (; i + TW_SYMBOL_ROWS <= last; i += TW_SYMBOL_ROWS) {
                float *restrict c0 = of->c + i * n + j0, *restrict c1 = c0 + n, *restrict c2 = c1 + n, *restrict c3 = c2 + n;
                for (int64_t l = l0; l < l1; l++) {
                    const float *restrict b = of->b + l * n + j0, *a = of->a + i * k + l;
                    const float a0 = a[0], a1 = a[k], a2 = a[2 * k], a3 = a[3 * k];
                    for (int64_t j = 0; j < width; j++) {
                        c0[j] += a0 * b[j]; c1[j] += a1 * b[j]; c2[j] += a2 * b[j]; c3[j] += a3 * b[j];
                    }
                }
            }
            for (; i < last; i++) {
                float *restrict c0 = of->c + i * n + j0;
                for (int64_t l = l0; l < l1; l++) {
                    const float *restrict b = of->b + l * n + j0, a0 = of->a[i * k + l];
                    for (int64_t j = 0; j < width; j++) c0[j] += a0 * b[j];
                }
            }
        }
}

int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    TW_SYMBOL_of of = {buffers[1], buffers[2], buffers[3], sizes[0], sizes[1], sizes[2]};
    const int64_t strips = (of.m + TW_SYMBOL_ROWS - 1) / TW_SYMBOL_ROWS, threads = sizes[3];
    const int64_t chunk = tw_max_i64(1, strips / (4 * threads));
    tw_run((tw_driver)buffers[0], TW_SYMBOL_rows, &of, 0, strips, threads, chunk, NULL, 0);
    return 0;
}
"""


@cache
def _kernel(text: str) -> LoadedKernel:
    return default_cache().get([text])[0]


def product(text: str, a: np.ndarray, b: np.ndarray, threads: int) -> np.ndarray:
    """Return ``a @ b``, (m, n) float32, by one of the texts; both are float32 and lie by rows."""
    (m, k), n = a.shape, b.shape[1]
    out = np.empty((m, n), np.float32)
    buffers = (ctypes.c_void_p * 4)(driver_address(), address(a), address(b), address(out))
    _kernel(text).function(buffers, (ctypes.c_int64 * 4)(m, n, k, threads))
    return out
