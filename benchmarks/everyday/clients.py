"""Claim: patching SciPy makes ten programs that use its sparse matrices faster on 2 threads: at least 1.5x in geometric mean
over those that spend more than half of their time in products, none below 0.97x, with equal results.

    python benchmarks/everyday/clients.py [--rounds 7] [--threads 2] [--blas-threads 2] [--only als,pdhg]

A time is that of a whole process, from its start to its end: imports, reading the matrix, and writing the results included.
Each program of ``programs/`` runs unpatched (``python PROGRAM``), patched (``python -m tensorwise.patch PROGRAM``), and
patched with the store that its earlier runs have filled. All run in fresh processes, in shuffled order within each round.
Kernel caches are warm (in-place library and portfolio); nothing that a program compiled is kept. A speed-up is the median
of the ratios within rounds, with its 95 % interval.

The share of products is measured once, unpatched, by ``profiling.py``. Results are arrays; patched ones must be within the
program's tolerance of the unpatched ones, relative to the largest element: iterations and factorizations enlarge the
differences of rounding. Matrices are those of the corpus (``TENSORWISE_CORPUS``); of mere patterns the values are random.
A program that is in the result file is not repeated; one whose package is missing is left out, and said so.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.corpus import Results, geometric_mean, items, resumable
from benchmarks.everyday.homes import Homes, variables
from benchmarks.everyday.matrices import matrix_of
from benchmarks.releases import ratio_of

HERE: Final = Path(__file__).parent
TARGET, SHARE, FLOOR = 1.5, 0.5, 0.97
WAYS: Final[dict[str, tuple[str, ...]]] = {
    "unpatched": (),
    "patched": ("-m", "tensorwise.patch"),
    "patched again": ("-m", "tensorwise.patch"),
}
"""How a program is started; the last with the store of earlier runs."""
AGAIN: Final = "patched again"


@final
@dataclass(frozen=True)
class Program:
    """A program of ``programs/``.

    Attributes:
        matrix: name of a matrix of the corpus; or what it is given instead.
        package: what it needs besides SciPy.
        tolerance: largest difference of results, relative to the largest element.
        does: in words.
    """

    matrix: str
    package: str
    tolerance: float
    does: str

    @property
    def is_installed(self) -> bool:
        """Whether its package is found."""
        return importlib.util.find_spec(self.package) is not None


PROGRAMS: Final = {
    "pyamg_solve": Program("fem_bunny_p2_scalar", "pyamg", 1e-6, "pyamg: ten systems by multigrid"),
    "truncated_svd": Program(
        "gnn_amazon_photo_feat", "sklearn", 1e-6, "scikit-learn: TruncatedSVD, 100 components"
    ),
    "ridge": Program("deb_desc_terms", "sklearn", 1e-5, "scikit-learn: Ridge, sparse X, two penalties"),
    "nmf": Program("gnn_amazon_photo_feat", "sklearn", 1e-5, "scikit-learn: NMF, 40 topics"),
    "pagerank": Program("snap_email-enron-cc1", "networkx", 1e-9, "networkx: PageRank, two dampings"),
    "als": Program("musae_facebook_feat", "scipy", 1e-6, "alternating least squares, 16 factors"),
    "heat": Program("6", "skfem", 1e-8, "scikit-fem: heat equation, 20 implicit steps"),
    "pdhg": Program("mip_fast0507", "scipy", 1e-6, "linear program by PDHG"),
    "spectral_embedding": Program("knn_mnist_t10k_30NN", "sklearn", 1e-4, "scikit-learn: spectral embedding"),
    "expm": Program("gnn_amazon_cs_adj", "scipy", 1e-9, "expm_multiply, 8 columns"),
}


def differences(mine: Path, other: Path) -> float:
    """Return the largest difference of two files of arrays, relative to the largest element of each array."""
    with np.load(mine) as a, np.load(other) as b:
        if a.files != b.files or any(a[name].shape != b[name].shape for name in a.files):
            return float("inf")
        parts = [
            float(np.max(np.abs(a[name] - b[name]), initial=0.0) / np.max(np.abs(b[name]), initial=1e-300))
            for name in a.files
        ]
    return max(parts) if all(np.isfinite(parts)) else float("inf")


def run(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Run a process of this interpreter and return its seconds. Ends the program with its last lines where it fails."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command], env=dict(environment), capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return seconds


def measure(name: str, data: str, homes: Homes, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Profile a program once, then time it in rounds and compare its results."""
    program, script = PROGRAMS[name], str(HERE / "programs" / f"{name}.py")
    base = variables(options.threads, options.blas_threads)
    expected, counted = folder / "expected.npz", folder / "products.json"
    with homes.home() as home:
        run([script, data, str(expected)], base | home)  # files are read once before the clock counts
        whole_s = run([str(HERE / "profiling.py"), str(counted), script, data, str(expected)], base | home)
    profile = json.loads(counted.read_text())
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    worst: dict[str, float] = dict.fromkeys(WAYS, 0.0)
    rng, kept = np.random.default_rng(0), folder / f"{name}.sqlite"
    for _ in range(options.rounds):
        for way in rng.permutation(list(WAYS)):
            found = folder / "found.npz"
            with homes.home() as home:
                if way == AGAIN:
                    home["TENSORWISE_STORE"] = str(kept)
                    if not seconds[way]:
                        run([*WAYS[way], script, data, str(found)], base | home)  # fills the store
                seconds[way].append(run([*WAYS[way], script, data, str(found)], base | home))
            worst[way] = max(worst[way], differences(found, expected))
    return {
        "does": program.does,
        "matrix": program.matrix,
        "products_share": profile["products_s"] / whole_s,
        "products": profile["calls"],
        "tolerance": program.tolerance,
        "difference": worst,
        "seconds": seconds,
        "speedup": {way: speedup(seconds[way], seconds["unpatched"]) for way in WAYS if way != "unpatched"},
    }


def speedup(mine: Sequence[float], unpatched: Sequence[float]) -> list[float]:
    """Return how many times as fast a way is, with the 95 % interval of the median over rounds."""
    rng = np.random.default_rng(0)
    found = ratio_of(np.array(mine)[:, None], np.array(unpatched)[:, None], rng)
    return [found["ratio"], *found["interval"]]


def summarize(runs: Mapping[str, Mapping[str, Any]], missing: Sequence[str] = ()) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, and whether it holds."""
    lines, holds = list[str](), bool(runs) and not missing
    for way in ("patched", AGAIN):
        ratios = {name: found["speedup"][way][0] for name, found in runs.items()}
        heavy = [ratios[name] for name, found in runs.items() if found["products_share"] > SHARE]
        slow = [f"{name} {ratio:.2f}x" for name, ratio in ratios.items() if ratio < FLOOR]
        if way == "patched":
            holds &= bool(heavy) and geometric_mean(heavy) >= TARGET and not slow
        if ratios:
            worst = min(ratios, key=lambda name: ratios[name])
            lines.append(
                f"{way}: {geometric_mean(heavy):.2f}x in geometric mean of {len(heavy)} programs with more than half of "
                f"their time in products (target {TARGET}x), {geometric_mean(ratios.values()):.2f}x of all {len(ratios)}; "
                f"worst {worst} {ratios[worst]:.2f}x, below {FLOOR}x: {', '.join(slow) or 'none'}"
            )
    wrong = [
        f"{name} ({way}: {error:.1e}, tolerance {found['tolerance']:.0e})"
        for name, found in runs.items()
        for way, error in found["difference"].items()
        if not error <= found["tolerance"]
    ]
    lines.append(f"results that differ: {', '.join(wrong) or 'none'}")
    if missing:
        lines.append(f"not run, their packages are missing: {', '.join(missing)}")
    for found in sorted(runs.values(), key=lambda one: -one["products_share"]):
        told = (
            f"{way} {ratio:.2f}x [{low:.2f}, {high:.2f}]"
            for way, (ratio, low, high) in found["speedup"].items()
        )
        lines.append(
            f"{found['does']}: {100 * found['products_share']:.0f} % in {found['products']:,} products, "
            f"{np.median(found['seconds']['unpatched']):.2f} s unpatched; {', '.join(told)}"
        )
    return lines, holds and not wrong


def main() -> None:
    """Run the programs that are not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blas-threads", type=int, default=2, help="of NumPy's and SciPy's BLAS")
    parser.add_argument("--only", default=",".join(PROGRAMS), help="names of programs")
    parser.add_argument(
        "--warm", type=Path, help="a kernel cache that is warm, made with TENSORWISE_CACHE_DIR"
    )
    parser.add_argument(
        "--no-portfolio", action="store_true", help="only the in-place library is compiled before"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "clients.json")
    options = parser.parse_args()
    settings = {name: getattr(options, name) for name in ("rounds", "threads", "blas_threads")}
    inputs = [HERE / name for name in ("clients.py", "homes.py", "matrices.py", "profiling.py", "programs")]
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=inputs)
    wanted = options.only.split(",")
    missing = [name for name in wanted if not PROGRAMS[name].is_installed]
    patterns = {item.name: item for item in items(2)}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        homes = Homes(folder, options.warm)
        if any(name not in results.runs for name in wanted):
            homes.prepare(variables(options.threads), portfolio=not options.no_portfolio)
        for name in results.left(name for name in wanted if name not in missing):
            given = PROGRAMS[name].matrix
            if given in patterns:
                data = folder / "matrix.npz"
                sp.save_npz(data, matrix_of(patterns[given].path, "float64"), compressed=False)
                given = os.fspath(data)
            found = measure(name, given, homes, folder, options)
            results.add(name, found)
            print(", ".join(f"{way} {ratio[0]:.2f}x" for way, ratio in found["speedup"].items()), flush=True)
    lines, holds = summarize(results.runs, [name for name in missing if name not in results.runs])
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    resumable(main)
