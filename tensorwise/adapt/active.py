"""Active learning: a random forest says which inputs are worth measuring (MLCD, Algorithm 1, and beyond it)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.model.choosing import lost
from tensorwise.model.tree import scikit_learn
from tensorwise.toolchain.threads import available_threads

Input = TypeVar("Input")

MARGIN: Final = 0.5
"""The paper's threshold (section IV-C)."""
TREES: Final = 100
LEAF: Final = 3
"""Inputs at a leaf of the guide: with fewer, each input that was measured looks certain."""
PATIENCE: Final = 50
"""Draws for each input asked for, after which what was found must do: near the end nothing is uncertain any more."""
POOL: Final = 20
"""Draws for each input asked for, among which losses are compared."""
SURE: Final = 1e-3
"""An input on which less is expected to be lost is not worth measuring: a thousandth of what the fastest takes."""
MAX_REPEATED_DRAWS: Final = 1000
"""Draws in a row, besides one for each input known, that give nothing new before there is taken to be nothing."""


@final
class ActiveSampling(Generic[Input]):
    """Proposes inputs to measure: as a Strategy does configs, by ``ask`` and ``tell``.

    The first ``initial`` inputs are taken as they are drawn; a random forest guides the choice of the others. The forest
    is fitted again to all measurements at each step and never saved, so that the measurements alone suffice to resume.
    There are two criteria:

    - Expected loss (default): each tree predicts the cost of every answer. The loss is how much more the forest's choice
      costs than the tree's own choice, in the mean over trees. Inputs are drawn in proportion to it.
    - The paper's, with a ``margin``: an input is taken if the probabilities of its two likeliest answers differ by less.
      It prefers inputs whose answers are about equally good, where little is to be gained.

    Args:
        draw: (generator) -> an input, or None when there are no more.
        features: (input) -> its numbers.
        key: (input) -> text; of inputs with the same text one is taken.
        rng: the only source of randomness.
        initial: inputs to know before the forest guides; None: it never does, and all that is drawn is taken.
        margin: of the paper's guide; None: the other one.

    Raises:
        InputError: the margin is not in (0, 1].
        MissingExtraError: (from ``ask``) scikit-learn is not installed.
    """

    def __init__(
        self,
        draw: Callable[[np.random.Generator], Input | None],
        features: Callable[[Input], Sequence[float]],
        key: Callable[[Input], str],
        rng: np.random.Generator,
        *,
        initial: int | None = None,
        margin: float | None = None,
    ) -> None:
        if margin is not None and not 0 < margin <= 1:
            raise InputError(f"the margin must lie in (0, 1], got {margin}")
        self._draw, self._features, self._key, self._rng = draw, features, key, rng
        self.initial, self.margin = initial, margin
        self._taken: set[str] = set()
        self._skipped: set[str] = set()
        self._known: tuple[np.ndarray, np.ndarray] = (np.zeros((0, 0)), np.zeros((0, 0)))

    def skip(self, keys: Iterable[str]) -> None:
        """Never take inputs with these keys: they were measured before."""
        self._skipped.update(keys)
        self._taken.update(self._skipped)

    def tell(self, features: np.ndarray, penalties: np.ndarray) -> None:
        """Learn what answers cost, (inputs, answers), 0 the best, of features (inputs, fields): all that is known by now."""
        self._known = features, penalties

    def ask(self, n: int) -> list[Input]:
        """Return up to ``n`` inputs to measure; fewer when there are no more, or hardly any is uncertain."""
        features, penalties = self._known
        fresh = self._fresh()
        if (
            self.initial is None
            or len(features) < self.initial
            or len(np.unique(penalties.argmin(axis=1))) < 2
        ):
            return self._take(fresh, n)
        if self.margin is None:
            return self._guided(fresh, n, POOL * n, self._worth_it())
        return self._guided(fresh, n, max(64, n), self._unsure(self.margin))

    def _guided(
        self, fresh: Iterator[Input], n: int, size: int, choose: Callable[[np.ndarray], np.ndarray]
    ) -> list[Input]:
        """Draw pools of ``size`` until ``n`` are taken, of each what ``choose`` says: features -> places, in order."""
        chosen: list[Input] = []
        left = islice(fresh, PATIENCE * n)
        while len(chosen) < n and (
            pool := list({self._key(one): one for one in islice(left, size)}.values())
        ):
            places = choose(np.array([self._features(one) for one in pool], float))
            chosen += self._take((pool[place] for place in places), n - len(chosen))
        return chosen

    def _worth_it(self) -> Callable[[np.ndarray], np.ndarray]:
        """Choose inputs in proportion to what is expected to be lost on them."""
        features, penalties = self._known
        guide = scikit_learn("RandomForestRegressor")(
            n_estimators=TREES, min_samples_leaf=LEAF, random_state=self._seed(), n_jobs=available_threads()
        ).fit(features, lost(penalties))

        def choose(numbers: np.ndarray) -> np.ndarray:
            expected = losses(np.stack([tree.predict(numbers) for tree in guide.estimators_]))
            # the smallest of these keys are a draw without replacement, in proportion (Efraimidis and Spirakis, 2006)
            keys = self._rng.exponential(size=len(numbers)) / np.maximum(expected, SURE)
            order = np.argsort(keys, kind="stable")
            return np.asarray(order[expected[order] > SURE])

        return choose

    def _unsure(self, most: float) -> Callable[[np.ndarray], np.ndarray]:
        """Choose inputs that have a smaller margin, as they come."""
        features, penalties = self._known
        guide = scikit_learn("RandomForestClassifier")(
            n_estimators=TREES, min_samples_leaf=LEAF, random_state=self._seed()
        ).fit(features, penalties.argmin(axis=1))
        return lambda numbers: np.flatnonzero(margins(guide.predict_proba(numbers)) < most)

    def _seed(self) -> int:
        return int(self._rng.integers(2**31))

    def _fresh(self) -> Iterator[Input]:
        """Draw inputs that were not taken, until there are no more or all are repeats."""
        repeats = 0
        while repeats <= MAX_REPEATED_DRAWS + len(self._taken) and (one := self._draw(self._rng)) is not None:
            repeats += 1
            key = self._key(one)
            if key in self._skipped:  # met for the first time: who measured it before saw it as new
                self._skipped.remove(key)
                repeats = 0
            elif key not in self._taken:
                repeats = 0
                yield one

    def _take(self, drawn: Iterator[Input], n: int) -> list[Input]:
        """Take the first ``n`` that differ."""
        taken: list[Input] = []
        while len(taken) < n and (one := next(drawn, None)) is not None:
            if (key := self._key(one)) not in self._taken:
                self._taken.add(key)
                taken.append(one)
        return taken


def losses(costs: np.ndarray) -> np.ndarray:
    """Return how much more the answer that all trees choose together costs than the answer of each tree.

    Costs are (trees, inputs, answers), the result is (inputs,).

    >>> losses(np.array([[[0.0, 0.3]], [[0.2, 0.0]]])).round(6).tolist()  # they choose the first, the second one would not
    [0.1]
    """
    chosen = costs.mean(axis=0).argmin(axis=1)
    taken = costs[:, np.arange(costs.shape[1]), chosen]
    return np.asarray((taken - costs.min(axis=2)).mean(axis=0))


def margins(probabilities: np.ndarray) -> np.ndarray:
    """Return the likeliest answer's probability less that of the second: (inputs, answers) -> (inputs,).

    >>> margins(np.array([[0.5, 0.1, 0.4], [0.0, 1.0, 0.0]])).round(6).tolist()
    [0.1, 1.0]
    """
    second, first = np.sort(probabilities, axis=1)[:, -2:].T
    return np.asarray(first - second)
