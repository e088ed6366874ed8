"""Claims: validating a canonical CSR costs little beside copying it; sorting and reading keep up with SciPy.

    python benchmarks/entries_and_files.py [FILE ...] [--rounds 7]

For one million entries, and for every FILE (.mtx, .mtx.gz, .tns, ...), prints the best time over the rounds
of our way and of SciPy's, taken in turn. The target for the first line: copying plus about 1 ms.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable

import numpy as np
import scipy.io
import scipy.sparse as sp

from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import read, write


def compare(name: str, rounds: int, ours: Callable[[], object], theirs: Callable[[], object] | None) -> None:
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for which, call in enumerate((ours, theirs)):
            if call is not None:
                start = time.perf_counter()
                call()
                best[which] = min(best[which], time.perf_counter() - start)
    beside = f"   SciPy {1e3 * best[1]:9.2f} ms" if theirs is not None else ""
    print(f"{name:52s} {1e3 * best[0]:9.2f} ms{beside}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    count = 10**6
    for rows in (20_000, 100_000, 1_000_000):
        places = np.sort(rng.choice(rows * 100_000, count, replace=False, shuffle=False))
        row, column = (part.astype(np.int32) for part in np.divmod(places, 100_000))
        csr = sp.csr_array((rng.random(count), (row, column)), shape=(rows, 100_000))
        csc, order = csr.tocsc(), rng.permutation(count)
        coo = sp.coo_array((csr.data[order], (row[order], column[order])), shape=csr.shape)
        compare(
            f"canonical CSR, {rows} rows (SciPy: copy)", args.rounds, lambda m=csr: entries_from(m), csr.copy
        )
        compare(f"CSC, {rows} rows (SciPy: tocsr)", args.rounds, lambda m=csc: entries_from(m), csc.tocsr)
        compare(
            f"unsorted COO, {rows} rows (SciPy: tocsr)", args.rounds, lambda m=coo: entries_from(m), coo.tocsr
        )
    for order in (3, 5):
        shape = (10_000,) * order
        parts = (shape, rng.integers(0, 10_000, (order, count)), rng.random(count))
        compare(f"unsorted tensor of order {order}", args.rounds, lambda p=parts: entries_from(p), None)
    few = max(1, args.rounds // 3)
    entries = entries_from(csr)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.mtx")
        compare(
            "write .mtx",
            few,
            lambda: write(path, entries),
            lambda: scipy.io.mmwrite(path, csr, symmetry="general"),
        )
        compare("read .mtx (SciPy: mmread)", few, lambda: read(path), lambda: scipy.io.mmread(path))
    for file in args.files:
        theirs = (lambda f=file: sp.csr_array(scipy.io.mmread(f))) if ".mtx" in file else None
        compare(f"read {os.path.basename(file)[:46]}", few, lambda f=file: read(f), theirs)


if __name__ == "__main__":
    main()
