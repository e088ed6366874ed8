"""The null model: the mean, whatever the config. A model that is no better has learned nothing."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Self, final

import numpy as np

from tensorwise.device.device import Device
from tensorwise.errors import InputError
from tensorwise.model.model import CostModel, Returns, check_learned
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tensorwise.units import SHORTEST_S

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload


@final
class MeanModel(CostModel):
    """Predicts the geometric mean time of the records of the same operation and device.

    If there are none, of the records of the same device; else of the same operation; else of all records.
    """

    kind: ClassVar[str] = "mean"
    returns: Returns = "seconds"

    def __init__(self) -> None:
        self._log_seconds: dict[tuple[str, str], float] = {}

    def fit(self, records: Iterable[Record]) -> None:
        logs: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for record in records:
            if record.ok:
                value = math.log(max(record.seconds, SHORTEST_S))
                for key in _keys(record.op, record.device_id):
                    logs[key].append(value)
        if not logs:
            raise InputError("there is no record with status ok to learn from; measure something first")
        self._log_seconds = {key: math.fsum(values) / len(values) for key, values in logs.items()}

    def predict(self, workload: "Workload", configs: Sequence[Config], device: Device) -> np.ndarray:
        check_learned(self._log_seconds)
        known = next(key for key in _keys(workload.op, device.id) if key in self._log_seconds)
        return np.full(len(configs), math.exp(self._log_seconds[known]))

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        keys = sorted(self._log_seconds)
        return {"keys": [list(key) for key in keys]}, {
            "log_seconds": np.array([self._log_seconds[key] for key in keys])
        }

    @classmethod
    def from_state(cls, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> Self:
        keys, logs = values["keys"], arrays["log_seconds"]
        if not isinstance(keys, list) or logs.shape != (len(keys),) or not np.isfinite(logs).all():
            raise InputError(f"expected one finite mean for each key, got {keys!r:.80} and {logs!r:.80}")
        model = cls()
        model._log_seconds = {
            (str(op), str(device)): float(log) for (op, device), log in zip(keys, logs, strict=True)
        }
        if model._log_seconds and ("", "") not in model._log_seconds:
            raise InputError("the mean of all records is missing")
        return model


def _keys(op: str, device_id: str) -> tuple[tuple[str, str], ...]:
    """What a record counts for, and a prediction asks for, from special to general."""
    return (op, device_id), ("", device_id), (op, ""), ("", "")
