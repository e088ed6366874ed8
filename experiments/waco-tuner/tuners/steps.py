"""What is measured: for each operation and matrix, the tuners' choices and all libraries in the same rounds."""

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from benchmarks.baselines import BASELINES
from benchmarks.baselines.untuned_mkl import UntunedMkl
from benchmarks.corpus import Item, entries_of, root
from benchmarks.held_out import Learned, learned_of
from benchmarks.kernels.measure import Contest, short
from tensorwise.collect.corpus import patterns
from tensorwise.collect.workloads import Workloads
from tensorwise.device.cpu import CpuDevice
from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.device.rounds import RoundTable
from tensorwise.device.timing import measuring_slot
from tensorwise.errors import InputError
from tensorwise.model.model import DESCRIPTION
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.kernel import Kernel
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.store.reading import records_of
from tensorwise.store.record import Record
from tuners.best_format import BestFormat, fit
from tuners.choices import Chosen, Settings, Tuners, kernels_of

Runs = Mapping[str, Mapping[str, Any]]
Step = Callable[[], dict[str, Any]]
OURS = "top10"
"""What the paper calls WACO: the fastest of the ten that the model names."""
NAIVE = UntunedMkl.name
FORMATS_S = 0.8
"""Seconds for timing BestFormat's formats on one training workload."""
TILED = ("spmm", "sddmm")
"""Operations that ASpT was published for."""


def models_in(folder: Path) -> dict[str, Learned]:
    """Return the models in ``folder``, or in folders below it, by operation.

    Raises:
        InputError: there is none, one has no card, or two are of the same operation.
    """
    found: dict[str, Learned] = {}
    for path in sorted([*folder.glob(DESCRIPTION), *folder.glob(f"*/{DESCRIPTION}")]):
        learned = learned_of(path.parent)
        if learned.op in found:
            raise InputError(
                f"{folder} has two models of {learned.op}: {learned.folder}, {found[learned.op].folder}"
            )
        found[learned.op] = learned
    if not found:
        raise InputError(f"there is no model in {folder}; make one with: tensorwise train")
    return found


@dataclass(frozen=True)
class Steps:
    """The steps on one device.

    Attributes:
        models: operation -> its model.
        records: files of records that BestFormat is fitted on; empty: it does not take part.
        warm: folder of the kernels of a user who has warmed the cache.
    """

    device: CpuDevice
    models: Mapping[str, Learned]
    records: Sequence[Path]
    warm: Path
    settings: Settings

    def planned(self, items: Mapping[str, Sequence[Item]], runs: Runs) -> dict[str, Step]:
        """Return the steps: for each operation the fit of BestFormat, then its matrices.

        Args:
            items: operation -> matrices, or tensors.
            runs: the results so far, as they grow.
        """
        found: dict[str, Step] = {}
        for op, chosen in items.items():
            if self.records:
                found[f"formats {op}"] = functools.partial(self.formats, op)
            for item in chosen:
                found[f"{op} {item.name}"] = functools.partial(self.compare, op, item, runs)
        return found

    def work(self, op: str, item: Item) -> Workload:
        """Return the workload in float32."""
        return workload(op, entries_of(item.path), n=self.settings.n(op))

    def formats(self, op: str) -> dict[str, Any]:
        """Fit BestFormat on the families that the model has learned from."""
        learned, n = self.models[op], self.settings.n(op)
        workloads = Workloads(patterns([root()]))
        jobs: defaultdict[tuple[str, object], list[Record]] = defaultdict(list)
        for record in records_of(self.records):
            facts, about = record.provenance, cast(Mapping[str, Any], record.workload)
            alike = (record.op, facts.get("threads")) == (op, self.settings.threads)
            alike &= n in (None, *about["sizes"].values()) and learned.einsum in ("", about["einsum"])
            if alike and facts.get("family") in learned.families and workloads.has(record):
                jobs[record.workload_id, facts.get("job")].append(record)
        some = [(functools.partial(workloads.of, job[0]), job) for job in jobs.values()]
        return fit(some, self._formats_timed).to_json()

    def _formats_timed(self, work: Workload, configs: Mapping[str, Config]) -> dict[str, float]:
        """Time configs in rounds; see ``Measure``."""
        space = cpu_space(work.assignment, "A")
        programs = {name: space.program(work, config) for name, config in configs.items()}
        unit = "the default"
        rounds = self.device.rounds(
            work,
            {unit: space.program(work, space.default(work)), **programs},
            budget_s=FORMATS_S,
            max_rounds=7,
        )
        if rounds.table is None or unit not in rounds.table.names:
            return {}
        timed = [name for name in rounds.table.names if name not in rounds.failed]
        return {name: math.log(rounds.table.ratio(name, unit).median) for name in timed if name != unit}

    def compare(self, op: str, item: Item, runs: Runs) -> dict[str, Any]:
        """Let all tuners choose, then time their choices and all libraries in fresh rounds, each verified."""
        learned, settings = self.models[op], self.settings
        work = self.work(op, item)
        if learned.einsum not in ("", str(work.einsum)):
            raise InputError(f"the model is of {learned.einsum}, and this is {work.einsum}")
        held = runs.get(f"formats {op}", {})
        formats = BestFormat.from_json(held) if "tree" in held else None
        tuners = Tuners(work, learned.folder, formats, settings)
        priced, first = self._priced(tuners, op)
        long, searched = tuners.long_search(self.device)
        programs = {"top1": first, "long": long, "default": tuners.default()}
        tiled = tuners.tiling() if op in TILED else None
        if tiled is not None:
            programs["tiling"] = tiled
        kernels = {name: one.kernel for name, one in priced.items()}
        kernels |= {name: GeneratedKernel(program) for name, program in programs.items()}
        told: dict[str, Any] = {
            "op": op,
            "name": item.name,
            "family": item.family,
            "shape": list(work.entries.shape),
            "nonzeros": work.entries.nnz,
            "search": searched,
            "prices": {name: dict(one.price) for name, one in priced.items()},
            "programs": {name: _text(kernel) for name, kernel in kernels.items()},
        }
        if UntunedMkl.installed() and UntunedMkl().why_not(work) is None:
            told["prices"]["mkl"] = {"seconds": short(tuners.inspector())}
        return told | self._timed(work, kernels)

    def _priced(self, tuners: Tuners, op: str) -> tuple[dict[str, Chosen], Any]:
        """Run the tuners whose price counts, each with no more kernels compiled than the portfolio's."""
        found = {}
        for calls in self.settings.calls.get(op, ()):
            with kernels_of(self.warm):
                found[f"told {calls}"] = tuners.told(calls)
        if tuners.formats is not None:
            with kernels_of(self.warm):
                found["best_format"] = tuners.best_format()
        with kernels_of(self.warm):
            found[OURS], first = tuners.top_ten()
        return found, first

    def _timed(self, work: Workload, ours: Mapping[str, Kernel]) -> dict[str, Any]:
        """Time all kernels; return seconds, and ratios to what the model found and to untuned MKL.

        ``over`` holds the time of each over that of OURS: median of ratios within a round and the bounds of its 95 %
        interval; ``naive`` the medians of the time of each over that of untuned MKL, and ``share`` those of the long search
        over each.
        """
        settings = self.settings
        baselines: dict[str, type[LibraryKernel]] = {**BASELINES, NAIVE: UntunedMkl}
        usable = {
            name: cls for name, cls in baselines.items() if cls.installed() and cls().why_not(work) is None
        }
        first: dict[str, str] = {}  # of names for the same kernel one is timed
        for name, kernel in ours.items():
            first.setdefault(_text(kernel), kernel.name if kernel.name in usable else name)
        same = {name: first[_text(kernel)] for name, kernel in ours.items()}
        with measuring_slot() as slot:
            contest = Contest(work, settings.threads, settings.seeds[0])
            contest.enter("again", ours[OURS])
            for name in dict.fromkeys(same.values()):
                if name not in usable:
                    contest.enter(name, ours[name])
            for name, cls in usable.items():
                contest.enter(name, cls())
            beside = dict.fromkeys(["again", *same.values(), "mkl", NAIVE])
            tables = contest.tables(list(beside), settings.reporting_rounds, settings.reporting_s)
            contest.check()
            contest.close()
        same |= {name: name for name in ("again", *usable)}
        timed = {name: one for name, one in same.items() if one not in contest.failed}
        failed = {name: contest.failed[one] for name, one in same.items() if name not in timed}
        if lost := [name for name in (OURS, "long", "default") if name in failed]:
            raise InputError("; ".join(f"{name}: {failed[name]}" for name in lost))
        told: dict[str, Any] = {
            "seconds": {name: short(_table(tables, one, one).median(one)) for name, one in timed.items()},
            "over": {name: _ratio(tables, one, timed[OURS]) for name, one in timed.items()},
            "share": {name: _ratio(tables, timed["long"], one)[0] for name, one in timed.items()},
            "failed": failed,
            "rounds": len(tables[0].rounds),
            "note": "; ".join(filter(None, (slot.note, tables[0].note))),
        }
        if NAIVE in timed:
            told["naive"] = {
                name: _ratio(tables, one, NAIVE)[0]
                for name, one in timed.items()
                if name in ours or name in ("mkl", NAIVE)
            }
        return told


def _text(kernel: Kernel) -> str:
    return kernel.program.name if isinstance(kernel, GeneratedKernel) else kernel.name


def _table(tables: Sequence[RoundTable], *names: str) -> RoundTable:
    """Return the first table that has all ``names``."""
    return next(table for table in tables if set(names) <= set(table.names))


def _ratio(tables: Sequence[RoundTable], a: str, b: str) -> list[float]:
    ratio = _table(tables, a, b).ratio(a, b)
    return [short(one) for one in (ratio.median, ratio.low, ratio.high)]
