"""Neural networks as a user names them: cut into tasks, scheduled, and predicted. What TVM made is kept in a folder."""

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from tensorwise.analysis.ast import CompactAst
from tensorwise.analysis.code import CODE
from tensorwise.analysis.loop_tree import LoopTree
from tensorwise.analysis.machine_code import MachineCode, program_json
from tensorwise.device.gpus import gpu_named
from tensorwise.device.hardware import Hardware
from tensorwise.errors import InputError, MissingExtraError
from tensorwise.ids import content_id, file_id
from tensorwise.model.finding import NOT_INSTALLED, bundled_folders
from tensorwise.model.latency import LATENCY, LatencyModel
from tensorwise.plan.predicted import NetworkLatency, predicted
from tensorwise.reading import WRONG_DATA, read_json
from tensorwise.space.cuda import GpuSpec
from tensorwise.tasks.architectures import ARCHITECTURES
from tensorwise.tasks.cpu import full_name, hardware_here, isa_of
from tensorwise.tasks.cutting import TaskGraph, cut
from tensorwise.tasks.shapes import Shapes
from tensorwise.tasks.task import Task, loop_tree
from tensorwise.toolchain.gpu import has_cupy
from tensorwise.toolchain.places import cache_dir, distrusted
from tensorwise.writing import replacing

_log = logging.getLogger(__name__)

BUNDLED: Final = "latency"
"""Name of the bundled latency model."""
SCHEDULES: Final = 8
"""Default number of programs of a task from which the fastest prediction is taken."""
MOST_ENGINES: Final = 1024
"""Most programs that a device runs concurrently: no device has so many queues."""
_CUT: Final = "2"
"""Version of the cutting; files cut by another version are cut again."""


def latency_model_folder() -> Path:
    """Return the folder where ``tensorwise tasks train`` writes its model and ``tensorwise predict`` reads it."""
    return cache_dir() / "models" / "latency"


def latency_model(folder: Path | None = None, device: str | None = None) -> LatencyModel:
    """Return the latency model in a folder, by default the user's, else the bundled one.

    Args:
        device: full name of one that the model should have learned from: if the user's has not and the other has, that
            one is returned.

    Raises:
        InputError: there is none, or it is damaged.
    """
    bundled = bundled_folders()
    places = [folder] if folder else [latency_model_folder(), *(root / BUNDLED for root in bundled)]
    first = None
    for where in places:
        if (where / LATENCY.files[0]).exists():
            if where == latency_model_folder() and (fault := distrusted(where / LATENCY.files[0])):
                _log.warning("the latency model in %s is not used: %s", where, fault)
                continue
            found = LatencyModel.load(where)
            if device is None or device in found.devices:
                return found
            first = first or found
    if first is None:
        missing = "" if folder or bundled else f", and {NOT_INSTALLED}"
        raise InputError(
            f"there is no latency model in {places[0]}{missing}; train one from records: tensorwise tasks train, or name "
            "one with --model"
        )
    return first


def device_hardware(model: LatencyModel, name: str) -> Hardware:
    """Return what a device is made of: one that the model has learned from, a described one, or a setting of this CPU.

    Raises:
        InputError: it is none of these, or this processor lacks the instruction set.
    """
    full = full_name(name)
    here = None if full in model.devices else hardware_here(full)
    return here or model.hardware(full)


def network_graph(given: str, batch: int | None, folder: Path, shapes: Shapes | None = None) -> TaskGraph:
    """Return a network as tasks: from ``folder``, or cut now with TVM and kept there.

    Of files of one name that differ, or are cut for other shapes, the folder has the last one. What an earlier release cut,
    which did not look for operators without a task, is cut again where there is TVM.

    Args:
        given: name of an architecture, or an ONNX file; or what the folder has under another name.
        batch: inputs at a time; None: what the file's inputs and ``shapes`` say, or 1.
        shapes: of inputs of an ONNX file whose dimensions are open (see `tasks.shapes.input_shapes`).

    Raises:
        InputError: it is neither, or cannot be cut; or its inputs are of another batch.
        MissingExtraError: it has to be cut, and there is no TVM.
    """
    is_file = given.endswith(".onnx")
    if shapes and not is_file:
        raise InputError(f"shapes are given for inputs of ONNX files; {given} has its own")
    name, own = (Path(given).stem, file_id(given)) if is_file else (given, "")
    batch = _said_batch(given, shapes) if is_file and batch is None else batch or 1
    said = (f"{one}={shape}" for one, shape in sorted((shapes or {}).items()))
    source = content_id([_CUT, own, *said]) if is_file else ""
    path = folder / "networks" / f"{name}-b{batch}.json"
    kept = TaskGraph.load(path) if path.exists() else None
    known = is_file or given in ARCHITECTURES
    if kept is not None and (not known or (kept.source == source and kept.unlowered is not None)):
        return kept
    try:
        module = lowered_network(given, batch, shapes)
    except MissingExtraError:
        if kept is not None and kept.unlowered is None and kept.source == own and not shapes:
            return kept
        raise
    graph, tasks = cut(name, batch, module, source)
    for task in tasks.values():
        task.save(folder / "tasks")
    graph.save(folder / "networks")
    return graph


def _said_batch(file: str, shapes: Shapes | None) -> int:
    """The batch of an ONNX file where nobody names one; 1 where there is nothing to read the file with."""
    from tensorwise.tasks.cutting import onnx_batch

    try:
        return onnx_batch(file, shapes)
    except MissingExtraError:
        return 1


def lowered_network(given: str, batch: int, shapes: Shapes | None = None) -> Any:
    """Return a network as TVM's Relax, calls of functions of TIR with its weights as constants.

    Args:
        given: name of an architecture, or an ONNX file.
        shapes: as of `network_graph`.

    Raises:
        InputError: it is neither, or TVM cannot take it.
        MissingExtraError: there is no TVM.
    """
    from tensorwise.tasks.architectures import architecture
    from tensorwise.tasks.cutting import lowered, of_onnx, of_torch

    return lowered(
        of_onnx(given, batch, shapes)
        if given.endswith(".onnx")
        else of_torch(*architecture(given).build(batch))
    )


def programs_of(
    graph: TaskGraph,
    folder: Path,
    samples: int = SCHEDULES,
    progress: Callable[[str, float], None] = lambda *_: None,
    isa: str | None = None,
    gpu: GpuSpec | None = None,
) -> dict[str, list[CompactAst]]:
    """Return programs of each task of a network: drawn by TVM's meta-schedule the first time, then kept in ``folder``.

    Args:
        isa: an instruction set that they are compiled for, a name of ``tasks.targets.ISAS``, so that it is known what code
            they are; None: they are not.
        gpu: that they are for, and compiled for where CuPy is installed, which brings a compiler; None: CPUs.

    Raises:
        InputError: a task cannot be read.
        MissingExtraError: programs have to be drawn, and there is no TVM.
    """
    found = {}
    tasks = sorted(graph.multiplicity)
    machine = gpu.name if gpu else isa
    compiled = has_cupy() if gpu else isa is not None
    uncounted = f"-{machine}" if machine else ""
    target = uncounted + (f"-{CODE.version}" if compiled else "")
    for place, task in enumerate(tasks):
        stem = folder / "programs" / f"{task}-{samples}"
        path, bare = Path(f"{stem}{target}.json"), Path(f"{stem}{uncounted}.json")
        programs = _read_programs(path)
        if not programs or (compiled and not _all_counted(programs)):
            try:
                programs = _drawn(folder, task, samples, isa, gpu, path, bare)
            except MissingExtraError:  # no TVM here: what an earlier run could not count is still a program
                programs = programs or _read_programs(bare)
                if not programs:
                    raise
        found[task] = [CompactAst.of(LoopTree.from_text(text), compiled=code) for text, code in programs]
        progress(f"{place + 1} of {len(tasks)} tasks are scheduled", (place + 1) / len(tasks))
    return found


def unscheduled(
    folder: Path, tasks: Collection[str], progress: Callable[[str, float], None] = lambda *_: None
) -> dict[str, list[CompactAst]]:
    """Return each task of a folder as TVM's unscheduled program, which distinguishes tasks without compiling.

    Args:
        progress: receives the current step and the share done.

    Raises:
        InputError: a task cannot be read.
        MissingExtraError: there is no TVM.
    """
    found = {}
    for place, task in enumerate(sorted(tasks)):
        found[task] = [CompactAst.of(loop_tree(Task.load(folder / "tasks" / f"{task}.json").module))]
        progress(f"{place + 1} of {len(tasks)} tasks", (place + 1) / len(tasks))
    return found


def predict_latency(
    network: str,
    devices: Sequence[str],
    *,
    batch: int | None = None,
    folder: Path = Path("networks"),
    model: LatencyModel | Sequence[LatencyModel] | None = None,
    samples: int = SCHEDULES,
    engines: int = 1,
    shapes: Shapes | None = None,
    partial: bool = False,
    progress: Callable[[str, float], None] = lambda *_: None,
) -> list[NetworkLatency]:
    """Return what a network takes on each device, in their order.

    Args:
        network: name of an architecture, or an ONNX file.
        devices: names of devices on which the model was trained, of described devices, or of settings of this CPU, such as
            ``tvm-avx2-1t``.
        batch: inputs at a time; None: what an ONNX file's inputs and ``shapes`` say, or 1.
        folder: where networks, tasks and programs are kept.
        model: one for all devices, or one for each device; by default what `latency_model` returns for each.
        samples: number of programs of a task; the one that is predicted to be the fastest is used.
        engines: programs that a device runs concurrently, at most MOST_ENGINES.
        shapes: of inputs of an ONNX file whose dimensions are open.
        partial: predict a network with operators that are no tasks, without the run time of those operators.

    Raises:
        InputError: a name is unknown, there is no model, or the network cannot be cut; or it has operators that are no
            tasks, and ``partial`` is false.
        MissingExtraError: the network is not in the folder yet, and there is no TVM.
    """
    if not 1 <= engines <= MOST_ENGINES:
        raise InputError(f"engines must be a number from 1 to {MOST_ENGINES}, got {engines}")
    if isinstance(model, LatencyModel):
        models: Sequence[LatencyModel] = [model] * len(devices)
    else:
        models = model or [latency_model(device=full_name(name)) for name in devices]
    hardware = [device_hardware(one, name) for one, name in zip(models, devices, strict=True)]
    progress(f"cutting {network} into tasks", 0.0)
    graph = network_graph(network, batch, folder, shapes)
    if graph.unlowered and not partial:
        raise InputError(
            f"{graph.name} has operators that are no tasks and whose run time is unknown: {graph.left_out}; "
            "--partial (partial=True) predicts the remaining tasks, which gives a lower bound"
        )
    targets = [_target(its, one) for its, one in zip(models, hardware, strict=True)]
    programs = {
        target: programs_of(graph, folder, samples, progress, *target) for target in dict.fromkeys(targets)
    }
    progress("model inference", 1.0)
    return [
        predicted(graph, programs[target], its, one, engines=engines)
        for target, its, one in zip(targets, models, hardware, strict=True)
    ]


def _target(model: LatencyModel, hardware: Hardware) -> tuple[str | None, GpuSpec | None]:
    """What programs for a device are made for: an instruction set, or a GPU."""
    if hardware.kind == "gpu":
        return None, gpu_named(hardware.name)
    return isa_of(hardware) if model.reads_code else None, None


def prices(given: Sequence[str]) -> Mapping[str, float]:
    """Return ``DEVICE=PRICE`` texts, prices an hour, by device.

    Raises:
        InputError: one is something else.

    >>> prices(["T4=0.5"])
    {'T4': 0.5}
    """
    found = {}
    for text in given:
        name, _, price = text.partition("=")
        try:
            found[name] = float(price)
        except ValueError:
            raise InputError(
                f"a price must be DEVICE=NUMBER, an hour, such as T4=0.35; got {text!r}"
            ) from None
        if not 0 <= found[name] < float("inf"):
            raise InputError(f"the price of {name} must not be negative, got {price}")
    return found


def _read_programs(path: Path) -> list[tuple[str, MachineCode | None]]:
    """Return the trees, as text, and the code of the programs in a file; none where it is missing or invalid."""
    try:
        return [(str(one["tree"]), MachineCode.within(one)) for one in read_json(path, "holds no programs")]
    except (InputError, *WRONG_DATA):
        return []


def _all_counted(programs: Sequence[tuple[str, MachineCode | None]]) -> bool:
    return all(code is not None for _, code in programs)


def _drawn(
    folder: Path, task: str, samples: int, isa: str | None, gpu: GpuSpec | None, path: Path, bare: Path
) -> list[tuple[str, MachineCode | None]]:
    """Draw programs and count their code; they are kept in ``path``, or in ``bare`` where some could not be counted.

    That a compiler failed here and now is no answer: the next call tries again.
    """
    from tensorwise.tasks.cpu import codes_of
    from tensorwise.tasks.schedules import Schedules
    from tensorwise.tasks.staging import codes_on

    schedules = Schedules(Task.load(folder / "tasks" / f"{task}.json"), gpu)
    rng = np.random.default_rng([int(task, 16), 1])
    modules = [module for _, module in schedules.sample(samples, rng)]
    trees = [loop_tree(module).text for module in modules]
    codes: list[MachineCode | None] = [None] * len(modules)
    if gpu and has_cupy():
        with suppress(MissingExtraError):  # CuPy without NVRTC
            codes = codes_on(modules, gpu)
    elif isa:
        codes = codes_of(modules, isa)
    path.parent.mkdir(parents=True, exist_ok=True)
    programs = list(zip(trees, codes, strict=True))
    counting = (gpu is not None and has_cupy()) or (gpu is None and isa is not None)
    with replacing(path if not counting or _all_counted(programs) else bare) as file:
        file.write(json.dumps([program_json(*one) for one in programs]).encode())
    return programs
