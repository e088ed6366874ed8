"""Labels: seconds as numbers that a network learns well (CDMPP, section 5.4), and back. For NumPy and torch alike."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, final, get_args

import numpy as np

from tensorwise.errors import InputError

Kind = Literal["box-cox", "yeo-johnson", "quantile", "log", "none"]
QUANTILES: Final = 200
"""Points of a quantile transformation: as many again in between would be noise."""
UNIT_S: Final = 1e-6
"""Microseconds: Yeo-Johnson's depends on the unit, since it adds 1."""


@final
@dataclass(frozen=True, eq=False)
class Labels:
    """A transformation of positive seconds, fitted so that labels have mean 0 and deviation 1.

    Attributes:
        kind: ``box-cox``: (t^p - 1) / p; ``yeo-johnson``: the same of 1 + t; ``quantile``: the quantile of the normal
            distribution at t's rank; ``log``; ``none``: t.
        power: p.
        mean, deviation: of what is then standardised.
        seconds: (points,) microseconds, ascending; levels: (points,) what they become, of quantiles.
    """

    kind: Kind
    power: float
    mean: float
    deviation: float
    seconds: np.ndarray
    levels: np.ndarray

    @classmethod
    def fitted(cls, kind: Kind, seconds: np.ndarray) -> Self:
        """Return the transformation fitted to (n,) positive seconds, by maximum likelihood where it has a power.

        Raises:
            InputError: an unknown kind, or fewer than two different seconds.
        """
        from scipy import stats

        times = np.asarray(seconds, float) / UNIT_S
        if kind not in get_args(Kind):
            raise InputError(f"labels must be one of {', '.join(get_args(Kind))}, got {kind!r}")
        if len(times) < 2 or times.min() <= 0 or np.ptp(times) == 0:
            raise InputError("labels need at least two different times above 0")
        power, points, levels = 0.0, np.zeros(0), np.zeros(0)
        if kind == "box-cox":
            power = float(stats.boxcox_normmax(times, method="mle"))
        elif kind == "yeo-johnson":
            power = float(stats.yeojohnson_normmax(times))
        elif kind == "quantile":
            shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
            points, first = np.unique(np.quantile(times, shares), return_index=True)
            levels = stats.norm.ppf(shares)[first]
        plain = cls(kind, power, 0.0, 1.0, points, levels)
        found = plain.of(times * UNIT_S, np)
        return cls(kind, power, float(found.mean()), float(found.std()) or 1.0, points, levels)

    def of(self, seconds: Any, library: Any) -> Any:
        """Return the labels of seconds; ``library`` is numpy or torch, as the array is."""
        times = seconds / UNIT_S
        if self.kind == "log":
            found = library.log(times)
        elif self.kind == "none":
            found = times
        elif self.kind == "quantile":
            found = _between(library, library.log(times), np.log(self.seconds), self.levels)
        else:
            base = library.log(times + (1.0 if self.kind == "yeo-johnson" else 0.0))
            found = library.expm1(self.power * base) / self.power if abs(self.power) > 1e-6 else base
        return (found - self.mean) / self.deviation

    def log_seconds(self, labels: Any, library: Any) -> Any:
        """Return the logarithm of the seconds that labels stand for; what no seconds stand for is taken as the nearest."""
        found = labels * self.deviation + self.mean
        if self.kind == "log":
            logs = found
        elif self.kind == "none":
            logs = library.log(found.clip(min=1e-3))
        elif self.kind == "quantile":
            logs = _between(library, found, self.levels, np.log(self.seconds))
        else:
            flat = abs(self.power) <= 1e-6
            logs = found if flat else library.log1p((self.power * found).clip(min=-1 + 1e-6)) / self.power
            if self.kind == "yeo-johnson":
                logs = library.log(library.expm1(logs.clip(min=1e-3)))
        return logs + float(np.log(UNIT_S))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        lists = {"seconds": self.seconds.tolist(), "levels": self.levels.tolist()}
        return {
            "kind": self.kind,
            "power": self.power,
            "mean": self.mean,
            "deviation": self.deviation,
            **lists,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read back what ``to_json`` returned; raise InputError for something else."""
        if data["kind"] not in get_args(Kind):
            raise InputError(f"unknown labels {data['kind']!r}")
        numbers = [float(data[name]) for name in ("power", "mean", "deviation")]
        points, levels = (np.array(data[name], float) for name in ("seconds", "levels"))
        usable = np.isfinite(numbers).all() and numbers[2] > 0 and points.shape == levels.shape
        if not usable or (
            data["kind"] == "quantile" and not (len(points) > 1 and (np.diff(points) > 0).all())
        ):
            raise InputError("malformed labels")
        power, mean, deviation = numbers
        return cls(data["kind"], power, mean, deviation, points, levels)


def _between(library: Any, given: Any, points: np.ndarray, values: np.ndarray) -> Any:
    """Interpolate linearly, and beyond the ends go on as in the last piece."""
    x, y = (library.asarray(array, dtype=given.dtype, device=given.device) for array in (points, values))
    after = library.searchsorted(x, given).clip(1, len(points) - 1)
    share = (given - x[after - 1]) / (x[after] - x[after - 1])
    return y[after - 1] + share * (y[after] - y[after - 1])
