"""CostModel: predicts what configs cost. Models know records, not the insides of devices."""

import abc
import os
from collections.abc import Iterable, Mapping, Sequence, Sized
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Protocol, Self, runtime_checkable

import numpy as np

from tensorwise.device.device import Device, Work
from tensorwise.errors import InputError
from tensorwise.keeping import Keeping
from tensorwise.space.config import Config
from tensorwise.store.record import Record

if TYPE_CHECKING:
    from tensorwise.model.table import Table
    from tensorwise.program.workload import Workload
    from tensorwise.space.space import Space
    from tensorwise.toolchain.cubin import Resources
    from tensorwise.toolchain.routines import Routines

Returns = Literal["score", "ratio", "seconds"]
"""What predictions are: only their order means anything, log2 of times up to a constant of the workload, or times."""
MODEL: Final = Keeping("model")
DESCRIPTION, ARRAYS = MODEL.files
"""The two files of a saved model: what it is, and its numbers."""


class CostModel(abc.ABC, Generic[Work]):
    """Learns from Records and predicts costs; lower is better.

    Use: ``fit`` (each call replaces what was learned before), ``predict``, ``save``; or ``load``, then ``predict``.
    A subclass implements ``fit``, ``predict`` and its state; this class reads and writes files.

    Attributes:
        kind: short and stable name; a saved model carries it.
        version: of the state; a saved model of another version is refused.
        returns: what predictions are.
        reads_resources: predictions use registers and the like of compiled code if given, see ``predict_compiled``.
        routines: compiled routines of this package that predictions need; a tuning compiles them with those of the device.
        table: how configs are read; None where a model does not look into them.
        card: what people should know of a trained model, JSON-able: data, split, metrics, machine, date. Saved with it.
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    returns: Returns
    reads_resources: ClassVar[bool] = False
    routines: "ClassVar[tuple[Routines, ...]]" = ()
    table: "Table | None" = None
    card: Mapping[str, Any] = MappingProxyType({})

    @abc.abstractmethod
    def fit(self, records: Iterable[Record]) -> None:
        """Learn from records; those that did not end ok may be used or ignored.

        Raises:
            InputError: there is nothing to learn from.
        """

    @abc.abstractmethod
    def predict(self, workload: Work, configs: Sequence[Config], device: Device) -> np.ndarray:
        """Return the predicted costs: float64, shape (len(configs),), all finite, lower is better.

        Raises:
            InputError: the model has learned nothing yet, or nothing for such a workload.
        """

    def estimate(
        self, workload: Work, configs: Sequence[Config], device: Device
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the predictions of ``predict``, and the standard deviation of each one's error.

        The latter is in the predictions' unit, or NaN where the model does not know: float64, shape
        (len(configs),). Raises as ``predict``.
        """
        return self.predict(workload, configs, device), np.full(len(configs), np.nan)

    def predict_compiled(
        self,
        workload: Work,
        configs: Sequence[Config],
        device: Device,
        resources: "Sequence[Resources | None]",
    ) -> np.ndarray:
        """Predict as ``predict``, given the resources that a thread of each compiled config uses, such as registers.

        Only models with ``reads_resources`` use them.
        """
        return self.predict(workload, configs, device)

    def misfit(self, space: "Space") -> str | None:
        """Return why the model cannot read configs of ``space``; None if it can, even if it does not know all of them."""
        why = None if self.table is None else self.table.misfit(space)
        return why and f"it was trained for another table of choices than that of space {space.name!r}: {why}"

    def unknown_params(self, space: "Space") -> list[str]:
        """Return what the model does not know of the params of ``space``, a phrase each; empty if it knows them all.

        Such a model predicts less accurately: a param that it does not have is ignored, and a value that it does not know
        counts as the mean of those that it knows.
        """
        return [] if self.table is None else self.table.unknown(space)

    @abc.abstractmethod
    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        """Return all that was learned: JSON-able values and named arrays."""

    @classmethod
    @abc.abstractmethod
    def from_state(cls, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> Self:
        """Make a model from what ``state`` returned.

        Raises:
            InputError: something is missing or malformed; KeyError, TypeError and ValueError are turned
                into it by ``load``.
        """

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the model into ``directory`` (made if absent) as JSON and safetensors.

        The description is written last and names the arrays' checksum: an interrupted save is noticed.

        Raises:
            InputError: the directory cannot be written.
        """
        values, arrays = self.state()
        described = {
            "kind": self.kind,
            "version": self.version,
            "returns": self.returns,
            "card": dict(self.card),
            "values": values,
        }
        MODEL.save(directory, described, arrays)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Read a model of this class back; its predictions are the same.

        Raises:
            InputError: a file is missing, damaged, or of another kind or version of model.
        """
        return MODEL.load(directory, cls.kind, cls.version, cls._from_description)

    @classmethod
    def _from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        model = cls.from_state(described["values"], arrays)
        model.card = dict(described["card"])
        return model


@runtime_checkable
class EmbeddingModel(Protocol):
    """A cost model that embeds configs once and scores them for any workload, so that a graph of them can be searched."""

    def embed_configs(self, configs: Sequence[Config]) -> np.ndarray:
        """Return the embeddings of configs: float32, (n, width). They do not depend on the workload."""

    def embed_pattern(self, workload: "Workload") -> np.ndarray:
        """Return the embedding of a workload's pattern and shape."""

    def score(self, pattern: np.ndarray, configs: np.ndarray) -> np.ndarray:
        """Return scores of embedded configs on an embedded pattern, lower is better: float64, (n,)."""


def check_learned(learned: Sized) -> None:
    """Raise InputError unless a model has ``learned`` something."""
    if not len(learned):
        raise InputError("the model has learned nothing yet; call fit with some records first")


def describe(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the description of the model saved in ``directory``: kind, version, returns, card, values.

    Raises:
        InputError: there is none, or it is malformed.
    """
    return MODEL.describe(directory)
