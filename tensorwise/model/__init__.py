"""Models: predict what configs cost, from records."""

import os
from typing import TYPE_CHECKING, Any, Final

from tensorwise.errors import InputError
from tensorwise.model.model import CostModel, describe
from tensorwise.moved import forward_names
from tensorwise.registry import Registry, needs_subclass

if TYPE_CHECKING:
    from tensorwise.model.additive import AdditiveModel
    from tensorwise.model.choosing import TreeModel
    from tensorwise.model.mean import MeanModel
    from tensorwise.model.random import RandomModel
    from tensorwise.model.ranking import RankingModel
    from tensorwise.model.transfer import TransferModel

__all__ = [
    "MODELS",
    "AdditiveModel",
    "CostModel",
    "MeanModel",
    "RandomModel",
    "RankingModel",
    "TransferModel",
    "TreeModel",
    "load_model",
]

MODELS: Final[Registry[type[CostModel]]] = Registry(
    "model",
    "models",
    {
        "mean": "tensorwise.model.mean:MeanModel",
        "additive": "tensorwise.model.additive:AdditiveModel",
        "random": "tensorwise.model.random:RandomModel",
        "ranking": "tensorwise.model.ranking:RankingModel",
        "transfer": "tensorwise.model.transfer:TransferModel",
        "tree": "tensorwise.model.choosing:TreeModel",
    },
    needs_subclass(CostModel),
)
"""All models by kind: a new one is a file in this folder and a row here, or an entry point of another package.

A kind is imported when a model of it is made or loaded: who asks a model does not depend on any kind."""
_LAZY_CLASSES: Final = {
    "AdditiveModel": "additive", "MeanModel": "mean", "RandomModel": "random", "RankingModel": "ranking",
    "TransferModel": "transfer", "TreeModel": "tree",
}  # fmt: skip
"""Classes that are imported when they are first used, and their kinds."""
_moved = forward_names(__name__, {"MetricsModel": "paper_models.analytic"})


def __getattr__(name: str) -> Any:
    if name not in _LAZY_CLASSES:
        return _moved(name)
    return MODELS[_LAZY_CLASSES[name]]


def load_model(directory: str | os.PathLike[str]) -> CostModel:
    """Read back a saved model of whatever kind.

    Raises:
        InputError: there is none, it is damaged, or of a kind that is not known here.
    """
    kind = str(describe(directory)["kind"])
    if kind not in MODELS:
        raise InputError(f"{directory} holds a model of kind {kind!r}; known kinds: {', '.join(MODELS)}")
    return MODELS[kind].load(directory)
