"""Active learning (MLCD, Algorithm 1): only inputs of which a random forest is unsure are measured."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.model.tree import scikit_learn

Input = TypeVar("Input")

MARGIN: Final = 0.5
"""The paper's threshold (section IV-C)."""
TREES: Final = 100
LEAF: Final = 3
"""Inputs at a leaf of the guide: with fewer, each input that was measured looks certain."""
PATIENCE: Final = 50
"""Draws for each input asked for, after which what was found must do: near the end nothing is uncertain any more."""
REPEATS: Final = 1000
"""Draws in a row, besides one for each input known, that give nothing new before there is taken to be nothing."""


@final
class ActiveSampling(Generic[Input]):
    """Proposes inputs to measure: as a Strategy does configs, by ``ask`` and ``tell``.

    At first inputs are taken as they are drawn. Once ``initial`` of them are known, a random forest guides: an input is
    taken if the probabilities of its two likeliest answers differ by less than ``margin``. The forest is made anew
    from what was told, and never kept: whoever knows the measurements can go on.

    Args:
        draw: (generator) -> an input, or None when there are no more.
        features: (input) -> its numbers.
        key: (input) -> text; of inputs with the same text one is taken.
        rng: the only source of randomness.
        initial: inputs to know before the forest guides; None: it never does, and all that is drawn is taken.
        margin: see above.

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
        margin: float = MARGIN,
    ) -> None:
        if not 0 < margin <= 1:
            raise InputError(f"the margin must lie in (0, 1], got {margin}")
        self._draw, self._features, self._key, self._rng = draw, features, key, rng
        self.initial, self.margin = initial, margin
        self._taken: set[str] = set()
        self._skipped: set[str] = set()
        self._known: tuple[np.ndarray, np.ndarray] = (np.zeros((0, 0)), np.zeros(0, np.int64))

    def skip(self, keys: Iterable[str]) -> None:
        """Never take inputs with these keys: they were measured before."""
        self._skipped.update(keys)
        self._taken.update(self._skipped)

    def tell(self, features: np.ndarray, best: np.ndarray) -> None:
        """Learn which answer was best, (inputs,) int, for features (inputs, fields): all that is known by now."""
        self._known = features, best

    def ask(self, n: int) -> list[Input]:
        """Return up to ``n`` inputs to measure; fewer when there are no more, or hardly any is uncertain."""
        features, best = self._known
        fresh = self._fresh()
        if self.initial is None or len(best) < self.initial or len(np.unique(best)) < 2:
            return self._take(fresh, n)
        guide = scikit_learn("RandomForestClassifier")(
            n_estimators=TREES, min_samples_leaf=LEAF, random_state=int(self._rng.integers(2**31))
        ).fit(features, best)
        chosen: list[Input] = []
        left = islice(fresh, PATIENCE * n)
        while len(chosen) < n and (some := list(islice(left, max(64, n)))):
            sure = margins(guide.predict_proba(np.array([self._features(one) for one in some], float)))
            unsure = (one for one, margin in zip(some, sure, strict=True) if margin < self.margin)
            chosen += self._take(unsure, n - len(chosen))
        return chosen

    def _fresh(self) -> Iterator[Input]:
        """Draw inputs that were not taken, until there are no more or all are repeats."""
        repeats = 0
        while repeats <= REPEATS + len(self._taken) and (one := self._draw(self._rng)) is not None:
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


def margins(probabilities: np.ndarray) -> np.ndarray:
    """Return the likeliest answer's probability less that of the second: (inputs, answers) -> (inputs,).

    >>> margins(np.array([[0.5, 0.1, 0.4], [0.0, 1.0, 0.0]])).round(6).tolist()
    [0.1, 1.0]
    """
    second, first = np.sort(probabilities, axis=1)[:, -2:].T
    return np.asarray(first - second)
