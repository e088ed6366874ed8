"""LatencyModel: the seconds of a program on a device, with an interval; trained with torch, read with NumPy alone (CDMPP).

It reads programs of any source. A CostModel reads configs of a space; hence LatencyModel is no CostModel.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, final

import numpy as np

from tensorwise.analysis.ast import LEAVES, CompactAst
from tensorwise.analysis.code import CODE
from tensorwise.analysis.hardware import HARDWARE
from tensorwise.device.hardware import Hardware, described
from tensorwise.errors import InputError
from tensorwise.keeping import Keeping
from tensorwise.model.labels import Kind, Labels
from tensorwise.model.program_net import (
    Shape,
    convert_output,
    decode,
    embed,
    encode_rows,
    encoded,
    estimate_leaf_times,
    scales_of,
    shapes,
)
from tensorwise.model.programs import Programs, context_of

if TYPE_CHECKING:
    from tensorwise.model.latency_training import LatencyTraining

LATENCY: Final = Keeping("latency")
UNCOMPILED: Final = "uncompiled"
"""Programs of any kind of device, without their code."""
VERSION: Final = 7
COVERED: Final = 0.9
"""Share of programs whose time lies within their interval."""
LEAST: Final = 20
"""Programs that calibrate an interval, at least, and that a number of leaves needs for a layer of its own."""
MOST_LEAVES: Final = 12
"""Programs with more leaves have no layer for their number."""
DRAWN: Final = 20
"""Choices of programs for a network, of which it is judged how well their sum is predicted."""
NUM_FOLDS: Final = 5
"""Parts of a target's measured tasks, each held back by another member in fine-tuning."""
STEPS: Final = 150
"""Of fine-tuning, at least: a few programs are passed more often."""
SEEN_AGAIN: Final = 2000
"""Programs of those learned from before that fine-tuning draws to see again, at least."""
BEYOND: Final = 4.0
"""Predictions are clamped to this factor beyond the range of the training labels."""
Progress = Callable[[int, int, float, float], None]
"""Receives, for each epoch: member, epoch, loss, and MAPE on validation."""


@final
@dataclass(frozen=True, eq=False)
class Latencies:
    """What programs take.

    Attributes:
        seconds: (n,); low, high: (n,) ends of the interval that holds the time of COVERED of all programs; NaN where the
            model was not calibrated.
        shared: share of the errors' variance that programs of one network have in common.
        level: median ratio of measured to predicted times. Training for the least relative error gives predictions below
            the median; the time of many programs together is predicted with this factor.
    """

    seconds: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shared: float = 1.0
    level: float = 1.0

    def together(self, places: Sequence[int], counts: Sequence[int]) -> tuple[float, float, float]:
        """Return the seconds of some of the programs one after the other, and the ends of their interval.

        That is the sum of the predictions times ``level``. Errors that the programs share add up, the others partly cancel,
        so the interval is relatively narrower than those of single programs.

        Args:
            places: of the programs; counts: how often each runs.
        """
        chosen, times = list(places), np.asarray(counts) * self.level * self.seconds[list(places)]
        parts = times / times.sum() * np.log(self.high[chosen] / self.seconds[chosen])
        within = np.sqrt(self.shared * parts.sum() ** 2 + (1 - self.shared) * (parts**2).sum())
        low, high = times.sum() * np.exp([-within, within])
        return float(times.sum()), float(low), float(high)

    def covering(self, seconds: np.ndarray) -> dict[str, float]:
        """Return how well intervals hold measured ``seconds`` (n,); nothing where there are none.

        Returns:
            ``covered``: share of the times within theirs; ``width``: median ratio of their ends.
        """
        if np.isnan(self.low).any():
            return {}
        inside = (self.low <= seconds) & (seconds <= self.high)
        return {"covered": float(inside.mean()), "width": float(np.median(self.high / self.low))}


@final
@dataclass(frozen=True)
class Interval:
    """How far off a model is.

    Attributes:
        floor, times: a program's log seconds lie within ``times * (disagreement + floor)`` of the answer.
        shared, level: see `Latencies`.
    """

    floor: float = float("nan")
    times: float = float("nan")
    shared: float = 1.0
    level: float = 1.0


def sort_of(program: CompactAst, hardware: Hardware) -> str:
    """Return the group of a program's prediction interval: the kind of device, and whether machine code was counted."""
    return f"{hardware.kind} compiled" if program.compiled else hardware.kind


@final
@dataclass(frozen=True, eq=False)
class LatencyModel:
    """A trained model.

    Attributes:
        shape, labels, scales: how programs and seconds are read.
        ends: least and largest log seconds of a prediction: a little beyond those in the training data.
        members: weights of each network. Their mean is the prediction, and their disagreement a measure of its uncertainty.
        devices: those trained on, by name.
        intervals: errors by sort of program (`sort_of`): programs with compiled code by kind of device, and UNCOMPILED
            for all others. A sort that is missing has no interval.
        card: what people should know: data, split, errors. JSON-able.
    """

    shape: Shape
    labels: Labels
    scales: Mapping[str, np.ndarray]
    ends: tuple[float, float]
    members: tuple[Mapping[str, np.ndarray], ...]
    devices: Mapping[str, Hardware]
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)

    def hardware(self, name: str) -> Hardware:
        """Return the device called ``name``: one of those trained on, or one that comes with the package.

        Raises:
            InputError: it is neither.
        """
        known = {**described(), **self.devices}
        if name not in known:
            raise InputError(f"unknown device {name!r}; trained on: {', '.join(self.devices)}; described: "
                             f"{', '.join(described())}")  # fmt: skip
        return known[name]

    @property
    def reads_code(self) -> bool:
        """Whether the model has learned from programs of which compiled code was known; else it looks at nobody's."""
        return bool(self.scales["device.mean"][-len(CODE.fields) :].any())

    def latencies(self, programs: Sequence[CompactAst], hardware: Hardware | Sequence[Hardware]) -> Latencies:
        """Return what programs take on a device, or each on its own.

        Raises:
            InputError: not as many devices as programs, or other numbers of operands than were learned from.
        """
        each = [hardware] * len(programs) if isinstance(hardware, Hardware) else list(hardware)
        if len(each) != len(programs):
            raise InputError(f"expected a device for each of {len(programs)} programs, got {len(each)}")
        if not self.reads_code:
            programs = [one.uncompiled() for one in programs]
        logs, spread = self._predict_members(programs, each)
        sorts = [sort_of(one, device) for one, device in zip(programs, each, strict=True)]
        known = {sort: self.intervals.get(sort, self.intervals.get(UNCOMPILED, Interval())) for sort in sorts}
        floor = np.array([known[sort].floor for sort in sorts])
        within = np.array([known[sort].times for sort in sorts]) * (spread + floor)
        whole = max(known.values(), key=lambda one: one.times, default=Interval())
        return Latencies(
            np.exp(logs), np.exp(logs - within), np.exp(logs + within), whole.shared, whole.level
        )

    def of(self, programs: Programs) -> Latencies:
        """Return what measured programs take on their devices, as `latencies` does; their seconds are not looked at."""
        return self.latencies([row.ast for row in programs], [row.hardware for row in programs])

    def _predict_members(
        self, programs: Sequence[CompactAst], hardware: Sequence[Hardware]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the log seconds that the members say."""
        said = np.zeros((len(self.members), len(programs)))
        devices = context_of(programs, hardware)
        if programs and devices.shape[1] != self.shape.device:
            other = len(HARDWARE.fields) + len(CODE.fields)
            beside = (width - other for width in (self.shape.device, devices.shape[1]))
            raise InputError(
                "the model reads {} numbers of operands beside a program, got {}".format(*beside)
            )
        rows = encode_rows(devices, self.scales, "device")
        counts = np.array([len(one.leaves) for one in programs])
        for count in np.unique(counts):
            places = np.flatnonzero(counts == count)
            plain = np.array([programs[int(k)].leaves for k in places])
            leaves, work = (
                encode_rows(plain, self.scales, "leaf"),
                estimate_leaf_times(plain, devices[places]),
            )
            positions = encoded(self.shape, np.array([programs[int(k)].order for k in places]))
            for member, weights in enumerate(self.members):
                embedded = embed(self.shape, weights, leaves, positions, rows[places], np)
                _, logs = convert_output(
                    self.shape, self.labels, decode(self.shape, weights, embedded, work, np), np
                )
                said[member, places] = logs.clip(*self.ends)
        return said.mean(0), said.std(0)

    def calibrated(
        self, programs: Programs, unseen: Callable[[Programs], np.ndarray] | None = None
    ) -> "LatencyModel":
        """Return the model with intervals that hold for COVERED of such programs (split conformal prediction).

        Args:
            unseen: programs -> (n,) seconds predicted without having trained on them; default: the model's own predictions.

        Raises:
            InputError: there are too few.
        """
        if len(programs) < LEAST:
            raise InputError(f"intervals need at least {LEAST} programs, got {len(programs)}")
        bare = programs.uncompiled()
        sorts = np.array([sort_of(row.ast, row.hardware) for row in (*programs, *bare)])
        every = Programs((*programs, *bare))
        found = {UNCOMPILED: bare} | {str(sort): every.where(sorts == sort) for sort in np.unique(sorts)}
        return replace(
            self,
            intervals={
                sort: self._interval(some, unseen) for sort, some in found.items() if len(some) >= LEAST
            },
        )

    def _interval(self, programs: Programs, unseen: Callable[[Programs], np.ndarray] | None) -> Interval:
        logs, spread = self._predict_members(
            [row.ast for row in programs], [row.hardware for row in programs]
        )
        if unseen is not None:
            logs = np.log(unseen(programs))
        floor = max(float(np.median(spread)), 1e-3)
        errors = np.log(programs.seconds) - logs
        off, middle = errors / (spread + floor), float(np.median(errors))
        times = covered(off)
        shared = _shared((errors - middle) / (spread + floor), programs)
        return Interval(floor, times, shared, math.exp(middle))

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the model into ``directory`` as JSON and safetensors; raise InputError where that cannot be."""
        LATENCY.save(directory, {
            "kind": "latency", "version": VERSION, "features": [LEAVES.id, HARDWARE.id, CODE.id],
            "shape": self.shape.to_json(), "labels": self.labels.to_json(), "ends": list(self.ends),
            "members": len(self.members), "card": dict(self.card),
            "devices": [one.to_json() for one in self.devices.values()],
            "intervals": {
                sort: [one.floor, one.times, one.shared, one.level] for sort, one in self.intervals.items()
            },
        }, {
            **self.scales,
            **{f"{k}.{name}": array for k, of in enumerate(self.members) for name, array in of.items()},
        })  # fmt: skip

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Read a model back.

        Raises:
            InputError: a file is missing or damaged, or the model reads other features than this release has.
        """
        return LATENCY.load(directory, "latency", VERSION, cls._from_description)

    @classmethod
    def _from_description(cls, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        ids, read = about["features"], (LEAVES.has_id, HARDWARE.has_id, CODE.has_id)
        if len(ids) != len(read) or not all(has_id(id_) for has_id, id_ in zip(read, ids, strict=True)):
            raise InputError("the model was trained on other features than this release has; train it again")
        shape, count = Shape.from_json(about["shape"]), int(about["members"])
        wanted = shapes(shape)
        if (
            not 0 < count <= 100
            or shape.leaf != len(LEAVES.fields)
            or shape.device < len(HARDWARE.fields) + len(CODE.fields)
        ):
            raise InputError("the model's description is malformed")
        sizes = {
            **{f"leaf.{name}": (shape.leaf,) for name in ("mean", "std")},
            **{f"device.{name}": (shape.device,) for name in ("mean", "std")},
            "leaf.knots": (shape.leaf_bins + 1, shape.leaf),
            "device.knots": (shape.bins + 1, shape.device),
        }
        scales = {name: arrays[name] for name in sizes}
        members = tuple({name: arrays[f"{k}.{name}"] for name in wanted} for k in range(count))
        for name, array in scales.items():
            if array.shape != sizes[name]:
                raise InputError(f"{name} of the model has shape {array.shape}")
        for member in members:
            for name, size in wanted.items():
                if member[name].shape != size or not np.isfinite(member[name]).all():
                    raise InputError(f"weights {name} of the model are malformed")
        devices = [Hardware.from_json(one) for one in about["devices"]]
        low, high = map(float, about["ends"])
        intervals = {sort: Interval(*map(float, one)) for sort, one in dict(about["intervals"]).items()}
        return cls(
            shape, Labels.from_json(about["labels"]), scales, (low, high), members, {one.name: one for one in devices},
            intervals, dict(about["card"]),
        )  # fmt: skip


def parts(
    programs: Programs, validation: float, seed: int, member: int = 0
) -> tuple[Programs, Programs, Programs]:
    """Return the programs that train a member, those that choose its best epoch, and those that calibrate intervals.

    The last are the same for all members. Those that choose the epoch differ, so that each of them trains other members.

    Args:
        validation: share of the tasks for the last two, half each: those of whole networks.
    """
    rest, calibration = _kept_back(programs, validation / 2, np.random.default_rng([seed, 3]))
    share = validation / (2 - validation)
    return *_kept_back(rest, share, np.random.default_rng([seed, 3, member])), calibration


def _kept_back(programs: Programs, share: float, rng: np.random.Generator) -> tuple[Programs, Programs]:
    """Divide programs, but nothing is kept back where all would be, of a single network."""
    rest, kept = programs.divided(share, rng)
    return (rest, kept) if len(rest) else (kept, rest)


def train_latency(
    programs: Programs,
    settings: "LatencyTraining",
    *,
    sizes: Mapping[str, Any] | None = None,
    labels: Kind = "box-cox",
    members: int = 2,
    validation: float = 0.2,
    checkpoints: Path | None = None,
    budget_s: float = float("inf"),
    progress: Progress = lambda *_: None,
    torch_device: str = "cpu",
) -> LatencyModel | None:
    """Train a model; None if the budget ended before (then the same call resumes from ``checkpoints``).

    Args:
        settings: of each member's training; their seeds follow each other.
        sizes: of the network, where they are not the default: fields of ``Shape``.
        validation: share of the tasks that are kept back from a member, by whole networks, see ``parts``.
        checkpoints: folder with a file for each member.
        torch_device: torch's name of where to compute: ``cpu``, ``cuda``.

    Raises:
        InputError: there is too little to learn from, or no such device.
        MissingExtraError: torch is not installed.
    """
    from tensorwise.model.latency_training import LatencyTrainer
    from tensorwise.model.torch_extra import check_device

    check_device(torch_device)
    training, chosen, calibration = parts(programs, validation, settings.seed)
    if len(training) < 2:
        raise InputError(f"{len(programs)} programs are too few to learn from")
    known = Programs(training.rows + chosen.rows)
    fitted = Labels.fitted(labels, known.seconds)
    given: dict[str, Any] = dict(sizes or {})
    if given.get("joining") != "sum":
        given.setdefault("counts", known.counts(LEAST, MOST_LEAVES))
    shape = Shape(len(LEAVES.fields), known.context.shape[1], **given)
    scales = scales_of(
        np.concatenate([row.ast.leaves for row in known]), known.context, shape.leaf_bins, shape.bins
    )
    found, rates, errors, ends = [], list[float](), list[float](), time.monotonic() + budget_s
    for member in range(members):
        training, chosen, _ = parts(programs, validation, settings.seed, member)
        trainer = LatencyTrainer(
            shape, fitted, replace(settings, seed=settings.seed + member), training, chosen, scales,
            checkpoints and checkpoints / f"member-{member}.safetensors",
            partial(progress, member), torch_device=torch_device,
        )  # fmt: skip
        weights = trainer.run(ends - time.monotonic())
        if weights is None:
            return None
        found.append(weights)
        rates += [len(training) / seconds for _, _, seconds in trainer.history]
        errors.append(min(error for _, error, _ in trainer.history))
    card = {
        "programs": len(known), "tasks": len(known.tasks), "programs_per_s": float(np.median(rates)),
        "validation": None if any(map(math.isnan, errors)) else float(np.mean(errors)),
    }  # fmt: skip
    devices = {row.device: row.hardware for row in known}
    model = LatencyModel(shape, fitted, scales, _ends(known), tuple(found), devices, card=card)
    return model.calibrated(calibration) if len(calibration) >= LEAST else model


def judged(model: LatencyModel, held: Programs) -> dict[str, Any]:
    """Return how far off a model is on programs that it has not learned from, for its card.

    Returns:
        ``programs``, ``tasks``; ``mape``, mean relative error of the seconds, also by device under ``devices``; ``median``
        of it; what ``Latencies.covering`` says of its intervals; ``together``: the same of sums of the programs that each
        network has in ``held``, one of each task, at random.
    """
    found = model.of(held)
    return {**errors(found.seconds, held), **found.covering(held.seconds), "together": _together(found, held)}


def errors(seconds: np.ndarray, programs: Programs) -> dict[str, Any]:
    """Return how far ``seconds`` (n,) that are said of programs are off: the first five of what `judged` does."""
    off = np.abs(seconds / programs.seconds - 1)
    names = np.array([row.device for row in programs])
    return {
        "programs": len(programs), "tasks": len(programs.tasks), "mape": float(off.mean()),
        "median": float(np.median(off)),
        "devices": {device: float(off[names == device].mean()) for device in programs.devices},
    }  # fmt: skip


def _together(found: Latencies, held: Programs) -> dict[str, float]:
    """How well the sum of a network's programs on a device is predicted, one of each task that is held out."""
    rng, took, said = np.random.default_rng(0), list[float](), list[tuple[float, float, float]]()
    for rows in held.by_network().values():
        of: dict[str, list[int]] = {}
        for place in rows:
            of.setdefault(held.rows[place].task, []).append(place)
        for _ in range(DRAWN):
            places = [int(rng.choice(some)) for some in of.values()]
            took.append(float(held.seconds[places].sum()))
            said.append(found.together(places, [1] * len(places)))
    if not took:
        return {}
    whole, measured = Latencies(*np.array(said).T), np.array(took)
    off = np.abs(whole.seconds / measured - 1)
    return {"mape": float(off.mean()), **whole.covering(measured)}


def covered(off: np.ndarray) -> float:
    """Return the bound within which a share COVERED of further errors stays, by n known ones (split conformal prediction).

    Args:
        off: (n,) errors, of either sign.
    """
    place = min(int(np.ceil((len(off) + 1) * COVERED)), len(off)) - 1
    return float(np.sort(np.abs(off))[place])


def _shared(off: np.ndarray, programs: Programs) -> float:
    """The correlation between errors of programs of one network on one device, over all pairs; 1 where there are none."""
    groups = [off[places] for places in programs.by_network().values()]
    pairs = sum(float(one.sum() ** 2 - (one**2).sum()) for one in groups)
    most = sum(float((len(one) - 1) * (one**2).sum()) for one in groups)
    return float(np.clip(pairs / most, 0, 1)) if most > 0 else 1.0


@final
@dataclass(frozen=True, eq=False)
class FineTuned:
    """A model that went on to another device or network.

    Attributes:
        model: of it.
        held: ids of the measured tasks that each of its members has not learned from.
    """

    model: LatencyModel
    held: tuple[frozenset[str], ...]

    def unseen(self, programs: Programs) -> np.ndarray:
        """Return seconds of programs of the measured tasks, each as the member says that has not learned from it: (n,)."""
        seconds = np.full(len(programs), np.nan)
        for held, member in zip(self.held, self.model.members, strict=True):
            inside = np.array([row.task in held for row in programs], bool)
            one = replace(self.model, members=(member,))
            seconds[inside] = one.of(programs.where(inside)).seconds
        return seconds


def fine_tuned(
    model: LatencyModel,
    known: Programs,
    measured: Programs,
    foreign: Programs | None,
    settings: "LatencyTraining",
) -> FineTuned:
    """Return the model after some epochs, but at least STEPS steps, on a new device or network (CDMPP, sections 5.3, 5.4).

    It has NUM_FOLDS members, each trained further from one member of the model. Each member holds back another fold of the
    measured tasks, to choose its epoch; its predictions of that fold calibrate the intervals.

    Args:
        known: the training data of the model, or a part of it. Half of all steps use a sample of it, so that it is not
            forgotten; times of the tasks of ``foreign`` on other devices are all in the sample. If it is empty, the returned
            model knows the target only.
        measured: some programs of the target with their times.
        foreign: other programs that the target runs, if known. Their times are not used; training draws the distribution of
            their embeddings towards that of the others.

    Raises:
        InputError: fewer than NUM_FOLDS tasks were measured.
    """
    from tensorwise.model.latency_training import LatencyTrainer

    tasks = np.random.default_rng([settings.seed, 4]).permutation(measured.tasks)
    if len(tasks) < NUM_FOLDS:
        raise InputError(f"a model needs at least {NUM_FOLDS} measured tasks to learn from, got {len(tasks)}")
    if not model.reads_code:
        known, measured = known.uncompiled(), measured.uncompiled()
        foreign = None if foreign is None else foreign.uncompiled()
    asked = set() if foreign is None else set(foreign.tasks)
    drawn = np.random.default_rng([settings.seed, 6]).permutation(len(known))
    stays = np.array([row.task in asked for row in known], bool)
    stays[drawn[: max(len(measured), SEEN_AGAIN)]] = True
    some, found, held = known.where(stays).rows, [], []
    for part in range(NUM_FOLDS):
        held.append(frozenset(map(str, tasks[part::NUM_FOLDS])))
        inside = np.array([row.task in held[-1] for row in measured], bool)
        learned, chosen = measured.where(~inside), measured.where(inside)
        both = Programs(some + learned.rows * max(1, round(len(some) / len(learned))))
        start = model.members[part % len(model.members)]
        passes = max(settings.epochs, math.ceil(STEPS * settings.batch / len(both)))
        trainer = LatencyTrainer(
            model.shape, model.labels, replace(settings, seed=settings.seed + part, epochs=passes), both, chosen,
            model.scales, start=start if some else _levelled(model, start, learned), foreign=foreign,
        )  # fmt: skip
        found.append(trainer.run() or {})
    devices = {row.device: row.hardware for row in measured}
    if some:
        devices = {**model.devices, **devices}
    low, high = _ends(Programs(some + measured.rows))
    ends = min(model.ends[0], low), max(model.ends[1], high)
    tuned = FineTuned(replace(model, ends=ends, members=tuple(found), devices=devices), tuple(held))
    if len(measured) < LEAST:
        return tuned
    return replace(tuned, model=tuned.model.calibrated(measured, tuned.unseen))


def _levelled(
    model: LatencyModel, member: Mapping[str, np.ndarray], measured: Programs
) -> Mapping[str, np.ndarray]:
    """A member that is right in the median on ``measured``: a new device may be a hundred times as fast as those known.

    Where leaves are not added up, no weight is a factor of the seconds, and it stays what it is.
    """
    if model.shape.joining != "sum":
        return member
    name = f"decoder{len(model.shape.decoder)}.bias"
    unbounded = replace(model, members=(member,), ends=(-math.inf, math.inf))
    off = np.log(measured.seconds / unbounded.of(measured).seconds)
    return {**member, name: member[name] + np.float32(np.median(off))}


def _ends(programs: Programs) -> tuple[float, float]:
    """How far answers may go: four times as far as what was measured, on a log scale both ways."""
    logs = np.log(programs.seconds)
    return float(logs.min() - np.log(BEYOND)), float(logs.max() + np.log(BEYOND))
