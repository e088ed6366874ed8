"""Claim: ``A @ x`` of a BSR array with square blocks takes at most half of SciPy's time on one thread, for vectors and for
8 and 64 columns.

    python benchmarks/everyday/blocks.py [--rounds 15] [--values 240000]

Each matrix has 12 blocks a row of blocks, in a band of a tenth of the columns. Both variants read the same arrays and run in
the same interleaved rounds; a ratio is the median of the ratios within rounds. Nothing is tried and no thread is started
(``TENSORWISE_AUTOTUNE=off``). ``x @ A`` is measured for vectors: SciPy copies the transposed blocks there.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.corpus import Results, resumable
from tensorwise.device.timing import interleave, measuring_slot
from tensorwise.sparse.kernels import BLOCK_KERNELS, BLOCK_LANES

HERE: Final = Path(__file__).parent
LEAST: Final = 2.0
BLOCKS_A_ROW: Final = 12
COLUMNS: Final = {"A @ x": 0, "A @ X, 8 columns": 8, "A @ X, 64 columns": 64, "x @ A": 0}


def matrix_of(block: int, dtype: str, values: int) -> sp.bsr_array:
    """Return a matrix of about so many values."""
    lines = max(20, values // (BLOCKS_A_ROW * block * block))
    rng = np.random.default_rng(block)
    band = np.arange(lines)[:, None] + rng.integers(-lines // 20, lines // 20 + 1, (lines, BLOCKS_A_ROW))
    indices = np.sort(band % lines, axis=1).astype(np.int32).ravel()
    indptr = np.arange(lines + 1, dtype=np.int32) * BLOCKS_A_ROW
    data = rng.standard_normal((len(indices), block, block)).astype(dtype)
    return sp.bsr_array((data, indices, indptr), shape=(lines * block, lines * block))


def measure(product: str, block: int, dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return seconds of both, and how many times as long SciPy takes."""
    import tensorwise as tw

    theirs = matrix_of(block, dtype, options.values)
    ours = tw.asarray(theirs)
    columns = COLUMNS[product]
    shape = (theirs.shape[0], columns) if columns else theirs.shape[:1]
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    turned = product.startswith("x")
    calls = {
        name: (lambda a=a: x @ a) if turned else (lambda a=a: a @ x)
        for name, a in (("ours", ours), ("scipy", theirs))
    }
    bound = 1e-3 if dtype == "float32" else 1e-10
    np.testing.assert_allclose(calls["ours"](), calls["scipy"](), rtol=bound, atol=bound)
    with measuring_slot() as slot:
        table = interleave(calls, options.rounds, 20.0, np.random.default_rng(0))
    ratio = float(np.median(table.samples("scipy") / table.samples("ours")))
    note = "; ".join(filter(None, (slot.note, table.note)))
    return {"seconds": {name: table.median(name) for name in calls}, "ratio": ratio, "note": note}


def summarize(runs: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return a line for each product, and whether the claim holds."""
    lines, holds = [], bool(runs)
    for product in COLUMNS:
        ratios = [found["ratio"] for key, found in runs.items() if key.startswith(f"{product}; ")]
        if ratios:
            mean = float(np.exp(np.mean(np.log(ratios))))
            lines.append(
                f"{product}: SciPy takes {mean:.1f} times as long, {min(ratios):.1f} to {max(ratios):.1f}, "
                f"on {len(ratios)} matrices"
            )
            holds &= min(ratios) >= LEAST
    return lines, holds


def main() -> None:
    """Measure what is not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--values", type=int, default=240_000, help="values of a matrix, about")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "blocks.json")
    options = parser.parse_args()
    os.environ["TENSORWISE_AUTOTUNE"] = "off"
    import tensorwise.sparse
    from tensorwise.sparse.library import library

    tensorwise.sparse.limit_threads(1)
    if library(True, BLOCK_KERNELS) is None:
        raise SystemExit("the kernels cannot be compiled: python -m tensorwise.sparse.prepare says why")
    settings = {"rounds": options.rounds, "values": options.values}
    results = Results(
        options.out, __doc__ or "", settings, options.fresh, inputs=[Path(tensorwise.sparse.__file__).parent]
    )
    cases = {
        f"{product}; blocks of {block}, {dtype}": (product, block, dtype)
        for product in COLUMNS
        for block in BLOCK_LANES
        for dtype in ("float32", "float64")
    }
    for case in results.left(list(cases)):
        results.add(case, measure(*cases[case], options))
        print(f"SciPy takes {results.runs[case]['ratio']:.2f} times as long", flush=True)
    lines, holds = summarize(results.runs)
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    resumable(main)
