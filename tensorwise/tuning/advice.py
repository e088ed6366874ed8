"""Model advice for a tuning: which configs may be fast, their predicted run times, and the uncertainty of each.

This module connects search and model, which do not import each other.
"""

import json
import os
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, Self, final

import numpy as np

from tensorwise.device.device import Device
from tensorwise.device.host import host, unlike
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.model import CostModel, load_model
from tensorwise.model.finding import NOT_INSTALLED, bundled_folders, find_models_for
from tensorwise.model.model import DESCRIPTION, EmbeddingModel
from tensorwise.program.workload import Workload
from tensorwise.search import ConfigGraph, Genetic, Walk, climbed
from tensorwise.search.graph import GRAPH
from tensorwise.space.config import Config
from tensorwise.space.portfolio import portfolio
from tensorwise.space.space import Space
from tensorwise.tuning.forecast import DOUBTFUL, ERROR, Forecast, cautious
from tensorwise.tuning.limits import SHIPPED as SHIPPED
from tensorwise.units import SHORTEST_S

WALKED: Final = 64
"""Configs that a walk over a graph names; a model then knows more of them than it did while walking."""
BRED: Final = 512
"""Configs that are bred by predictions where there is no graph, ..."""
BROOD: Final = 64
"""... so many at a time."""
NUM_PREDICTED: Final = 2000
"""Configs that a model which reads resources of compiled code predicts first."""
NUM_COMPILED: Final = 80
"""Configs of these that are compiled, and predicted again."""
NUM_TRIED: Final = 20
"""Configs of these that are tried: 5 to 20 in G-Sparse, section III-D."""
PROBED: Final = 4
"""Configs of a graph that are embedded again, to see that it is the model's."""


@final
class Advisor:
    """A model, and where it has one the graph of the configs that it has embedded.

    Args:
        model: what predicts.
        folder: where the model was read from; a graph may lie beside it.
    """

    def __init__(self, model: CostModel, folder: Path | None = None) -> None:
        self.model, self._folder = model, folder

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read the model in ``folder``; its graph is read when it is asked for.

        Raises:
            InputError: there is none, or it is damaged.
        """
        return cls(load_model(folder), Path(folder))

    @cached_property
    def graph(self) -> ConfigGraph | None:
        """The graph beside the model, None without one.

        Raises:
            InputError: it is damaged, or of another model.
        """
        if self._folder is None or not (self._folder / GRAPH.files[0]).exists():
            return None
        found = ConfigGraph.load(self._folder)
        some = found.embeddings[:PROBED]
        again = (
            self.model.embed_configs(found.pool[:PROBED]) if isinstance(self.model, EmbeddingModel) else None
        )
        if again is None or again.shape != some.shape or not np.allclose(again, some, rtol=1e-3, atol=1e-3):
            raise InputError(f"the graph in {self._folder} is not that of the model; make it again")
        return found

    @cached_property
    def id(self) -> str:
        """Content id of all that decides what is named.

        Raises:
            InputError: the graph is damaged, or of another model.
        """
        values, arrays = self.model.state()
        pool = [] if self.graph is None else [self.graph.pool.choices]
        parts = (part for name in sorted(arrays) for part in (name, arrays[name]))
        return content_id([json.dumps(values, sort_keys=True), *pool, *parts])

    def made_for(self, work: Workload) -> bool:
        """Whether it is of a workload's operation, as far as its card says."""
        return bool(self.model.card.get("op", work.op) == work.op)

    def doubts(self, work: Workload, threads: int, space: Space) -> list[str]:
        """Return what the model was trained for that differs so much from this that it is to be believed less."""
        card = self.model.card
        machine, data = (
            said if isinstance(said, dict) else {} for said in (card.get("machine"), card.get("data"))
        )
        found = [] if host().id in data.get("host_ids", []) else unlike(machine)
        hosts = [] if machine else data.get("hosts", [])
        if hosts and host().cpu not in hosts:
            found.append(f"processor {', '.join(map(str, hosts))}, here {host().cpu}")
        if card.get("threads", threads) != threads:
            found.append(f"threads {card['threads']}, here {threads}")
        if card.get("dtype", work.dtype_text) != work.dtype_text:
            found.append(f"{card['dtype']}, here {work.dtype_text}")
        return found + self.model.unknown_params(space)

    def forecast(
        self, work: Workload, device: Device, configs: Sequence[Config], *, doubtful: bool = False
    ) -> Forecast:
        """Predict what ``configs`` take.

        Raises:
            TensorwiseError: the model cannot tell.
        """
        scores, spreads = self._estimated(work, configs, device)
        return self._forecast(configs, scores, spreads, doubtful)

    def _forecast(
        self,
        configs: Sequence[Config],
        scores: np.ndarray,
        spreads: np.ndarray,
        doubtful: bool,
        grounded: Collection[Config] | None = None,
    ) -> Forecast:
        error = DOUBTFUL if doubtful else ERROR
        return Forecast(configs, scores, spreads, self.model.returns != "score", error, grounded)

    def _estimated(
        self, work: Workload, configs: Sequence[Config], device: Device
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores and spreads as a `Forecast` takes them."""
        (scores, spreads), returns = self.model.estimate(work, configs, device), self.model.returns
        if returns == "seconds":
            scores = np.log2(np.maximum(scores, SHORTEST_S))
        return scores, np.nan_to_num(spreads) if returns == "ratio" else np.zeros(len(configs))

    def top_configs(
        self, work: Workload, space: Space, device: Device, count: int, rng: np.random.Generator
    ) -> list[Config]:
        """Return the ``count`` configs that a tuning would try first, portfolio structures included, with no time limit.

        Raises:
            TensorwiseError: the model cannot make a prediction.
        """
        found = self.promising(work, space, device, portfolio(space, work), rng, lambda: False)
        return found.named[:count]

    def promising(
        self,
        work: Workload,
        space: Space,
        device: Device,
        known: Sequence[Config],
        rng: np.random.Generator,
        enough: Callable[[], bool],
        *,
        doubtful: bool = False,
    ) -> Forecast:
        """Return the forecast of ``known``, of the configs of `propose`, and of configs one step from the best of them.

        Args:
            known, rng, enough: as for `propose`.
            doubtful: as for `forecast`.

        Raises:
            TensorwiseError: the model cannot make a prediction.
        """
        model = self.model
        if model.reads_resources:
            return self._screened(work, space, device, known, rng, doubtful)
        configs = list(dict.fromkeys([*known, *self.propose(work, space, device, known, rng, enough)]))
        # Without a graph the evolutionary search includes such steps.
        if not isinstance(model, EmbeddingModel) or model.table is None or self.graph is None:
            return self.forecast(work, device, configs, doubtful=doubtful)
        pattern, table = model.embed_pattern(work), model.table
        estimates: dict[Config, tuple[float, float]] = {}  # reused by the forecast, without further inference

        def cost(some: Sequence[Config]) -> np.ndarray:
            scores, spreads = self._estimated(work, some, device)
            estimates.update(zip(some, zip(scores.tolist(), spreads.tolist(), strict=True), strict=True))
            return cautious(scores, spreads)

        climbed(
            space,
            work,
            dict(zip(configs, cost(configs).tolist(), strict=True)),
            cost,
            lambda some: model.score(pattern, model.embed_configs(some)),
            names=[name for name in space.by_name if name in table.by_name],
            enough=enough,
        )
        scores, spreads = np.array(list(estimates.values())).T
        return self._forecast(list(estimates), scores, spreads, doubtful, grounded=configs)

    def _screened(
        self,
        work: Workload,
        space: Space,
        device: Device,
        known: Sequence[Config],
        rng: np.random.Generator,
        doubtful: bool,
    ) -> Forecast:
        """Predict NUM_PREDICTED configs, compile the NUM_COMPILED best, and predict these again with their registers.

        The NUM_TRIED best and ``known`` are what is forecast (G-Sparse, section III-D).
        """
        drawn = list(dict.fromkeys(space.sample(work, rng) for _ in range(NUM_PREDICTED)))
        best = _sort_by(self.model.predict(work, drawn, device), drawn)[:NUM_COMPILED]
        again = list(dict.fromkeys([*known, *best]))
        predicted = self.model.predict_compiled(work, again, device, device.resources(work, again))
        kept = set(_sort_by(predicted, again)[:NUM_TRIED]) | set(known)
        places = [place for place, config in enumerate(again) if config in kept]
        scores = predicted[places]
        if self.model.returns == "seconds":
            scores = np.log2(np.maximum(scores, SHORTEST_S))
        return self._forecast([again[place] for place in places], scores, np.zeros(len(places)), doubtful)

    def propose(
        self,
        work: Workload,
        space: Space,
        device: Device,
        known: Sequence[Config],
        rng: np.random.Generator,
        enough: Callable[[], bool],
    ) -> list[Config]:
        """Return configs that may be fast: the results of a graph search, else of an evolutionary search.

        Args:
            known: good configs, the seeds of the evolutionary search.
            rng: random numbers of the evolutionary search.
            enough: called between generations; the search ends once it returns True.

        Raises:
            TensorwiseError: the model cannot make a prediction.
        """
        graph = self.graph
        if graph is not None and isinstance(self.model, EmbeddingModel):
            model, pattern = self.model, self.model.embed_pattern(work)
            walk = Walk(
                graph,
                lambda rows: model.score(pattern, graph.embeddings[rows]),
                lambda row: space.migrate(graph.pool[row], work) is not None,
            )
            return graph.pool.migrated(walk.take(WALKED), space, work)
        strategy = Genetic(space, work, rng, seeds=known)
        found: list[Config] = []
        while len(found) < BRED and (configs := strategy.ask(BROOD)):
            strategy.tell(configs, self.model.predict(work, configs, device).tolist())
            found += configs
            if enough() and len(found) >= len(known):
                break
        return found


def _sort_by(predicted: np.ndarray, configs: Sequence[Config]) -> list[Config]:
    """Configs in ascending order of what was predicted."""
    return [configs[place] for place in np.argsort(predicted, kind="stable")]


@lru_cache(maxsize=16)
def _opened(folder: Path, stamp: int) -> Advisor:
    """Return a bundled model; it is read once, and again when its description has changed."""
    return Advisor.load(folder)


def load_bundled_advisors(work: Workload, threads: int, problems: list[str]) -> list[Advisor]:
    """Return the bundled models for a workload, the most suitable first; append reasons for missing ones to ``problems``."""
    found = []
    folders = find_models_for(work.op, str(work.einsum), threads)
    if not folders and not bundled_folders():
        problems.append(NOT_INSTALLED)
    for folder in folders:
        try:
            found.append(_opened(folder, (folder / DESCRIPTION).stat().st_mtime_ns))
        except (InputError, OSError) as error:
            problems.append(str(error))
    return found
