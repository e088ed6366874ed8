"""CostModel: predicts what configs cost. Models know records, not the insides of devices."""

import abc
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from tensorwise.data.record import Record
from tensorwise.device.device import Device
from tensorwise.errors import InputError
from tensorwise.space.config import Config
from tensorwise.writing import replacing

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

DESCRIPTION, ARRAYS = "model.json", "model.safetensors"
"""The two files of a saved model: what it is, and its numbers."""

MOST_DESCRIPTION_BYTES = 64 * 2**20
"""A longer description is not read: ours are kilobytes."""


class CostModel(abc.ABC):
    """Learns from Records and predicts costs; lower is better.

    Lifetime: ``fit`` (again and again: each call replaces what was learned before), ``predict``, ``save``;
    or ``load``, then ``predict``. A leaf gives ``fit``, ``predict`` and its state; files are dealt with here.

    Attributes:
        kind: short and stable name; a saved model carries it.
        version: of the state; a saved model of another version is refused.
        returns: ``seconds`` if predictions are times, ``score`` if only their order means anything.
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    returns: ClassVar[Literal["score", "seconds"]]

    @abc.abstractmethod
    def fit(self, records: Iterable[Record]) -> None:
        """Learn from records; those that did not end ok may be used or ignored.

        Raises:
            InputError: there is nothing to learn from.
        """

    @abc.abstractmethod
    def predict(self, workload: "Workload", configs: Sequence[Config], device: Device) -> np.ndarray:
        """Return the predicted costs: float64, shape (len(configs),), all finite, lower is better.

        Raises:
            InputError: the model has learned nothing yet, or nothing for such a workload.
        """

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
        from safetensors.numpy import save  # only models that are saved or loaded need it

        values, arrays = self.state()
        data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        described = {
            "kind": self.kind,
            "version": self.version,
            "returns": self.returns,
            "sha256": hashlib.sha256(data).hexdigest(),
            "values": values,
        }
        folder = Path(directory)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(described, indent=1, allow_nan=False).encode()
            for name, content in ((ARRAYS, data), (DESCRIPTION, text)):
                with replacing(folder / name) as file:
                    file.write(content)
        except OSError as error:
            raise InputError(f"the model cannot be saved in {folder}: {error.strerror or error}") from error

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Read a model of this class back; its predictions are the same.

        Raises:
            InputError: a file is missing, damaged, or of another kind or version of model.
        """
        described = describe(directory)
        folder = Path(directory)
        if described["kind"] != cls.kind or described.get("version") != cls.version:
            raise InputError(
                f"{folder} holds a model {described['kind']!r} of version {described.get('version')!r}, "
                f"expected {cls.kind!r} of version {cls.version}"
            )
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            data = (folder / ARRAYS).read_bytes()
            if hashlib.sha256(data).hexdigest() != described.get("sha256"):
                raise InputError(
                    f"{folder / ARRAYS} is damaged or belongs to another model; save the model again"
                )
            return cls.from_state(described["values"], load(data))  # type: ignore[arg-type]
        except OSError as error:
            raise InputError(f"{folder / ARRAYS} cannot be read: {error.strerror or error}") from error
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"the model in {folder} is damaged: {error!r}; save the model again") from error


def describe(directory: str | os.PathLike[str]) -> dict[str, object]:
    """Return the description of the model saved in ``directory``: kind, version, returns, values.

    Raises:
        InputError: there is none, or it is malformed.
    """
    path = Path(directory) / DESCRIPTION
    try:
        with path.open("rb") as file:
            text = file.read(MOST_DESCRIPTION_BYTES + 1)
    except OSError as error:
        raise InputError(f"there is no model in {Path(directory)}: {error.strerror or error}") from error
    try:
        if len(text) > MOST_DESCRIPTION_BYTES:
            raise ValueError("too long")
        described = json.loads(text)
        if not isinstance(described, dict) or not isinstance(described["kind"], str):
            raise TypeError("no object with a kind")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} does not describe a model: {error}; save the model again") from error
    return described
