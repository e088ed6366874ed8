"""Where a search begins: structures of the CPU's space that are known to be good, and what they are run with."""

import contextlib

from tensorwise.errors import InputError
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import CpuSpace
from tensorwise.space.hybrids import HYBRID_PARAM, HYBRIDS
from tensorwise.space.running import UNROLLED, VECTOR_BYTES
from tensorwise.space.space import Space
from tensorwise.space.structures import (
    Partial,
    as_stored,
    blocks,
    column_strips,
    diagonals,
    rows_and_columns,
    slices,
)

BLOCKS = ((2, 2), (4, 4), (2, 1), (4, 1), (8, 1), (1, 4), (8, 8), (1, 8))
"""Heights and widths of dense blocks."""

STRIPS = (64, 128, 256, 1024, 8192)
"""Widths of strips of columns: rows of a dense operand that stay in a core's first cache, its second, the shared one."""


def portfolio(space: Space, workload: Workload) -> list[Config]:
    """Return the configs worth trying first: known good structures, the space's default at the head.

    Their kernels are what ``tensorwise cache warm`` compiles. Blocks, sparse blocks of columns,
    doubly compressed rows, the column-major format, serial runs, tile and prefetch variants. Of other spaces than the CPU's
    only the default config is known.
    """
    if not isinstance(space, CpuSpace):
        return [space.default(workload)]
    found: dict[Config, None] = {}
    for partial in _partials(space, workload):
        with contextlib.suppress(InputError):
            config = space.complete(partial, workload)
            # What a domain or rule does not allow for this workload was replaced: then it is no longer the idea.
            if all(config[name] == value for name, value in partial.items() if value is not None):
                found[config] = None
    return list(found)


def _partials(space: Space, workload: Workload) -> list[Partial]:
    rows, columns = rows_and_columns(workload)
    start = space.default(workload)
    along = f"kind_{start['tile']}" in start  # the tile runs along the operand
    partials: list[Partial] = [{}]
    if start["bound"] is not None:  # rows of a length that is known, on their way before they are needed
        partials.append({"bound": True, "prefetch": 8})
    partials.extend({"policy": "dynamic", "chunk": chunk} for chunk in (8, 64))
    partials.append({"policy": "merge-path"})
    partials.append({"parallel": "none"})
    if start["tile"] != "none":
        partials.extend({"vectors": vectors} for vectors in (1, 2, 4, 12))
    partials.extend({"unroll": copies} for copies in UNROLLED)
    partials.append({"factor": not start["factor"]})
    if start["bound"] is not None:
        partials.extend(
            {"bound": flag, "vectors": vectors} for flag in (True, False) for vectors in (1, 2, 4, 8)
        )
        partials.append({"bound": True, "unroll": 2})
        partials.append({"bound": True, "prefetch": 4})
    partials.extend({"prefetch": distance} for distance in (0, 2, 8, 16))
    if along:
        partials.extend({"tile": "none", "unroll": factor} for factor in (1, 2, 4, 8))
        partials.extend({"vector_bytes": width, "vectors": 1} for width in VECTOR_BYTES[:2])
    partials.append({f"kind_{rows}1": "C"})
    partials.extend(as_stored(start, workload))
    for height, width in BLOCKS:
        partials.extend(blocks(space, workload, height, width))
    for width in STRIPS:
        partials.extend(column_strips(start, workload, width))
    kind = "C16" if workload.sizes[columns] <= 2**16 else "C"
    partials.extend(
        {f"kind_{columns}1": kind, "rows": order} for order in ("own", "length", "rcm", "cluster")
    )
    if along and workload.entries.order == 2:
        known = slices(workload)
        partials.extend((*known, *diagonals(workload)))
        partials.extend({**known[1], HYBRID_PARAM: kind} for kind in HYBRIDS[1:])
    partials.extend({HYBRID_PARAM: kind} for kind in HYBRIDS[1:])
    return partials
