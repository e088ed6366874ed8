"""Small stand-ins for a Workload and a Space, for tests that need no compiler."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorwise.space.config import Config, Value
from tensorwise.space.params import Choice, Flag, Permutation, PowerOfTwo, powers
from tensorwise.space.space import Rule, Space


@dataclass(frozen=True)
class ToyEntries:
    """What a description of a workload reads from its stored entries."""

    shape: tuple[int, ...] = (64, 48)
    nnz: int = 300
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float32))

    @property
    def longest(self) -> int:
        """Entries of the longest row."""
        return int(np.unique(self.coordinates[0], return_counts=True)[1].max(initial=0))

    @property
    def coordinates(self) -> tuple[np.ndarray, ...]:
        """Distinct places, sorted row-major, the same for the same shape and count."""
        cells = np.random.default_rng(self.nnz).choice(int(np.prod(self.shape)), self.nnz, replace=False)
        return np.unravel_index(np.sort(cells), self.shape)


@dataclass(frozen=True, eq=False)
class ToyWorkload:
    """Has the attributes of a Workload that space, search, data and models use."""

    id: str = "toy-1"
    op: str = "spmm"
    einsum: str = "C[i,j] += A[i,k] * B[k,j]"
    sizes: Mapping[str, int] = field(default_factory=lambda: {"i": 64, "k": 48, "j": 16})
    entries: ToyEntries = field(default_factory=ToyEntries)

    @property
    def dtype(self) -> np.dtype:
        return self.entries.dtype

    def describe(self) -> dict[str, object]:
        return {
            "op": self.op,
            "einsum": self.einsum,
            "sizes": dict(self.sizes),
            "shape": list(self.entries.shape),
            "nnz": self.entries.nnz,
            "longest": self.entries.longest,
            "dtype": str(self.entries.dtype),
        }


class ToySpace(Space):
    """A Space whose programs are their configs' text."""

    def program(self, workload: Any, config: Config) -> Any:
        self.check(config, workload)
        return str(config)


def _loops(earlier: Mapping[str, Value], workload: Any) -> list[Value]:
    gone = [f"{index}0" for index in "ik" if earlier[f"{index}_split"] == 1]
    return [loop for loop in ("i1", "i0", "k1", "k0") if loop not in gone]


def _parallel_is_outermost(config: Mapping[str, Value], workload: Any) -> bool:
    loops = config["loops"]
    return config["parallel"] == "none" or (isinstance(loops, tuple) and loops[0] == config["parallel"])


def _some_work(config: Mapping[str, Value], workload: Any) -> bool:
    return not (config["vector"] and config["parallel"] == "none" and config["i_split"] == 64)


GARDEN = ToySpace(
    name="garden",
    params=(
        PowerOfTwo(
            "i_split",
            1,
            64,
            binds="pack",
            extent="i",
            doc="Rows of a block; a block larger than 64 rows no longer fits the cache.",
            narrow=lambda earlier, w: powers(1, w.sizes["i"]),
        ),
        PowerOfTwo(
            "k_split",
            1,
            32,
            binds="pack",
            extent=lambda w: w.sizes["k"],
            prefer=4,
            doc="Columns of a block; up to 32, the longest vector.",
            narrow=lambda earlier, w: powers(1, w.sizes["k"]),
        ),
        Permutation(
            "loops",
            ("i1", "i0", "k1", "k0"),
            before=(("i1", "i0"), ("k1", "k0")),
            beside={"i0": "i1", "k0": "k1"},
            binds="compile",
            doc="Order of the loops; an inner part is only defined inside its outer part.",
            narrow=_loops,
        ),
        Choice(
            "parallel",
            ("i1", "k1", "none"),
            binds="compile",
            doc="Loop shared out among threads; inner loops are too short to pay.",
        ),
        PowerOfTwo(
            "chunk",
            1,
            256,
            binds="call",
            doc="Iterations a thread takes at once; past 256 threads idle.",
            narrow=lambda earlier, w: None if earlier["parallel"] == "none" else powers(1, 256),
        ),
        PowerOfTwo(
            "lanes",
            1,
            1024,
            binds="call",
            doc="Lanes; chunk times lanes is limited to 1024 by the toy machine.",
            narrow=lambda earlier, w: powers(1, 1024 // int(earlier["chunk"] or 1)),  # type: ignore[arg-type]
        ),
        Flag("vector", binds="compile", doc="Use vector registers; both are worth trying."),
        Choice(
            "tile",
            (1, 2, 4),
            binds="compile",
            doc="Vectors held in registers; a fifth would spill.",
            narrow=lambda earlier, w: (1, 2, 4) if earlier["vector"] else None,
        ),
    ),
    rules=(
        Rule("outermost", "only the outermost loop can be shared out", _parallel_is_outermost),
        Rule("some-work", "one block of all rows leaves nothing to do at once", _some_work),
    ),
)
"""Every kind of Param, domains that depend on earlier choices, inactive ones, and rules."""

TINY = ToySpace(
    name="tiny",
    params=(
        Choice("layout", ("row", "column", "block"), binds="pack", doc="Storage order; there are three."),
        Flag("balanced", binds="call", doc="Share rows out by nonzeros; both are worth trying."),
        PowerOfTwo("split", 1, 8, binds="pack", doc="Block size; past 8 there is only padding."),
    ),
)
"""24 configs."""

WIDE = ToySpace(
    name="wide",
    params=tuple(
        PowerOfTwo(f"p{k}", 1, 128, binds="call", doc="One of twelve equal numbers; eight values suffice.")
        for k in range(12)
    ),
)
"""8**12 configs without structure, for comparing strategies."""


def draw_many(space: Space, workload: Any, seed: int, count: int) -> list[Config]:
    """Return ``count`` samples, repeats included."""
    rng = np.random.default_rng(seed)
    return [space.sample(workload, rng) for _ in range(count)]
