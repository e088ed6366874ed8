"""The page of the results: MLCD's tables and figures beside ours."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.pages import card, document, paragraphs, table
from selections.draw import bars, learning
from tensorwise.front.draw_regions import draw_regions, most_asked
from tensorwise.front.svg import element
from tensorwise.model.choosing import TreeModel
from tensorwise.units import time_text

ALLOWED: Final = 0.1
"""By what share of what is allowed a figure may miss its claim."""
METHOD: Final = """Inputs are drawn from the generators of the paper's section IV-B, all versions are timed on each in
interleaved rounds and must agree, and a decision tree learns which is the fastest. All inputs of one cell of a generator
stay together: a fifth of the cells is held out of everything (outer test set), ten folds of the others are the
cross-validation. PoIS is the percentage of ideal speed, PPP the average penalty, speed-up that over the best single
version, averaged over inputs. Active learning and its control draw from the measured inputs, three times; the goal is the
penalty on the outer test set after learning from all, and half a point."""
STYLE: Final = """figure { display: flex; flex-wrap: wrap; gap: 16px; }
figure svg { flex: 1 1 360px; } figure img { max-width: 100%; }"""


def page(folder: Path, expected: Mapping[str, Any]) -> str:
    """Return the page of all results in a folder, as run.py leaves them.

    Args:
        folder: holds NAME.json and the model NAME.
        expected: ``expected.json``.
    """
    parts = [element("h1", "Which version of a function, by a decision tree"), paragraphs([METHOD])]
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        if "gnn" in found:
            parts.append(card("Networks, placed kernel by kernel", _networks(found, expected)))
        else:
            parts.append(card(path.stem, _of(found, TreeModel.load(path.with_suffix("")), expected)))
    return document("MLCD's results", "\n".join(parts), STYLE)


def _of(found: Mapping[str, Any], model: TreeModel, expected: Mapping[str, Any]) -> str:
    name, shares = found["benchmark"], found["shares"]
    paper, inner, outer = expected["paper"][name], found["cross-validation"], found["outer"]
    rows = [
        [title, *(show(one[key]) for one in (inner, outer, paper))]
        for title, key, show in (
            ("PoIS", "pois", "{:.2%}".format), ("PPP", "ppp", "{:.2%}".format),
            ("fastest was chosen", "accuracy", "{:.1%}".format), ("speed-up", "speedup", "{:.2f}x".format),
        )
    ]  # fmt: skip
    rows.append(["over always", inner["constant"], outer["constant"], ""])
    rows.append(["inputs", str(inner["inputs"]), str(outer["inputs"]), ""])
    for kind in found["curves"]:
        theirs = f"{paper['fewer']:g}x" if kind == "active" else ""
        rows.append([f"fewer inputs, {kind}", "", _fewer(found, kind), theirs])
    axes = most_asked(model)[:2]
    drawn = draw_regions(model, axes, [""] * len(axes))
    picture = f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"
    figures = bars(shares, f"Share of inputs on which each version of {name} is the fastest")
    figures += learning(found["curves"], found["goal"], f"Penalty over inputs measured, {name}")
    described = ""
    if found["described_s"]:
        took, least = time_text(found["described_s"]), time_text(found["least_s"])
        described = f"Features of an input take {took}, the fastest version {least} (medians)."
    return (
        paragraphs([*verdicts(found, expected), described])
        + table(["", "cross-validation", "outer test set", "the paper's"], rows)
        + element("figure", figures)
        + element("figure", element("img", src=picture, alt=f"What is chosen for {name}"))
    )


def _fewer(found: Mapping[str, Any], kind: str) -> str:
    needed = found["needed"][kind]
    return f"{found['known'] / needed:.1f}x ({needed} of {found['known']})" if needed else "not reached"


def verdicts(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Say which claims hold; on the outer test set where nothing else is said."""
    claim, outer, needed = expected["claims"][found["benchmark"]], found["outer"], found["needed"]["active"]
    least = expected["winners"]
    winners = sum(share >= least["share"] for share in found["shares"].values())
    told = [
        (
            outer["pois"] >= 1 - (1 - claim["pois"]) * (1 + ALLOWED),
            f"PoIS {outer['pois']:.2%}, claimed {claim['pois']:.1%}",
        ),
        (
            outer["ppp"] <= claim["ppp"] * (1 + ALLOWED),
            f"PPP {outer['ppp']:.2%}, claimed at most {claim['ppp']:.0%}",
        ),
        (
            winners >= least["versions"],
            f"{winners} versions are fastest on {least['share']:.0%} of the inputs or more",
        ),
    ]
    if "fewer" in claim:
        fewer = found["known"] / needed if needed else 0.0
        told.append(
            (
                fewer >= claim["fewer"] * (1 - ALLOWED),
                f"{fewer:.1f} times fewer inputs, claimed {claim['fewer']}",
            )
        )
    return [f"{'holds' if holds else 'does not hold'}: {text}" for holds, text in told]


def _networks(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return what plans gain over single devices, and where they move data (Figure 7)."""
    gpu = "a measured GPU" if found["measured gpu"] else "a GPU of stated figures (values.toml)"
    told = [f"{found['networks']} of {found['of']} networks have all of their kernels measured."]
    rows, figures = [], ""
    least = expected["claims"]["gnn"]["pois"]
    for setting, kinds in found["gnn"].items():
        where = gpu if setting == "gpu" else "one thread or all"
        for kind, one in kinds.items():
            gains = ", ".join(f"{gain:.2f}x over {device}" for device, gain in one["speedup"].items())
            paper = ", ".join(
                f"{gain:g}x over {device}" for device, gain in expected["paper"]["gnn"][kind].items()
            )
            rows.append([f"{kind}, {where}", str(one["networks"]), f"{one['pois']:.1%}", f"{one['least']:.1%}", gains,
                         paper if setting == "gpu" else ""])  # fmt: skip
            told.append(f"{'holds' if one['pois'] >= least else 'does not hold'}: {kind}, {where}: PoIS {one['pois']:.1%}, "
                        f"claimed {least:.0%}")  # fmt: skip
            if one["first moves"]:
                shares = {
                    f"layer {layer}": count / one["networks"] for layer, count in one["first moves"].items()
                }
                title = f"{kind}, {where}: layer before which data is first moved, share of networks"
                figures += element("div", paragraphs([title]) + bars(shares, title))
    head = ["", "networks", "PoIS", "least of a network", "speed-up of plans", "the paper's"]
    return paragraphs(told) + table(head, rows) + element("figure", figures)
