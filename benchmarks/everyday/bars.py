"""Draws the README's bar chart and writes the pages' tables of speed from the committed regret curves; measures nothing.

    python benchmarks/everyday/bars.py [--check]

The bars are the total seconds of 10 to 10,000 products over SciPy's, in geometric mean over the matrices, for SciPy, MKL's
faster way and ours. ``--check`` writes nothing, and fails where the picture or a page is older than the figures.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import generated
from benchmarks.corpus import ROOT, bytes_digest, geometric_mean
from benchmarks.everyday.judging import CALLS, SLOWER, groups_of, ratios_of
from benchmarks.generated import with_part
from tensorwise.front.svg import COLOURS, Scale, element, gridline, label, picture

FOLDER: Final = Path(__file__).parent / "results"
RESULTS: Final = {"AMD": FOLDER / "regret.json", "Intel": FOLDER / "regret-intel.json"}
"""The regret curve of each maker's processor; the picture is of the first."""
PICTURE: Final = ROOT / "docs" / "assets" / "speed.svg"
PAGES: Final = (ROOT / "README.md", ROOT / "docs" / "array-speed.md")
"""Each has the tables."""
BEGIN: Final = "<!-- speed of sparse arrays on {maker}: written by benchmarks/everyday/bars.py -->"
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


def cell(runs: Runs, group: str, peer: str, calls: int) -> str:
    """Return a cell of the table: geometric mean, worst matrix, and share of matrices on which ours is slower."""
    ratios = ratios_of(runs, group, "ours", peer, calls)
    slower = sum(value > 1 / SLOWER for value in ratios) / len(ratios)
    return f"{geometric_mean(ratios):.2f} ({max(ratios):.2f}; {100 * slower:.0f} %)"


def table(maker: str, path: Path) -> str:
    """Return the lines of a page from `BEGIN` to `END` for the processor of one maker."""
    held = json.loads(path.read_text())
    runs, peers = held["runs"], {"scipy": "SciPy", "mkl": "MKL's faster way"}
    lines = [
        f"| operation / peer | {' | '.join(f'{calls:,} products' for calls in CALLS)} |",
        "|---" * (len(CALLS) + 1) + "|",
    ]
    lines += [
        f"| {group} / {title} | {' | '.join(cell(runs, group, peer, calls) for calls in CALLS)} |"
        for peer, title in peers.items()
        for group in operations(runs)
    ]
    return "\n".join([BEGIN.format(maker=maker), "", *lines, "", END])


def written(page: str, results: Mapping[str, Path], name: object = "the README") -> str:
    """Return a page with its tables replaced, one for each maker; ``name`` is for the error.

    Raises:
        SystemExit: it has no place for one.
    """
    for maker, path in results.items():
        page = with_part(page, table(maker, path), name)
    return page


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something is older")
    pages = {page: written(page.read_text(encoding="utf-8"), RESULTS, page) for page in PAGES}
    texts = {PICTURE: picture_of(RESULTS["AMD"]), **pages}
    if parser.parse_args().check:
        generated.check(texts, FOLDER, "python benchmarks/everyday/bars.py")
    else:
        generated.write(texts)


if __name__ == "__main__":
    main()
