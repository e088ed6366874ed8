"""What is done: configs are drawn and measured twice, or come from records; then each model ranks them."""

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import Item, entries_of, root
from benchmarks.held_out import Learned, learned_of, matrices
from benchmarks.kernels.measure import short
from benchmarks.splits import family_of, splits
from tensorwise.collect.corpus import patterns
from tensorwise.collect.workloads import Workloads
from tensorwise.device.cpu import CpuDevice
from tensorwise.device.timing import measuring_slot
from tensorwise.errors import InputError
from tensorwise.front.model_card import figures
from tensorwise.front.terminal import finite
from tensorwise.ids import content_id
from tensorwise.model import CostModel, RankingModel, load_model
from tensorwise.model.evaluation import MIN_TIMED_CONFIGS, JobEvaluation, evaluate_ranking
from tensorwise.model.metrics import quality
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import CpuSpace, cpu_space
from tensorwise.store.reading import records_of

Runs = Mapping[str, Mapping[str, Any]]
Step = Callable[[], dict[str, Any]]
REPEATS = 4
"""Configs drawn for one that is kept, at most: a small space has no more."""


@dataclass(frozen=True)
class Settings:
    """What the figures depend on; ``values.toml`` explains each."""

    columns: int
    rank: int
    configs: int
    near: int
    rounds: int
    rounds_s: float
    seed: int
    threads: int

    def n(self, op: str) -> int | None:
        """Return the extent of the dense-only index."""
        return {"spmv": None, "mttkrp": self.rank}.get(op, self.columns)


def named(given: Sequence[str]) -> dict[str, Learned]:
    """Return the models of ``NAME=FOLDER`` by name.

    Raises:
        InputError: a text is malformed, two names are the same, or a folder holds no model with a card.
    """
    found: dict[str, Learned] = {}
    for text in given:
        name, _, folder = text.partition("=")
        if not (name and folder) or name in found:
            raise InputError(f"expected NAME=MODEL, each name once, got {text!r}")
        found[name] = learned_of(Path(folder))
    return found


@dataclass(frozen=True)
class Steps:
    """The steps on one device.

    Attributes:
        models: name -> model.
        records: files of records to judge by; empty: configs are measured.
    """

    device: CpuDevice
    models: Mapping[str, Learned]
    records: Sequence[Path]
    settings: Settings
    _loaded: dict[str, CostModel] = field(default_factory=dict)

    def planned(self, items: Mapping[str, Sequence[Item]], runs: Runs) -> dict[str, Step]:
        """Return the steps: each model's training, then measuring and ranking matrix by matrix.

        Args:
            items: operation -> matrices, or tensors, to measure.
            runs: the results so far, as they grow.
        """
        found: dict[str, Step] = {
            f"history {name}": functools.partial(self.history, name) for name in self.models
        }
        if self.records:
            return found | {f"records {name}": functools.partial(self.judged, name) for name in self.models}
        for op, some in items.items():
            for item in some:
                found[f"measure {op} {item.name}"] = functools.partial(self.measure, op, item)
                for name, learned in self.models.items():
                    if learned.op == op:
                        found[f"rank {name} {item.name}"] = functools.partial(self.rank, name, item, runs)
        return found

    def seen(self, op: str) -> frozenset[str]:
        """Return the families that any model of an operation has learned from."""
        return frozenset().union(*(one.families for one in self.models.values() if one.op == op))

    def unseen(self, sizes: Mapping[str, Any], only: Collection[str]) -> dict[str, list[Item]]:
        """Return for each operation the matrices, or tensors, of other families; see ``benchmarks.held_out.matrices``."""
        ops = dict.fromkeys(one.op for one in self.models.values())
        return {op: matrices(op, self.seen(op), self.settings.n(op), sizes, only) for op in ops}

    def model(self, name: str) -> CostModel:
        """Return a model, loaded once."""
        if name not in self._loaded:
            self._loaded[name] = load_model(self.models[name].folder)
        return self._loaded[name]

    def history(self, name: str) -> dict[str, Any]:
        """Return how a model was trained: the losses of each epoch (Figure 5-7), and of what."""
        model, learned = self.model(name), self.models[name]
        told = {"op": learned.op, "families": sorted(learned.families), "card": _about(model.card)}
        if not isinstance(model, RankingModel):
            return {**told, "net": model.kind, "epochs": []}
        return {**told, "net": model.net_name, "epochs": [epoch.to_json() for epoch in model.history]}

    def judged(self, name: str) -> dict[str, Any]:
        """Judge a model by records of families that no model has learned from: random configs, and the default's repeats."""
        learned = self.models[name]
        seen = splits().met(self.seen(learned.op))
        workloads = Workloads(patterns([root()]))
        chosen = [
            record
            for record in records_of(self.records)
            if (record.op, record.provenance.get("threads")) == (learned.op, self.settings.threads)
            and learned.einsum in ("", record.workload["einsum"])
            and family_of(record) not in seen
            and record.provenance.get("drawn") in ("random", "default")
            and workloads.has(record)
        ]
        found = evaluate_ranking(self.model(name), chosen, workloads.of)
        jobs = [finite({"matrix": one.pattern, "family": one.family, **figures([one])}) for one in found]
        return {"op": learned.op, "jobs": jobs}

    def work(self, op: str, item: Item) -> Workload:
        """Return the workload in float32."""
        return workload(op, entries_of(item.path), n=self.settings.n(op))

    def drawn(self, space: CpuSpace, work: Workload) -> list[Config]:
        """Return different random configs, none of them the default, the same every time."""
        rng = np.random.default_rng(self.settings.seed)
        found = {space.default(work): None}
        for _ in range(REPEATS * self.settings.configs):
            if len(found) <= self.settings.configs:
                found[space.sample(work, rng)] = None
        return list(found)[1:]

    def measure(self, op: str, item: Item) -> dict[str, Any]:
        """Measure random configs twice, each time in another order, as ratios to the time of the default config.

        The fastest few, whose order a single measurement cannot tell, run in interleaved rounds, both times.
        """
        work = self.work(op, item)
        space = cpu_space(work.assignment, "A")
        configs, rng = self.drawn(space, work), np.random.default_rng(self.settings.seed + 1)
        every = [*configs, space.default(work)]
        ratios, exact = np.full((2, len(configs)), np.inf), np.zeros((2, len(configs)), bool)
        notes: list[str] = []
        near: list[int] = []
        with measuring_slot() as slot:
            list(self.device.measure(work, every[-1:]))  # a fresh worker's first takes longer
            for turn in range(2):
                order = [int(place) for place in rng.permutation(len(every))]
                found = self.device.measure(work, [every[place] for place in order])
                measured = dict(zip(order, found, strict=True))
                unit = measured.pop(len(configs))
                if not unit.ok:
                    raise InputError(f"the default config could not be timed: {unit.status} {unit.note}")
                for place, one in measured.items():
                    ratios[turn, place], exact[turn, place] = one.seconds / unit.seconds, one.ok
                timed = [place for place in np.argsort(ratios[0], kind="stable").tolist() if exact[0, place]]
                near = near or timed[: self.settings.near]
                kernels = {str(place): space.program(work, every[place]) for place in (*near, len(configs))}
                rounds = self.device.rounds(
                    work, kernels, budget_s=self.settings.rounds_s, max_rounds=self.settings.rounds
                )
                if rounds.table is None or str(len(configs)) not in rounds.table.names:
                    raise InputError(f"there were no rounds: {dict(rounds.failed)}")
                notes.append(rounds.table.note)
                for place in near:
                    if str(place) in rounds.table.names and str(place) not in rounds.failed:
                        ratios[turn, place] = rounds.table.ratio(str(place), str(len(configs))).median
        return {
            "op": op, "matrix": item.name, "family": item.family, "nonzeros": work.entries.nnz,
            "configs": _id(configs),
            "ratios": [[short(one) if np.isfinite(one) else None for one in row] for row in ratios.tolist()],
            "exact": exact.astype(int).tolist(),
            "note": "; ".join(filter(None, (slot.note, *dict.fromkeys(notes)))),
        }  # fmt: skip

    def rank(self, name: str, item: Item, runs: Runs) -> dict[str, Any]:
        """Let a model rank the configs that were measured, by the first measurement; the second gives the noise floor.

        Configs that no program was made of (their code would be too long, their format holds too much) are left out: there
        is nothing to rank.
        """
        op = self.models[name].op
        held = runs[f"measure {op} {item.name}"]
        if "error" in held:
            raise InputError(f"nothing was measured: {held['error']}")
        work = self.work(op, item)
        configs = self.drawn(cpu_space(work.assignment, "A"), work)
        if _id(configs) != held["configs"]:
            raise InputError(
                "other configs were measured: the space is another one now; measure again with --fresh"
            )
        costs = np.array([[np.inf if one is None else one for one in row] for row in held["ratios"]])
        exact = np.array(held["exact"], bool)
        if exact[0].sum() < MIN_TIMED_CONFIGS:
            raise InputError(
                f"{exact[0].sum()} configs have a time; at least {MIN_TIMED_CONFIGS} are needed to judge a ranking"
            )
        ran = np.isfinite(costs[0])
        costs, exact = costs[:, ran], exact[:, ran]
        model = self.model(name)
        start = time.perf_counter()
        predicted = model.predict(work, [configs[place] for place in np.flatnonzero(ran)], self.device)
        seconds = time.perf_counter() - start
        # Predictions must be finite: what failed the second time is placed behind all others.
        again = np.where(np.isfinite(costs[1]), costs[1], 2 * costs[np.isfinite(costs)].max())
        found = JobEvaluation(
            work.id,
            item.name,
            item.family,
            quality(costs[0], predicted, exact[0]),
            quality(costs[0], again, exact[0]),
        )
        places = [
            np.argsort(np.argsort(one, kind="stable"), kind="stable").tolist()
            for one in (costs[0], predicted)
        ]
        return {
            "op": op, "model": name, "matrix": item.name, "family": item.family, **finite(figures([found])),
            "places": places, "predict_s": short(seconds),
        }  # fmt: skip


def _about(card: Mapping[str, Any]) -> dict[str, Any]:
    """What a page says of a model's training."""
    return {key: card[key] for key in ("net", "heads", "epochs", "date") if key in card} | {
        "loss": card.get("training", {}).get("loss"),
        "records": card.get("data", {}).get("records"),
    }


def _id(configs: Sequence[Config]) -> str:
    return content_id([config.text for config in configs], 16)
