"""Claim: in no kind of product are the kernels of a level slower than SciPy, in geometric mean over matrices.

    python benchmarks/everyday/prebuilt.py [--rounds 15] [--compiler "zig cc"] [--levels DIR]

The levels that this processor runs are compiled first, as for ``tensorwise-kernels``; DIR holds levels compiled before. Each
level, the kernels that were compiled for this machine, and SciPy multiply by the same arrays in the same interleaved rounds,
on one thread: twelve matrices of the corpus, and one in blocks. A ratio is the median of the ratios within rounds. Nothing
is tried (``TENSORWISE_AUTOTUNE=off``). SciPy's transposed product of blocks is left out: it copies the blocks.
"""

import argparse
import functools
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.corpus import Item, Results, geometric_mean, items, resumable
from benchmarks.everyday import blocks, matrices
from tensorwise.device.timing import interleave, measuring_slot
from tensorwise.sparse.library import Library, library
from tensorwise.sparse.prebuilding import build_level
from tensorwise.sparse.prebuilt import MANIFEST, PROCESSOR_LEVELS, read_level
from tensorwise.sparse.products import ProductTable

HERE: Final = Path(__file__).parent
VALUES: Final = 240_000
OWN, SCIPY = "own", "scipy"
BLOCKS: Final = "blocks of 4"
COUNT: Final = 12
"""Matrices of the corpus."""
PRODUCTS: Final = {
    "A @ x": (True, None),
    "A @ X, 8 columns": (True, 8),
    "A @ X, 64 columns": (True, 64),
    "A.T @ x": (False, None),
}
"""Name -> whether it gathers, and columns."""


def matrix_of(name: str, dtype: str) -> Any:
    """Return a matrix of the corpus in CSR, or one in BSR for ``BLOCKS``."""
    if name == BLOCKS:
        return blocks.matrix_of(4, dtype, VALUES)
    return matrices.matrix_of(next(item.path for item in _chosen() if item.name == name), dtype)


@functools.cache
def _chosen() -> list[Item]:
    sizes = range(20_000, 2_000_000)
    return matrices.choose(COUNT, [item for item in items(2) if item.nonzeros in sizes])


def measure(name: str, dtype: str, product: str, levels: Path, rounds: int) -> dict[str, Any]:
    """Return seconds of each variant, and ratios to them of those of SciPy and of this machine's own kernels."""
    matrix = matrix_of(name, dtype)
    gather, columns = PRODUCTS[product]
    other = matrix if gather else matrix.T
    x = np.random.default_rng(0).standard_normal((other.shape[1], *(() if columns is None else (columns,))))
    x = x.astype(dtype)
    expected, size = other @ x, float(np.max(abs(other) @ abs(x), initial=0.0))
    calls: dict[str, Any] = {SCIPY: lambda: other @ x}
    for variant, table, found in _libraries(matrix, levels):
        made = table.product(found, gather, columns)
        calls[variant] = _call(made, x)
        bound = 1e-3 if dtype == "float32" else 1e-9
        np.testing.assert_allclose(calls[variant](), expected, rtol=bound, atol=bound * size, err_msg=variant)
    with measuring_slot() as slot:
        taken = interleave(calls, rounds, 20.0, np.random.default_rng(0))
    ratios = {
        variant: {one: float(np.median(taken.samples(one) / taken.samples(variant))) for one in (SCIPY, OWN)}
        for variant in calls
        if variant not in (SCIPY, OWN)
    }
    note = "; ".join(filter(None, (slot.note, taken.note)))
    return {"seconds": {name: taken.median(name) for name in calls}, "ratios": ratios, "note": note}


def _libraries(matrix: Any, levels: Path) -> list[tuple[str, ProductTable, Library]]:
    """Return name, a table of products of its own, and the library of each variant."""
    made = []
    for name in (OWN, *PROCESSOR_LEVELS):
        table = ProductTable.of(matrix, matrix.shape[1])
        if table is None:
            raise SystemExit("no kernel reads this matrix")
        if name == OWN:
            own = library(True, table.family)
            if own is None or own.level:
                raise SystemExit(
                    "the machine's kernels cannot be compiled: python -m tensorwise.sparse.prepare says why"
                )
            made.append((name, table, own))
        elif (levels / name / MANIFEST).is_file():
            kernels = read_level(levels / name, PROCESSOR_LEVELS[name])
            made.append((name, table, Library(kernels.tables[table.family.name], kernels, name)))
    return made


def _call(product: Any, x: np.ndarray) -> Any:
    def multiply() -> np.ndarray:
        out = np.empty(product.out_shape, product.dtype)
        if not product.run(x, out):
            raise SystemExit("the arrays changed")
        return out

    return multiply


def build(levels: Path, compiler: str) -> None:
    """Compile the levels that this processor runs and that are not in a folder yet."""
    from tensorwise.toolchain.processor import describe_processor, vector_bytes

    for level in PROCESSOR_LEVELS.values():
        able = set(level.features) <= describe_processor()[1] and level.register_bytes <= vector_bytes()
        if able and not (levels / level.name / MANIFEST).is_file():
            build_level(level, levels, compiler)


def summarize(runs: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return a line for each level and kind of matrix, and whether the claim holds."""
    lines, holds = [], bool(runs)
    for level in PROCESSOR_LEVELS:
        for product in PRODUCTS:
            found = [
                run["ratios"][level]
                for key, run in runs.items()
                if key.endswith(f"; {product}") and level in run["ratios"]
            ]
            if found:
                theirs, own = ([one[name] for one in found] for name in (SCIPY, OWN))
                times = " times as long "
                lines.append(
                    f"{level}, {product}: SciPy takes {geometric_mean(theirs):.2f}{times}({min(theirs):.2f} at least), "
                    f"the machine's own kernels {geometric_mean(own):.2f} ({min(own):.2f} at least), {len(found)} arrays"
                )
                holds &= geometric_mean(theirs) >= 1.0
    return lines, holds


def main() -> None:
    """Measure what is not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--compiler", default="", help="C compiler of the levels; default: TENSORWISE_CC, ziglang, gcc"
    )
    parser.add_argument("--levels", type=Path, help="folder of levels' folders; default: a temporary one")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "prebuilt.json")
    options = parser.parse_args()
    os.environ["TENSORWISE_AUTOTUNE"] = "off"
    import tensorwise.sparse.kernels

    tensorwise.sparse.limit_threads(1)
    results = Results(
        options.out,
        __doc__ or "",
        {"rounds": options.rounds, "compiler": options.compiler},
        options.fresh,
        inputs=[Path(__file__), Path(tensorwise.sparse.kernels.__file__)],
    )
    cases = {
        f"{name}; {dtype}; {product}": (name, dtype, product)
        for name in (*(item.name for item in _chosen()), BLOCKS)
        for dtype in ("float64", "float32")
        for product in PRODUCTS
        if not (name == BLOCKS and product == "A.T @ x")
    }
    with tempfile.TemporaryDirectory(prefix="tensorwise-levels-") as scratch:
        levels = options.levels or Path(scratch)
        build(levels, options.compiler)
        for case in results.left(list(cases)):
            results.add(case, measure(*cases[case], levels, options.rounds))
            ratios = results.runs[case]["ratios"].items()
            print(", ".join(f"{level} {found[SCIPY]:.2f} x SciPy" for level, found in ratios), flush=True)
    lines, holds = summarize(results.runs)
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    resumable(main)
