"""max(A B, 0) or A B in Triton; a module of its own, since Triton is there only where torch has a GPU to work with."""

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _tile(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k, relu: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr
):
    i = tl.program_id(0) * rows + tl.arange(0, rows)
    j = tl.program_id(1) * columns + tl.arange(0, columns)
    inner = tl.arange(0, depth)
    down, across = i.to(tl.int64)[:, None], j.to(tl.int64)[None, :]
    total = tl.zeros((rows, columns), dtype=tl.float32)
    for start in range(0, k, depth):
        at = start + inner
        left = tl.load(a + down * k + at[None, :], mask=(down < m) & (at[None, :] < k), other=0.0)
        right = tl.load(
            b + at.to(tl.int64)[:, None] * n + across, mask=(at[:, None] < k) & (across < n), other=0.0
        )
        total = tl.dot(
            left, right, total, input_precision="ieee"
        )  # all of float32, as in every other version
    if relu:
        total = tl.where(total < 0, 0.0, total)
    tl.store(c + down * n + across, total, mask=(down < m) & (across < n))


def product(a: Any, b: Any, relu: bool) -> Any:
    """Return the product of (m, k) and (k, n) float32 tensors of a GPU, negative results 0 if asked for; waits for it."""
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=torch.float32, device=a.device)
    rows, columns, depth = (64, 64, 32) if min(m, n) > 32 else (16, 16, 64)
    _tile[(triton.cdiv(m, rows), triton.cdiv(n, columns))](a, b, out, m, n, k, relu, rows, columns, depth)
    if out.is_cuda:
        torch.cuda.synchronize()
    return out
