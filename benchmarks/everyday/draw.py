"""Draws the regret curve from its committed figures, and measures nothing.

    python benchmarks/everyday/draw.py [RESULTS.json] [--out docs/assets/regret.svg]

Each panel has one peer: total seconds of K products over the peer's, in geometric mean over the matrices. Each operation has
a line. Dots are the worst matrices, dashes are frozen arrays.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.corpus import ROOT, bytes_digest, geometric_mean
from benchmarks.everyday.judging import CALLS, MARKS, groups_of, ratios_of
from tensorwise.front.svg import COLOURS, Scale, element, gridline, label, number_text, picture

HERE: Final = Path(__file__).parent
WIDTH, HEIGHT, LEFT, TOP, PANEL, GAP, BOTTOM = 860, 400, 56, 46, 350, 70, 320
PEERS: Final = {"scipy": "SciPy", "mkl": "MKL's faster way"}
LOW, HIGH = 0.05, 5.0
"""Bounds of the ratios that are drawn."""


def curves(
    runs: Mapping[str, Mapping[str, Any]], name: str, peer: str
) -> dict[str, list[tuple[int, float, float]]]:
    """Return (calls, geometric mean, worst) of the ratios of each operation."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for group in groups_of(runs):
        for calls in MARKS:
            if ratios := ratios_of(runs, group, name, peer, calls):
                found.setdefault(group, []).append((calls, geometric_mean(ratios), max(ratios)))
    return found


def line(points: Sequence[tuple[float, float]], colour: str, dashes: str | None = None) -> str:
    """Return a line through points."""
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return element("path", d=path, fill="none", stroke=colour, stroke_width=2, stroke_dasharray=dashes)


def panel(runs: Mapping[str, Mapping[str, Any]], peer: str, left: float) -> str:
    """Return the drawing of one peer."""
    across, up = Scale(1, MARKS[-1], left, left + PANEL, log=True), Scale(LOW, HIGH, BOTTOM, TOP, log=True)
    parts = [label(left, TOP - 14, f"seconds of K products over those of {PEERS[peer]}", class_="name")]
    parts += [
        gridline(up, value, left, left + PANEL, f"{value:g}") for value in (0.05, 0.1, 0.2, 0.5, 1, 2, 5)
    ]
    parts += [label(across(value), BOTTOM + 18, number_text(value), anchor="middle") for value in (1, *CALLS)]
    parts.append(label(left + PANEL / 2, BOTTOM + 36, "products K", anchor="middle"))
    parts.append(element("path", class_="frame", d=f"M{left} {up(1):.1f}H{left + PANEL}"))
    for name, dashes in (("ours, frozen", "5 4"), ("ours", None)):
        for place, points in enumerate(curves(runs, name, peer).values()):
            colour = COLOURS[place]
            parts.append(line([(across(calls), up(mean)) for calls, mean, _ in points], colour, dashes))
            if dashes is None:
                parts += [
                    element("circle", cx=across(calls), cy=up(worst), r=3, fill=colour)
                    for calls, _, worst in points
                    if calls in CALLS
                ]
    return "".join(parts)


def picture_of(path: Path) -> str:
    """Return the picture of a file of results, with a line that says of which."""
    held = json.loads(path.read_text())
    runs = held["runs"]
    groups = groups_of(runs)
    legend = ""
    for place, group in enumerate(groups):
        x = LEFT + place * (WIDTH - LEFT) / max(1, len(groups))
        legend += line([(x, HEIGHT - 28), (x + 22, HEIGHT - 28)], COLOURS[place])
        legend += label(x + 28, HEIGHT - 24, group, class_="name")
    matrices = len({case.split(" ")[0] for case in runs})
    what = (
        f"{matrices} matrices, {held['settings']['threads']} threads, {held['machine']['processor']}; "
        "dots: the worst matrix, dashes: frozen"
    )
    source = f"drawn of {path.name} {bytes_digest(path.read_bytes())}"
    panels = "".join(panel(runs, peer, LEFT + place * (PANEL + GAP)) for place, peer in enumerate(PEERS))
    content = panels + legend + label(LEFT, HEIGHT - 6, what) + label(LEFT, HEIGHT + 12, source)
    return picture(
        WIDTH,
        HEIGHT + 18,
        content,
        "Total time of K products with tuned-by-use arrays over that of SciPy and of MKL",
    )


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="?", type=Path, default=HERE / "results" / "regret.json")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "assets" / "regret.svg")
    options = parser.parse_args()
    if not options.results.exists():
        raise SystemExit(f"{options.results} does not exist; run benchmarks/everyday/regret.py first")
    options.out.write_text(picture_of(options.results), encoding="utf-8")
    print(options.out)


if __name__ == "__main__":
    main()
