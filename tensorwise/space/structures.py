"""Structures of the CPU's space that are known to be good, as partial configs."""

from typing import TypeAlias

from tensorwise.program.workload import Workload
from tensorwise.space.config import Value
from tensorwise.space.hybrids import GROUP
from tensorwise.space.param import Earlier
from tensorwise.space.readings import operand, strings
from tensorwise.space.running import VECTOR_BYTES
from tensorwise.space.space import Space
from tensorwise.toolchain.processor import vector_bytes

Partial: TypeAlias = dict[str, Value]
"""Some choices of a config; the space completes them."""

MEETINGS = 0.5
"""Entries that a row has in a strip of columns on average, below which walking the strips costs more than it saves."""


def rows_and_columns(workload: Workload) -> tuple[str, str]:
    """Return the first and the last index of the operand."""
    indices = operand(workload).indices
    return indices[0], indices[-1]


def blocks(
    space: Space, workload: Workload, height: int, width: int, given: Partial | None = None
) -> list[Partial]:
    """Dense blocks below compressed block columns: unrolled, and column-major with a column in a vector."""
    rows, columns = rows_and_columns(workload)
    sizes: Partial = {f"split_{rows}": height, f"split_{columns}": width}
    block = space.complete({**(given or {}), **sizes}, workload)
    if any(block[name] != size for name, size in sizes.items()):
        return []  # too much fill-in for this operand: a rule put something else in its place
    kinds = [name for name in block if name.startswith("kind_")]
    shape: Partial = {name: block[name] for name in ("order", *sizes, *kinds)}
    if str(block["tile"])[:-1] not in (rows, columns):
        return [shape]
    found: list[Partial] = [{**shape, "tile": "none"}]
    row, column_bytes = f"{rows}0", height * workload.dtype.itemsize
    others = [loop for loop in strings(block["order"]) if loop != row]
    if height > 1 and column_bytes in VECTOR_BYTES:
        outside = others.index(f"{rows}1") + 1
        column_major: Partial = {
            "order": (*others[:outside], row, *others[outside:]),
            "levels_follow_loops": False,
            "levels": (*others, row),
            "tile": row,
            "vectors": 1,
            "vector_bytes": column_bytes,
        }
        found.append({**shape, **column_major})
    return found


def column_strips(start: Earlier, workload: Workload, width: int) -> list[Partial]:
    """Compressed rows of strips of columns, so that what they gather stays in a cache; none in a narrow operand."""
    rows, columns = rows_and_columns(workload)
    strips = -(-workload.sizes[columns] // width)
    if strips < 2 or workload.entries.nnz < MEETINGS * strips * workload.sizes[rows]:
        return []
    loops = [loop for loop in strings(start["order"]) if loop != f"{columns}1"]
    strip: Partial = {
        f"split_{columns}": width,
        "order": (f"{columns}1", *loops, f"{columns}0"),
        f"kind_{columns}1": "U",
        f"kind_{rows}1": "U",
        f"kind_{columns}0": "C",
        "parallel": f"{rows}1",
        "policy": "dynamic",
    }
    if start["bound"] is None:
        return [strip]
    return [strip, *({**strip, "bound": True, "unroll": copies} for copies in (1, 2))]


def as_stored(start: Earlier, workload: Workload) -> list[Partial]:
    """Transposed use of a matrix as it is: threads split the rows and meet in the output."""
    rows, columns = rows_and_columns(workload)
    if rows in workload.assignment.free_indices:
        return []
    inner = [loop for loop in strings(start["order"]) if loop not in (f"{rows}1", f"{columns}1")]
    nest: Partial = {"order": (f"{rows}1", f"{columns}1", *inner), "levels_follow_loops": True}
    shared: Partial = {**nest, "parallel": f"{rows}1"}
    return [
        {**nest, "parallel": "none"},
        {**shared, "reduction": "private"},
        {**shared, "reduction": "atomic"},
    ]


def slices(workload: Workload) -> list[Partial]:
    """Slots with neighbouring rows in the lanes of one vector, or of several.

    Two gathers of AVX2's width often take less time than one of AVX-512's.
    """
    found: list[Partial] = []
    widest = vector_bytes()
    shapes = [(vectors, widest) for vectors in (1, 2, 4)]
    if widest > VECTOR_BYTES[1]:
        shapes += [(vectors, VECTOR_BYTES[1]) for vectors in (2, 4)]
    for vectors, width in shapes:
        slots: Partial = {**_rows_in_lanes(workload, vectors, width), "layout": "slots"}
        found.extend({**slots, "rows": order, "unroll": 1} for order in ("own", "length4096", "length"))
        found.append({**slots, "rows": "length4096", "unroll": 2})
    return found


def diagonals(workload: Workload) -> list[Partial]:
    """Pieces of diagonals as long as a few vectors."""
    _, columns = rows_and_columns(workload)
    kind: Partial = {"layout": "diagonals", f"kind_{columns}1": "C"}
    return [{**_rows_in_lanes(workload, vectors, vector_bytes()), **kind} for vectors in (2, 8)]


def _rows_in_lanes(workload: Workload, vectors: int, width: int) -> Partial:
    """As many neighbouring rows together as ``vectors`` of ``width`` bytes have lanes."""
    rows, columns = rows_and_columns(workload)
    return {
        f"split_{rows}": vectors * width // workload.dtype.itemsize,
        "order": (f"{rows}1", f"{rows}0", f"{columns}1"),
        "levels_follow_loops": False,
        "levels": (f"{rows}1", f"{columns}1", f"{rows}0"),
        f"kind_{rows}1": "U",
        f"kind_{rows}0": "U",
        "tile": f"{rows}0",
        "vectors": vectors,
        "vector_bytes": width,
    }


# -- remainders of hybrids ----------------------------------------------------------------------------


def dense_columns(space: Space, workload: Workload) -> Partial:
    """Columns that a group of rows shares: dense pieces as high as the group, below rows that have any."""
    rows, _ = rows_and_columns(workload)
    # eight accumulators of each vector
    wide: Partial = {"vectors": max(1, vector_bytes() // VECTOR_BYTES[1])}
    found = blocks(space, workload, GROUP, 1, {f"kind_{rows}1": "C"})
    return {**wide, **(found[-1] if found else {}), f"kind_{rows}1": "C"}


def long_rows(workload: Workload) -> Partial:
    """A few long rows: walked together in blocks of columns, which threads share."""
    rows, columns = rows_and_columns(workload)
    output = workload.assignment.free_indices
    free = [f"{index}1" for index in workload.assignment.indices if index not in (rows, columns)]
    kept = [loop for loop in free if loop[:-1] in output]
    reduced = [loop for loop in free if loop[:-1] not in output]
    inner = [f"{columns}0", *kept] if columns in output else [*kept, f"{columns}0"]
    return {
        f"split_{columns}": 4096,
        "order": (f"{columns}1", f"{rows}1", *inner, *reduced),
        **{f"kind_{loop}": "C" for loop in (f"{columns}1", f"{rows}1", f"{columns}0")},
        "parallel": f"{columns}1",
        "policy": "dynamic",
        "chunk": 1,
        "reduction": "atomic",
    }
