"""Claim: on two threads in float32, over the corpus's graphs, forward and backward of copy_lhs/sum, mul/sum, copy_lhs/max
(g-SpMM) and dot (g-SDDMM) with 64 and 256 features are at least 2x as fast as the best of torch.sparse, scatter-style torch
code and PyG in geometric mean, and below 0.95x on at most 2 %.

    python benchmarks/gnn.py [--features 64,256] [--threads 2] [--limit N] [--rounds 5]

Every way computes the same, which is checked; they are taken in turn, and a speedup is the median of ratios within a round.
A way that takes more than ten times the fastest's time in the first round, which is not counted, is not repeated. PyG takes
part where it is installed. A graph that is in the result file is not repeated.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from corpus import RESULTS, Results, entries_of, geometric_mean, items, speedups
from torch import Tensor

from tensorwise.front import torch as tw

GRAPHS, LEAST, TARGET, FLOOR, SHARE = ("gnn_", "snap_", "planetoid_"), 10_000, 2.0, 0.95, 0.02
MOST = 2**27
"""Edges times features up to which scatter-style code has the memory for its rows."""
HOPELESS = 10
OURS = "tensorwise"
Ways = dict[str, Callable[[], Tensor]]


def ways(path: Path, features: int) -> tuple[dict[str, Ways], list[Tensor]]:
    """Return by operator the ways to compute it, and the operands that get gradients."""
    entries = entries_of(path)
    rows, columns = (torch.from_numpy(array.astype("int64")) for array in entries.coordinates)
    (n, m), edges = entries.shape, entries.nnz
    pointers = torch.from_numpy(entries.row_pointers().astype("int64"))
    graph = tw.Graph.from_pointers(pointers, columns, m)
    generator = torch.Generator().manual_seed(0)
    x, y, w = (
        torch.randn(shape, generator=generator, requires_grad=True)
        for shape in ((m, features), (n, features), (edges,))
    )
    ones, wide = torch.ones(edges), rows[:, None].expand(edges, features)

    def csr(values: Tensor) -> Tensor:
        return torch.sparse_csr_tensor(pointers, columns, values, (n, m))

    def added(messages: Tensor) -> Tensor:
        return x.new_zeros(n, features).index_add(0, rows, messages)

    found: dict[str, Ways] = {
        "copy_lhs/sum": {
            OURS: lambda: tw.gspmm(graph, "copy_lhs", "sum", x),
            "torch.sparse": lambda: csr(ones) @ x,
            "scatter": lambda: added(x[columns]),
        },
        "mul/sum": {
            OURS: lambda: tw.gspmm(graph, "mul", "sum", x, w[:, None]),
            "torch.sparse": lambda: csr(w) @ x,
            "scatter": lambda: added(x[columns] * w[:, None]),
        },
        "copy_lhs/max": {
            OURS: lambda: tw.gspmm(graph, "copy_lhs", "max", x),
            "torch.sparse": lambda: torch.sparse.mm(csr(ones), x, "amax"),
            "scatter": lambda: x.new_zeros(n, features).scatter_reduce(
                0, wide, x[columns], "amax", include_self=False
            ),
        },
        "dot": {
            OURS: lambda: tw.gsddmm(graph, "dot", x, y)[:, 0],
            "scatter": lambda: (x[columns] * y[rows]).sum(1),
        },
    }
    if find_spec("torch_geometric") is not None:
        from torch_geometric.utils import scatter

        found["copy_lhs/sum"]["pyg"] = lambda: scatter(x[columns], rows, 0, n, "sum")
        found["mul/sum"]["pyg"] = lambda: scatter(x[columns] * w[:, None], rows, 0, n, "sum")
        found["copy_lhs/max"]["pyg"] = lambda: scatter(x[columns], rows, 0, n, "max")
    return found, [x, y, w]


def measure(path: Path, features: int, rounds: int) -> dict[str, Any]:
    """Return seconds (forward, backward) and the speedup over the best other way, by operator."""
    told: dict[str, Any] = {}
    operators, operands = ways(path, features)
    for operator, ours in operators.items():
        with torch.no_grad():
            wanted = ours[OURS]()
            wrong = [name for name, way in ours.items() if not torch.allclose(way(), wanted, 1e-3, 1e-3)]
        given = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1))
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ours}
        for number in range(rounds + 1):
            for name in seconds:
                start = time.perf_counter()
                out = ours[name]()
                middle = time.perf_counter()
                out.backward(given)
                seconds[name].append((middle - start, time.perf_counter() - middle))
                for operand in operands:
                    operand.grad = None
            if number == 0:
                first = {name: sum(times.pop()) for name, times in seconds.items()}
                limit = HOPELESS * min(first.values())
                others = sorted((name for name in first if name != OURS), key=lambda name: first[name])
                seconds = {
                    name: [] for name in (OURS, *others) if name in (OURS, others[0]) or first[name] < limit
                }
        totals = {name: [sum(pair) for pair in times] for name, times in seconds.items()}
        best = min(
            (name for name in totals if name != OURS), key=lambda name: statistics.median(totals[name])
        )
        told[operator] = {
            "seconds": {n: [statistics.median(part) for part in zip(*t)] for n, t in seconds.items()},
            "best": best,
            "speedup": statistics.median(a / b for a, b in zip(totals[best], totals[OURS])),
            "wrong": wrong,
        }
    return told


def summary(runs: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, and whether it holds."""
    ratios = {f"{key} {op}": found["speedup"] for key, run in runs.items() for op, found in run.items()}
    wrong = [f"{key} {op}" for key, run in runs.items() for op, found in run.items() if found["wrong"]]
    lines = [f"all: {speedups(ratios, FLOOR)}", f"results that differ: {', '.join(wrong) or 'none'}"]
    for operator in ("copy_lhs/sum", "mul/sum", "copy_lhs/max", "dot"):
        own = {key: ratio for key, ratio in ratios.items() if key.endswith(operator)}
        lines.append(f"{operator}: {speedups(own, FLOOR)}")
    below = sum(ratio < FLOOR for ratio in ratios.values()) / max(1, len(ratios))
    return lines, geometric_mean(ratios.values()) >= TARGET and below <= SHARE and not wrong


def main() -> None:
    """Run what is not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", default="64,256")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, help="the first so many graphs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=RESULTS / "gnn.json")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "Sparse", UserWarning)  # that CSR is new to torch
    torch.set_num_threads(options.threads)
    graphs = {item.name: item for item in items(2, least=LEAST) if item.name.startswith(GRAPHS)}
    graphs = {name: item for name, item in graphs.items() if not name.endswith("_feat")}
    wanted = [
        f"{name} {features}"
        for name in list(graphs)[: options.limit]
        for features in map(int, options.features.split(","))
        if graphs[name].nonzeros * features <= MOST
    ]
    settings = {"features": options.features, "threads": options.threads, "rounds": options.rounds}
    results = Results(options.out, __doc__ or "", settings, options.fresh)
    for key in results.left(wanted):
        name, features = key.split(" ")
        run = measure(graphs[name].path, int(features), options.rounds)
        results.add(key, run)
        print(", ".join(f"{op} {found['speedup']:.1f}x" for op, found in run.items()), flush=True)
    lines, holds = summary(results.runs)
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("\nstopped; the same command goes on from here") from None
