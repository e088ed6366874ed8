"""Claim: on two threads in float32, over graphs of the corpus, forward and backward of copy_lhs/sum, mul/sum, copy_lhs/max
(g-SpMM), dot (g-SDDMM) and GAT's attention with 64 and 256 features, tuned, are at least 2x as fast as the best of
torch.sparse, scatter-style torch code and PyG in geometric mean, and below 0.95x on at most 2 %.

    python benchmarks/gnn.py [--features 64,256] [--threads 2] [--limit 16] [--budget 1] [--tune 10]
    python benchmarks/gnn.py --device cuda --features 128 --tune 0 --out gnn-cuda.json     # on a GPU; no claim is made of it

Forward and backward are timed apart, in interleaved rounds; a speedup is the median of ratios within a round. ``tuned`` are
the kernels that ``Graph.tune`` found in --tune seconds a case, without a memory of other tunings; ``untuned`` those that a
new graph runs. Results and
gradients of every way are compared. A way that takes more than ten times the fastest's time in its first call is not timed
again. The graphs are --limit of the corpus's citation, co-purchase, social, web and internet graphs of 10,000 edges and
more, evenly by size. torch.sparse has no mul/sum on large ones, where the gradient of its matrix, dense, does not fit
into memory. PyG takes part where it is installed: plain, with its ``EdgeIndex``, and with torch-scatter or pyg-lib
where it finds them. A case that is in the result file is not repeated. ``gnn.html`` beside it shows the figures.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

# On virtual machines Linux wakes threads up on their waker's processor: torch's get one of their own, as ours have.
os.environ.setdefault("OMP_PROC_BIND", "true")

import numpy as np
import torch
from corpus import RESULTS, Item, Results, entries_of, geometric_mean, items, resumable, speedups
from kernels.draw import class_name, curve_key, sorted_curves
from pages import card, document, paragraphs, table
from scattering import Scattering
from torch import Tensor
from torch.nn import functional

from tensorwise.device.timing import interleave
from tensorwise.front import torch as tw
from tensorwise.front.svg import element

FAMILIES, LEAST = ("citation", "co-purchase", "social", "web", "internet"), 10_000
TARGET, FLOOR, SHARE = 2.0, 0.95, 0.02
MOST = 2**27
"""Edges times features up to which scatter-style code has the memory for its rows."""
MOST_DENSE = 2**27
"""Rows times columns up to which torch.sparse has the memory for the gradient of a matrix, which it makes dense."""
HOPELESS, HEADS, SLOPE = 10, 8, 0.2
OURS: Final = {"tuned": "tensorwise tuned", "untuned": "tensorwise"}
"""What a speedup is of -> the way."""
DIRECTIONS = "forward", "backward"
COLOURS = {
    "copy_lhs/sum": "#1f78c8", "mul/sum": "#1b9e77", "copy_lhs/max": "#e0a100", "dot": "#c069a5", "attention": "#e4572e",
}  # fmt: skip
"""Operator -> colour of its curve."""
Ways = dict[str, Callable[[], Tensor]]


def graphs(limit: int, features: int) -> list[Item]:
    """Return the graphs of the corpus that can be run, smallest first; of more than ``limit`` an even choice by size."""
    found = [
        item for item in items(2, least=LEAST) if item.family in FAMILIES and item.nonzeros * features <= MOST
    ]
    places = np.linspace(0, len(found) - 1, min(limit, len(found))).round().astype(int)
    return [found[place] for place in places]


def ways(path: Path, features: int, operator: str, device: str) -> tuple[Ways, list[Tensor], tw.Graph]:
    """Return the ways to compute an operator, the operands that get gradients, and the graph that is to be tuned."""
    entries = entries_of(path)
    rows, columns = (torch.from_numpy(array.astype("int64")) for array in entries.coordinates)
    (n, m), edges = entries.shape, entries.nnz
    pointers = torch.from_numpy(entries.row_pointers().astype("int64"))
    graphs = {way: tw.Graph.from_pointers(pointers, columns, m) for way in OURS.values()}
    rows, columns, pointers = (array.to(device) for array in (rows, columns, pointers))
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device).requires_grad_()

    x, y, w = drawn(m, features), drawn(n, features), drawn(edges)
    ones, scatters = torch.ones(edges, device=device), Scattering(columns, rows, n)

    def csr(values: Tensor) -> Tensor:
        return torch.sparse_csr_tensor(pointers, columns, values, (n, m))

    def ours(compute: Callable[[tw.Graph], Tensor]) -> Ways:
        return {way: partial(compute, graph) for way, graph in graphs.items()}

    pyg = find_spec("torch_geometric") is not None
    if pyg:
        from torch_geometric import EdgeIndex
        from torch_geometric.utils import scatter, softmax

        index = EdgeIndex(torch.stack([columns, rows]), sparse_size=(m, n), sort_order="col").fill_cache_()
    found: Ways
    operands = [x]
    match operator:
        case "copy_lhs/sum":
            found = {
                **ours(lambda graph: tw.gspmm(graph, "copy_lhs", "sum", x)),
                "torch.sparse": lambda: csr(ones) @ x,
                "scatter": lambda: scatters.sum(x[columns]),
            }
            if pyg:
                found["pyg"] = lambda: scatter(x[columns], rows, 0, n, "sum")
                found["pyg EdgeIndex"] = lambda: index.matmul(x, reduce="sum", transpose=True)
        case "mul/sum":
            found = {
                **ours(lambda graph: tw.gspmm(graph, "mul", "sum", x, w[:, None])),
                "scatter": lambda: scatters.sum(x[columns] * w[:, None]),
            }
            if n * m <= MOST_DENSE:
                found["torch.sparse"] = lambda: csr(w) @ x
            if pyg:
                found["pyg"] = lambda: scatter(x[columns] * w[:, None], rows, 0, n, "sum")
                found["pyg EdgeIndex"] = lambda: index.matmul(x, w, reduce="sum", transpose=True)
            operands = [x, w]
        case "copy_lhs/max":
            found = {
                **ours(lambda graph: tw.gspmm(graph, "copy_lhs", "max", x)),
                "torch.sparse": lambda: torch.sparse.mm(csr(ones), x, "amax"),
                "scatter": lambda: scatters.max(x[columns]),
            }
            if pyg:
                found["pyg"] = lambda: scatter(x[columns], rows, 0, n, "max")
        case "dot":
            found = {
                **ours(lambda graph: tw.gsddmm(graph, "dot", x, y)[:, 0]),
                "torch.sparse": lambda: torch.sparse.sampled_addmm(csr(ones), y, x.T, beta=0.0).values(),
                "scatter": lambda: (x[columns] * y[rows]).sum(1),
            }
            operands = [x, y]
        case _:
            values, sources, destinations = operands = [
                drawn(m, HEADS, features // HEADS),
                drawn(m, HEADS),
                drawn(n, HEADS),
            ]

            def scores() -> Tensor:
                return functional.leaky_relu(sources[columns] + destinations[rows], SLOPE)

            found = {
                **ours(lambda graph: tw.attention(graph, values, sources, destinations, SLOPE)),
                "scatter": lambda: scatters.sum(values[columns] * scatters.softmax(scores())[:, :, None]),
            }
            if pyg:
                found["pyg"] = lambda: scatter(
                    values[columns] * softmax(scores(), rows, None, n)[:, :, None], rows, 0, n, "sum"
                )
    return found, operands, graphs[OURS["tuned"]]


def measure(
    path: Path, features: int, operator: str, budget_s: float, tune_s: float, device: str
) -> dict[str, Any]:
    """Return for each direction the seconds of each way and the speedups over the best other, and what differs."""
    found, operands, graph = ways(path, features, operator, device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def until_done(call: Callable[[], object]) -> Callable[[], None]:
        return lambda: (call(), wait())[1]

    generator = torch.Generator().manual_seed(1)
    given: Tensor | None = None
    first: dict[str, float] = {}
    outs: dict[str, Tensor] = {}
    wanted: Sequence[Tensor] = ()
    wrong, failed, own = [], {}, set(OURS.values())
    out = found[OURS["tuned"]]()
    torch.autograd.grad(out, operands, torch.ones_like(out))
    chosen = []
    if tune_s and device == "cuda":
        found_there = graph.graph.on_gpu().tune(tune_s, store=False)
        chosen = [result.program.schedule_text if result.program else "" for result in found_there]
    elif tune_s:
        chosen = [result.best.schedule for result in graph.tune(tune_s, store=False)]
    for name, way in found.items():
        try:
            for _ in range(2):  # the second is timed: what is compiled or made once is there by then
                start = time.perf_counter()
                out = way()
                given = torch.randn(out.shape, generator=generator).to(device) if given is None else given
                got = (out.detach(), *torch.autograd.grad(out, operands, given, retain_graph=True))
                wait()
                took = time.perf_counter() - start
        except RuntimeError as error:  # of torch: it lacks the memory, or the gradient
            failed[name] = str(error)[:300]
            continue
        first[name] = took
        wanted = wanted or got
        if not all(_close(one, other) for one, other in zip(got, wanted, strict=True)):
            wrong.append(name)
        outs[name] = out
        kept = min(first.keys() - own, key=first.__getitem__, default="")
        limit = HOPELESS * min(first.values())
        for other in outs.keys() - own - {kept}:
            if first[other] > limit:
                del outs[other]  # and what it keeps for its gradient
    told: dict[str, Any] = {"edges": entries_of(path).nnz, "wrong": wrong, "failed": failed, "tuned": chosen}
    calls = {
        "forward": {name: until_done(found[name]) for name in outs},
        "backward": {
            name: until_done(lambda out=out: torch.autograd.grad(out, operands, given, retain_graph=True))
            for name, out in outs.items()
        },
    }
    for direction in DIRECTIONS:
        rounds = interleave(calls[direction], 7, budget_s, np.random.default_rng(0))
        seconds = {name: rounds.median(name) for name in rounds.names}
        best = min(seconds.keys() - own, key=seconds.__getitem__)
        told[direction] = {
            "seconds": seconds,
            "best": best,
            "speedup": {which: rounds.ratio(best, way).median for which, way in OURS.items()},
            "note": rounds.note,
        }
    return told


def _close(one: Tensor, other: Tensor) -> bool:
    """Whether two results agree, beside the largest of them: sums are taken in another order.

    One element in a million may differ: where two edges tie for a maximum, some give the gradient to one of them and
    others a half to each.
    """
    bound = 1e-4 * float(other.abs().max() if len(other) else 0)
    differ = int((~torch.isclose(one, other, rtol=1e-3, atol=bound)).sum())
    return one.shape == other.shape and differ <= one.numel() / 1e6


def cases(
    runs: Mapping[str, Mapping[str, Any]], which: str = "tuned"
) -> dict[tuple[str, str], dict[str, float]]:
    """Return the speedups of each operator and direction by graph and features; ``which`` is one of OURS."""
    found: dict[tuple[str, str], dict[str, float]] = {
        (operator, direction): {} for operator in COLOURS for direction in DIRECTIONS
    }
    for key, run in runs.items():
        name, features, operator = key.split(" ")
        for direction in DIRECTIONS:
            found[operator, direction][f"{name} {features}"] = run[direction]["speedup"][which]
    return {case: ratios for case, ratios in found.items() if ratios}


def summary(runs: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, and whether it holds: all of it, and for each operator and direction."""
    wrong = [f"{key} {name}" for key, run in runs.items() for name in run["wrong"]]
    lines = [f"results that differ: {', '.join(wrong) or 'none'}"]
    holds = not wrong
    for which in reversed(OURS):
        found = cases(runs, which)
        means = [geometric_mean(own.values()) for own in found.values()]
        ratios = [ratio for own in found.values() for ratio in own.values()]
        below = sum(ratio < FLOOR for ratio in ratios) / max(1, len(ratios))
        lines.append(
            f"{which}, all: {geometric_mean(ratios):.2f}x in geometric mean over {len(ratios)}, "
            f"{100 * below:.1f} % below {FLOOR:g}x"
        )
        lines += [
            f"{which}, {operator} {direction}: {speedups(own, FLOOR)}"
            for (operator, direction), own in found.items()
        ]
    return lines, holds and min(means, default=0.0) >= TARGET and below <= SHARE  # of those that are tuned


def page(held: Mapping[str, Any]) -> str:
    """Return the page of a result file."""
    runs = held["runs"]
    found = cases(runs)
    facts = ", ".join(f"{name} {value}" for name, value in {**held["machine"], **held["settings"]}.items())
    parts = [
        element("h1", "Graph operators against torch.sparse, scatter and PyG"),
        paragraphs(
            [
                *(line for line in held["summary"] if "all:" in line or "differ" in line),
                held["claim"].split("\n\n")[2].replace("\n", " ").replace("``", ""),
                facts,
            ]
        ),
    ]
    for direction in DIRECTIONS:
        curves = {operator: list(own.values()) for (operator, way), own in found.items() if way == direction}
        rows, plain = [], cases(runs, "untuned")
        for operator in curves:
            own = found[operator, direction]
            worst = min(own, key=own.__getitem__)
            rows.append(
                [
                    operator,
                    f"{geometric_mean(own.values()):.2f}x",
                    f"{geometric_mean(plain[operator, direction].values()):.2f}x",
                    str(len(own)),
                    f"{100 * sum(ratio < FLOOR for ratio in own.values()) / len(own):.1f} %",
                    f"{own[worst]:.2f}x {worst}",
                ]
            )
        head = ("tuned", "geometric mean", "untuned", "over", f"below {FLOOR:g}x", "worst")
        parts.append(
            card(
                direction.capitalize(),
                element("figure", sorted_curves(curves, "operator"))
                + curve_key(list(curves))
                + table(head, rows),
            )
        )
    names = list(dict.fromkeys(name for run in runs.values() for name in run["forward"]["seconds"]))
    rows = []
    for key, run in runs.items():
        for direction in DIRECTIONS:
            took = run[direction]["seconds"]
            told = [f"{1e3 * took[name]:.2f}" if name in took else "" for name in names]
            rows.append([key, direction, *told, f"{run[direction]['speedup']['tuned']:.2f}x"])
    parts.append(card("Milliseconds of each way", table(("", "", *names, "speedup, tuned"), rows)))
    style = "".join(
        f".curve.{name} {{ stroke: {colour}; fill: none; stroke-width: 1.8; }} "
        f".key i.{name} {{ background: {colour}; }} circle.{name} {{ fill: {colour}; stroke: none; }}\n"
        for name, colour in ((class_name(operator), colour) for operator, colour in COLOURS.items())
    )
    return document("Graph operators", "\n".join(parts), style)


def main() -> None:
    """Run what is not in the result file yet, then print the summary and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", default="64,256")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, default=16, help="so many graphs, evenly by size")
    parser.add_argument(
        "--budget", type=float, default=1.0, help="seconds of rounds for a case and direction"
    )
    parser.add_argument("--tune", type=float, default=10.0, help="seconds of tuning for a case")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=RESULTS / "gnn.json")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "Sparse", UserWarning)  # that CSR is new to torch
    torch.set_num_threads(options.threads)
    widths = [int(text) for text in options.features.split(",")]
    chosen = {item.name: item for item in graphs(options.limit, min(widths))}
    wanted = [
        f"{name} {features} {operator}"
        for name, item in chosen.items()
        for features in widths
        if item.nonzeros * features <= MOST
        for operator in COLOURS
    ]
    settings = {
        "features": options.features,
        "threads": options.threads,
        "limit": options.limit,
        "budget_s": options.budget,
        "tune_s": options.tune,
        **({"device": torch.cuda.get_device_name()} if options.device == "cuda" else {}),
    }
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=[Path(__file__)])
    for key in results.left(wanted):
        name, features, operator = key.split(" ")
        run = measure(
            chosen[name].path, int(features), operator, options.budget, options.tune, options.device
        )
        results.add(key, run)
        told = ", ".join(
            f"{way} {run[way]['speedup']['tuned']:.2f}x, untuned {run[way]['speedup']['untuned']:.2f}x ({run[way]['best']})"
            for way in DIRECTIONS
        )
        print(told + (f"; differ: {run['wrong']}" if run["wrong"] else ""), flush=True)
    lines, holds = summary(results.runs)
    results.write(lines, holds)
    results.draw(page(json.loads(options.out.read_text())))
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    resumable(main)
