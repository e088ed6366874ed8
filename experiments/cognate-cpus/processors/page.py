"""The page of the results: for each operation what models are worth on each machine."""

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.pages import card, document, paragraphs, table
from processors.judging import FIGURES, judge, machines, ways
from tensorwise.front.svg import element

METHOD: Final = """Nothing was measured for this page: models learned from records of some processors, and ranked the
recorded configs of each job of another, of families that no model had learned from. Top-1 and top-10: the time of
the fastest config of the job over that of the one predicted best, and over the fastest of the ten predicted best; means over
jobs. Records of different processors are of partly different matrices and of different configs: compare within a column of a
table, not between columns."""
HEAD: Final = {
    "spearman": "Spearman", "near": "within 10x", "fastest": "fastest quarter", "top1": "top-1", "top10": "top-10",
}  # fmt: skip


def page(held: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return the page of a result file; ``expected`` is ``expected.json``."""
    runs = held["runs"]
    lines, holds = judge(runs, expected)
    verdict = {True: "All hold.", False: "Not all hold.", None: "Nothing is known yet."}[holds]
    facts = ", ".join(f"{name} {value}" for name, value in held["machine"].items())
    parts = [
        element("h1", "Cost models on processors that they have not learned from"),
        paragraphs([METHOD, facts]),
        card("Claims", paragraphs([verdict, *lines])),
    ]
    for op in dict.fromkeys(run["op"] for run in runs.values() if "ways" in run):
        parts += _operation(op, runs)
    parts.append(card("WACO's Table 5.4 (SpMM, speed-up over Fixed CSR)", _theirs(expected["paper"]["waco"])))
    failed = [f"{key}: {run['error']}" for key, run in runs.items() if "error" in run]
    parts.append(card("What failed", paragraphs(failed or ["Nothing."])))
    return document("Cost models on other processors", "\n".join(parts))


def _operation(op: str, runs: Mapping[str, Any]) -> list[str]:
    """Table 5.4's form for what is named first, and all figures."""
    found, names = ways(runs, op), machines(runs, op)
    every = list(dict.fromkeys(way for _, way in found))
    cells = [
        [way, *(f"{found[on, way]['top1']:.3f}" if (on, way) in found else "" for on in names)]
        for way in every
    ]
    jobs = [
        f"{on} ({max(one['jobs'] for (of, _), one in found.items() if of == on):.0f} jobs)" for on in names
    ]
    long = [
        [on, way, *(f"{found[on, way][name]:.3f}" for name in (*FIGURES, "apart"))]
        for on in names
        for way in every
        if (on, way) in found
    ]
    heads = ["on", "learned from", *(HEAD[name] for name in FIGURES), "top-1, draws apart"]
    return [
        card(
            f"{op}: what is named first, share of the best",
            table(["learned from", *(f"on {x}" for x in jobs)], cells),
        ),
        card(f"{op}: all figures", table(heads, long)),
    ]


def _theirs(paper: Mapping[str, Mapping[str, float]]) -> str:
    rows = [[f"tested on {here}", *(f"{x:.2f}x" for x in row.values())] for here, row in paper.items()]
    return table(["", *(f"trained on {there}" for there in paper)], rows)
