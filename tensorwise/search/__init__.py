"""Search: strategies propose configs by ask and tell."""

from typing import Final

from tensorwise.search.exhaustive import Exhaustive
from tensorwise.search.genetic import Genetic
from tensorwise.search.random import Random
from tensorwise.search.strategy import Strategy

__all__ = ["STRATEGIES", "Exhaustive", "Genetic", "Random", "Strategy"]

STRATEGIES: Final[dict[str, type[Strategy]]] = {
    "exhaustive": Exhaustive,
    "random": Random,
    "genetic": Genetic,
}
"""All strategies by name: a new one is a file in this folder and a row here."""
