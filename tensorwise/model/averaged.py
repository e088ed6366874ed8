"""The mean of the weights of a training's steps, which errs less than those of its last step (Polyak and Juditsky, 1992)."""

from collections.abc import Mapping
from typing import Any, Final, final

from tensorwise.model.torch_extra import torch

FIRST: Final = 9
"""Of n steps the last one weighs at least 1 / (n + FIRST), so that first weights, which say nothing, are soon forgotten."""


@final
class Averaged:
    """An exponential moving average of weights: those of a step count ``kept`` times as much as those of the next step.

    Args:
        weights: by name, which training changes.

    Attributes:
        values: the mean, by name; steps: how many it is of.
    """

    def __init__(self, weights: Mapping[str, Any], kept: float) -> None:
        self.values = {name: weight.detach().clone() for name, weight in weights.items()}
        self.steps = 0
        self._weights, self._kept = weights, kept

    def step(self) -> None:
        """Take in what the weights are now."""
        self.steps += 1
        kept = min(self._kept, self.steps / (self.steps + FIRST))
        with torch.no_grad():
            for name, mean in self.values.items():
                mean.lerp_(self._weights[name], 1 - kept)
