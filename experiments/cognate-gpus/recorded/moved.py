"""A model of a GPU's times that begins with another's: a line in them, and what is left over by Gaussian processes."""

import warnings
from itertools import product
from typing import Final

import numpy as np

from tensorwise.errors import MissingExtraError

SLOPE: Final = (0.7, 0.3)
"""What a factor of the source's time is thought to be on the target, as an exponent: mean and deviation."""
LEVEL: Final = 10.0
"""Deviation of what the target's times are in all, in logarithms: nothing is known of it."""
AMPLITUDES: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Variances, in logarithms squared, of what configs leave over ..."""
ALONG: Final = (0.0, 0.03, 0.1, 0.3)
"""... and of what the source's times leave over ..."""
NOISE: Final = (1e-4, 1e-3, 1e-2)
"""... and of noise: the likeliest of all combinations is taken."""
BEND: Final = 0.5
"""Length over which what is left over along the source's times changes, in their standard deviations."""
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
        source: (configs,) logarithms of the source's times; all 0 where there is no source.
    """

    def __init__(self, numbers: np.ndarray, source: np.ndarray) -> None:
        self.numbers, self.source = numbers, source - source.mean()
        self._deviation = float(self.source.std()) or 1.0

    def predict(self, rows: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Learn from the target's times of some configs; return mean and deviation of all, (configs,) each.

        Args:
            rows: (measured,) places of configs; logs: (measured,) logarithms of their times.
        """
        middle = float(np.median(logs - SLOPE[0] * self.source[rows]))
        over = logs - SLOPE[0] * self.source[rows] - middle
        near, along, line = self._kernels(rows, rows)
        likeliest, chosen = -np.inf, (AMPLITUDES[0], ALONG[0], NOISE[0])
        for amplitude, bend, noise in product(AMPLITUDES, ALONG, NOISE):
            root = np.linalg.cholesky(amplitude * near + bend * along + line + noise * np.eye(len(rows)))
            likelihood = -0.5 * np.square(np.linalg.solve(root, over)).sum() - np.log(np.diag(root)).sum()
            if likelihood > likeliest:
                likeliest, chosen = likelihood, (amplitude, bend, noise)
        amplitude, bend, noise = chosen
        root = np.linalg.cholesky(amplitude * near + bend * along + line + noise * np.eye(len(rows)))
        near, along, line = self._kernels(np.arange(len(self.source)), rows)
        whole = amplitude * near + bend * along + line
        seen = np.linalg.solve(root, whole.T)
        mean = SLOPE[0] * self.source + middle + seen.T @ np.linalg.solve(root, over)
        before = amplitude + bend + (SLOPE[1] * self.source) ** 2 + LEVEL**2
        return mean, np.sqrt(np.maximum(before - np.square(seen).sum(axis=0), 1e-8))

    def _kernels(self, some: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of configs by what they are, by the source's times, and of the line."""
        squares = np.square(self.numbers[some]).sum(axis=1)[:, None] + np.square(self.numbers[others]).sum(
            axis=1
        )
        apart = np.sqrt(np.maximum(squares - 2 * self.numbers[some] @ self.numbers[others].T, 0))
        across = np.abs(self.source[some][:, None] - self.source[others]) / (BEND * self._deviation)
        line = SLOPE[1] ** 2 * np.outer(self.source[some], self.source[others]) + LEVEL**2
        return matern(apart), matern(across), line
