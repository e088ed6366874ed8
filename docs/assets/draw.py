"""Draw the pictures of the how-to pages from committed results, or from small examples that are computed here.

    python docs/assets/draw.py [NAME ...]

Without names all are drawn, each into its SVG beside this file. Nothing is timed.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tensorwise.front.svg import COLOURS, element, label, picture

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]


def patched() -> str:
    """Speed-ups of whole programs under the patch of SciPy, with their 95 % intervals."""
    held: dict[str, Any] = json.loads((ROOT / "benchmarks/everyday/results/clients.json").read_text())
    runs = sorted(held["runs"].values(), key=lambda run: -run["speedup"]["patched"][0])
    left, right, top, row = 330.0, 720.0, 58.0, 27.0

    def across(speedup: float) -> float:
        return left + (right - left) * (speedup - 0.75) / 1.75

    bottom = top + row * len(runs)
    parts = [label(left, 20, "times as fast with the patch (median; line: 95 % interval)", class_="name")]
    for tick in (1.0, 1.5, 2.0, 2.5):
        x = across(tick)
        parts.append(
            element("path", class_="frame" if tick == 1 else "grid", d=f"M{x:.1f} {top - 8}V{bottom}")
        )
        parts.append(label(x, top - 14, f"{tick:g}x", anchor="middle"))
    for place, run in enumerate(runs):
        middle, low, high = run["speedup"]["patched"]
        y = top + row * place
        start, end = sorted((across(1), across(middle)))
        share = f"{run['products_share']:.0%}".replace("%", " %")
        parts += [
            label(left - 46, y + 14, run["does"], class_="name", anchor="end"),
            label(left - 8, y + 14, share, anchor="end"),
            element(
                "rect",
                x=start,
                y=y + 3,
                width=end - start,
                height=15,
                fill=COLOURS[0] if middle > 1 else COLOURS[3],
            ),
            element("path", class_="frame", d=f"M{across(low):.1f} {y + 10.5}H{across(high):.1f}"),
            label(across(high) + 6, y + 14, f"{middle:.2f}x"),
        ]
    parts.append(label(left - 8, top - 14, "time in products", anchor="end"))
    settings, machine = held["settings"], held["machine"]
    source = (
        f"{machine['processor']} (Zen 4), {settings['threads']} threads, SciPy {machine['scipy']}, "
        f"{settings['rounds']} rounds; from benchmarks/everyday/results/clients.json"
    )
    parts.append(label(8, bottom + 24, source))
    return picture(
        780, bottom + 34, "".join(parts), "Speed-ups of ten unchanged programs under the patch of SciPy"
    )


def cells() -> str:
    """The first two principal components of the simulated cells of ``docs/howto/pca-single-cells.md``."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(3, size=600)
    profiles = rng.gamma(0.3, 1.0, size=(3, 1000))
    depths = 0.3 * rng.gamma(5, 0.2, size=(600, 1))
    counts = rng.poisson(profiles[kinds] * depths).astype(np.float64)
    logs = np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True))
    U, lengths, _ = np.linalg.svd(logs - logs.mean(axis=0), full_matrices=False)
    scores = U[:, :2] * lengths[:2]
    low, high = scores.min(axis=0), scores.max(axis=0)
    places = (scores - low) / (high - low)
    parts = [
        element("path", class_="frame", d="M40 20V300H440"),
        label(240, 322, "first principal component", anchor="middle"),
        label(46, 16, "second principal component"),
    ]
    for kind in range(3):
        parts += [
            element("circle", cx=50 + 380 * x, cy=292 - 264 * y, r=2.5, fill=COLOURS[kind], fill_opacity=0.6)
            for x, y in places[kinds == kind].tolist()
        ]
        parts.append(element("circle", cx=464, cy=44 + 22 * kind, r=4, fill=COLOURS[kind]))
        parts.append(label(474, 48 + 22 * kind, f"type {'ABC'[kind]}", class_="name"))
    return picture(
        540, 332, "".join(parts), "First two principal components of 600 simulated cells of three types"
    )


def cp() -> str:
    """A tensor as a sum of rank-one tensors, and the fit of the example of ``docs/howto/cp-decomposition.md``."""
    rng = np.random.default_rng(0)
    shape, rank = (40, 30, 20), 3
    truth = [rng.random((extent, rank)) * (rng.random((extent, rank)) < 0.3) for extent in shape]
    X = np.einsum("ir,jr,kr->ijk", *truth)
    rng = np.random.default_rng(0)
    factors = [rng.random((extent, rank)) for extent in shape]
    fits = []
    for _ in range(60):
        for mode in range(3):
            others = factors[:mode] + factors[mode + 1 :]
            gram = np.prod([factor.T @ factor for factor in others], axis=0)
            text = ("ijk,jr,kr->ir", "ijk,ir,kr->jr", "ijk,ir,jr->kr")[mode]
            factors[mode] = np.einsum(text, X, *others) @ np.linalg.pinv(gram)
        error = np.linalg.norm(X - np.einsum("ir,jr,kr->ijk", *factors))
        fits.append(float(1 - error / np.linalg.norm(X)))

    cube = element("path", class_="frame", d="M30 120h80v80h-80zM30 120l30 -30h80v80l-30 30M110 120l30 -30")
    parts = [cube, label(70, 166, "X", class_="name", anchor="middle"), label(158, 152, "=", class_="name")]
    for term in range(3):
        x = 182 + 92 * term
        for path in (f"M{x} 120h9v80h-9z", f"M{x + 15} 106h52v9h-52z", f"M{x + 11} 100l28 -28h9l-28 28z"):
            parts.append(element("path", d=path, fill=COLOURS[term], fill_opacity=0.75))
        parts.append(label(x + 14, 166, f"a{term + 1}"))
        parts.append(label(x + 72, 115, f"b{term + 1}"))
        parts.append(label(x + 52, 82, f"c{term + 1}"))
        if term < 2:
            parts.append(label(x + 72, 152, "+", class_="name"))
    left, right, top, bottom = 520.0, 800.0, 40.0, 240.0
    parts.append(label(left, 24, "fit after each sweep (1 is exact)", class_="name"))
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - (bottom - top) * tick
        parts.append(element("path", class_="grid", d=f"M{left} {y:.1f}H{right}"))
        parts.append(label(left - 6, y + 4, f"{tick:g}", anchor="end"))
    points = [
        f"{left + (right - left) * sweep / 60:.1f} {bottom - (bottom - top) * fit:.1f}"
        for sweep, fit in enumerate(fits, 1)
    ]
    parts.append(element("path", d="M" + "L".join(points), fill="none", stroke=COLOURS[0], stroke_width=2))
    parts += [
        label(left + (right - left) * sweep / 60, bottom + 18, sweep, anchor="middle")
        for sweep in (1, 20, 40, 60)
    ]
    parts.append(label((left + right) / 2, bottom + 36, "sweep", anchor="middle"))
    description = "A tensor as a sum of three rank-one tensors, and the fit of alternating least squares"
    return picture(820, 286, "".join(parts), description)


def pruned() -> str:
    """A dense weight, the mask of its largest entries, and what a sparse layer stores."""
    rng = np.random.default_rng(4)
    rows, columns, size = 10, 16, 13
    weight = rng.standard_normal((rows, columns))
    mask = np.abs(weight) >= np.sort(np.abs(weight).ravel())[-16]
    parts = []
    titles = ("dense weight: 160 values", "mask: the largest 10 % stay", "stored: 16 values and their places")
    for panel, title in enumerate(titles):
        left = 20.0 + 262 * panel
        parts.append(label(left, 20, title, class_="name"))
        for row in range(rows):
            for column in range(columns):
                strength = min(1.0, abs(float(weight[row, column])) / 2.2)
                colour = COLOURS[0] if weight[row, column] > 0 else COLOURS[1]
                kept = bool(mask[row, column])
                fill = "#1c1d21" if panel == 1 else colour
                opacity = strength if panel == 0 else 1.0
                if panel == 0 or kept:
                    parts.append(
                        element(
                            "rect", x=left + column * size, y=32.0 + row * size, width=size - 1, height=size - 1,
                            fill=fill, fill_opacity=opacity,
                        )
                    )  # fmt: skip
        parts.append(
            element("rect", class_="grid", x=left - 1, y=31, width=columns * size + 1, height=rows * size + 1)
        )
    places = np.argwhere(mask)
    parts.append(label(20, 186, "values, row by row (the parameter of SparseLinear):", class_="name"))
    for place, (row, column) in enumerate(places.tolist()):
        value = float(weight[row, column])
        parts.append(
            element(
                "rect", x=20.0 + place * 46, y=196, width=44, height=20,
                fill=COLOURS[0] if value > 0 else COLOURS[1], fill_opacity=0.75,
            )
        )  # fmt: skip
        parts.append(label(42 + place * 46, 210, f"{value:.2f}", class_="inside", anchor="middle"))
        parts.append(label(42 + place * 46, 230, column, anchor="middle"))
    parts.append(label(20, 250, "below each value: its column"))
    return picture(
        780, 260, "".join(parts), "A dense weight, its mask, and the values that a sparse layer stores"
    )


def versions() -> str:
    """How often each version of a function is the fastest, in the functions of MLCD's case studies."""
    named = {
        "gemm": "GEMM with zeros",
        "pagerank": "PageRank",
        "nbody": "N-body",
        "kmotif": "counting motifs",
    }
    left, right = 150.0, 760.0
    parts = [label(left, 20, "share of inputs on which a version is the fastest", class_="name")]
    for place, (name, text) in enumerate(named.items()):
        held: dict[str, Any] = json.loads((ROOT / f"experiments/mlcd/results/{name}.json").read_text())
        y, x = 36.0 + 58 * place, left
        parts.append(label(left - 12, y + 17, text, class_="name", anchor="end"))
        parts.append(label(left - 12, y + 33, f"{held['measured']:,} inputs", anchor="end"))
        shares = sorted(held["shares"].items(), key=lambda pair: -pair[1])
        for rank, (version, share) in enumerate(shares):
            width = (right - left) * share
            parts.append(
                element(
                    "rect", x=x, y=y, width=max(0.0, width - 1), height=26, fill=COLOURS[rank % len(COLOURS)]
                )
            )
            if width > 58:
                most = int(width / 6.4)
                parts.append(label(x + 4, y + 17, f"{share:.0%}".replace("%", " %"), class_="inside"))
                parts.append(label(x + 2, y + 40, version, limit=most))
            x += width
    parts.append(label(8, 282, "two threads of an AMD EPYC; from experiments/mlcd/results"))
    return picture(
        780, 292, "".join(parts), "Share of inputs on which each version is the fastest, for four functions"
    )


def latency() -> str:
    """Error of the bundled latency model on programs of held-out networks, by device."""
    held: dict[str, Any] = json.loads((ROOT / "models/tensorwise_models/latency/latency.json").read_text())
    errors = sorted(held["card"]["judged"]["devices"].items(), key=lambda pair: pair[1])
    left, right, top, row, most = 150.0, 640.0, 44.0, 17.0, 0.25
    bottom = top + row * len(errors)
    parts = [label(left, 18, "mean absolute percentage error, programs of held-out networks", class_="name")]
    for tick in (0.0, 0.05, 0.1, 0.15, 0.2, 0.25):
        x = left + (right - left) * tick / most
        parts.append(element("path", class_="grid", d=f"M{x:.1f} {top - 4}V{bottom}"))
        parts.append(label(x, top - 8, f"{tick:.0%}".replace("%", " %"), anchor="middle"))
    for place, (device, error) in enumerate(errors):
        y, width = top + row * place, (right - left) * error / most
        colour = COLOURS[1] if device.startswith("H") else COLOURS[0]
        parts += [
            label(left - 8, y + 12, device, class_="name", anchor="end"),
            element("rect", x=left, y=y + 2, width=width, height=row - 5, fill=colour),
            label(left + 6, y + 12, f"{error:.1%}".replace("%", " %"), class_="inside"),
        ]
    x = left + (right - left) * 0.14 / most
    parts.append(element("path", class_="frame", d=f"M{x:.1f} {top - 4}V{bottom + 6}"))
    parts.append(label(x, bottom + 20, "target: 14 %", anchor="middle"))
    parts.append(label(8, bottom + 40, "blue: CPUs, orange: GPUs; from the card of the bundled model"))
    return picture(
        700, bottom + 50, "".join(parts), "Mean absolute percentage error of the bundled model by device"
    )


def cost_model() -> str:
    """Rank correlations of the bundled models of configs on held-out families, beside those of a second measurement."""
    groups = {
        "spearman": "all configs",
        "near_spearman": "within 10 times the best",
        "fastest_spearman": "fastest quarter",
    }
    left, top, panel, step, row = 70.0, 44.0, 190.0, 230.0, 40.0
    parts = [
        label(left, 16, "rank correlation (Spearman) with measured times, mean over jobs", class_="name")
    ]
    ops = ("spmv", "spmm", "sddmm", "mttkrp")
    bottom = top + row * len(ops)
    for column, (key, title) in enumerate(groups.items()):
        x = left + step * column
        parts.append(label(x, top - 8, title, class_="name"))
        for tick in (0.0, 0.5, 1.0):
            parts.append(element("path", class_="grid", d=f"M{x + panel * tick:.1f} {top}V{bottom}"))
            parts.append(label(x + panel * tick, bottom + 16, f"{tick:g}", anchor="middle"))
        for place, op in enumerate(ops):
            text = (ROOT / f"models/tensorwise_models/{op}/model.json").read_text()
            found: dict[str, Any] = json.loads(text)["card"]["metrics"]["all"]
            y = top + row * place + 4
            if not column:
                parts.append(label(left - 8, y + 20, op, class_="name", anchor="end"))
            for number, value in enumerate((found[key], found["again"][key])):
                parts.append(
                    element(
                        "rect", x=x, y=y + 16 * number, width=panel * value, height=14, fill=COLOURS[3 * number]
                    )
                )  # fmt: skip
                parts.append(label(x + 6, y + 11 + 16 * number, f"{value:.2f}", class_="inside"))
    parts.append(element("rect", x=left, y=bottom + 28, width=14, height=14, fill=COLOURS[0]))
    parts.append(label(left + 20, bottom + 40, "model, held-out families", class_="name"))
    parts.append(element("rect", x=left + step, y=bottom + 28, width=14, height=14, fill=COLOURS[3]))
    parts.append(
        label(left + step + 20, bottom + 40, "second measurement of the same configs", class_="name")
    )
    parts.append(label(8, bottom + 64, "two threads, float32; from the cards of the bundled models"))
    return picture(
        left + step * 2 + panel + 24,
        bottom + 74,
        "".join(parts),
        "Rank correlation of the bundled models on held-out families, and of a second measurement",
    )


PICTURES: Final[dict[str, Callable[[], str]]] = {
    "patched": patched,
    "cells": cells,
    "cp": cp,
    "pruned": pruned,
    "versions": versions,
    "latency": latency,
    "cost-model": cost_model,
}


def main() -> None:
    """Draw the pictures that are named, or all."""
    for name in sys.argv[1:] or PICTURES:
        (HERE / f"{name}.svg").write_text(PICTURES[name]() + "\n", encoding="utf-8")
        print(HERE / f"{name}.svg")


if __name__ == "__main__":
    main()
