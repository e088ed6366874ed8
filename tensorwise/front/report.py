"""One self-contained HTML page that shows what a tuning found, the numbers behind it and its price.

`render` turns `ReportData` into text and touches nothing else: no file, no clock, no network. Everything
that came from outside (names, texts) is escaped; pictures are inline SVG; nothing is fetched by the page.
"""

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files

import numpy as np

from tensorwise.front.draw_pattern import row_histogram, spy_chart, window_chart
from tensorwise.front.draw_speed import Mark, roofline_chart, time_chart
from tensorwise.front.report_data import Candidate, ReportData
from tensorwise.front.svg import element, escape, number_text, size_text
from tensorwise.units import time_text

_GENERATED_SHOWN = 8
_PREVIEW_LINES = 400


def render(result: ReportData) -> str:
    """Return the report as one HTML page."""
    style = files("tensorwise.front").joinpath("report.css").read_text(encoding="utf-8")
    problem = [_shape(result), f"{result.nnz:,} stored entries", result.dtype, result.op]
    if result.n is not None:
        problem.append(f"n = {result.n}")
    problem.append(f"{result.threads} thread" + ("" if result.threads == 1 else "s"))
    notes = "".join(element("p", escape(note)) for note in result.notes)
    body = (
        element("h1", escape(result.title))
        + element("p", escape(" · ".join([result.matrix, *problem])), class_="soft")
        + element("p", escape(verdict(result)), class_="verdict")
        + _tiles(result)
        + (element("div", element("h2", "Please note") + notes, class_="card notes") if notes else "")
        + element("div", _pattern(result) + _times(result) + _rows(result) + _roofline(result), class_="grid")
        + element(
            "div", _storage(result) + _loops(result) + _costs(result) + _environment(result), class_="grid"
        )
        + element("div", _all_candidates(result), class_="grid")
        + element(
            "footer", "Written by Tensorwise. Times are medians of a call; lower is better.", class_="soft"
        )
    )
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        + element("title", escape(result.title))
        + f"<style>\n{style}</style>"
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body><main>{body}</main></body></html>\n'


def verdict(result: ReportData) -> str:
    """Return the finding in one or two sentences."""
    best, library = result.candidate(result.best), result.best_library
    if best is None or not best.valid:
        return "No kernel could be measured."
    if best.baseline:
        text = f"Call {best.name}: {time_text(best.seconds)}, and no generated kernel was faster."
        generated = result.candidate(result.best_generated)
        if generated and generated.valid:
            slower = generated.seconds / best.seconds
            text += f" The best generated one takes {slower:.2f} times as long ({generated.format})."
        return text
    text = f"{best.name}, stored as {best.format or 'given'}: {time_text(best.seconds)} a call"
    if library is None:
        return text + ". No library was there to compare with."
    ratio = 1 / best.ratio if best.ratio else library.seconds / best.seconds
    beside = f"{library.name}, {time_text(library.seconds)}"
    return f"{text}, {ratio:.2f} times as fast as the best library ({beside})."


def _tiles(result: ReportData) -> str:
    best, library = result.candidate(result.best), result.best_library
    tiles: list[tuple[str, str]] = []
    if best and best.valid:
        tiles.append((time_text(best.seconds), "a call"))
        if library:
            ratio = 1 / best.ratio if best.ratio else library.seconds / best.seconds
            tiles.append((f"{ratio:.2f}×", f"as fast as {library.name}"))
        tiles.append((f"{number_text(result.flops / best.seconds / 1e9)}", "Gflop/s of useful work"))
    if "break_even_calls" in result.costs:
        tiles.append((_cost(result.costs, "break_even_calls"), "calls to break even"))
    inner = "".join(
        element("div", element("b", escape(big)) + element("span", escape(small)), class_="card tile")
        for big, small in tiles
    )
    return element("div", inner, class_="tiles") if inner else ""


def _pattern(result: ReportData) -> str:
    rows, cols = result.spy.block
    blocked = f"{rows} × {cols} blocks" if rows * cols > 1 else "single entries"
    fill = ""
    if result.stored_positions and result.nnz:
        fill = f"; {result.stored_positions / result.nnz:.2f} stored values for each entry"
    what = "The whole matrix" if len(result.shape) == 2 else "The first two modes, the others summed"
    whole = element("figure", spy_chart(result.spy) + _caption(f"{what}; darker cells hold more."))
    top, left, tall, wide = result.spy.window
    near = f"Its densest {tall} × {wide} window, at row {top:,}, column {left:,}: {blocked}{fill}."
    window = element("figure", window_chart(result.spy) + _caption(near))
    if not result.nnz:
        return _card("The pattern", "", element("p", "The matrix has no stored entries."))
    return _card(
        "The pattern and the chosen blocks", "", element("div", whole + window, class_="pair"), wide=True
    )


def _times(result: ReportData) -> str:
    marks = _marks(result, _GENERATED_SHOWN)
    if not marks:
        return _card("Time a call", "", element("p", "No candidate has a valid time."), wide=True)
    kinds = {"best": "the answer", "gen": "generated", "lib": "library"}
    present = [kind for kind in kinds if any(m.kind == kind for m in marks)]
    key = "".join(element("li", element("i", "", class_=kind) + kinds[kind]) for kind in present)
    generated = sum(not c.baseline for c in result.measured)
    hidden = max(generated - sum(not c.baseline for c in _shown(result, _GENERATED_SHOWN)), 0)
    more = f" {hidden} more generated kernels, timed in the search, are in the table below." if hidden else ""
    text = f"Median of a call, whiskers span the middle half of the samples; lower is better.{more}"
    return _card(
        "Time against the libraries", text, time_chart(marks) + element("ul", key, class_="key"), wide=True
    )


def _rows(result: ReportData) -> str:
    lengths = np.asarray(result.row_lengths, np.int64)
    if not lengths.size:
        return _card("Row lengths", "", element("p", "The matrix has no rows."))
    text = f"Mean {lengths.mean():.1f}, median {np.median(lengths):g}, longest {int(lengths.max()):,}"
    empty = int((lengths == 0).sum())
    text += f"; {empty:,} of {lengths.size:,} rows are empty." if empty else f"; {lengths.size:,} rows."
    return _card("Row lengths", text, element("figure", row_histogram(lengths)))


def _roofline(result: ReportData) -> str:
    marks = [m for m in _marks(result, _GENERATED_SHOWN) if m.flop_per_byte]
    if not marks:
        return _card("Roofline", "", element("p", "Operations and bytes of the candidates are not known."))
    peaks = result.peak_flop_per_s or result.bandwidth_bytes_per_s
    text = "Bytes are the least a call must move: operands read once, output written once. "
    level = {"": "", "DRAM": ", from memory"}.get(
        result.bandwidth_of, f", from the {result.bandwidth_of} cache"
    )
    text += (
        f"The roof was measured on this machine{level}."
        if peaks
        else "The machine's peaks were not measured."
    )
    chart = roofline_chart(marks, result.peak_flop_per_s, result.bandwidth_bytes_per_s)
    return _card("Roofline", text, element("figure", chart))


def _storage(result: ReportData) -> str:
    chosen = _answer(result)
    text = element("p", element("code", escape(chosen.format))) if chosen and chosen.format else ""
    return _card("How it is stored", "", text + _pre(result.fibertree))


def _loops(result: ReportData) -> str:
    chosen = _answer(result)
    text = element("p", element("code", escape(chosen.schedule))) if chosen and chosen.schedule else ""
    source = element("details", element("summary", "C source") + _pre(result.source)) if result.source else ""
    return _card("How it runs", "", text + _pre(result.loops) + source)


_COST_WORDS = {
    "conversion_s": "Conversion of the matrix",
    "compile_s": "Compiling",
    "tuning_s": "The whole search",
    "break_even_calls": "Calls to break even",
    "held_bytes": "Memory held by the operator",
    "input_bytes": "Memory of the matrix as given",
    "candidates_measured": "Candidates measured",
}


def _costs(result: ReportData) -> str:
    rows = [[_COST_WORDS.get(key, _words(key)), _cost(result.costs, key)] for key in result.costs]
    body = _table(["", ""], rows, numeric={1}) if rows else element("p", "Not recorded.")
    return _card("What it cost", "", body)


def _environment(result: ReportData) -> str:
    rows = [[key, value] for key, value in result.environment.items()]
    return _card(
        "Where it was measured", "", _table(["", ""], rows) if rows else element("p", "Not recorded.")
    )


def _all_candidates(result: ReportData) -> str:
    library = result.best_library
    ordered = result.measured + [c for c in result.candidates if not c.valid]
    rows = []
    for c in ordered:
        ratio = c.ratio or (c.seconds / library.seconds if library and c.valid and c.in_rounds else None)
        spread = time_text(c.spread_s) if c.valid else ""
        speed = number_text(result.flops / c.seconds / 1e9) if c.valid else ""
        took = ("> " if c.status == "censored" else "") + time_text(c.seconds)
        times = [took, spread, f"{ratio:.2f}" if ratio else "", speed]
        rows.append(
            [c.name, *times, c.status + ("" if c.in_rounds else ", in the search"), c.format, c.schedule]
        )
    over = f"over {library.name}" if library else "ratio"
    head = ["kernel", "time", "spread", over, "Gflop/s", "status", "format", "schedule"]
    table = _table(head, rows, numeric={1, 2, 3, 4}, code={6, 7}, strong=result.best)
    count = f"All {len(rows)} candidates"
    return element("section", element("details", element("summary", count) + table), class_="card wide")


def _answer(result: ReportData) -> Candidate | None:
    """The candidate whose format and loops are shown: the best generated one, or the answer itself."""
    return result.candidate(result.best_generated) or result.candidate(result.best)


def _shown(result: ReportData, generated: int) -> list[Candidate]:
    rounds = any(c.in_rounds for c in result.measured)  # none: interrupted before any
    fast = [c for c in result.measured if not c.baseline and (c.in_rounds or not rounds)][:generated]
    return [c for c in result.measured if c.baseline or c in fast or c.name == result.best]


def _marks(result: ReportData, generated: int) -> list[Mark]:
    return [
        Mark(
            name=c.name,
            kind="best" if c.name == result.best else "lib" if c.baseline else "gen",
            seconds=c.seconds,
            spread_s=c.spread_s if math.isfinite(c.spread_s) else 0.0,
            flop_per_byte=result.flops / c.moved_bytes if c.moved_bytes and result.flops else None,
            flop_per_s=result.flops / c.seconds,
        )
        for c in _shown(result, generated)
    ]


def _shape(result: ReportData) -> str:
    return " × ".join(f"{extent:,}" for extent in result.shape)


def _words(key: str) -> str:
    return key.removesuffix("_s").removesuffix("_bytes").replace("_", " ").capitalize()


def _cost(costs: Mapping[str, float], key: str) -> str:
    value = costs[key]
    if key.endswith("_s"):
        return time_text(value)
    if key.endswith("_bytes"):
        return size_text(value)
    return number_text(math.ceil(value)) if math.isfinite(value) else "never"


def _caption(text: str) -> str:
    return element("figcaption", escape(text))


def _card(title: str, text: str, content: str, wide: bool = False) -> str:
    intro = element("p", escape(text)) if text else ""
    return element(
        "section", element("h2", escape(title)) + intro + content, class_="card wide" if wide else "card"
    )


def _pre(text: str) -> str:
    if not text:
        return element("p", "Nothing to show: the answer is a library routine.")
    lines = text.rstrip().splitlines()
    if len(lines) > _PREVIEW_LINES:
        lines = [*lines[:_PREVIEW_LINES], f"… {len(lines) - _PREVIEW_LINES} more lines"]
    return element("pre", escape("\n".join(lines)))


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: frozenset[int] | set[int] = frozenset(),
    code: frozenset[int] | set[int] = frozenset(),
    strong: str | None = None,
) -> str:
    def cell(tag: str, n: int, text: str) -> str:
        inner = escape(text)
        if n in code and text:
            inner = element("code", inner)
        return element(tag, inner, class_="num" if n in numeric else None)

    top = ""
    if any(head):
        top = element("thead", element("tr", "".join(cell("th", n, text) for n, text in enumerate(head))))
    body = "".join(
        element(
            "tr",
            "".join(cell("td", n, text) for n, text in enumerate(row)),
            class_="best" if row and row[0] == strong else None,
        )
        for row in rows
    )
    return element("div", element("table", top + element("tbody", body)), class_="scroll")
