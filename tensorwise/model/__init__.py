"""Models: predict what configs cost, from records."""

import os
from typing import Final

from tensorwise.errors import InputError
from tensorwise.model.additive import AdditiveModel
from tensorwise.model.analytic import MetricsModel
from tensorwise.model.choosing import TreeModel
from tensorwise.model.mean import MeanModel
from tensorwise.model.model import CostModel, describe
from tensorwise.model.random import RandomModel
from tensorwise.model.ranking import RankingModel
from tensorwise.model.transfer import TransferModel

__all__ = [
    "MODELS",
    "AdditiveModel",
    "CostModel",
    "MeanModel",
    "MetricsModel",
    "RandomModel",
    "RankingModel",
    "TransferModel",
    "TreeModel",
    "load_model",
]

MODELS: Final[dict[str, type[CostModel]]] = {
    "mean": MeanModel,
    "metrics": MetricsModel,
    "additive": AdditiveModel,
    "random": RandomModel,
    "ranking": RankingModel,
    "transfer": TransferModel,
    "tree": TreeModel,
}
"""All models by kind: a new one is a file in this folder and a row here."""


def load_model(directory: str | os.PathLike[str]) -> CostModel:
    """Read back a saved model of whatever kind.

    Raises:
        InputError: there is none, it is damaged, or of a kind that is not known here.
    """
    kind = str(describe(directory)["kind"])
    if kind not in MODELS:
        raise InputError(f"{directory} holds a model of kind {kind!r}; known kinds: {', '.join(MODELS)}")
    return MODELS[kind].load(directory)
