"""Claim: forward and backward of a graph operator take at most a tenth more memory than its inputs, outputs and
gradients: nothing that has features for each edge is made, unless it is one of these.

    python benchmarks/gnn_memory.py [--nodes 100000] [--edges 1000000] [--features 64] [--threads 2]

Each operator runs in a process of its own, on a random graph, in float32. ``peak_bytes`` is the most memory that was
resident during its first forward and backward pass, above what was before the operands were made (``VmHWM`` and
``VmRSS`` of Linux, after a pass over a tiny graph that loads all code). ``counted_bytes`` are operands, the result and
its gradient, the gradients of operands, the pattern in the directions that were used, with the edges' numbers, and which
edges a maximum comes from. Allocators are told to give back what is freed and to do without huge pages. ``scatter`` is the
same in torch code that gathers a row for each edge.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from corpus import RESULTS, Results

LIMIT, HEADS = 1.1, 8
OPERATORS = (
    "copy_lhs/sum", "mul/sum", "copy_lhs/mean", "copy_lhs/max", "mul/max", "dot", "edge_softmax", "attention",
)  # fmt: skip
QUIET = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "NUMPY_MADVISE_HUGEPAGE": "0",
}
"""Environment in which memory that is freed is gone, and arrays take as many pages as they have."""


def resident(field: str) -> int:
    """Return ``VmRSS`` (now) or ``VmHWM`` (the most since it was reset) of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise SystemExit("needs Linux: /proc/self/status says nothing of resident memory")


def passes(operator: str, way: str, nodes: int, edges: int, features: int) -> tuple[Callable[[], int], int]:
    """Return a forward and backward pass, which tells the bytes counted beside operands, and those of operands."""
    import torch
    from scattering import Scattering
    from torch import Tensor
    from torch.nn import functional

    from tensorwise.front import torch as tw

    generator = torch.Generator().manual_seed(0)
    u, v = (torch.randint(0, nodes, (edges,), generator=generator) for _ in "uv")

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, requires_grad=True)

    if operator == "attention":
        operands = [drawn(nodes, HEADS, features // HEADS), drawn(nodes, HEADS), drawn(nodes, HEADS)]
    elif operator == "edge_softmax":
        operands = [drawn(edges, HEADS)]
    elif operator == "dot":
        operands = [drawn(nodes, features), drawn(nodes, features)]
    else:
        operands = [drawn(nodes, features), *([drawn(edges, 1)] if operator.startswith("mul") else [])]
    message, _, reduce = operator.partition("/")
    graph = tw.Graph(u, v, (nodes, nodes)) if way == "tensorwise" else None
    if graph is not None:
        u = v = u[:0].clone()  # the graph has edges of its own

    edges_of = Scattering(u, v, nodes)

    def ours() -> Tensor:
        assert graph is not None
        if operator == "attention":
            return tw.attention(graph, *operands)
        if operator == "edge_softmax":
            return tw.edge_softmax(graph, *operands)
        return (
            tw.gsddmm(graph, "dot", *operands)
            if operator == "dot"
            else tw.gspmm(graph, message, reduce, *operands)
        )

    def scattered() -> Tensor:
        if operator == "edge_softmax":
            return edges_of.softmax(*operands)
        if operator == "dot":
            return (operands[0][u] * operands[1][v]).sum(1, keepdim=True)
        rows = operands[0][u]
        if operator == "attention":
            scores = functional.leaky_relu(operands[1][u] + operands[2][v], 0.2)
            return edges_of.sum(rows * edges_of.softmax(scores)[:, :, None])
        rows = rows * operands[1] if message == "mul" else rows
        if reduce == "max":
            return edges_of.max(rows)
        total = edges_of.sum(rows)
        return total / torch.bincount(v, minlength=nodes).clamp(min=1)[:, None] if reduce == "mean" else total

    def run() -> int:
        out = ours() if graph is not None else scattered()
        given = torch.ones(out.shape)
        out.backward(given)
        made = 2 * given.nbytes + sum(operand.grad.nbytes for operand in operands if operand.grad is not None)
        made += 4 * out.numel() if reduce == "max" else 0  # int32: which edges
        if graph is None:
            return made
        used = [
            graph.graph.entries,
            *(vars(graph.graph)[name] for name in ("reversed",) if name in vars(graph.graph)),
        ]
        held = [
            array for entries in used for array in (*entries.coordinates, entries.pointers, entries.numbers)
        ]
        return made + sum(array.nbytes for array in held if array is not None)

    return run, sum(operand.nbytes for operand in operands)


def measured(operator: str, way: str, options: argparse.Namespace) -> dict[str, int]:
    """Return the peak and what is counted, in bytes; in a process that did nothing else."""
    import torch

    torch.set_num_threads(options.threads)
    passes(operator, way, 100, 1000, options.features)[0]()
    gc.collect()
    before = resident("VmRSS")
    run, given = passes(operator, way, options.nodes, options.edges, options.features)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
    counted = given + run()
    return {"peak_bytes": resident("VmHWM") - before, "counted_bytes": counted}


def summary(runs: Mapping[str, Mapping[str, int]]) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, and whether it holds."""
    lines, holds = [], True
    for operator in OPERATORS:
        ours, other = runs[f"{operator} tensorwise"], runs[f"{operator} scatter"]
        ratio = ours["peak_bytes"] / ours["counted_bytes"]
        holds = holds and ratio <= LIMIT
        lines.append(
            f"{operator}: {ours['peak_bytes'] / 1e6:.0f} MB, {ratio:.2f}x of {ours['counted_bytes'] / 1e6:.0f} MB counted; "
            f"scatter {other['peak_bytes'] / 1e6:.0f} MB"
        )
    return lines, holds


def main() -> None:
    """Run each operator both ways in processes of their own, or one of them in this process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=RESULTS / "gnn_memory.json")
    parser.add_argument(
        "--only", nargs=2, metavar=("OPERATOR", "WAY"), help="print one run, made in this process"
    )
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measured(*options.only, options)))
        return
    settings = {name: getattr(options, name) for name in ("nodes", "edges", "features", "threads")}
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=[Path(__file__)])
    sizes = [f"--{name}={value}" for name, value in settings.items()]
    for key in results.left(
        f"{operator} {way}" for operator in OPERATORS for way in ("tensorwise", "scatter")
    ):
        command = [sys.executable, __file__, "--only", *key.split(" "), *sizes]
        found: dict[str, Any] = json.loads(
            subprocess.run(
                command, env={**os.environ, **QUIET}, check=True, capture_output=True, text=True
            ).stdout
        )
        results.add(key, found)
        print(f"{found['peak_bytes'] / 1e6:.0f} of {found['counted_bytes'] / 1e6:.0f} MB", flush=True)
    lines, holds = summary(results.runs)
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    main()
