"""Draws the pictures of speed and writes the pages' tables of speed from committed figures; measures nothing.

    python benchmarks/everyday/bars.py [--check]

The README's bars are the total seconds of 10 to 10,000 products over SciPy's, in geometric mean over the matrices: SciPy,
MKL's faster way, and ours. ``--check`` writes nothing, and fails where the picture or a page is older than the figures.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import generated
from benchmarks.corpus import ROOT, bytes_digest, geometric_mean
from benchmarks.everyday import draw
from benchmarks.everyday.judging import (
    CALLS,
    INSPECTED,
    MOST_OF_NEVER,
    SLOWER,
    TARGETS,
    Curve,
    excess_of,
    group_of,
    groups_of,
    over_bound,
    peer_of,
    ratio,
    ratios_of,
)
from benchmarks.generated import with_part
from tensorwise.front.svg import COLOURS, Scale, element, gridline, label, picture

FOLDER: Final = Path(__file__).parent / "results"
RESULTS: Final = {"AMD": FOLDER / "regret.json", "Intel": FOLDER / "regret-intel.json"}
"""The regret curve of each maker's processor; the picture is of the first."""
PROGRAMS: Final = {"AMD": FOLDER / "clients.json", "Intel": FOLDER / "clients-intel.json"}
"""What whole programs took."""
PICTURE: Final = ROOT / "docs" / "assets" / "speed.svg"
CURVES: Final = {
    "AMD": ROOT / "docs" / "assets" / "regret.svg",
    "Intel": ROOT / "docs" / "assets" / "regret-intel.svg",
}
"""Pictures of all matrices, by `draw.py`."""
README, PAGE = ROOT / "README.md", ROOT / "docs" / "array-speed.md"
"""Both have the tables of arrays; the page also those of frozen arrays and of programs."""
MISSES: Final = ROOT / "docs" / "array-targets.md"
"""The page about targets that are missed has the tables of the cost of tuning."""
MISSED: Final = " ✗"
"""Mark of a figure that misses its target."""
BEGIN: Final = "<!-- {what}: written by benchmarks/everyday/bars.py -->"
END: Final = "<!-- end of the table -->"
WIDTH, LEFT, TOP, PANEL, GAP, BOTTOM, ROW = 860, 50, 62, 370, 50, 250, 262
"""In pixels; a row of panels begins `ROW` below the one before it."""
HIGHEST: Final = 1.2
"""Ratio at the top of the picture."""
CONTESTANTS: Final = {"SciPy": "scipy", "MKL, its faster way": "mkl", "Tensorwise": "ours"}

Runs = Mapping[str, Mapping[str, Any]]


def over_scipy(runs: Runs, group: str, name: str, calls: int) -> float:
    """Return total seconds of a contestant over SciPy's: geometric mean over the matrices of a group."""
    return geometric_mean(ratios_of(runs, group, name, "scipy", calls))


def operations(runs: Runs) -> list[str]:
    """Return the groups of cases, those with fewer columns first; a vector has none."""
    return sorted(groups_of(runs), key=lambda group: int("".join(re.findall(r"^SpMM (\d+)", group)) or 0))


def panel(runs: Runs, group: str, left: float, down: float) -> str:
    """Return the bars of one operation, in a panel that begins at ``left`` and ``down``."""
    top, bottom = TOP + down, BOTTOM + down
    up = Scale(0, HIGHEST, bottom, top)
    parts = [label(left, top - 12, group, class_="name")]
    parts += [gridline(up, value, left, left + PANEL, f"{value:g}") for value in (0, 0.25, 0.5, 0.75, 1)]
    step = PANEL / len(CALLS)
    width = step / (len(CONTESTANTS) + 1)
    for place, calls in enumerate(CALLS):
        for number, name in enumerate(CONTESTANTS.values()):
            value = over_scipy(runs, group, name, calls)
            x, y = left + place * step + (number + 0.5) * width, up(min(value, HIGHEST))
            parts.append(element("rect", x=x, y=y, width=width - 2, height=bottom - y, fill=COLOURS[number]))
            if name != "scipy":
                parts.append(label(x + width / 2 - 1, y - 4, f"{value:.2f}", anchor="middle"))
        parts.append(label(left + (place + 0.5) * step, bottom + 16, f"{calls:,}", anchor="middle"))
    parts.append(label(left + PANEL / 2, bottom + 34, "products of one matrix", anchor="middle"))
    return "".join(parts)


def picture_of(path: Path) -> str:
    """Return the picture of a file of results."""
    held = json.loads(path.read_text())
    runs = held["runs"]
    legend = ""
    for number, name in enumerate(CONTESTANTS):
        x = LEFT + number * 190
        legend += element("rect", x=x, y=12, width=14, height=14, fill=COLOURS[number])
        legend += label(x + 20, 24, name, class_="name")
    matrices = len({case.split(" ")[0] for case in runs})
    what = f"total seconds over SciPy's, geometric mean of {matrices} matrices; lower is faster"
    source = (
        f"{held['settings']['threads']} threads, {held['machine']['processor']}; "
        f"drawn of {path.name} {bytes_digest(path.read_bytes())}"
    )
    groups = operations(runs)
    panels = "".join(
        panel(runs, group, LEFT + n % 2 * (PANEL + GAP), n // 2 * ROW) for n, group in enumerate(groups)
    )
    height = BOTTOM + (len(groups) - 1) // 2 * ROW + 86
    content = panels + legend + label(LEFT, height - 26, what) + label(LEFT, height - 8, source)
    return picture(
        WIDTH,
        height,
        content,
        "Total time of sparse products by SciPy, MKL and Tensorwise, relative to SciPy",
    )


def cell(runs: Runs, group: str, name: str, peer: str, calls: int) -> str:
    """Return a cell of a table: geometric mean, worst matrix, and share of matrices on which the contestant is slower."""
    ratios = ratios_of(runs, group, name, peer, calls)
    slower = sum(value > 1 / SLOWER for value in ratios) / len(ratios)
    mean, worst = geometric_mean(ratios), max(ratios)
    goal, limit = TARGETS[group[:4].lower(), peer][calls]
    marks = MISSED * (mean > goal), MISSED * (limit is not None and worst > limit)
    return f"{mean:.2f}{marks[0]} ({worst:.2f}{marks[1]}; {100 * slower:.0f} %)"


def target(op: str, peer: str, calls: int) -> str:
    """Return a cell of a table: the targets of the geometric mean and, where there is one, of the worst matrix."""
    goal, limit = TARGETS[op, peer][calls]
    return f"{goal:.2f}" if limit is None else f"{goal:.2f} ({limit:.2f})"


def part(what: str, lines: Sequence[str]) -> str:
    """Return a part of a page, between comments."""
    return "\n".join([BEGIN.format(what=what), "", *lines, "", END])


def table(runs: Runs, name: str) -> list[str]:
    """Return the table of one contestant: with targets for ``ours``, which are those of the others as well."""
    peers = {"scipy": "SciPy", "mkl": "MKL's faster way"}
    groups = [group for group in operations(runs) if name == "ours" or group.startswith("SpMV")]
    lines = [
        f"| operation / peer | {' | '.join(f'{calls:,} products' for calls in CALLS)} |",
        "|---" * (len(CALLS) + 1) + "|",
    ]
    for peer, title in peers.items():
        for op in ("SpMV", "SpMM"):
            some = [group for group in groups if group.startswith(op)]
            for group in some:
                cells = (cell(runs, group, name, peer, calls) for calls in CALLS)
                lines.append(f"| {group} / {title} | {' | '.join(cells)} |")
            if some and name == "ours":
                cells = (target(op.lower(), peer, calls) for calls in CALLS)
                lines.append(f"| target: {op} / {title} | {' | '.join(cells)} |")
            if some and name == "ours" and op == "SpMV":
                whole = (ratios_of(runs, some[0], name, peer, calls, overhead=True) for calls in CALLS)
                cells = (f"{geometric_mean(ratios):.2f}" for ratios in whole)
                lines.append(f"| {op} / {title}, import and loading included | {' | '.join(cells)} |")
    for group in groups if name == "ours" else ():
        means = (geometric_mean(ratios_of(runs, group, name, INSPECTED, calls)) for calls in CALLS)
        lines.append(f"| {group} / MKL with its inspector | {' | '.join(f'{mean:.2f}' for mean in means)} |")
    return lines


def tuning_cost(runs: Runs) -> list[str]:
    """Return a table that says on how many matrices the total exceeds its bound by never tuning."""
    groups = operations(runs)
    lines = [
        f"Matrices on which the total exceeds {MOST_OF_NEVER:.2f} times that with `TENSORWISE_AUTOTUNE=off` plus 1 ms at "
        "some number of products (largest excess, as a multiple of this bound); target: 0.",
        "",
        f"| array | {' | '.join(groups)} |",
        "|---" * (len(groups) + 1) + "|",
    ]
    for name, title in (("ours", "`tw.asarray(A)`"), ("ours, frozen", "frozen")):
        cells = []
        for group in groups:
            excess = excess_of({case: run for case, run in runs.items() if group_of(case)[1] == group}, name)
            worst = [over for over, _ in excess.values()]
            above = sum(over > 1 for over in worst)
            cells.append(f"{above} of {len(worst)}{MISSED * (above > 0)} ({max(worst):.2f})")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def beyond_never(runs: Runs) -> list[str]:
    """Return a table that says by number of products how often tuned totals exceed the bound, and untuned ones by ours."""
    marks, names = (1, *CALLS), ("ours", "never tuned")
    curves = [tuple(filter(None, (Curve.of(run, name) for name in names))) for run in runs.values()]
    pairs = [pair for pair in curves if len(pair) == len(names)]
    means = [
        geometric_mean(filter(None, (ratio(run, *names, calls) for run in runs.values()))) for calls in marks
    ]
    shown = {
        "geometric mean of the totals over never tuning's": [f"{mean:.2f}" for mean in means],
        "tuned totals beyond the bound": [
            str(sum(over_bound(ours, never, calls) > 1 for ours, never in pairs)) for calls in marks
        ],
        "the other way round: never tuned ones beyond it": [
            str(sum(over_bound(never, ours, calls) > 1 for ours, never in pairs)) for calls in marks
        ],
    }
    lines = [
        f"`tw.asarray(A)`, all {len(pairs)} cases together:",
        "",
        f"| number of products | {' | '.join(f'{calls:,}' for calls in marks)} |",
        "|---" * (len(marks) + 1) + "|",
    ]
    return lines + [f"| {what} | {' | '.join(cells)} |" for what, cells in shown.items()]


def extrapolated(runs: Runs) -> str:
    """Return a sentence that says on how many matrices the longest runs, of ours or a peer, were extrapolated."""
    matrices = {case.split(" ")[0] for case in runs}
    counts = []
    for group in operations(runs):
        some = [run for case, run in runs.items() if group_of(case)[1] == group]
        curves = [[peer_of(run, name, CALLS[-1]) for name in CONTESTANTS.values()] for run in some]
        count = sum(any(one and one.is_extrapolated(CALLS[-1]) for one in case) for case in curves)
        counts.append(f"{count} ({group.partition(',')[0]})")
    return f"At {CALLS[-1]:,} products runs on so many of {len(matrices)} matrices are extrapolated: {', '.join(counts)}."


def programs(paths: Mapping[str, Path]) -> list[str]:
    """Return the table of whole programs, those with most of their time in products first."""
    held = {maker: json.loads(path.read_text()) for maker, path in paths.items()}
    first = next(iter(held.values()))["runs"]
    speeds = " | ".join(f"speed-up, {maker} (95 % interval)" for maker in held)
    lines = [
        f"| program | time in products ({', '.join(held)}) | {speeds} |",
        "|---" * (2 + len(held)) + "|",
    ]
    for name in sorted(first, key=lambda name: -first[name]["products_share"]):
        runs = [one["runs"][name] for one in held.values()]
        shares = ", ".join(f"{100 * run['products_share']:.0f} %" for run in runs)
        cells = (run["speedup"]["patched"] for run in runs)
        told = " | ".join(f"{ratio:.2f}x ({low:.2f} to {high:.2f})" for ratio, low, high in cells)
        lines.append(f"| {first[name]['does']} | {shares} | {told} |")
    threads = ", ".join(f"{one['settings']['blas_threads']} ({maker})" for maker, one in held.items())
    return [*lines, "", f"Threads of NumPy's and SciPy's BLAS: {threads}."]


def written(page: str, results: Mapping[str, Path], name: Path = README) -> str:
    """Return a page with its tables replaced.

    Raises:
        SystemExit: it has no place for one.
    """
    for maker, path in results.items():
        runs = json.loads(path.read_text())["runs"]
        if name == MISSES:
            page = with_part(
                page, part(f"cost of tuning on {maker}", [*tuning_cost(runs), "", *beyond_never(runs)]), name
            )
            continue
        page = with_part(page, part(f"speed of sparse arrays on {maker}", table(runs, "ours")), name)
        if name == PAGE:
            lines = [
                extrapolated(runs),
                "",
                "Vectors, [frozen](arrays.md#change-values-or-freeze-them) arrays (targets as above):",
                "",
            ]
            lines += table(runs, "ours, frozen")
            page = with_part(page, part(f"speed of frozen arrays on {maker}", lines), name)
    if name == PAGE:
        page = with_part(page, part("whole programs", programs(PROGRAMS)), name)
    return page


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something is older")
    pages = {
        page: written(page.read_text(encoding="utf-8"), RESULTS, page) for page in (README, PAGE, MISSES)
    }
    curves = {CURVES[maker]: draw.picture_of(path) for maker, path in RESULTS.items()}
    texts = {PICTURE: picture_of(RESULTS["AMD"]), **curves, **pages}
    if parser.parse_args().check:
        generated.check(texts, FOLDER, "python benchmarks/everyday/bars.py")
    else:
        generated.write(texts)


if __name__ == "__main__":
    main()
