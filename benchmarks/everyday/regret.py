"""Claim: K products with a tuned-by-use array take less total time than SciPy's and MKL's over 60 corpus matrices, from
K = 10 to 10,000. The summary lists each target beside its figure. At every K the total is at most 1.10 times that of never
tuning, plus 1 ms.

    python benchmarks/everyday/regret.py [--columns 0,64,8,256] [--dtypes float64] [--threads 2] [--rounds 3] [--most-s 10]

A time is the wall time from the user's CSR to the K-th product ``A @ x``; 0 columns mean a vector. Each contestant runs in a
fresh process with a warm kernel cache (in-place library and portfolio) and an empty store:

ours           ``tw.asarray(A)``: reads the user's arrays in place
ours, frozen   ``tw.asarray(A).freeze()``, with its read-only copy counted
never tuned    ``ours`` with ``TENSORWISE_AUTOTUNE=off``
scipy          SciPy's ``A @ x``
mkl            inspector-executor, its inspector counted, with a hint of 1,000 calls
mkl, no hints  the same without hints and inspector; at each K the faster of the two is compared

Every product allocates its result. Imports, and what a process does once (loading libraries and kernels, starting threads),
are reported separately; the ratio that contains them is given, too. The latter is the difference between two equal uses of
two matrices, which have the rows of the user's matrix in another order. Rounds are interleaved in shuffled order; a ratio is
the median of the ratios within rounds. Results are compared with SciPy's in float64 within a rounding bound.

One process serves all K: it reads the clock after 1, 2, 5, 10, ... calls, up to --most-calls. It stops when the next reading
would exceed --most-s (--steady-s for contestants that do not tune); later readings are extrapolated from the second half of
its calls, and the summary counts them. --search-s adds the kernel that a search of so many seconds finds; only its calls are
timed, and the summary compares it with the last of the others' calls.
Matrices are chosen by ``matrices.py``: families of the manifest get places in turns, the largest family first; a family
gives matrices at equal distances in the order of their nonzeros. A case that is in the result file is not repeated.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.corpus import Results, resumable
from benchmarks.everyday.homes import Homes, variables
from benchmarks.everyday.judging import MARKS, READINGS, summarize
from benchmarks.everyday.matrices import choose, matrix_of, save

HERE: Final = Path(__file__).parent
CHANGING: Final = ("ours", "ours, frozen")
"""Contestants that may become faster while they run."""
LIBRARIES: Final = ("scipy", "mkl", "mkl, no hints")
"""Contestants that need no kernel cache."""
OWN_VARIABLES: Final = {
    "never tuned": {"TENSORWISE_AUTOTUNE": "off"},
    "mkl": {"OMP_PROC_BIND": "true"},
    "mkl, no hints": {"OMP_PROC_BIND": "true"},
}
"""Libraries get processors as generated kernels do."""
STRIDE: Final = 7
"""A run takes every seventh matrix in the order of sizes, then begins again one matrix later."""
WRONG: Final = 1.0
"""Error, in units of the rounding bound, above which a product is wrong."""
INPUTS: Final = ("homes.py", "matrices.py", "mkl_csr.py", "products.py", "regret.py")

Run = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Runs a task by a contestant in a process, and returns what it printed."""


def runner(homes: Homes, threads: int) -> Run:
    """Return what starts the processes."""
    base = variables(threads)

    def run(contestant: str, task: Mapping[str, Any]) -> dict[str, Any]:
        with homes.home() as home:
            done = subprocess.run(
                [sys.executable, str(HERE / "products.py"), json.dumps({"contestant": contestant, **task})],
                env={**base, **home, **OWN_VARIABLES.get(contestant, {})},
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            raise SystemExit(f"{contestant} failed on {dict(task)}:\n{done.stderr[-3000:]}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


def measure(
    run: Run, task: Mapping[str, Any], contestants: Sequence[str], options: argparse.Namespace, seed: int
) -> dict[str, Any]:
    """Measure all contestants on one matrix; ``seconds`` of a contestant are lines of seconds at `READINGS`, one a round."""
    rng = np.random.default_rng(seed)
    marks = [mark for mark in READINGS if mark <= options.most_calls]
    told: dict[str, dict[str, list[Any]]] = {
        name: {"import_s": [], "load_s": [], "seconds": [], "error": []} for name in contestants
    }
    for turn in range(options.rounds):
        for name in rng.permutation(np.array(contestants)):
            if name == "searched" and turn:
                continue
            most_s = options.most_s if name in CHANGING else options.steady_s
            found = run(str(name), {**task, "marks": marks, "most_s": most_s, "search_s": options.search_s})
            mine = told[str(name)]
            mine["import_s"].append(round(found["import_s"], 5))
            mine["load_s"].append(round(found["load_s"], 5))
            mine["seconds"].append(" ".join(f"{seconds:.4g}" for seconds in found["marks"].values()))
            mine["error"].append(round(found["error"], 3))
    wrong = [name for name, mine in told.items() if not all(error <= WRONG for error in mine["error"])]
    return {"wrong": wrong, "contestants": told}


def cases_of(names: Sequence[str], dtypes: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return all cases, in an order in which a part of them has matrices of all sizes.

    >>> cases_of("abcdefghi", ["float64"], ["0"])[:4]
    ['a 0 float64', 'h 0 float64', 'b 0 float64', 'i 0 float64']
    """
    scattered = [name for start in range(STRIDE) for name in names[start::STRIDE]]
    return [f"{name} {width} {dtype}" for dtype in dtypes for width in columns for name in scattered]


def contestants_of(options: argparse.Namespace) -> list[str]:
    """Return the names of the contestants."""
    from tensorwise.device.libraries.mkl import MklKernel

    names = [name for name in options.contestants.split(";") if name]
    if not MklKernel.installed():
        raise SystemExit("MKL is not installed: pip install mkl, or leave it out of --contestants")
    return [*names, *(["searched"] if options.search_s else [])]


def main() -> None:
    """Run what is not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--columns", default="0,64,8,256", help="0: a vector")
    parser.add_argument("--dtypes", default="float64")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--matrices", type=int, default=60, help="how many are chosen")
    parser.add_argument(
        "--most-s", type=float, default=10.0, help="seconds of a contestant that tunes itself"
    )
    parser.add_argument(
        "--steady-s", type=float, default=2.0, help="seconds of a contestant that does not change"
    )
    parser.add_argument("--most-calls", type=int, default=MARKS[-1], help="of a process")
    parser.add_argument("--search-s", type=float, default=0.0, help="seconds of the long search; 0: none")
    parser.add_argument("--contestants", default="scipy;mkl;mkl, no hints;ours;ours, frozen;never tuned")
    parser.add_argument(
        "--warm", type=Path, help="a kernel cache that is warm, made with TENSORWISE_CACHE_DIR"
    )
    parser.add_argument(
        "--no-portfolio", action="store_true", help="only the in-place library is compiled before"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "regret.json")
    options = parser.parse_args()
    chosen = {item.name: item for item in choose(options.matrices)}
    settings = {
        name: getattr(options, name)
        for name in ("threads", "rounds", "matrices", "most_s", "steady_s", "search_s")
    }
    settings["portfolio"] = not options.no_portfolio
    inputs = [HERE / name for name in INPUTS]
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=inputs)
    cases = cases_of(list(chosen), options.dtypes.split(","), options.columns.split(","))
    contestants = contestants_of(options)
    with tempfile.TemporaryDirectory() as folder:
        homes = Homes(Path(folder), options.warm)
        ours = any(name not in LIBRARIES for name in contestants)
        if ours and any(case not in results.runs for case in cases):
            homes.prepare(variables(options.threads), portfolio=not options.no_portfolio)
        run, saved = runner(homes, options.threads), (Path(folder) / "matrix.npz")
        last: tuple[str, str] = ("", "")
        for seed, case in enumerate(results.left(cases)):
            name, columns, dtype = case.split(" ")
            if last != (name, dtype):
                matrix, last = matrix_of(chosen[name].path, dtype), (name, dtype)
                save(matrix, saved)
            task = {"matrix": str(saved), "columns": int(columns)}
            found = measure(run, task, contestants, options, seed)
            about = {"family": chosen[name].family, "shape": list(matrix.shape), "nonzeros": matrix.nnz}
            results.add(case, {**about, **found})
            last_s = {who: mine["seconds"][-1].split()[-1] for who, mine in found["contestants"].items()}
            print(", ".join(f"{who} {seconds} s" for who, seconds in last_s.items()), flush=True)
    lines, holds = summarize(results.runs)
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    resumable(main)
