"""Write docs/claims.md: every table and figure of the five papers, with our figures beside the paper's.

    python docs/claims.py [--check]

``claims.toml`` lists the tables and figures, what each states, and where our figure is in a committed result file. Our
figures are read from these files each time. With --check nothing is written, and the exit status is 1 when the page is not
up to date. mkdocs, which has this file as a hook, refuses to build the site then.
"""

import argparse
import fnmatch
import json
import math
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent
PAGE: Final = HERE / "claims.md"
ROOM: Final = 0.02
"""The share by which our figure may miss a paper's and still reach it, as in most ``expected.json``."""
WORST: Final = ("does not hold", "not run", "holds")
"""Verdicts from worst to best: a table or figure of a paper has the worst of its rows."""


@cache
def held(path: str) -> Any:
    """Return a committed result file."""
    return json.loads((ROOT / path).read_text())


def leaves(tree: Any, keys: Sequence[str], way: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return what lies at a path of keys, by the keys that matched its patterns; branches without it are left out."""
    if not keys:
        return {way: tree}
    first, rest = keys[0], keys[1:]
    if isinstance(tree, list):
        tree = {str(place): branch for place, branch in enumerate(tree)} | {"-1": tree[-1]}
    if not isinstance(tree, dict):
        return {}
    if first in tree or not set("*,") & set(first):
        return leaves(tree[first], rest, way) if first in tree else {}
    found = dict[tuple[str, ...], Any]()
    for key, branch in tree.items():
        if key != "-1" and any(fnmatch.fnmatchcase(key, one) for one in first.split(",")):
            found |= leaves(branch, rest, (*way, key))
    return found


def number(leaf: Any, source: Mapping[str, Any]) -> list[float]:
    """Return the numbers of a leaf: itself, those of its texts, or what a pattern finds in it.

    ``gain`` is for experiments/cognate-transfer, whose texts have five numbers a matrix: speed-ups over the default config
    of the one predicted best, of the best of five and of the optimum, the share of pairs in order, and Kendall's tau.
    """
    if "pattern" in source:
        found = re.search(source["pattern"], leaf)
        return [float(found[1])] if found else []
    if "gain" not in source:
        return [float(leaf)]
    rows = [[float(cell) for cell in row.split()] for row in leaf.split("; ")]
    gains = {
        "first": [row[0] for row in rows],
        "five": [row[1] for row in rows],
        "optimum": [row[2] for row in rows],
        "first of the optimum": [row[0] / row[2] for row in rows],
        "five of the optimum": [row[1] / row[2] for row in rows],
        "longer": [row[2] / row[0] - 1 for row in rows],
        "pairs": [row[3] for row in rows],
        "tau": [row[4] for row in rows],
    }
    return gains[source["gain"]]


def numbers(path: str, source: Mapping[str, Any]) -> list[float]:
    """Return the numbers that a source names, each divided by that at the path ``per``, where there is one.

    Of two lists of times, of interleaved rounds, the median of the ratios counts.
    """
    found = leaves(held(path), source["at"].split(" / "))
    if "per" in source:
        below = leaves(held(path), source["per"].split(" / "))
        ratios = dict[tuple[str, ...], Any]()
        for way, value in found.items():
            other = below.get(way, below.get(()))
            if isinstance(value, list) and isinstance(other, list):
                ratios[way] = median(a / b for a, b in zip(value, other, strict=True))
            elif other is not None:
                ratios[way] = value / other
        found = ratios
    if "call" in source:
        calls = leaves(held(path), source["call"].split(" / "))
        found = {way: value + source["calls"] * calls[way] for way, value in found.items()}
    return [one for leaf in found.values() for one in number(leaf, source)]


def break_even(path: str, source: Mapping[str, Any]) -> list[float]:
    """Return after how many calls the best of ten of waco-tuner takes less in all than another tuner, where it ever does."""
    found = []
    for name, run in held(path)["runs"].items():
        if name.startswith(source["op"]) and "naive" in run:
            costs, calls = [0.0, 0.0], [1.0, 1.0]  # in calls of untuned MKL, of which the price is nothing
            for place, tuner in enumerate(("top10", source["against"])):
                if tuner in run["prices"]:
                    costs[place] = run["prices"][tuner]["seconds"] / run["seconds"]["mkl_untuned"]
                    calls[place] = run["naive"][tuner]
            if calls[0] < calls[1]:
                found.append((costs[0] - costs[1]) / (calls[1] - calls[0]))
    return found


def ours(files: Mapping[str, str], source: Mapping[str, Any]) -> tuple[float, int]:
    """Return our figure, and of how many numbers it is.

    Args:
        files: paths of result files by their short names.
        source: ``file`` and either ``line``, a pattern with one group that a line of the file's summary matches, or ``at``,
            keys with " / " between them, which may have stars. ``per`` divides each number by another; with ``call`` and
            ``calls`` each is a price, to which the calls are added. ``of`` says how several numbers become one: ``share``
            is the fraction that is at least ``reaching`` or at most ``within``, ``count`` the number that is. ``divided``
            is a source that the result is divided by, with the fields that differ. ``times`` scales it.
    """
    path = files[source["file"]]
    if "line" in source:
        matches = [match for line in held(path)["summary"] if (match := re.search(source["line"], line))]
        (match,) = matches
        return float(match[1].replace(",", "")) * source.get("times", 1), 1
    values = break_even(path, source) if "against" in source else numbers(path, source)
    if source.get("of") == "count":
        return float(sum(one >= source["reaching"] for one in values)), 1
    if not values and "among" not in source:
        raise LookupError(f"{path} has nothing at {source['at']}")
    match source.get("of", "one"):
        case "geometric mean":
            value = math.exp(fmean(map(math.log, values)))
        case "mean":
            value = fmean(values)
        case "mean error":  # of predictions over what was measured
            value = fmean(abs(one - 1) for one in values)
        case "median":
            value = median(values)
        case "largest":
            value = max(values)
        case "least":
            value = min(values)
        case "share":
            among = len(numbers(path, {"at": source["among"]})) if "among" in source else len(values)
            within = source.get("reaching", -math.inf), source.get("within", math.inf)
            share = sum(within[0] <= one <= within[1] for one in values) / among
            return share * source.get("times", 1), among
        case "one":
            (value,) = values
        case other:
            raise ValueError(f"unknown: of = {other}")
    if "divided" in source:
        rest = {name: given for name, given in source.items() if name not in ("divided", "times")}
        value /= ours(files, rest | source["divided"])[0]
    return value * source.get("times", 1), len(values)


def reaches(row: Mapping[str, Any], value: float) -> bool:
    """Return whether a figure of ours is within the bounds of its row."""
    room = row.get("room", ROOM)
    known = {
        "least": value >= row.get("least", math.nan) * (1 - room),
        "most": value <= row.get("most", math.nan) * (1 + room),
        "above": value > row.get("above", math.nan),
        "below": value < row.get("below", math.nan),
    }
    asked = [holds for name, holds in known.items() if name in row]
    if not asked:
        raise LookupError(f"no bound: {row}")
    return all(asked)


def judged(row: Mapping[str, Any], files: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Return (figure, the paper's, ours, verdict) of a row.

    With ``interval`` the path ends with the place of a median, which its 95 % interval follows: the lower end has to reach
    the bound.
    """
    if "file" not in row:
        return row["what"], row["paper"], row["why"], "not run"
    value, count = ours(files, row)
    style = row.get("format", "{:.2f}x")
    text, lower = style.format(value), value
    if row.get("interval"):
        way = row["at"].rpartition(" / ")[0]
        lower, upper = (ours(files, {**row, "at": f"{way} / {place}"})[0] for place in (1, 2))
        text += f" [{lower:.2f}, {upper:.2f}]"
    text += f" ({count})" if count > 1 else ""
    text = ". ".join(filter(None, (text, row.get("why", ""))))
    return row["what"], row["paper"], text, "holds" if reaches(row, lower) else "does not hold"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def section(paper: Mapping[str, Any], files: Mapping[str, str]) -> tuple[str, dict[str, str], list[str]]:
    """Return a paper's part of the page, the verdict of each table and figure, and that of each row."""
    items, every, lines = dict[str, str](), list[str](), list[list[str]]()
    for claim in paper["claims"]:
        rows = [judged(row, files) for row in claim["rows"]]
        every += [row[3] for row in rows]
        items[claim["item"]] = min((row[3] for row in rows), key=WORST.index)
        lines.append([f"**{claim['item']}**", f"*{claim['states']}*", "", "", f"**{items[claim['item']]}**"])
        lines += [["", *row] for row in rows]
    text = [
        f"## {paper['name']}",
        paper["about"].strip(),
        table(["", "figure", "paper", "ours", "verdict"], lines),
        f"Tables and figures of the paper that contain no measured result are not compared: {paper['no_result']}.",
    ]
    return "\n\n".join(text), items, every


def page() -> str:
    """Return the text of the page."""
    data = tomllib.loads((HERE / "claims.toml").read_text())
    parts, summary, missed = list[str](), list[list[str]](), list[str]()
    for paper in data["papers"]:
        text, items, rows = section(paper, data["files"])
        parts.append(text)
        cells = [f"[{paper['name']}](#{paper['name'].lower()})"]
        for one in WORST:
            names = ", ".join(name for name, said in items.items() if said == one)
            count = sum(said == one for said in items.values())
            cells.append(f"**{count}** ({rows.count(one)}){': ' if names else ''}{names}")
        summary.append([cells[0], cells[1], cells[3], cells[2]])
        for headline in paper["headlines"]:
            if items[headline["item"]] != "does not hold":
                raise ValueError(
                    f"{paper['name']}, {headline['item']} holds: mend its headline in claims.toml"
                )
            missed.append(f"- {headline['text']} ({paper['name']}, {headline['item']})")
    head = table(["paper", "do not hold", "hold", "not run"], summary)
    made = [
        [f"`{path}`", str(held(path).get("machine", {}).get("processor", ""))]
        for path in data["files"].values()
    ]
    blocks = [
        data["head"].strip(),
        head,
        data["missed"].strip(),
        "\n".join(missed),
        data["rules"].strip(),
        *parts,
    ]
    return "\n\n".join([*blocks, data["made"].strip(), table(["result file", "processor"], made)]) + "\n"


def is_current() -> bool:
    """Return whether the page is what would be written."""
    return PAGE.exists() and PAGE.read_text() == page()


def on_pre_build(config: object) -> None:
    """Stop mkdocs where the page is stale."""
    if not is_current():
        raise SystemExit("docs/claims.md does not follow from the results: run python docs/claims.py")


def main() -> None:
    """Write the page, or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        sys.exit(0 if is_current() else 1)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
