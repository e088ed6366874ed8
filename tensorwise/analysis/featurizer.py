"""Featurizer: describe a thing by numbers, each with a name, a unit and a sentence."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Generic, TypeVar, final

import numpy as np

from tensorwise.ids import content_id

Described = TypeVar("Described", contravariant=True)
"""What a featurizer describes: `Entries` for patterns."""

FORMER_IDS: Final[Mapping[str, str]] = {
    "063088fa0d320fefb890096fa6e6188b": "30487e9aea8a780dcb0ce0975bb4d23c",
    "8c3819f234e6f82c6bf7ff10ad59baed": "b7c2d5035040fe56e172424ffd99c4c1",
    "20e1db8adfdb26259e07c79bed973e55": "1499e17969960dddf9da64447edccb7e",
    "9e9242d1f97cb8a058e3debc35b666cf": "7896b11fb334751b1bc9f637c9e54f72",
    "182b7008898d22207491c518453e702c": "3459713739044c9736c3a4243391d6aa",
    "10e0491ec61484d9911ca562edc357e1": "6b188dd6526b9cd47d4b33060d46ca62",
}
"""Id in models that were saved before 29 November 2026 -> id of the same numbers today.

An id depended on the sentences of the fields, too, and some fields had other names.
"""


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
    """Turns a thing into numbers: always as many, always finite, the same on every machine up to rounding.

    Attributes:
        name: short and stable; it enters the id, which saved models carry.
        version: increase it when a field of the same name and unit gets another value for the same thing.
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
        """Content id of the name, the version and the fields' names and units, in order.

        Numbers under different ids must not be mixed. The sentences of the fields do not count, so that a sentence can
        be improved without making trained models unreadable.
        """
        texts = (text for field in self.fields for text in (field.name, field.unit))
        return content_id([self.name, str(self.version), *texts])

    def has_id(self, stored: object) -> bool:
        """Return whether an id that a saved model carries is this featurizer's, now or formerly (`FORMER_IDS`)."""
        return stored == self.id or (isinstance(stored, str) and FORMER_IDS.get(stored) == self.id)
