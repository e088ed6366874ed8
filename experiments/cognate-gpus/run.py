"""Move what is known of GPUs to another with 50 measurements, on spaces that others measured whole; see README.md.

    python experiments/cognate-gpus/run.py FOLDER [--out results.json]

Nothing is timed: all figures follow from the files in FOLDER. Goes on where it was stopped.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from recorded.page import judge, page
from recorded.spaces import recorded
from recorded.ways import alone, at_random, models_of, transferred, zero_shot

from benchmarks.corpus import Results, resumable

HERE = Path(__file__).parent


def main() -> None:
    """Do what is left, judge, and write the page."""
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    budget, seeds = expected["budget"], range(expected["seeds"])
    inputs = [*sorted(options.folder.glob("*_*.json.gz")), HERE / "recorded"]
    results = Results(
        options.out, __doc__ or "", {"budget": budget, "seeds": len(seeds)}, options.fresh, inputs=inputs
    )
    runs = results.runs
    kernels = sorted({path.name.split("_")[0] for path in options.folder.glob("*_*.json.gz")})
    for kernel in kernels:
        space = recorded(options.folder, kernel)
        numbers = space.numbers()

        def keep(key: str, found: list[float], best: float, kernel: str = kernel) -> None:
            times = [round(seconds / best, 4) for seconds in found]
            results.add(f"{kernel}: {key}", {"times": times})
            print(f"{kernel}: {key}: {np.mean(times):.3f} times the optimum", flush=True)

        for target, seconds in space.seconds.items():
            best = float(seconds.min())
            if f"{kernel}: alone, {target}" not in runs:
                drawn = [at_random(seconds, budget, np.random.default_rng(seed)) for seed in seeds]
                keep(f"random, {target}", drawn, best)
                found = [alone(numbers, seconds, budget, np.random.default_rng(seed)) for seed in seeds]
                keep(f"alone, {target}", found, best)
        for target, seconds in space.seconds.items():
            if f"{kernel}: transferred, others to {target}" not in runs:
                models = models_of(numbers, *(there for gpu, there in space.seconds.items() if gpu != target))
                found = [transferred(models, seconds, budget, np.random.default_rng(seed)) for seed in seeds]
                keep(f"transferred, others to {target}", found, float(seconds.min()))
        for source, there in space.seconds.items():
            left = [
                target
                for target in space.seconds
                if target != source and f"{kernel}: transferred, {source} to {target}" not in runs
            ]
            models = models_of(numbers, there) if left else []
            for target in left:
                seconds = space.seconds[target]
                best = float(seconds.min())
                keep(f"zero-shot, {source} to {target}", [zero_shot(there, seconds)], best)
                found = [transferred(models, seconds, budget, np.random.default_rng(seed)) for seed in seeds]
                keep(f"transferred, {source} to {target}", found, best)
    known = {key: run["times"] for key, run in runs.items()}
    lines, holds = judge(known, expected)
    results.write(lines, holds)
    results.draw(page(known, expected))
    print(*lines, sep="\n")


if __name__ == "__main__":
    resumable(main)
