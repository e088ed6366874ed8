"""Write ``benchmarks/results/kernels.html`` from the results of ``run.py``: targets, curves, rooflines, families.

python benchmarks/kernels/page.py [--results benchmarks/results/kernels.json] [--out FILE.html]
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.corpus import RESULTS, drawn_of
from benchmarks.kernels.draw import Point, curve_key, roofline_plot, sorted_curves
from benchmarks.kernels.targets import (
    BEST_BASELINE,
    FLOOR,
    Reached,
    Run,
    Speedups,
    case_name,
    cases,
    of_case,
    reached,
    speedups,
    threads_name,
)
from benchmarks.pages import card, document, table
from tensorwise.device.roofline import MEMORY_LEVELS
from tensorwise.front.svg import element, escape

LARGEST = 10
STYLE = """
.curve { fill: none; stroke-width: 1.6; } .the_best_baseline.curve { stroke: var(--ink); stroke-width: 2.4; }
circle { stroke: none; } .key { margin-bottom: 10px; } i.the_best_baseline { background: var(--ink); }
circle.the_best_baseline { fill: var(--ink); }
section:first-of-type td:nth-child(2) { min-width: 17em; }
section:first-of-type td:last-child { max-width: 22em; overflow-wrap: anywhere; }
""" + "".join(
    f".curve.{name} {{ stroke: {colour}; }} circle.{name} {{ fill: {colour}; }} .key i.{name} {{ background: {colour}; }}\n"
    for name, colour in {
        "scipy": "#8a8f98", "mkl": "#1f78c8", "torch": "#e4572e", "fixed_csr": "#e0a100", "plain_c": "#c069a5",
        "numba": "#1b9e77", "pydata_sparse": "#57b7e8", "L1": "#1b9e77", "L2": "#1f78c8", "L3": "#e0a100", "DRAM": "#e4572e",
    }.items()
)  # fmt: skip
METHOD = """Each matrix has a search of its own (portfolio, random and bred candidates), and its best kernel is
chosen in interleaved rounds. Everything here is from fresh rounds after that, in which our best and default kernel
and all baselines run in shuffled order; a speed-up is the median of the ratios within a round, and disturbed rounds
are repeated. Baselines more than 5 times slower than the fastest run in 3 rounds of their own, beside ours. Operands
are warm, in float32, and every kernel is verified before and after. Fixed CSR is what TACO generates (CSR, CSF for
MTTKRP; dynamic chunks of 128 rows for SpMV, else 32), compiled with -ffast-math as WACO does. The best baseline is
the fastest of all on that matrix. "Each" is half the width of the 95 % interval of a single matrix's speed-up, in the
median: where it is wide the machine was restless, the best of seven baselines is the luckiest of them, and our own kernel
was chosen by such times, too: means then err against us, and a single matrix below the floor says little."""
KEPT_BACK = """What keeps them from more. SpMV reads indices and values in a stream and gathers one element of x an entry.
Where x stays in the first cache, the stream is all that counts, and the kernel is near the roof. In graphs and netlists
a gather fetches a line of 64 bytes for the 4 that are used: a cache that seems to deliver a few gigabytes in a second
delivers sixteen times as much, about all it can. SpMM fetches a row of B an entry, but the roof counts B once: what the
second figure shows is the bandwidth of the cache that holds B, or the strip of B that a strip of columns meets. It is
the second cache's where such strips pay (many entries of a row in each), the shared cache's in most others, and less than a
third of that where B exceeds the second cache and the columns of a row lie far apart: then each row of B is a miss of
its own, and the number of misses under way is the limit, prefetched or not. SDDMM fetches in the same way, and folds
a vector an entry on top."""
AMD = " On this processor, an AMD, MKL takes its generic code path, not the one for Intel's processors."


def page(held: Mapping[str, Any]) -> str:
    """Return the page of a result file."""
    runs = list(held["runs"].values())
    machine, settings = held["machine"], held["settings"]
    failed = [run for run in runs if not run.get("speedup")]
    method = METHOD + (AMD if "AMD" in machine["processor"] else "")
    facts = ", ".join(f"{name} {value}" for name, value in {**machine, **settings}.items())
    count = f"{len(runs)} runs on {len({run['name'] for run in runs})} matrices and tensors."
    head = ("", "target", "geometric mean", "", "over", f"below {FLOOR:g}x", "each", "worst")
    parts = [
        element("h1", "Kernels against their peers"),
        element("p", escape(count), class_="verdict"),
        element("p", escape(method), class_="soft"),
        element("p", escape(facts), class_="soft"),
        card("Targets", table(head, [_target(row) for row in reached(runs)])),
    ]
    parts += [_case(of_case(runs, case), case) for case in cases(runs)]
    parts.append(_families(runs))
    parts.append(_largest(runs))
    notes = [f"{run['name']} {case_name(run['op'], run['n'])}: {run['failed']}" for run in failed]
    notes += [
        f"{name} on {run['name']}: {why}"
        for run in runs
        if run not in failed
        for name, why in run["failed"].items()
    ]
    parts.append(
        card("What failed", "".join(element("p", escape(note)) for note in notes) or element("p", "Nothing."))
    )
    return document("Kernels against their peers", "\n".join(parts), STYLE)


def _target(row: Reached) -> list[str]:
    target = row.target
    wanted = f"{target.mean:g}x {target.against}"
    if target.share is not None:
        wanted += f", not below {FLOOR:g}x on {100 * target.share:g} %"
    on = f" on {target.part}" if target.part else ""
    case = f"{case_name(target.op, row.n)}{on}, {threads_name(row.threads)}"
    mean, count, slower, worst = _figures(row.speedups)
    each = f"± {100 * row.speedups.unsure:.0f} %"
    return [case, wanted, mean, "reached" if row.met else "not reached", count, slower, each, worst]


def _figures(found: Speedups) -> list[str]:
    name, worst = found.worst
    mean = f"{found.mean:.2f}x"
    return [mean, str(len(found.ratios)), f"{100 * found.slower:.1f} %", f"{worst:.2f}x {name}"]


def _case(runs: Sequence[Run], case: tuple[str, int | None, int]) -> str:
    names = dict.fromkeys(name for run in runs for name in run.get("speedup", {}))
    found = {name: speedups(runs, name) for name in (BEST_BASELINE, *names)}
    found = {name: one for name, one in found.items() if one.ratios}
    title = f"{case_name(*case[:2])}, {threads_name(case[2])}"
    if not found:
        return card(title, element("p", "Every run failed."))
    rows = []
    for name, one in found.items():
        untuned = speedups(runs, name, "default")
        rows.append([name, *_figures(one), f"{untuned.mean:.2f}x", f"{100 * untuned.slower:.1f} %"])
    curves = element(
        "figure", sorted_curves({name: list(one.ratios.values()) for name, one in found.items()})
    )
    points = _points(runs)
    roofs = element("figure", roofline_plot(points))
    head = (
        "against",
        "geometric mean",
        "over",
        f"below {FLOOR:g}x",
        "worst",
        "default",
        f"default below {FLOOR:g}x",
    )
    return card(
        title,
        element("div", curves + roofs, class_="pair")
        + curve_key(list(found))
        + table(head, rows)
        + _roofs(points),
    )


def _points(runs: Sequence[Run]) -> list[Point]:
    found = []
    for run in runs:
        if "best" in run.get("seconds", {}):
            roof = run["roof"]
            rate = roof["flop"] / run["seconds"]["best"]
            intensity = roof["flop"] / roof["bytes"]
            found.append(
                Point(run["name"], roof["level"], intensity, rate, roof["bytes_per_s"], roof["flop_per_s"])
            )
    return found


def _roofs(points: Sequence[Point]) -> str:
    """Say how near the roof of the level that holds the data our best kernels come."""
    told = []
    for level in MEMORY_LEVELS:
        shares = {point.name: point.flop_per_s / point.roof for point in points if point.level == level}
        if shares:
            told.append(f"{level}: {100 * Speedups(shares).mean:.0f} % over {len(shares)}")
    text = (
        "Share of the roof that our best kernels reach, in geometric mean, by the level that holds the data: "
    )
    return element("p", escape(text + "; ".join(told)))


def _families(runs: Sequence[Run]) -> str:
    """Show the mean speed-up over the best baseline by family of matrices and case."""
    columns = cases(runs)
    head = ["family", "matrices", *(f"{case_name(*case[:2])}, {case[2]}t" for case in columns)]
    rows = []
    for family in sorted({run["family"] for run in runs}):
        some = [run for run in runs if run["family"] == family]
        row = [family, str(len({run["name"] for run in some}))]
        for case in columns:
            found = speedups(of_case(some, case), BEST_BASELINE)
            below = sum(ratio < FLOOR for ratio in found.ratios.values())
            row.append(f"{found.mean:.2f}x" + (f" ({below})" if below else "") if found.ratios else "")
        rows.append(row)
    words = (
        f"Geometric mean of the speed-up over the best baseline; in brackets the matrices below {FLOOR:g}x."
    )
    return card("By family", element("p", words) + table(head, rows))


def _largest(runs: Sequence[Run]) -> str:
    """Show how near its bounds our best kernel is on the ten largest matrices, and how fast it gathers."""
    sizes = {run["name"]: run["nonzeros"] for run in runs if run["op"] != "mttkrp"}
    names = sorted(sizes, key=lambda name: -sizes[name])[:LARGEST]
    columns = [case for case in cases(runs) if case[0] != "mttkrp"]
    rows = []
    for name in names:
        row = [name, f"{sizes[name]:,}"]
        for case in columns:
            some = [
                run for run in of_case(runs, case) if run["name"] == name and "best" in run.get("seconds", {})
            ]
            row.append(_bounds(some[0]) if some else "")
        rows.append(row)
    words = (
        "Share of the roof (the memory that holds all data, each byte moved once, or multiply-adds) that our best kernel "
        "reaches; then the bytes that it gathers from the dense operand in a second, one element a term: what the "
        "cache that holds that operand has to deliver, whichever memory holds the rest."
    )
    head = ["matrix", "nonzeros", *(f"{case_name(*case[:2])}, {case[2]}t" for case in columns)]
    return card("The ten largest matrices", element("p", words) + table(head, rows) + element("p", KEPT_BACK))


def _bounds(run: Run) -> str:
    (point,) = _points([run])
    gathered = run["roof"]["flop"] / 2 * 4 / run["seconds"]["best"]
    return f"{point.level} {100 * point.flop_per_s / point.roof:.0f} %, {gathered / 1e9:.0f} GB/s"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS / "kernels.json")
    parser.add_argument("--out", type=Path, default=RESULTS / "kernels.html")
    options = parser.parse_args()
    if not options.results.exists():
        raise SystemExit(f"{options.results} does not exist; make it with: python benchmarks/kernels/run.py")
    text = page(json.loads(options.results.read_text()))
    options.out.write_text(drawn_of(text, options.results), encoding="utf-8")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
