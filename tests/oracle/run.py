"""Judging many seeds: in several processes, a chunk at a time, resumable by seed."""

import multiprocessing
import tempfile
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from tensorwise.errors import FormatError, ScheduleError
from tensorwise.tensor.primitives import PACKING
from tensorwise.toolchain.routines import load_all
from tensorwise.toolchain.runtime import DRIVER
from tests.oracle.cases import draw, name_of
from tests.oracle.coverage import FEATURES, Coverage
from tests.oracle.judge import Outcome, judge, prepare

CHUNK = 50
"""Seeds a task: their kernels are compiled together."""
SOUGHT = 20_000
"""Seeds that are looked through for what never came up."""
TASKS_A_PROCESS = 20
"""Kernels stay loaded until their process ends."""


def run(
    examples: int, seed: int, jobs: int, progress: Callable[[Outcome, int], None] | None = None
) -> Outcome:
    """Judge seeds from ``seed`` on until ``examples`` cases were executed; refused draws do not count.

    Args:
        progress: called now and then with the outcome so far and the first seed that is not judged yet.
    """
    load_all(DRIVER, PACKING)  # once, before the processes ask for it together
    total, running = Outcome(), dict[Future[Outcome], int]()
    pool = ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=TASKS_A_PROCESS
    )
    with tempfile.TemporaryDirectory() as folder, pool:
        while running or total.coverage.executed < examples:
            while len(running) <= jobs and total.coverage.executed + CHUNK * len(running) < examples:
                running[pool.submit(judge, range(seed, seed + CHUNK), Path(folder) / str(seed))] = seed
                seed += CHUNK
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                first = running.pop(future)
                try:
                    total.merge(future.result())
                except BrokenProcessPool:
                    diaries = [Path(folder) / str(f) for f in (first, *running.values())]
                    at = [int(diary.read_text()) for diary in diaries if diary.exists()]
                    total.failures[first] = f"a process died; the processes were at the seeds {at}"
                    return total
            if progress is not None:
                progress(total, min([seed, *running.values()]))
    return total


def complete(total: Outcome, seed: int) -> None:
    """Judge cases from ``seed`` on that have what never came up; of the others at most the einsum is drawn."""
    missing, chosen = set(total.coverage.missing()), list[int]()
    for one in range(seed, seed + SOUGHT):
        if not missing:
            break
        if all(combination[0] not in ("", name_of(one), *FEATURES) for combination in missing):
            continue
        try:
            prepared = prepare(draw(one))
        except (FormatError, ScheduleError):
            continue
        alone = Coverage()
        alone.add(prepared.case, prepared.features)
        if missing & alone.met:
            chosen.append(one)
            missing -= alone.met
    if chosen:  # in a process of its own, as `run` does: a kernel may take it along
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            total.merge(pool.submit(judge, chosen).result())
