"""The steps: models of each machine alone, of all others, and of a few workloads, judged on families that none has seen."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.splits import splits
from processors.data import Machines
from processors.judging import Row, rows
from tensorwise.model import RankingModel
from tensorwise.model.calibration import fitted, sample
from tensorwise.model.samples import Group, Training

Step = Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Steps:
    """The steps of one operation.

    Attributes:
        op: the operation; machines: what is known of it.
        values: of values.toml.
    """

    op: str
    machines: Machines
    values: Mapping[str, Any]

    def planned(self) -> dict[str, Step]:
        """Return the steps by key; each trains one model, and may go on from it."""
        names = list(self.machines.groups)
        found = {f"{self.op} {name} alone": functools.partial(self.alone, name) for name in names}
        found |= {f"{self.op} all but {name}": functools.partial(self.without, name) for name in names}
        found |= {f"{self.op} few of {name}": functools.partial(self.few, name) for name in names}
        return found | {f"{self.op} all": self.all}

    # -- what is learned from, and what is tested ------------------------------------------------------

    @functools.cached_property
    def part_of(self) -> Mapping[str, str]:
        """Family -> ``learn`` or ``test``: the same for all machines; as ``splits.toml`` has it."""
        seen = {group.family for of_one in self.machines.groups.values() for group in of_one}
        tested = splits().patterns["test"]
        return {family: "test" if family in tested else "learn" for family in sorted(seen)}

    def groups(self, name: str, part: str) -> list[Group]:
        """Return a machine's groups of a part."""
        return [group for group in self.machines.groups[name] if self.part_of[group.family] == part]

    def drawn(self, name: str, draw: int) -> list[Group]:
        """Draw a few of the groups that a machine can be learned from."""
        groups = self.groups(name, "learn")
        rng = np.random.default_rng([self.values["seed"], draw])
        return [groups[int(place)] for place in rng.permutation(len(groups))[: self.values["few"]]]

    # -- the steps -------------------------------------------------------------------------------------

    def alone(self, name: str) -> dict[str, Any]:
        """One machine's model, as it is on every machine."""
        model = self._learned([name])
        return self._ways({(on, f"{name} alone"): [self._judged(model, on)] for on in self.machines.groups})

    def all(self) -> dict[str, Any]:
        """The model of all machines."""
        model = self._learned(list(self.machines.groups))
        return self._ways({(on, "all"): [self._judged(model, on)] for on in self.machines.groups})

    def without(self, name: str) -> dict[str, Any]:
        """The model of all other machines: as it is, and with a few workloads of this one."""
        model = self._learned([other for other in self.machines.groups if other != name])
        some = [self.drawn(name, draw) for draw in range(self.values["draws"])]
        return self._ways(
            {
                (name, "all others"): [self._judged(model, name)],
                (name, "all others, calibrated"): [
                    self._judged(self._calibrated(model, few), name) for few in some
                ],
                (name, "all others, going on"): [
                    self._judged(self._gone_on(model, few), name) for few in some
                ],
            }
        )

    def few(self, name: str) -> dict[str, Any]:
        """Models of a few workloads of one machine, from scratch."""
        draws = [self.drawn(name, draw) for draw in range(self.values["draws"])]
        return self._ways(
            {(name, "from scratch"): [self._judged(self._gone_on(None, few), name) for few in draws]}
        )

    def _ways(self, ways: Mapping[tuple[str, str], Sequence[Sequence[Row]]]) -> dict[str, Any]:
        return {
            "op": self.op,
            "ways": [{"on": on, "way": way, "draws": list(draws)} for (on, way), draws in ways.items()],
        }

    def _judged(self, model: RankingModel, on: str) -> list[Row]:
        return rows(self.groups(on, "test"), model.scores)

    # -- models ----------------------------------------------------------------------------------------

    def _training(self, epochs: int, rate: float, validation: float) -> Training:
        return Training(
            epochs=epochs, learning_rate=rate, loss="ratio", seed=self.values["seed"], validation=validation
        )

    def _learned(self, names: Sequence[str]) -> RankingModel:
        networks = self.values["networks"]
        training = self._training(networks["epochs"][self.op], networks["rate"], 0.2)
        model = self.machines.model(training, networks["heads"])
        model.learn([group for name in names for group in self.groups(name, "learn")])
        return model

    def _gone_on(self, start: RankingModel | None, few: Sequence[Group]) -> RankingModel:
        """All weights learn from a few workloads; from scratch without a start."""
        networks = self.values["networks"]
        rate = networks["rate"] if start is None else networks["tuning_rate"]
        model = self.machines.model(self._training(networks["few"], rate, 0.0), networks["heads"])
        model.learn(few, start)
        return model

    def _calibrated(self, start: RankingModel, few: Sequence[Group]) -> RankingModel:
        """The last layers are fitted to a few workloads, as ``tensorwise calibrate`` does."""
        samples = [
            sample(start, start.standardise(group), self.machines.works(group.workload_id)) for group in few
        ]
        return fitted(start, samples)
