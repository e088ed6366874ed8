"""Which families are learned from, choose, and judge, in all experiments: ``experiments/splits.toml``, and its last sets.

A last set is opened once. Whoever opens it says so by a flag, and a line of ``experiments/last-sets.log`` is committed with
the figures; until then nothing reads it, and no record has one of its names.
"""

import datetime
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Self, final

from tensorwise.errors import InputError
from tensorwise.store.origins import PARTS, Origins, SealedError
from tensorwise.store.record import Record
from tensorwise.tasks.architectures import ARCHITECTURES

PATH: Final = Path(__file__).parents[1] / "experiments" / "splits.toml"
LOG: Final = PATH.with_name("last-sets.log")
"""A line for each opening: date, set, what for."""


@final
@dataclass(frozen=True)
class Splits:
    """The division.

    Attributes:
        origins: families of patterns, and the parts that they are in.
        groups: family that crosses groups of the corpus's manifest -> all groups that hold one of its members.
        networks: part -> families of networks.
        judged: networks of the test families that figures are of.
        last: set -> its files, patterns and networks, as in the file.
    """

    origins: Origins
    groups: Mapping[str, tuple[str, ...]]
    networks: Mapping[str, tuple[str, ...]]
    judged: tuple[str, ...]
    last: Mapping[str, Mapping[str, Any]]

    @classmethod
    def load(cls, path: Path = PATH) -> Self:
        """Read a file. Raises InputError as `Origins.load`."""
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        groups = {name: tuple(one["groups"]) for name, one in data["families"].items()}
        networks = {part: tuple(data["networks"][part]) for part in PARTS}
        return cls(Origins.load(path), groups, networks, tuple(data["networks"]["judged"]), data["last"])

    @property
    def patterns(self) -> Mapping[str, tuple[str, ...]]:
        """Part -> families of patterns."""
        return self.origins.parts

    def family(self, name: str, group: str = "") -> str:
        """Return the family of a pattern that a corpus lists in ``group``. Raises SealedError as `Origins.family`."""
        return self.origins.family(name, group)

    def part(self, name: str, group: str = "") -> str:
        """Return the part of a pattern. Raises InputError where its family is in none, and as `family`."""
        return self.origins.part(self.family(name, group))

    def met(self, groups: Collection[str]) -> frozenset[str]:
        """Return the families of which something may be in these groups of the manifest: what a model that says it has
        learned from them may have seen.
        """
        crossing = {name for name, some in self.groups.items() if not set(groups).isdisjoint(some)}
        return frozenset({*groups, *crossing})

    def networks_of(self, part: str) -> tuple[str, ...]:
        """Return the networks of the families of a part, the judged ones first."""
        found = [name for name, one in ARCHITECTURES.items() if one.family in self.networks[part]]
        return tuple(sorted(found, key=lambda name: name not in self.judged))

    def sealed(self) -> dict[str, str]:
        """Return the names of patterns and networks of the last sets -> which set."""
        return {name: which for which, one in self.last.items() for name in (*one["made"], *one["networks"])}

    def refuse(self, names: Iterable[str], opened: str = "") -> None:
        """Refuse names of a last set other than ``opened``, also augmented ones (``~``) and networks with a batch (``-b1``).

        Raises:
            SealedError: there is one.
        """
        sealed = self.sealed()
        for name in names:
            which = (
                sealed.get(name) or sealed.get(name.partition("~")[0]) or sealed.get(name.rpartition("-b")[0])
            )
            if which and which != opened:
                raise SealedError(
                    f"{name} is of the last set {which!r}, which nothing may learn from; to be judged by it, "
                    f"once, open it: experiments/last/run.py ... --open {which} --for 'what'"
                )

    def open(self, which: str, purpose: str, log: Path = LOG) -> Mapping[str, Any]:
        """Return a last set, and note in the log that it was opened; the same purpose may go on.

        Raises:
            SealedError: it was opened before, for something else.
            InputError: there is no such set, or no purpose.
        """
        if which not in self.last or not purpose.strip() or "\n" in purpose:
            raise InputError(
                f"expected one of {', '.join(self.last)} and a line that says what for, got {which!r}, {purpose!r}"
            )
        for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
            day, opened, before = line.split("\t")
            if opened == which and before != purpose.strip():
                raise SealedError(
                    f"the last set {which!r} was opened on {day}, for {before!r}: it is no test any more"
                )
            if opened == which:
                return self.last[which]
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.datetime.now(datetime.UTC).date()}\t{which}\t{purpose.strip()}\n")
        return self.last[which]


@cache
def splits() -> Splits:
    """Return the division that all experiments share."""
    return Splits.load()


def with_networks(values: dict[str, Any]) -> dict[str, Any]:
    """Return ``values`` with the networks that are ``held_out`` and ``judged``; where it names none, those of the split."""
    shared = splits()
    held_out = values.get("held_out", list(shared.networks_of("test")))
    judged = list(shared.judged) if "held_out" not in values else held_out
    shared.refuse([*held_out, *judged])
    return {"judged": judged, **values, "held_out": held_out}


def family_of(record: Record) -> str:
    """Return the family of the pattern of a record. Raises SealedError as `Splits.family`."""
    facts = record.provenance
    return splits().family(str(facts.get("pattern", "")), str(facts.get("family", "")))
