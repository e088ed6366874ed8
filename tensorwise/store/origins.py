"""Families by origin: everything derived from a matrix or graph belongs to its family, whatever group a corpus lists it in.

A corpus may list a graph and a tensor made from it, or a matrix and its normal equations, in two groups. Augmented patterns
and tensors made from a matrix are named ``MATRIX~HOW`` and belong to the family of the matrix.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Self, final

from tensorwise.errors import InputError
from tensorwise.reading import read_bytes, reading
from tensorwise.store.record import Record

PARTS: Final = ("train", "validation", "test")


class SealedError(InputError):
    """What belongs to a sealed test set was about to be read without its being opened."""


@final
@dataclass(frozen=True)
class Origins:
    """Families and the parts that they are in.

    Attributes:
        members: family -> shell patterns of the names of its members.
        parts: part -> families.
        sealed: name -> the sealed set that has it.
    """

    members: Mapping[str, tuple[str, ...]]
    parts: Mapping[str, tuple[str, ...]]
    sealed: Mapping[str, str]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a TOML file: ``patterns`` (part -> families), ``families.NAME.members``, ``last.SET.made`` (names).

        Raises:
            InputError: the file cannot be read, lacks a part, or has a family in two parts.
        """
        expected = "expected [patterns] with train, validation and test, and [families.NAME] with members"
        what = "does not divide families"
        text = read_bytes(path, what)
        with reading(f"{path}: {what}", expected):
            data = tomllib.loads(text.decode())
            members = {str(name): tuple(map(str, one["members"])) for name, one in data["families"].items()}
            parts = {part: tuple(map(str, data["patterns"][part])) for part in PARTS}
            last = data.get("last", {}).items()
            sealed = {str(name): str(which) for which, one in last for name in one["made"]}
        every = [family for families in parts.values() for family in families]
        if twice := sorted({family for family in every if every.count(family) > 1}):
            raise InputError(f"{path}: {', '.join(twice)}: in two parts; a family is in one")
        return cls(members, parts, sealed)

    def family(self, name: str, group: str = "") -> str:
        """Return the family of a pattern, or ``group`` where no family has its name.

        Args:
            name: of the pattern; behind ``~`` stands how it was made from another.
            group: what its corpus calls its family.

        Raises:
            SealedError: the pattern is of a sealed set.
        """
        original = name.partition("~")[0]
        if original in self.sealed:
            raise SealedError(
                f"{name} is of the sealed set {self.sealed[original]!r}, which nothing may learn from; a sealed set is for "
                "judging, once, when it was opened"
            )
        for family, members in self.members.items():
            if any(fnmatchcase(original, member) for member in members):
                return family
        return group

    def part(self, family: str, pattern: str = "") -> str:
        """Return the part of a family; ``pattern``: one of it, for the message.

        Raises:
            InputError: it is in none.
        """
        for part, families in self.parts.items():
            if family in families:
                return part
        such = f" (its pattern {pattern} is among no family's members)" if pattern else ""
        raise InputError(
            f"the family {family!r} is in no part{such}; add it to one of {', '.join(self.parts)}"
        )

    def relabelled(self, records: Iterable[Record]) -> list[Record]:
        """Return records whose families are origins. Raises as `family`."""
        found = []
        for record in records:
            facts = record.provenance
            family = self.family(str(facts.get("pattern", "")), str(facts.get("family", "")))
            found.append(replace(record, provenance={**facts, "family": family}))
        return found
