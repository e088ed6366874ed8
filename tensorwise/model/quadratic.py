"""QuadraticModel: scores as a quadratic function of footprints and own choices, fitted in closed form. Needs NumPy only.

What COGNATE learns by gradients from a few matrices, a network does not keep apart from what is particular about these
matrices. Here the times of configs on one workload are compared, and all that is known of the workload is what configs touch
of it: there is little to learn, and a handful of matrices says it. A model of another device says where the fit begins.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast, final

import numpy as np

from tensorwise.data.record import Record
from tensorwise.device.device import Device
from tensorwise.errors import InputError
from tensorwise.features.footprint import FIELDS
from tensorwise.model.model import CostModel, check_learned
from tensorwise.model.reader import Reader
from tensorwise.model.samples import Group, looked_up
from tensorwise.model.table import Encoded, Table
from tensorwise.space.config import Config
from tensorwise.space.space import Space
from tensorwise.space.strips import Mapper

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

RIDGE: Final = 3.0
"""Weight of the squares of what is added to the weights that a fit begins with."""
SHARPNESS: Final = 3.0
"""A config counts for as much as its speed to this power: which of the fast ones is the fastest, is what is asked."""
COMMON: Final = len(FIELDS) * (len(FIELDS) + 3) // 2
"""Terms of footprints alone, which mean the same on every device."""


@final
class QuadraticModel(CostModel["Workload"]):
    """Predicts log2 of times up to a constant of the workload, from what configs touch of its pattern.

    Args:
        space: whose configs are read; or a reader, whose encoder leaves own choices as they are.
        workloads: workload id -> the workload; `fit` needs it.

    Attributes:
        reader: how configs are read.
        weights: of the terms: float64, (terms,); empty while nothing was learned.
    """

    kind: ClassVar[str] = "quadratic"
    returns = "ratio"

    def __init__(self, space: Space | Reader, workloads: "Callable[[str], Workload] | None" = None) -> None:
        self._space = space if isinstance(space, Space) else None
        self.reader = space if isinstance(space, Reader) else plain_reader(Table.of(space), None)
        self.table = self.reader.table
        self._workloads = workloads
        self.weights = np.empty(0)

    def fit(self, records: Iterable[Record]) -> None:
        """Learn from scratch, the ratios of times that are known and within ten times a job's best.

        Raises:
            InputError: nothing can be compared, or there is no function for patterns.
        """
        self.learn(self.groups(list(records)))

    def transferred(
        self, space: Space, records: Iterable[Record], workloads: "Callable[[str], Workload]"
    ) -> "QuadraticModel":
        """Return a model of another device, whose fit to a few of its records begins with the common terms of this one.

        Raises:
            InputError: as `fit`, or this model has learned nothing yet.
        """
        model = type(self)(space, workloads)
        model.learn(model.groups(list(records)), self)
        return model

    def groups(self, records: Sequence[Record]) -> list[Group]:
        """Return what can be learned of records; the reader is made for them where a space was given.

        Raises:
            InputError: no two configs of any job can be compared, or there is no function for patterns.
        """
        known, space = looked_up(self._workloads), self._space
        if space is not None and records:
            self.reader = self.made(space, known(records[0].workload_id))
        return self.reader.groups(records, None if space is None else space.name, known)

    @staticmethod
    def made(space: Space, workload: "Workload") -> Reader:
        """Return how configs of a space are read on such workloads."""
        return plain_reader(Table.of(space), space.mapper(workload))

    def learn(self, groups: Sequence[Group], start: "QuadraticModel | None" = None) -> None:
        """Learn from groups that the reader made; from scratch, or beginning with the common terms of ``start``.

        Raises:
            InputError: ``start`` has learned nothing yet, or no two times are known.
        """
        terms, logs = [], []
        for group in groups:
            near = group.near
            if np.count_nonzero(near) > 1:
                of, took = terms_of(group.configs)[near], np.log2(group.seconds[near])
                counts = np.exp2(SHARPNESS * (took.min() - took))
                share, root = counts / counts.sum(), np.sqrt(counts)
                terms.append((of - share @ of) * root[:, None])
                logs.append((took - share @ took) * root)
        if not terms:
            raise InputError(
                "no two times of any workload are known and near each other; measure more configs"
            )
        a, b = np.concatenate(terms), np.concatenate(logs)
        begun = np.zeros(a.shape[1])
        if start is not None:
            begun[:COMMON] = start._checked()[:COMMON]
        missing = b - a @ begun
        if len(a) < a.shape[1]:
            added = a.T @ np.linalg.solve(a @ a.T + RIDGE * np.eye(len(a)), missing)
        else:
            added = np.linalg.solve(a.T @ a + RIDGE * np.eye(a.shape[1]), a.T @ missing)
        self.weights = begun + added

    def predict(self, workload: "Workload", configs: Sequence[Config], device: Device) -> np.ndarray:
        weights = self._checked()
        scores: np.ndarray = terms_of(self.reader.read(workload, configs)) @ weights
        return scores

    def scores(self, group: Group) -> np.ndarray:
        """Return what is predicted for the configs of a group that the reader made: float64, (n,)."""
        scores: np.ndarray = terms_of(group.configs) @ self._checked()
        return scores

    def _checked(self) -> np.ndarray:
        check_learned(self.weights)
        return self.weights

    # -- files -----------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        return {"reader": self.reader.to_json()}, {"weights": self.weights, **self.reader.arrays()}

    @classmethod
    def from_state(cls, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> Self:
        model = cls(Reader.from_json(cast(Mapping[str, Any], values["reader"]), arrays))
        weights = arrays["weights"]
        wanted = COMMON + model.reader.form.orders[1] * (1 + len(FIELDS))
        if weights.shape not in ((0,), (wanted,)) or not np.isfinite(weights).all():
            raise InputError("the weights are not those of a quadratic model with this table")
        model.weights = weights.astype(np.float64)
        return model


def plain_reader(table: Table, mapper: Mapper | None) -> Reader:
    """Return a reader whose latent numbers are the own choices themselves."""
    width = Reader(table, mapper).own([]).shape[1]
    return Reader(table, mapper, ((np.eye(width, dtype=np.float32), np.zeros(width, np.float32)),))


def terms_of(configs: Encoded) -> np.ndarray:
    """Return footprints, their products, own choices, and their products with footprints: float64, (n, terms)."""
    touched, own = np.asarray(configs.nests, np.float64), configs.orders[1].astype(np.float64)
    i, j = np.triu_indices(touched.shape[1])
    crossed = (own[:, :, None] * touched[:, None, :]).reshape(len(own), own.shape[1] * touched.shape[1])
    return np.concatenate([touched, touched[:, i] * touched[:, j], own, crossed], axis=1)
