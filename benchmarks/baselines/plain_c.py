"""What a C programmer writes: ``gcc -O3 -march=native -fopenmp`` loops over rows, dynamic chunks of 32."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .c_loops import CLoops, compiled
from .rows import Rows

FLAGS = ("-O3", "-march=native", "-fopenmp")
_HEAD = """
#include <stdint.h>
void run(const int64_t *sizes, void *const *arrays)
{
    const int64_t rows = sizes[0], width = sizes[1];
    const int threads = (int)sizes[2];
    REAL *const out = arrays[0];
    const REAL *const *const dense = (const REAL *const *)arrays + 1;
    const REAL *const values = arrays[1 + FACTORS];
    const int64_t *const pointers = arrays[2 + FACTORS];
    const INDEX *const *const columns = (const INDEX *const *)arrays + 3 + FACTORS;
#pragma omp parallel for schedule(dynamic, 32) num_threads(threads)
    for (int64_t i = 0; i < rows; i++) {
"""
_TAIL = """
    }
}
"""
_BODY = {
    "spmv": """
        REAL sum = 0;
        for (int64_t p = pointers[i]; p < pointers[i + 1]; p++)
            sum += values[p] * dense[0][columns[0][p]];
        out[i] = sum;
""",
    "spmm": """
        REAL *row = out + i * width;
        for (int64_t j = 0; j < width; j++)
            row[j] = 0;
        for (int64_t p = pointers[i]; p < pointers[i + 1]; p++) {
            const REAL value = values[p], *b = dense[0] + columns[0][p] * width;
            for (int64_t j = 0; j < width; j++)
                row[j] += value * b[j];
        }
""",
    "sddmm": """
        const REAL *left = dense[0] + i * width;
        for (int64_t p = pointers[i]; p < pointers[i + 1]; p++) {
            const REAL *right = dense[1] + columns[0][p] * width;
            REAL sum = 0;
            for (int64_t k = 0; k < width; k++)
                sum += left[k] * right[k];
            out[p] = values[p] * sum;
        }
""",
}


def _mttkrp(factors: int) -> str:
    pointers = "\n".join(
        f"            const REAL *f{n} = dense[{n}] + columns[{n}][p] * width;" for n in range(factors)
    )
    product = " * ".join(["values[p]", *(f"f{n}[r]" for n in range(factors))])
    return f"""
        REAL *row = out + i * width;
        for (int64_t r = 0; r < width; r++)
            row[r] = 0;
        for (int64_t p = pointers[i]; p < pointers[i + 1]; p++) {{
{pointers}
            for (int64_t r = 0; r < width; r++)
                row[r] += {product};
        }}
"""


class PlainCKernel(CLoops):
    """Plain C loops for SpMV, SpMM, SDDMM and MTTKRP."""

    name = "plain_c"

    def function(self, rows: Rows, dtype: str) -> Any:
        """Compile the loop for the dtype and the columns' type."""
        kind = "spmv" if rows.kind == "spmm" and rows.width == 1 else rows.kind
        body = _mttkrp(len(rows.factors)) if kind == "mttkrp" else _BODY[kind]
        index = {4: "int32_t", 8: "int64_t"}[rows.columns[0].itemsize]
        flags = (*FLAGS, f"-DINDEX={index}", f"-DFACTORS={len(rows.factors)}")
        return compiled(_HEAD + body + _TAIL, "run", dtype, flags)

    def layout(self, rows: Rows, threads: int) -> tuple[Sequence[int], Sequence[np.ndarray]]:
        """Pointers by row and columns, as they are."""
        arrays = [rows.values, rows.pointers, *(np.ascontiguousarray(column) for column in rows.columns)]
        return (len(rows.pointers) - 1, rows.width, threads), arrays
