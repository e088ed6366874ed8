"""Training of latency models: epochs over batches of equally many leaves, with checkpoints that survive a kill.

CDMPP, sections 5.2 and 5.3: the loss is the squared error of labels plus the relative error of seconds; in fine-tuning also
the distance between the embeddings of known programs and of the target's unmeasured ones (CMD: Zellinger et al., 2017).
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, final, get_args

import numpy as np

from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.keeping import round_to_float16
from tensorwise.model.averaged import Averaged
from tensorwise.model.checkpoints import array_of, reading_checkpoint, restore, write_checkpoint
from tensorwise.model.labels import Labels
from tensorwise.model.program_net import (
    Shape,
    compare_with_leaf_times,
    convert_output,
    decode,
    embed,
    encode_rows,
    encoded,
    estimate_leaf_times,
    initial,
)
from tensorwise.model.programs import Programs
from tensorwise.model.samples import falling
from tensorwise.model.torch_extra import torch

Loss = Literal["mse+mape", "mse", "mape", "mspe"]
MOMENTS: Final = 5
"""Of which CMD compares the first so many, as its authors do."""
FAR: Final = 3.0
"""A relative error is taken of a factor of at most exp(this): what is farther off is pulled by the squares."""
CLIP: Final = 2.0
"""Longest gradient, as in CDMPP's code."""


@final
@dataclass(frozen=True)
class LatencyTraining:
    """How a latency model is trained.

    Attributes:
        epochs: passes over the programs; the rate falls to zero over so many.
        batch: programs a step, all with as many leaves.
        learning_rate, weight_decay: of AdamW. The decay is strong, since a few thousand programs are soon overfitted.
        loss: squared errors of labels (``mse``), relative errors of seconds (``mape``, squared ``mspe``), or
            ``mse`` + ``relative`` * ``mape``. The paper and its code divide by labels, which are near 0 for average times;
            we divide by seconds, by which models are judged.
        relative: weight of relative errors in the sum.
        averaged: decay of the moving average of the weights over all steps, which is the result (see ``Averaged.kept``).
        moments: weight of CMD in fine-tuning; 0: none.
        uncompiled: share of the programs that are trained on a second time without the numbers of their compiled code, so
            that the model can also predict programs that were never compiled.
        seed: draws first weights, the order of batches, and those programs.
    """

    epochs: int = 16
    batch: int = 32
    learning_rate: float = 5e-4
    weight_decay: float = 0.5
    loss: Loss = "mse+mape"
    relative: float = 1.0
    averaged: float = 0.999
    moments: float = 0.1
    uncompiled: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch) < 1 or not self.learning_rate > 0 or self.loss not in get_args(Loss):
            raise InputError(
                f"epochs, batch and rate must be positive, the loss one of {get_args(Loss)}, got {self}"
            )
        if not (0 <= self.uncompiled <= 1 and 0 <= self.averaged < 1):
            raise InputError(f"a share is at least 0 and at most 1, got {self}")
        if not 0 <= self.weight_decay * self.learning_rate < 1 or self.relative < 0 or self.moments < 0:
            raise InputError(f"weights must not be negative, got {self}")


@final
class Scaled:
    """Programs as inputs of a network: standardised by ``scales``, and grouped by number of leaves.

    Args:
        scales: see ``program_net.scales_of``; torch_device: where they are kept.
    """

    def __init__(
        self, programs: Programs, shape: Shape, scales: Mapping[str, np.ndarray], torch_device: str
    ) -> None:
        device = encode_rows(programs.context, scales, "device")
        self._device = torch_device
        self.seconds = self._there(programs.seconds)
        self.groups: dict[int, tuple[Any, ...]] = {}
        for count, places in programs.by_leaves().items():
            leaves = np.array([programs.rows[place].ast.leaves for place in places])
            order = np.array([programs.rows[place].ast.order for place in places])
            work = estimate_leaf_times(leaves, programs.context[places])
            arrays = (encode_rows(leaves, scales, "leaf"), encoded(shape, order), device[places], work)
            self.groups[count] = (places, *map(self._there, arrays))

    def _there(self, array: np.ndarray) -> Any:
        return torch.from_numpy(array).to(self._device)

    def batches(self, size: int, rng: np.random.Generator) -> "list[tuple[int, np.ndarray]]":
        """Return (leaves, places in its group) of all batches of an epoch, shuffled."""
        found = []
        for count, (places, *_) in self.groups.items():
            shuffled = rng.permutation(len(places))
            found += [(count, shuffled[k : k + size]) for k in range(0, len(places), size)]
        return [found[k] for k in rng.permutation(len(found))]

    def batch(self, count: int, which: np.ndarray) -> tuple[tuple[Any, Any, Any], Any, Any]:
        """Return leaves, places and device of a batch, which ``embed`` takes; the leaves' work; and seconds."""
        places, *arrays = self.groups[count]
        chosen = self._there(which)
        leaves, encodings, device, work = (array[chosen] for array in arrays)
        return (leaves, encodings, device), work, self.seconds[self._there(places[which])]


@final
class LatencyTrainer:
    """One training, from its first epoch or its checkpoint.

    Args:
        shape, labels, settings: of the network and its training.
        training, validation: programs; the latter choose the epoch whose weights are kept (the last one if there are none).
        scales: see ``program_net.scales_of``.
        checkpoint: file to go on from and to keep up to date; None keeps none.
        progress: receives, for each epoch: its number, the loss, and the MAPE on validation.
        start: weights to go on from, in fine-tuning.
        foreign: unmeasured programs of the target, for CMD.
        torch_device: torch's name of where to compute: ``cpu``, ``cuda``.

    Attributes:
        history: loss, MAPE and seconds of each epoch.

    Raises:
        InputError: the checkpoint is damaged, or of another training.
    """

    def __init__(
        self,
        shape: Shape,
        labels: Labels,
        settings: LatencyTraining,
        training: Programs,
        validation: Programs,
        scales: Mapping[str, np.ndarray],
        checkpoint: Path | None = None,
        progress: Callable[[int, float, float], None] = lambda *_: None,
        start: Mapping[str, np.ndarray] | None = None,
        foreign: Programs | None = None,
        torch_device: str = "cpu",
    ) -> None:
        self.shape, self.labels, self.settings = shape, labels, settings
        if (compiled := np.flatnonzero(training.compiled)).size:
            rng = np.random.default_rng([settings.seed, 5])
            again = np.zeros(len(training), bool)
            again[rng.permutation(compiled)[: round(settings.uncompiled * len(compiled))]] = True
            training = Programs(training.rows + training.where(again).uncompiled().rows)
        told_of = foreign if settings.moments else None
        self._training = Scaled(training, shape, scales, torch_device)
        self._validation = Scaled(validation, shape, scales, torch_device) if len(validation) else None
        self._foreign = None if told_of is None else Scaled(told_of, shape, scales, torch_device)
        self._checkpoint, self._progress = checkpoint, progress
        first = initial(shape, np.random.default_rng([settings.seed, 1])) if start is None else start
        self.weights = {
            name: torch.nn.Parameter(torch.from_numpy(a.copy()).to(torch_device)) for name, a in first.items()
        }
        if start is None and shape.joining == "sum":
            groups = [(places, arrays[3]) for places, *arrays in self._training.groups.values()]
            off = [
                compare_with_leaf_times(training.seconds[places], array_of(work), np)
                for places, work in groups
            ]
            with torch.no_grad():
                self.weights[f"decoder{len(shape.decoder)}.bias"].fill_(float(np.median(np.concatenate(off))))
        self._adam = torch.optim.AdamW(
            self.weights.values(), settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )
        self._mean = Averaged(self.weights, settings.averaged)
        self.history: list[tuple[float, float, float]] = []
        self._best, self._best_error = dict[str, np.ndarray](), math.inf
        ids = [content_id([row.task, row.config, row.device, repr(row.seconds)]) for row in training]
        about = [json.dumps([shape.to_json(), asdict(settings), labels.to_json()]), str(start is not None)]
        self._fingerprint = content_id([*about, *ids])
        if checkpoint is not None and checkpoint.exists():
            self._resume(checkpoint)

    @property
    def done(self) -> bool:
        """Whether all epochs are over."""
        return len(self.history) >= self.settings.epochs

    def run(self, budget_s: float = math.inf) -> dict[str, np.ndarray] | None:
        """Train and return the weights, rounded to float16; None when the budget is over: the checkpoint resumes."""
        ends = time.monotonic() + budget_s
        while not self.done:
            if time.monotonic() > ends:
                return None
            self._epoch()
        return {name: round_to_float16(array) for name, array in self._best.items()}

    def _epoch(self) -> None:
        start, number = time.perf_counter(), len(self.history)
        rng = np.random.default_rng([self.settings.seed, 2, number])
        batches = self._training.batches(self.settings.batch, rng)
        total, seen = 0.0, 0
        for place, (count, which) in enumerate(batches):
            loss = self._loss(count, which, rng)
            for part in self._adam.param_groups:
                part["lr"] = self._rate(number + place / len(batches))
            self._adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.weights.values(), CLIP)
            self._adam.step()
            self._mean.step()
            total, seen = total + float(loss.detach()) * len(which), seen + len(which)
        if not math.isfinite(total):
            raise InputError("the loss is no longer finite; choose a lower learning rate")
        took = time.perf_counter() - start
        error = self._validate()
        self.history.append((total / seen, error, took))
        if self._validation is None or error < self._best_error:
            self._best = {name: array_of(weight) for name, weight in self._mean.values.items()}
            self._best_error = error
        self._progress(len(self.history), total / seen, error)
        if self._checkpoint is not None:
            self._write(self._checkpoint)

    def _rate(self, epoch: float) -> float:
        """A twentieth of the epochs is a rise from zero; then it falls."""
        done = epoch / self.settings.epochs
        return self.settings.learning_rate * min(1.0, 20 * done + 1e-3) * falling(done)

    def _loss(self, count: int, which: np.ndarray, rng: np.random.Generator) -> Any:
        given, work, seconds = self._training.batch(count, which)
        embedded = embed(self.shape, self.weights, *given, torch)
        said, logs = self._predict(self.weights, embedded, work)
        squares = ((said - self.labels.of(seconds, torch)) ** 2).mean()
        relative = torch.expm1((logs - torch.log(seconds)).clip(max=FAR))
        match self.settings.loss:
            case "mse":
                loss = squares
            case "mape":
                loss = relative.abs().mean()
            case "mspe":
                loss = (relative**2).mean()
            case _:
                loss = squares + self.settings.relative * relative.abs().mean()
        if self._foreign is not None and count in self._foreign.groups:
            there = len(self._foreign.groups[count][0])
            drawn = rng.choice(there, min(there, self.settings.batch), replace=False)
            other = embed(self.shape, self.weights, *self._foreign.batch(count, drawn)[0], torch)
            loss = loss + self.settings.moments * cmd(_flat(embedded), _flat(other))
        return loss

    def _predict(self, weights: Mapping[str, Any], embedded: Any, work: Any) -> tuple[Any, Any]:
        """Labels and log seconds of embeddings."""
        return convert_output(
            self.shape, self.labels, decode(self.shape, weights, embedded, work, torch), torch
        )

    def _validate(self) -> float:
        """MAPE in seconds."""
        if self._validation is None:
            return math.nan
        errors = []
        with torch.no_grad():
            for count, (places, *_) in self._validation.groups.items():
                given, work, seconds = self._validation.batch(count, np.arange(len(places)))
                embedded = embed(self.shape, self._mean.values, *given, torch)
                _, logs = self._predict(self._mean.values, embedded, work)
                errors.append(torch.expm1((logs - torch.log(seconds)).clip(max=50)).abs())
        return float(torch.cat(errors).mean())

    # -- checkpoints -----------------------------------------------------------------------------------

    def _write(self, path: Path) -> None:
        best = self._best_error if math.isfinite(self._best_error) else None
        history = [[None if math.isnan(x) else x for x in row] for row in self.history]
        state = {
            "fingerprint": self._fingerprint,
            "history": history,
            "best": best,
            "steps": self._mean.steps,
        }
        means = {name: array_of(mean) for name, mean in self._mean.values.items()}
        write_checkpoint(path, self.weights, self._adam, {"best": self._best, "mean": means}, state)

    def _resume(self, path: Path) -> None:
        with reading_checkpoint(path, self._fingerprint) as (state, arrays):
            rows = [[math.nan if x is None else float(x) for x in row] for row in state["history"]]
            self.history = [(loss, error, took) for loss, error, took in rows]
            for name, mean in self._mean.values.items():
                mean.copy_(torch.from_numpy(arrays[f"mean.{name}"]))
            self._mean.steps = int(state["steps"])
            self._best = {key[5:]: array for key, array in arrays.items() if key.startswith("best.")}
            self._best_error = math.inf if state["best"] is None else float(state["best"])
            restore(self.weights, self._adam, arrays)


def cmd(one: Any, other: Any, moments: int = MOMENTS) -> Any:
    """Return the central moment discrepancy of two samples of embeddings, (n, width) and (m, width), in torch.

    Embeddings are first squeezed into -1 to 1, since the moments' weights are powers of the range.
    """
    one, other = torch.tanh(one), torch.tanh(other)
    means = one.mean(0), other.mean(0)
    found = (means[0] - means[1]).norm()
    for k in range(2, moments + 1):
        central = [((rows - mean) ** k).mean(0) for rows, mean in zip((one, other), means, strict=True)]
        found = found + (central[0] - central[1]).norm() / 2**k
    return found


def _flat(embedded: Any) -> Any:
    """One embedding a program, also where each leaf has its own."""
    return embedded if embedded.ndim == 2 else embedded.mean(1)
