"""``tensorwise tasks``: cut networks into tasks, measure schedules of tasks, and train latency models."""

import datetime
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensorwise.errors import CompilerError, InputError, TensorwiseError
from tensorwise.front.cli_collect import Hours, Json, StorePath, run_jobs
from tensorwise.front.cli_model import README, data_facts
from tensorwise.front.terminal import command, emit, progress_bar, warn
from tensorwise.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorwise.device.device import Measurement
    from tensorwise.device.hardware import Kind
    from tensorwise.model.latency import LatencyModel
    from tensorwise.model.programs import Programs
    from tensorwise.store.record import Record
    from tensorwise.tasks.cutting import TaskGraph

tasks_app = typer.Typer(
    no_args_is_help=True,
    help="Cut networks into tasks, measure tasks, and train latency models.",
)

Folder = Annotated[Path, typer.Option("--folder", help="Where networks and tasks are kept.")]
Isas = Annotated[
    list[str] | None, typer.Option("--isa", help="Instruction set: sse, avx2, avx512; default: avx2.")
]
ThreadCounts = Annotated[
    list[int] | None, typer.Option("--threads", min=1, help="Threads of a call, a device each; 1.")
]


@tasks_app.command()
@command
def cut(
    networks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NETWORK|FILE]...", help="Names, or ONNX files; default: all names."),
    ] = None,
    folder: Folder = Path("networks"),
    batch: Annotated[
        list[int] | None,
        typer.Option(
            "--batch", min=1, help="Inputs at a time; default: what an ONNX file's shapes say, or 1."
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape", help="INPUT=EXTENT,EXTENT,... of an ONNX file with open dimensions; may be repeated."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Cut networks into tasks, with TVM. Can be interrupted: existing tasks stay, and the same command adds the others."""
    from tensorwise.front.networks import network_graph
    from tensorwise.tasks.architectures import ARCHITECTURES
    from tensorwise.tasks.shapes import read_shapes

    failed, shapes = 0, read_shapes(shape or ())
    sizes: list[int | None] = [*batch] if batch else [None]
    for given in networks or list(ARCHITECTURES):
        for size in sizes:
            try:
                with progress_bar(f"cutting {given}"):
                    graph = network_graph(given, size, folder, shapes)
            except TensorwiseError as error:
                failed += 1
                warn(f"{given}: {error}")
                continue
            facts = {
                "network": graph.name,
                "batch": graph.batch,
                "nodes": len(graph.nodes),
                "tasks": len(graph.multiplicity),
                "left_out": graph.left_out,
            }
            if graph.left_out:
                warn(f"{graph.name}: no tasks are made of {graph.left_out}")
            if json:
                emit(facts)
            else:
                print(f"{graph.name} batch {graph.batch}: {facts['nodes']} nodes, {facts['tasks']} tasks")
    if failed:
        raise InputError(f"{failed} networks could not be cut")


@tasks_app.command()
@command
def collect(
    folder: Folder = Path("networks"),
    isa: Isas = None,
    threads: ThreadCounts = None,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Schedules of each task.")] = 16,
    seed: Annotated[int, typer.Option("--seed", help="Of order and schedules; another one draws more.")] = 0,
    network: Annotated[
        list[str] | None,
        typer.Option(
            "--network", help="Only tasks of this network; may be repeated. Default: all in the folder."
        ),
    ] = None,
    own: Annotated[
        bool,
        typer.Option(
            "--own",
            help="Other schedules for each instruction set and number of threads: more programs in the time.",
        ),
    ] = False,
    staged: Annotated[
        Path | None,
        typer.Option("--staged", help="Instead, what `stage` left in this folder, on this machine's GPU."),
    ] = None,
    hours: Hours = None,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Measure schedules of all tasks in a folder, each with every instruction set and number of threads.

    Can be interrupted: the same command resumes with the remaining schedules.
    """
    from tensorwise.collect.staged_job import SILENCE_S, staged_plan
    from tensorwise.collect.task_job import WORKERS, task_plan
    from tensorwise.tasks.cpu import TvmCpu, check_measurable

    if hours is not None and not hours > 0:
        raise InputError(f"--hours must be positive, got {hours}")
    budget_s = float("inf") if hours is None else 3600 * hours
    if staged is not None:
        if isa or threads or network or own:
            raise InputError(
                "what is staged is all that is measured; --staged takes no --isa, --threads, --network or --own"
            )
        run_jobs(staged_plan(staged), store, budget_s, json, silence_s=SILENCE_S)
        return
    check_measurable(threads or [1])
    for name in isa or ["avx2"]:
        TvmCpu(name, 1)  # before anything is measured
    jobs = task_plan(
        folder, isa or ["avx2"], threads or [1], samples=samples, seed=seed, only=network or (), own=own
    )
    run_jobs(jobs, store, budget_s, json, slots=WORKERS)


@tasks_app.command()
@command
def stage(
    gpu: Annotated[
        str, typer.Argument(metavar="GPU", help="One that is described: A100, H100, H200, T4, V100, ...")
    ],
    folder: Folder = Path("networks"),
    out: Annotated[
        Path, typer.Option("--out", help="Where the compiled programs go: take it to the GPU's machine.")
    ] = Path("staged"),
    samples: Annotated[int, typer.Option("--samples", min=1, help="Schedules of each task.")] = 2,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of schedules; another one draws more.")] = 0,
    network: Annotated[
        list[str] | None,
        typer.Option(
            "--network", help="Only tasks of this network; may be repeated. Default: all in the folder."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compile schedules of all tasks in a folder for a GPU that need not be here; `collect --staged` times them there.

    Needs TVM and CuPy, whose NVRTC compiles without a GPU; the GPU's machine needs CuPy only. Can be
    interrupted; programs in the folder stay.
    """
    from tensorwise.device.gpus import gpu_called
    from tensorwise.tasks.cutting import tasks_of
    from tensorwise.tasks.staging import stage_all

    described, tasks = gpu_called(gpu), tasks_of(folder, network or ())
    programs, without, refused = 0, 0, Counter[str]()
    with progress_bar("compiling") as bar:
        for done, count in enumerate(
            stage_all(tasks.values(), out, described, samples, seed, refused.update), 1
        ):
            programs += count
            without += not count
            bar(f"{done} of {len(tasks)} tasks, {programs} programs", done / len(tasks))
    for reason, count in refused.most_common(3):
        warn(f"{count} programs could not be compiled: {reason}")
    if json:
        emit({"gpu": gpu, "tasks": len(tasks), "programs": programs, "without": without, "out": str(out)})
    elif programs:
        print(f"{programs} programs of {len(tasks)} tasks are in {out}")
        print(f"on the GPU's machine: tensorwise tasks collect --staged {out} --store FILE")
    if without:
        raise CompilerError(
            f"{without} of {len(tasks)} tasks have no program for {gpu}; nothing is kept of these, and the same command "
            "tries them again"
        )


@tasks_app.command("replay")
@command
def replay_network(
    network: Annotated[str, typer.Argument(metavar="NETWORK", help="A network of the folder.")],
    device: Annotated[str, typer.Option("--device", help="Whose records: tvm-avx2-1t, for instance.")],
    folder: Folder = Path("networks"),
    batch: Annotated[int, typer.Option("--batch", min=1, help="Inputs at a time.")] = 1,
    engines: Annotated[
        int, typer.Option("--engines", min=1, max=1024, help="Tasks that run concurrently.")
    ] = 1,
    store: StorePath = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write a timeline for chrome://tracing or Perfetto.")
    ] = None,
    picture: Annotated[Path | None, typer.Option("--picture", help="Write the timeline as SVG.")] = None,
    json: Json = False,
) -> None:
    """Print the run time of a network, task by task, if each task runs its fastest recorded schedule."""
    from tensorwise.front.draw_plan import draw_timeline
    from tensorwise.plan import chrome_trace, lasts, replay
    from tensorwise.plan.predicted import steps
    from tensorwise.tasks.cpu import full_name
    from tensorwise.tasks.cutting import TaskGraph
    from tensorwise.units import time_text

    device = full_name(device)
    graph = TaskGraph.load(folder / "networks" / f"{network}-b{batch}.json")
    fastest = {task: record.seconds for task, record in _fastest(graph, device, folder, store).items()}
    events = replay(steps(graph, device, fastest, _kind(device)), {device: engines})
    seconds = lasts(events)
    if trace is not None:
        trace.write_text(chrome_trace(events), encoding="utf-8")
    if picture is not None:
        lanes = sorted({event.where for event in events})
        picture.write_text(draw_timeline(events, lanes), encoding="utf-8")
    if graph.left_out:
        warn(f"the time is without {graph.left_out}, of which no tasks are made")
    if json:
        emit({
            "network": network, "batch": batch, "device": device, "seconds": seconds, "nodes": len(events),
            "left_out": graph.left_out,
        })  # fmt: skip
    else:
        print(f"{network} batch {batch} on {device}: {time_text(seconds)}, {len(events)} nodes")


@tasks_app.command("measure")
@command
def measure_network(
    network: Annotated[
        list[str], typer.Argument(metavar="NETWORK|FILE...", help="Networks of the folder, or ONNX files.")
    ],
    folder: Folder = Path("networks"),
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch", min=1, help="Inputs at a time; default: what an ONNX file's shapes say, or 1."
        ),
    ] = None,
    isa: Isas = None,
    threads: ThreadCounts = None,
    staged: Annotated[
        Path | None,
        typer.Option(
            "--staged", help="On this machine's GPU, programs that `stage` left in this folder, one by one."
        ),
    ] = None,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Compile whole networks, each task with its fastest recorded schedule, and time them: `replay` estimates the same."""
    if staged is not None:
        from tensorwise.tasks.cutting import TaskGraph
        from tensorwise.tasks.gpu import TaskGpu
        from tensorwise.tasks.staged import staged_programs

        gpu = TaskGpu()
        for given in network:
            graph = TaskGraph.load(folder / "networks" / f"{given}-b{batch or 1}.json")
            records = _fastest(graph, gpu.name, folder, store)
            parts = staged_programs(staged, gpu.name, {task: one.config for task, one in records.items()})
            _show_network(graph, gpu.name, gpu.network(graph, parts), records, json)
        return
    from tensorwise.front.networks import lowered_network, network_graph
    from tensorwise.tasks.cpu import TvmCpu, check_measurable
    from tensorwise.tasks.whole import measured_network

    check_measurable(threads or [1])
    devices = [TvmCpu(name, count) for name in isa or ["avx2"] for count in threads or [1]]
    for given in network:
        graph = network_graph(given, batch, folder)
        chosen = {device.name: _fastest(graph, device.name, folder, store) for device in devices}
        module = lowered_network(given, graph.batch)
        for device in devices:
            records = chosen[device.name]
            found = measured_network(module, {task: one.config for task, one in records.items()}, device)
            _show_network(graph, device.name, found, records, json)


def _show_network(
    graph: "TaskGraph", device: str, found: "Measurement", records: "Mapping[str, Record]", json: bool
) -> None:
    """Compare the measured run time of a whole network with a replay of its tasks' records."""
    from tensorwise.plan import lasts, replay
    from tensorwise.plan.predicted import steps
    from tensorwise.units import time_text

    times = {task: one.seconds for task, one in records.items()}
    replayed = lasts(replay(steps(graph, device, times, _kind(device)), {device: 1}))
    if json:
        emit(
            {
                "network": graph.name, "batch": graph.batch, "device": device, "status": found.status,
                "note": found.note, "seconds": found.seconds if found.ok else None, "replayed": replayed,
                "runs": dict(graph.multiplicity),
                "configs": {task: one.config.text for task, one in records.items()},
            }
        )  # fmt: skip
    elif found.ok:
        print(
            f"{graph.name} batch {graph.batch} on {device}: {time_text(found.seconds)} measured, "
            f"{time_text(replayed)} replayed ({replayed / found.seconds - 1:+.0%})"
        )
    else:
        warn(f"{graph.name} batch {graph.batch} on {device}: {found.status}: {found.note}")


@tasks_app.command("train")
@command
def train_model(
    records: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RECORDS]...",
            help="Stores, or files that `store export` wrote; default: the user's store.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the model; default: where predict looks.")
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            "--held-out", help="Test on this network: none of its tasks is trained on; may be repeated."
        ),
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option("--device", help="Only these devices; may be repeated.")
    ] = None,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the programs.")] = 16,
    batch: Annotated[
        int,
        typer.Option(
            "--batch", min=1, help="Programs in a training step; with few records use smaller steps."
        ),
    ] = 32,
    members: Annotated[int, typer.Option("--members", min=1, help="Networks whose mean is the answer.")] = 4,
    joining: Annotated[
        str, typer.Option("--joining", help="How leaves are joined: sum, or counts (the paper's).")
    ] = "sum",
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="As large as in the paper, 13.8 million weights: with --torch-device cuda."
        ),
    ] = False,
    torch_device: Annotated[
        str, typer.Option("--torch-device", help="Where torch computes: cpu, or cuda.")
    ] = "cpu",
    hours: Hours = None,
    json: Json = False,
) -> None:
    """Train a latency model from records of tasks. An interrupted training resumes with the same command."""
    from tensorwise.front.networks import latency_model_folder
    from tensorwise.model.latency import train_latency
    from tensorwise.model.latency_training import LatencyTraining
    from tensorwise.model.program_net import PAPER
    from tensorwise.model.programs import Programs
    from tensorwise.store.reading import records_of
    from tensorwise.store.store import default_path
    from tensorwise.toolchain.places import private_dir

    folder = out or private_dir(latency_model_folder())
    every = list(records_of(records or [default_path()]))
    programs, held = Programs.of(every), None
    if device:
        programs = programs.on(device)
    if held_out:
        programs, held = programs.without(held_out)
    if not len(programs):
        raise InputError(
            "there are no records of programs to learn from; collect some first: tensorwise tasks collect"
        )
    with progress_bar("training") as bar:

        def progress(member: int, epoch: int, loss: float, error: float) -> None:
            done = (member + epoch / epochs) / members
            bar(
                f"network {member + 1}, epoch {epoch}: loss {loss:.3f}, validation MAPE {error:.1%}",
                done,
            )

        model = train_latency(
            programs, LatencyTraining(epochs=epochs, batch=batch), members=members, torch_device=torch_device,
            sizes={**(PAPER if paper else {}), "joining": joining}, checkpoints=folder / "checkpoints",
            budget_s=float("inf") if hours is None else 3600 * hours, progress=progress,
        )  # fmt: skip
    if model is None:
        warn("the time limit is reached; repeat the same command to resume")
        return
    read = [
        one for one in every if "tree" in one.provenance and one.provenance.get("device") in model.devices
    ]
    card = {
        **model.card, "held_out": held_out or [], "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": __version__, "data": data_facts(read), "batches": programs.batches,
        "judged": None if held is None else _evaluate(model, held),
    }  # fmt: skip
    model = replace(model, card=card)
    _save(model, folder)
    facts = {**model.card, "devices": list(model.devices)}
    if json:
        emit({"event": "result", "model": str(folder), **facts})
    else:
        print(
            f"a model trained on {facts['programs']} programs of {len(model.devices)} devices is in {folder}"
        )
        if judged := facts["judged"]:
            print(
                f"mean absolute percentage error on the held-out networks {', '.join(facts['held_out'])}: "
                f"{judged['mape']:.1%} ({judged['programs']} programs of {judged['tasks']} tasks)"
            )


@tasks_app.command("adapt")
@command
def adapt_model(
    folder: Folder = Path("networks"),
    isa: Isas = None,
    threads: ThreadCounts = None,
    count: Annotated[int, typer.Option("--count", min=10, help="Tasks of the folder to measure.")] = 50,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Schedules of each, on each device.")] = 2,
    model: Annotated[
        Path | None, typer.Option("--model", help="The model's folder; default: the bundled one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The new model's folder; default: where predict looks.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of tasks and schedules.")] = 0,
    store: StorePath = None,
    json: Json = False,
) -> None:
    """Adapt a latency model to settings of this CPU by measuring a few representative tasks.

    The new model is for these settings only; predict uses the bundled model for other devices. The measurement can be
    interrupted: the same command resumes it. The model is saved only where its error became smaller.
    """
    import numpy as np

    from tensorwise.adapt.latency import TRAINING, adapt_latency
    from tensorwise.adapt.tasks import clustered_tasks
    from tensorwise.collect.task_job import WORKERS, task_plan
    from tensorwise.front.networks import BUNDLED, latency_model, latency_model_folder, unscheduled
    from tensorwise.model.finding import bundled_model
    from tensorwise.model.latency_training import LatencyTraining
    from tensorwise.model.programs import Programs
    from tensorwise.store.store import Store
    from tensorwise.tasks.cpu import check_measurable
    from tensorwise.toolchain.places import private_dir

    check_measurable(threads or [1])
    old, place = latency_model(model or bundled_model(BUNDLED)), out or private_dir(latency_model_folder())
    settings = LatencyTraining(**TRAINING, seed=seed)
    every = task_plan(folder, isa or ["avx2"], threads or [1], samples=samples, seed=seed, own=True)
    with progress_bar("reading tasks") as bar:
        programs = unscheduled(folder, {job.task for job in every}, progress=bar)
    chosen = clustered_tasks(programs, min(count, len(programs)), np.random.default_rng(seed))
    jobs = [job for job in every if job.task in chosen]
    run_jobs(jobs, store, float("inf"), json, slots=WORKERS)
    wanted = {job.id for job in jobs}
    with Store(store) as home:
        there = (one for task in chosen for one in home.records(task))
        read = [one for one in there if one.provenance.get("job") in wanted]
    measured = Programs.of(read)
    with progress_bar("fine-tuning"):
        found = adapt_latency(old, measured, settings)
    facts = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "version": __version__,
        "devices": measured.devices, "programs": len(measured), "tasks": len(measured.tasks),
        "before": found.before, "after": found.after, "data": data_facts(read),
    }  # fmt: skip
    if found.better:
        _save(replace(found.model, card={**old.card, "adapted": facts}), place)
    where = str(place) if found.better else None
    if json:
        emit({"event": "result", "model": where, "better": found.better, **facts})
        return
    print(
        f"mean absolute percentage error on the programs of {found.after['tasks']} tasks, by cross-validation: "
        f"{found.before['mape']:.1%} before, {found.after['mape']:.1%} after the adaptation; "
        + (
            f"the adapted model is in {where}"
            if where
            else "no model is saved, and predictions stay unchanged"
        )
    )


def _evaluate(model: "LatencyModel", held: "Programs") -> "dict[str, Any]":
    """Return the errors of a model on held-out programs, for its card."""
    from tensorwise.model.latency import judged

    with progress_bar("testing"):
        return judged(model, held)


def _save(model: "LatencyModel", folder: Path) -> None:
    """Save a latency model, and its card for people beside it."""
    from tensorwise.front.model_card import latency_page

    model.save(folder)
    (folder / README).write_text(latency_page(model), encoding="utf-8")


def _kind(device: str) -> "Kind":
    """Of a device that records are of: one that is described, or a setting of a CPU."""
    from tensorwise.device.hardware import described

    known = described().get(device)
    return known.kind if known else "cpu"


def _fastest(graph: "TaskGraph", device: str, folder: Path, store: Path | None) -> dict[str, "Record"]:
    """The fastest record of each task of a network on a device."""
    from tensorwise.store.store import Store

    found: dict[str, Record] = {}
    with Store(store) as records:
        for task in graph.multiplicity:
            some = [r for r in records.records(task, status="ok") if r.provenance["device"] == device]
            if some:
                found[task] = min(some, key=lambda record: record.seconds)
    if missing := len(graph.multiplicity) - len(found):
        raise InputError(
            f"{missing} of {len(graph.multiplicity)} tasks of {graph.name} have no record of {device}; "
            f"measure them first: tensorwise tasks collect --folder {folder} --network {graph.name}"
        )
    return found
