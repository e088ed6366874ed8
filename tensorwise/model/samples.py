"""Records as a ranking learns from them: one group a job, within which configs are compared."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final, get_args

import numpy as np

from tensorwise.analysis.featurizer import Featurizer
from tensorwise.analysis.matrix import MatrixPattern
from tensorwise.analysis.tensor import TensorPattern
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.model.metrics import SLOW
from tensorwise.model.table import Encoded, Table
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tensorwise.store.split import split_families
from tensorwise.units import SHORTEST_S

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload
    from tensorwise.tensor.entries import Entries

Loss = Literal["hinge", "ratio"]
"""What a pair of configs is taught; see ``Training``."""


@final
@dataclass(frozen=True)
class Training:
    """How a ranking is trained. The defaults are WACO's (section 4.1.3) where it says something.

    Attributes:
        epochs: passes over the workloads, at most; the rate falls to zero over so many.
        batch: configs of a workload that are compared in a step, drawn anew each epoch.
        learning_rate: Adam's first one; weight_decay: by how much of the rate each step shrinks all weights (AdamW).
        loss: ``hinge``: the score of a slower config should exceed that of a faster one by ``margin``, however much slower
            it is. ``ratio``: by log2 of the ratio of their times; and a score should be log2 of the ratio to the time of
            the job's default config.
        margin: of the hinge; of the ratio, how far off an error ceases to count squared.
        validation: share of the families that are kept back to decide when to stop; 0 keeps none back. With a single
            family none is.
        averaged: decay of the moving average of the weights over all steps, which is the result (see ``Averaged.kept``);
            0: the weights of the last step.
        patience: epochs without a lower validation loss after which training stops.
        seed: draws first weights, validation families, the order of workloads and their batches.
        checkpoint_s: seconds between two checkpoints; one is written after each epoch besides.
        kept_bytes: prepared patterns up to this size are kept from one epoch to the next.
    """

    epochs: int = 80
    batch: int = 32
    learning_rate: float = 1e-4
    weight_decay: float = 0.0
    loss: Loss = "hinge"
    margin: float = 1.0
    validation: float = 0.2
    averaged: float = 0.0
    patience: int = 20
    seed: int = 0
    checkpoint_s: float = 300.0
    kept_bytes: int = 2 * 2**30

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch", 2), ("patience", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.loss not in get_args(Loss):
            raise InputError(f"loss must be one of {', '.join(get_args(Loss))}, got {self.loss!r}")
        decays = 0 <= self.weight_decay * self.learning_rate < 1
        if not (
            self.learning_rate > 0
            and decays
            and self.margin > 0
            and 0 <= self.validation < 1
            and 0 <= self.averaged < 1
        ):
            raise InputError(
                "learning rate and margin must be positive, weight decay times the rate, validation and averaged shares "
                f"below 1; got {self.learning_rate}, {self.margin}, {self.weight_decay}, {self.validation} and "
                f"{self.averaged}"
            )


def looked_up(workloads: "Callable[[str], Workload] | None") -> "Callable[[str], Workload]":
    """Return the function from ids to workloads that a model was given; raise InputError where it was not."""
    if workloads is None:
        raise InputError(
            "the model cannot look at patterns: give it workloads=, a function from ids to workloads"
        )
    return workloads


def falling(done: float) -> float:
    """Return what is left of a learning rate when a share of a training is done: half a cosine, from 1 to 0."""
    return (1 + math.cos(math.pi * min(done, 1.0))) / 2


Encode: TypeAlias = Callable[[str, Sequence[Config]], Encoded]
"""Workload id and configs -> the configs as numbers."""

MOST_DEVIATIONS: Final = 4.0
"""Standard deviations from the mean beyond which numbers about a workload are drawn in."""
BLINDED: Final = 0.25
"""Share of the training in which the loops of configs are hidden: walks over a graph score configs without them."""
LATER: Final = ("epochs", "patience", "checkpoint_s", "kept_bytes")
"""What may differ when a training is taken up again: it changes how it goes on, not what was learned before."""


@final
@dataclass(frozen=True)
class Epoch:
    """What one pass over the workloads came to.

    Attributes:
        number: from 1.
        training_loss, validation_loss: mean loss of a pair; NaN without validation.
        validation_spearman: mean rank correlation over validation workloads; NaN without.
        seconds: that it took; those of runs that were killed within it are not counted.
    """

    number: int
    training_loss: float
    validation_loss: float
    validation_spearman: float
    seconds: float

    def __str__(self) -> str:
        text = f"epoch {self.number}: loss {self.training_loss:.4f}"
        if not math.isnan(self.validation_loss):
            text += f", validation {self.validation_loss:.4f} (Spearman {self.validation_spearman:.3f})"
        return f"{text}, {self.seconds:.1f} s"

    def to_json(self) -> list[float | None]:
        """Return a JSON-able row; NaN becomes None."""
        row = (self.training_loss, self.validation_loss, self.validation_spearman, self.seconds)
        return [self.number, *(None if math.isnan(value) else value for value in row)]

    @classmethod
    def from_json(cls, row: Any) -> "Epoch":
        """Read back what ``to_json`` returned."""
        number, *rest = row
        return cls(int(number), *(math.nan if value is None else float(value) for value in rest))


@final
@dataclass(frozen=True)
class Group:
    """The configs of one job, at least two of which can be compared.

    Attributes:
        workload_id: whose pattern is looked at.
        family: patterns of one family are never divided between training and validation.
        numbers: what ``shape_numbers`` says of the workload, and for some networks statistics of its pattern: float64.
        configs: n encoded configs.
        seconds: float64, (n,); a lower bound where not ``exact``, infinite for a config that failed.
        exact: bool, (n,).
        default_s: seconds that the default config took; NaN where collection noted none.
    """

    workload_id: str
    family: str
    numbers: np.ndarray
    configs: Encoded
    seconds: np.ndarray
    exact: np.ndarray
    default_s: float

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, rows: np.ndarray) -> "Group":
        """Return the group with some of its configs."""
        chosen = {
            "configs": self.configs.take(rows),
            "seconds": self.seconds[rows],
            "exact": self.exact[rows],
        }
        return replace(self, **chosen)

    @cached_property
    def order(self) -> np.ndarray:
        """Return for each pair of configs 1 if the first is known to be slower, -1 if faster, else 0: (n, n) float32.

        A lower bound proves only that a config is slower than those with times below it; a config that failed counts as
        slower than all others.
        """
        slower = (self.seconds[:, None] > self.seconds[None, :]) & self.exact[None, :]
        signs: np.ndarray = slower.astype(np.float32) - slower.T.astype(np.float32)
        return signs

    @property
    def near(self) -> np.ndarray:
        """Whether a time is known and within SLOW times the best: bool, (n,)."""
        near: np.ndarray = self.exact & (self.seconds <= SLOW * self.seconds[self.exact].min(initial=np.inf))
        return near

    @cached_property
    def ratios(self) -> np.ndarray:
        """Return log2 of each time over that of the default config, or over one second if that is not known: (n,) float32.

        If a time is a lower bound, so is its ratio. A config that failed counts as no faster than the slowest measured one.
        """
        slowest = self.seconds[self.exact].max(initial=SHORTEST_S)
        unit = 1.0 if math.isnan(self.default_s) else self.default_s
        ratios: np.ndarray = np.log2(np.clip(self.seconds, SHORTEST_S, slowest) / unit).astype(np.float32)
        return ratios

    @cached_property
    def id(self) -> str:
        """Content id."""
        return content_id(
            [
                self.workload_id,
                self.numbers,
                self.configs.values,
                *self.configs.orders,
                *([] if self.configs.nests is None else [self.configs.nests]),
                self.seconds,
                self.exact,
            ]
        )


def shape_numbers(description: Mapping[str, Any]) -> np.ndarray:
    """Return numbers about a workload's shape, from a Record's description of it: float64, (order + 2,).

    log2(1 + x) of the extent of each mode of the sparse operand, of its entries, and of the product of the dense indices'
    extents. WACO takes extents and entries as they are; they span six decades, of which it is the ratios that matter.
    """
    shape = [float(extent) for extent in description["shape"]]
    dense = math.prod(float(extent) for extent in description["sizes"].values()) / max(1.0, math.prod(shape))
    numbers: np.ndarray = np.log2(1 + np.array([*shape, float(description["nnz"]), dense]))
    return numbers


def featurizer(order: int) -> "Featurizer[Entries]":
    """Return what describes patterns of an order to the network ``statistics``."""
    return MatrixPattern() if order == 2 else TensorPattern()


def moments(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return ``mean`` and standard deviation ``std`` of each column, 1 for one that never differs."""
    spread = rows.std(axis=0, dtype=np.float64)
    return {"mean": rows.mean(axis=0, dtype=np.float64), "std": np.where(spread > 0, spread, 1.0)}


def standardised(numbers: np.ndarray, by: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return numbers with mean 0 and deviation 1 over the training workloads: float32.

    Numbers outside the range of the training workloads are set to its nearest end, since networks do not extrapolate.
    """
    result: np.ndarray = ((numbers - by["mean"]) / by["std"]).clip(-MOST_DEVIATIONS, MOST_DEVIATIONS)
    return result.astype(np.float32)


def groups_of(
    records: Iterable[Record],
    space: str | None,
    table: Table,
    encode: Encode | None = None,
    *,
    partly: bool = False,
) -> list[Group]:
    """Return the groups of those records that can be learned from, in the order of their first records.

    Configs are compared within a job only, whose times were measured within minutes. Configs that the table cannot read are
    left out, and jobs that were lost as a whole, which tells nothing about a config. The family is the one in the records,
    else the workload itself.

    Args:
        records: of any jobs.
        space: name of the space of those that count; None: all.
        table: of the configs that can be read.
        encode: how they become numbers; None: as the table encodes them.
        partly: whether configs count of which the table does not know every choice.

    Raises:
        InputError: no two configs of any job can be compared, or the patterns are of several orders.
    """
    found: defaultdict[tuple[str, str, object], defaultdict[Config, list[Record]]] = defaultdict(
        lambda: defaultdict(list)
    )
    fits = table.reads if partly else table.fits
    fitting: dict[Config, bool] = {}
    for record in records:
        if space in (None, record.space) and record.is_isolated and not record.provenance.get("lost"):
            if record.config not in fitting:
                fitting[record.config] = fits(record.config)
            if fitting[record.config]:
                job = (record.workload_id, record.device_id, record.provenance.get("job"))
                found[job][record.config].append(record)
    groups = [
        _group(of_one, encode or (lambda _, configs: table.encode(configs))) for of_one in found.values()
    ]
    groups = [group for group in groups if group.order.any()]
    if not groups:
        raise InputError(
            f"no two records{f' of space {space!r}' if space else ''} compare configs of one workload on one device; "
            "measure more configs, or fit the model of the space that they belong to"
        )
    if len({len(group.numbers) for group in groups}) > 1:
        raise InputError("the records are of matrices and of tensors; fit one model for each order")
    return groups


def _group(records: Mapping[Config, Sequence[Record]], encode: Encode) -> Group:
    first = next(iter(records.values()))[0]
    times = Times.of(records)
    return Group(
        first.workload_id,
        str(first.provenance.get("family") or first.workload_id),
        shape_numbers(first.workload),
        encode(first.workload_id, list(records)),
        times.seconds,
        times.exact,
        times.default_s,
    )


@final
@dataclass(frozen=True)
class Times:
    """What a job's records say of its configs.

    Attributes:
        seconds: float64, (n,): of each config the median time. If its ratio to the default config was measured in
            interleaved rounds, that ratio times ``default_s``. If it has no time, its highest lower bound.
        exact: bool, (n,): whether it is a time.
        errors: float64, (n,): standard error of the natural logarithm of each ratio; NaN without rounds.
        default_s: median seconds of the default config; NaN where collection noted none.
    """

    seconds: np.ndarray
    exact: np.ndarray
    errors: np.ndarray
    default_s: float

    @classmethod
    def of(cls, records: Mapping[Config, Sequence[Record]]) -> "Times":
        """Read the records of each config of one job."""
        every = [record for of_config in records.values() for record in of_config]
        default = [
            max(record.seconds, SHORTEST_S)
            for record in every
            if record.ok and record.provenance.get("drawn") == "default"
        ]
        default_s = float(np.median(default)) if default else math.nan
        rows = [_time(of_config, default_s) for of_config in records.values()]
        seconds, exact, errors = zip(*rows, strict=True)
        return cls(np.array(seconds), np.array(exact), np.array(errors), default_s)


def _time(records: Sequence[Record], default_s: float) -> tuple[float, bool, float]:
    timed = [record for record in records if record.ok]
    if not timed:
        return max(record.seconds for record in records), False, math.nan
    facts: list[Mapping[str, Any]] = [record.provenance for record in timed]
    ratios = [(one["ratio"], one["ratio_error"]) for one in facts if "ratio" in one]
    if ratios and not math.isnan(default_s):
        middle, error = np.median(np.array(ratios), axis=0)
        return float(middle) * default_s, True, float(error)
    return float(np.median([record.seconds for record in timed])), True, math.nan


def divide(groups: Sequence[Group], share: float, seed: int) -> tuple[list[Group], list[Group]]:
    """Return groups to train and to validate with, whole families each: all to train with if there is one family only."""
    families = [group.family for group in groups]
    if not share or len(set(families)) == 1:
        return list(groups), []
    parts = {"training": 1 - share, "validation": share}
    part_of = split_families(families, np.random.default_rng(seed), parts)
    training, validation = ([group for group in groups if part_of[group.family] == part] for part in parts)
    return training, validation
