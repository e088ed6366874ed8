"""Cases: what the versions of a function took on its inputs, as a table, and how good a choice among them is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tensorwise.units import SHORTEST_S


@final
@dataclass(frozen=True, eq=False)
class Cases:
    """A matrix of times, inputs x configs: many inputs and few configs, unlike the records of a search.

    Attributes:
        fields: names of the features, in alphabetical order, as records keep them.
        configs: what was measured, such as versions.
        features: (inputs, fields) float64, finite.
        seconds: (inputs, configs) float64; infinite where a config failed or was not measured, never in a whole row.
        groups: a name an input; inputs that share one are never divided between training and test.
    """

    fields: tuple[str, ...]
    configs: tuple[Config, ...]
    features: np.ndarray
    seconds: np.ndarray
    groups: tuple[str, ...]

    @classmethod
    def of(cls, records: Iterable[Record], *, in_place: bool = False) -> Self:
        """Return the cases of one function on one device; of repeated measurements the fastest
        counts, as others on the machine only slow a version down.

        Inputs on which nothing ended ok are left out. ``provenance["input"]`` distinguishes inputs of equal
        features; ``provenance["cell"]`` names an input's group, where the generator of inputs gave one.

        Args:
            records: see above.
            in_place: leave out what moving operands and results took (``provenance["moving_s"]``): plans count it
                themselves.

        Raises:
            InputError: nothing ended ok, or the features are not the same everywhere, or not finite.
        """
        inputs: dict[str, Record] = {}
        configs: dict[Config, int] = {}
        took: dict[tuple[str, Config], float] = {}
        for record in records:
            key = f"{record.workload_id} {record.provenance.get('input', '')}"
            inputs.setdefault(key, record)
            configs.setdefault(record.config, len(configs))
            moving_s = cast(float, record.provenance.get("moving_s", 0.0)) if in_place else 0.0
            if record.ok and record.is_isolated:
                now = record.seconds - moving_s
                took[key, record.config] = min(now, took.get((key, record.config), np.inf))
        rows = {key: place for place, key in enumerate(inputs)}
        seconds = np.full((len(rows), len(configs)), np.inf)
        for (key, config), value in took.items():
            seconds[rows[key], configs[config]] = value
        sound = np.isfinite(seconds).any(axis=1) if configs else np.zeros(0, bool)
        if not sound.any():
            raise InputError("there is no record with status ok to learn from; measure something first")
        described = [features_of(record.workload) for record in inputs.values()]
        fields = tuple(described[0])
        if any(tuple(one) != fields for one in described):
            raise InputError(
                f"the records do not have the same features: {', '.join(fields)} and others; choose one function's"
            )
        features = np.array([list(one.values()) for one in described], float).reshape(len(rows), len(fields))
        if not np.isfinite(features).all():
            bad = fields[int(np.flatnonzero(~np.isfinite(features).all(axis=0))[0])]
            raise InputError(f"feature {bad!r} of some record is not finite")
        groups = [str(record.provenance.get("cell", key)) for key, record in inputs.items()]
        kept = np.flatnonzero(sound)
        return cls(fields, tuple(configs), features[kept], seconds[kept], tuple(groups[k] for k in kept))

    def __len__(self) -> int:
        return len(self.features)

    @property
    def best(self) -> np.ndarray:
        """Place of the fastest config, (inputs,) int64."""
        return np.asarray(np.argmin(self.seconds, axis=1))

    @property
    def penalties(self) -> np.ndarray:
        """What each config takes longer than the fastest, as a share of that: (inputs, configs), 0 for the fastest."""
        seconds = np.maximum(self.seconds, SHORTEST_S)
        return np.asarray(seconds / seconds.min(axis=1, keepdims=True) - 1)

    def take(self, places: np.ndarray) -> "Cases":
        """Return the cases at ``places``, or where a mask says so."""
        groups = np.asarray(self.groups, object)[places]
        return Cases(self.fields, self.configs, self.features[places], self.seconds[places], tuple(groups))

    def folds(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Return for each input the fold, 0 to count - 1, that tests it; groups stay together.

        Raises:
            InputError: there are fewer groups than folds.
        """
        names, group = np.unique(np.asarray(self.groups, str), return_inverse=True)
        if len(names) < count:
            raise InputError(f"{count} folds need as many groups of inputs, got {len(names)}")
        return cast(np.ndarray, rng.permutation(len(names))[group] % count)

    def quality(self, chosen: np.ndarray) -> "SelectionQuality":
        """Evaluate the choice of config ``chosen[i]``, (inputs,) int, on input i."""
        ran = np.isfinite(self.seconds[np.arange(len(self)), chosen])
        if not ran.any():
            raise InputError("what was chosen failed on every input")
        seconds = self.seconds[ran]
        took, least = seconds[np.arange(len(seconds)), chosen[ran]], seconds.min(axis=1)
        gains = (seconds / took[:, None]).mean(axis=0)
        constant = int(np.argmin(gains))
        best = np.bincount(self.best, minlength=len(self.configs)) / len(self)
        return SelectionQuality(
            inputs=len(self),
            failed=int(len(self) - len(seconds)),
            pois=float(least.sum() / took.sum()),
            ppp=float((took / least - 1).mean()),
            accuracy=float((took == least).mean()),
            speedup=float(gains[constant]),
            constant=self.configs[constant],
            shares=dict(zip(self.configs, best.tolist(), strict=True)),
        )


@final
@dataclass(frozen=True)
class SelectionQuality:
    """How good a choice is, by MLCD's measures (sections IV-D and V-A); all are shares, not percent.

    Attributes:
        inputs: how many there are.
        failed: number of inputs whose chosen config had failed or was not measured; the other figures leave these out.
        pois: percentage of ideal speed: sum over inputs of the least seconds, divided by that of the chosen configs. Long
            inputs decide it.
        ppp: average performance penalty: how much longer the choice takes than the best, each input counting equally.
        accuracy: share of inputs on which the fastest was chosen.
        speedup: over the best constant choice: time of that over time of the choice, averaged over inputs.
        constant: that choice, the one with the least such average.
        shares: config -> share of inputs on which it is fastest.
    """

    inputs: int
    failed: int
    pois: float
    ppp: float
    accuracy: float
    speedup: float
    constant: Config
    shares: Mapping[Config, float]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; configs become texts."""
        return {
            "inputs": self.inputs,
            "failed": self.failed,
            "pois": self.pois,
            "ppp": self.ppp,
            "accuracy": self.accuracy,
            "speedup": self.speedup,
            "constant": config_name(self.constant),
            "fastest": {config_name(config): share for config, share in self.shares.items()},
        }


def config_name(config: Config) -> str:
    """Name a config for people: of one choice its value, else all of it.

    >>> config_name(Config({"version": "blas"}))
    'blas'
    """
    values = [value for value in config.values() if value is not None]
    return str(values[0]) if len(values) == 1 and isinstance(values[0], str) else str(config)


def features_of(described: Mapping[str, object]) -> dict[str, float]:
    """Return the features in the description of a workload: a call's own, an einsum's sizes and entries."""
    about = cast(Mapping[str, Any], described)
    if "features" in about:
        return {str(name): float(value) for name, value in about["features"].items()}
    return {**{str(name): float(value) for name, value in about["sizes"].items()}, "nnz": float(about["nnz"])}


def matrix_of(rows: Sequence[Mapping[str, float]], fields: Sequence[str]) -> np.ndarray:
    """Return features as (rows, fields) float64.

    Raises:
        InputError: one is missing.
    """
    try:
        return np.array([[row[name] for name in fields] for row in rows], float).reshape(-1, len(fields))
    except KeyError as error:
        raise InputError(f"the feature {error.args[0]!r} is missing; expected {', '.join(fields)}") from error
