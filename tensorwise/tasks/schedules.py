"""What can be chosen for a task: the schedules of TVM's meta-schedule for CPUs, or for a GPU, as configs."""

import json
from collections.abc import Iterator
from typing import Any, Final, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.space.config import Config
from tensorwise.space.cuda import GpuSpec
from tensorwise.tasks.targets import cpu_target, gpu_target
from tensorwise.tasks.task import Task, space_name
from tensorwise.tasks.tvm_extra import meta_schedule, s_tir, tvm

CORES: Final = 2
"""Number of cores given to meta-schedule, which fuses parallel loops by it. It is the same for all devices, so that they
run the same programs."""
DRAWS_PER_SCHEDULE: Final = {"cpu": 4, "cuda": 200}
"""Draws for each schedule that is wanted: some are refused, and small tasks have few different ones. Of what is drawn for
GPUs nine in ten, of some tasks all, want too many threads of a block, or too few, or too much of its memory."""
DEFAULT_BLOCK_THREADS: Final = 256
"""Threads of a block where nothing is chosen."""


@final
class Schedules:
    """The schedules of one task, for CPUs or for a GPU.

    A config has ``design``, the number of one of meta-schedule's design spaces for the task, and ``decisions``, what was
    drawn in it, as JSON: pairs of an instruction's number and its value.

    Args:
        gpu: that they are for; None: CPUs, all the same ones.

    Attributes:
        name: of the space, for Records: configs mean the same only with the same release of TVM.
    """

    def __init__(self, task: Task, gpu: GpuSpec | None = None) -> None:
        self.task, self._gpu = task, gpu
        kind = "cpu" if gpu is None else "cuda"
        self.name, self._tries = space_name(tvm.__version__, kind), DRAWS_PER_SCHEDULE[kind]
        rules = {} if gpu is None else dict.fromkeys(("sch_rules", "postprocs", "mutator_probs"), "cuda")
        self._context = meta_schedule.TuneContext(
            mod=task.module,
            target=cpu_target("avx2", CORES) if gpu is None else gpu_target(gpu),
            # Named, or TVM takes the rules for tensor cores where there are some, which compute with half the digits.
            space_generator=meta_schedule.space_generator.PostOrderApply(**rules),
            search_strategy=meta_schedule.search_strategy.ReplayTrace(),
            task_name=task.name,
            rand_state=1,
            num_threads=1,
        )
        self._designs = [schedule.trace for schedule in self._context.generate_design_space()]

    def sample(self, count: int, rng: np.random.Generator) -> Iterator[tuple[Config, Any]]:
        """Yield up to ``count`` different configs with their scheduled modules."""
        seen: set[Config] = set()
        for _ in range(self._tries * count):
            if len(seen) >= count:
                return
            design = int(rng.integers(len(self._designs)))
            schedule = s_tir.Schedule(self.task.module, seed=int(rng.integers(1, 2**31 - 1)), debug_mask=0)
            if not self._applied(design, {}, schedule):
                continue
            config = Config(
                {"design": design, "decisions": json.dumps(_decisions(schedule, self._designs[design]))}
            )
            if config not in seen:
                seen.add(config)
                yield config, schedule.mod
        if self._gpu and not seen:
            yield Config({"design": len(self._designs), "decisions": "[]"}), self._plain().mod

    def module(self, config: Config) -> Any:
        """Return the scheduled module of a config.

        Raises:
            InputError: the config does not belong to the task.
        """
        try:
            if self._gpu and config["design"] == len(self._designs):
                return self._plain().mod
            design = self._designs[int(config["design"])]  # type: ignore[arg-type]
            chosen = {design.insts[number]: value for number, value in json.loads(str(config["decisions"]))}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InputError(f"this is no schedule of {self.task.name}: {config}") from error
        schedule = s_tir.Schedule(self.task.module, seed=1, debug_mask=0)
        if not self._applied(int(config["design"]), chosen, schedule):  # type: ignore[arg-type]
            raise InputError(f"TVM refuses this schedule of {self.task.name}: {config}")
        return schedule.mod

    def _plain(self) -> Any:
        """Return a schedule that fits any GPU, for tasks of which no draw does: a thread for each element of each block."""
        schedule = s_tir.Schedule(self.task.module, debug_mask=0)
        for block in schedule.get_child_blocks(schedule.get_sblock("root")):
            kinds = [int(variable.iter_type) for variable in schedule.get(block).iter_vars]
            loops = list(zip(schedule.get_loops(block), kinds, strict=True))
            spatial = [loop for loop, kind in loops if kind == 0]
            if len(spatial) < len(loops):
                schedule.reorder(*spatial, *(loop for loop, kind in loops if kind != 0))
            blocks, threads = schedule.split(schedule.fuse(*spatial), [None, DEFAULT_BLOCK_THREADS])
            schedule.bind(blocks, "blockIdx.x")
            schedule.bind(threads, "threadIdx.x")
        return schedule

    def _applied(self, design: int, chosen: dict[Any, Any], schedule: Any) -> bool:
        """Replay a design with some decisions, drawing the others; return whether TVM takes the result."""
        trace = s_tir.schedule.Trace(self._designs[design].insts, chosen)
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
            schedule.enter_postproc()
            return all(post.apply(schedule) for post in self._context.space_generator.postprocs)
        except (RuntimeError, ValueError, TypeError):  # TVM's own errors are of these kinds
            return False


def _decisions(schedule: Any, design: Any) -> list[list[Any]]:
    """What was drawn, as pairs of an instruction's number and a value."""
    _, decisions = schedule.trace.as_json()
    drawn = [(int(number), value) for number, value in decisions if int(number) < len(design.insts)]
    return [[number, [int(x) for x in value] if _several(value) else int(value)] for number, value in drawn]


def _several(value: Any) -> bool:
    return hasattr(value, "__len__")
