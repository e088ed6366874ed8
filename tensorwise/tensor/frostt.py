"""FROSTT text tensors (.tns): one entry a line, 1-based indices and a value; ``#`` starts a comment.

The format: https://frostt.io/tensors/file-formats.html. The order follows from the first entry. A comment
before it of the form ``# dims: 30 40 50`` gives the sizes; else each is the largest index of its mode.
"""

import re

import numpy as np

from tensorwise.tensor.canonical import MAX_ORDER, checked_shape, checked_values, coordinate_dtype
from tensorwise.tensor.entries import Entries, sorted_entries
from tensorwise.tensor.text import Layout, TextFile, read_table

_DIMS = re.compile(rb"\bdim(?:s|ensions)?\s*[:=]\s*(\d{1,18}(?:(?:\s+|\s*[x,]\s*)\d{1,18})*)", re.IGNORECASE)


def read_frostt(path: str, dtype: np.dtype | None) -> Entries:
    """Entries of a FROSTT file."""
    with TextFile(path) as text:
        sizes: tuple[int, ...] | None = None
        order = 0
        while (line := text.peek()) is not None:
            data, _, comment = line.partition(b"#")
            if tokens := data.split():
                order = len(tokens) - 1
                break
            if match := _DIMS.search(comment):
                sizes = tuple(int(number) for number in re.findall(rb"\d+", match[1]))
            text.skip()
        if not order:
            if line is not None or sizes is None:
                text.refuse("no entries and no comment '# dims: ...'; expected indices and a value a line")
            order = len(sizes)
        if not 2 <= order <= MAX_ORDER:
            text.refuse(f"{order} indices and a value; expected 2 to {MAX_ORDER} indices", text.line)
        if sizes is not None and len(sizes) != order:
            text.refuse(f"{order} indices, but a comment gives {len(sizes)} dims", text.line)
        indices, values = read_table(text, Layout(order, True, b"#", sizes))
    assert values is not None
    if sizes is None:
        sizes = tuple(int(column.max()) + 1 for column in indices)
    shape = checked_shape(sizes, path)
    index = coordinate_dtype(shape)
    coordinates = [column.astype(index, copy=False) for column in indices]
    return sorted_entries(shape, coordinates, checked_values(values, dtype, path, copy=False))
