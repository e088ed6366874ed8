"""The page of the results: WACO's tables beside ours, the losses by source, the case studies."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.corpus import geometric_mean
from benchmarks.pages import card, document, paragraphs, table
from motivation.draw import strips
from motivation.spaces import FACTORS, SPACES
from tensorwise.front.svg import element, escape
from tensorwise.lower.program import program_for
from tensorwise.program.workload import workload
from tensorwise.space.config import Config, show
from tensorwise.tensor.entries import Entries

Run = Mapping[str, Any]
MATTERS = 1.05
"""A source counts where turning it back makes the program slower by this factor, and clearly slower at all."""
CLEARLY = 1.5
"""Table 5.3 counts matrices with at least this speed-up over Fixed CSR."""
UNTUNED = "Our untuned code (no choice)"
BASES = {"fixed_csr": "Fixed CSR", "default": "our default"}
METHOD = """Every tuning space has the same number of candidates a search and the same seeds. The fastest candidates of all
seeds meet in rounds that choose; all figures are from fresh rounds in which Fixed CSR (TACO's code for CSR, by gcc),
our untuned default for CSR and all compared programs run in shuffled order: medians of ratios within a round, each
program verified before and after, in float32."""
STYLE = """
.key i.spmv, circle.spmv { fill: #1f78c8; background: #1f78c8; }
.key i.spmm, circle.spmm { fill: #e4572e; background: #e4572e; }
.key i.sddmm, circle.sddmm { fill: #1b9e77; background: #1b9e77; } circle { stroke: none; fill-opacity: .7; }
"""


def page(held: Mapping[str, Any], values: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        held: the result file; values: ``values.toml``; expected: ``expected.json``, WACO's figures.
    """
    runs = held["runs"]
    facts = ", ".join(f"{name} {value}" for name, value in {**held["machine"], **held["settings"]}.items())
    compared = {
        theirs: (ours, runs[f"compare spmm {ours}"])
        for theirs, ours in values["motivation"].items()
        if "error" not in runs.get(f"compare spmm {ours}", {"error": ""})
    }
    sources = {
        tuple(key.split()[1:]): run
        for key, run in runs.items()
        if key.startswith("sources") and "error" not in run
    }
    parts = [
        element("h1", "Format, schedule, or both: WACO's motivation on matrices of ours"),
        element("p", escape(METHOD), class_="soft"),
        element("p", escape(facts), class_="soft"),
        card("Table 2.1: tuning the format, the schedule, and both (SpMM)", _table_2_1(compared, expected)),
        card("Table 2.2: each matrix with the others' optimum (SpMM)", _table_2_2(compared, expected)),
        card("Table 5.3: sources of the speed-ups", _table_5_3(sources, expected)),
    ]
    if sources:
        parts.append(card("What each source is worth", _worth(sources)))
    for theirs, case in values["case_studies"].items():
        ours = (case["op"], case["matrix"])
        if ours in sources:
            parts.append(_case(theirs, ours, sources[ours], expected["case_studies"][theirs]))
    notes = [f"{key}: {run['error']}" for key, run in runs.items() if "error" in run]
    for key, run in runs.items():
        notes += [f"{key}: {run['note']}"] if run.get("note") else []
        notes += [f"{key}, {name}: {why}" for name, why in run.get("failed", {}).items()]
    parts.append(card("What failed, and notes", paragraphs(notes or ["Nothing."])))
    return document("WACO's motivation", "\n".join(parts), STYLE)


def _table_2_1(compared: Mapping[str, tuple[str, Run]], expected: Mapping[str, Any]) -> str:
    if not compared:
        return paragraphs(["Not measured yet."])
    rows, wins = [], 0
    for theirs, (ours, run) in compared.items():
        what = f"{ours}, {'x'.join(map(str, run['shape']))}, {run['nonzeros']:,} nonzeros"
        for base, named in BASES.items():
            cells = [_ratio(run["speedup"][base][name]) for name in ("default", *SPACES)]
            rows.append(["" if base == "default" else what, named, *cells])
        published = [f"{expected['table_2_1'][theirs][space]:.2f}x" for space in SPACES]
        rows.append([f"WACO's {theirs}", "TACO's CSR", "1.00x", *published])
        wins += all(run["loss"][name][1] > 1 for name in ("format", "schedule"))
    text = (
        f"Joint tuning is faster than either part alone, with 95 % confidence, on {wins} of {len(compared)}. Its space is "
        "much larger for the same number of candidates: where it comes out behind a part, the search missed what is there. "
        "In brackets the bounds of the 95 % interval. Our default is CSR with an untuned schedule of ours, which holds the "
        "output in registers already."
    )
    head = ["matrix", "over", "untuned", "format-only", "schedule-only", "joint"]
    return paragraphs([text]) + table(head, rows)


def _table_2_2(compared: Mapping[str, tuple[str, Run]], expected: Mapping[str, Any]) -> str:
    if not compared:
        return paragraphs(["Not measured yet."])
    ours = {theirs: matrix for theirs, (matrix, _) in compared.items()}
    rows, notes = [], []
    for theirs, (matrix, run) in compared.items():
        cells = []
        for other in ours:
            published = expected["table_2_2"][theirs][other]
            name = "joint" if other == theirs else f"opt {ours[other]}"
            changed = run["changed"].get(name, [])
            if name in run["failed"]:
                cells.append(f"refused (theirs {published:.2f}x)")
                continue
            fixed, default = (run["speedup"][base][name][0] for base in BASES)
            star = "*" if changed else ""
            cells.append(f"{fixed:.2f}x / {default:.2f}x{star} (theirs {published:.2f}x)")
            if changed:
                notes.append(f"* opt-{ours[other]} on {matrix} needed other {', '.join(changed)}")
        rows.append([f"{matrix} ({theirs})", *cells])
    text = (
        "Speed-up over Fixed CSR / over our default. A star: the config is not allowed for the matrix as it is, and one "
        "near it ran; refused: it cannot run there."
    )
    head = ["", *(f"opt-{matrix}" for matrix in ours.values())]
    return paragraphs([text]) + table(head, rows) + paragraphs(notes)


def _sources(run: Run) -> dict[str, float]:
    """Return what counts as a source in a run, with its loss: rows of Table 5.3."""
    return {
        label: run["loss"][name][0]
        for name, label in run["classes"].items()
        if name in run["loss"] and run["loss"][name][0] >= MATTERS and run["loss"][name][1] > 1
    }


def _known(run: Run) -> dict[str, float]:
    """Return the sources and our untuned code, which is worth its speed-up over Fixed CSR."""
    return {**_sources(run), UNTUNED: run["speedup"]["fixed_csr"]["default"][0]}


def _main_source(run: Run) -> str:
    known = _known(run)
    return max(known, key=lambda label: known[label])


def _table_5_3(sources: Mapping[tuple[str, ...], Run], expected: Mapping[str, Any]) -> str:
    ops = list(dict.fromkeys(op for op, _ in sources))
    if not ops:
        return paragraphs(["Not measured yet."])
    fast = {
        op: [
            run
            for (one, _), run in sources.items()
            if one == op and run["speedup"]["fixed_csr"]["best"][0] >= CLEARLY
        ]
        for op in ops
    }
    found = [label for some in fast.values() for run in some for label in _sources(run)]
    head = ["source", *(f"{op}: {what}" for op in ops for what in ("counts", "main", "mean", "WACO's"))]
    rows = []
    for label in dict.fromkeys((*expected["table_5_3"], *sorted(found), UNTUNED)):
        row = [label]
        for op in ops:
            worth = [_known(run)[label] for run in fast[op] if label in _known(run)]
            main = sum(_main_source(run) == label for run in fast[op])
            theirs = expected["table_5_3"].get(label, {}).get(op)
            row += [_share(len(worth), fast[op]), _share(main, fast[op])]
            row += [f"{geometric_mean(worth):.2f}x" if worth else "", f"{theirs} %" if theirs else ""]
        rows.append(row)
    counted = ", ".join(f"{op} {len(fast[op])} of {sum(one == op for one, _ in sources)}" for op in ops)
    text = (
        f"Matrices with a speed-up of at least {CLEARLY:g}x over Fixed CSR: {counted}. A source counts "
        f"where turning all its Params back to the default costs at least {100 * (MATTERS - 1):.0f} %; the main source of a "
        "matrix is the one that costs most, or our untuned code where that alone gains more over Fixed CSR. Losses do not "
        "add up: a choice often pays only together with another."
    )
    return paragraphs([text]) + table(head, rows)


def _worth(sources: Mapping[tuple[str, ...], Run]) -> str:
    losses: dict[str, list[tuple[str, str, float]]] = {factor: [] for factor in FACTORS}
    for (op, matrix), run in sources.items():
        for factor, found in losses.items():
            if f"source {factor}" in run["loss"]:
                found.append((op, matrix, run["loss"][f"source {factor}"][0]))
    text = "Time with a source turned back to the default over time of the optimum; one dot a matrix where they differ."
    ops = dict.fromkeys(op for op, _ in sources)
    key = element("ul", "".join(element("li", element("i", "", class_=op) + op) for op in ops), class_="key")
    return paragraphs([text]) + element("figure", strips(losses)) + key


def _case(theirs: str, ours: tuple[str, str], run: Run, published: str) -> str:
    op, matrix = ours
    rows, columns = run["shape"]
    # The loops do not depend on the entries, and texts may be a hybrid's, which only ``program_for`` reads.
    nothing = Entries((rows, columns), (np.empty(0, np.int32),) * 2, np.empty(0, np.float32))
    work = workload(op, nothing, n=None if op == "spmv" else 1)
    program = program_for(work, run["format"], run["schedule"])
    character = (
        f"{matrix}: {rows:,} x {columns:,}, {run['nonzeros']:,} nonzeros, longest row {run['longest_row']}, "
        f"{100 * run['empty_rows'] / rows:.0f} % of the rows empty."
    )
    fixed, default = (_ratio(run["speedup"][base]["best"]) for base in BASES)
    told = [
        f"WACO, {theirs}: {published}",
        character,
        f"Speed-up over Fixed CSR {fixed}, over our default {default}.",
    ]
    config = Config.parse(run["config"])
    single = [ratio for name, ratio in run["loss"].items() if name.startswith("param ")]
    losses = [
        [
            name.replace("param ", "").replace("source ", "all of: "),
            show(config[name.removeprefix("param ")]) if name.startswith("param ") else "",
            _ratio(ratio),
            ", ".join(run["changed"][name]),
        ]
        for name, ratio in sorted(run["loss"].items(), key=lambda pair: -pair[1][0])
        if name.startswith("param ") or (name.startswith("source ") and ratio not in single)
    ]
    turned = table(["turned back", "was", "time over the optimum's", "what had to follow"], losses)
    if not losses:
        turned = paragraphs(["The search found nothing faster than the default."])
    loops = element("details", element("summary", "The loops") + element("pre", escape(program)))
    head = element("pre", escape(f"A: {run['format']}\n{run['schedule']}"))
    return card(f"Case study: {op} on {matrix}", paragraphs(told) + head + turned + loops)


def _ratio(bounds: Sequence[float]) -> str:
    median, low, high = bounds
    return f"{median:.2f}x" if low == high else f"{median:.2f}x [{low:.2f}, {high:.2f}]"


def _share(count: int, of: Sequence[Any]) -> str:
    return f"{100 * count / len(of):.0f} %" if of and count else ""
