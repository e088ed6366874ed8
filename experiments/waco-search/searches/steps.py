"""What is done: a pool is drawn and linked, then each search runs on each matrix. Each step is a key of the results."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import Item, entries_of
from searches.methods import METHODS, WITHOUT_CHANCE
from searches.problem import Problem, Settings, Trace
from tensorwise.errors import InputError
from tensorwise.program.workload import Workload, workload
from tensorwise.search.building import bred, build_graph
from tensorwise.search.graph import GRAPH, ConfigGraph
from tensorwise.search.pool import Pool
from tensorwise.search.walk import Walk
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space_of
from tensorwise.space.portfolio import portfolio
from tensorwise.space.space import Space

Step = Callable[[], dict[str, Any]]
BUILD = "build"
"""The key of the step that makes the graph."""


@dataclass
class Steps:
    """The steps for one model.

    Attributes:
        model: what predicts, an ``Embedding``; it is trained already.
        folder: where the graph is kept.
        items: the corpus by name.
        op, n: the operation, and the extent of its dense-only index.
    """

    model: Any
    folder: Path
    items: Mapping[str, Item]
    op: str
    n: int | None
    settings: Settings
    _last: dict[str, Problem] = field(default_factory=dict)

    def planned(
        self, drawn_for: Sequence[str], searched: Sequence[str], methods: Sequence[str]
    ) -> dict[str, Step]:
        """Return the steps for matrices that are among ``items``, in their order.

        Args:
            drawn_for: matrices for which the configs of the pool are drawn.
            searched: matrices on which the searches run.
            methods: names of ``METHODS``.

        Raises:
            InputError: the model does not embed configs.
        """
        if not all(hasattr(self.model, name) for name in ("embed_pattern", "embed_configs", "score")):
            raise InputError(f"a {type(self.model).__name__} does not embed configs")
        here = [name for name in drawn_for if name in self.items]
        found: dict[str, Step] = {BUILD: functools.partial(self.build, here)}
        for matrix in [name for name in searched if name in self.items]:
            found[f"pool {matrix}"] = functools.partial(self.pool, matrix)
            found[f"time {matrix}"] = functools.partial(self.time, matrix)
            for method in methods:
                for seed in self.settings.seeds[:1] if method in WITHOUT_CHANCE else self.settings.seeds:
                    step = functools.partial(self.search, matrix, method, seed)
                    found[f"search {matrix} {method} {seed}"] = step
        return found

    def build(self, matrices: Sequence[str]) -> dict[str, Any]:
        """Breed a part of the pool, draw the rest, embed it, link it and keep the graph."""
        works = [self.work(matrix) for matrix in matrices]
        space = cpu_space_of(works[0])
        ends, rng = [time.perf_counter()], np.random.default_rng(0)
        each = self.settings.bred // len(works)
        known = [config for work in works for config in self._bred(space, work, each, rng)]
        ends.append(time.perf_counter())
        pool = Pool.sample(space, works, self.settings.configs, rng, also=known)
        ends.append(time.perf_counter())
        embeddings = self.model.embed_configs(list(pool))
        ends.append(time.perf_counter())
        graph = build_graph(pool, embeddings, neighbours=self.settings.neighbours)
        ends.append(time.perf_counter())
        graph.save(self.folder)
        self._last.clear()
        links = np.diff(graph.starts)
        return {
            "configs": len(pool),
            "links": {"mean": round(float(links.mean()), 2), "most": int(links.max())},
            "bytes": sum((self.folder / name).stat().st_size for name in GRAPH.files),
            "seconds": dict(
                zip(
                    ("breeding", "drawing", "embedding", "linking"),
                    np.diff(ends).round(3).tolist(),
                    strict=True,
                )
            ),
        }

    def _bred(self, space: Space, work: Workload, count: int, rng: np.random.Generator) -> list[Config]:
        pattern = self.model.embed_pattern(work)

        def cost(configs: Sequence[Config]) -> np.ndarray:
            costs: np.ndarray = self.model.score(pattern, self.model.embed_configs(configs))
            return costs

        return bred(space, work, cost, count, rng)

    def work(self, matrix: str) -> Workload:
        """Return the workload of a matrix."""
        return workload(self.op, entries_of(self.items[matrix].path), n=self.n)

    def problem(self, matrix: str) -> Problem:
        """Return what is searched on a matrix; the last one is kept, with what it knows of the pool."""
        if matrix not in self._last:
            self._last.clear()
            work = self.work(matrix)
            space = cpu_space_of(work)
            pattern = self.model.embed_pattern(work)
            self._last[matrix] = Problem(self.model, space, work, ConfigGraph.load(self.folder), pattern)
        return self._last[matrix]

    def pool(self, matrix: str) -> dict[str, Any]:
        """Say what there is to find among the valid configs of the pool."""
        problem = self.problem(matrix)
        ranked = problem.ranked
        shares = (0.0, 0.001, 0.01, 0.1, 0.5, 1.0)
        costs = np.quantile(ranked, shares, method="lower").tolist()
        entries = problem.workload.entries
        return {
            "shape": list(entries.shape),
            "nonzeros": entries.nnz,
            "valid": len(ranked),
            "costs": dict(zip(map(str, shares), costs, strict=True)),
        }

    def time(self, matrix: str) -> dict[str, Any]:
        """Time the walk as tuning would use it: from an embedded pattern to the best valid configs."""
        problem = self.problem(matrix)
        taken, scoring, checking = [], [], []

        def score(rows: np.ndarray) -> np.ndarray:
            begin = time.perf_counter()
            costs = problem.model.score(problem.pattern, problem.graph.embeddings[rows])
            scoring.append(time.perf_counter() - begin)
            return costs

        def allowed(row: int) -> bool:
            begin = time.perf_counter()
            answer = problem.allowed(row)
            checking.append(time.perf_counter() - begin)
            return answer

        for _ in range(self.settings.timings):
            work = replace(problem.workload)  # of which the space has been asked nothing yet ...
            portfolio(problem.space, work)  # ... but what a tuning begins with
            problem = replace(problem, workload=work)
            start = time.perf_counter()
            walk = Walk(problem.graph, score, allowed)
            configs = [problem.graph.pool[row] for row in walk.take(self.settings.best).tolist()]
            taken.append(time.perf_counter() - start)
        return {
            "seconds": float(np.median(taken)),
            "fastest_s": min(taken),
            "slowest_s": max(taken),
            "scoring_share": round(sum(scoring) / sum(taken), 4),
            "checking_share": round(sum(checking) / sum(taken), 4),
            "checked": len(checking) // self.settings.timings,
            "evaluated": walk.evaluated,
            "hops": walk.hops,
            "configs": [config.text for config in configs],
        }

    def search(self, matrix: str, method: str, seed: int) -> dict[str, Any]:
        """Run one search."""
        problem = self.problem(matrix)
        problem.ranked.sum()  # what is known of the pool, not the search, takes the time for it
        trace = Trace(problem)
        METHODS[method](problem, trace, self.settings, np.random.default_rng(seed))
        return trace.told()
