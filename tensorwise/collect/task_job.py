"""TaskJob: one task, and how many schedules to try on it, with an instruction set and several numbers of threads.

Each schedule is compiled once and run with every number of threads; its loop tree, and what was counted in its code, are
remembered with each record, so that models can be trained where there is no TVM.
"""

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np

from tensorwise.analysis.machine_code import program_json
from tensorwise.device.device import Device, Measurement
from tensorwise.device.timing import preparing
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.reading import parse_dataclass
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tensorwise.tasks.cutting import tasks_of
from tensorwise.tasks.task import Task, loop_tree, space_name

PROGRAMS_PER_BATCH: Final = 8
"""Programs between two signs of life: compiling one takes about half a second."""
AGAIN: Final = 16
"""In one of so many jobs the first programs are timed twice: to know how much times vary takes few."""
WORKERS: Final = 2
"""Number of processes that draw and compile in parallel, mostly on one processor each; while one times the others wait."""


@final
@dataclass(frozen=True)
class TaskJob:
    """One task on the devices of one instruction set. Small, and the same JSON everywhere.

    Attributes:
        name: of the task; path: its file; task: its id.
        networks: those that it occurs in.
        device: the instruction set, a name of ``ISAS``; threads: of a call, a device each.
        samples: schedules to try; seed: of what is drawn.
        limit_s: seconds after which a program is given up.
    """

    name: str
    path: str
    task: str
    networks: tuple[str, ...]
    device: str
    threads: tuple[int, ...]
    samples: int = 16
    seed: int = 0
    limit_s: float = 8.0

    @cached_property
    def id(self) -> str:
        """Content id of all that decides what is measured."""
        facts = {
            name: value for name, value in self.to_json().items() if name not in ("path", "name", "networks")
        }
        return content_id(["task job", json.dumps(facts, sort_keys=True)])

    @property
    def label(self) -> str:
        """For people: ``fused_conv2d_add_relu avx2``."""
        return f"{self.name} {self.device}"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {**dataclasses.asdict(self), "networks": list(self.networks), "threads": list(self.threads)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read back what ``to_json`` returned.

        Raises:
            InputError: a field is missing or unknown.
        """
        job = parse_dataclass(cls, data, "job")
        if not job.threads or min(job.threads) < 1 or job.samples < 1 or job.seed < 0 or not job.limit_s > 0:
            raise InputError(
                f"job {job.label}: threads, samples and seconds must be positive, and the seed not negative, "
                f"got {job.threads}, {job.samples}, {job.limit_s} and {job.seed}"
            )
        return job

    def open(self) -> Device[Any]:
        """Return the device of the first number of threads: what has its records is done."""
        from tensorwise.tasks.cpu import TvmCpu

        return TvmCpu(self.device, self.threads[0], self.limit_s)

    def measured(self, beat: Callable[[], None] = lambda: None) -> list[Record]:
        """Draw schedules, build and time them. In some jobs the first ones are timed twice, to know how much times vary.

        Each record's provenance has ``job``, ``networks``, ``hardware`` (what the device is made of) and, unless it was
        refused, ``tree``, the text of the program's loop tree, and ``code``, the numbers of its `MachineCode`.

        Raises:
            InputError: the task cannot be read.
        """
        from tensorwise.tasks.cpu import TvmCpu, code_of

        devices = [TvmCpu(self.device, threads, self.limit_s) for threads in self.threads]
        with preparing():
            task, drawn = _drawn(self.path, self.task, self.samples, self.seed)
        about = {device.name: device.hardware.to_json() for device in devices}
        beat()
        records: list[Record] = []

        def time(
            built: Sequence[Any], configs: Sequence[Config], programs: Sequence[Mapping[str, Any]]
        ) -> None:
            for device in devices:
                for config, program, found in zip(configs, programs, device.time(built, task), strict=True):
                    more = {**program, "hardware": about[device.name]}
                    records.append(self._record(task, device, config, found, more))
                beat()

        first: tuple[list[Any], list[Config], list[dict[str, Any]]] = ([], [], [])
        for begin in range(0, len(drawn), PROGRAMS_PER_BATCH):
            configs, modules, trees = map(list, zip(*drawn[begin : begin + PROGRAMS_PER_BATCH], strict=True))
            with preparing():
                built = devices[0].build(modules)
                codes = (None if one is None else code_of(one) for one in built)
                programs = [program_json(tree, code) for tree, code in zip(trees, codes, strict=True)]
            beat()
            time(built, configs, programs)
            first = first if begin else (built, configs, programs)
        if int(self.id, 16) % AGAIN == 0:
            time(*first)
        return records

    def _record(
        self, task: Task, device: Any, config: Config, found: Measurement, more: Mapping[str, object]
    ) -> Record:
        about = {**device.provenance, "job": self.id, "networks": list(self.networks), **more}
        return Record.of(found, task, device, space_name(about["tvm"], "cpu"), config, about)


@lru_cache(1)  # the jobs of a task follow each other
def _schedules(path: str) -> Any:
    from tensorwise.tasks.schedules import Schedules

    return Schedules(Task.load(path))


@lru_cache(1)  # often those of its instruction sets want the same
def _drawn(path: str, task: str, samples: int, seed: int) -> tuple[Task, list[tuple[Config, Any, str]]]:
    """Return a task with schedules: configs, modules and loop trees."""
    schedules = _schedules(path)
    drawn = schedules.sample(samples, np.random.default_rng([int(task, 16), seed]))
    return schedules.task, [(config, module, loop_tree(module).text) for config, module in drawn]


def task_plan(
    folder: Path,
    isas: Sequence[str],
    threads: Sequence[int],
    *,
    samples: int = 16,
    seed: int = 0,
    only: Collection[str] = (),
    own: bool = False,
) -> list[TaskJob]:
    """Return the jobs for all tasks in ``folder``, in random order, so that the first few are a random sample.

    Args:
        folder: with ``networks`` and ``tasks`` in it, as ``tensorwise tasks cut`` writes them.
        isas: instruction sets, a job each; threads: of a call, all in one job.
        samples: schedules of a task; seed: of order and schedules.
        only: the tasks of these networks, names whatever the batch; default: all.
        own: make a job with its own schedules for each pair of instruction set and number of threads. For the same number
            of records, models learn more from different programs than from the same programs on several devices.

    Raises:
        InputError: there are no networks, or one that is named is not among them.
    """
    found = tasks_of(folder, only)
    tasks = list(found)
    shuffled = [tasks[int(place)] for place in np.random.default_rng(seed).permutation(len(tasks))]
    if own:
        each = [(isa, count) for isa in isas for count in threads]
        settings = [(isa, [count], seed + place) for place, (isa, count) in enumerate(each)]
    else:
        settings = [(isa, list(threads), seed) for isa in isas]
    return [
        TaskJob(
            found[task].name, str(found[task].path), task, found[task].networks, isa, tuple(counts), samples, drawn,
        )
        for task in shuffled
        for isa, counts, drawn in settings
    ]  # fmt: skip
