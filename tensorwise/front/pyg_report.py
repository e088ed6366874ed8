"""Which layers of a model compute with our operators, and why the others are PyG's."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, final
from weakref import WeakKeyDictionary

_LEFT: Final[WeakKeyDictionary[Any, Counter[str]]] = WeakKeyDictionary()
"""Fused layers -> why calls of theirs were left to PyG, and how many."""


@final
@dataclass(frozen=True)
class LayerReport:
    """A message-passing layer of a model.

    Attributes:
        name: its name in the model; empty for the model itself.
        kind: the name of its class.
        fused: whether it computes with our operators.
        reason: why it does not; empty where it does.
        left: why calls of a fused layer were left to PyG, each with the number of calls in this process.
    """

    name: str
    kind: str
    fused: bool
    reason: str = ""
    left: tuple[tuple[str, int], ...] = ()

    def text(self) -> str:
        """Return it as a line, and one more for each reason for which calls were left to PyG."""
        verdict = "fused" if self.fused else f"stays PyG's: {self.reason}"
        more = (f"    {calls} calls left to PyG: {reason}" for reason, calls in self.left)
        return "\n".join((f"{self.name or '(model)'}: {self.kind} {verdict}", *more))


@final
@dataclass(frozen=True)
class FusionReport:
    """The message-passing layers of a model, in the order of ``named_modules``."""

    layers: tuple[LayerReport, ...]

    def text(self) -> str:
        """Return a line for each layer."""
        return "\n".join(layer.text() for layer in self.layers) or "no layer of PyG's"

    __str__ = text


def count_left_call(layer: Any, reason: str) -> None:
    """Note that a call of a fused layer is left to PyG."""
    _LEFT.setdefault(layer, Counter())[reason] += 1


def left_calls(layer: Any) -> tuple[tuple[str, int], ...]:
    """Return why calls of a layer were left to PyG, the most frequent reason first."""
    return tuple(_LEFT.get(layer, Counter()).most_common())
