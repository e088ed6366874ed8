"""TreeModel: a decision tree that says which version to call, and what each of them would take."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, final

import numpy as np

from tensorwise.device.device import Device
from tensorwise.errors import InputError
from tensorwise.model.cases import Cases, features_of, matrix_of
from tensorwise.model.model import CostModel, Returns
from tensorwise.model.tree import LEAF, Tree, scikit_learn
from tensorwise.runtime.call import Call
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tensorwise.toolchain.threads import available_threads
from tensorwise.units import SHORTEST_S

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

SMALLEST_LEAF: Final = 12
"""Fewest inputs at a leaf, synthetic ones included (MLCD, section III-A2)."""
MOST_PENALTY: Final = 3.0
"""What takes more than so much longer than the fastest is as bad as what does: how bad it is teaches nothing."""
FOREST: Final = {"n_estimators": 30, "min_samples_leaf": 3, "max_features": 0.6, "random_state": 0}
SYNTHETIC: Final = (10, 50_000)
"""Synthetic inputs for each measured one, and the most in all."""
MAX_DISTANCE: Final = 50
"""A synthetic input interpolates a measured one and one of its neighbours within this distance, in a random order."""
STEADY: Final = 4
"""Inputs a field from which on a line is fitted to times; fewer say too little."""
FARTHEST: Final = 60.0
"""Logarithms of predicted seconds stay within so much of zero, however far an input lies from all that was seen."""


def grow_choice(cases: Cases) -> Tree:
    """Return the tree that chooses among the configs of ``cases``; a leaf says the place of one.

    MLCD's decision tree (section III-A) with two changes. First, it is fitted to penalties (how much slower each config is
    than the best) instead of names of the best, so that near ties hardly matter. An input is weighted by the square root of
    its seconds: between equal weights, as for the average penalty, and seconds, as for the percentage of ideal speed.
    Second, it imitates a random forest, also on synthetic inputs between the measured ones (Breiman and Shang, Born Again
    Trees, 1996): the forest generalises better, and the single tree is as cheap to ask as before.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    if len(cases.configs) == 1:
        return Tree.checked([LEAF], [0], [0], [0], len(cases.fields))
    least_s = cases.seconds.min(axis=1)
    long = 1 + np.sqrt(least_s / max(least_s.mean(), SHORTEST_S))
    forest = scikit_learn("RandomForestRegressor")(**FOREST, n_jobs=available_threads())
    forest.fit(cases.features, lost(cases.penalties), sample_weight=long)
    forest.set_params(n_jobs=1)  # threads would add what trees say in any order, and rounding would decide
    inputs = np.concatenate([cases.features, _interpolate(cases.features)])
    trained = scikit_learn("DecisionTreeRegressor")(min_samples_leaf=SMALLEST_LEAF, random_state=0)
    trained.fit(inputs, forest.predict(inputs))
    tree = Tree.grown(trained)
    says = trained.tree_.value[:, :, 0].argmin(axis=1)
    return replace(tree, value=np.where(tree.feature < 0, says, 0).astype(float)).without_idle_questions()


def lost(penalties: np.ndarray) -> np.ndarray:
    """Return the target that trees are fitted to: a small penalty as it is, a large one by its logarithm; any shape.

    A config that failed gets the largest value.
    """
    return np.asarray(np.log1p(np.clip(penalties, 0, MOST_PENALTY)))


def _interpolate(features: np.ndarray) -> np.ndarray:
    """Interpolate inputs, (n, fields) -> (synthetic, fields), geometrically where values are large.

    Features that are products of others stay so in a synthetic input.
    """
    rng, n = np.random.default_rng(0), len(features)
    each, most = SYNTHETIC
    scaled = _scaled(features)
    deviation = scaled.std(axis=0)
    along = (scaled / np.where(deviation > 0, deviation, 1)) @ rng.standard_normal(features.shape[1])
    order = np.argsort(along, kind="stable")
    place = rng.integers(0, n, min(each * n, most))
    near = np.clip(place + rng.integers(-MAX_DISTANCE, MAX_DISTANCE + 1, len(place)), 0, n - 1)
    share = rng.random((len(place), 1))
    between = (1 - share) * scaled[order[place]] + share * scaled[order[near]]
    return np.asarray(np.sign(between) * np.expm1(np.abs(between)))


@final
@dataclass(frozen=True, eq=False)
class Latency:
    """Seconds of one config: a linear function of the logarithms of the features, plus a tree fitted to its residuals.

    The linear function extrapolates to inputs outside the training data, which a tree alone cannot.

    Attributes:
        mean: of log(seconds).
        centre, slope: (fields,) float64: the line is mean + slope . (scaled(features) - centre).
        rest: tree that says what log(seconds) is above the line.
    """

    mean: float
    centre: np.ndarray
    slope: np.ndarray
    rest: Tree

    @classmethod
    def fit(cls, features: np.ndarray, seconds: np.ndarray) -> Self:
        """Learn from features (inputs, fields) and seconds (inputs,), all finite."""
        scaled, logs = _scaled(features), np.log(np.maximum(seconds, SHORTEST_S))
        centre, mean = scaled.mean(axis=0), float(logs.mean())
        slope = np.zeros(features.shape[1])
        if len(features) >= STEADY * features.shape[1]:
            slope = np.linalg.lstsq(scaled - centre, logs - mean, rcond=1e-8)[0]
        trained = scikit_learn("DecisionTreeRegressor")(min_samples_leaf=SMALLEST_LEAF, random_state=0)
        trained.fit(features, logs - mean - (scaled - centre) @ slope)
        return cls(mean, centre, slope, Tree.grown(trained))

    def seconds(self, features: np.ndarray) -> np.ndarray:
        """Return predicted seconds: (inputs, fields) -> (inputs,)."""
        logs = self.mean + (_scaled(features) - self.centre) @ self.slope + self.rest.values_at(features)
        return np.asarray(np.exp(np.clip(logs, -FARTHEST, FARTHEST)))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "mean": self.mean,
            "centre": self.centre.tolist(),
            "slope": self.slope.tolist(),
            "rest": self.rest.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], fields: int) -> Self:
        """Read back what ``to_json`` returned; raises InputError, KeyError, TypeError and ValueError."""
        centre, slope = (np.array(data[name], float) for name in ("centre", "slope"))
        finite = np.isfinite([data["mean"], *centre, *slope]).all()
        if centre.shape != (fields,) or slope.shape != (fields,) or not finite:
            raise InputError(f"expected {fields} finite numbers in a line, got {centre} and {slope}")
        return cls(float(data["mean"]), centre, slope, Tree.from_json(data["rest"], fields))


def _scaled(features: np.ndarray) -> np.ndarray:
    """sign(x) log(1 + |x|): sizes range over many powers of ten."""
    return np.asarray(np.sign(features) * np.log1p(np.abs(features)))


@final
class TreeModel(CostModel["Workload | Call"]):
    """Chooses one of a few configs for any input of a function, and predicts what each takes.

    For a function's versions it learns from records of `Call`; einsums are described by their sizes and number of
    entries. All that it has learned is JSON; it needs scikit-learn (extra ``select``) only to learn.

    Attributes:
        fields: names of the features, in the order in which ``choice`` takes them.
        configs: what is chosen among; a leaf of ``choice`` says a place in it.
        choice: the decision tree.
        ranges: (5, fields): least value, quartiles and largest value of each feature of what was learned from.
    """

    kind: ClassVar[str] = "tree"
    returns: Returns = "seconds"

    def __init__(self) -> None:
        self.fields: tuple[str, ...] = ()
        self.configs: tuple[Config, ...] = ()
        self.choice: Tree | None = None
        self.ranges = np.zeros((5, 0))
        self._latencies: dict[Config, Latency] = {}

    def fit(self, records: Iterable[Record]) -> None:
        """Learn from records of one function on one device; see `Cases.of` for what is left out.

        Raises:
            InputError: no record ended ok, or they are of different functions.
            MissingExtraError: scikit-learn is not installed.
        """
        self.fit_cases(Cases.of(records))

    def fit_cases(self, cases: Cases) -> None:
        """Learn from cases."""
        self.choice = grow_choice(cases)
        self.fields, self.configs = cases.fields, cases.configs
        self.ranges = np.percentile(cases.features, (0, 25, 50, 75, 100), axis=0)
        self._latencies = {}
        for place, config in enumerate(cases.configs):
            timed = np.isfinite(cases.seconds[:, place])
            if timed.any():
                self._latencies[config] = Latency.fit(cases.features[timed], cases.seconds[timed, place])

    def choose(self, features: np.ndarray) -> np.ndarray:
        """Return for each input the index in ``configs`` of the best predicted config: (inputs, fields) -> (inputs,) int64.

        Raises:
            InputError: nothing was learned yet.
        """
        return self._learned().values_at(np.asarray(features, float)).astype(np.int64)

    def latency(self, config: Config, features: np.ndarray) -> np.ndarray:
        """Return predicted seconds of a config: (inputs, fields) -> (inputs,); of an unknown one the geometric mean.

        Choices that the learned configs do not have are ignored.

        Raises:
            InputError: nothing was learned yet.
        """
        self._learned()
        names = self.configs[0].keys()
        own = Config({name: value for name, value in config.items() if name in names})
        known = [self._latencies[own]] if own in self._latencies else list(self._latencies.values())
        return np.asarray(np.exp(np.mean([np.log(one.seconds(features)) for one in known], axis=0)))

    def predict(
        self, workload: "Workload | Call", configs: Sequence[Config], device: Device | None = None
    ) -> np.ndarray:
        self._learned()
        features = matrix_of([features_of(workload.describe())], self.fields)
        return np.array([float(self.latency(config, features)[0]) for config in configs])

    def _learned(self) -> Tree:
        if self.choice is None:
            raise InputError("the model has learned nothing yet; call fit with some records first")
        return self.choice

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        return {
            "fields": list(self.fields),
            "configs": [config.text for config in self.configs],
            "ranges": self.ranges.tolist(),
            "choice": self._learned().to_json(),
            "latencies": {config.text: latency.to_json() for config, latency in self._latencies.items()},
        }, {}

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        model = cls()
        model.fields = tuple(str(name) for name in values["fields"])
        model.configs = tuple(Config.parse(text) for text in values["configs"])
        count = len(model.fields)
        model.ranges = np.array(values["ranges"], float).reshape(5, count)
        model.choice = Tree.from_json(values["choice"], count)
        said = model.choice.value[model.choice.feature < 0]
        if not (np.isin(said, range(len(model.configs))).all() and np.isfinite(model.ranges).all()):
            raise InputError(f"leaves must say one of {len(model.configs)} configs, got {said[:5]}")
        model._latencies = {
            Config.parse(text): Latency.from_json(one, count) for text, one in values["latencies"].items()
        }
        if not model._latencies:
            raise InputError("the seconds of all configs are missing")
        return model


def cross_validated(cases: Cases, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Return for each input the index of the config chosen by a tree that was not trained on its group: (inputs,) int64.

    Raises:
        InputError: there are fewer groups than folds.
        MissingExtraError: scikit-learn is not installed.
    """
    fold = cases.folds(folds, rng)
    chosen = np.zeros(len(cases), np.int64)
    for number in range(folds):
        tree = grow_choice(cases.take(fold != number))
        chosen[fold == number] = tree.values_at(cases.features[fold == number]).astype(np.int64)
    return chosen
