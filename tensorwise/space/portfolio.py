"""Where a search begins: structures of the CPU's space that are known to be good."""

import contextlib

from tensorwise.errors import InputError
from tensorwise.program.workload import Workload
from tensorwise.space.apart import APART
from tensorwise.space.config import Config, Value
from tensorwise.space.cpu import blocks
from tensorwise.space.running import VECTOR_BYTES
from tensorwise.space.space import Space
from tensorwise.toolchain.processor import vector_bytes


def portfolio(space: Space, workload: Workload) -> list[Config]:
    """Return the configs worth trying first: known good structures, the space's default at the head.

    Their kernels are what ``tensorwise cache warm`` compiles. Blocks, sparse blocks of columns,
    doubly compressed rows, the column-major format, serial runs, tile and prefetch variants.
    """
    (name,) = workload.sparse
    stored = workload.assignment.access(name).indices
    rows, columns = stored[0], stored[-1]
    start = dict(space.default(workload))
    partials: list[dict[str, object]] = [{}]
    partials.extend({"policy": "dynamic", "chunk": chunk} for chunk in (8, 64))
    partials.append({"parallel": "none"})
    partials.extend({"vectors": vectors} for vectors in (1, 2, 4, 12) if start["tile"] != "none")
    partials.extend({"unroll": factor} for factor in (1, 2, 8))
    if start["bound"] is not None:
        partials.extend(
            {"bound": flag, "vectors": vectors} for flag in (True, False) for vectors in (1, 2, 4, 8)
        )
    partials.extend({"prefetch": distance} for distance in (8, 16))
    if start["tile"] != "none" and f"kind_{start['tile']}" in start:
        partials.extend({"tile": "none", "unroll": factor} for factor in (1, 2, 4, 8))
        partials.extend({"vector_bytes": width, "vectors": 1} for width in VECTOR_BYTES[:2])
    partials.append({f"kind_{rows}1": "C"})
    if rows not in workload.assignment.output.indices:
        # Transposed use of the matrix as it is: threads split the rows and meet in the output.
        inner = [loop for loop in _names(start["order"]) if loop not in (f"{rows}1", f"{columns}1")]
        as_stored: dict[str, object] = {
            "order": (f"{rows}1", f"{columns}1", *inner),
            "levels_follow_loops": True,
        }
        partials.append({**as_stored, "parallel": "none"})
        partials.extend(
            {**as_stored, "parallel": f"{rows}1", "reduction": how} for how in ("private", "atomic")
        )
    for height, width in ((2, 2), (4, 4), (2, 1), (4, 1), (8, 1), (1, 4), (8, 8), (1, 8)):
        partials.extend(blocks(space, workload, rows, columns, height, width))
    for width in (1024, 8192):
        if workload.sizes[columns] >= 2 * width:
            loops = [loop for loop in _names(start["order"]) if loop != f"{columns}1"]
            order = (f"{columns}1", *loops, f"{columns}0")
            kinds = {f"kind_{columns}1": "U", f"kind_{rows}1": "U", f"kind_{columns}0": "C"}
            partials.append(
                {
                    f"split_{columns}": width,
                    "order": order,
                    **kinds,
                    "parallel": f"{rows}1",
                    "policy": "dynamic",
                }
            )
    kind = "C16" if workload.sizes[columns] <= 2**16 else "C"
    partials.extend(
        {f"kind_{columns}1": kind, "rows": order} for order in ("own", "length", "rcm", "cluster")
    )
    if len(stored) == 2 and f"kind_{start['tile']}" in start:
        partials.extend(_slices(workload, rows, columns))
        partials.extend({**_slices(workload, rows, columns)[1], "apart": kind} for kind in APART[1:])
    partials.extend({"apart": kind} for kind in APART[1:])
    found: dict[Config, None] = {}
    for partial in partials:
        with contextlib.suppress(InputError):
            config = space.complete(partial, workload)
            # What a domain or rule does not allow for this workload was replaced: then it is no longer the idea.
            if all(config[name] == value for name, value in partial.items() if value is not None):
                found[config] = None
    return list(found)


def _slices(workload: Workload, rows: str, columns: str) -> list[dict[str, object]]:
    """Slots and diagonals with neighbouring rows in the lanes of one vector, or of several."""
    widest = vector_bytes()
    lanes = widest // workload.dtype.itemsize
    nest: dict[str, object] = {
        "order": (f"{rows}1", f"{rows}0", f"{columns}1"),
        "levels_follow_loops": False,
        "levels": (f"{rows}1", f"{columns}1", f"{rows}0"),
        f"kind_{rows}1": "U",
        f"kind_{rows}0": "U",
        "tile": f"{rows}0",
        "vector_bytes": widest,
    }
    found: list[dict[str, object]] = []
    for vectors in (1, 2, 4):
        slices: dict[str, object] = {
            **nest,
            "layout": "slots",
            f"split_{rows}": vectors * lanes,
            "vectors": vectors,
        }
        found.extend({**slices, "rows": order, "unroll": 1} for order in ("own", "length4096", "length"))
        found.append({**slices, "rows": "length4096", "unroll": 2})
    for vectors in (2, 8):
        height: dict[str, object] = {f"split_{rows}": vectors * lanes, "vectors": vectors}
        found.append({**nest, **height, "layout": "diagonals", f"kind_{columns}1": "C"})
    return found


def _names(value: Value) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    return value
