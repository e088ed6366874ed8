"""Draw the pictures of the how-to pages from committed results, or from small examples that are computed here.

    python docs/assets/draw.py [NAME ...]

Without names all are drawn, each into its SVG beside this file. Nothing is timed.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

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


PICTURES: Final[dict[str, Callable[[], str]]] = {"patched": patched}


def main() -> None:
    """Draw the pictures that are named, or all."""
    for name in sys.argv[1:] or PICTURES:
        (HERE / f"{name}.svg").write_text(PICTURES[name]() + "\n", encoding="utf-8")
        print(HERE / f"{name}.svg")


if __name__ == "__main__":
    main()
