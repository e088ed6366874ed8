"""The page of the results: MLCD's tables and figures beside ours."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.corpus import drawn_of
from benchmarks.pages import card, document, paragraphs, table
from selections.draw import bars, histogram, learning
from selections.rivals import SPARSE, compared, figures
from tensorwise.front.draw_regions import draw_regions, most_asked
from tensorwise.front.svg import element
from tensorwise.model.choosing import TreeModel
from tensorwise.units import time_text


def drawn(text: str, folder: Path) -> str:
    """Return the page with a line that says of which results of a folder it is."""
    return drawn_of(text, *sorted(folder.glob("*.json")))


METHOD: Final = """Inputs are drawn from the generators of the paper's section IV-B, all versions are timed on each in
interleaved rounds and must agree, and a decision tree learns which is the fastest. All inputs of one cell of a generator
stay together: a fifth of the cells is held out of everything (outer test set), ten folds of the others are the
cross-validation. PoIS is the percentage of ideal speed, PPP the average penalty, speed-up that over the best single
version, averaged over inputs. Active learning and its control draw from the measured inputs, three times; the goal is the
penalty on the outer test set after learning from all, and half a point. Inputs are measured at two times, of GEMM some of
them, and the faster one counts. The times beside each other: what was the fastest at the first one, judged by the second."""
AGAINST: Final = """TVM's meta-schedule measures {} programs for each shape and keeps the best; it knows nothing of zeros.
Our tree has learned from no input of these shapes. Both run in the same interleaved rounds, ours with its choosing."""
STYLE: Final = """figure { display: flex; flex-wrap: wrap; gap: 16px; }
figure svg, figure div { flex: 1 1 360px; min-width: 0; } figure img { max-width: 100%; }"""


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
        elif "runs" in found:
            parts.append(card("GEMM against a tuning compiler", _against(found, expected)))
        else:
            parts.append(card(path.stem, _of(found, TreeModel.load(path.with_suffix("")), expected)))
    return document("MLCD's results", "\n".join(parts), STYLE)


def _of(found: Mapping[str, Any], model: TreeModel, expected: Mapping[str, Any]) -> str:
    name, shares = found["benchmark"], found["shares"]
    paper, inner, outer = expected["paper"][name], found["cross-validation"], found["outer"]
    again = found.get("again") or {}
    rows = [
        [title, *(show(one[key]) if key in one else "" for one in (inner, outer, again, paper))]
        for title, key, show in (
            ("PoIS", "pois", "{:.2%}".format), ("PPP", "ppp", "{:.2%}".format),
            ("fastest was chosen", "accuracy", "{:.1%}".format), ("speed-up", "speedup", "{:.2f}x".format),
        )
    ]  # fmt: skip
    rows.append(["over always", inner["constant"], outer["constant"], again.get("constant", ""), ""])
    rows.append(["inputs", str(inner["inputs"]), str(outer["inputs"]), str(again.get("inputs", "")), ""])
    for kind in found["curves"]:
        theirs = f"{paper['fewer']:g}x" if kind == "active" else ""
        rows.append([f"fewer inputs, {kind}", "", _fewer(found, kind), "", theirs])
    axes = most_asked(model)[:2]
    drawn = draw_regions(model, axes, [""] * len(axes))
    picture = f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"
    figures = bars(shares, f"Share of inputs on which each version of {name} is the fastest")
    figures += learning(found["curves"], found["goal"], f"Penalty over inputs measured, {name}")
    described = ""
    if found["described_s"]:
        took, least = time_text(found["described_s"]), time_text(found["least_s"])
        described = (
            f"Reading the features of an input from its data takes {took}, once; the fastest version {least}."
        )
    return (
        paragraphs([*verdicts(found, expected), described])
        + table(["", "cross-validation", "outer test set", "one time by the other", "the paper's"], rows)
        + element("figure", figures)
        + element("figure", element("img", src=picture, alt=f"What is chosen for {name}"))
    )


def _fewer(found: Mapping[str, Any], kind: str) -> str:
    needed = found["needed"][kind]
    return f"{found['known'] / needed:.1f}x ({needed} of {found['known']})" if needed else "not reached"


def verdicts(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Say which claims hold; on the outer test set where nothing else is said."""
    claim, outer, needed = expected["claims"][found["benchmark"]], found["outer"], found["needed"]["active"]
    least, allowed = expected["winners"], expected["allowed"]
    winners = sum(share >= least["share"] for share in found["shares"].values())
    told = [
        (
            outer["pois"] >= 1 - (1 - claim["pois"]) * (1 + allowed),
            f"PoIS {outer['pois']:.2%}, claimed {claim['pois']:.1%}",
        ),
        (
            outer["ppp"] <= claim["ppp"] * (1 + allowed),
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
                fewer >= claim["fewer"] * (1 - allowed),
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
            for moves, of, which in (
                (one["first moves"], one["networks"], "all"),
                (
                    one["figure 7"],
                    one["figure 7 networks"],
                    "those of Figure 7 (3,000 nodes, 9 layers of width 4)",
                ),
            ):
                if moves:
                    shares = {f"layer {layer}": count / of for layer, count in moves.items()}
                    title = f"{kind}, {where}: layer before which data is first moved, share of {which}"
                    figures += element("div", paragraphs([title]) + bars(shares, title))
    head = ["", "networks", "PoIS", "least of a network", "speed-up of plans", "the paper's"]
    return paragraphs(told) + table(head, rows) + element("figure", figures)


def _against(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return how the products that the tree chooses compare with TVM's (Figure 5, and Table III's last columns)."""
    known = list(compared(found["runs"]))
    if not known:
        return paragraphs(["Nothing was compared yet."])
    ours, paper = figures(found["runs"]), expected["paper"]["tvm"]
    shown = (
        ("shapes", "shapes", "{:.0f}"), ("TVM's seconds over ours, mean", "speedup", "{:.2f}x"),
        ("geometric mean", "geometric", "{:.2f}x"), (f"mean from a sparsity of {SPARSE:.0%} on", "sparse", "{:.2f}x"),
        ("ours is the faster one", "faster", "{:.1%}"), ("looking up over choosing, median", "seen", "{:.1e}x"),
        ("searching over choosing, median", "unseen", "{:.1e}x"), ("searching a shape, median", "search_s", "{:.0f} s"),
        ("TVM without a schedule over with one, geometric mean", "untuned", "{:.1f}x"),
    )  # fmt: skip
    rows = [
        [title, form.format(ours[key]), form.format(paper[key]) if key in paper else ""]
        for title, key, form in shown
    ]
    each = []
    for shape, before, run in known:
        one = [run["cases"][0], run["cases"][-1]]
        each.append([
            shape, f"{before['search_s']:.0f} s for {before['trials']}", time_text(run["lookup_s"]),
            time_text(run["select_s"]),
            time_text(run["untuned_s"]),
            *(f"{time_text(case['tvm_s'])}, {time_text(case['ours_s'])} ({case['version']})" for case in one),
        ])  # fmt: skip
    ends = (
        f"TVM, ours at {case['sparsity']:.1%} zeros"
        for case in (known[0][2]["cases"][0], known[0][2]["cases"][-1])
    )
    head = ["m, n, k", "TVM searches", "looks up", "ours chooses", "TVM without a schedule", *ends]
    ratios = [case["ratio"] for _, _, run in known for case in run["cases"]]
    return (
        paragraphs([AGAINST.format(found["settings"]["trials"]), *found["summary"]])
        + table(["", "here", "the paper's"], rows)
        + element("figure", histogram(ratios, "cases by TVM's seconds over ours"))
        + table(head, each)
    )
