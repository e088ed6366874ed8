"""Pool: many configs of one space, kept as small numbers, each made when it is asked for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, final, overload

import numpy as np

from tensorwise.errors import InputError
from tensorwise.reading import shown
from tensorwise.space.config import Config, Value, as_value
from tensorwise.space.space import Space

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

MAX_DUPLICATES: Final = 1000
"""Samples in a row that are all known before a pool is as large as it gets."""


@final
@dataclass(frozen=True, eq=False)
class Pool(Sequence[Config]):
    """Different configs over the same params, by row.

    A config takes a byte or two a param; twenty thousand of them are read from a file in no time, and of most of them
    a search only ever sees the row. What goes through all of them more than once makes a list of them first.

    >>> pool = Pool.of([Config({"split": 4, "chunk": None}), Config({"split": 8, "chunk": None})])
    >>> len(pool), str(pool[1])
    (2, 'split=8')

    Attributes:
        values: name of a param -> the values that some config of the pool has.
        choices: uint16, (configs, params): place of each value in ``values``.

    Raises:
        InputError: a choice is not among the values.
    """

    values: Mapping[str, tuple[Value, ...]]
    choices: np.ndarray

    def __post_init__(self) -> None:
        known = np.array([len(values) for values in self.values.values()], np.int64)
        if self.choices.dtype != np.uint16 or self.choices.ndim != 2 or self.choices.shape[1] != len(known):
            raise InputError(
                f"the choices of a pool over {len(known)} params must be uint16 with a column for each, "
                f"got {self.choices.dtype} of shape {self.choices.shape}"
            )
        if len(self.choices) and (self.choices.max(axis=0) >= known).any():
            raise InputError("a choice of the pool is not among its values")

    @classmethod
    def of(cls, configs: Iterable[Mapping[str, Value]]) -> Self:
        """Return the pool of ``configs``; of equal ones the first is kept.

        Raises:
            InputError: the configs are not all over the same params.
        """
        places: dict[str, dict[tuple[type, Value], int]] = {}  # with the type, because True == 1
        rows: dict[tuple[int, ...], None] = {}
        for number, config in enumerate(configs):
            if number == 0:
                places = {name: {} for name in config}
            if config.keys() != places.keys():
                raise InputError(
                    f"the configs of a pool must be of one space; config {number} has "
                    f"{', '.join(config)}, the first one {', '.join(places)}"
                )
            rows[
                tuple(
                    known.setdefault((type(config[name]), config[name]), len(known))
                    for name, known in places.items()
                )
            ] = None
        values = {name: tuple(value for _, value in known) for name, known in places.items()}
        return cls(values, np.array(list(rows), np.uint16).reshape(len(rows), len(places)))

    @classmethod
    def sample(
        cls,
        space: Space,
        workloads: "Sequence[Workload]",
        n: int,
        rng: np.random.Generator,
        *,
        also: Iterable[Mapping[str, object]] = (),
    ) -> Self:
        """Draw a pool of ``n`` configs, for workloads in turn; fewer where the space seems to have no more.

        Args:
            space: where they come from.
            workloads: what they must be valid for, each config for one of them: what is allowed depends on sizes.
            n: configs in the pool.
            rng: decides which.
            also: configs that are in the pool whatever is drawn (of records, or bred), valid for a workload or not.

        Raises:
            InputError: there is no workload, or a config of ``also`` is none of the space.
        """
        if not workloads:
            raise InputError("a pool is drawn for some workloads; got none")
        found = dict.fromkeys(space.parse(config) for config in also)
        repeats = drawn = 0
        while len(found) < n and repeats < MAX_DUPLICATES:
            config = space.sample(workloads[drawn % len(workloads)], rng)
            drawn += 1
            repeats = repeats + 1 if config in found else 0
            found[config] = None
        return cls.of(found)

    def __len__(self) -> int:
        return len(self.choices)

    @overload
    def __getitem__(self, row: int) -> Config: ...
    @overload
    def __getitem__(self, row: slice) -> list[Config]: ...
    def __getitem__(self, row: int | slice) -> Config | list[Config]:
        if isinstance(row, slice):
            return [self[k] for k in range(*row.indices(len(self)))]
        chosen = zip(self.values.items(), self.choices[row].tolist(), strict=True)
        return Config({name: values[place] for (name, values), place in chosen})

    def migrated(self, rows: np.ndarray, space: Space, workload: "Workload") -> list[Config]:
        """Return the configs of ``rows`` as configs of ``space``, each once; see ``Space.migrate``.

        Rows that cannot be migrated are left out.
        """
        found = (space.migrate(self[row], workload) for row in rows.tolist())
        return list(dict.fromkeys(config for config in found if config is not None))

    def to_json(self) -> dict[str, list[Value]]:
        """Return the values as a JSON-able object; ``choices`` is an array of its own."""
        return {name: list(values) for name, values in self.values.items()}

    @classmethod
    def from_json(cls, values: object, choices: np.ndarray) -> Self:
        """Make a pool of what ``to_json`` returned.

        Raises:
            InputError: values or choices are malformed.
        """
        if not isinstance(values, dict) or not all(isinstance(listed, list) for listed in values.values()):
            raise InputError(f"the values of a pool must be lists by name, got {shown(values)}")
        return cls(
            {name: tuple(as_value(name, one) for one in listed) for name, listed in values.items()}, choices
        )
