"""The graphs: files of a folder, or drawn ones where there is none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

import numpy as np

from benchmarks.splits import splits
from tensorwise.collect.corpus import MANIFEST, patterns, read_pattern
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries


@final
@dataclass(frozen=True)
class Graph:
    """A graph that can be read.

    Attributes:
        entries: how many, as far as that is known.
        family: graphs of one family are all seen by the model, or none is.
        read: returns them.
    """

    entries: int
    family: str
    read: Callable[[], Entries]


Graphs = dict[str, Graph]
"""By name."""


def graphs(
    folder: Path | None,
    drawn: Mapping[str, Sequence[float]],
    least: int,
    largest: int,
    families: Sequence[str],
) -> Graphs:
    """Return the matrices of a folder, small ones first, or the drawn ones.

    Args:
        folder: of matrix files; of one that has a manifest, those of ``families``.
        drawn: the graphs that are drawn without a folder.
        least, largest: entries that a matrix of the folder has at least and at most.
        families: of the manifest.
    """
    if folder is None:
        return {
            name: Graph(int(nodes * degree), name, partial(draw, int(nodes), degree, skew))
            for name, (nodes, degree, skew) in drawn.items()
        }
    listed = (folder / MANIFEST).is_file()
    found: Graphs = {}
    for pattern in patterns([folder]):
        entries = pattern.nnz or pattern.path.stat().st_size // 8
        wanted = not listed or pattern.family in families
        if wanted and pattern.order == 2 and least <= entries <= largest:
            found[pattern.name] = Graph(
                entries, splits().family(pattern.name, pattern.family), partial(read_pattern, pattern.path)
            )
    return found


def draw(nodes: int, degree: float, skew: float) -> Entries:
    """A graph whose nodes attract edges like rank ** -skew, both as sources and as destinations."""
    rng = np.random.default_rng(nodes)
    weights = np.arange(1, nodes + 1) ** -skew
    chances, edges = weights / weights.sum(), int(nodes * degree)
    ends = [rng.permutation(nodes)[rng.choice(nodes, edges, p=chances)] for _ in range(2)]
    values = rng.random(edges, np.float32) + np.float32(0.5)
    return entries_from(((nodes, nodes), ends, values))
