"""Compiling the library of in-place kernels, once a machine: ``python -m tensorwise.sparse.prepare``.

The kernels go to the kernel cache like any others. A table beside it names those of a family, so that a process which
multiplies neither imports the compiler's front nor lowers a program. Tables are made anew when the package's code or the
processor changes. ``--for LEVEL --out DIR`` compiles kernels for other machines instead: `tensorwise.sparse.prebuilding`.
"""

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from tensorwise.errors import TensorwiseError
from tensorwise.lower.program import PlanKey, kernel_text, program_for
from tensorwise.program.workload import workload
from tensorwise.sparse.children import serve_parent
from tensorwise.sparse.kernels import ELEMENTS, FAMILIES, KernelFamily, KernelShape, schedule_of
from tensorwise.sparse.table import BACKGROUND, IN_PLACE, table_path
from tensorwise.tensor.convert import entries_from
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.places import private_dir
from tensorwise.toolchain.runtime import DRIVER

_EXAMPLE: Final = (61, 67)
"""Blocks of a matrix whose program is lowered: kernels do not depend on it."""
_COORDINATES: Final = np.arange(61)
DTYPE_NAMES: Final = {"f64": "float64", "f32": "float32"}
_TABLES_KEPT: Final = 16


def prepare(family: KernelFamily) -> Path:
    """Compile what is missing of a family of kernels and write its table; return the table's path.

    Each element and index type is a compilation of its own, which is kept whatever happens to the others.

    Raises:
        CompilerError: no compiler works here.
        OSError: the table cannot be written.
    """
    cache = default_cache()
    DRIVER.load()
    IN_PLACE.load()
    table: dict[str, object] = {}
    for element, index in product(ELEMENTS, family.indices):
        made = {shape: kernel_of(shape, element, index) for shape in family.shapes}
        cache.get([text for text, _, _ in made.values()])
        for shape, (text, buffers, sizes) in made.items():
            row = {"key": cache.key(text), "buffers": list(buffers), "sizes": list(sizes)}
            table[f"{element}-{index}-{shape.name}"] = row
    path = table_path(family.name)
    private_dir(path.parent)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
        json.dump({"kernels": table, "driver": DRIVER.key, "in_place": IN_PLACE.key}, file)
    os.replace(file.name, path)
    _remove_others(path)
    return path


def kernel_of(
    shape: KernelShape, element: str, index: str, register_bytes: int | None = None
) -> tuple[str, dict[str, str], tuple[str, ...]]:
    """Return C text, element types of buffers and names of sizes of one kernel.

    Args:
        shape: of the kernel.
        element: type of the elements.
        index: type of the indices.
        register_bytes: bytes of a vector register of the processor that the kernel is for; None: of this one.
    """
    operation, columns, schedule = schedule_of(shape, element, register_bytes)
    values = np.ones(len(_COORDINATES), DTYPE_NAMES[element])
    rows, inner = (max(shape.block, 1) * extent for extent in _EXAMPLE)
    entries = entries_from(((rows, inner), (_COORDINATES, _COORDINATES), values))
    work = workload(operation, entries, n=columns)
    program = program_for(work, shape.format, schedule)
    plan = program.plan(work.elem, sizes=work.sizes if shape.block else None)  # blocks divide shapes
    if shape.slices:  # stored with the narrowest indices
        return kernel_text(PlanKey(plan))
    widths: Any = {
        name: tuple((index,) * len(level) for level in levels) for name, levels in plan.widths.items()
    }
    return kernel_text(PlanKey(replace(plan, widths=widths, filled=True)))  # zeros in blocks are entries


def is_prepared(family: KernelFamily) -> bool:
    """Whether a family's table is there, and the kernel cache holds all that it names."""
    try:
        made = json.loads(table_path(family.name).read_text())
        keys = {made["driver"], made["in_place"], *(row["key"] for row in made["kernels"].values())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    cache = default_cache()
    return all(cache.find(str(key)) is not None for key in keys)


def _main(families: Sequence[KernelFamily]) -> int:
    """Prepare families of kernels and say what is there now; return the exit status."""
    start = time.perf_counter()
    try:
        missing = [family for family in families if not is_prepared(family)]
        for family in missing:
            print(f"compiling the {family.name} kernels ...", flush=True)
            prepare(family)
    except (TensorwiseError, OSError) as error:
        print(f"the kernels cannot be compiled, so that SciPy computes: {error}", file=sys.stderr)
        return 1
    when = f"compiled in {time.perf_counter() - start:.1f} s" if missing else "they were compiled before"
    print(f"the kernels of sparse arrays are ready ({when}): {table_path(families[0].name).parent}")
    return 0


def _remove_others(path: Path) -> None:
    """Remove tables of older code, but for the last few: another environment may use them."""
    tables = sorted(path.parent.glob("*.json"), key=lambda one: one.stat().st_mtime)
    for old in tables[:-_TABLES_KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()


if __name__ == "__main__":
    if "--for" in sys.argv[1:]:  # kernels of other machines; few processes need that module
        sys.exit(import_module("tensorwise.sparse.prebuilding").main(sys.argv[1:]))
    if BACKGROUND in sys.argv[1:]:
        serve_parent()
    wanted = [family for name, family in FAMILIES.items() if name in sys.argv[1:]]
    with contextlib.suppress(KeyboardInterrupt):  # who asked is gone; what is compiled is kept
        sys.exit(_main(wanted or list(FAMILIES.values())))
