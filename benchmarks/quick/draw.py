"""Draws the history of the quick ratios and writes the table of the last ones; measures nothing.

    python benchmarks/quick/draw.py [--check]

The picture has a panel for each case: its ratio at each commit, with its 95 % interval, in one colour for each machine.
``--check`` writes nothing, and fails where the picture or the page is older than the history.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import generated
from benchmarks.corpus import ROOT, bytes_digest
from benchmarks.generated import with_part
from benchmarks.quick.history import HISTORY, last, machine_of, read
from tensorwise.front.svg import COLOURS, Scale, element, gridline, label, picture

PICTURE: Final = ROOT / "docs" / "assets" / "benchmark-history.svg"
PAGE: Final = ROOT / "docs" / "benchmark-history.md"
BEGIN: Final = "<!-- last ratios: written by benchmarks/quick/draw.py -->"
END: Final = "<!-- end of the table -->"
NONE: Final = "No measurement is in the history yet."
TITLE: Final = "Ratio of Tensorwise's time to SciPy's in each quick case, over commits"
WIDTH, LEFT, TOP, ACROSS, PANEL, STEP, HEIGHT, ROW = 900, 34, 30, 5, 136, 174, 74, 118
"""In pixels: of the picture, and of its panels; ``ACROSS`` is their number in a row."""
LOW, HIGH, TICKS = 0.05, 5.0, (0.1, 0.3, 1, 3)
"""Bounds of the ratios that are drawn; those beyond are drawn at the bound."""

Lines = Sequence[Mapping[str, Any]]


def machines_of(lines: Lines) -> list[str]:
    """Return the machines, in the order of their first lines."""
    return list(dict.fromkeys(machine_of(line) for line in lines))


def newest(lines: Lines) -> dict[str, Mapping[str, Any]]:
    """Return the last line of each machine."""
    return {machine: line for machine in machines_of(lines) if (line := last(lines, machine))}


def names_of(lines: Lines) -> list[str]:
    """Return the cases of the last lines of all machines, in their order."""
    return list(dict.fromkeys(name for line in newest(lines).values() for name in line["ratios"]))


def series(lines: Lines, name: str, machine: str) -> list[tuple[int, list[float]]]:
    """Return (place of the commit, [median, low, high]) of a case on a machine."""
    commits = list(dict.fromkeys(line["commit"] for line in lines))
    return [
        (commits.index(line["commit"]), line["ratios"][name])
        for line in lines
        if machine_of(line) == machine and name in line["ratios"]
    ]


def panel(lines: Lines, name: str, left: float, top: float) -> str:
    """Return the drawing of one case."""
    bottom = top + HEIGHT
    across = Scale(0, len({line["commit"] for line in lines}) - 1, left + 6, left + PANEL - 6)
    up = Scale(LOW, HIGH, bottom, top, log=True)

    def height(ratio: float) -> float:
        return up(min(max(ratio, LOW), HIGH))

    parts = [label(left, top - 6, name, class_="name", limit=25)]
    parts += [gridline(up, value, left, left + PANEL, f"{value:g}") for value in TICKS]
    parts.append(element("path", class_="frame", d=f"M{left} {up(1):.1f}H{left + PANEL}"))
    for number, machine in enumerate(machines_of(lines)):
        colour = COLOURS[number % len(COLOURS)]
        points = [(across(place), *map(height, ratio)) for place, ratio in series(lines, name, machine)]
        if points:
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, _, _ in points)
            parts.append(element("path", d=path, fill="none", stroke=colour, stroke_width=1.5))
        for x, y, low, high in points:
            parts.append(element("path", d=f"M{x:.1f} {low:.1f}V{high:.1f}", stroke=colour, stroke_width=1))
            parts.append(element("circle", cx=x, cy=y, r=2, fill=colour))
    return "".join(parts)


def picture_of(path: Path) -> str:
    """Return the picture of a history, with a line that says of which."""
    lines = read(path)
    if not lines:
        return picture(WIDTH, 40, label(LEFT, 24, NONE), TITLE)
    names, parts = names_of(lines), list[str]()
    for place, name in enumerate(names):
        row, column = divmod(place, ACROSS)
        parts.append(panel(lines, name, LEFT + column * STEP, TOP + row * ROW))
    y = TOP + -(-len(names) // ACROSS) * ROW
    for number, machine in enumerate(machines_of(lines)):
        parts.append(
            element("rect", x=LEFT, y=y - 11, width=14, height=14, fill=COLOURS[number % len(COLOURS)])
        )
        parts.append(label(LEFT + 20, y, machine, class_="name"))
        y += 20
    commits = list(dict.fromkeys(line["commit"] for line in lines))
    texts = (
        "seconds of ours over SciPy's (logarithmic; below 1 is faster); dots: medians; lines: 95 % intervals",
        f"from left to right {len(commits)} commits, {commits[0]} of {lines[0]['date']} to {commits[-1]} of "
        f"{lines[-1]['date']}; drawn of {path.name} {bytes_digest(path.read_bytes())}",
    )
    parts += [label(LEFT, y + 4 + 18 * place, text) for place, text in enumerate(texts)]
    return picture(WIDTH, y + 36, "".join(parts), TITLE)


def table(path: Path) -> str:
    """Return the lines between `BEGIN` and `END` of the page."""
    lines = read(path)
    found = newest(lines)
    if not found:
        return "\n".join([BEGIN, "", NONE, "", END])
    heads = [f"{machine}, {line['date']}, commit {line['commit']}" for machine, line in found.items()]
    rows = [f"| case | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in names_of(lines):
        ratios = [line["ratios"].get(name) for line in found.values()]
        cells = ["{:.2f} [{:.2f}, {:.2f}]".format(*ratio) if ratio else "not run" for ratio in ratios]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([BEGIN, "", *rows, "", END])


def written(page: str, path: Path) -> str:
    """Return a page with its table replaced.

    Raises:
        SystemExit: it has no place for one.
    """
    return with_part(page, table(path), PAGE)


def texts() -> dict[Path, str]:
    """Return the picture and the page as they follow from the history."""
    return {PICTURE: picture_of(HISTORY), PAGE: written(PAGE.read_text(encoding="utf-8"), HISTORY)}


def write() -> None:
    """Write the picture and the page."""
    generated.write(texts())


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something is older")
    if parser.parse_args().check:
        generated.check(texts(), HISTORY, "python benchmarks/quick/draw.py")
    else:
        write()


if __name__ == "__main__":
    main()
