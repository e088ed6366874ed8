"""A model that knows nothing: to check what a search owes to its model."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Self, final

import numpy as np

from tensorwise.device.device import Device
from tensorwise.model.model import CostModel, Returns
from tensorwise.space.config import Config
from tensorwise.store.record import Record

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload


@final
class RandomModel(CostModel):
    """Predicts random scores in [0, 1), always the same for the same seed, workload, config and device.

    Args:
        seed: of the random scores.
    """

    kind: ClassVar[str] = "random"
    returns: Returns = "score"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def fit(self, records: Iterable[Record]) -> None:
        """Learn nothing."""

    def predict(self, workload: "Workload", configs: Sequence[Config], device: Device) -> np.ndarray:
        lots = (f"{self._seed} {workload.id} {device.id} {config.id}".encode() for config in configs)
        digests = (hashlib.blake2b(lot, digest_size=8).digest() for lot in lots)
        return np.array([(int.from_bytes(digest, "big") >> 11) / 2**53 for digest in digests], float)

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        return {"seed": self._seed}, {}

    @classmethod
    def from_state(cls, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> Self:
        seed = values["seed"]
        if not isinstance(seed, int):
            raise TypeError(f"seed must be an integer, got {seed!r}")
        return cls(seed)
