"""Reader: turns the configs of one space into numbers that have the same meaning on every device, as far as possible.

COGNATE (section 3) reads a config in two parts. The shared part is strip-mined loops, which all devices have: the space's
mapper translates a config into loops. The other part is the choices that only this device has: an autoencoder, trained for
the device and the operation, encodes them in a fixed number of numbers. We add counts of what the loops touch of a pattern.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tensorwise.analysis.footprint import FIELDS, Footprints
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.model.samples import Group, groups_of
from tensorwise.model.table import Encoded, Form, Table
from tensorwise.space.config import Config, Value
from tensorwise.space.strips import LOOPS, Mapper, Strips, modes
from tensorwise.store.record import Record

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

LATENT: Final = 64
"""Numbers that stand for a device's own choices (COGNATE, table 6)."""
SHARED: Final = 3 + len(LOOPS) ** 2
"""Numbers that stand for the strips: three splits, and which loop stands where (COGNATE has 53, one without a name)."""
SCALE: Final = 1 / 8
"""Logarithms enter networks times this, so that all numbers are of about one size."""

Layers = tuple[tuple[np.ndarray, np.ndarray], ...]
"""Weights (inputs, outputs) and bias (outputs,) of each layer of an encoder; between layers, what is negative becomes 0."""


@final
@dataclass(frozen=True)
class Reader:
    """How the configs of one space are read on the workloads of one operation.

    Attributes:
        table: of the space.
        mapper: translates a config into strip-mined loops (``space/strips.py``), the part that all devices share; None:
            there is no such part.
        layers: weights of the latent encoder; if empty, the choices that only this device has are ignored.
        footprints: whether to count which elements of operands the loops touch.
    """

    table: Table
    mapper: Mapper | None
    layers: Layers = ()
    footprints: bool = True
    _last: dict[str, Footprints] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def form(self) -> Form:
        """What `encode` returns."""
        about = [self.table.id, repr(self.mapper and self.mapper.to_json()), str(self.footprints)]
        arrays = [array for layer in self.layers for array in layer]
        latent = self.layers[-1][1].shape[0] if self.layers else LATENT
        return Form(content_id([*about, *arrays]), (), (SHARED, latent), len(FIELDS))

    def encode(self, workload: "Workload", configs: Sequence[Config]) -> Encoded:
        """Return configs as numbers: no values to look up, strips and latent numbers as orders, footprints as nests.

        Raises:
            InputError: the table does not read a config; see `Table.encode`.
        """
        shared = np.zeros((len(configs), SHARED), np.float32)
        touched = np.zeros((len(configs), len(FIELDS)), np.float32)
        own = self.latent(self.own(configs))
        if self.mapper is not None:
            dense = workload.sizes[modes(workload)[2]]
            for row, config in enumerate(configs):
                strips = self.mapper.strips(workload, config)
                shared[row] = _numbers(strips)
                if self.footprints:
                    touched[row] = SCALE * np.log2(1 + self._of(workload, self.mapper).of(strips, dense))
        return Encoded(np.zeros((len(configs), 0), np.int64), (shared, own), touched)

    def groups(
        self, records: Iterable[Record], space: str | None, known: "Callable[[str], Workload]"
    ) -> list[Group]:
        """Return the groups that ``groups_of`` makes, of configs that this reads on workloads ``known`` by id."""
        return groups_of(records, space, self.table, lambda one, configs: self.encode(known(one), configs))

    def own(self, configs: Sequence[Mapping[str, Value]]) -> np.ndarray:
        """Return the choices that loops do not express, one-hot: float32, (configs, width).

        An unknown value is encoded as an equal share of each known one. Barriers and reordering are included: the loops
        express them, but not all that they change on a device.

        Raises:
            InputError: the table does not read a config; see `Table.encode`.
        """
        encoded = self.table.encode(configs)
        tokens = self.table.tokens(encoded)
        seen = set(self.mapper.splits if self.mapper else ())
        parts = [np.zeros((len(configs), 0), np.float32)]
        for column, param in enumerate(self.table.listed):
            if param.name not in seen:
                parts.append(_one_hot(param.range.size)[tokens[:, column]])
        for permutation, order in zip(self.table.permutations, encoded.orders, strict=True):
            if self.mapper is None or permutation.name != self.mapper.order:
                parts.append(order)
        return np.concatenate(parts, axis=1)

    def latent(self, own: np.ndarray) -> np.ndarray:
        """Return what the encoder makes of own choices: float32, (configs, LATENT)."""
        if not self.layers:
            return np.zeros((len(own), LATENT), np.float32)
        seen = own.astype(
            np.float64
        )  # so that a config's numbers do not depend on which others are read with it
        for place, (weight, bias) in enumerate(self.layers):
            seen = (seen.clip(min=0) if place else seen) @ weight + bias
        return seen.astype(np.float32)

    def _of(self, workload: "Workload", mapper: Mapper) -> Footprints:
        """The footprints of a workload; those of the last one are kept."""
        if workload.id not in self._last:
            self._last.clear()
            self._last[workload.id] = Footprints(workload.entries, mapper.processors)
        return self._last[workload.id]

    @staticmethod
    def counts(configs: Encoded) -> np.ndarray:
        """Return the footprints of configs that were read, as they were counted: float64, (configs, len(FIELDS))."""
        counts: np.ndarray = np.expm1(np.log(2) / SCALE * np.asarray(configs.nests, np.float64))
        return counts

    # -- files -----------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, object]:
        """Return all but the arrays, JSON-able."""
        mapper = None if self.mapper is None else self.mapper.to_json()
        return {
            "table": self.table.to_json(), "space": self.table.space, "mapper": mapper, "footprints": self.footprints,
            "form": self.form.id,
        }  # fmt: skip

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the encoder's arrays by name."""
        names = itertools.product(range(len(self.layers)), ("weight", "bias"))
        return {f"latent.{place}.{what}": self.layers[place][what == "bias"] for place, what in names}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Reader":
        """Read back what ``to_json`` and ``arrays`` returned.

        Raises:
            InputError: it is malformed (or KeyError, TypeError, ValueError).
        """
        mapper = None if data["mapper"] is None else Mapper.from_json(data["mapper"])
        count = sum(name.startswith("latent.") for name in arrays) // 2
        layers = tuple((arrays[f"latent.{k}.weight"], arrays[f"latent.{k}.bias"]) for k in range(count))
        reader = cls(
            Table.from_json(data["table"], data.get("space")), mapper, layers, bool(data["footprints"])
        )
        if any(weight.ndim != 2 or bias.shape != weight.shape[1:] for weight, bias in layers):
            raise InputError("the arrays of the latent encoder do not fit each other")
        if reader.form.id != data["form"]:
            raise InputError("the table, mapper or encoder is not the one that the model was trained with")
        return reader


def _one_hot(values: int) -> np.ndarray:
    """Return the numbers of each token of a param with so many values: float32, (n + 2, n + 1), UNKNOWN_TOKEN's last."""
    unknown = np.full((1, 1 + values), 1 / values, np.float32)
    unknown[0, 0] = 0
    return np.concatenate([np.eye(1 + values, dtype=np.float32), unknown])


def _numbers(strips: Strips) -> np.ndarray:
    """Strips as numbers: logarithms of the splits, and for each loop its place."""
    places = np.eye(len(LOOPS), dtype=np.float32)[[strips.order.index(loop) for loop in LOOPS]]
    return np.append(SCALE * np.log2(strips.splits), places).astype(np.float32)
