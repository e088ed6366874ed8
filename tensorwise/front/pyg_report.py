"""Which layers of a model compute with our operators, and why the others are PyG's."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, final
from weakref import WeakKeyDictionary

import torch
from torch._dynamo.comptime import comptime

COMPILED: Final = "compiled or exported code is PyG's (counted when it is made)"
"""What precedes the reason where torch makes code of a layer."""
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
        left: why calls of a fused layer were left to PyG, each with the number of calls in this process; code that
            torch compiles or exports is counted when it is made.
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
    """Note that a call of a fused layer is left to PyG.

    Code that torch compiles or exports has no counter. It is counted when torch makes it.
    """
    if torch.compiler.is_dynamo_compiling():
        comptime(_count_compiled)
    else:
        _count(layer, f"{COMPILED}: {reason}" if torch.compiler.is_compiling() else reason)


def _count_compiled(context: Any) -> None:
    """Count while torch compiles `count_left_call`: this function is no part of the compiled code."""
    with suppress(
        AttributeError
    ):  # a count must not fail a compilation where another torch has other internals
        layer = context.get_local("layer")._i_will_not_complain_if_bc_breaks_VariableTracker().value
        reason = context.get_local("reason")
        known = reason.as_python_constant() if reason.is_python_constant() else "the reason is not known"
        _count(layer, f"{COMPILED}: {known}")


def _count(layer: Any, reason: str) -> None:
    _LEFT.setdefault(layer, Counter())[reason] += 1


def left_calls(layer: Any) -> tuple[tuple[str, int], ...]:
    """Return why calls of a layer were left to PyG, the most frequent reason first."""
    return tuple(_LEFT.get(layer, Counter()).most_common())
