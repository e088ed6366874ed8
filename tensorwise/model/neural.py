"""NeuralCostModel: the base of models that embed a pattern with a network and score encoded configs for it.

Training needs torch, and so do networks that read the entries of a pattern. NumPy suffices to embed and score configs, and
for all predictions of a model with the network ``statistics``.
"""

import abc
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from tensorwise.analysis.compiled import COUNTING
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
from tensorwise.model.scoring import BLIND, EMBEDDING, embed, look, score, shapes, with_unknown_rows
from tensorwise.model.table import Encoded, Form
from tensorwise.moved import forward_names
from tensorwise.space.config import Config
from tensorwise.toolchain.routines import Routines

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

MOST_MEMBERS: Final = 100
MOST_EMBEDDED: Final = 10_000
"""Embeddings of workloads kept; each takes half a kilobyte."""


class NeuralCostModel(CostModel["Workload"], abc.ABC):
    """Predicts scores whose order within a workload is that of the times. A leaf says how configs are read.

    Args:
        workloads: workload id -> the workload, for the records that are fitted on; `fit` needs it.
        net: name of the network that looks at patterns, in ``nets.NETS``: ``statistics``, which needs no torch to predict;
            ``numbers``, which sees the shape only; or one of another package.
        training: see `Training`.
        checkpoint: file from which `fit` goes on after a kill, and which it keeps up to date. A training that was
            finished is not repeated.
        progress: called after each epoch of `fit`.
        torch_device: where torch computes: ``cpu``, ``cuda``.
        heads: how many predictors of scores are trained; their mean is predicted, and `estimate` says how far they disagree.
        members: how many networks are trained one after the other, each with its own predictors. Their embeddings are
            concatenated, and the prediction is the mean of all predictors.

    Attributes:
        net_name, heads, members: as given, or as loaded.
        history: the epochs of the first member's last `fit`, saved with the model.
        families: those of the ``training``, and of the ``validation`` that chose the best epoch; saved as well. Members have
            different validation families; those that no member was trained on are listed.
    """

    routines: ClassVar[tuple[Routines, ...]] = (COUNTING,)

    def __init__(
        self,
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
        if min(heads, members) < 1:
            raise InputError(f"a model has at least one head and one member, got {heads} and {members}")
        self.history: tuple[Epoch, ...] = ()
        self.families: dict[str, list[str]] = {"training": [], "validation": []}
        self._order = 2
        self.net_name = net
        self._workloads, self._training = workloads, training or Training()
        self.returns = "ratio" if self._training.loss == "ratio" else "score"
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._progress = progress or (lambda epoch: None)
        self._torch_device, self.heads, self.members = torch_device, heads, members
        self._forget({})

    def _forget(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on with other weights; none at all means that nothing was learned yet."""
        self._arrays = arrays
        self._short = [
            with_unknown_rows(self._part(member, "scoring."), self.form)
            for member in range(self.members if arrays else 0)
        ]
        # In float64 a config's score does not depend on which other ones are scored with it.
        self._scorings = [
            {name: array.astype(np.float64) for name, array in one.items()} for one in self._short
        ]
        self._embedded: dict[str, np.ndarray] = {}
        self._nets: dict[int, Any] = {}

    def _part(self, member: int, what: str) -> dict[str, np.ndarray]:
        """The arrays of a member whose names begin so, without that."""
        return _stripped(self._arrays, f"{prefix(member)}{what}")

    # -- what a leaf says ------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def form(self) -> Form:
        """What `encode` returns."""

    @abc.abstractmethod
    def encode(self, workload: "Workload", configs: Sequence[Config]) -> Encoded:
        """Return configs as numbers.

        Raises:
            InputError: a config is none that the model reads.
        """

    # -- learning --------------------------------------------------------------------------------------

    @property
    def _workload_of(self) -> "Callable[[str], Workload]":
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
        known = self._workload_of
        from tensorwise.model.nets import NETS  # needs torch
        from tensorwise.model.training import Trainer

        if self.net_name not in NETS:
            raise InputError(f"there is no network {self.net_name!r}; choose one of {', '.join(NETS)}")
        order = len(groups[0].numbers) - 2
        described = self._described(groups) if self.net_name == "statistics" else groups
        learned, trained, others = dict[str, np.ndarray](), set[str](), set[str]()
        for member in range(self.members):
            begin, checkpoint = prefix(member), self._checkpoint
            trainer = Trainer(
                self.net_name,
                order,
                self.form,
                described,
                known,
                replace(self._training, seed=self._training.seed + member),
                checkpoint and checkpoint.with_name(f"{begin}{checkpoint.name}"),
                self._progress,
                self._torch_device,
                self.heads,
                start and _stripped(start, begin),
                blinded,
            )
            learned |= {f"{begin}{name}": array for name, array in trainer.run().items()}
            trained |= {*trainer.families["training"]}
            others |= {*trainer.families["validation"]}
            if not member:
                self.history = tuple(trainer.history)
        self.families = {"training": sorted(trained), "validation": sorted(others - trained)}
        self._order = order
        self._forget(learned)

    def _described(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with statistics of their patterns among their numbers."""
        describer = featurizer(len(groups[0].numbers) - 2)
        known: dict[str, np.ndarray] = {}
        for group in groups:
            if group.workload_id not in known:
                known[group.workload_id] = describer.features(self._workload_of(group.workload_id).entries)
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
        """Return what is predicted for the configs of an encoded group: float64, (n,).

        Raises: as `predict`.
        """
        pattern = self.embed_pattern(self._workload_of(group.workload_id))
        embedded = self._embed(group.configs)
        mean: np.ndarray = self._scores(pattern, embedded, group.configs.nests).mean(axis=0)
        return mean

    def embed_pattern(self, workload: "Workload") -> np.ndarray:
        """Return the embedding of a workload's pattern and shape: float32, (members * EMBEDDING,). It is computed once.

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
        pattern, encoded = self.embed_pattern(workload), self.encode(workload, configs)
        return self._scores(pattern, self._embed(encoded), encoded.nests)

    def _embed(self, encoded: Encoded) -> np.ndarray:
        """Embeddings of configs: float32, (n, members * EMBEDDING)."""
        return np.hstack([embed(one, encoded) for one in self._scorings]).astype(np.float32)

    def _scores(
        self, pattern: np.ndarray, configs: np.ndarray, nests: np.ndarray | None = None
    ) -> np.ndarray:
        """(members * heads, n)."""
        return self._predicted(score, pattern, configs, nests)

    def _predicted(
        self,
        what: Callable[..., Any],
        pattern: np.ndarray,
        configs: np.ndarray,
        nests: np.ndarray | None = None,
        *,
        short: bool = False,
    ) -> np.ndarray:
        """What ``score`` or ``seen_last`` says of all predictors, member by member; ``short``: in float32, twice as fast."""
        check_learned(self._arrays)
        weights, number = (self._short, np.float32) if short else (self._scorings, np.float64)
        given = None if nests is None else nests.astype(number)
        found = []
        for member, scoring in enumerate(weights):
            own = slice(member * EMBEDDING, (member + 1) * EMBEDDING)
            found.append(what(scoring, pattern[own].astype(number), configs[:, own].astype(number), given))
        return np.concatenate(found)

    def _look(self, workload: "Workload") -> np.ndarray:
        numbers = shape_numbers(workload.describe())
        if len(numbers) - 2 != self._order:
            raise InputError(
                f"the model has learned from tensors of order {self._order}; the sparse operand has order "
                f"{len(numbers) - 2}"
            )
        if self.net_name == "statistics":
            numbers = np.append(numbers, featurizer(self._order).features(workload.entries))
        each = [standardised(numbers, self._part(member, "numbers.")) for member in range(self.members)]
        if self.net_name not in BLIND:
            return self._look_with_torch(workload, each)
        try:
            seen = [look(self._part(member, "net."), own) for member, own in enumerate(each)]
        except (KeyError, ValueError) as error:
            raise InputError(f"the model's weights do not fit its network: {error}") from error
        return np.concatenate(seen).astype(np.float32)

    def _look_with_torch(self, workload: "Workload", numbers: Sequence[np.ndarray]) -> np.ndarray:
        """The embeddings of all members, which see the same pattern: it is prepared once."""
        from tensorwise.model.torch_extra import torch

        nets = [self._net(member, len(own)) for member, own in enumerate(numbers)]
        with torch.no_grad():
            prepared = nets[0].prepare([workload.entries], self._torch_device)
            about = [torch.from_numpy(own[None]).to(self._torch_device) for own in numbers]
            seen = [net(prepared, own)[0].cpu().numpy() for net, own in zip(nets, about, strict=True)]
        return np.concatenate(seen)

    def _net(self, member: int, numbers: int) -> Any:
        """A member's network for torch, made when it is first asked for."""
        from tensorwise.model.nets import new_net
        from tensorwise.model.torch_extra import torch

        if member not in self._nets:
            net = new_net(self.net_name, self._order, numbers, 0)
            try:
                net.load_state_dict(
                    {name: torch.from_numpy(array) for name, array in self._part(member, "net.").items()}
                )
            except RuntimeError as error:
                raise InputError(f"the model's weights do not fit its network: {error}") from error
            self._nets[member] = net.to(self._torch_device)
        return self._nets[member]

    # -- files -----------------------------------------------------------------------------------------

    def _looks(self) -> dict[str, object]:
        """What ``state`` says of all but the reading of configs."""
        return {
            "net": self.net_name,
            "members": self.members,
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
        if self.net_name == "statistics" and not featurizer(order).has_id(values["features"]):
            raise InputError("the model has learned from other statistics of patterns; train it again")
        self._order, members = order, values.get("members", 1)
        if not isinstance(members, int) or not 0 < members <= MOST_MEMBERS:
            raise TypeError(f"malformed number of members: {members!r:.80}")
        self.members = members
        self.history = tuple(Epoch.from_json(row) for row in history)
        self.families = {part: list(map(str, families[part])) for part in self.families}
        if arrays:
            self._check_arrays(arrays)
            self._forget(dict(arrays))

    def _check_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.heads = len(arrays["scoring.head.0.weight"])
        wanted = shapes(self.form, self.heads)
        for member in range(self.members):
            scoring, numbers = (
                _stripped(arrays, f"{prefix(member)}{what}") for what in ("scoring.", "numbers.")
            )
            got = {name: array.shape for name, array in scoring.items()}
            mean, std = numbers["mean"], numbers["std"]
            if got != wanted or mean.ndim != 1 or mean.shape != std.shape or not (std > 0).all():
                raise InputError(f"the arrays are not those of a {self.kind} model with this table")
        if broken := [name for name, array in arrays.items() if not np.isfinite(array).all()]:
            raise InputError(f"the array {broken[0]} is not finite")


def prefix(member: int) -> str:
    """Return what names of a member's arrays begin with; those of the first are as if there were no other."""
    return f"member{member}." if member else ""


def _stripped(arrays: Mapping[str, np.ndarray], begin: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(begin): array for name, array in arrays.items() if name.startswith(begin)}


__getattr__ = forward_names(__name__, {"LookingModel": f"{__name__}:NeuralCostModel"})
