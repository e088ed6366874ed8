"""Call: one use of a function that has several versions; the workload that choosing among them is about."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from tensorwise.ids import content_id


@final
@dataclass(frozen=True, eq=False)
class Call:
    """What has to be computed: a function, by name, with arguments of which some numbers are known.

    Attributes:
        op: name of the function.
        features: field -> number; all that a model sees of the arguments.
        arguments: what versions are called with; nobody else looks at them, and predictions do not need them.
    """

    op: str
    features: Mapping[str, float]
    arguments: tuple[Any, ...] = ()

    @cached_property
    def id(self) -> str:
        """Content id of function and features: calls with equal model inputs have equal ids."""
        return content_id(["call", self.op, *(f"{name}={value!r}" for name, value in self.features.items())])

    def describe(self) -> dict[str, object]:
        """Return what a Record keeps of the call, as JSON-able values."""
        return {"op": self.op, "features": dict(self.features)}
