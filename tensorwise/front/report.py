"""The page about a tuning: what it found, the pictures behind it, and its price.

`render` turns `ReportData` into text and touches nothing else: no file, no clock, no network.
"""

import math
from collections.abc import Mapping

import numpy as np

from tensorwise.device.rounds import Ratio
from tensorwise.front import page
from tensorwise.front.draw_axes import Mark
from tensorwise.front.draw_pattern import Spy, row_histogram, spy_chart, window_chart
from tensorwise.front.draw_search import prediction_chart, progress_chart
from tensorwise.front.draw_speed import roofline_chart, time_chart
from tensorwise.front.report_data import Attempt, Candidate, ReportData
from tensorwise.front.svg import element, escape, number_text, size_text
from tensorwise.model.metrics import spearman
from tensorwise.units import time_text

MAX_LISTED = 600
"""Candidates of a page, the fastest first: so it stays below a megabyte."""
NUM_BARS = 6
"""Generated kernels among the bars, besides all libraries."""
ENOUGH_ROUNDS = 6
"""Rounds from which the order statistics of `Ratio` are an interval of 95 %."""
PREDICTION_CAPTION = (
    "Each point is a candidate. Further right the model predicted a longer time; further up it took longer. "
    "For a good model points rise from lower left to upper right. One unit to the right is twice the predicted "
    "time, unless the model only ranks. Most candidates are here because the model preferred them."
)
ROOFLINE_CAPTION = (
    "A point below the line could be faster; at the line the memory or the arithmetic is the limit. Bytes are the least "
    "that a call must move (operands read once, output written once), so all candidates have the same."
)
MARK_WORDS = (("best", "the answer"), ("gen", "generated kernel"), ("lib", "library"))


def render(result: ReportData) -> str:
    """Return the report as one HTML page."""
    problem = [_shape(result), f"{result.nnz:,} stored entries", result.dtype, result.op]
    if result.n is not None:
        problem.append(f"n = {result.n}")
    problem.append(f"{result.threads} thread" + ("" if result.threads == 1 else "s"))
    listed = _listed(result)
    return page.page(
        result.title,
        " · ".join([result.matrix, *problem]),
        [sentence for sentence in (verdict(result), price(result)) if sentence],
        page.tiles(_figures(result)),
        page.notes(result.notes),
        page.cards(
            _times(result, listed),
            _progress(result, listed),
            _prediction(result, listed),
            _roofline(result, listed),
            pattern_card(result.spy, result.nnz, len(result.shape), result.stored_positions),
            lengths_card(result.row_lengths),
            _storage(result),
            _loops(result),
            _costs(result),
            _environment(result),
            _all_candidates(result, listed),
        ),
        linked=True,
    )


def verdict(result: ReportData) -> str:
    """Return the finding in one or two sentences."""
    best, library = result.candidate(result.best), result.best_library
    if best is None or not best.valid:
        return "No kernel could be measured."
    if best.baseline:
        text = f"Call {best.name}: it takes {time_text(best.seconds)} a call, and no generated kernel was faster."
        generated = result.candidate(result.best_generated)
        if generated and generated.valid:
            slower = generated.seconds / best.seconds
            text += f" The best generated kernel takes {slower:.2f} times as long ({generated.format})."
        return text
    text = f"The fastest kernel is generated code, which stores the operand as {best.format or 'given'}: "
    text += f"{time_text(best.seconds)} a call"
    if library is None:
        return f"{text}. There was no library to compare with."
    beside = f"{library.name}, {time_text(library.seconds)}"
    times = f"{_speedup(best, library):.2f} times as fast as the fastest library"
    text += f". It is {times} ({beside}{_interval(best.ratio)})."
    if best.ratio and best.ratio.rounds > 1 and best.ratio.high >= 1:
        text += " The range includes 1, so that the rounds do not show which of the two is faster."
    return text


def price(result: ReportData) -> str:
    """Return in one sentence after how many calls the search is paid for; empty where that is not known."""
    if "break_even_calls" not in result.costs or not result.measured:
        return ""
    spent = time_text(result.costs.get("tuning_s", math.nan))
    calls = result.costs["break_even_calls"]
    if not math.isfinite(calls):
        return f"The tuning took {spent}. Calls save no time against {result.baseline}, so that it is not paid for."
    text = f"The tuning took {spent}. It is paid for after {_cost(result.costs, 'break_even_calls')} calls, compared with "
    text += f"{result.baseline}"
    if result.break_even is None:
        return f"{text}."
    low, high = (f"{math.ceil(one):,}" if math.isfinite(one) else "never" for one in result.break_even)
    return f"{text} (the measured times allow {low} to {high})."


def _speedup(best: Candidate, library: Candidate) -> float:
    return 1 / best.ratio.median if best.ratio else library.seconds / best.seconds


def _interval(ratio: Ratio | None) -> str:
    """How sure a speed-up is, as the end of a parenthesis."""
    if ratio is None or ratio.rounds < 2:
        return ""
    span = f"{1 / ratio.high:.2f} to {1 / ratio.low:.2f}"
    if ratio.rounds < ENOUGH_ROUNDS:
        return f"; {span} in {ratio.rounds} rounds"
    return f"; 95 % interval {span}, {ratio.rounds} rounds"


def _figures(result: ReportData) -> list[tuple[str, str]]:
    best, library = result.candidate(result.best), result.best_library
    found: list[tuple[str, str]] = []
    if best and best.valid:
        found.append((time_text(best.seconds), "a call"))
        if library:
            found.append((f"{_speedup(best, library):.2f}×", f"as fast as {library.name}"))
        found.append((number_text(result.flops / best.seconds / 1e9), "Gflop/s of useful work"))
    if "break_even_calls" in result.costs and found:
        found.append((_cost(result.costs, "break_even_calls"), "calls to break even"))
    return found


def pattern_card(spy: Spy, nnz: int, order: int = 2, stored_positions: int | None = None) -> str:
    """Return the card with the pattern of the operand and its densest window.

    Args:
        spy: the pattern's sketch.
        nnz: stored entries of the operand.
        order: number of its modes.
        stored_positions: value positions of the chosen format, padding included; None: not known.
    """
    if not nnz:
        return page.card("The pattern", page.paragraph("The matrix has no stored entries."), wide=True)
    rows, columns = spy.block
    bins = " × ".join(map(str, spy.counts.shape))
    what = "The whole matrix" if order == 2 else "The first two modes, the others summed,"
    whole = f"{what} as {bins} cells: the darker a cell, the more entries lie in it (logarithmic shade). "
    whole += "The frame is the window of the other picture."
    top, left, tall, wide = spy.window
    near = (
        f"The densest window, {tall} × {wide} at row {top:,}, column {left:,}. Each dark square is an entry"
    )
    near += f"; each shaded frame is a stored block of {rows} × {columns}." if rows * columns > 1 else "."
    if stored_positions:
        near += f" The chosen format stores {stored_positions / nnz:.2f} values for each entry."
    pair = page.figure(spy_chart(spy), whole) + page.figure(window_chart(spy), near)
    return page.card("Where the entries are", element("div", pair, class_="pair"), wide=True)


def lengths_card(lengths: np.ndarray, line: str = "row") -> str:
    """Return the card with the histogram of the numbers of entries of rows, int64 (rows,), or of other lines."""
    lengths = np.asarray(lengths, np.int64)
    title = f"Entries of each {line}"
    if not lengths.size:
        return page.card(title, page.paragraph(f"There are no {line}s."))
    text = f"{lengths.size:,} {line}s: mean {lengths.mean():.1f}, median {np.median(lengths):g}"
    text += f", longest {int(lengths.max()):,}"
    empty = int((lengths == 0).sum())
    text += f"; {empty:,} are empty." if empty else "."
    caption = f"A bar is the number of {line}s with that many entries. Very different lengths make it hard to divide work "
    caption += "among threads."
    return page.card(title, page.figure(row_histogram(lengths), caption), text)


def _times(result: ReportData, listed: Mapping[int, Candidate]) -> str:
    title = "Time against the libraries"
    rounds = any(c.in_rounds for c in listed.values())  # none: interrupted before any
    marks, generated = [], 0
    for mark, c in zip(_marks(result, listed), listed.values(), strict=True):
        own = not c.baseline
        if c.valid and (
            c.name == result.best or not own or generated < NUM_BARS * (c.in_rounds or not rounds)
        ):
            generated += own
            marks.append(mark)
    if not marks:
        return page.card(title, page.paragraph("No candidate has a valid time."))
    caption = (
        "Median time of a call; a shorter bar is faster. Whiskers span the middle half of the measured times."
    )
    text = "The kernels were timed in turn, in rounds after the search." if rounds else ""
    return page.card(title, page.figure(time_chart(marks), caption, _key(marks)), text)


def _progress(result: ReportData, listed: Mapping[int, Candidate]) -> str:
    title = "Candidates over time"
    tried = [(c.attempt.number, mark) for mark, c in _attempts(result, listed) if c.attempt]
    marks = [mark for _, mark in sorted(tried, key=lambda one: one[0])]
    if not marks:
        return page.card(title, page.paragraph("There was no search: no candidate was measured."))
    failed = sum(not math.isfinite(mark.seconds) for mark in marks)
    text = f"{len(marks)} candidates were tried" + (f"; {failed} were refused or failed." if failed else ".")
    caption = (
        "Each point is a candidate: when it was measured, and what a call took. The line is the best so far. "
    )
    if failed:
        caption += "Crosses above the plot failed or were refused. "
    if any(mark.status == "censored" for mark in marks):
        caption += "Triangles were given up: they take longer than shown. "
    caption += "The answer is decided later, in rounds, so that it need not be the lowest point."
    library = result.best_library
    line = (library.name, library.seconds) if library else None
    chart = progress_chart(marks, result.costs.get("tuning_s"), line)
    return page.card(title, page.figure(chart, caption, _key(marks)), text)


def _prediction(result: ReportData, listed: Mapping[int, Candidate]) -> str:
    title = "What the cost model predicted"
    attempts = [c.attempt for c in result.candidates if c.attempt]
    if not any(one.score is not None for one in attempts):
        why = (
            "No cost model guided this search." if attempts else "There was no search, so no model was asked."
        )
        return page.card(title, page.paragraph(why))
    marks = [m for m, _ in _attempts(result, listed) if m.score is not None and m.status == "ok"]
    if len(marks) < 3:
        text = f"Only {len(marks)} candidates have a prediction and a measured time: too few to compare."
        return page.card(title, page.paragraph(text))
    rank = spearman(np.array([m.seconds for m in marks]), np.array([m.score for m in marks], float))
    if math.isnan(rank):
        text = "All predictions, or all measured times, are equal: there is no order to compare."
        return page.card(title, page.paragraph(text))
    text = f"Rank correlation (Spearman) {rank:.2f} over {len(marks)} candidates{_rank_interval(rank, len(marks))}. "
    text += "1 is the measured order, 0 is no relation."
    return page.card(title, page.figure(prediction_chart(marks), PREDICTION_CAPTION, _key(marks)), text)


def _rank_interval(rank: float, count: int) -> str:
    """The 95 % interval of a rank correlation by Fisher's transformation; empty for few values."""
    if count < 8 or not abs(rank) < 1:
        return ""
    half = 1.96 * math.sqrt((1 + rank**2 / 2) / (count - 3))
    low, high = (math.tanh(math.atanh(rank) + side * half) for side in (-1, 1))
    return f" (95 % interval {low:.2f} to {high:.2f})"


def _roofline(result: ReportData, listed: Mapping[int, Candidate]) -> str:
    marks = [m for m in _marks(result, listed) if m.flop_per_byte and m.status == "ok"]
    if not marks:
        return page.card("Roofline", page.paragraph("Operations and bytes of the candidates are not known."))
    level = "memory" if result.bandwidth_of == "DRAM" else result.bandwidth_of
    known = {"peak arithmetic": result.peak_flop_per_s, "bandwidth": result.bandwidth_bytes_per_s}
    missing = [name for name, rate in known.items() if not rate]
    if missing:
        text = f"The {' and the '.join(missing)} of this machine {'are' if len(missing) > 1 else 'is'} not known."
    else:
        text = "The line is what this machine reached when it was measured: bandwidth on the slope, arithmetic on the top."
    chart = roofline_chart(marks, result.peak_flop_per_s, result.bandwidth_bytes_per_s, level)
    return page.card("Roofline", page.figure(chart, ROOFLINE_CAPTION, _key(marks)), text)


def _storage(result: ReportData) -> str:
    chosen = _answer(result)
    text = element("p", element("code", escape(chosen.format))) if chosen and chosen.format else ""
    return page.card("How it is stored", text + page.preformatted(result.fibertree))


def _loops(result: ReportData) -> str:
    chosen = _answer(result)
    text = element("p", element("code", escape(chosen.schedule))) if chosen and chosen.schedule else ""
    source = ""
    if result.source:
        source = element("details", element("summary", "C source") + page.preformatted(result.source))
    return page.card("How it runs", text + page.preformatted(result.loops) + source)


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
    body = page.table(["", ""], rows, numeric={1}) if rows else page.paragraph("Not recorded.")
    return page.card("What it cost", body)


def _environment(result: ReportData) -> str:
    rows = [[key, value] for key, value in result.environment.items()]
    body = page.table(["", ""], rows) if rows else page.paragraph("Not recorded.")
    return page.card("Where it was measured", body)


def _all_candidates(result: ReportData, listed: Mapping[int, Candidate]) -> str:
    library = result.best_library
    rows, strong = [], None
    for place, c in enumerate(listed.values()):
        ratio = c.ratio.median if c.ratio else None
        if ratio is None and library and c.valid and c.in_rounds:
            ratio = c.seconds / library.seconds
        spread = time_text(c.spread_s) if c.valid else ""
        speed = number_text(result.flops / c.seconds / 1e9) if c.valid else ""
        took = ("> " if c.status == "censored" else "") + time_text(c.seconds)
        times = [took, spread, f"{ratio:.2f}" if ratio else "", speed]
        status = c.status + ("" if c.in_rounds else ", in the search") + ", see its note" * c.has_note
        rows.append([c.name, *times, status, c.format, c.schedule])
        if c.name == result.best:
            strong = place
    over = f"over {library.name}" if library else "ratio"
    head = ["kernel", "time", "spread", over, "Gflop/s", "status", "format", "schedule"]
    text = "Time is the median of a call, spread its interquartile range."
    if len(listed) < len(result.candidates):
        text = f"The first {len(listed)} of {len(result.candidates)}, the fastest first. {text}"
    body = page.table(head, rows, numeric={1, 2, 3, 4}, code={6, 7}, strong=strong, candidates=[*listed])
    return page.card("All candidates", element("div", body, class_="tall"), text, wide=True)


def _listed(result: ReportData) -> dict[int, Candidate]:
    """The candidates of the page by number: the fastest first, then those without a time."""
    numbers = {id(c): n for n, c in enumerate(result.candidates)}
    ordered = result.measured + [c for c in result.candidates if not c.valid]
    found = {numbers[id(c)]: c for c in ordered[:MAX_LISTED]}
    answer = result.candidate(result.best)
    return found if answer is None else {**found, numbers[id(answer)]: answer}


def _answer(result: ReportData) -> Candidate | None:
    """The candidate whose format and loops are shown: the best generated one, or the answer itself."""
    return result.candidate(result.best_generated) or result.candidate(result.best)


def _marks(result: ReportData, listed: Mapping[int, Candidate]) -> list[Mark]:
    return [
        Mark(
            n, c.name, _kind(result, c), c.seconds, c.spread_s if math.isfinite(c.spread_s) else 0.0,
            flop_per_byte=result.flops / c.moved_bytes if c.moved_bytes and result.flops else None,
            flop_per_s=result.flops / c.seconds if c.valid else 0.0,
            status=c.status if c.valid or c.status != "ok" else "not measured",
        )
        for n, c in listed.items()
    ]  # fmt: skip


def _attempts(result: ReportData, listed: Mapping[int, Candidate]) -> list[tuple[Mark, Candidate]]:
    """The candidates of the search with the times that were measured in it."""
    return [(_attempted(result, n, c, c.attempt), c) for n, c in listed.items() if c.attempt]


def _attempted(result: ReportData, number: int, c: Candidate, attempt: Attempt) -> Mark:
    kind = _kind(result, c)
    status = attempt.status if attempt.seconds > 0 else "not measured"
    seconds = attempt.seconds if status in ("ok", "censored") else math.inf
    return Mark(number, c.name, kind, seconds, status=status, at_s=attempt.at_s, score=attempt.score)


def _kind(result: ReportData, candidate: Candidate) -> str:
    return "best" if candidate.name == result.best else "lib" if candidate.baseline else "gen"


def _key(marks: list[Mark]) -> str:
    return page.key([(kind, words) for kind, words in MARK_WORDS if any(mark.kind == kind for mark in marks)])


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
