"""Pictures of a matrix for the report: its pattern, the blocks that store it, its row lengths.

Colours are CSS classes, defined in ``report.css``.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np

from tensorwise.front.draw_axes import CHART_WIDTH, LEFT, chart
from tensorwise.front.svg import Scale, element, escape, gridline, label, number_text

_BINS = 200  # cells along a side of the spy plot: about 2 pixels each
_SIDE = 430.0
_SHADES = 5
_WINDOW = 48
_LARGEST_DRAWN_BLOCK = 32


@final
@dataclass(frozen=True, eq=False)
class Spy:
    """Where the entries of a matrix lie: counts on a coarse grid, and each entry of one small window.

    For a tensor of higher order the first two modes are shown, the others summed.
    """

    shape: tuple[int, int]
    counts: np.ndarray
    """(bins, bins) int64: entries in each cell of an even grid over the matrix; both sides at most 200."""
    window: tuple[int, int, int, int]
    """First row, first column, rows and columns of the window, the densest one aligned to blocks."""
    window_rows: np.ndarray
    """(entries,) int64: row of each entry in the window."""
    window_cols: np.ndarray
    """(entries,) int64: column of each entry in the window."""
    block: tuple[int, int]
    """Rows and columns of the stored format's blocks; (1, 1): none."""


def spy_of(
    rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int], block: tuple[int, int] = (1, 1)
) -> Spy:
    """Sketch the pattern of entries at ``rows``, ``cols``: integer arrays of one length, inside ``shape``."""
    height, width = shape
    rows, cols = np.asarray(rows, np.int64), np.asarray(cols, np.int64)
    bins_r, bins_c = (max(1, min(_BINS, extent)) for extent in shape)
    cell = rows * bins_r // max(height, 1) * bins_c + cols * bins_c // max(width, 1)
    counts = np.bincount(cell, minlength=bins_r * bins_c).reshape(bins_r, bins_c)

    tile_r, tile_c = (b if 1 <= b <= _LARGEST_DRAWN_BLOCK else 1 for b in block)
    tall = min(_WINDOW - _WINDOW % tile_r, -(-height // tile_r) * tile_r)
    wide = min(_WINDOW - _WINDOW % tile_c, -(-width // tile_c) * tile_c)
    top = left = 0
    if len(rows) and tall and wide:
        step = max(1, len(rows) // 200_000)  # a sample finds the densest window well enough
        key = rows[::step] // tall * (width // wide + 1) + cols[::step] // wide
        keys, seen = np.unique(key, return_counts=True)
        best = int(keys[np.argmax(seen)])
        top, left = best // (width // wide + 1) * tall, best % (width // wide + 1) * wide
    inside = (rows >= top) & (rows < top + tall) & (cols >= left) & (cols < left + wide)
    return Spy(shape, counts, (top, left, tall, wide), rows[inside], cols[inside], block)


def spy_chart(spy: Spy) -> str:
    """Draw the whole pattern; darker cells hold more entries; the window is framed."""
    height, width = max(spy.shape[0], 1), max(spy.shape[1], 1)
    w, h = _fit(height, width, _SIDE)
    bins_r, bins_c = spy.counts.shape
    top = float(spy.counts.max(initial=0))
    levels = np.zeros(spy.counts.shape, int)
    if top:
        logs = np.log(np.maximum(spy.counts, 1))
        low = float(logs[spy.counts > 0].min())
        share = (logs - low) / max(math.log(top) - low, 1e-9) if math.log(top) > low else np.ones_like(logs)
        levels = np.where(spy.counts > 0, 1 + np.round(share * (_SHADES - 1)), 0).astype(int)
    parts = [element("rect", class_="paper", x=0, y=0, width=w, height=h)]
    cells = ""  # in units of cells, so that paths are short
    for level in range(1, _SHADES + 1):
        path = "".join(
            f"M{lo} {row}h{hi - lo}" for row in range(bins_r) for lo, hi in _runs(levels[row] == level)
        )
        if path:
            cells += element("path", d=path, class_="entry", stroke_width=1.03, opacity=level / _SHADES)
    scale = f"scale({w / bins_c:.5g} {h / bins_r:.5g}) translate(0 .5)"
    parts.append(element("g", cells, transform=scale))
    row, col, tall, wide = spy.window
    if spy.counts.any() and (tall < height or wide < width):
        box = (max(wide / width * w, 5.0), max(tall / height * h, 5.0))
        parts.append(
            element(
                "rect", class_="frame", x=col / width * w, y=row / height * h, width=box[0], height=box[1]
            )
        )
    about = f"Pattern of the {height} by {width} matrix, {int(spy.counts.sum())} entries"
    return _framed(w, h, "".join(parts), (0, spy.shape[0]), (0, spy.shape[1]), about)


def window_chart(spy: Spy) -> str:
    """Draw each entry of the window, on the blocks that store it: a block's empty part is stored padding."""
    row, col, tall, wide = spy.window
    tile_r, tile_c = (b if 1 <= b <= _LARGEST_DRAWN_BLOCK else 1 for b in spy.block)
    w, h = _fit(max(tall, 1), max(wide, 1), _SIDE)
    x, y = w / max(wide, 1), h / max(tall, 1)
    parts = [element("rect", class_="paper", x=0, y=0, width=w, height=h)]
    i, k = spy.window_rows - row, spy.window_cols - col
    if tile_r * tile_c > 1:
        for r, c in sorted({(int(r), int(c)) for r, c in zip(i // tile_r, k // tile_c, strict=True)}):
            parts.append(
                element(
                    "rect",
                    class_="block",
                    x=c * tile_c * x,
                    y=r * tile_r * y,
                    width=tile_c * x,
                    height=tile_r * y,
                )
            )
    marks = "".join(
        f"M{(c + 0.14) * x:.1f} {(r + 0.5) * y:.1f}h{0.72 * x:.1f}"
        for r, c in zip(i.tolist(), k.tolist(), strict=True)
    )
    if marks:
        parts.append(element("path", d=marks, class_="entry", stroke_width=0.72 * y))
    about = f"The densest {tall} by {wide} window, from row {row} and column {col}, with its stored blocks"
    return _framed(w, h, "".join(parts), (row, row + tall), (col, col + wide), about)


def _framed(
    w: float, h: float, content: str, rows: tuple[int, int], columns: tuple[int, int], about: str
) -> str:
    """Return a picture of a part of the matrix with the numbers of its first and last row and column."""
    margin = 22.0
    texts = [label(margin, 13, f"column {columns[0]:,}", "title"), _upward(f"row {rows[0]:,}", margin, "end")]
    if w > 150:
        texts.append(label(margin + w, 13, f"{max(columns[1] - 1, 0):,}", "title", "end"))
    if h > 130:
        texts.append(_upward(f"{max(rows[1] - 1, 0):,}", margin + h, "start"))
    moved = element("g", content, transform=f"translate({margin:g} {margin:g})")
    return chart(max(w, 120.0) + margin + 2, max(h, 90.0) + margin + 2, moved + "".join(texts), about)


def _upward(text: str, y: float, anchor: str) -> str:
    """Return text that reads upward, left of a picture."""
    turned = f"translate(14 {y:g}) rotate(-90)"
    return element("text", escape(text), class_="title", text_anchor=anchor, transform=turned)


def row_histogram(lengths: np.ndarray) -> str:
    """Draw how many rows have how many entries: in bins of one width, or doubling when they vary."""
    w, h, left, bottom = CHART_WIDTH, 290.0, LEFT, 242.0
    edges = _edges(lengths)
    counts = np.histogram(lengths, bins=edges)[0].tolist()
    up = Scale(0, max(counts, default=1) or 1.0, bottom, 28.0)
    parts = [gridline(up, t, left, w, number_text(t)) for t in up.ticks(4)]
    pitch = (w - left - 4) / len(counts)
    every = math.ceil(max(len(_short(edge)) for edge in edges) * 7.5 / pitch)
    for n, (count, (lo, hi)) in enumerate(zip(counts, pairwise(edges), strict=True)):
        x = left + n * pitch
        if count:
            rows = f"{count:,} row" + ("" if count == 1 else "s")
            many = f"{lo:,}" if hi - lo == 1 else f"{lo:,} to {hi - 1:,}"
            tip = element("title", escape(f"{rows} with {many} entries"))
            tall, thick = max(bottom - up(count), 1.0), min(pitch * 0.84, 42.0)
            left_edge = x + (pitch - thick) / 2
            parts.append(
                element("rect", tip, class_="bar", x=left_edge, y=bottom - tall, width=thick, height=tall)
            )
        if n % every == 0:
            parts.append(label(x + pitch / 2, bottom + 17, _short(lo), anchor="middle"))
    single = all(b - a == 1 for a, b in pairwise(edges))
    parts.append(element("path", class_="axis", d=f"M{left} {bottom}H{w}"))
    parts.append(label(2, 13, "number of rows", "title"))
    title = "stored entries in the row" + ("" if single else " (from this number on)")
    parts.append(label(w, bottom + 37, title, "title", "end"))
    longest = int(lengths.max(initial=0))
    return chart(w, h, "".join(parts), f"Histogram of row lengths, the longest has {longest} entries")


def _edges(lengths: np.ndarray) -> list[int]:
    """Return integer bin edges that hold every length.

    >>> _edges(np.array([3, 5, 4]))
    [3, 4, 5, 6]
    >>> _edges(np.array([0, 1, 3, 70]))
    [0, 1, 2, 4, 8, 16, 32, 64, 128]
    """
    lo, hi = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
    if hi - lo < 24:
        return list(range(lo, hi + 2))
    if hi > 8 * max(float(np.median(lengths)), 1.0) or lo == 0:
        edges = [0, 1, *(2**p for p in range(1, hi.bit_length() + 1))]
        return edges[max(sum(edge <= lo for edge in edges) - 1, 0) :]
    width = next(m * 10**p for p in range(12) for m in (1, 2, 5) if (hi - lo) / (m * 10**p) <= 24)
    return list(range(lo // width * width, hi + width + 1, width))


def _short(edge: int) -> str:
    return f"{edge // 1024}k" if edge >= 1024 and edge % 1024 == 0 else f"{edge}"


def _fit(height: int, width: int, side: float) -> tuple[float, float]:
    """Return width and height in pixels, the longer one ``side``; extreme shapes are widened to be seen."""
    shape = min(max(height / width, 0.06), 1 / 0.06)
    return (side, side * shape) if shape <= 1 else (side / shape, side)


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """Return the half-open ranges where ``mask`` holds.

    >>> _runs(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
