"""What is measured: searches, their choice, and the rounds that are reported. Each step is a key in the result file.

A choice is made in rounds of its own (``CpuDevice.rounds``); every reported figure comes from fresh interleaved rounds in
which Fixed CSR, our default and all compared programs run, each verified before and after.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.baselines.fixed_csr import FixedCsr
from benchmarks.corpus import Item, entries_of
from benchmarks.kernels import measure
from benchmarks.kernels.measure import Contest, explore, short
from motivation.spaces import FACTORS, SPACES, class_of, factors, joint, moved
from tensorwise.device.cpu import CpuDevice
from tensorwise.device.timing import measuring_slot
from tensorwise.errors import InputError
from tensorwise.lower.program import Program
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.space.config import Config
from tensorwise.tuning.tune import FINALISTS

Runs = Mapping[str, Mapping[str, Any]]
Step = Callable[[Runs], dict[str, Any]]


@dataclass(frozen=True)
class Settings:
    """What the figures depend on; ``values.toml`` explains each."""

    columns: int
    trials: int
    seeds: tuple[int, ...]
    choosing_rounds: int
    choosing_s: float
    reporting_rounds: int
    reporting_s: float
    threads: int


@dataclass(frozen=True)
class Steps:
    """The steps on one device.

    Attributes:
        items: the corpus by name.
    """

    device: CpuDevice
    items: Mapping[str, Item]
    settings: Settings

    def planned(self, values: Mapping[str, Any], ops: Sequence[str]) -> dict[str, Step]:
        """Return the steps for the matrices of ``values.toml`` that are among ``items``, in their order."""
        found: dict[str, Step] = {}
        motivating = [name for name in values["motivation"].values() if name in self.items]
        for matrix in motivating:
            for space in SPACES:
                found |= self._found("spmm", matrix, space)
        for matrix in motivating:
            found[f"compare spmm {matrix}"] = functools.partial(self.compare, matrix, motivating)
        for op in ops:
            for matrix in [name for name in values["sources"]["matrices"] if name in self.items]:
                found |= self._found(op, matrix, "joint")
                found[f"sources {op} {matrix}"] = functools.partial(self.sources, op, matrix)
        return found

    def _found(self, op: str, matrix: str, space: str) -> dict[str, Step]:
        found: dict[str, Step] = {
            f"search {op} {matrix} {space} {seed}": functools.partial(self.search, op, matrix, space, seed)
            for seed in self.settings.seeds
        }
        return found | {f"choose {op} {matrix} {space}": functools.partial(self.choose, op, matrix, space)}

    def work(self, op: str, matrix: str) -> Workload:
        """Return the workload in float32."""
        return workload(
            op, entries_of(self.items[matrix].path), n=None if op == "spmv" else self.settings.columns
        )

    def search(self, op: str, matrix: str, space: str, seed: int, runs: Runs) -> dict[str, Any]:
        """Search one tuning space: its part of the portfolio, then random and bred configs."""
        work = self.work(op, matrix)
        settings = measure.Settings(self.settings.trials, math.inf, seed)
        explored = explore(SPACES[space](work), work, self.device, settings)
        return {
            "tried": explored.tried,
            "timed": len(explored.times),
            "seconds": short(explored.seconds),
            "finalists": {
                config.text: short(explored.times[config]) for config in explored.fastest(FINALISTS)
            },
        }

    def choose(self, op: str, matrix: str, space: str, runs: Runs) -> dict[str, Any]:
        """Choose among the fastest of all seeds and the default."""
        work, settings = self.work(op, matrix), self.settings
        searches = [_held(runs, f"search {op} {matrix} {space} {seed}") for seed in settings.seeds]
        texts = dict.fromkeys(text for search in searches for text in search["finalists"])
        default = joint(work).default(work)
        configs = {config.text: config for config in (default, *map(Config.parse, texts))}
        programs = {text: joint(work).program(work, config) for text, config in configs.items()}
        rounds = self.device.rounds(
            work, programs, budget_s=settings.choosing_s, max_rounds=settings.choosing_rounds
        )
        if rounds.table is None or rounds.table.best() in rounds.failed:
            raise InputError(f"no rounds for {matrix}: {dict(rounds.failed)}")
        best = rounds.table.best()
        return {
            "config": best,
            **_told(programs[best]),
            "entered": len(configs),
            "default": best == default.text,
            "note": rounds.table.note,
        }

    def compare(self, matrix: str, others: Sequence[str], runs: Runs) -> dict[str, Any]:
        """Time the optimum of each tuning space, and the other matrices' joint optima, on a matrix."""
        work = self.work("spmm", matrix)
        space = joint(work)
        chosen = {name: _chosen(runs, "spmm", matrix, name) for name in SPACES}
        changed, refused = {}, {}
        for other in others:
            foreign = _chosen(runs, "spmm", other, "joint")
            name = f"opt {other}"
            if other != matrix:
                try:
                    chosen[name], changed[name] = moved(foreign, work)
                except InputError as error:
                    refused[name] = str(error)[:300]
        configs = {"default": space.default(work), **chosen}
        told = self._timed(
            work, {name: space.program(work, config) for name, config in configs.items()}, "joint"
        )
        told["failed"] |= refused
        return {**_character(work), **told, "changed": changed}

    def sources(self, op: str, matrix: str, runs: Runs) -> dict[str, Any]:
        """Time the joint optimum with single Params, and with all Params of a source, turned back to the default."""
        work = self.work(op, matrix)
        space = joint(work)
        best = _chosen(runs, op, matrix, "joint")
        parts = {f"param {param.name}": [param.name] for param in space.params}
        parts |= {f"source {factor}": names for factor, names in factors(work).items()}
        configs, changed, refused = {"default": space.default(work), "best": best}, {}, {}
        for name, params in parts.items():
            try:
                config, follow = moved(best, work, params)
            except InputError as error:
                refused[name] = str(error)[:300]
                continue
            if config != best:
                configs[name], changed[name] = config, follow
        programs = {name: space.program(work, config) for name, config in configs.items()}
        told = self._timed(work, programs, "best")
        told["failed"] |= refused
        classes = {
            name: class_of(factor, best, work)
            for factor in FACTORS
            if (name := f"source {factor}") in configs
        }
        return {
            **_character(work),
            **told,
            **_told(programs["best"]),
            "classes": classes,
            "changed": changed,
            "config": best.text,
        }

    def _timed(self, work: Workload, programs: Mapping[str, Program], best: str) -> dict[str, Any]:
        """Time programs and Fixed CSR; return for each its seconds, and how it stands beside others.

        ``speedup`` over Fixed CSR and over the default, ``loss`` against ``best``: median of ratios within a round and
        the bounds of its 95 % interval.
        """
        settings = self.settings
        first: dict[str, str] = {}  # of names for the same program one is timed
        for name, program in programs.items():
            first.setdefault(program.name, name)
        distinct = {name: programs[name] for name in first.values()}
        # In a process of its own first, since one may crash or hang.
        screened = list(self.device.measure(work, list(distinct.values())))
        failed = {
            name: f"{m.status}: {m.note}"[:300]
            for name, m in zip(distinct, screened, strict=True)
            if m.status not in ("ok", "censored")
        }
        with measuring_slot() as slot:
            contest = Contest(work, settings.threads, settings.seeds[0])
            contest.enter("fixed_csr", FixedCsr())
            for name, program in distinct.items():
                if name not in failed:
                    contest.enter(name, GeneratedKernel(program))
            table = contest.time(list(contest.bound), settings.reporting_rounds, settings.reporting_s)
            contest.check()
            contest.close()
        failed |= contest.failed
        timed = {"fixed_csr": "fixed_csr"} | {name: first[program.name] for name, program in programs.items()}
        if lost := [name for name in ("fixed_csr", "default", best) if timed[name] in failed]:
            raise InputError("; ".join(f"{name}: {failed[timed[name]]}" for name in lost))
        right = {name: same for name, same in timed.items() if same not in failed}

        def ratio(a: str, b: str) -> list[float]:
            found = table.ratio(timed[a], timed[b])
            return [short(one) for one in (found.median, found.low, found.high)]

        return {
            "seconds": {name: short(table.median(same)) for name, same in right.items()},
            "speedup": {
                base: {name: ratio(base, name) for name in right} for base in ("fixed_csr", "default")
            },
            "loss": {name: ratio(name, best) for name in right},
            "failed": {name: failed[same] for name, same in timed.items() if same in failed},
            "rounds": len(table.rounds),
            "note": "; ".join(filter(None, (slot.note, table.note))),
        }


def _held(runs: Runs, key: str) -> Mapping[str, Any]:
    """Return what an earlier step found; InputError if it failed."""
    run = runs[key]
    if "error" in run:
        raise InputError(f"{key} failed: {run['error']}")
    return run


def _chosen(runs: Runs, op: str, matrix: str, space: str) -> Config:
    return Config.parse(_held(runs, f"choose {op} {matrix} {space}")["config"])


def _told(program: Program) -> dict[str, str]:
    return {"format": program.format_text, "schedule": program.schedule_text}


def _character(work: Workload) -> dict[str, Any]:
    """Return what tells one matrix from another."""
    entries = work.entries
    lengths = np.bincount(np.asarray(entries.coordinates[0]), minlength=entries.shape[0])
    return {
        "shape": list(entries.shape),
        "nonzeros": entries.nnz,
        "longest_row": int(lengths.max()),
        "empty_rows": int((lengths == 0).sum()),
    }
