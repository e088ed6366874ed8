"""A network as one compiled program, each task by a schedule of its own, and timed: what a replay is compared with."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tensorwise.device.device import Measurement
from tensorwise.device.timing import measuring_slot
from tensorwise.errors import InputError
from tensorwise.space.config import Config
from tensorwise.tasks.cpu import (
    TvmCpu,
    in_children,
    in_turns,
    keep_off_workers,
    use_threads,
)
from tensorwise.tasks.schedules import Schedules
from tensorwise.tasks.targets import cpu_target
from tensorwise.tasks.task import Task, drawn
from tensorwise.tasks.tvm_extra import relax, tvm

NETWORK_S: Final = 10.0
"""Seconds for its rounds: few runs of a network are disturbed by nobody, for it runs longer than a task."""
RUNS: Final = 3
"""Of a round: what the network's last pass left in the caches is what it finds."""
OPAQUE: Final = 8
"""TVM's number of functions that are not to be fused with others."""


def scheduled(module: Any, configs: Mapping[str, Config]) -> Any:
    """Return a lowered network (``tasks.cutting.lowered``) whose tasks run the schedules of ``configs``, by task id.

    Raises:
        InputError: a task has no config, or TVM refuses it.
    """
    found = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    made: dict[str, Any] = {}
    for variable, function in module.functions.items():
        if type(function).__name__ != "PrimFunc":
            continue
        task = Task.of(variable.name_hint, function)
        if task.id not in configs:
            raise InputError(f"there is no schedule of {task.name}")
        if task.id not in made:
            made[task.id] = Schedules(task).module(configs[task.id])["main"]
        fast = made[task.id].with_attr("global_symbol", variable.name_hint).with_attr("op_pattern", OPAQUE)
        found.update_func(variable, fast)
    return found


def compiled(module: Any, isa: str, path: Path) -> None:
    """Compile a lowered network for an instruction set into a shared library; nothing is fused any more.

    Raises:
        InputError: TVM cannot compile it.
    """
    from tvm.relax.backend.cpu_generic import pipeline

    target = cpu_target(isa)
    passes = [*pipeline.dataflow_lower_passes(target), *pipeline.finalize_passes(target)]
    try:
        with target:
            whole = tvm.compile(module, target=target, relax_pipeline=tvm.ir.transform.Sequential(passes))
            whole.export_library(str(path))
    except (RuntimeError, ValueError, TypeError) as error:  # TVM's errors are of these kinds
        raise InputError(f"TVM cannot compile the network: {str(error).strip().splitlines()[-1]}") from error


def inputs_of(module: Any) -> list[np.ndarray]:
    """Return inputs for a lowered network, drawn as operands of tasks are."""
    rng = np.random.default_rng(0)
    found = []
    for variable in module["main"].params:
        info = variable.struct_info if hasattr(variable, "struct_info") else variable.ty
        shape, elem = tuple(int(extent) for extent in info.shape.values), str(info.dtype)
        found.append(drawn(shape, elem, rng))
    return found


def timed_network(path: Path, inputs: list[np.ndarray], device: TvmCpu) -> Measurement:
    """Time a compiled network with the device's number of threads, in a process of its own; the fastest pass counts."""

    def run(_: int) -> list[float]:
        use_threads(device.threads)
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
        given = [tvm.runtime.tensor(array) for array in inputs]
        machine["main"](*given)
        keep_off_workers()
        samples = []
        for _ in range(RUNS):
            start = time.perf_counter()
            machine["main"](*given)
            samples.append(time.perf_counter() - start)
        return samples

    with measuring_slot():
        first = list(in_children(run, [True], 10 * device.limit_s))
        return in_turns(first, run, 10 * device.limit_s, NETWORK_S, device.share)[0]


def measured_network(module: Any, configs: Mapping[str, Config], device: TvmCpu) -> Measurement:
    """Compile a lowered network with these schedules and return what a pass takes on a device.

    Raises:
        InputError: a task has no config, or TVM cannot compile the network.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.so"
        compiled(scheduled(module, configs), device.isa, path)
        return timed_network(path, inputs_of(module), device)
