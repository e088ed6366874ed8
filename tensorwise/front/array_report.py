"""The page about an array that tunes itself while it is used: where its entries are, and what its products' ways took."""

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorwise.front import page
from tensorwise.front.draw_axes import Mark
from tensorwise.front.draw_pattern import Spy, spy_of
from tensorwise.front.draw_speed import time_chart
from tensorwise.front.page import Report
from tensorwise.front.report import lengths_card, pattern_card
from tensorwise.front.svg import size_text
from tensorwise.sparse.budget import LATER_SHARE, SPENT_SHARE
from tensorwise.sparse.limits import autotune
from tensorwise.units import time_text

if TYPE_CHECKING:
    from tensorwise.sparse.products import ProductTable
    from tensorwise.sparse.summary import ProductTuning, Tuning

MAX_DRAWN: Final = 5_000_000
"""Entries from which the pattern is drawn, evenly drawn from more: memory of a few hundred megabytes."""
WAY_WORDS: Final = (("best", "in use"), ("gen", "tried, and slower"))


def report_of(tuning: "Tuning") -> Report:
    """Return the report on an array's products; its page is made when it is asked for."""
    return Report(str(tuning), lambda: render(tuning))


def render(tuning: "Tuning") -> str:
    """Return the page. It reads the array's indices, and runs no product."""
    table = tuning.table
    cards, about = [], "products of one array"
    number = 0
    for product in tuning.products:
        cards.append(_product_card(product, number))
        number += len(product.tried_s)
    if table is not None:
        rows, columns = table.extents if tuning.forward_gathers else table.extents[::-1]
        stored = "CSR" if tuning.forward_gathers else "CSC"
        about = f"{rows:,} × {columns:,} · {table.data.size:,} stored entries · {table.data.dtype} · "
        about += f"BSR, blocks of {table.block}" if table.block else stored
        lines = "row" if tuning.forward_gathers else "column"
        lengths = np.diff(table.indptr) * (table.block or 1)
        cards += [
            pattern_card(_spy(table, tuning.forward_gathers), table.data.size),
            lengths_card(lengths, f"{lines} of blocks" if table.block > 1 else lines),
        ]
    else:
        cards.append(
            page.card("Where the entries are", page.paragraph("The array's entries are not on this CPU."))
        )
    cards.append(_spent_card(tuning))
    return page.page(
        "Tensorwise: a sparse array in use", about, _summary(tuning), page.cards(*cards), linked=bool(number)
    )


def _summary(tuning: "Tuning") -> list[str]:
    if not tuning.products:
        return [
            f"No kernel of this package has computed a product yet. SciPy took {time_text(tuning.scipy_s)}."
        ]
    found = []
    for one in tuning.products:
        text = f"{one.product} runs {one.way}; its calls took {time_text(one.spent_s)}."
        now = one.tried_s.get(one.way)
        others = {name: s for name, s in one.tried_s.items() if s is not None and name != one.way}
        if now and others:
            name, seconds = min(others.items(), key=lambda item: item[1])
            text += f" In the last trial a call took {time_text(now)}; the next best, {name}, took "
            text += f"{time_text(seconds)}, {seconds / now:.2f} times as long."
        found.append(text)
    return found


def _product_card(product: "ProductTuning", first: int) -> str:
    """The ways of one product, with what a call took in the last trial; ``first`` is the number of the first way."""
    marks, rows = [], []
    ways = list(product.tried_s.items())
    for number, (name, seconds) in enumerate(ways, first):
        kind = "best" if name == product.way else "gen"
        rows.append([name, "" if seconds is None else time_text(seconds), "in use" if kind == "best" else ""])
        if seconds is not None and 0 < seconds < math.inf:
            marks.append(Mark(number, name, kind, seconds))
    strong = next((n for n, (name, _) in enumerate(ways) if name == product.way), None)
    listed = page.table(
        ["way", "a call", ""], rows, numeric={1}, strong=strong, candidates=range(first, first + len(ways))
    )
    if not marks:
        text = "No trial yet: nothing was compared. Trials begin when calls have taken a few milliseconds."
        return page.card(product.product, listed, text)
    caption = "Median of a call in the last trial, on calls of your program; a shorter bar is faster."
    key = page.key([pair for pair in WAY_WORDS if any(mark.kind == pair[0] for mark in marks)])
    return page.card(product.product, page.figure(time_chart(marks), caption, key) + listed)


def _spent_card(tuning: "Tuning") -> str:
    rows = [[f"Calls of {one.product}", time_text(one.spent_s)] for one in tuning.products]
    rows.append(["Calls that SciPy computed before", time_text(tuning.scipy_s)])
    rows.append(["Memory held besides the array's own", size_text(tuning.nbytes_held)])
    frozen = None if tuning.table is None else tuning.table.frozen
    if frozen is not None:
        rows.append(["Searches in the background (CPU time)", time_text(frozen.search_s)])
    rows.append(["TENSORWISE_AUTOTUNE", autotune()])
    text = "Trials are calls of your program: their results count, and only the slower ways cost time. "
    if frozen is None:
        text += "There is no search in the background: it needs an array that nobody writes to, see freeze()."
    else:
        text += f"A search in the background may take {SPENT_SHARE:.0%} of the time of the calls so far, a long one "
        text += f"{LATER_SHARE:.0%}, at low priority."
    return page.card("What was spent", page.table(["", ""], rows, numeric={1}), text)


def _spy(table: "ProductTable", by_rows: bool) -> Spy:
    """The pattern of the array; of many entries, or blocks of them, an even share."""
    step = max(1, len(table.indices) // MAX_DRAWN)
    block = table.block or 1
    places = np.arange(0, min(len(table.indices), int(table.indptr[-1])), step)
    lines = np.searchsorted(table.indptr, places, side="right") - 1
    across = np.asarray(table.indices[places], np.int64)
    height, width = table.lines, table.minor
    inside = (
        (lines >= 0) & (lines < height) & (across >= 0) & (across < width)
    )  # users may write to the arrays
    lines, across = lines[inside], across[inside]
    if block > 1 and len(lines) * block * block <= MAX_DRAWN:
        rows = (lines[:, None, None] * block + np.arange(block)[:, None] + np.zeros(block, np.int64)).ravel()
        columns = (across[:, None, None] * block + np.zeros((block, 1), np.int64) + np.arange(block)).ravel()
        return spy_of(rows, columns, table.extents, (block, block))
    lines, across = lines * block, across * block
    rows, columns = (lines, across) if by_rows else (across, lines)
    return spy_of(rows, columns, table.extents if by_rows else table.extents[::-1])
