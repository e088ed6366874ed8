"""Training a ranking: steps over workloads, validation, early stopping, and checkpoints that survive a kill.

WACO, section 4.1.3: a pairwise hinge loss over the configs of one workload, and Adam. Ours: the rate falls along half a
cosine, without which the last epochs wander.
"""

import json
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.keeping import round_to_float16
from tensorwise.model.averaged import Averaged
from tensorwise.model.checkpoints import array_of, reading_checkpoint, restore, write_checkpoint
from tensorwise.model.metrics import spearman
from tensorwise.model.nets import PatternNet, new_net
from tensorwise.model.samples import (
    BLINDED,
    LATER,
    Epoch,
    Group,
    Training,
    divide,
    falling,
    moments,
    standardised,
)
from tensorwise.model.scoring import embed, initial, score
from tensorwise.model.table import Encoded, Form
from tensorwise.model.torch_extra import torch

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

VALIDATED: Final = 256
"""Configs of a validation workload that are compared: all pairs of more would take longer than they tell."""


@final
class Trainer:
    """One training, from its first step or its last checkpoint to its end.

    Args:
        name: of the network in ``NETS``; order: of the patterns.
        form: of encoded configs.
        groups: what to learn from.
        workloads: workload id -> the workload; asked again when a prepared pattern was not kept.
        settings: see ``Training``.
        checkpoint: file to go on from and to keep up to date; None keeps none.
        progress: called after each epoch.
        device: torch's name of where to compute: ``cpu``, ``cuda``.
        heads: number of predictors that share the embeddings. Each is trained on a random sample of the families (a
            bootstrap), so that their disagreement measures uncertainty.
        start: arrays that `run` of an earlier training returned, to continue from. None: weights are drawn.
        blinded: share of the steps in which ``Encoded.nests`` is hidden, so that the model works without it, too.

    Attributes:
        history: epochs so far.
        numbers: mean and standard deviation of the numbers about the training workloads.
        families: those trained on, and those that decide when to stop.

    Raises:
        InputError: the checkpoint is damaged, or of another training.
    """

    def __init__(
        self,
        name: str,
        order: int,
        form: Form,
        groups: Sequence[Group],
        workloads: "Callable[[str], Workload]",
        settings: Training,
        checkpoint: Path | None,
        progress: Callable[[Epoch], None],
        device: str,
        heads: int = 1,
        start: Mapping[str, np.ndarray] | None = None,
        blinded: float = BLINDED,
    ) -> None:
        self._blinded = blinded
        self.settings, self.history = settings, list[Epoch]()
        self._checkpoint, self._progress, self._device = checkpoint, progress, device
        self._training, self._validation = divide(groups, settings.validation, settings.seed)
        parts = {"training": self._training, "validation": self._validation}
        self.families = {part: sorted({group.family for group in of}) for part, of in parts.items()}
        first = {key: value for key, value in asdict(settings).items() if key not in LATER}
        ids = [f"{group.id} {group.family}" for group in groups]
        begun = [part for key, array in sorted((start or {}).items()) for part in (key, array)]
        about = [name, str(heads), form.id, str(blinded), json.dumps(first, sort_keys=True)]
        self._fingerprint = content_id([*about, *begun, *ids])
        self._heads, self._shares = heads, dict[str, Any]()
        self.numbers = moments(np.array([group.numbers for group in self._training]))
        if start is not None:
            self.numbers = {key: start[f"numbers.{key}"] for key in self.numbers}
        self.net = new_net(name, order, len(self.numbers["mean"]), settings.seed).to(device)
        drawn = initial(form, np.random.default_rng([settings.seed, 1]), heads)
        self._scoring = {key: torch.nn.Parameter(torch.from_numpy(a).to(device)) for key, a in drawn.items()}
        if start is not None:
            with torch.no_grad():
                for key, weight in self._weights.items():
                    weight.copy_(torch.from_numpy(start[key]))
        self._adam = torch.optim.AdamW(
            self._weights.values(), settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )
        self._mean = Averaged(self._weights, settings.averaged)
        self._prepared = _Prepared(self.net, workloads, device, settings.kept_bytes)
        self._step, self._loss, self._seconds = 0, 0.0, 0.0
        self._best: dict[str, np.ndarray] = {}
        self._best_loss, self._best_epoch = math.inf, 0
        if checkpoint is not None and checkpoint.exists():
            self._resume(checkpoint)

    @property
    def _weights(self) -> dict[str, Any]:
        """All parameters by name."""
        return {f"net.{key}": weight for key, weight in self.net.named_parameters()} | {
            f"scoring.{key}": weight for key, weight in self._scoring.items()
        }

    def run(self) -> dict[str, np.ndarray]:
        """Train and return the arrays of a model, by name.

        They are the best weights (the last ones without validation), rounded to float16, and the inputs' mean and deviation.
        """
        written = time.monotonic()
        while not self._done:
            started = time.monotonic()
            order = self._rng(len(self.history)).permutation(len(self._training))
            while self._step < len(order):
                self._loss += self._learn(self._training[order[self._step]])
                self._step += 1
                if self._checkpoint is not None and time.monotonic() - written > self.settings.checkpoint_s:
                    self._seconds += time.monotonic() - started
                    self._write()
                    written = started = time.monotonic()
            self._end_epoch(self._seconds + time.monotonic() - started)
            if self._checkpoint is not None:
                self._write()
                written = time.monotonic()
        weights = {name: round_to_float16(array) for name, array in self._best.items()}
        return weights | {f"numbers.{key}": array for key, array in self.numbers.items()}

    @property
    def _done(self) -> bool:
        epochs = len(self.history)
        idle = bool(self._validation) and epochs - self._best_epoch >= self.settings.patience
        return epochs >= self.settings.epochs or idle

    def _rng(self, *place: int) -> "np.random.Generator":
        """A generator for one place in the training: going on from a checkpoint draws what would have been drawn."""
        return np.random.default_rng([self.settings.seed, 2, *place])

    def _learn(self, group: Group) -> float:
        """Take one step and return its loss."""
        batch, rng = group, self._rng(len(self.history), self._step)
        if len(group) > self.settings.batch:
            batch = group.take(rng.choice(len(group), self.settings.batch, replace=False))
        loss = (
            losses(self.settings, batch, self._scores(batch, rng.random() < self._blinded))
            * self._share(group.family)
        ).mean()
        for part in self._adam.param_groups:
            part["lr"] = self._rate
        self._adam.zero_grad()
        loss.backward()
        self._adam.step()
        self._mean.step()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise InputError("the loss is no longer finite; choose a lower learning rate")
        return value

    @property
    def _rate(self) -> float:
        """The learning rate of the next step."""
        done = (len(self.history) + self._step / len(self._training)) / self.settings.epochs
        return self.settings.learning_rate * falling(done)

    def _scores(self, group: Group, blind: bool = False) -> Any:
        numbers = torch.from_numpy(standardised(group.numbers, self.numbers)[None]).to(self._device)
        prepared = (
            self._prepared.of(group.workload_id)
            if self.net.looks
            else torch.empty((1, 0), device=self._device)
        )
        (pattern,) = self.net(prepared, numbers)
        configs = tensors(group.configs, self._device)
        return score(self._scoring, pattern, embed(self._scoring, configs), None if blind else configs.nests)

    def _share(self, family: str) -> Any:
        """How often each head counts a family: drawn with replacement, as many as there are; once by a single head."""
        if family not in self._shares:
            rng = np.random.default_rng([self.settings.seed, 3, int(content_id([family]), 16)])
            drawn = rng.poisson(1.0, self._heads) if self._heads > 1 else np.ones(1)
            self._shares[family] = torch.from_numpy(drawn.astype(np.float32)).to(self._device)
        return self._shares[family]

    def _end_epoch(self, seconds: float) -> None:
        with self._averaged():
            loss, correlation = self._validate()
        number = len(self.history) + 1
        epoch = Epoch(number, self._loss / len(self._training), loss, correlation, seconds)
        self.history.append(epoch)
        if not self._validation or loss < self._best_loss:
            self._best = {key: array_of(weight) for key, weight in self._mean.values.items()}
            self._best_loss, self._best_epoch = loss, number
        self._step, self._loss, self._seconds = 0, 0.0, 0.0
        self._progress(epoch)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Let all that is computed go by the mean of the weights."""
        weights = self._weights
        own = {key: weight.detach().clone() for key, weight in weights.items()}
        with torch.no_grad():
            for key, weight in weights.items():
                weight.copy_(self._mean.values[key])
            yield
            for key, weight in weights.items():
                weight.copy_(own[key])

    def _validate(self) -> tuple[float, float]:
        """Mean loss and rank correlation over the validation workloads."""
        found, correlations = [], []
        with torch.no_grad():
            for group in self._validation:
                part = group.take(np.arange(min(len(group), VALIDATED)))
                scores = self._scores(part).mean(dim=0, keepdim=True)
                found.append(float(losses(self.settings, part, scores)))
                timed = part.exact
                correlations.append(spearman(part.seconds[timed], array_of(scores)[0, timed].astype(float)))
        known = [value for value in correlations if not math.isnan(value)]
        return _mean(found), _mean(known)

    # -- checkpoints -----------------------------------------------------------------------------------

    def _write(self) -> None:
        assert self._checkpoint is not None
        state = {
            "fingerprint": self._fingerprint,
            "history": [epoch.to_json() for epoch in self.history],
            "step": self._step,
            "loss": self._loss,
            "seconds": self._seconds,
            "best": [self._best_loss if math.isfinite(self._best_loss) else None, self._best_epoch],
            "steps": self._mean.steps,
        }
        means = {key: array_of(mean) for key, mean in self._mean.values.items()}
        write_checkpoint(
            self._checkpoint, self._weights, self._adam, {"best": self._best, "mean": means}, state
        )

    def _resume(self, path: Path) -> None:
        with reading_checkpoint(path, self._fingerprint) as (state, arrays):
            self._restore(state, arrays)

    def _restore(self, state: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self.history = [Epoch.from_json(row) for row in state["history"]]
        self._step, self._loss, self._seconds = (
            int(state["step"]),
            float(state["loss"]),
            float(state["seconds"]),
        )
        loss, self._best_epoch = state["best"]
        self._best_loss = math.inf if loss is None else float(loss)
        self._mean.steps = int(state["steps"])
        for key, mean in self._mean.values.items():
            mean.copy_(torch.from_numpy(arrays[f"mean.{key}"]))
        restore(self._weights, self._adam, arrays)
        self._best = {key: arrays[f"best.{key}"] for key in self._weights if self.history}


def losses(settings: Training, group: Group, scores: Any) -> Any:
    """Return the mean loss of a pair of configs of one workload, of each row of ``scores`` (heads, n): (heads,)."""
    order = torch.from_numpy(np.triu(group.order)).to(scores.device)
    known = order.abs()
    differences = scores[:, :, None] - scores[:, None, :]
    if settings.loss == "hinge":
        off = torch.relu(settings.margin - order * differences)
        return (off * known).sum(dim=(1, 2)) / known.sum().clamp(min=1)
    ratios = torch.from_numpy(group.ratios).to(scores.device)
    exact = torch.from_numpy(group.exact).to(scores.device)
    missing = order * (ratios[:, None] - ratios[None, :] - differences)
    off = _huber(missing, exact[:, None] & exact[None, :], settings.margin)
    found = (off * known).sum(dim=(1, 2)) / known.sum().clamp(min=1)
    if not math.isnan(group.default_s):
        found = found + _huber(ratios - scores, exact, settings.margin).mean(dim=1)
    return found


def _huber(missing: Any, exact: Any, margin: float) -> Any:
    """Huber's loss of what is missing; where only a bound is known, of what is missing to reach it."""
    missing = torch.where(exact, missing.abs(), torch.relu(missing))
    return torch.where(missing < margin, missing**2 / (2 * margin), missing - margin / 2)


@final
class _Prepared:
    """Prepared patterns, the last used ones kept while they fit into some bytes."""

    def __init__(
        self, net: PatternNet, workloads: "Callable[[str], Workload]", device: str, most_bytes: int
    ) -> None:
        self._net, self._workloads, self._device, self._most_bytes = net, workloads, device, most_bytes
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def of(self, workload_id: str) -> Any:
        """Return the prepared pattern of one workload, as a batch of its own."""
        if workload_id not in self._kept:
            pattern = self._workloads(workload_id).entries
            if len(pattern.shape) != self._net.order:
                raise InputError(
                    f"the pattern of workload {workload_id} has order {len(pattern.shape)}, but its records say "
                    f"{self._net.order}"
                )
            # What was used before has grown by what was derived from it: only now is it known how much there is.
            total = sum(prepared.nbytes for prepared in self._kept.values())
            while self._kept and total > self._most_bytes:
                total -= self._kept.popitem(last=False)[1].nbytes
            self._kept[workload_id] = self._net.prepare([pattern], self._device)
        self._kept.move_to_end(workload_id)
        return self._kept[workload_id]


def tensors(configs: Encoded, device: str) -> Encoded:
    """Return encoded configs as torch's tensors."""
    values, *orders = (torch.from_numpy(array).to(device) for array in (configs.values, *configs.orders))
    nests: Any = None if configs.nests is None else torch.from_numpy(configs.nests).to(device)
    return Encoded(values, tuple(orders), nests)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
