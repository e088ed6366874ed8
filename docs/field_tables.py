"""Write docs/features.md: every field of every featurizer, from the fields themselves.

    python docs/field_tables.py

A test compares the page with what this would write.
"""

import re
from pathlib import Path
from typing import Any

from tensorwise.analysis.ast import LEAVES
from tensorwise.analysis.code import CODE
from tensorwise.analysis.featurizer import Featurizer, Field
from tensorwise.analysis.hardware import HARDWARE
from tensorwise.analysis.nest import ProgramNest
from tensorwise.analysis.patterns import PATTERNS

HEAD = """# Features

A featurizer turns a thing into numbers for a cost model: always as many, always finite, the same on every machine. Each
number is a *field* with a name, a unit and a sentence. The featurizer's `id` changes with its version and with the names,
units and order of its fields, so that a model never reads numbers that it was not trained on. Sentences do not enter the id.

```python
import scipy.sparse as sp
from tensorwise.analysis.matrix import MatrixPattern
from tensorwise.tensor.convert import entries_from

pattern = MatrixPattern()
numbers = pattern.features(entries_from(sp.random_array((1000, 1000), density=0.01)))
assert numbers.shape == (len(pattern.fields),)
print(pattern.fields[0])
```

Counting patterns is compiled (`analysis/pattern.c`); without a C compiler NumPy counts the same, more slowly. Quantities
that range widely are logarithms. `log2(x / entries)` is 0 where each entry has an x of its own: above 0 a format pads,
below 0 entries share.

{objects}

This page is written by `python docs/field_tables.py`.
"""

OBJECTS = {
    "matrix-pattern": ("the pattern of a matrix", "analysis.matrix.MatrixPattern()", "sparse"),
    "tensor-pattern": ("the pattern of a tensor", "analysis.tensor.TensorPattern()", "sparse"),
    "program-nest": ("the loops of a config of a sparse operation", "analysis.nest.ProgramNest()", "sparse"),
    "leaf": ("a leaf of a loop tree", "analysis.ast.LEAVES", "latency"),
    "code": ("the compiled code of a program", "analysis.code.CODE", "latency"),
    "hardware": ("a device", "analysis.hardware.HARDWARE", "latency"),
}
"""By featurizer: what it describes, its object in the package, and which models read it."""
MODELS = {"sparse": "models that rank sparse configs", "latency": "latency models"}


def objects(featurizers: list[Featurizer[Any]]) -> str:
    """Return a table of the featurizers and their objects in code."""
    lines = ["| featurizer | describes | object in code | read by |", "|---|---|---|---|"]
    for one in featurizers:
        what, where, kind = OBJECTS[one.name]
        link = f"[{one.name}](#{one.name}-version-{one.version})"
        lines.append(f"| {link} | {what} | `{where}` | {MODELS[kind]} |")
    return "\n".join(lines)


def table(fields: list[Field]) -> str:
    """Return fields as a Markdown table."""
    rows = [f"| `{field.name}` | {field.doc} | {field.unit} |" for field in fields]
    return "\n".join(["| field | is | in |", "|---|---|---|", *rows])


def section(featurizer: Featurizer[Any]) -> str:
    """Return a featurizer's tables, one a group; of groups that differ by a number, as modes do, the first."""
    groups: dict[str, list[Field]] = {}
    alike: dict[str, list[str]] = {}
    for field in featurizer.fields:
        group = field.name.split(".")[0]
        groups.setdefault(group, []).append(field)
        known = alike.setdefault(re.sub(r"[0-9]+", "", group), [])
        if group not in known:
            known.append(group)
    about = " ".join((type(featurizer).__doc__ or "").split())
    parts = [
        f"## {featurizer.name}, version {featurizer.version}",
        f"{about} {len(featurizer.fields)} numbers.",
    ]
    for first, *others in alike.values():
        more = f" (and likewise {', '.join(others)})" if others else ""
        parts += [f"### {featurizer.name}: {first}{more}", table(groups[first])]
    return "\n\n".join(parts)


def page() -> str:
    """Return the text of the page."""
    described = [*(pattern() for pattern in PATTERNS.values()), ProgramNest(), LEAVES, CODE, HARDWARE]
    head = HEAD.strip().replace("{objects}", objects(described))
    return "\n\n".join([head, *map(section, described)]) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "features.md").write_text(page())
