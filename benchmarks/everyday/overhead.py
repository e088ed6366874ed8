"""Claim: ``A @ x`` of a tuned-by-use array takes at most 4 microseconds beyond the bare C kernel, and ``import
tensorwise.sparse`` at most 0.15 s beyond ``import scipy.sparse``.

    python benchmarks/everyday/overhead.py [--rounds 25] [--rows 32] [--threads 1]

On a tiny matrix, for a vector, 8 columns in C order and 8 columns in Fortran order. The bare kernel is the generated CSR
kernel with its arguments laid out, called through ctypes, as in ``call_overhead.py``. SciPy's bare kernel is ``csr_matvec``
or ``csr_matvecs`` with an allocated result. All variants of a case run in the same interleaved rounds; an overhead is the
median difference within rounds. ``patched`` is SciPy's own array after ``patch_scipy()``, in a process of its own with the
same bare kernel beside it. Imports are timed in fresh processes.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.append(str(Path(__file__).parents[1]))  # call_overhead.py imports its neighbours

from benchmarks.call_overhead import bare
from benchmarks.corpus import Results, resumable
from benchmarks.everyday.homes import variables
from tensorwise.device.timing import interleave, measuring_slot
from tensorwise.program.workload import workload
from tensorwise.sparse.library import library
from tensorwise.tensor.convert import entries_from
from tensorwise.tuning.operator import bind, default_kernel

HERE: Final = Path(__file__).parent
LIMIT_S: Final = 4e-6
IMPORT_LIMIT_S: Final = 0.15
CASES: Final = {
    f"{shape} {dtype}": (columns, order, dtype)
    for dtype in ("float32", "float64")
    for shape, columns, order in (
        ("vector", 0, "C"),
        ("8 columns, C order", 8, "C"),
        ("8 columns, F order", 8, "F"),
    )
}
IMPORT: Final = "import"
BARE, SCIPY_BARE = "bare", "scipy, bare"


def operands(case: str, rows: int) -> tuple[sp.csr_array, np.ndarray]:
    """Return the matrix and what it is multiplied by."""
    columns, order, dtype = CASES[case]
    rng = np.random.default_rng(0)
    matrix = sp.random_array((rows, rows), density=0.1, rng=rng, dtype=np.float64, format="csr").astype(dtype)
    x = rng.standard_normal((rows, columns) if columns else rows).astype(dtype)
    return matrix, np.asarray(x, order=order)


def bare_calls(matrix: sp.csr_array, x: np.ndarray, threads: int) -> dict[str, Callable[[], object]]:
    """Return the bare kernels: ours, and SciPy's."""
    from scipy.sparse import _sparsetools

    plain = np.ascontiguousarray(x)
    work = workload(
        "spmm" if x.ndim == 2 else "spmv", entries_from(matrix), n=x.shape[1] if x.ndim == 2 else None
    )
    out = np.empty(work.output_shape, work.output_dtype)
    zeros = np.zeros_like(out)
    arrays = matrix.indptr, matrix.indices, matrix.data
    rows, inner = matrix.shape

    def call() -> None:
        if plain.ndim == 1:
            _sparsetools.csr_matvec(rows, inner, *arrays, plain, zeros)
        else:
            _sparsetools.csr_matvecs(rows, inner, plain.shape[1], *arrays, plain.ravel(), zeros.ravel())

    operator = bind(default_kernel(work), work, threads)
    ours = bare(operator, plain, out)
    ours.kept = operator, plain, out  # the call has addresses only
    return {BARE: ours, SCIPY_BARE: call}


def calls_of(
    matrix: sp.csr_array, x: np.ndarray, threads: int, patched: bool
) -> dict[str, Callable[[], object]]:
    """Return the variants; in a patched process those of SciPy's classes."""
    import tensorwise as tw

    bares = bare_calls(matrix, x, threads)
    if patched:
        tw.patch_scipy()
        return {**bares, "patched": lambda: matrix @ x}
    array = tw.asarray(matrix)
    frozen = array.freeze()
    out = np.empty((matrix.shape[0], *x.shape[1:]), matrix.dtype)
    return {
        **bares,
        "ours": lambda: array @ x,
        "ours, frozen": lambda: frozen @ x,
        "ours, with out": lambda: array.matmul(x, out=out),
        "scipy": lambda: matrix @ x,
    }


def measure(case: str, rounds: int, rows: int, threads: int, patched: bool) -> dict[str, Any]:
    """Return seconds of each variant, and their differences from the bare kernels."""
    matrix, x = operands(case, rows)
    expected = matrix @ x
    calls = calls_of(matrix, x, threads, patched)
    for name, call in calls.items():
        if (found := call()) is not None and name not in (BARE, SCIPY_BARE):
            np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)
    with measuring_slot() as slot:
        table = interleave(calls, rounds, 60.0, np.random.default_rng(0))
    over = {
        name: table.samples(name) - table.samples(SCIPY_BARE if name == "scipy" else BARE)
        for name in calls
        if name not in (BARE, SCIPY_BARE)
    }
    return {
        "seconds": {name: table.median(name) for name in calls},
        "over_bare_s": {name: float(np.median(one)) for name, one in over.items()},
        "over_bare_iqr_s": {
            name: float(np.subtract(*np.percentile(one, (75, 25)))) for name, one in over.items()
        },
        "note": "; ".join(filter(None, (slot.note, table.note))),
    }


def in_process(case: str, options: argparse.Namespace, patched: bool) -> dict[str, Any]:
    """Return what `measure` does, from a process of its own."""
    task = {"case": case, "rounds": options.rounds, "rows": options.rows, "threads": options.threads}
    done = subprocess.run(
        [sys.executable, __file__, "--task", json.dumps({**task, "patched": patched})],
        env={**variables(options.threads), **kept_variables()}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def kept_variables() -> dict[str, str]:
    """Return where this process keeps compiled kernels and its store."""
    names = ("TENSORWISE_CACHE_DIR", "TENSORWISE_STORE")
    return {name: os.environ[name] for name in names if name in os.environ}


def time_imports(rounds: int, threads: int) -> dict[str, Any]:
    """Return seconds of both imports in fresh processes, and of ours beyond SciPy's."""
    script = (
        "import time; a = time.perf_counter(); import scipy.sparse; b = time.perf_counter(); {}"
        "c = time.perf_counter(); print(b - a, c - b)"
    )
    environment = {**variables(threads), **kept_variables()}
    seconds: dict[str, list[float]] = {"scipy": [], "beyond": []}
    for turn in range(rounds + 1):
        done = subprocess.run(
            [sys.executable, "-c", script.format("import tensorwise.sparse; ")],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        if turn:  # the first reads the files
            for name, word in zip(seconds, done.stdout.split(), strict=True):
                seconds[name].append(float(word))
    return {
        "seconds": {name: float(np.median(some)) for name, some in seconds.items()},
        "iqr_s": {name: float(np.subtract(*np.percentile(some, (75, 25)))) for name, some in seconds.items()},
    }


def summarize(runs: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, missed ones first, and whether it holds."""
    lines, holds = list[tuple[bool, str]](), bool(runs)
    for case, found in runs.items():
        if case == IMPORT:
            beyond = found["seconds"]["beyond"]
            is_met = beyond <= IMPORT_LIMIT_S
            text = f"import beyond SciPy's {1e3 * beyond:.0f} ms (limit {1e3 * IMPORT_LIMIT_S:.0f} ms)"
        else:
            over = found["over_bare_s"]
            is_met = max(over[name] for name in over if name != "scipy") <= LIMIT_S
            told = ", ".join(f"{name} {1e6 * seconds:.2f} us" for name, seconds in over.items())
            text = f"{case}: beyond the bare call {told} (limit of ours {1e6 * LIMIT_S:g} us)"
        holds &= is_met
        lines.append((is_met, text))
    lines.sort(key=lambda line: line[0])
    return [f"{'met' if is_met else 'MISSED'} {text}" for is_met, text in lines], holds


def main() -> None:
    """Measure what is not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "overhead.json")
    options = parser.parse_args()
    if options.task:
        print(json.dumps(measure(**json.loads(options.task))))
        return
    settings = {"rounds": options.rounds, "rows": options.rows, "threads": options.threads}
    inputs = [HERE / "overhead.py", HERE / "homes.py", HERE.parent / "call_overhead.py"]
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=inputs)
    if library(wait=True) is None:
        raise SystemExit("the kernels cannot be compiled: python -m tensorwise.sparse.prepare says why")
    for case in results.left([*CASES, IMPORT]):
        if case == IMPORT:
            found = time_imports(options.rounds, options.threads)
        else:
            found = in_process(case, options, patched=False)
            over = in_process(case, options, patched=True)
            for name in ("seconds", "over_bare_s", "over_bare_iqr_s"):
                found[name]["patched"] = over[name]["patched"]
        results.add(case, found)
        print(
            ", ".join(f"{name} {1e6 * seconds:.2f} us" for name, seconds in found["seconds"].items()),
            flush=True,
        )
    lines, holds = summarize(results.runs)
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    resumable(main)
