"""A model of a GPU's times that begins with others': a line in them, and what is left over by Gaussian processes."""

import warnings
from itertools import product
from typing import Final

import numpy as np

from tensorwise.errors import MissingExtraError

SLOPE: Final = (0.7, 0.3)
"""What a factor of the sources' times is thought to be on the target, as an exponent: mean, and each source's deviation."""
LEVEL: Final = 10.0
"""Deviation of what the target's times are in all, in logarithms: nothing is known of it."""
AMPLITUDES: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Variances, in logarithms squared, of what configs leave over ..."""
ALONG: Final = (0.0, 0.03, 0.1, 0.3)
"""... and of what the sources' times leave over ..."""
NOISE: Final = (1e-4, 1e-3, 1e-2)
"""... and of noise: the likeliest of all combinations is taken."""
BEND: Final = 0.5
"""Length over which what is left over along the sources' times changes, in their standard deviations."""
LEARNED_FROM: Final = 300
"""Configs of the source by which lengths are chosen; half of them are from the fastest tenth, which matters."""


def matern(distances: np.ndarray) -> np.ndarray:
    """Return Matern's kernel of order 5/2."""
    scaled = np.sqrt(5) * distances
    return np.asarray((1 + scaled + scaled**2 / 3) * np.exp(-scaled))


def lengths(numbers: np.ndarray, logs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return over which length of each field times change, (fields,), by maximum likelihood on what is known of a device.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor, kernels
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "select", "choosing lengths") from error
    order, half = np.argsort(logs, kind="stable"), min(LEARNED_FROM, len(logs)) // 2
    fast = order[: max(half, len(order) // 10)]
    rows = np.union1d(rng.choice(fast, half, replace=False), rng.choice(len(logs), half, replace=False))
    shape = kernels.Matern(np.full(numbers.shape[1], 2.0), (0.2, 50.0), nu=2.5)
    kernel = kernels.ConstantKernel(1.0, (1e-3, 1e2)) * shape + kernels.WhiteKernel(1e-3, (1e-6, 0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a field that does not matter has no length
        fitted = GaussianProcessRegressor(kernel, normalize_y=True).fit(numbers[rows], logs[rows])
    return np.asarray(fitted.kernel_.k1.k2.length_scale)


class Moved:
    """Predicts logarithms of a target's times.

    Args:
        numbers: (configs, fields); the length over which times change is 1 in each.
        sources: (GPUs, configs) logarithms of the sources' times; none where there is no source.

    Attributes:
        source: (configs,) logarithms of times on all sources together, of mean 0; all 0 without any.
    """

    def __init__(self, numbers: np.ndarray, sources: np.ndarray) -> None:
        self.numbers, self._sources = numbers, sources - sources.mean(axis=1, keepdims=True)
        self.source = self._sources.mean(axis=0) if len(sources) else np.zeros(len(numbers))
        deviations = self._sources.std(axis=1, keepdims=True)
        self._scaled = self._sources / np.where(deviations > 0, BEND * deviations, 1.0)

    def likeliest(self, rows: np.ndarray, logs: np.ndarray) -> tuple[float, tuple[float, float, float]]:
        """Return how likely the target's times of some configs are, a logarithm, and the amplitudes that make them so.

        Args:
            rows: (measured,) places of configs; logs: (measured,) logarithms of their times.
        """
        over = self._over(rows, logs)[0]
        near, along, line = self._kernels(rows, rows)
        likeliest, chosen = -np.inf, (AMPLITUDES[0], ALONG[0], NOISE[0])
        for amplitude, bend, noise in product(AMPLITUDES, ALONG, NOISE):
            root = np.linalg.cholesky(amplitude * near + bend * along + line + noise * np.eye(len(rows)))
            likelihood = -0.5 * np.square(np.linalg.solve(root, over)).sum() - np.log(np.diag(root)).sum()
            if likelihood > likeliest:
                likeliest, chosen = likelihood, (amplitude, bend, noise)
        return likeliest, chosen

    def predict(self, rows: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Learn from the target's times of some configs; return mean and deviation of all, (configs,) each.

        Args: as of ``likeliest``.
        """
        over, middle = self._over(rows, logs)
        near, along, line = self._kernels(rows, rows)
        _, (amplitude, bend, noise) = self.likeliest(rows, logs)
        root = np.linalg.cholesky(amplitude * near + bend * along + line + noise * np.eye(len(rows)))
        near, along, line = self._kernels(np.arange(len(self.source)), rows)
        whole = amplitude * near + bend * along + line
        seen = np.linalg.solve(root, whole.T)
        mean = SLOPE[0] * self.source + middle + seen.T @ np.linalg.solve(root, over)
        before = amplitude + bend + SLOPE[1] ** 2 * np.square(self._sources).sum(axis=0) + LEVEL**2
        return mean, np.sqrt(np.maximum(before - np.square(seen).sum(axis=0), 1e-8))

    def _over(self, rows: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, float]:
        """What the usual line in the sources' times leaves over, and its level."""
        over = logs - SLOPE[0] * self.source[rows]
        middle = float(np.median(over))
        return over - middle, middle

    def _kernels(self, some: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of configs by what they are, by the sources' times, and of the line."""
        apart = _distances(self.numbers[some], self.numbers[others])
        across = _distances(self._scaled[:, some].T, self._scaled[:, others].T)
        line = SLOPE[1] ** 2 * self._sources[:, some].T @ self._sources[:, others] + LEVEL**2
        return matern(apart), matern(across), line


def _distances(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    squares = np.square(some).sum(axis=1)[:, None] + np.square(others).sum(axis=1)
    return np.asarray(np.sqrt(np.maximum(squares - 2 * some @ others.T, 0)))
