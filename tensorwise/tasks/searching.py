"""TVM's meta-schedule in search of a task's fastest schedule, by its own cost model or another (CDMPP, section 7.5)."""

import contextlib
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from tensorwise.analysis.loop_tree import LoopTree
from tensorwise.analysis.machine_code import MachineCode
from tensorwise.device.device import Measurement
from tensorwise.errors import InputError
from tensorwise.tasks.cpu import TvmCpu, codes_of
from tensorwise.tasks.targets import cpu_target
from tensorwise.tasks.task import Task, loop_tree
from tensorwise.tasks.tvm_extra import derived_object, meta_schedule

TRIALS_PER_BATCH: Final = 16
"""Programs that are measured before each training of the cost model."""
Guide = Callable[[Sequence[LoopTree], Sequence[MachineCode | None]], np.ndarray]
"""Predicts the run times of programs in seconds, from their loop trees and, where compiled, their machine code."""
GUIDES: Final = "xgb", "random"
"""Cost models of TVM: boosted trees, which learn from what is measured, and none."""


@final
@dataclass(frozen=True)
class TaskSearch:
    """What a search did.

    Attributes:
        trials: what was measured, in that order.
        seconds: of wall time that it took; ``guide_s`` of them in a guide that is not TVM's.
    """

    trials: tuple[Measurement, ...]
    seconds: float
    guide_s: float

    @property
    def curve(self) -> list[float]:
        """Seconds of the fastest program after each trial; infinite before the first that runs."""
        return [float(s) for s in np.minimum.accumulate([t.seconds if t.ok else np.inf for t in self.trials])]


def search_schedules(
    task: Task,
    device: TvmCpu,
    folder: Path,
    trials: int,
    guide: Guide | str = "xgb",
    *,
    batch: int = TRIALS_PER_BATCH,
    population: int = 512,
    generations: int = 4,
    compiled: int = 0,
    seed: int = 0,
) -> TaskSearch:
    """Let TVM search for a schedule; its database of what was tried is all that is left in ``folder``.

    Programs are built here and run in forked processes: TVM's own workers take ten times as long for each, most of it to
    begin.

    Args:
        trials: programs that are measured, at most: of small tasks there are fewer.
        guide: chooses which candidates are measured: a name of ``GUIDES``, or a function that predicts their times, such as
            a LatencyModel, which learns nothing from the trials.
        batch: programs that are measured at a time.
        population, generations: of the genetic search between two batches.
        compiled: if the guide is a function, compile so many of the candidates that it predicts to be fastest in each
            generation and ask it again, since compiled code tells more than loops.

    Raises:
        InputError: an unknown guide, or no trials.
    """
    if (isinstance(guide, str) and guide not in GUIDES) or trials < 1:
        raise InputError(
            f"expected trials and one of {', '.join(GUIDES)}, or a function; got {trials}, {guide!r}"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = guide if isinstance(guide, str) else _Guided(guide, device.isa, compiled)
    built: dict[str, Any] = {}
    done: list[Measurement] = []

    def build(inputs: Sequence[Any]) -> list[Any]:
        results = []
        for one in device.build([given.mod for given in inputs]):
            path = str(Path(tempfile.mkdtemp()) / "program")  # TVM removes its folder
            built[path] = one
            results.append(meta_schedule.builder.BuilderResult(path, None))
        return results

    def run(inputs: Sequence[Any]) -> list[Any]:
        measured = device.time([built.pop(str(one.artifact_path)) for one in inputs], task)
        done.extend(measured)
        return [_Known(one.samples if one.ok else None, one.note) for one in measured]

    _silence()
    start = time.perf_counter()
    meta_schedule.tune_tir(
        task.module, cpu_target(device.isa, device.threads), str(folder), max_trials_global=trials,
        num_trials_per_iter=batch, cost_model=model, builder=_Builder(build), runner=_Runner(run),
        num_tuning_cores=device.threads, seed=seed + 1,
        strategy=meta_schedule.search_strategy.EvolutionarySearch(
            population_size=population, genetic_num_iters=generations
        ),
    )  # fmt: skip
    spent = 0.0 if isinstance(model, str) else model.spent_s
    return TaskSearch(tuple(done), time.perf_counter() - start, spent)


def _silence() -> None:
    """Have TVM tell its files what it does, and not the terminal, which it does again after each search."""
    logger = logging.getLogger(meta_schedule.__name__)
    logger.setLevel(logging.WARNING)
    for handler in list(logger.handlers):  # of the search before; TVM stumbles over such as have no name
        logger.removeHandler(handler)


def found_in(folder: Path) -> Callable[[Task, TvmCpu], Any]:
    """Return what looks up the fastest scheduled module of a task on a device, None where nothing ran.

    Args:
        folder: where ``search_schedules`` left its database.

    Raises:
        InputError: there is none.
    """
    files = [folder / f"database_{name}.json" for name in ("workload", "tuning_record")]
    if not all(file.is_file() for file in files):
        raise InputError(f"nothing was searched yet: there is no {files[0]}")
    database = meta_schedule.database.JSONDatabase(*map(str, files))
    return lambda task, device: database.query_ir_module(
        task.module, cpu_target(device.isa, device.threads), "main"
    )


@derived_object
class _Guided(meta_schedule.cost_model.PyCostModel):
    """Scores programs by what a guide says that they take: how many times faster they are than the first ones' best."""

    def __init__(self, guide: Guide, isa: str, compiled: int) -> None:
        super().__init__()
        self._guide, self._isa, self._compiled = guide, isa, compiled
        self._codes: dict[str, MachineCode | None] = {}
        self._unit = 0.0
        self.spent_s = 0.0

    def predict(self, context: Any, candidates: Sequence[Any]) -> np.ndarray:
        start = time.perf_counter()
        trees: dict[int, LoopTree] = {}
        for place, one in enumerate(candidates):
            with contextlib.suppress(InputError):  # a program that cannot be read is chosen last
                trees[place] = loop_tree(one.sch.mod)
        scores = np.zeros(len(candidates))
        if trees:
            seconds = self._seconds(list(trees.values()), [candidates[place].sch.mod for place in trees])
            self._unit = self._unit or float(seconds.min())
            scores[list(trees)] = self._unit / seconds
        self.spent_s += time.perf_counter() - start
        return scores

    def _seconds(self, trees: list[LoopTree], modules: list[Any]) -> np.ndarray:
        """What the guide says; those that were worth compiling are before all others."""
        seconds = np.array(self._guide(trees, [None] * len(trees)))
        first, rest = np.split(np.argsort(seconds, kind="stable"), [self._compiled])
        if not len(first):
            return seconds
        texts = {int(place): trees[place].text for place in first}
        new = {text: modules[place] for place, text in texts.items() if text not in self._codes}
        self._codes |= zip(new, codes_of(list(new.values()), self._isa), strict=True)
        again = self._guide([trees[place] for place in texts], [self._codes[text] for text in texts.values()])
        seconds[rest] *= again.max() / seconds[first].max()
        seconds[first] = again
        return seconds

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """What is measured changes nothing."""

    def load(self, path: str) -> None:
        """Asked by nobody here."""

    def save(self, path: str) -> None:
        """Asked by nobody here."""


@derived_object
class _Builder(meta_schedule.builder.PyBuilder):
    """Asks a function."""

    def __init__(self, build: Callable[[Sequence[Any]], list[Any]]) -> None:
        super().__init__()
        self._build = build

    def build(self, build_inputs: Sequence[Any]) -> list[Any]:
        return self._build(build_inputs)


@derived_object
class _Runner(meta_schedule.runner.PyRunner):
    """Asks a function."""

    def __init__(self, run: Callable[[Sequence[Any]], list[Any]]) -> None:
        super().__init__()
        self._run = run

    def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
        return self._run(runner_inputs)


@derived_object
class _Known(meta_schedule.runner.PyRunnerFuture):
    """A result that is there already."""

    def __init__(self, seconds: Sequence[float] | None, note: str) -> None:
        super().__init__()
        self._seconds, self._note = seconds, note

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        if self._seconds is None:
            return meta_schedule.runner.RunnerResult(None, self._note)
        return meta_schedule.runner.RunnerResult(list(self._seconds), None)
