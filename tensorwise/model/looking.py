"""LookingModel: what models have in common that look at a pattern with a network and score encoded configs for it.

Fitting needs torch, and so does looking at the entries of a pattern; embedding configs and scoring them, which a search
does thousands of times, needs NumPy only, and so does everything that a model with the network ``statistics`` predicts.
"""

import abc
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorwise.data.record import describe
from tensorwise.device.device import Device
from tensorwise.errors import InputError
from tensorwise.model.model import CostModel, check_learned
from tensorwise.model.samples import (
    BLINDED,
    Epoch,
    Group,
    Training,
    featurizer,
    looked_up,
    shape_numbers,
    standardised,
)
from tensorwise.model.scoring import BLIND, embed, look, score, shapes
from tensorwise.model.table import Encoded, Form
from tensorwise.space.config import Config

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

MOST_EMBEDDED: Final = 10_000
"""Embeddings of workloads kept; each takes half a kilobyte."""


class LookingModel(CostModel["Workload"], abc.ABC):
    """Predicts scores whose order within a workload is that of the times. A leaf says how configs are read.

    Args:
        workloads: workload id -> the workload, for the records that are fitted on; `fit` needs it.
        net: name of the network that looks at patterns, in ``nets.NETS``: ``waco``; ``statistics``, which is fast and needs
            no torch to predict; or another one.
        training: see `Training`.
        checkpoint: file from which `fit` goes on after a kill, and which it keeps up to date. A training that was
            finished is not repeated.
        progress: told of each epoch of `fit`.
        torch_device: where torch computes: ``cpu``, ``cuda``.
        heads: how many predictors of scores are trained; their mean is predicted, and `estimate` says how far they disagree.

    Attributes:
        net_name, heads: as given, or as loaded.
        history: the epochs of the last `fit`, saved with the model.
        families: those of the ``training``, and of the ``validation`` that chose the best epoch; saved, too.
    """

    def __init__(
        self,
        workloads: "Callable[[str], Workload] | None" = None,
        *,
        net: str = "waco",
        training: Training | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Callable[[Epoch], None] | None = None,
        torch_device: str = "cpu",
        heads: int = 1,
    ) -> None:
        if heads < 1:
            raise InputError(f"a model has at least one head, got {heads}")
        self.history: tuple[Epoch, ...] = ()
        self.families: dict[str, list[str]] = {"training": [], "validation": []}
        self._order = 2
        self.net_name = net
        self._workloads, self._training = workloads, training or Training()
        self.returns = "ratio" if self._training.loss == "ratio" else "score"
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._progress = progress or (lambda epoch: None)
        self._torch_device, self.heads = torch_device, heads
        self._forget({})

    def _forget(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on with other weights; none at all means that nothing was learned yet."""
        self._arrays = arrays
        # In float64 a config's score does not depend on which other ones are scored with it.
        self._scoring = {
            name.removeprefix("scoring."): array.astype(np.float64)
            for name, array in arrays.items()
            if name.startswith("scoring.")
        }
        self._embedded: dict[str, np.ndarray] = {}
        self._net: Any = None

    # -- what a leaf says ------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def form(self) -> Form:
        """What ``read`` returns."""

    @abc.abstractmethod
    def read(self, workload: "Workload", configs: Sequence[Config]) -> Encoded:
        """Return configs as numbers.

        Raises:
            InputError: a config is none that the model reads.
        """

    # -- learning --------------------------------------------------------------------------------------

    @property
    def _known(self) -> "Callable[[str], Workload]":
        """The workloads that are learned from, by id."""
        return looked_up(self._workloads)

    def _learn(
        self,
        groups: Sequence[Group],
        start: Mapping[str, np.ndarray] | None = None,
        blinded: float = BLINDED,
    ) -> None:
        """Learn from ``groups``; ``start`` and ``blinded`` as ``Trainer`` has them.

        Raises:
            InputError: the loss grew beyond all bounds, or the checkpoint belongs to another training.
            MissingExtraError: torch is not installed.
        """
        known = self._known
        from tensorwise.model.nets import NETS  # needs torch
        from tensorwise.model.training import Trainer

        if self.net_name not in NETS:
            raise InputError(f"there is no network {self.net_name!r}; choose one of {', '.join(NETS)}")
        order = len(groups[0].numbers) - 2
        trainer = Trainer(
            self.net_name,
            order,
            self.form,
            self._described(groups) if self.net_name == "statistics" else groups,
            known,
            self._training,
            self._checkpoint,
            self._progress,
            self._torch_device,
            self.heads,
            start,
            blinded,
        )
        learned = trainer.run()
        self.history, self.families, self._order = tuple(trainer.history), trainer.families, order
        self._forget(learned)

    def _described(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with statistics of their patterns among their numbers."""
        describer = featurizer(len(groups[0].numbers) - 2)
        known: dict[str, np.ndarray] = {}
        for group in groups:
            if group.workload_id not in known:
                known[group.workload_id] = describer.features(self._known(group.workload_id).entries)
        return [
            replace(group, numbers=np.append(group.numbers, known[group.workload_id])) for group in groups
        ]

    # -- predicting ------------------------------------------------------------------------------------

    def predict(self, workload: "Workload", configs: Sequence[Config], device: Device) -> np.ndarray:
        return self.estimate(workload, configs, device)[0]

    def estimate(
        self, workload: "Workload", configs: Sequence[Config], device: Device
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of the heads' scores and their standard deviation, NaN with a single head: float64, (n,) each."""
        scores = self._all_scores(workload, configs)
        return scores.mean(axis=0), scores.std(axis=0) if len(scores) > 1 else np.full(len(configs), np.nan)

    def scores(self, group: Group) -> np.ndarray:
        """Return what is predicted for the configs of a group that ``read`` encoded: float64, (n,).

        Raises: as `predict`.
        """
        pattern = self.embed_pattern(self._known(group.workload_id))
        embedded = embed(self._scoring, group.configs).astype(np.float32)
        mean: np.ndarray = self._scores(pattern, embedded, group.configs.nests).mean(axis=0)
        return mean

    def embed_pattern(self, workload: "Workload") -> np.ndarray:
        """Return the embedding of a workload's pattern and shape: float32, (EMBEDDING,). It is computed once.

        Raises:
            InputError: nothing was learned yet, or from tensors of another order.
            MissingExtraError: torch is not installed.
        """
        check_learned(self._arrays)
        if workload.id not in self._embedded:
            while len(self._embedded) >= MOST_EMBEDDED:
                self._embedded.pop(next(iter(self._embedded)))
            self._embedded[workload.id] = self._look(workload)
        return self._embedded[workload.id]

    def _all_scores(self, workload: "Workload", configs: Sequence[Config]) -> np.ndarray:
        """Of each head, with everything that is known: (heads, n)."""
        pattern, encoded = self.embed_pattern(workload), self.read(workload, configs)
        return self._scores(pattern, embed(self._scoring, encoded).astype(np.float32), encoded.nests)

    def _scores(
        self, pattern: np.ndarray, configs: np.ndarray, nests: np.ndarray | None = None
    ) -> np.ndarray:
        """(heads, n)."""
        check_learned(self._arrays)
        scores: np.ndarray = score(
            self._scoring,
            pattern.astype(np.float64),
            configs.astype(np.float64),
            None if nests is None else nests.astype(np.float64),
        )
        return scores

    @property
    def _numbers(self) -> dict[str, np.ndarray]:
        return {name: self._arrays[f"numbers.{name}"] for name in ("mean", "std")}

    def _look(self, workload: "Workload") -> np.ndarray:
        numbers = shape_numbers(describe(workload))
        if len(numbers) - 2 != self._order:
            raise InputError(
                f"the model has learned from tensors of order {self._order}; the sparse operand has order "
                f"{len(numbers) - 2}"
            )
        if self.net_name == "statistics":
            numbers = np.append(numbers, featurizer(self._order).features(workload.entries))
        numbers = standardised(numbers, self._numbers)
        if self.net_name in BLIND:
            try:
                embedded: np.ndarray = look(self._net_arrays, numbers).astype(np.float32)
            except (KeyError, ValueError) as error:
                raise InputError(f"the model's weights do not fit its network: {error}") from error
            return embedded
        return self._look_with_torch(workload, numbers)

    @property
    def _net_arrays(self) -> dict[str, np.ndarray]:
        return {
            name.removeprefix("net."): array
            for name, array in self._arrays.items()
            if name.startswith("net.")
        }

    def _look_with_torch(self, workload: "Workload", numbers: np.ndarray) -> np.ndarray:
        from tensorwise.model.nets import new_net
        from tensorwise.model.torch_extra import torch

        if self._net is None:
            net = new_net(self.net_name, self._order, len(numbers), 0)
            try:
                net.load_state_dict(
                    {name: torch.from_numpy(array) for name, array in self._net_arrays.items()}
                )
            except RuntimeError as error:
                raise InputError(f"the model's weights do not fit its network: {error}") from error
            self._net = net.to(self._torch_device)
        with torch.no_grad():
            about = torch.from_numpy(numbers[None]).to(self._torch_device)
            prepared = self._net.prepare([workload.entries], self._torch_device)
            embedded: np.ndarray = self._net(prepared, about)[0].cpu().numpy()
        return embedded

    # -- files -----------------------------------------------------------------------------------------

    def _looks(self) -> dict[str, object]:
        """What ``state`` says of all but the reading of configs."""
        return {
            "net": self.net_name,
            "loss": self._training.loss,
            "order": self._order,
            "features": featurizer(self._order).id if self.net_name == "statistics" else None,
            "history": [epoch.to_json() for epoch in self.history],
            "families": self.families,
        }

    def _take_up(self, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> None:
        """Go on with what ``_looks`` and the arrays of ``state`` said."""
        history, families, order = values["history"], values["families"], values["order"]
        if not (isinstance(history, list) and isinstance(families, dict) and isinstance(order, int)):
            raise TypeError(
                f"malformed history, families or order: {history!r:.80}, {families!r:.80}, {order!r:.80}"
            )
        if self.net_name == "statistics" and values["features"] != featurizer(order).id:
            raise InputError("the model has learned from other statistics of patterns; train it again")
        self._order = order
        self.history = tuple(Epoch.from_json(row) for row in history)
        self.families = {part: list(map(str, families[part])) for part in self.families}
        if arrays:
            self._forget(dict(arrays))
            self._check_arrays()

    def _check_arrays(self) -> None:
        self.heads = len(self._scoring["head.0.weight"])
        wanted = shapes(self.form, self.heads)
        got = {name: array.shape for name, array in self._scoring.items()}
        mean, std = self._numbers["mean"], self._numbers["std"]
        if got != wanted or mean.ndim != 1 or mean.shape != std.shape or not (std > 0).all():
            raise InputError(f"the arrays are not those of a {self.kind} model with this table")
        if broken := [name for name, array in self._arrays.items() if not np.isfinite(array).all()]:
            raise InputError(f"the array {broken[0]} is not finite")
