"""Table: what a model keeps of a Space to read its configs, without the Space: values by number, orders as matrices."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.features.nest import ProgramNest
from tensorwise.ids import content_id
from tensorwise.reading import shown
from tensorwise.space.config import Value
from tensorwise.space.param import ListedParam, Param
from tensorwise.space.params import Choice, Permutation
from tensorwise.space.space import Space

SAVED = "as it was when the model learned"
"""The sentence of a Param that is read back: its reasons stay with the Space."""


@final
@dataclass(frozen=True)
class Encoded:
    """Configs as a network takes them.

    Attributes:
        values: int64, (configs, listed params): rows of one lookup table for all params.
        orders: for each permutation float32, (configs, items * items + 1): row-major item x place, and 1 if it applies.
            Other models have other numbers of configs there.
        nests: float32, (configs, numbers): what their loops do on one workload; None where that is not known. No part of a
            config's embedding, which is the same for all workloads.
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
        listed: columns of ``values``; lookups: rows of the lookup table.
        orders: the width of each of ``orders``.
        nest: columns of ``nests``.
    """

    id: str
    listed: int
    lookups: int
    orders: tuple[int, ...]
    nest: int


@final
@dataclass(frozen=True)
class Table:
    """The Params of a Space: every value that a listed one can take, every item that an order has.

    Two spaces whose tables have one id are encoded alike.

    >>> from tensorwise.space.config import Config
    >>> from tensorwise.space.params import Flag
    >>> flag = Flag("bound", binds="compile", doc="Compile the extent in.")
    >>> table = Table((flag,))
    >>> table.encode([Config({"bound": None}), Config({"bound": True})]).values.tolist()
    [[0], [2]]
    """

    params: tuple[Param, ...]

    @classmethod
    def of(cls, space: "Space | Table") -> "Table":
        """Return the table of a space."""
        return space if isinstance(space, Table) else cls(space.params)

    @cached_property
    def listed(self) -> tuple[ListedParam, ...]:
        """Params whose values are looked up."""
        return tuple(param for param in self.params if isinstance(param, ListedParam))

    @cached_property
    def permutations(self) -> tuple[Permutation, ...]:
        """Params whose values are orders."""
        return tuple(param for param in self.params if isinstance(param, Permutation))

    @cached_property
    def offsets(self) -> np.ndarray:
        """The first row of each listed param in the lookup table: int64, (listed params,)."""
        firsts: np.ndarray = np.cumsum([0] + [1 + param.range.size for param in self.listed])[:-1]
        return firsts

    @property
    def lookups(self) -> int:
        """Rows of the lookup table: each listed param has one for each value and one for "does not apply"."""
        return sum(1 + param.range.size for param in self.listed)

    @cached_property
    def id(self) -> str:
        """Content id of what decides how configs are encoded."""
        return content_id([json.dumps(self.to_json())])

    @cached_property
    def form(self) -> Form:
        """What ``encode`` returns."""
        orders = tuple(len(param.items) ** 2 + 1 for param in self.permutations)
        return Form(self.id, len(self.listed), self.lookups, orders, len(ProgramNest().fields) + 1)

    def encode(self, configs: Sequence[Mapping[str, Value]]) -> Encoded:
        """Return configs as numbers, whatever the workload: what their loops do is not known.

        Raises:
            InputError: a config lacks a param, or has a value that the param could not take when the table was made.
        """
        values = np.empty((len(configs), len(self.listed)), np.int64)
        for column, param in enumerate(self.listed):
            values[:, column] = [self._one(param, config)[0] for config in configs]
        orders = [
            np.array([self._one(param, config) for config in configs], np.float32).reshape(
                len(configs), len(param.items) ** 2 + 1
            )
            for param in self.permutations
        ]
        return Encoded(values + self.offsets, tuple(orders))

    def fits(self, config: Mapping[str, Value]) -> bool:
        """Whether ``encode`` takes a config, and no choice of it would go unseen."""
        try:
            self.encode([config])
        except InputError:
            return False
        return len(config) == len(self.params)

    @cached_property
    def _seen(self) -> dict[tuple[str, type, Value], list[float]]:
        """Numbers of values met before: there are few different ones, met often."""
        return {}

    def _one(self, param: Param, config: Mapping[str, Value]) -> list[float]:
        try:
            value = config[param.name]
        except KeyError:
            raise InputError(
                f"the config lacks {param.name}, which the model's table has; got {config}"
            ) from None
        key = (param.name, type(value), value)  # with the type, because True == 1
        if key not in self._seen:
            if problem := param.misfit(value):
                raise InputError(f"{param.name}: {problem}; the model was made for another table of choices")
            if isinstance(param, Permutation):
                self._seen[key] = param.encode(
                    value, cast(Any, None)
                )  # an order's matrix asks for no workload
            else:
                self._seen[key] = [float(param.tokens(value)[0])]
        return self._seen[key]

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
    def from_json(cls, rows: object) -> "Table":
        """Read back what ``to_json`` returned.

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
        return cls(tuple(params))
