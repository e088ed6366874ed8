"""What the results come to: Table 5.4 for each operation, and the page."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.corpus import geometric_mean
from benchmarks.pages import card, document, paragraphs, table
from tensorwise.front.svg import element

Run = Mapping[str, Any]
AS_IT_IS, MEASURED = "as it is", "measured here"
METHOD = """A proxy for two machines: two settings of one. Programs were searched under each setting and then run under both,
in fresh interleaved rounds with Fixed CSR (TACO's code, compiled for the same vectors), each verified before and after, in
float32. The paper has two processors and compilers, and models trained on each; here caches and memory are the same, so
that less differs, and nothing was learned: what was measured there takes the place of a model's predictions."""


def compared(runs: Mapping[str, Run]) -> dict[str, list[Run]]:
    """Return the finished comparisons by operation."""
    found: dict[str, list[Run]] = {}
    for run in runs.values():
        if "speedup" in run:
            found.setdefault(run["op"], []).append(run)
    return found


def cell(some: Sequence[Run], here: str, there: str, how: str) -> list[float]:
    """Return the speed-ups over Fixed CSR under ``here`` of what was chosen under ``there``, matrix by matrix.

    Under its own setting a choice is as it is either way.
    """
    name = f"{there}: {AS_IT_IS if here == there else how}"
    return [run["speedup"][name][0] for run in some if run["setting"] == here and name in run["speedup"]]


def settings_of(some: Sequence[Run]) -> list[str]:
    """Return the names of the settings, in the order in which they were measured."""
    return list(dict.fromkeys(run["setting"] for run in some))


def judge(runs: Mapping[str, Run], expected: Mapping[str, Any]) -> tuple[list[str], bool | None]:
    """Return a line for each claim, and whether all hold; None where nothing was measured.

    As in the paper: under each setting what was chosen there is ahead of what was chosen elsewhere, and that is still ahead
    of Fixed CSR; a mean may miss this by the tolerance, a share.
    """
    lines, holds = [], True
    for op, some in compared(runs).items():
        for here in settings_of(some):
            own = geometric_mean(cell(some, here, here, MEASURED))
            for there in settings_of(some):
                if here == there:
                    continue
                foreign = geometric_mean(cell(some, here, there, MEASURED))
                met = own >= foreign * (1 - expected["tolerance"]) and foreign >= 1 - expected["tolerance"]
                holds &= met
                lines.append(
                    f"{op} under {here}: {own:.2f}x over Fixed CSR as chosen there, {foreign:.2f}x as chosen under {there} "
                    f"and measured here: {'as in the paper' if met else 'not as in the paper'}"
                )
        floor = statistics.median(abs(float(run["speedup"]["again"][0]) - 1) for run in some)
        lines.append(f"{op}: Fixed CSR twice differs by {floor:.1%}, median over {len(some)}")
    return (lines, holds) if lines else (["nothing was measured yet"], None)


def page(held: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return the page of a result file; ``expected`` is ``expected.json``."""
    runs = held["runs"]
    facts = ", ".join(f"{name} {value}" for name, value in {**held["machine"], **held["settings"]}.items())
    lines, holds = judge(runs, expected)
    verdict = {True: "All as in the paper.", False: "Not all as in the paper.", None: ""}[holds]
    parts = [
        element("h1", "Programs chosen elsewhere: a proxy"),
        paragraphs([METHOD, facts]),
        card("Claims", paragraphs([verdict, *lines])),
    ]
    for op, some in compared(runs).items():
        for how in (MEASURED, AS_IT_IS):
            parts.append(card(f"Table 5.4 by proxy: {op}, {how}", _table(some, how)))
        parts.append(card(f"By matrix: {op}", _matrices(some)))
    parts.append(card("WACO's Table 5.4 (SpMM, two processors)", _theirs(expected["paper"])))
    notes = [f"{key}: {run['error']}" for key, run in runs.items() if "error" in run]
    for key, run in runs.items():
        notes += [f"{key}: {run['note']}"] if run.get("note") else []
        notes += [f"{key}, {name}: {why}" for name, why in run.get("failed", {}).items()]
    parts.append(card("What failed, and notes", paragraphs(notes or ["Nothing."])))
    return document("WACO's transfer, by proxy", "\n".join(parts))


def _table(some: Sequence[Run], how: str) -> str:
    names = settings_of(some)
    rows = []
    for here in names:
        row = [f"run under {here}"]
        for there in names:
            found = cell(some, here, there, how)
            row.append(f"{geometric_mean(found):.2f}x over {len(found)}" if found else "not measured")
        default = [
            run["speedup"]["default"][0]
            for run in some
            if run["setting"] == here and "default" in run["speedup"]
        ]
        rows.append([*row, f"{geometric_mean(default):.2f}x" if default else ""])
    text = {
        MEASURED: "Off the diagonal: of the ten that were fastest there the fastest here. This is what a model does "
        "whose ten are measured where they run.",
        AS_IT_IS: "Off the diagonal: the program that was best there, unmeasured.",
    }[how]
    head = ["speed-up over Fixed CSR", *(f"chosen under {name}" for name in names), "our default"]
    return paragraphs([text]) + table(head, rows)


def _matrices(some: Sequence[Run]) -> str:
    names = [name for name in some[0]["speedup"] if name != "again"]
    every = list(
        dict.fromkeys([*names, *(name for run in some for name in run["speedup"] if name != "again")])
    )
    rows = [
        [
            run["matrix"],
            run["setting"],
            *(f"{run['speedup'][name][0]:.2f}x" if name in run["speedup"] else "" for name in every),
        ]
        for run in some
    ]
    return table(["matrix", "run under", *every], rows)


def _theirs(paper: Mapping[str, Mapping[str, float]]) -> str:
    rows = [[f"tested on {here}", *(f"{x:.2f}x" for x in row.values())] for here, row in paper.items()]
    return table(["speed-up over Fixed CSR", *(f"trained on {there}" for there in paper)], rows)
