"""Claim: new values for a frozen array, ``A.update(values)``, take at most the time of two products with the form in use.

    python benchmarks/everyday/update.py [--matrices 60] [--rounds 25] [--threads 2] [--use-s 0.5]

For matrices of the corpus, as in ``regret.py``, ``A @ x`` and ``A.T @ x`` are each called for --use-s seconds. Then
``update`` with new values, the product with the form that is in use by then (in place, or over slices) and SciPy's product
are timed in the same interleaved rounds; a ratio is the median of those within rounds. In ``both`` the array has forms of
both products. Results are compared with SciPy's before and after.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.corpus import Results, geometric_mean, resumable
from benchmarks.everyday.homes import Homes, variables
from benchmarks.everyday.matrices import choose, matrix_of
from tensorwise.device.timing import interleave, measuring_slot

HERE: Final = Path(__file__).parent
MOST_PRODUCTS: Final = 2.0
USES: Final = ("A @ x", "A.T @ x", "both")
ROUNDING: Final = 1e-11


def measure(path: str, use: str, rounds: int, use_s: float) -> dict[str, Any]:
    """Return the form in use, seconds of each variant and their ratios."""
    import tensorwise as tw

    matrix = matrix_of(Path(path), "float64")
    rng = np.random.default_rng(0)
    frozen = tw.asarray(matrix).freeze()
    values = itertools.cycle([rng.standard_normal(matrix.nnz) for _ in range(2)])
    used = {
        "A @ x": (frozen, rng.standard_normal(matrix.shape[1])),
        "A.T @ x": (frozen.T, rng.standard_normal(matrix.shape[0])),
    }
    wanted = [use] if use in used else list(used)
    for name in wanted:
        array, x = used[name]
        end = time.perf_counter() + use_s
        while time.perf_counter() < end:
            array @ x

    def check() -> None:
        now = sp.csr_array((frozen.data, matrix.indices, matrix.indptr), shape=matrix.shape)
        for name in wanted:
            array, x = used[name]
            plain = now if name == "A @ x" else now.T
            magnitude = abs(plain) @ abs(x)
            assert (abs(array @ x - plain @ x) <= ROUNDING * magnitude).all()

    forms = {one.product: one.way for one in frozen.tuning.products}
    array, x = used[wanted[0]]
    plain = matrix if wanted[0] == "A @ x" else matrix.T
    calls = {
        "update": lambda: frozen.update(next(values)),
        "product": lambda: array @ x,
        "scipy": lambda: plain @ x,
    }
    check()
    with measuring_slot() as slot:
        table = interleave(calls, rounds, 30.0, np.random.default_rng(0))
    check()
    ratios = {name: table.ratio("update", name).median for name in ("product", "scipy")}
    return {
        "forms": forms,
        "seconds": {name: table.median(name) for name in calls},
        "update over": ratios,
        "nonzeros": matrix.nnz,
        "note": "; ".join(filter(None, (slot.note, table.note))),
    }


def in_process(task: Mapping[str, Any], homes: Homes, threads: int) -> dict[str, Any]:
    """Return what `measure` does, from a process of its own with an empty store."""
    with homes.home() as home:
        done = subprocess.run(
            [sys.executable, __file__, "--task", json.dumps(task)],
            env={**variables(threads), **home}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{task} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def in_words(ratios: np.ndarray) -> str:
    """Return the geometric mean and the largest."""
    return f"{geometric_mean(ratios):.2f} (at most {ratios.max():.2f})"


def summarize(runs: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, and whether it holds."""
    lines, holds = list[str](), bool(runs)
    for use, packed in itertools.product(USES, (False, True)):
        some = [
            found["update over"]
            for case, found in runs.items()
            if case.endswith(f" {use}")
            and packed == any(not form.startswith("in place") for form in found["forms"].values())
        ]
        if not some:
            continue
        ours, theirs = (np.array([one[name] for one in some]) for name in ("product", "scipy"))
        met = float(ours.max()) <= MOST_PRODUCTS
        holds &= met
        form = "slices" if packed else "in place"
        lines.append(
            f"{'met' if met else 'MISSED'} {use}, {form} ({len(some)} matrices): an update takes {in_words(ours)} products; "
            f"{(ours > MOST_PRODUCTS).sum()} exceed {MOST_PRODUCTS:g}. Of SciPy's products {in_words(theirs)}"
        )
    return sorted(lines, key=lambda line: not line.startswith("MISSED")), holds


def main() -> None:
    """Measure what is not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--matrices", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--use-s", type=float, default=0.5)
    parser.add_argument("--warm", type=Path, help="folder with a warm kernel cache")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "update.json")
    options = parser.parse_args()
    if options.task:
        print(json.dumps(measure(**json.loads(options.task))))
        return
    names = ("matrices", "rounds", "threads", "use_s")
    settings = {name: getattr(options, name) for name in names}
    inputs = [HERE / name for name in ("homes.py", "matrices.py", "update.py")]
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=inputs)
    items = {item.name: item for item in choose(options.matrices)}
    cases = [f"{name} {use}" for name in items for use in USES]
    with tempfile.TemporaryDirectory() as folder:
        homes = Homes(Path(folder), options.warm)
        if any(case not in results.runs for case in cases):
            homes.prepare(variables(options.threads), portfolio=False)
        for case in results.left(cases):
            name, use = case.split(" ", 1)
            task = {
                "path": str(items[name].path),
                "use": use,
                "rounds": options.rounds,
                "use_s": options.use_s,
            }
            found = in_process(task, homes, options.threads)
            results.add(case, found)
            told = ", ".join(f"{who} {1e6 * seconds:.0f} us" for who, seconds in found["seconds"].items())
            print(f"{told}; {'; '.join(found['forms'].values())}", flush=True)
    lines, holds = summarize(results.runs)
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    resumable(main)
