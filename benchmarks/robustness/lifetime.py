"""Claim: what is dropped is freed: memory, files, threads, processes and temporary folders stay flat over hundreds of uses.

Rounds of each use run one after the other, each on a new matrix: tunings, compilations of the default kernel and of new
schedules, transposes, new widths, graphs. What is held after the first tenth of the rounds is compared with what is held in
the end.

    python benchmarks/robustness/lifetime.py --rounds 300
"""

import argparse
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[2]))

import tensorwise as tw
from tensorwise.front import gnn

SIZE = 20_000
MOST_GROWTH_BYTES = 24 << 20
"""A leak of one matrix a round would be 300 times 5 MB; allocators and compiled kernels take some."""


def matrix(seed: int) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.random_array((SIZE, SIZE), density=0.0015, format="csr", rng=rng, dtype=np.float32)


def tuned(seed: int) -> None:
    tw.tune(matrix(seed), "spmv", trials=1, threads=1, store=False)(np.ones(SIZE, np.float32))


def compiled(seed: int) -> None:
    tw.compile("C[i] += A[i,k] * B[k]", A=matrix(seed), threads=2)(np.ones(SIZE, np.float32))


def scheduled(seed: int) -> None:
    schedule = f"parallel(i,dynamic,{1 + seed % 50})"
    op = tw.compile("C[i] += A[i,k] * B[k]", A=matrix(seed), format="(i,k) -> U(i) C(k)", schedule=schedule)
    op(np.ones(SIZE, np.float32))


def transposed(seed: int) -> None:
    tw.compile("C[i] += A[i,k] * B[k]", A=matrix(seed), threads=2).transpose()(np.ones(SIZE, np.float32))


_WIDE: list["tw.Operator"] = []


def widened(seed: int) -> None:
    """One operator, ever new widths."""
    if not _WIDE:
        _WIDE.append(tw.compile("C[i] += A[i,k] * B[k]", A=matrix(0), threads=2))
    _WIDE[0] @ np.ones((SIZE, 1 + seed % 64), np.float32)


def graphed(seed: int) -> None:
    a = matrix(seed).tocoo()
    graph = gnn.Graph(a.coords[1], a.coords[0], (SIZE, SIZE))
    graph.einsum("C[i,f] += B[k,f] for A[i,k]", B=np.ones((SIZE, 4), np.float32))


USES: dict[str, Callable[[int], None]] = {
    "tunings": tuned, "compilations": compiled, "schedules": scheduled, "transposes": transposed, "widths": widened,
    "graphs": graphed,
}  # fmt: skip


def held() -> dict[str, int]:
    """What this process holds of the system."""
    gc.collect()
    return {
        "bytes": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "children": len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
        "temporary": sum(name.startswith("tensorwise") for name in os.listdir(tempfile.gettempdir())),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--uses", nargs="*", choices=USES, default=list(USES))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    result: dict[str, dict[str, float]] = {}
    holds = True
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder  # of this process alone
        for name in given.uses:
            begin, first = time.monotonic(), max(3, given.rounds // 10)
            for seed in range(first):
                USES[name](seed)
            before = held()
            for seed in range(first, given.rounds):
                USES[name](seed)
            after = held()
            grown = {kind: after[kind] - before[kind] for kind in after}
            holds &= grown["bytes"] < MOST_GROWTH_BYTES and not any(
                count > 0 for kind, count in grown.items() if kind != "bytes"
            )
            result[name] = {**grown, "seconds": round(time.monotonic() - begin, 1)}
    print(json.dumps({"rounds": given.rounds, "holds": holds, "grown": result}, indent=1))
    if given.out:
        given.out.write_text(json.dumps({"rounds": given.rounds, "holds": holds, "grown": result}, indent=1))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
