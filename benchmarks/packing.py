"""Claim: packing runs at memory speed. A million nonzeros, one core, median over the rounds:

- from CSR, order of rows kept (CSR, DCSR, CSR of split columns): at most 6 ms;
- from CSR into BCSR: at most 2x SciPy's ``tobsr``;
- from CSR, columns regrouped (CSC, sparse blocks, several levels of blocks): at most 25 ms;
- from unsorted COO, reading in and sorting included: at most 60 ms.

    python benchmarks/packing.py [--rounds 11] [--nonzeros 1000000] [--out benchmarks/results/packing.json]

SciPy's conversion of the same matrix runs in the same round, and ratios are taken within a round.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp
from corpus import made_by

from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.format import Format
from tensorwise.tensor.pack import pack

KEPT_MS, REGROUPED_MS, UNSORTED_MS, BLOCKS_RATIO = 6.0, 25.0, 60.0, 2.0
KEPT = ("U(i) C(k)", "C(i) C(k)", "U(i1) U(i0:4) C(k)", "U(i) C(k1) C(k0:8)")
BLOCKS = ((2, 2), (4, 4), (8, 8))
REGROUPED = (
    "U(k) C(i)",
    "C(k) C(i)",
    "U(k1) U(i) C(k0:4096)",
    "U(k1) C(i) C(k0:4096)",
    "U(i1) C(k1) C(i0:8) C(k0:8)",
    "U(k1) C(i1) C(i0:64) C(k0:64)",
)


def matrices(nonzeros: int, rng: np.random.Generator) -> dict[str, sp.csr_array]:
    """Return float32 matrices of about ``nonzeros`` entries: uniform, clustered, banded, skewed rows."""
    size = max(nonzeros // 10, 64)

    def made(rows: np.ndarray, columns: np.ndarray) -> sp.csr_array:
        inside = (columns >= 0) & (columns < size)
        places = np.unique(rows[inside].astype(np.int64) * size + columns[inside])
        values = rng.standard_normal(len(places)).astype(np.float32)
        return sp.coo_array((values, np.divmod(places, size)), shape=(size, size)).tocsr()

    corners = rng.integers(0, size // 8, (2, nonzeros // 32)) * 8
    clustered = np.repeat(corners, 40, axis=1) + rng.integers(0, 8, (2, 40 * (nonzeros // 32)))
    rows = rng.integers(0, size, nonzeros)
    skewed = (size * rng.random(nonzeros) ** 3).astype(np.int64)
    return {
        "uniform": made(rows, rng.integers(0, size, nonzeros)),
        "clustered": made(*clustered),
        "banded": made(rows, rows + rng.integers(-20, 21, nonzeros)),
        "skewed": made(skewed, rng.integers(0, size, nonzeros)),
    }


def measure(
    nonzeros: int, rounds: int, ours: Callable[[], Any], theirs: Callable[[], Any] | None
) -> dict[str, float]:
    """Return medians over the rounds: ms a million nonzeros, and the ratio to SciPy within a round."""
    taken: list[list[float]] = []
    for _ in range(rounds + 1):
        row = []
        for call in (ours, theirs):
            start = time.perf_counter()
            if call is not None:
                call()
            row.append((time.perf_counter() - start) * 1e9 / nonzeros)
        taken.append(row)
    taken = taken[1:]  # the first round warms up
    result = {
        "ms_per_million": statistics.median(row[0] for row in taken),
        "best_ms": min(row[0] for row in taken),
    }
    if theirs is not None:
        result["scipy_ms_per_million"] = statistics.median(row[1] for row in taken)
        result["ratio"] = statistics.median(row[0] / row[1] for row in taken)
    return {name: round(value, 3) for name, value in result.items()}


def cases(matrix: sp.csr_array, rng: np.random.Generator) -> list[tuple[str, str, Any, Any]]:
    """Return (kind, text, ours, SciPy's or None) for one matrix."""
    entries = entries_from(matrix)
    order = rng.permutation(matrix.nnz)
    coo = matrix.tocoo()
    unsorted = sp.coo_array((coo.data[order], (coo.row[order], coo.col[order])), shape=matrix.shape)

    def from_entries(text: str) -> Callable[[], Any]:
        format = Format.parse(text)
        return lambda: pack(entries, format)

    def from_unsorted(text: str) -> Callable[[], Any]:
        format = Format.parse(text)
        return lambda: pack(entries_from(unsorted), format)

    found: list[tuple[str, str, Any, Any]] = []
    found += [("kept", text, from_entries(text), matrix.copy) for text in KEPT]
    for shape in BLOCKS:
        if all(size % block == 0 for size, block in zip(matrix.shape, shape)):
            text = f"U(i1) C(k1) U(i0:{shape[0]}) U(k0:{shape[1]})"
            found.append(("blocks", text, from_entries(text), lambda s=shape: matrix.tobsr(s)))
    found += [
        ("regrouped", text, from_entries(text), matrix.tocsc if text == "U(k) C(i)" else None)
        for text in REGROUPED
    ]
    found += [("unsorted", text, from_unsorted(text), unsorted.tocsr) for text in ("U(i) C(k)", "U(k) C(i)")]
    return found


def holds(kind: str, result: dict[str, float]) -> bool:
    """Return whether the claim about this kind of packing holds."""
    if kind == "blocks":
        return result["ratio"] <= BLOCKS_RATIO
    limit = {"kept": KEPT_MS, "regrouped": REGROUPED_MS, "unsorted": UNSORTED_MS}[kind]
    return result["ms_per_million"] <= limit


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--nonzeros", type=int, default=10**6)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "packing.json")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for name, matrix in matrices(args.nonzeros, rng).items():
        print(f"{name}: {matrix.shape[0]} x {matrix.shape[1]}, {matrix.nnz} nonzeros")
        for kind, text, ours, theirs in cases(matrix, rng):
            try:
                result = measure(matrix.nnz, args.rounds, ours, theirs)
            except ValueError as refused:  # a format whose fill-in is too large for this matrix
                print(f"  {kind:10s} {text:32s} refused: {str(refused)[:60]}...")
                continue
            row = {"matrix": name, "kind": kind, "format": text, **result, "holds": holds(kind, result)}
            beside = f"   SciPy {result['scipy_ms_per_million']:7.2f}" if "ratio" in result else ""
            print(f"  {kind:10s} {text:32s} {result['ms_per_million']:7.2f} ms/M{beside}", end="")
            print("" if row["holds"] else "   MISSED", flush=True)
            rows.append(row)
    missed = sum(not row["holds"] for row in rows)
    print(f"{len(rows) - missed} of {len(rows)} within their limits")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "claim": __doc__,
        "rounds": args.rounds,
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
        "processor": processor(),
        **made_by(Path(__file__)),
        "results": rows,
    }
    args.out.write_text(json.dumps(document, indent=1) + "\n")


def processor() -> str:
    """Return the processor's name as Linux gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
