"""One process of the regret curve: K products by one contestant, timed from the user's CSR on.

Reads a task as JSON from its argument and prints what it measured as JSON. It imports no more than a user's program does.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

LEAST_CALLS: Final = 2
"""Calls that are made however long they take: an extrapolation needs a first one and another."""
USE_S: Final = 0.01
"""Seconds of the products that load kernels: by then ours has left SciPy's and tried threads."""
Multiply = Callable[[np.ndarray], np.ndarray]
HINTED_CALLS: Final = 1000
"""Calls announced to MKL's inspector."""


def load(path: str) -> sp.csr_array:
    """Read a matrix that `matrices.save` wrote."""
    with np.load(path) as held:
        arrays = held["data"], held["indices"], held["indptr"]
        return sp.csr_array(arrays, shape=tuple(map(int, held["shape"])))


def make_scipy(matrix: sp.csr_array, columns: int) -> Multiply:
    """SciPy's own product."""
    return lambda x: matrix @ x


def make_ours(matrix: sp.csr_array, columns: int) -> Multiply:
    """Our array over SciPy's arrays, which the user may still change."""
    import tensorwise as tw

    array = tw.asarray(matrix)
    return lambda x: array @ x


def make_frozen(matrix: sp.csr_array, columns: int) -> Multiply:
    """Our array with a read-only copy, so that packed forms may be used."""
    import tensorwise as tw

    array = tw.asarray(matrix).freeze()
    return lambda x: array @ x


def make_mkl(matrix: sp.csr_array, columns: int, hint: int | None = HINTED_CALLS) -> Multiply:
    """MKL, its inspector included."""
    from benchmarks.everyday.mkl_csr import products

    return products(matrix, columns, hint)


def make_mkl_plain(matrix: sp.csr_array, columns: int) -> Multiply:
    """MKL without hints: its inspector does not run."""
    return make_mkl(matrix, columns, None)


def make_searched(matrix: sp.csr_array, columns: int, seconds: float = 30) -> Multiply:
    """The kernel that a long search finds."""
    import tensorwise as tw

    if columns:
        return tw.tune(matrix, "spmm", n=columns, budget_s=seconds)
    return tw.tune(matrix, "spmv", budget_s=seconds)


MAKERS: Final[dict[str, Callable[..., Multiply]]] = {
    "scipy": make_scipy,
    "mkl": make_mkl,
    "mkl, no hints": make_mkl_plain,
    "ours": make_ours,
    "ours, frozen": make_frozen,
    "never tuned": make_ours,
    "searched": make_searched,
}
IMPORTS: Final = {"scipy": (), "mkl": (), "mkl, no hints": (), "searched": ("tensorwise.front.api",)}
"""Modules that a contestant imports besides SciPy, which made the user's matrix; `OURS` where it is not listed. What reaches
MKL from here is none of MKL's: it is imported before."""
OURS: Final = ("tensorwise.sparse",)


def time_calls(
    call: Callable[[], Any], marks: Sequence[int], most_s: float, begin: float
) -> tuple[dict[int, float], Any]:
    """Call until the last mark, or until ``most_s`` would be over at the next one.

    Args:
        call: what is timed.
        marks: numbers of calls, increasing, after which the clock is read.
        most_s: seconds.
        begin: reading of the clock (``time.perf_counter``) from which seconds count.

    Returns:
        Seconds since ``begin`` at each mark that was reached, and the last result.
    """
    reached: dict[int, float] = {}
    done, rate, result = 0, 0.0, None
    for mark in marks:
        now = reached.get(done, 0.0)
        if done >= LEAST_CALLS and now + rate * (mark - done) > most_s:
            break
        for _ in repeat(None, mark - done):
            result = call()
        seconds = time.perf_counter() - begin
        rate = (seconds - now) / (mark - done)
        reached[mark], done = seconds, mark
    return reached, result


def use(multiply: Multiply, x: np.ndarray, calls: int) -> int:
    """Multiply ``calls`` times; where that is 0, for `USE_S` and at least `LEAST_CALLS` times. Return how often."""
    until, made = time.perf_counter() + USE_S, 0
    while made < calls or (not calls and (made < LEAST_CALLS or time.perf_counter() < until)):
        multiply(x)
        made += 1
    return made


def largest_error(result: np.ndarray, matrix: sp.csr_array, x: np.ndarray) -> float:
    """Return the largest error of a product, in units of its rounding bound: above 1 it is wrong."""
    expected = matrix.astype(np.float64) @ x.astype(np.float64)
    lengths = np.diff(matrix.indptr)[(...,) + (None,) * (x.ndim - 1)]
    sums = abs(matrix).astype(np.float64) @ np.abs(x, dtype=np.float64)
    bound = 2 * (lengths + 2) * np.finfo(matrix.dtype).eps * sums + np.finfo(matrix.dtype).tiny
    if result.shape != expected.shape or result.dtype != matrix.dtype:
        return float("inf")
    error = np.abs(result - expected) / bound
    return float(np.max(error, initial=0.0)) if np.all(np.isfinite(error)) else float("inf")


def operand(columns: int, rows: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return what a matrix is multiplied by: a vector where ``columns`` is 0."""
    shape = (rows, columns) if columns else (rows,)
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Do a task: import, load what products need, then the products of the user's matrix.

    What a process does once (loading libraries and kernels, starting threads) is the difference between two equal uses of
    two matrices, which have the rows of the user's matrix in another order.
    """
    name, columns, clock = task["contestant"], task["columns"], time.perf_counter
    matrix = load(task["matrix"])
    x = operand(columns, matrix.shape[1], matrix.dtype)
    others = [matrix[np.roll(np.arange(matrix.shape[0]), by)] for by in (1, 2)] if name != "searched" else []
    if name.startswith("mkl"):
        __import__("benchmarks.everyday.mkl_csr")
    begin = clock()
    for module in IMPORTS.get(name, OURS):
        __import__(module)
    imported = clock()
    uses_s, calls = [], 0
    for other in others:
        start = clock()
        calls = use(MAKERS[name](other, columns), x, calls)
        uses_s.append(clock() - start)
    del others
    start = clock()
    if name == "searched":
        multiply = make_searched(matrix, columns, task["search_s"])
        multiply(x)
        start = clock()
    else:
        multiply = MAKERS[name](matrix, columns)
    reached, last = time_calls(lambda: multiply(x), task["marks"], task["most_s"], start)
    errors = [largest_error(one, matrix, x) for one in (last, multiply(x))]
    return {
        "import_s": imported - begin,
        "load_s": max(0.0, uses_s[0] - uses_s[1]) if uses_s else 0.0,
        "marks": {str(mark): seconds for mark, seconds in reached.items()},
        "error": max(errors),
    }


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    print(json.dumps(measure(json.loads(sys.argv[1]))))
