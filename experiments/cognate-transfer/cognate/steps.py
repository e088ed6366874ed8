"""The steps: the ways to a model of the target that are compared, fold by fold, each on families it has not learned from."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from cognate.folds import Fold, chosen, folds, informative
from cognate.judging import Predict, Row, at_random, packed, rows
from cognate.networks import COGNATE, FEATURIZERS, READINGS, SHAPE, Arrays, Networks, Reading, Workloads
from tensorwise.model.additive import AdditiveModel, terms_of
from tensorwise.model.reader import Reader
from tensorwise.model.samples import Group
from tensorwise.model.table import Table

Ways = dict[str, list[list[Row]]]
"""Way -> draws -> a row for each tested matrix."""
Step = Callable[[], dict[str, Any]]
SMALL: Final = 5000
"""Entries of the patterns from which featurizers learn that are compared: convolutions take a second for some thousand."""


@dataclass(frozen=True)
class Steps:
    """The steps of one operation.

    Attributes:
        op: the operation.
        target: groups of the target by name; source: of the source.
        values: of values.toml.
        workloads: workload id -> the workload, of both.
    """

    op: str
    target: Mapping[str, Group]
    source: Sequence[Group]
    values: Mapping[str, Any]
    workloads: Workloads | None = None
    _pretrained: dict[tuple[int, str, int], tuple[Networks, Arrays]] = field(default_factory=dict)

    def planned(self) -> dict[str, Step]:
        """Return the steps by key. Each takes a minute or two at most, and what an earlier one trained is trained again."""
        found: dict[str, Step] = {}
        for fold in folds(self.target, self.source, self.values["folds"]):
            if not fold.number:
                found[f"{self.op} training"] = functools.partial(self.training, fold)
                for reading in FEATURIZERS:
                    found[f"{self.op} featurizer: {reading.name}"] = functools.partial(
                        self.featurizer, reading, fold
                    )
            ways: dict[str, Callable[[Fold], Ways]] = {"plain": self.plain}
            for count in (*self.values["additive"]["matrices"], 0):
                ways[f"additive of {count or 'all'}"] = functools.partial(self.additive, count)
            for samples in self.values["additive"]["configs"]:
                ways[f"{samples} configs"] = functools.partial(self.sampled, samples)
            for reading in READINGS:
                ways[f"network: {reading.name}"] = functools.partial(self.network, reading)
            for count in self.values["networks"]["fine_tuning"]:
                ways[f"network of {count}"] = functools.partial(self.fine_tuned, count)
            for count in self.values["networks"]["pre_training"]:
                ways[f"network from {count}"] = functools.partial(self.pre_trained, count)
            for name, way in ways.items():
                found[f"{self.op} fold {fold.number} {name}"] = functools.partial(self._run, fold, way)
        return found

    def _run(self, fold: Fold, way: Callable[[Fold], Ways]) -> dict[str, Any]:
        ways = {name: [packed(draw) for draw in draws] for name, draws in way(fold).items()}
        configs = max(len(group) for group in fold.tests.values())
        samples = {
            "source": [len(group) for group in fold.source],
            "learn": len(fold.learn),
            "configs": configs,
        }
        return {
            "op": self.op, "fold": fold.number, "names": list(fold.tests), "ways": ways,
            **({"samples": samples} if "random" in ways else {}),
        }  # fmt: skip

    def training(self, fold: Fold) -> dict[str, Any]:
        """The epochs of learning from the source (figure 6)."""
        networks = Networks.of(COGNATE, fold.source, list(fold.learn.values()), self.values["networks"])
        epochs = [
            [epoch.training_loss, epoch.validation_loss, epoch.validation_spearman]
            for epoch in networks.curve(fold.source)
        ]
        return {"op": self.op, "ways": {}, "names": [], "epochs": epochs}

    def featurizer(self, reading: Reading, fold: Fold) -> dict[str, Any]:
        """A network that learns from the small patterns of a fold, of the source and then of few of the target.

        It is no way: it is judged on the small patterns of one fold only.
        """
        source, learn, tests = (
            [one for one in some if 2 ** one.numbers[SHAPE - 2] - 1 <= SMALL]
            for some in (fold.source, fold.learn.values(), fold.tests.values())
        )
        networks = Networks.of(reading, source, learn, self.values["networks"], self.workloads)
        start, draws = networks.pretrained(source), []
        for draw in range(self.values["draws"]):
            places = fold.rng(draw).permutation(len(learn))[: self.values["few"]]
            tuned = networks.tuned([learn[int(place)] for place in places], start)
            draws.append(packed(rows(tests, functools.partial(networks.scores, tuned))))
        counts = {"source": len(source), "learn": len(learn), "tests": len(tests)}
        return {
            "op": self.op,
            "ways": {},
            "names": [],
            "featurizer": reading.name,
            "draws": draws,
            "counts": counts,
        }

    # -- ways -----------------------------------------------------------------------------------------

    def plain(self, fold: Fold) -> Ways:
        """What needs no measurement of the target: the default config, and chance."""
        tests = list(fold.tests.values())
        default = [[1.0, 1.0, at_random(group)[2], 0.5, 0.0] for group in tests]
        return {"default config": [default], "random": [[at_random(group) for group in tests]]}

    def additive(self, count: int, fold: Fold) -> Ways:
        """What is counted, each thing at the rate that fits ``count`` matrices of the target; 0: all."""
        of, draws = (f"of {count}", self.values["draws"]) if count else ("of all", 1)
        names = count or len(fold.learn)
        found: Ways = {}
        for draw in range(draws):
            some = fold.some(names, draw)
            logs = np.mean([np.log(group.seconds / group.default_s) for group in some], axis=0)
            ways: dict[str, Predict] = {
                f"counted, {of}": learned(some).scores,
                f"one config for all, {of}": functools.partial(_constant, logs),
            }
            if count and not draw:  # there is one choice
                best = [fold.learn[name] for name in chosen(fold.learn, count)]
                ways[f"counted, {of} chosen"] = learned(best).scores
            for name, predict in ways.items():
                found.setdefault(name, []).append(rows(list(fold.tests.values()), predict))
        return found

    def sampled(self, samples: int, fold: Fold) -> Ways:
        """The fit in closed form to few matrices with some configs each: drawn by chance, or the most informative."""
        few = self.values["few"]
        found: Ways = {}
        for draw in range(self.values["draws"]):
            rng = np.random.default_rng([fold.number, draw, samples])
            by_chance, actively = [], []
            for group in fold.some(few, draw):
                default = int(np.flatnonzero(group.seconds == group.default_s)[0])
                others = [place for place in rng.permutation(len(group)).tolist() if place != default]
                by_chance.append(group.take(np.array([default, *others[: samples - 1]])))
                actively.append(group.take(np.array(informative(terms_of(group.configs), samples, default))))
            for how, some in (("drawn", by_chance), ("informative", actively)):
                name = f"counted, of {few} with {samples} {how} configs"
                found.setdefault(name, []).append(rows(list(fold.tests.values()), learned(some).scores))
        return found

    def network(self, reading: Reading, fold: Fold) -> Ways:
        """A network from all source workloads, tuned to few matrices; COGNATE's also as it is, and from scratch."""
        few, tests = self.values["few"], list(fold.tests.values())
        networks, start = self.started(reading, fold, len(fold.source))
        found: Ways = {f"network: {reading.name}, of {few}": []}
        if reading is COGNATE:
            found["network: zero-shot"] = [rows(tests, functools.partial(networks.scores, start))]
            found[f"network: no transfer, of {few}"] = []
        for draw in range(self.values["draws"]):
            some = fold.some(few, draw)
            for name, begun in (
                (f"network: {reading.name}, of {few}", start),
                (f"network: no transfer, of {few}", None),
            ):
                if name in found:
                    tuned = networks.tuned(some, begun)
                    found[name].append(rows(tests, functools.partial(networks.scores, tuned)))
        return found

    def fine_tuned(self, count: int, fold: Fold) -> Ways:
        """COGNATE's network tuned to more and fewer matrices, and from scratch (figures 10 and 12)."""
        networks, start = self.started(COGNATE, fold, len(fold.source))
        some, tests = fold.some(count, 0), list(fold.tests.values())
        return {
            name: [rows(tests, functools.partial(networks.scores, networks.tuned(some, begun)))]
            for name, begun in (
                (f"network: COGNATE, of {count}", start),
                (f"network: no transfer, of {count}", None),
            )
        }

    def pre_trained(self, count: int, fold: Fold) -> Ways:
        """COGNATE's network from fewer source workloads (figure 11)."""
        few, tests = self.values["few"], list(fold.tests.values())
        networks, start = self.started(COGNATE, fold, count)
        tuned = [networks.tuned(fold.some(few, draw), start) for draw in range(self.values["draws"])]
        found = [rows(tests, functools.partial(networks.scores, arrays)) for arrays in tuned]
        return {f"network: COGNATE, of {few}, from {count}": found}

    def started(self, reading: Reading, fold: Fold, count: int) -> tuple[Networks, Arrays]:
        """Return a network trained on ``count`` workloads of the source; the last one is kept."""
        key = fold.number, reading.name, count
        if key not in self._pretrained:
            self._pretrained.clear()
            places = np.random.default_rng([fold.number, 99]).permutation(len(fold.source))[:count]
            networks = Networks.of(reading, fold.source, list(fold.learn.values()), self.values["networks"])
            self._pretrained[key] = (
                networks,
                networks.pretrained([fold.source[int(place)] for place in places]),
            )
        return self._pretrained[key]


def learned(groups: Sequence[Group]) -> AdditiveModel:
    """Return an additive model of groups that were read before."""
    model = AdditiveModel(Reader(Table(()), None))
    model.learn(groups)
    return model


def _constant(logs: np.ndarray, group: Group) -> np.ndarray:
    return logs
