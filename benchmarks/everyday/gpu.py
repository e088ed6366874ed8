"""Claim: on a GPU, K products with a matrix that is tuned by being used take at most 1.05 times what the library's own
take at K = 100, and less time at K = 10,000, in geometric mean over corpus matrices.

    python benchmarks/everyday/gpu.py [--matrices 60] [--columns 0,8,64,256] [--dtypes float32] [--rounds 5]

It needs an NVIDIA GPU, the extra ``cuda`` and, for its tensors, ``torch``. A time is the wall time from the library's CSR
matrix in the GPU's memory to the end of the K-th product there; 0 columns mean a vector. CuPy's matrices have indices of 32
bits, PyTorch's of 64. Both multiply by cuSPARSE. Programs are compiled before: a first round is not counted. Each round
makes the matrices anew, in shuffled order; a ratio is the median of the ratios within rounds. Results are compared with
SciPy's. A case that is in the result file is not repeated.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.corpus import Results, geometric_mean, resumable
from benchmarks.everyday.judging import CALLS, SLOWER
from benchmarks.everyday.matrices import choose, matrix_of
from benchmarks.everyday.products import largest_error, operand
from benchmarks.everyday.regret import WRONG, cases_of

HERE: Final = Path(__file__).parent
TARGETS: Final = {100: 1.05, 10_000: 1.0}
INPUTS: Final = ("gpu.py", "matrices.py")
PEERS: Final = {"ours, cupy": "cupy", "ours, torch": "torch"}

Made = tuple[Callable[[], Any], Callable[[], None], Callable[[Any], np.ndarray]]
"""A product, what waits for the GPU, and what brings a result back."""


def cupy_product(matrix: sp.csr_array, x: np.ndarray, is_ours: bool) -> Made:
    """A product with CuPy's matrix."""
    import cupy
    import cupyx.scipy.sparse as cupy_sparse

    import tensorwise as tw

    parts = tuple(map(cupy.asarray, (matrix.data, matrix.indices, matrix.indptr)))
    given: Any = cupy_sparse.csr_matrix(parts, shape=matrix.shape)
    held = cupy.asarray(x)
    made = tw.asarray(given) if is_ours else given
    return lambda: made @ held, cupy.cuda.get_current_stream().synchronize, lambda result: result.get()


def torch_product(matrix: sp.csr_array, x: np.ndarray, is_ours: bool) -> Made:
    """A product with PyTorch's tensor."""
    import torch

    import tensorwise as tw

    parts = (
        torch.from_numpy(part)
        for part in (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)
    )
    tensor = torch.sparse_csr_tensor(*parts, size=matrix.shape).cuda()
    held = torch.from_numpy(x).cuda()
    made = tw.asarray(tensor) if is_ours else tensor
    return lambda: made @ held, torch.cuda.synchronize, lambda result: result.cpu().numpy()


def time_calls(made: Made, most_s: float) -> tuple[list[float], Any]:
    """Return seconds of the first 10, 100, ... calls, as many as take ``most_s`` seconds, and the last result."""
    call, wait, _ = made
    wait()
    begin, seconds, done, result = time.perf_counter(), list[float](), 0, None
    for calls in CALLS:
        if seconds and seconds[-1] * calls / done > most_s:
            break
        for _ in range(calls - done):
            result = call()
        wait()
        done = calls
        seconds.append(time.perf_counter() - begin)
    return seconds, result


def measure(matrix: sp.csr_array, columns: int, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Return seconds of each contestant, a list a round, and the largest error of each."""
    rng = np.random.default_rng(seed)
    x = operand(columns, matrix.shape[1], matrix.dtype)
    makers = {"cupy": cupy_product, "torch": torch_product}
    contestants = [name for peer in makers for name in (peer, f"ours, {peer}")]
    told: dict[str, Any] = {name: {"seconds": [], "error": 0.0} for name in contestants}
    for turn in range(-1, options.rounds):
        for name in rng.permutation(np.array(contestants)):
            made = makers[name.split(", ")[-1]](matrix, x, name.startswith("ours"))
            seconds, result = time_calls(made, options.most_s)
            mine = told[str(name)]
            mine["error"] = max(mine["error"], largest_error(made[2](result), matrix, x))
            if turn >= 0:
                mine["seconds"].append([round(one, 7) for one in seconds])
    wrong = [name for name, mine in told.items() if not mine["error"] <= WRONG]
    return {"wrong": wrong, "contestants": told}


def ratio(run: Mapping[str, Any], name: str, calls: int) -> float | None:
    """Return the median over rounds of seconds of ``name`` over its peer's; None where so many were not made."""
    place = CALLS.index(calls)
    mine, other = (run["contestants"][one]["seconds"] for one in (name, PEERS[name]))
    ratios = [a[place] / b[place] for a, b in zip(mine, other, strict=True) if min(len(a), len(b)) > place]
    return float(np.median(ratios)) if ratios else None


def summarize(runs: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, missed targets first, and whether it holds."""
    wrong = [f"{case} ({', '.join(run['wrong'])})" for case, run in runs.items() if run["wrong"]]
    lines, holds = (
        [f"{len(runs)} runs; wrong results: {', '.join(wrong) or 'none'}"],
        bool(runs) and not wrong,
    )
    missed, met = list[str](), list[str]()
    groups: dict[str, dict[str, Mapping[str, Any]]] = {}
    for case, run in runs.items():
        groups.setdefault(" ".join(case.split(" ")[1:]), {})[case] = run
    for group, some in groups.items():
        for name in PEERS:
            for calls in CALLS:
                ratios = {case: value for case, run in some.items() if (value := ratio(run, name, calls))}
                if not ratios:
                    continue
                mean, worst = geometric_mean(ratios.values()), max(ratios, key=lambda case: ratios[case])
                slower = sum(value > 1 / SLOWER for value in ratios.values()) / len(ratios)
                target = TARGETS.get(calls)
                is_met = target is None or mean <= target
                holds &= is_met
                text = (
                    f"{group} columns, {calls:,} calls, {name}/{PEERS[name]}: {mean:.2f} in geometric mean of {len(ratios)}"
                    + (f" (target {target:g})" if target else "")
                    + f", worst {ratios[worst]:.2f} {worst.split(' ')[0]}, {100 * slower:.0f} % below {SLOWER:g}x"
                )
                (met if is_met else missed).append(text)
    return [*lines, *(f"MISSED {line}" for line in missed), *(f"met {line}" for line in met)], holds


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the runs depend on, the GPU among it."""
    from tensorwise.toolchain.gpu import find_gpu

    facts = find_gpu().facts
    return {
        "rounds": options.rounds,
        "most_s": options.most_s,
        "gpu": facts["name"],
        "driver": facts["driver"],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--matrices", type=int, default=60)
    parser.add_argument("--columns", default="0,8,64,256", help="0: a vector")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most-s", type=float, default=1.0, help="seconds of a contestant in a round")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gpu.json")
    options = parser.parse_args(arguments)
    results = Results(
        options.out,
        __doc__ or "",
        settings_of(options),
        options.fresh,
        inputs=[HERE / name for name in INPUTS],
    )
    chosen = {item.name: item for item in choose(options.matrices)}
    cases = cases_of(list(chosen), options.dtypes.split(","), options.columns.split(","))
    for seed, case in enumerate(results.left(cases)):
        name, columns, dtype = case.split(" ")
        found = measure(matrix_of(chosen[name].path, dtype), int(columns), options, seed)
        results.add(case, found)
        told = (f"{one} {ratio(found, one, CALLS[1]) or 0:.2f}" for one in PEERS)
        print(", ".join(told), flush=True)
    lines, holds = summarize(results.runs)
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    resumable(main)
