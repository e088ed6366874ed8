"""TransferModel: COGNATE's cost model. It is trained on one device and fine-tuned on a few samples of another.

The network of the pattern, the loops and the counts of what they touch have the same meaning on every device; only the
latent encoder is trained anew for each. Fitting needs torch; with the network ``statistics``, predicting needs NumPy only.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast, final

import numpy as np

from tensorwise.model.model import check_learned
from tensorwise.model.neural import NeuralCostModel
from tensorwise.model.reader import LATENT, Reader
from tensorwise.model.samples import Epoch, Group, Loss, Training
from tensorwise.model.table import Encoded, Form, Table
from tensorwise.space.config import Config
from tensorwise.space.space import Space
from tensorwise.store.record import Record

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

PRETRAINING: Final = Training(epochs=30, learning_rate=1e-3, loss="ratio", validation=0.0)
"""How a model learns on the first device."""
TUNING: Final = Training(epochs=100, learning_rate=1e-3, batch=64, loss="ratio", validation=0.0)
"""Training settings of the fine-tuning on another device."""


@final
class TransferModel(NeuralCostModel):
    """Predicts scores for the configs of one device, and can be fine-tuned for another.

    Args:
        space: whose configs are read; or a reader that was made before.
        workloads, net, training, checkpoint, progress, torch_device, heads: see `NeuralCostModel`.

    Attributes:
        reader: how configs are read; its encoder is trained by `fit`.

    COGNATE, section 3, with the network that is given in the place of its input featurizer.
    """

    kind: ClassVar[str] = "transfer"

    def __init__(
        self,
        space: Space | Reader,
        workloads: "Callable[[str], Workload] | None" = None,
        *,
        net: str = "statistics",
        training: Training = PRETRAINING,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Callable[[Epoch], None] | None = None,
        torch_device: str = "cpu",
        heads: int = 1,
    ) -> None:
        super().__init__(
            workloads,
            net=net,
            training=training,
            checkpoint=checkpoint,
            progress=progress,
            torch_device=torch_device,
            heads=heads,
        )
        self._space = space if isinstance(space, Space) else None
        self.reader = space if isinstance(space, Reader) else Reader(Table.of(space), None)
        self.table = self.reader.table

    @property
    def form(self) -> Form:
        return self.reader.form

    def encode(self, workload: "Workload", configs: Sequence[Config]) -> Encoded:
        return self.reader.encode(workload, configs)

    def fit(self, records: Iterable[Record]) -> None:
        """Learn from scratch; records as for `RankingModel`, of one operation.

        Raises:
            InputError: nothing can be compared, there is no function for patterns, the loss grew beyond all bounds, or the
                checkpoint belongs to another training.
            MissingExtraError: torch is not installed.
        """
        self.learn(self.groups(list(records)))

    def transferred(
        self,
        space: Space,
        records: Iterable[Record],
        workloads: "Callable[[str], Workload]",
        *,
        training: Training = TUNING,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Callable[[Epoch], None] | None = None,
    ) -> "TransferModel":
        """Return a model for another device that goes on from this one with a few of its records.

        Args:
            space: of the other device; it may be the same one.
            records, workloads: of the other device, and what they are about.
            training: how it goes on; checkpoint, progress: of that.

        Raises:
            InputError: as `fit`, or this model has learned nothing yet.
        """
        check_learned(self._arrays)
        model = type(self)(
            space, workloads, net=self.net_name, training=training, checkpoint=checkpoint,
            progress=progress, torch_device=self._torch_device, heads=self.heads,
        )  # fmt: skip
        model.learn(model.groups(list(records)), self)
        return model

    def groups(self, records: Sequence[Record]) -> list[Group]:
        """Return what can be learned of records; the reader is made for them where a space was given.

        Raises:
            InputError: no two configs of any job can be compared.
        """
        if self._space is not None and records:
            self.reader = self._train_reader(self._space, records)
        return self.reader.groups(
            records, None if self._space is None else self._space.name, self._workload_of
        )

    def learn(self, groups: Sequence[Group], start: "TransferModel | None" = None) -> None:
        """Learn from groups that the reader made; from scratch, or from where ``start`` ended.

        Raises: as `fit`.
        """
        self._learn(groups, None if start is None else start.learned, blinded=0.0)

    @property
    def learned(self) -> dict[str, np.ndarray]:
        """Weights by name, and mean and deviation of the numbers about workloads."""
        return dict(self._arrays)

    def _train_reader(self, space: Space, records: Sequence[Record]) -> Reader:
        """Train the latent encoder of a space."""
        from tensorwise.model.latent import autoencoder

        table = Table.of(space)
        work = self._workload_of(records[0].workload_id)
        reader = Reader(table, space.mapper(work))
        configs = {record.config for record in records if record.space == space.name}
        own = np.unique(reader.own([config for config in configs if table.fits(config)]), axis=0)
        if not own.size:
            return reader
        return replace(reader, layers=autoencoder(own, LATENT, self._training.seed))

    # -- files -----------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        return {**self._looks(), "reader": self.reader.to_json()}, {**self._arrays, **self.reader.arrays()}

    @classmethod
    def from_state(cls, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> Self:
        reader = Reader.from_json(cast(Mapping[str, Any], values["reader"]), arrays)
        training = replace(PRETRAINING, loss=cast(Loss, values["loss"]))
        model = cls(reader, net=str(values["net"]), training=training)
        model._take_up(
            values, {name: array for name, array in arrays.items() if not name.startswith("latent.")}
        )
        return model
