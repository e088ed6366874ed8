"""Claim: nothing is slower than in an older checkout. Untuned SpMV and SpMM on 20 matrices, preparing them, a call on a
tiny matrix and ``import tensorwise`` take at most 1.03 times as long in geometric mean, and of no case does the interval
lie above that.

    python benchmarks/releases.py OLDER_CHECKOUT [--rounds 21] [--threads 2]

Two processes, one of each checkout, with caches of their own, are timed in turn, in random order within each round; a
ratio is the median of ratios within a round, with the 95 % interval of that median, in which pairs of processes are drawn
and not rounds: after every third round two others are started, since some processes call a kernel of 25 us within 22 us and
others within 30, as long as they live. Only public functions are called, and their outputs are compared first. Make a
checkout with ``git worktree add ../older COMMIT``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.corpus import RESULTS, ROOT, Results, geometric_mean, items, resumable
from tensorwise.device.timing import measuring_slot

LIMIT: Final = 1.03
MATRICES: Final = 20
ROUNDS_A_PROCESS: Final = 3
LEAST_NONZEROS: Final = 10_000
CHILD: Final = r"""
import json, sys, time
import numpy as np, scipy.sparse as sp
import tensorwise as tw
threads = int(sys.argv[1])
CASES = {"spmv": ("y[i] += A[i,k] * x[k]", None), "spmm": ("C[i,j] += A[i,k] * B[k,j]", 64)}
def prepare(op, matrix):
    text, width = CASES[op]
    return tw.compile(text, A=matrix, threads=threads, sizes={} if width is None else {"j": width})
def timed(call, least_s):
    times, until = [], time.perf_counter() + least_s
    while not times or time.perf_counter() < until:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))
held = {}
for line in sys.stdin:
    command, *given = json.loads(line)
    if command == "load":
        op, path = given
        if path is None:
            matrix = sp.random_array((32, 32), density=0.2, rng=np.random.default_rng(1), dtype=np.float32, format="csr")
        else:
            matrix = tw.read(path)
        operator = prepare(op, matrix)
        shape = operator.shape[1:] if CASES[op][1] is None else (operator.shape[1], CASES[op][1])
        operand = np.random.default_rng(0).random(shape, np.float32)
        held = {"call": lambda: operator(operand), "prepare": lambda: prepare(op, matrix)}
        answer = float(np.asarray(operator(operand), np.float64).sum())
    elif command == "time":
        answer = timed(held[given[0]], given[1])
    print(json.dumps(answer), flush=True)
"""
"""What runs in each checkout; it reads commands and answers each with a line."""


class Checkout:
    """One checkout, its cache, and a process that runs its code."""

    def __init__(self, folder: Path, threads: int, cache: str) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TENSORWISE_")}
        self.folder, self._cache, self._threads = folder, cache, threads
        self.environment = {**kept, "PYTHONPATH": str(folder), "TENSORWISE_CACHE_DIR": cache}
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """End the process, and start another one."""
        self.close()
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(self._threads)],
            cwd=self._cache, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, *command: Any) -> float:
        """Send a command and return its answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.folder} ended: {command}")
        return float(json.loads(line))

    def import_s(self) -> float:
        """Return the seconds of ``import tensorwise`` in a new process, beyond those of an empty one."""
        script = "import time; b = time.perf_counter(); import tensorwise; print(time.perf_counter() - b)"
        found = subprocess.run(
            [sys.executable, "-c", script], env=self.environment, check=True, capture_output=True, text=True
        )
        return float(found.stdout)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def ratio_of(older: np.ndarray, newer: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    """Return the median ratio of seconds, newer over older, with its interval.

    Args:
        older, newer: seconds, a row a pair of processes.
    """
    ratios = newer / older
    drawn = ratios[rng.integers(len(ratios), size=(2000, len(ratios)))]
    resampled = np.sort(np.median(drawn.reshape(len(drawn), -1), axis=1))
    return {
        "ratio": float(np.median(ratios)),
        "interval": [float(resampled[49]), float(resampled[-50])],
        "seconds": float(np.median(newer)),
        "older_s": float(np.median(older)),
    }


def compare_imports(older: Checkout, newer: Checkout, rounds: int) -> dict[str, Any]:
    """Compare the seconds of ``import tensorwise``."""
    rng, seconds = np.random.default_rng(0), dict[Checkout, list[float]]()
    for turn in range(rounds + 1):
        for one in rng.permutation([older, newer]):  # type: ignore[arg-type]
            taken = one.import_s()
            if turn:  # the first warms up
                seconds.setdefault(one, []).append(taken)
    return ratio_of(np.array(seconds[older])[:, None], np.array(seconds[newer])[:, None], rng)


def measure(older: Checkout, newer: Checkout, op: str, path: Path | None, rounds: int) -> dict[str, Any]:
    """Compare calls and preparation of an operation on a matrix; None: a tiny one."""
    rng, whats = np.random.default_rng(0), ("call", "prepare")
    seconds = np.empty((2, len(whats), -(-rounds // ROUNDS_A_PROCESS), ROUNDS_A_PROCESS))
    for pair in range(seconds.shape[2]):
        sums = []
        for one in (older, newer):
            one.start()
            sums.append(one.ask("load", op, None if path is None else str(path)))
        if not np.isclose(sums[0], sums[1], rtol=1e-3):
            raise SystemExit(f"{op} {path}: the checkouts compute {sums}")
        with measuring_slot():
            for one in (older, newer):
                for what in whats:
                    one.ask("time", what, 0.03)  # warms up
            for turn in range(ROUNDS_A_PROCESS):
                for place, what in enumerate(whats):
                    for which in rng.permutation(2):
                        seconds[which, place, pair, turn] = (older, newer)[which].ask("time", what, 0.03)
    return {what: ratio_of(*seconds[:, place], rng) for place, what in enumerate(whats)}


def summarize(runs: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, and whether it holds."""
    lines, holds = [], bool(runs)
    groups: dict[str, dict[str, Any]] = {}
    for key, run in runs.items():
        for what, found in run.items():
            groups.setdefault(f"{key.split(' ')[0]} {what}", {})[key] = found
    for group, cases in groups.items():
        mean = geometric_mean([found["ratio"] for found in cases.values()])
        slower = [key for key, found in cases.items() if found["interval"][0] > LIMIT]
        holds &= mean <= LIMIT and not slower
        worst = max(cases, key=lambda key: cases[key]["ratio"])
        lines.append(
            f"{group}: {mean:.3f} of the older checkout's seconds in geometric mean of {len(cases)}, at worst "
            f"{cases[worst]['ratio']:.3f} ({worst}); slower beyond the interval: {', '.join(slower) or 'none'}"
        )
    return lines, holds


def main() -> None:
    """Run what is not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("older", type=Path, help="folder of the older checkout")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=RESULTS / "releases.json")
    options = parser.parse_args()
    commits = [
        subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True
        ).stdout.strip()
        for folder in (options.older, ROOT)
    ]
    chosen = items(2, True, LEAST_NONZEROS)
    chosen = chosen[:: max(1, len(chosen) // MATRICES)][:MATRICES]
    paths: dict[str, Path | None] = {"import": None, "spmv tiny": None, "spmm tiny": None}
    paths |= {f"{op} {item.name}": item.path for item in chosen for op in ("spmv", "spmm")}
    settings = {
        "older": commits[0],
        "newer": commits[1],
        "rounds": options.rounds,
        "threads": options.threads,
    }
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=[Path(__file__)])
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        older = Checkout(options.older.resolve(), options.threads, a)
        newer = Checkout(ROOT, options.threads, b)
        for key in results.left(paths):
            if key == "import":
                run = {"tensorwise": compare_imports(older, newer, options.rounds)}
            else:
                run = measure(older, newer, key.split(" ")[0], paths[key], options.rounds)
            results.add(key, run)
            print({what: round(found["ratio"], 3) for what, found in run.items()}, flush=True)
        older.close()
        newer.close()
    lines, holds = summarize(results.runs)
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    resumable(main)
