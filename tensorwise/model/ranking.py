"""RankingModel: WACO's cost model. It looks at the pattern itself, and scores configs so that faster ones score lower.

Fitting needs torch, and so does looking at the entries of a pattern; embedding configs and scoring them, which a search
does thousands of times, needs NumPy only, and so does everything that a model with the network ``statistics`` predicts.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast, final

import numpy as np

from tensorwise.data.record import Record, describe
from tensorwise.device.device import Device
from tensorwise.errors import InputError
from tensorwise.model.model import CostModel
from tensorwise.model.samples import (
    Epoch,
    Group,
    Loss,
    Training,
    featurizer,
    groups_of,
    shape_numbers,
    standardised,
)
from tensorwise.model.scoring import BLIND, EMBEDDING, embed, look, score, seen_last, shapes
from tensorwise.model.table import Encoded, Table
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.space.space import Space

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

CPU: Final = "cpu"
"""Name of the space that knows how many steps its configs take."""
LAST: Final = "head.2.weight"
"""The weights of the last layers."""
MOST_EMBEDDED: Final = 10_000
"""Embeddings of workloads kept; each takes half a kilobyte."""


@final
class RankingModel(CostModel):
    """Predicts scores whose order within a workload is that of the times. What differs between devices is not seen.

    Args:
        space: whose configs are ranked; its table is kept with the model, so that a loaded one needs no space.
        workloads: workload id -> the workload, for the records that are fitted on; `fit` needs it.
        net: name of the network that looks at patterns, in ``nets.NETS``: ``waco``; ``statistics``, which is fast and needs
            no torch to predict; or for comparison ``numbers``, ``dense`` or ``resnet``.
        training: see `Training`.
        checkpoint: file from which `fit` goes on after a kill, and which it keeps up to date. A training that was
            finished is not repeated.
        progress: told of each epoch of `fit`.
        torch_device: where torch computes: ``cpu``, ``cuda``.
        heads: how many predictors of scores are trained; their mean is predicted, and `spread` says how far they disagree.

    Attributes:
        net_name, heads: as given, or as loaded.
        table: how configs are read.
        history: the epochs of the last `fit`, saved with the model.
        families: those of the ``training``, and of the ``validation`` that chose the best epoch; saved, too.

    WACO, sections 4.1 and 4.2. Every pair of configs of one workload is a sample; a workload's numbers and every
    convolution's mean stand for its pattern, lookup tables and matrices for its config.
    """

    kind: ClassVar[str] = "ranking"

    def __init__(
        self,
        space: Space | Table,
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
        self.table = Table.of(space)
        self.history: tuple[Epoch, ...] = ()
        self.families: dict[str, list[str]] = {"training": [], "validation": []}
        self._order = 2
        self.net_name = net
        self._space = space.name if isinstance(space, Space) else None
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

    def fit(self, records: Iterable[Record]) -> None:
        """Learn the order of the configs of each workload.

        Of censored and failed configs only those that were faster for certain are learned. Records of other spaces and of
        other tables of choices are ignored.

        Raises:
            InputError: nothing can be compared, there is no function for patterns, the loss grew beyond all bounds, or the
                checkpoint belongs to another training.
            MissingExtraError: torch is not installed.
        """
        known = self._workloads
        if known is None:
            raise InputError(
                "the model cannot look at patterns: give it workloads=, a function from ids to workloads"
            )
        steps = (lambda name, configs: self.steps(known(name), configs)) if self._space == CPU else None
        groups = groups_of(records, self._space, self.table, steps)
        from tensorwise.model.nets import NETS  # needs torch
        from tensorwise.model.training import Trainer

        if self.net_name not in NETS:
            raise InputError(f"there is no network {self.net_name!r}; choose one of {', '.join(NETS)}")
        order = len(groups[0].numbers) - 2
        trainer = Trainer(
            self.net_name,
            order,
            self.table,
            self._described(groups, known) if self.net_name == "statistics" else groups,
            known,
            self._training,
            self._checkpoint,
            self._progress,
            self._torch_device,
            self.heads,
        )
        learned = trainer.run()
        self.history, self.families, self._order = tuple(trainer.history), trainer.families, order
        numbers = {f"numbers.{name}": array for name, array in trainer.numbers.items()}
        self._forget({**learned, **numbers})

    @staticmethod
    def _described(groups: Sequence[Group], workloads: "Callable[[str], Workload]") -> list[Group]:
        """The groups with statistics of their patterns among their numbers."""
        describer = featurizer(len(groups[0].numbers) - 2)
        known: dict[str, np.ndarray] = {}
        for group in groups:
            if group.workload_id not in known:
                known[group.workload_id] = describer.features(workloads(group.workload_id).entries)
        return [
            replace(group, numbers=np.append(group.numbers, known[group.workload_id])) for group in groups
        ]

    # -- predicting ------------------------------------------------------------------------------------

    def predict(self, workload: "Workload", configs: Sequence[Config], device: Device) -> np.ndarray:
        mean: np.ndarray = self._all_scores(workload, configs).mean(axis=0)
        return mean

    def spread(self, workload: "Workload", configs: Sequence[Config], device: Device) -> np.ndarray:
        """Return the standard deviation of the heads' scores: float64, (n,); NaN with a single head."""
        scores = self._all_scores(workload, configs)
        spread: np.ndarray = scores.std(axis=0) if len(scores) > 1 else np.full(len(configs), np.nan)
        return spread

    def misfit(self, space: Space) -> str | None:
        if Table.of(space).id == self.table.id:
            return None
        return f"it was trained for another table of choices than that of space {space.name!r}"

    def embed_pattern(self, workload: "Workload") -> np.ndarray:
        """Return the embedding of a workload's pattern and shape: float32, (EMBEDDING,). It is computed once.

        Raises:
            InputError: nothing was learned yet, or from tensors of another order.
            MissingExtraError: torch is not installed.
        """
        self._check_learned()
        if workload.id not in self._embedded:
            while len(self._embedded) >= MOST_EMBEDDED:
                self._embedded.pop(next(iter(self._embedded)))
            self._embedded[workload.id] = self._look(workload)
        return self._embedded[workload.id]

    def embed_configs(self, configs: Sequence[Config]) -> np.ndarray:
        """Return the embeddings of configs: float32, (len(configs), EMBEDDING). They do not depend on the workload.

        Raises:
            InputError: nothing was learned yet, or a config is none of the table.
        """
        self._check_learned()
        embedded: np.ndarray = embed(self._scoring, self.table.encode(configs)).astype(np.float32)
        return embedded

    def score(self, pattern: np.ndarray, configs: np.ndarray) -> np.ndarray:
        """Return scores as far as they can be known without the workload itself, lower is better: float64, (n,).

        That is less than ``predict`` knows, which counts steps, and takes microseconds: walks go by it.

        Args:
            pattern: what `embed_pattern` returned, (EMBEDDING,).
            configs: what `embed_configs` returned, or some rows of it: (n, EMBEDDING).
        """
        mean: np.ndarray = self._scores(pattern, configs).mean(axis=0)
        return mean

    def steps(self, workload: "Workload", configs: Sequence[Config]) -> np.ndarray:
        """Return how many steps configs take on a workload, as ``Encoded`` has them: float32, (n, 2)."""
        known = np.zeros((len(configs), 2), np.float32)
        if self._space == CPU:
            space = cpu_space(workload.assignment, next(iter(workload.sparse)))
            bounds = [max(space.steps(workload, config), 1) for config in configs]
            known[:, 0], known[:, 1] = np.log2(np.array(bounds, float) / max(workload.terms, 1)), 1
        return known

    def seen_last(self, workload: "Workload", configs: Encoded) -> np.ndarray:
        """Return what the last layer of each head sees of encoded configs: float64, (heads, n, width)."""
        pattern = self.embed_pattern(workload).astype(np.float64)
        seen: np.ndarray = seen_last(self._scoring, pattern, embed(self._scoring, configs), configs.steps)
        return seen

    @property
    def last_layers(self) -> np.ndarray:
        """The weights that make scores of what ``seen_last`` returns, up to a constant: float64, (heads, width)."""
        self._check_learned()
        weights: np.ndarray = self._scoring[LAST][:, :, 0]
        return weights

    def with_last_layers(self, weights: np.ndarray) -> "RankingModel":
        """Return the model with other last layers; embeddings, and graphs made of them, stay what they are.

        Args:
            weights: float64, as ``last_layers``.

        Raises:
            InputError: they are of another shape, or not finite.
        """
        values, arrays = self.state()
        given = {f"scoring.{LAST}": weights[:, :, None].astype(np.float32)}
        made = type(self).from_state(values, {**arrays, **given})
        made.card = self.card
        return made

    def _all_scores(self, workload: "Workload", configs: Sequence[Config]) -> np.ndarray:
        """Of each head, with everything that is known: (heads, n)."""
        pattern, embedded = self.embed_pattern(workload), self.embed_configs(configs)
        return self._scores(pattern, embedded, self.steps(workload, configs))

    def _scores(
        self, pattern: np.ndarray, configs: np.ndarray, steps: np.ndarray | None = None
    ) -> np.ndarray:
        """(heads, n)."""
        self._check_learned()
        scores: np.ndarray = score(
            self._scoring,
            pattern.astype(np.float64),
            configs.astype(np.float64),
            None if steps is None else steps.astype(np.float64),
        )
        return scores

    def _check_learned(self) -> None:
        if not self._arrays:
            raise InputError("the model has learned nothing yet; call fit with some records first")

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

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        values: dict[str, object] = {
            "net": self.net_name,
            "loss": self._training.loss,
            "space": self._space,
            "table": self.table.to_json(),
            "table_id": self.table.id,
            "order": self._order,
            "features": featurizer(self._order).id if self.net_name == "statistics" else None,
            "history": [epoch.to_json() for epoch in self.history],
            "families": self.families,
        }
        return values, dict(self._arrays)

    @classmethod
    def from_state(cls, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> Self:
        table = Table.from_json(values["table"])
        if table.id != values["table_id"]:
            raise InputError("the table of choices is not the one that the model was trained with")
        model = cls(table, net=str(values["net"]), training=Training(loss=cast(Loss, values["loss"])))
        model._space = None if values["space"] is None else str(values["space"])
        history, families, order = values["history"], values["families"], values["order"]
        if not (isinstance(history, list) and isinstance(families, dict) and isinstance(order, int)):
            raise TypeError(
                f"malformed history, families or order: {history!r:.80}, {families!r:.80}, {order!r:.80}"
            )
        if model.net_name == "statistics" and values["features"] != featurizer(order).id:
            raise InputError("the model has learned from other statistics of patterns; train it again")
        model._order = order
        model.history = tuple(Epoch.from_json(row) for row in history)
        model.families = {part: list(map(str, families[part])) for part in model.families}
        if arrays:
            model._forget(dict(arrays))
            model._check_arrays()
        return model

    def _check_arrays(self) -> None:
        self.heads = len(self._scoring["head.0.weight"])
        wanted = shapes(self.table, self.heads)
        got = {name: array.shape for name, array in self._scoring.items()}
        mean, std = self._numbers["mean"], self._numbers["std"]
        if got != wanted or mean.ndim != 1 or mean.shape != std.shape or not (std > 0).all():
            raise InputError("the arrays are not those of a ranking model with this table")
        if broken := [name for name, array in self._arrays.items() if not np.isfinite(array).all()]:
            raise InputError(f"the array {broken[0]} is not finite")


__all__ = ["EMBEDDING", "Epoch", "RankingModel", "Training"]
