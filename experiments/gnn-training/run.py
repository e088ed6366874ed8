"""Train graph networks in several ways with the same weights and dropouts, and compare their curves; see README.md.

    python experiments/gnn-training/run.py FOLDER [--seconds 80] [--out results.json]

FOLDER has cora.npz and citeseer.npz. Nothing is timed. What is in the result file is not repeated.
"""

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from graphs import MODELS, Data, Training

from benchmarks.corpus import continued, digests, machine, same_machine, write_json

HERE = Path(__file__).parent


def trained(kind: Any, data: Data, seed: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return for each way the accuracy, every tenth loss, and how far the losses are from the reference's at most."""
    found = {way: Training(kind, data, way, seed) for way in values["ways"]}
    for number in range(values["epochs"]):
        for training in found.values():
            torch.manual_seed(1000 * seed + number)  # the same is dropped in each way
            training.epoch()
            training.judge()
    losses = {way: np.array(training.losses) for way, training in found.items()}
    return {
        way: {
            "accuracy": found[way].accuracy,
            "parted": float(np.abs(curve - losses[values["reference"]]).max()),
            "losses": curve[::10].round(5).tolist(),
        }
        for way, curve in losses.items()
    }


def summary(
    runs: Mapping[str, Any], values: Mapping[str, Any], expected: Mapping[str, Any]
) -> dict[str, Any]:
    """Return for each model and graph mean accuracies, how far curves part, and whether both are as they should be."""
    told: dict[str, Any] = {}
    for case in sorted({key.rpartition(" ")[0] for key in runs}):
        own = [run for key, run in runs.items() if key.rpartition(" ")[0] == case]
        model, _, graph = case.partition(" ")
        accuracy = {way: float(np.mean([run[way]["accuracy"] for run in own])) for way in values["ways"]}
        parted = {way: max(run[way]["parted"] for run in own) for way in values["ways"]}
        limit = max(values["least"], values["times"] * parted[values["other"]])
        published = expected.get(model, {}).get(graph, 0.0)
        told[case] = {
            "seeds": len(own), "accuracy": accuracy, "published": published, "parted": parted,
            "same_curve": all(one <= limit for one in parted.values()),
            "usual_accuracy": min(accuracy.values()) >= published - values["below"],
        }  # fmt: skip
    return told


def main() -> None:
    """Train what is left, and sum up."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="nothing is begun after so long")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    inputs = digests([HERE / "values.toml", *(options.folder / f"{graph}.npz" for graph in values["graphs"])])
    kept = continued(options.out, inputs, options.fresh)
    runs, start = kept.get("runs", {}), time.monotonic()
    for seed in range(values["seeds"]):
        for model in values["models"]:
            for graph in values["graphs"]:
                key = f"{model} {graph} {seed}"
                if key in runs or time.monotonic() - start > options.seconds:
                    continue
                if runs:
                    same_machine(options.out, kept)
                data = Data(options.folder / f"{graph}.npz", MODELS[model].loops)
                runs[key] = trained(MODELS[model], data, seed, values)
                told = summary(runs, values, expected)
                about = {"values": values, "machine": machine(), "inputs": inputs}
                write_json(options.out, {**about, "summary": told, "runs": runs})
                print(key, json.dumps(told[f"{model} {graph}"]), flush=True)


if __name__ == "__main__":
    main()
