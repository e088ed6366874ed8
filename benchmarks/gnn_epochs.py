"""Claim: on two threads, an epoch of training GCN, GraphSAGE or GAT on Cora or Citeseer takes less time with Tensorwise than
the same model takes in plain torch, with ``torch.sparse`` and with PyG.

    python benchmarks/gnn_epochs.py [--threads 2] [--budget 10] [--tune 20]

An epoch is forward, loss, backward and the optimiser's step, with the models of ``examples/graphs.py``: the same first
weights in each way, and features and edges dropped anew each time. Ways take turns in interleaved rounds; a speedup is the
median of ratios within a round. ``tuned`` has kernels that ``Graph.tune`` found in --tune seconds, without a memory of other
tunings. PyG takes part where it is installed. The data lie in ``planetoid`` of the corpus. A case that is in the result file
is not repeated.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

# As in gnn.py: torch's threads get a processor of their own, as ours have.
os.environ.setdefault("OMP_PROC_BIND", "true")

import numpy as np
import torch
from corpus import RESULTS, Results, geometric_mean, resumable, root

from tensorwise.device.timing import interleave

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from graphs import MODELS, WAYS, Data, Training

OURS: Final = {"tuned": "tensorwise tuned", "untuned": "tensorwise"}
"""What a speedup is of -> the way."""
ROUNDS: Final = 31


def measure(model: str, graph: str, budget_s: float, tune_s: float) -> dict[str, Any]:
    """Return the seconds of an epoch in each way, and the speedups over the best other one."""
    kind = MODELS[model]
    data = Data(root() / "planetoid" / f"{graph}.npz", kind.loops)
    trainings = {way: Training(kind, data, way, 0) for way in WAYS}
    trainings[OURS["tuned"]] = tuned = Training(kind, data, OURS["untuned"], 0)
    for training in trainings.values():
        training.epoch()
    for own in (tuned.ops.graph, tuned.ops.sparse):
        own.tune(tune_s / 2, store=False)
    calls = {way: training.epoch for way, training in trainings.items()}
    rounds = interleave(calls, ROUNDS, budget_s, np.random.default_rng(0))
    seconds = {way: rounds.median(way) for way in rounds.names}
    best = min(seconds.keys() - set(OURS.values()), key=seconds.__getitem__)
    return {
        "seconds": seconds,
        "best": best,
        "speedup": {which: rounds.ratio(best, way).median for which, way in OURS.items()},
        "note": rounds.note,
    }


def summary(runs: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, and whether it holds: for the kernels that are not tuned, in each case."""
    lines = []
    for which in OURS:
        ratios = [run["speedup"][which] for run in runs.values()]
        lines.append(f"{which}: {geometric_mean(ratios):.2f}x in geometric mean over {len(ratios)}")
    for key, run in runs.items():
        told = ", ".join(f"{way} {1e3 * took:.2f} ms" for way, took in run["seconds"].items())
        lines.append(f"{key}: {run['speedup']['untuned']:.2f}x {run['best']}; {told}")
    return lines, all(run["speedup"]["untuned"] > 1 for run in runs.values())


def main() -> None:
    """Run what is not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=10.0, help="seconds of rounds for a case")
    parser.add_argument("--tune", type=float, default=20.0, help="seconds of tuning for a case")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=RESULTS / "gnn_epochs.json")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "Sparse", UserWarning)  # that CSR is new to torch
    torch.set_num_threads(options.threads)
    settings = {"threads": options.threads, "budget_s": options.budget, "tune_s": options.tune}
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=[Path(__file__)])
    for key in results.left(f"{model} {graph}" for model in MODELS for graph in ("cora", "citeseer")):
        model, graph = key.split(" ")
        run = measure(model, graph, options.budget, options.tune)
        results.add(key, run)
        print(
            f"{run['speedup']['untuned']:.2f}x, tuned {run['speedup']['tuned']:.2f}x ({run['best']})",
            flush=True,
        )
    lines, holds = summary(results.runs)
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    resumable(main)
