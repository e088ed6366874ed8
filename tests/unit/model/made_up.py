"""A ranking model with weights drawn by chance: predicts something for any pattern, without torch or training."""

from typing import Any

import numpy as np

from tensorwise.model import RankingModel
from tensorwise.model.samples import Training, featurizer
from tensorwise.model.scoring import EMBEDDING, initial
from tensorwise.space.space import Space


def made_up(space: Space, *, order: int = 2, heads: int = 3, seed: int = 0, **card: Any) -> RankingModel:
    """Return a model with the network ``statistics`` whose scores are ratios."""
    rng = np.random.default_rng(seed)
    numbers = order + 2 + len(featurizer(order).fields)
    blank = RankingModel(space, net="statistics", heads=heads, training=Training(loss="ratio"))
    arrays = {f"scoring.{name}": array for name, array in initial(blank.table.form, rng, heads).items()}
    widths = {
        "shape.0": (256, numbers),
        "shape.2": (128, 256),
        "joined.0": (256, 128),
        "joined.2": (EMBEDDING, 256),
    }
    for name, shape in widths.items():
        arrays[f"net.{name}.weight"] = rng.uniform(-0.2, 0.2, shape).astype(np.float32)
        arrays[f"net.{name}.bias"] = np.zeros(shape[0], np.float32)
    arrays |= {"numbers.mean": np.zeros(numbers), "numbers.std": np.ones(numbers)}
    values, _ = blank.state()
    model = RankingModel.from_state({**values, "order": order, "features": featurizer(order).id}, arrays)
    model.card = card
    return model
