"""SpMM in Triton: each program sums a row's entries for a block of features. Imported only where Triton is."""

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _row_sums(pointers, columns, values, dense, out, width, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore
    row = tl.program_id(0)
    features = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = features < width
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for place in range(tl.load(pointers + row), tl.load(pointers + row + 1)):
        column = tl.load(columns + place).to(tl.int64)
        term = tl.load(dense + column * width + features, mask=inside, other=0.0)
        if WEIGHTED:
            term = term * tl.load(values + place)
        total += term
    tl.store(out + row.to(tl.int64) * width + features, total, mask=inside)


def row_sums(pointers: Any, columns: Any, values: Any, dense: Any) -> Any:
    """Return the sums over the entries of each row of rows of ``dense``, times ``values`` where these are given."""
    rows, width = len(pointers) - 1, dense.shape[1]
    out = torch.empty((rows, width), dtype=dense.dtype, device=dense.device)
    block = min(256, triton.next_power_of_2(width))
    weighted = values is not None
    _row_sums[(rows, triton.cdiv(width, block))](
        pointers, columns, values if weighted else dense, dense, out, width, weighted, block
    )
    return out
