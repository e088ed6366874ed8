"""Claims about choosing, on trees trained for 20,000 inputs of four features, where eight versions border on each other:

- a decision tree says what to call in at most 0.3 microseconds in C, over inputs in random order (MLCD: 0.9);
- ``tensorwise.select(name)(...)`` adds at most 5 microseconds to a Python call whose features are O(1);
- a chain of 1,000 kernels is placed on 3 devices in at most 0.1 microseconds a kernel.

    python benchmarks/select_overhead.py [--rounds 25] [--inputs 20000]

Of an input the fastest version is the one whose plane in the logarithms of the features is least: no machine's times.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from corpus import RESULTS, Results

import tensorwise as tw
from tensorwise.device.timing import interleave, measuring_slot
from tensorwise.model.cases import Cases
from tensorwise.model.choosing import TreeModel
from tensorwise.plan.chain import place_chain, place_chain_plain, shortest_path
from tensorwise.space.config import Config

TREE_S, CALL_S, KERNEL_S = 0.3e-6, 5e-6, 0.1e-6
FIELDS = ("m", "n", "k", "sparsity")
VERSIONS = 8
KERNELS = 1000


def cases(count: int, rng: np.random.Generator) -> Cases:
    """Inputs over the paper's ranges, and times that planes in their logarithms give, with 5 % of noise."""
    sizes = np.floor(2 ** rng.uniform(1, 15, (count, 3)))
    features = np.column_stack([sizes, rng.uniform(0.6, 1.0, count)])
    logs = np.column_stack([np.log2(sizes), 10 * features[:, 3]])
    planes = rng.normal(size=(4, VERSIONS))
    seconds = 1e-6 * np.exp2((logs - logs.mean(axis=0)) @ planes + 0.07 * rng.normal(size=(count, VERSIONS)))
    configs = tuple(Config({"version": f"v{place}"}) for place in range(VERSIONS))
    return Cases(FIELDS, configs, features, seconds, tuple(map(str, range(count))))


def tree(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds that a tree takes for one input: in C, many in one call; from Python; in plain Python."""
    rng = np.random.default_rng(0)
    model = TreeModel()
    model.fit_cases(cases(options.inputs, rng))
    assert model.choice is not None
    rows = cases(100_000, rng).features
    compiled = model.choice.compiled(len(FIELDS))
    one, point = compiled.one, tuple(rows[0].tolist())
    calls = {
        "C": lambda: compiled.values_at(rows),
        "from Python": lambda: one(*point),
        "plain Python": lambda: model.choice.at(point),
    }
    with measuring_slot() as slot:
        table = interleave(calls, options.rounds, 60.0, rng)
    seconds = {name: table.median(name) for name in calls}
    seconds["C"] /= len(rows)
    return {
        "seconds": seconds, "limit": ["C", TREE_S], "leaves": model.choice.leaves, "depth": model.choice.depth,
        "note": "; ".join(filter(None, (slot.note, table.note))),
    }  # fmt: skip


def call(options: argparse.Namespace) -> dict[str, Any]:
    """What selecting adds to the call of a Python function."""
    rng = np.random.default_rng(0)
    model = TreeModel()
    model.fit_cases(cases(options.inputs, rng))

    def shapes(a: np.ndarray, b: np.ndarray, sparsity: float) -> tuple[float, ...]:
        m, k = a.shape
        return m, b.shape[1], k, sparsity

    def nothing(a: np.ndarray, b: np.ndarray, sparsity: float) -> None:
        return None

    chosen = tw.versions("gemm", features=shapes, units=dict.fromkeys(FIELDS, "1"))
    for place in range(VERSIONS):
        chosen.version(nothing, name=f"v{place}")
    chosen.use(model)
    a, b = np.ones((40, 30)), np.ones((30, 20))
    calls = {"bare": lambda: nothing(a, b, 0.9), "selected": lambda: tw.select("gemm")(a, b, 0.9)}
    with measuring_slot() as slot:
        table = interleave(calls, options.rounds, 60.0, rng)
    added = float(np.median(table.samples("selected") - table.samples("bare")))
    return {
        "seconds": {**{name: table.median(name) for name in calls}, "added": added}, "limit": ["added", CALL_S],
        "note": "; ".join(filter(None, (slot.note, table.note))),
    }  # fmt: skip


def chain(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds a kernel for placing a chain, and for the shortest path (MLCD, section III-B4: 9.6 times as long)."""
    rng = np.random.default_rng(0)
    cost, move = rng.uniform(1, 2, (KERNELS, 3)), rng.uniform(0, 1, (KERNELS - 1, 3, 3))
    move[:, range(3), range(3)] = 0
    assert np.isclose(place_chain(cost, move)[1], shortest_path(cost, move)[1])
    calls = {
        "placed": lambda: place_chain(cost, move),
        "placed in plain Python": lambda: place_chain_plain(cost, move),
        "shortest path in plain Python": lambda: shortest_path(cost, move),
    }
    with measuring_slot() as slot:
        table = interleave(calls, options.rounds, 60.0, rng)
    return {
        "seconds": {name: table.median(name) / KERNELS for name in calls}, "limit": ["placed", KERNEL_S],
        "note": "; ".join(filter(None, (slot.note, table.note))),
    }  # fmt: skip


PARTS = {"tree": tree, "call": call, "chain": chain}


def main() -> None:
    """Measure, print and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=RESULTS / "select_overhead.json")
    options = parser.parse_args()
    settings = {"rounds": options.rounds, "inputs": options.inputs}
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=[Path(__file__)])
    for case in results.left(PARTS):
        results.add(case, PARTS[case](options))
    lines, holds = [], True
    for case, found in results.runs.items():
        name, limit = found["limit"]
        holds &= found["seconds"][name] <= limit
        told = ", ".join(f"{what} {1e6 * seconds:.3f} us" for what, seconds in found["seconds"].items())
        lines.append(f"{case}: {told} (limit of {name}: {1e6 * limit:g} us) {found['note']}".rstrip())
    results.write(lines, holds)
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
