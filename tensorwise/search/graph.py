"""ConfigGraph: configs linked to those with near embeddings, so that a search can go from good ones to better ones.

WACO, section 4.2.2: links follow the Euclidean distance of embeddings, the search follows the predicted cost.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.keeping import Keeping
from tensorwise.moved import forward_names
from tensorwise.search.pool import Pool

GRAPH: Final = Keeping("graph")
"""A graph is kept in two files, which may lie beside those of the model that embedded its configs."""
KIND, VERSION = "configs", 1
"""What the description says; other versions are refused."""
_moved = forward_names("ConfigGraph", {"build_graph": "tensorwise.search.building"})


@final
@dataclass(frozen=True, eq=False)
class ConfigGraph:
    """A pool of configs, their embeddings, and links between them. Every config can be reached from every other.

    `build_graph` takes seconds; what walks a graph needs NumPy only.

    Attributes:
        pool: the configs, by row.
        embeddings: float32, (configs, dimensions): the model's embedding of each config, rounded by `round_to_float16`.
        starts: int64, (configs + 1,): where the links of each row begin and end in ``links``.
        links: int32: rows, both ways between each config and its nearest.
        entry_points: int64: rows where a graph search begins, spread over the pool.

    Raises:
        InputError: shapes, types or rows do not go together.
    """

    pool: Pool
    embeddings: np.ndarray
    starts: np.ndarray
    links: np.ndarray
    entry_points: np.ndarray

    def __post_init__(self) -> None:
        n = len(self.pool)
        shapes = (
            self.embeddings.dtype == np.float32
            and self.embeddings.ndim == 2
            and len(self.embeddings) == n
            and self.starts.dtype == np.int64
            and self.starts.shape == (n + 1,)
            and self.links.dtype == np.int32
            and self.links.ndim == 1
            and self.entry_points.dtype == np.int64
            and self.entry_points.ndim == 1
        )
        if not shapes:
            raise InputError(f"the arrays are not those of a graph of {n} configs")
        if not np.isfinite(self.embeddings).all():
            raise InputError("an embedding of a graph is not finite")
        if self.starts[0] != 0 or self.starts[-1] != len(self.links) or (np.diff(self.starts) < 0).any():
            raise InputError("the starts of a graph's links must ascend from 0 to their number")
        for name, rows in (("link", self.links), ("entry point", self.entry_points)):
            if len(rows) and not (rows.min() >= 0 and rows.max() < n):
                raise InputError(f"a {name} of the graph leads to no config")
        if len(np.unique(self.entry_points)) < max(len(self.entry_points), min(n, 1)):
            raise InputError("the graph needs entry points, each once")

    @staticmethod
    def build(*args: Any, **options: Any) -> "ConfigGraph":
        """Deprecated: call `tensorwise.search.building.build_graph`."""
        made: ConfigGraph = _moved("build_graph")(*args, **options)
        return made

    def __len__(self) -> int:
        return len(self.pool)

    def neighbours(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows that any of ``rows`` is linked to, ascending, each once."""
        found = [self.links[self.starts[row] : self.starts[row + 1]] for row in rows.tolist()]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int32)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the graph into ``directory`` (made if absent).

        Raises:
            InputError: the directory cannot be written.
        """
        description = {"kind": KIND, "version": VERSION, "values": self.pool.to_json()}
        names = ("embeddings", "starts", "links", "entry_points")
        arrays = {name: getattr(self, name) for name in names}
        GRAPH.save(directory, description, {"choices": self.pool.choices, **arrays})

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Read back what ``save`` wrote.

        Raises:
            InputError: a file is missing, damaged, or of another version.
        """

        def build(described: dict[str, object], arrays: Mapping[str, np.ndarray]) -> Self:
            given = dict(arrays)
            return cls(Pool.from_json(described["values"], given.pop("choices")), **given)

        return GRAPH.load(directory, KIND, VERSION, build)
