"""Featurizer: numbers that stand for a thing, each with a name, a unit and a sentence."""

import abc
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Generic, TypeVar, final

import numpy as np

from tensorwise.ids import content_id

Described = TypeVar("Described", contravariant=True)
"""What a featurizer describes: `Entries` for patterns."""


@final
@dataclass(frozen=True)
class Field:
    """One number of a featurizer.

    Attributes:
        name: unique within the featurizer; a dot ends the name of its group, as in ``rows.mean``.
        unit: what the number counts, with its scale: ``log2(1 + entries)``, ``share of entries``.
        doc: one sentence that completes "is ...".
    """

    name: str
    unit: str
    doc: str


class Featurizer(abc.ABC, Generic[Described]):
    """Turns a thing into numbers: always as many, always finite, always the same (up to rounding in other machines).

    Attributes:
        name: short and stable; saved models carry it.
        version: raised whenever the same field comes to mean another number.
    """

    name: ClassVar[str]
    version: ClassVar[int]

    @property
    @abc.abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """What each number is, in order."""

    @abc.abstractmethod
    def features(self, described: Described) -> np.ndarray:
        """Return the numbers: float32, shape (len(fields),), all finite.

        Raises:
            InputError: this featurizer has no numbers for such a thing.
        """

    @cached_property
    def id(self) -> str:
        """Content id of name, version and fields: numbers under different ids must not be mixed."""
        texts = (text for field in self.fields for text in (field.name, field.unit, field.doc))
        return content_id([self.name, str(self.version), *texts])
