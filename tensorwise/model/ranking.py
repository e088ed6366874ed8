"""RankingModel: WACO's cost model. It looks at the pattern itself, and scores configs so that faster ones score lower."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, Self, cast, final

import numpy as np

from tensorwise.analysis.nest import ProgramNest, WorkloadNest
from tensorwise.errors import InputError
from tensorwise.model.model import check_learned
from tensorwise.model.neural import NeuralCostModel, prefix
from tensorwise.model.samples import Epoch, Group, Loss, Training, groups_of, moments, standardised
from tensorwise.model.scoring import EMBEDDING, score, seen_last
from tensorwise.model.table import Encoded, Form, Table
from tensorwise.space.config import Config
from tensorwise.space.cpu import CpuSpace, cpu_space_of
from tensorwise.space.space import Space
from tensorwise.store.record import Record

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

CPU: Final = "cpu"
"""Name of the space whose configs' loops are known."""
LAST: Final = "head.2.weight"
"""The weights of the last layers."""


@final
class RankingModel(NeuralCostModel):
    """Predicts scores whose order within a workload is that of the times. What differs between devices is not seen.

    Args:
        space: whose configs are ranked; its table is kept with the model, so that a loaded one needs no space.
        workloads, net, training, checkpoint, progress, torch_device, heads, members: see `NeuralCostModel`.

    Attributes:
        table: how configs are read.

    WACO, sections 4.1 and 4.2. Every pair of configs of one workload is a sample; a workload's numbers and every
    convolution's mean stand for its pattern, lookup tables and matrices for its config.
    """

    kind: ClassVar[str] = "ranking"
    table: Table

    def __init__(
        self,
        space: Space | Table,
        workloads: "Callable[[str], Workload] | None" = None,
        *,
        net: str = "statistics",
        training: Training | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Callable[[Epoch], None] | None = None,
        torch_device: str = "cpu",
        heads: int = 1,
        members: int = 1,
    ) -> None:
        super().__init__(
            workloads,
            net=net,
            training=training,
            checkpoint=checkpoint,
            progress=progress,
            torch_device=torch_device,
            heads=heads,
            members=members,
        )
        self.table = Table.of(space)

    @property
    def form(self) -> Form:
        return self.table.form

    def fit(self, records: Iterable[Record]) -> None:
        """Learn the order of the configs of each workload.

        Of censored and failed configs, only what is certain is learned: that faster ones are faster. Records of other
        spaces and of other tables of choices are ignored.

        Raises:
            InputError: nothing can be compared, there is no function for patterns, the loss grew beyond all bounds, or the
                checkpoint belongs to another training.
            MissingExtraError: torch is not installed.
        """
        self.learn(self.groups(records))

    def groups(self, records: Iterable[Record]) -> list[Group]:
        """Return what can be learned of records; what loops do is counted, which takes longest.

        Raises:
            InputError: nothing can be compared, or there is no function for patterns.
        """
        return groups_of(
            records, self.table.space, self.table, self._counted if self.table.space == CPU else None
        )

    def learn(self, groups: Sequence[Group], start: "RankingModel | None" = None) -> None:
        """Learn from what ``groups`` returned; from scratch, or from where ``start`` ended.

        Raises: as `fit`.
        """
        if start is not None and start.members != self.members:
            raise InputError(f"a model of {self.members} members cannot go on from one of {start.members}")
        counts = [_known_rows(group.configs.nests) for group in groups if group.configs.nests is not None]
        if start is not None:
            by = start._moments
        else:
            by = moments(np.concatenate(counts)) if counts else {}
        kept = {f"nests.{name}": array for name, array in by.items()}
        self._learn(
            [_standardise_counts(group, by) for group in groups],
            None if start is None else dict(start._arrays),
        )
        self._forget({**self._arrays, **kept})

    def scores(self, group: Group) -> np.ndarray:
        """Return what is predicted for the configs of a group of ``groups``: float64, (n,). Raises: as `predict`."""
        return super().scores(self.standardise(group))

    def standardise(self, group: Group) -> Group:
        """Return a group of ``groups`` as `encode` would have encoded its configs."""
        return _standardise_counts(group, self._moments)

    @property
    def _moments(self) -> dict[str, np.ndarray]:
        """Of the counts that were learned from; empty where there were none."""
        names = [name for name in ("mean", "std") if f"nests.{name}" in self._arrays]
        return {name: self._arrays[f"nests.{name}"] for name in names}

    def _counted(self, workload_id: str, configs: Sequence[Config]) -> Encoded:
        """Configs that are learned from, with what their loops do as it was counted."""
        return replace(self.table.encode(configs), nests=counted(self._workload_of(workload_id), configs))

    def encode(self, workload: "Workload", configs: Sequence[Config]) -> Encoded:
        """Return configs as numbers, with what their loops do on a workload."""
        encoded, by = self.table.encode(configs), self._moments
        if self.table.space != CPU or not by:
            return encoded
        return replace(encoded, nests=beside_one(counted(workload, configs), by))

    def embed_configs(self, configs: Sequence[Config]) -> np.ndarray:
        """Return the embeddings of configs: float32, (n, members * EMBEDDING). They do not depend on the workload.

        Raises:
            InputError: nothing was learned yet, or the table does not read a config; see `Table.encode`.
        """
        check_learned(self._arrays)
        return self._embed(self.table.encode(configs))

    def score(self, pattern: np.ndarray, configs: np.ndarray) -> np.ndarray:
        """Return scores as far as they can be known without the workload itself, lower is better: float64, (n,).

        They are less accurate than those of ``predict``, which also reads the loops, but take microseconds, in float32: for
        walks through a graph of configs.

        Args:
            pattern: what `embed_pattern` returned.
            configs: what `embed_configs` returned, or some rows of it.
        """
        mean: np.ndarray = self._predicted(score, pattern, configs, short=True).mean(axis=0, dtype=np.float64)
        return mean

    def seen_last(self, workload: "Workload", configs: Encoded) -> np.ndarray:
        """Return what the last layer of each head sees of encoded configs: float64, (members * heads, n, width)."""
        return self._predicted(seen_last, self.embed_pattern(workload), self._embed(configs), configs.nests)

    @property
    def last_layers(self) -> np.ndarray:
        """The weights that make scores of what ``seen_last`` returns, up to a constant: float64, (all heads, width)."""
        check_learned(self._arrays)
        return np.concatenate([scoring[LAST][:, :, 0] for scoring in self._scorings])

    def with_last_layers(self, weights: np.ndarray) -> "RankingModel":
        """Return the model with other last layers. Embeddings, and graphs made of them, remain valid.

        Args:
            weights: float64, as ``last_layers``.

        Raises:
            InputError: they are of another shape, or not finite.
        """
        values, arrays = self.state()
        if len(weights) != self.members * self.heads:
            raise InputError(
                f"expected the last layers of {self.members * self.heads} heads, got {len(weights)}"
            )
        each = np.split(weights[:, :, None].astype(np.float32), self.members)
        given = {f"{prefix(member)}scoring.{LAST}": own for member, own in enumerate(each)}
        made = type(self).from_state(values, {**arrays, **given})
        made.card, made._workloads = self.card, self._workloads
        return made

    # -- files -----------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        values: dict[str, object] = {
            **self._looks(),
            "space": self.table.space,
            "table": self.table.to_json(),
            "table_id": self.table.id,
            "nests": ProgramNest().id,
        }
        return values, dict(self._arrays)

    @classmethod
    def from_state(cls, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> Self:
        space = None if values["space"] is None else str(values["space"])
        table = Table.from_json(values["table"], space)
        if table.id != values["table_id"]:
            raise InputError("the table of choices is not the one that the model was trained with")
        model = cls(table, net=str(values["net"]), training=Training(loss=cast(Loss, values["loss"])))
        if not ProgramNest().has_id(values["nests"]):
            raise InputError("the model has learned from other numbers about loops; train it again")
        model._take_up(values, arrays)
        return model


def counted(workload: "Workload", configs: Sequence[Config]) -> np.ndarray:
    """Return what the loops of configs of the CPU's space do on a workload: float32, (n, fields of `ProgramNest`).

    A config of an older or newer table of the space is migrated; the row of one that cannot be is NaN.
    """
    space, nest = cpu_space_of(workload), ProgramNest()
    loads = space.loads(workload)
    found = np.full((len(configs), len(nest.fields)), np.nan, np.float32)
    for row, given in enumerate(configs):
        config = given if space.recognizes(given) else _migrated(space, workload, given)
        if config is not None:
            program, bounds = space.program(workload, config), space.counted(workload, config)
            found[row] = nest.features(WorkloadNest(program, workload, bounds, loads))
    return found


def _migrated(space: CpuSpace, workload: "Workload", config: Config) -> Config | None:
    """Return a config that ``space`` does not recognize as one that it does, None where there is none."""
    known = Config({name: value for name, value in config.items() if name in space.by_name})
    return known if space.recognizes(known) else space.migrate(known, workload)


def _standardise_counts(group: Group, by: Mapping[str, np.ndarray]) -> Group:
    """The group with its counts as a network takes them, where there are any."""
    counts = group.configs.nests
    if counts is None or not by:
        return group
    return replace(group, configs=replace(group.configs, nests=beside_one(counts, by)))


def beside_one(counts: np.ndarray, by: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return counts as a network takes them: standardised, beside ones, which tell that they are known; or zeros."""
    known: np.ndarray = np.pad(standardised(counts, by), ((0, 0), (0, 1)), constant_values=1)
    known[np.isnan(counts).any(axis=1)] = 0
    return known


def _known_rows(counts: np.ndarray) -> np.ndarray:
    known: np.ndarray = counts[~np.isnan(counts).any(axis=1)]
    return known


__all__ = ["EMBEDDING", "Epoch", "RankingModel", "Training"]
