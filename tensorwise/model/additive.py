"""AdditiveModel: seconds as a sum of counted costs, each at its rate, none of them negative. Needs SciPy only.

From a few matrices, a network as in COGNATE also learns what is special to these matrices, and training it on another device
first did not help here (decision 0122). This model therefore reads only counts of what a device does with
the pattern under a config: multiplications, started rows, values fetched into each cache. The time is their weighted sum.
A sum also holds for patterns unlike those in the training data, where products and powers of the counts would be far off.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast, final

import numpy as np
from scipy.optimize import nnls

from tensorwise.analysis.footprint import FIELDS
from tensorwise.analysis.walks import WALKING
from tensorwise.device.device import Device
from tensorwise.errors import InputError
from tensorwise.model.model import CostModel, check_learned
from tensorwise.model.reader import Reader
from tensorwise.model.samples import Group, looked_up
from tensorwise.model.table import Encoded, Table
from tensorwise.space.config import Config
from tensorwise.space.space import Space
from tensorwise.space.strips import Mapper
from tensorwise.store.record import Record
from tensorwise.toolchain.routines import Routines

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

COSTS: Final = 1 + len(FIELDS)
"""What adds to the seconds: beginning at all, and what a footprint counts."""
RIDGE: Final = 3e-5
"""Weight of the squares of rates, where each cost is one over all that was learned from: decides between equals."""
OWN_PENALTY: Final = 10.0
"""How many times heavier rates are that hold for one of a device's own choices only."""
SMALLEST_COST: Final = 1e-300
"""Seconds where nothing costs anything."""


@final
class AdditiveModel(CostModel["Workload"]):
    """Predicts log2 of seconds, up to a constant for each workload, from counts of what a config makes the device do.

    Each count has a rate in seconds; each choice that only this device has, where it is taken, adds to the rates.

    Args:
        space: whose configs are read; or a reader, whose encoder leaves own choices as they are.
        workloads: workload id -> the workload; `fit` needs it.

    Attributes:
        reader: how configs are read.
        rates: of the terms: float64, (terms,), seconds each; empty while nothing was learned.
    """

    kind: ClassVar[str] = "additive"
    routines: ClassVar[tuple[Routines, ...]] = (WALKING,)
    returns = "ratio"

    def __init__(self, space: Space | Reader, workloads: "Callable[[str], Workload] | None" = None) -> None:
        self._space = space if isinstance(space, Space) else None
        self.reader = space if isinstance(space, Reader) else plain_reader(Table.of(space), None)
        self.table = self.reader.table
        self._workloads = workloads
        self.rates = np.empty(0)

    def fit(self, records: Iterable[Record]) -> None:
        """Learn the times that are known and within ten times a job's best.

        Raises:
            InputError: nothing can be compared, or there is no function for patterns.
        """
        self.learn(self.groups(list(records)))

    def groups(self, records: Sequence[Record]) -> list[Group]:
        """Return what can be learned of records; the reader is made for them where a space was given.

        Raises:
            InputError: no two configs of any job can be compared, or there is no function for patterns.
        """
        known, space = looked_up(self._workloads), self._space
        if space is not None and records:
            self.reader = self.make_reader(space, known(records[0].workload_id))
        return self.reader.groups(records, None if space is None else space.name, known)

    @staticmethod
    def make_reader(space: Space, workload: "Workload") -> Reader:
        """Return how configs of a space are read on such workloads."""
        return plain_reader(Table.of(space), space.mapper(workload))

    def learn(self, groups: Sequence[Group]) -> None:
        """Learn from groups that the reader made.

        The fit minimises relative errors, with equal weight for each workload.

        Raises:
            InputError: no two times are known.
        """
        parts = []
        for group in groups:
            near = group.near
            if (known := np.count_nonzero(near)) > 1:
                parts.append(terms_of(group.configs)[near] / (group.seconds[near] * np.sqrt(known))[:, None])
        if not parts:
            raise InputError(
                "no two times of any workload are known and near each other; measure more configs"
            )
        a = np.concatenate(parts)
        b = np.concatenate([np.full(len(part), len(part) ** -0.5) for part in parts])
        size = np.linalg.norm(a[:, :COSTS], axis=0)
        sizes = np.tile(np.where(size > 0, size, 1.0), a.shape[1] // COSTS)
        a /= sizes
        weight = RIDGE * np.where(np.arange(len(sizes)) < COSTS, 1.0, OWN_PENALTY)
        products = a.T @ a
        products[np.diag_indices_from(products)] += weight
        factor = np.linalg.cholesky(products)
        wanted = np.linalg.solve(factor, a.T @ b)
        self.rates = nnls(factor.T, wanted, maxiter=100 * len(sizes))[0] / sizes

    def predict(self, workload: "Workload", configs: Sequence[Config], device: Device) -> np.ndarray:
        return self._scores(self.reader.encode(workload, configs))

    def scores(self, group: Group) -> np.ndarray:
        """Return what is predicted for the configs of a group that the reader made: float64, (n,)."""
        return self._scores(group.configs)

    def _scores(self, configs: Encoded) -> np.ndarray:
        check_learned(self.rates)
        scores: np.ndarray = np.log2(np.maximum(terms_of(configs) @ self.rates, SMALLEST_COST))
        return scores

    # -- files -----------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        return {"reader": self.reader.to_json()}, {"rates": self.rates, **self.reader.arrays()}

    @classmethod
    def from_state(cls, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> Self:
        model = cls(Reader.from_json(cast(Mapping[str, Any], values["reader"]), arrays))
        rates = arrays["rates"]
        wanted = COSTS * (1 + model.reader.form.orders[1])
        if rates.shape not in ((0,), (wanted,)) or not (np.isfinite(rates).all() and (rates >= 0).all()):
            raise InputError("the rates are not those of an additive model with this table")
        model.rates = rates.astype(np.float64)
        return model


def plain_reader(table: Table, mapper: Mapper | None) -> Reader:
    """Return a reader whose latent numbers are the own choices themselves."""
    width = Reader(table, mapper).own([]).shape[1]
    return Reader(table, mapper, ((np.eye(width, dtype=np.float32), np.zeros(width, np.float32)),))


def terms_of(configs: Encoded) -> np.ndarray:
    """Return costs, and for each own choice the costs where it is taken: float64, (n, terms)."""
    own = np.asarray(configs.orders[1], np.float64)
    costs = np.column_stack([np.ones(len(own)), Reader.counts(configs)])
    crossed = own[:, :, None] * costs[:, None, :]
    return np.concatenate([costs, crossed.reshape(len(own), own.shape[1] * COSTS)], axis=1)
