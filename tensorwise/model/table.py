"""Table: the part of a Space that a model keeps, so that it can encode configs without the Space.

A table remains usable when its space changes (decision 0128). Params and items of orders that it does not have are ignored.
A value that it does not have, or a Param missing from a config, is encoded as unknown: as the mean of all known values.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast, final

import numpy as np

from tensorwise.analysis.nest import ProgramNest
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.reading import shown
from tensorwise.space.config import Value, show
from tensorwise.space.param import ListedParam, Param
from tensorwise.space.params import Choice, Permutation
from tensorwise.space.space import Space

UNKNOWN_TOKEN: Final = -1
"""The token of a value that the table does not have, and of a Param that the config does not have."""
LEAST_SHARED: Final = 0.5
"""Least share of the Params that a table and a space must have in common: half of the larger one's."""
SAVED: Final = "as it was when the model learned"
"""The sentence of a Param that is read back: its reasons stay with the Space."""


@final
@dataclass(frozen=True)
class Encoded:
    """Configs as a network takes them.

    Attributes:
        values: int64, (configs, listed params): rows of one lookup table for all params. After the rows with learned weights
            comes one row for each listed param, for its unknown values.
        orders: for each permutation float32, (configs, items * items + 1): row-major item x place, and 1 if it applies.
            Other models keep other numbers about configs there.
        nests: float32, (configs, numbers): counts of what the loops do on one workload; None if not known. They are not part
            of a config's embedding, which is the same for all workloads.
    """

    values: np.ndarray
    orders: tuple[np.ndarray, ...]
    nests: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: np.ndarray) -> "Encoded":
        """Return some of the configs."""
        nests = None if self.nests is None else self.nests[rows]
        return Encoded(self.values[rows], tuple(order[rows] for order in self.orders), nests)


@final
@dataclass(frozen=True)
class Form:
    """What ``Encoded`` configs look like, as far as weights depend on it.

    Attributes:
        id: content id of what decides how configs are encoded.
        rows: for each column of ``values``, how many learned rows the lookup table has: "does not apply", then the values.
        orders: the width of each of ``orders``.
        nest: columns of ``nests``.
    """

    id: str
    rows: tuple[int, ...]
    orders: tuple[int, ...]
    nest: int

    @property
    def lookups(self) -> int:
        """Rows of the lookup table that are learned."""
        return sum(self.rows)


@final
@dataclass(frozen=True)
class Table:
    """The Params of a Space: every value that a listed one can take, every item that an order has.

    Two spaces whose tables have one id are encoded alike.

    Attributes:
        params: one for each choice.
        space: name of the space; None where it is not known.

    >>> from tensorwise.space.config import Config
    >>> from tensorwise.space.params import Flag
    >>> flag = Flag("bound", binds="compile", doc="Compile the extent in.")
    >>> table = Table((flag,))
    >>> table.encode([Config({"bound": None}), Config({"bound": True})]).values.tolist()
    [[0], [2]]
    """

    params: tuple[Param, ...]
    space: str | None = None

    @classmethod
    def of(cls, space: "Space | Table") -> "Table":
        """Return the table of a space."""
        return space if isinstance(space, Table) else cls(space.params, space.name)

    @cached_property
    def listed(self) -> tuple[ListedParam, ...]:
        """Params whose values are looked up."""
        return tuple(param for param in self.params if isinstance(param, ListedParam))

    @cached_property
    def permutations(self) -> tuple[Permutation, ...]:
        """Params whose values are orders."""
        return tuple(param for param in self.params if isinstance(param, Permutation))

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """Rows of the lookup table of each listed param: one for "does not apply", and one for each value."""
        return tuple(1 + param.range.size for param in self.listed)

    @cached_property
    def offsets(self) -> np.ndarray:
        """The first row of each listed param in the lookup table: int64, (listed params,)."""
        firsts: np.ndarray = np.cumsum([0, *self.rows])[:-1]
        return firsts

    @cached_property
    def id(self) -> str:
        """Content id of what decides how configs are encoded."""
        return content_id([json.dumps(self.to_json())])

    @cached_property
    def form(self) -> Form:
        """What ``encode`` returns."""
        orders = tuple(len(param.items) ** 2 + 1 for param in self.permutations)
        return Form(self.id, self.rows, orders, len(ProgramNest().fields) + 1)

    def encode(self, configs: Sequence[Mapping[str, Value]]) -> Encoded:
        """Return configs as numbers, whatever the workload: what their loops do is not known.

        Params that the table does not have are left out. Unknown values are rows behind the learned ones; of an order the
        unknown items are left out; an order of which nothing is known has each item at each place equally.

        Raises:
            InputError: a config has too few of the table's params, or a value of another kind than the param's values.
        """
        for names in {tuple(config) for config in configs}:
            if why := self._foreign(names):
                raise InputError(f"the config is of another table of choices than the model: {why}")
        tokens = np.empty((len(configs), len(self.listed)), np.int64)
        for column, param in enumerate(self.listed):
            tokens[:, column] = [self._one(param, config)[0] for config in configs]
        orders = [
            np.array([self._one(param, config) for config in configs], np.float32).reshape(
                len(configs), len(param.items) ** 2 + 1
            )
            for param in self.permutations
        ]
        unknown = self.form.lookups + np.arange(len(self.listed))
        return Encoded(np.where(tokens == UNKNOWN_TOKEN, unknown, tokens + self.offsets), tuple(orders))

    def tokens(self, encoded: Encoded) -> np.ndarray:
        """Return the values of encoded configs param by param: 0 "does not apply", 1 the first value, or UNKNOWN_TOKEN.

        int64, (configs, listed params).
        """
        known = encoded.values < self.form.lookups
        return np.where(known, encoded.values - self.offsets, UNKNOWN_TOKEN)

    def fits(self, config: Mapping[str, Value]) -> bool:
        """Whether ``encode`` reads every choice of a config, and nothing of it is unknown: such configs are learned from."""
        if config.keys() != self.by_name.keys():
            return False
        return all(param.misfit(config[param.name]) is None for param in self.params)

    def reads(self, config: Mapping[str, Value]) -> bool:
        """Whether ``encode`` accepts a config, however much of it is unknown."""
        try:
            self.encode([config])
        except InputError:
            return False
        return True

    @cached_property
    def by_name(self) -> dict[str, Param]:
        """The params by name."""
        return {param.name: param for param in self.params}

    def misfit(self, space: "Space | Table") -> str | None:
        """Return why this table cannot read configs of ``space``; None if it can, however much of them is unknown."""
        now = Table.of(space)
        for name, param in now.by_name.items():
            known = self.by_name.get(name)
            if known is not None and not _kinds(known) & _kinds(param):
                return f"parameter {name} has values of another kind there"
        if None not in (self.space, now.space) and self.space != now.space and self.unknown(now):
            return f"its table is of space {self.space!r}"
        return self._foreign(now.by_name)

    def unknown(self, space: "Space | Table") -> list[str]:
        """Return what this table does not know of ``space``, and what ``space`` does not have any more: a phrase each."""
        now = Table.of(space).by_name
        found = [f"parameter {name} is new" for name in now if name not in self.by_name]
        found += [f"parameter {name} is gone" for name in self.by_name if name not in now]
        for name, param in now.items():
            known = {(type(value), value) for value in _vocabulary(self.by_name.get(name, param))}
            new = [show(value) for value in _vocabulary(param) if (type(value), value) not in known]
            found += [f"{', '.join(new)} of parameter {name} is new"] if new else []
        return found

    def _foreign(self, names: Collection[str]) -> str | None:
        """Return why params of these names belong to another table; None if enough of them are shared."""
        shared = sum(name in self.by_name for name in names)
        if not self.params or shared >= LEAST_SHARED * max(len(names), len(self.params)):
            return None
        return (
            f"the {len(names)} parameters there and the {len(self.params)} of the model's table have {shared} in common, "
            f"and at least {LEAST_SHARED:.0%} of the larger number are needed"
        )

    @cached_property
    def _number_cache(self) -> dict[tuple[str, type, Value], list[float]]:
        """Numbers of values met before: there are few different ones, met often."""
        return {}

    def _one(self, param: Param, config: Mapping[str, Value]) -> list[float]:
        try:
            value = config[param.name]
        except KeyError:
            return self._unknown(param)
        key = (param.name, type(value), value)  # with the type, because True == 1
        if key not in self._number_cache:
            self._number_cache[key] = self._numbers(param, value)
        return self._number_cache[key]

    def _numbers(self, param: Param, value: Value) -> list[float]:
        if isinstance(param, Permutation):
            known = (
                tuple(item for item in value if item in param.items) if isinstance(value, tuple) else value
            )
            if problem := param.misfit(known):
                raise InputError(f"{param.name}: {problem}; the model was made for another table of choices")
            # An order's matrix asks for no workload.
            return self._unknown(param) if known == () else param.encode(known, cast(Any, None))
        problem = param.misfit(value)
        if problem and type(value) not in _kinds(param):
            raise InputError(f"{param.name}: {problem}; the model was made for another table of choices")
        return self._unknown(param) if problem else [float(param.tokens(value)[0])]

    @staticmethod
    def _unknown(param: Param) -> list[float]:
        """The numbers of a value of which nothing is known."""
        if isinstance(param, Permutation):
            cells = len(param.items) ** 2
            return [*[1 / len(param.items)] * cells, 1.0]
        return [float(UNKNOWN_TOKEN)]

    def to_json(self) -> list[dict[str, object]]:
        """Return the rows as JSON-able objects: name, and values or items."""
        rows: list[dict[str, object]] = []
        for param in self.params:
            if isinstance(param, ListedParam):
                rows.append({"name": param.name, "values": list(param.range)})
            elif isinstance(param, Permutation):
                rows.append({"name": param.name, "items": list(param.items), "beside": dict(param.beside)})
            else:
                raise InputError(
                    f"{param.name}: a model reads listed params and orders, not {type(param).__name__}"
                )
        return rows

    @classmethod
    def from_json(cls, rows: object, space: str | None = None) -> "Table":
        """Read back what ``to_json`` returned; ``space``: name of the space, where it is known.

        Raises:
            InputError: it is malformed (or KeyError, TypeError).
        """
        if not isinstance(rows, list):
            raise InputError(f"a table is a list of rows, got {shown(rows)}")
        params: list[Param] = []
        for row in rows:
            if "values" in row:
                values = tuple(tuple(v) if isinstance(v, list) else v for v in row["values"])
                params.append(Choice(row["name"], values, binds="call", doc=SAVED))
            else:
                items, beside = tuple(row["items"]), dict(row["beside"])
                params.append(Permutation(row["name"], items, beside=beside, binds="call", doc=SAVED))
        return cls(tuple(params), space)


def _vocabulary(param: Param) -> tuple[Value, ...]:
    """What a param's values are made of: the values themselves, or the items of an order."""
    if isinstance(param, Permutation):
        return param.items
    return tuple(param.range) if isinstance(param, ListedParam) else ()


def _kinds(param: Param) -> set[type]:
    """What kinds of values a param has: to a model, a Choice of numbers and a PowerOfTwo are of one kind."""
    return {type(value) for value in param.range} if isinstance(param, ListedParam) else {type(param)}
