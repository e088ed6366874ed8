"""What competes on a matrix besides the libraries: programs that tuners choose, each with what choosing it took."""

import contextlib
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.baselines.untuned_mkl import UntunedMkl
from benchmarks.bench import environment
from benchmarks.held_out import Learned
from benchmarks.kernels.measure import explore_seeds, fastest, short
from tensorwise.device.cpu import CpuDevice
from tensorwise.device.library import LIBRARY
from tensorwise.device.timing import measuring_slot
from tensorwise.front.warm import warm
from tensorwise.lower.program import Program
from tensorwise.model import load_model
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.kernel import Kernel
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space, cpu_space_of
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tuning.advice import Advisor
from tensorwise.tuning.limits import Guidance, TuningLimits
from tensorwise.tuning.operator import Operator
from tensorwise.tuning.searching import Search
from tensorwise.tuning.tune import FINALISTS, tune
from tuners.best_format import BestFormat


@dataclass(frozen=True)
class Settings:
    """What the figures depend on; ``values.toml`` explains each."""

    columns: int
    rank: int
    trials: int
    seeds: Sequence[int]
    search_s: float
    top: int
    calls: Mapping[str, Sequence[int]]
    tuning_s: float
    choosing_rounds: int
    choosing_s: float
    reporting_rounds: int
    reporting_s: float
    threads: int

    def n(self, op: str) -> int | None:
        """Return the extent of the dense-only index."""
        return {"spmv": None, "mttkrp": self.rank}.get(op, self.columns)


@dataclass(frozen=True)
class Chosen:
    """What a tuner chose.

    Attributes:
        kernel: what would be called from now on.
        price: seconds of it all (``seconds``), from the matrix as given to the first call; of these of compiling
            (``compile_s``) and of packing (``conversion_s``); and ``measured`` candidates.
    """

    kernel: Kernel
    price: Mapping[str, float]


@contextlib.contextmanager
def kernels_of(folder: Path) -> Iterator[None]:
    """Compile, and find compiled kernels, in a copy of ``folder`` that is thrown away: what is compiled here stays here."""
    with measuring_slot(), tempfile.TemporaryDirectory(prefix="kernels-", dir=folder.parent) as scratch:
        copy = Path(scratch) / "copy"
        shutil.copytree(folder, copy, copy_function=os.link)
        with environment({"TENSORWISE_CACHE_DIR": str(copy)}):
            yield


def warm_folder(folder: Path, models: Mapping[str, Learned], threads: int) -> None:
    """Make ``folder`` the cache of a user who has run ``tensorwise cache warm`` and has tuned each operation once.

    Args:
        models: operation -> its model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with environment({"TENSORWISE_CACHE_DIR": str(folder)}):
        warm(list(models))
        for op, model in models.items():
            n = None if op == "spmv" else 16
            shape = (64, 64, 64) if op == "mttkrp" else (64, 64)
            rows = np.arange(64)
            small = entries_from((shape, (rows,) * len(shape), np.ones(64, np.float32)))
            tune(small, op, n=n, trials=2, threads=threads, model=model.folder, store=False)


@dataclass(frozen=True)
class Tuners:
    """The tuners on one workload.

    Attributes:
        model: folder of the trained model.
        formats: the fitted BestFormat, None where there is none.
    """

    work: Workload
    model: Path
    formats: BestFormat | None
    settings: Settings

    def given(self) -> Any:
        """Return the sparse operand as a user has it, about which nothing is known yet: CSR, or the entries of a tensor."""
        entries = self.work.entries
        if entries.order != 2:
            return Entries(entries.shape, entries.coordinates, entries.values)
        rows, columns = entries.shape
        pointers, indices = entries.row_pointers(), entries.coordinates[1]
        return sp.csr_array((entries.values, indices, pointers), shape=(rows, columns))

    def fresh(self) -> Workload:
        """Return the workload, read anew."""
        return workload(self.work.op, entries_from(self.given()), n=self.settings.n(self.work.op))

    # -- tuners whose price counts -------------------------------------------------------------------------

    def top_ten(self) -> tuple[Chosen, Program]:
        """Measure ten configs for the model's sake, and choose the fastest; return also the one that it names first.

        As WACO counts its own results (section 5.2), but that the model learns from half of the ten which the others are.
        """
        advisor, settings = Advisor.load(self.model), self.settings
        start = time.perf_counter()
        work = self.fresh()
        with CpuDevice(settings.threads, seed=settings.seeds[0]) as device:
            guidance = Guidance(model=advisor, store=False, seed=settings.seeds[0])
            search = Search(work, device, TuningLimits(math.inf, settings.top, start=start), guidance)
            search.run(libraries=False)
            if search.interrupted:
                raise KeyboardInterrupt  # which a search takes for its end
            ran = {trial.config: trial.measurement for trial in search.trials if trial.measurement.ok}
            fastest_first = sorted(ran, key=lambda config: ran[config].seconds)
            best = self._fastest(device, work, fastest_first[:FINALISTS])
            compile_s = device.compile_s
        assert search.forecast is not None
        first = next(config for config in search.forecast.named if config in ran)
        found = _taken(best, work, start, compile_s, len(search.trials), settings.threads)
        return found, search.space.program(work, first)

    def best_format(self) -> Chosen:
        """Ask the selector."""
        assert self.formats is not None
        start = time.perf_counter()
        work = self.fresh()
        space = cpu_space_of(work)
        program = space.program(work, self.formats.choose(space, work))
        return _taken(program, work, start, 0.0, 0, self.settings.threads)

    def told(self, calls: int) -> Chosen:
        """Tune as a user does who says how many calls there will be."""
        settings, op = self.settings, self.work.op
        matrix, model = self.given(), load_model(self.model)
        start = time.perf_counter()
        operator = tune(
            matrix, op, n=settings.n(op), expected_calls=calls, budget_s=settings.tuning_s,
            threads=settings.threads, model=model, store=False, seed=settings.seeds[0],
        )  # fmt: skip
        seconds, result = time.perf_counter() - start, operator.result
        assert result is not None
        if any(note.startswith("interrupted") for note in result.notes):
            raise KeyboardInterrupt  # which a tuning takes for its end
        price = {
            "seconds": short(seconds),
            "compile_s": short(result.compile_s),
            "conversion_s": short(result.best.conversion_s),
            "measured": len(result.trials),
        }
        return Chosen(_kernel_of(operator), price)

    def inspector(self) -> float:
        """Return the seconds that MKL's inspector takes, beyond handing it the matrix."""
        both = [
            min(_bound_s(cls(), self.work, self.settings.threads) for _ in range(3))
            for cls in (LIBRARY["mkl"], UntunedMkl)
        ]
        return max(0.0, both[0] - both[1])

    # -- programs that are only compared with ----------------------------------------------------------------

    def long_search(self, device: CpuDevice) -> tuple[Program, dict[str, Any]]:
        """Search without a model, once for each seed; the fastest of all seeds meet in rounds that choose."""
        settings = self.settings
        found = explore_seeds(self.work, device, settings.trials, settings.search_s, settings.seeds)
        best = self._fastest(device, self.work, found.fastest(FINALISTS))
        return best, {"tried": found.tried, "timed": len(found.times), "seconds": short(found.seconds)}

    def tiling(self) -> Program | None:
        """Return the hybrid that keeps columns which groups of rows share apart, as ASpT does; None where it has none.

        Both parts have the schedules that suit them, chosen without measuring.
        """
        space = cpu_space(self.work.assignment, "A")
        config = space.complete({"apart": "columns"}, self.work)
        return space.program(self.work, config) if config["apart"] == "columns" else None

    def default(self) -> Program:
        """Return our untuned program."""
        space = cpu_space(self.work.assignment, "A")
        return space.program(self.work, space.default(self.work))

    def _fastest(self, device: CpuDevice, work: Workload, configs: Sequence[Config]) -> Program:
        """Let programs run against each other, and return the fastest."""
        rounds, budget_s = self.settings.choosing_rounds, self.settings.choosing_s
        return cpu_space(work.assignment, "A").program(work, fastest(work, device, configs, rounds, budget_s))


def _taken(
    program: Program, work: Workload, start: float, compile_s: float, measured: int, threads: int
) -> Chosen:
    """Bind a program, so that it can be called, and say what that took since ``start``."""
    kernel = GeneratedKernel(program)
    bound = kernel.bind(work, threads)
    seconds = time.perf_counter() - start
    price = {
        "seconds": short(seconds),
        "compile_s": short(compile_s + bound.compile_s),
        "conversion_s": short(bound.conversion_s),
        "measured": measured,
    }
    bound.close()
    return Chosen(kernel, price)


def _kernel_of(operator: Operator) -> Kernel:
    if operator.program is not None:
        return GeneratedKernel(operator.program)
    return LIBRARY[operator.kernel]()


def _bound_s(kernel: Kernel, work: Workload, threads: int) -> float:
    bound = kernel.bind(work, threads)
    bound.close()
    return bound.conversion_s
