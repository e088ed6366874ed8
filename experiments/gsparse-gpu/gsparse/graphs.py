"""The graphs: files of a folder, or drawn ones where there is none."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tensorwise.data.corpus import patterns, read_pattern
from tensorwise.tensor.entries import Entries, entries_from

Graphs = dict[str, tuple[int, Callable[[], Entries]]]
"""Name -> number of entries as far as it is known, and what reads it."""


def graphs(folder: Path | None, drawn: Mapping[str, Sequence[float]], largest: int) -> Graphs:
    """Return the matrices of a folder, small ones first, or the drawn ones."""
    if folder is None:
        return {
            name: (int(nodes * degree), lambda n=int(nodes), d=degree, s=skew: draw(n, d, s))  # type: ignore[misc]
            for name, (nodes, degree, skew) in drawn.items()
        }
    found = [
        p for p in patterns([folder]) if p.order == 2 and (p.nnz or p.path.stat().st_size // 8) <= largest
    ]
    return {
        p.name: (p.nnz or p.path.stat().st_size // 8, lambda path=p.path: read_pattern(path))  # type: ignore[misc]
        for p in found
    }


def draw(nodes: int, degree: float, skew: float) -> Entries:
    """A graph whose nodes attract edges like rank ** -skew, both as sources and as destinations."""
    rng = np.random.default_rng(nodes)
    weights = np.arange(1, nodes + 1) ** -skew
    chances, edges = weights / weights.sum(), int(nodes * degree)
    ends = [rng.permutation(nodes)[rng.choice(nodes, edges, p=chances)] for _ in range(2)]
    values = rng.random(edges, np.float32) + np.float32(0.5)
    return entries_from(((nodes, nodes), ends, values))


def held_out(name: str, share: float) -> bool:
    """Whether the model must not see a graph: by its name, so that more graphs do not move others."""
    digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**32 < share
