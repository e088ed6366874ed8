"""Search: strategies propose configs by ask and tell."""

from typing import Final

from tensorwise.moved import forward_names
from tensorwise.registry import Registry, needs_subclass
from tensorwise.search.climb import climbed
from tensorwise.search.exhaustive import Exhaustive
from tensorwise.search.genetic import Genetic
from tensorwise.search.graph import ConfigGraph
from tensorwise.search.pool import Pool
from tensorwise.search.random import Random
from tensorwise.search.strategy import Strategy
from tensorwise.search.walk import Walk

__all__ = [
    "STRATEGIES",
    "ConfigGraph",
    "Exhaustive",
    "Genetic",
    "Pool",
    "Random",
    "Strategy",
    "Walk",
    "climbed",
]

STRATEGIES: Final[Registry[type[Strategy]]] = Registry(
    "strategy",
    "strategies",
    {"exhaustive": Exhaustive, "random": Random, "genetic": Genetic},
    needs_subclass(Strategy),
)
"""All strategies by name that need nothing but a space and a workload: a new one is a file in this folder and a row here,
or an entry point of another package."""
__getattr__ = forward_names(
    __name__, {"GraphWalk": "tensorwise.search.graph_walk", "bred": "tensorwise.search.building"}
)
