"""``tensorwise calibrate``: a model adapted to this machine with a few minutes of measurements."""

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensorwise.errors import InputError
from tensorwise.front.cli_collect import DeviceName, StorePath
from tensorwise.front.cli_model import Json, Seed, Sources, data_facts, write_page
from tensorwise.front.terminal import INTERRUPTED, command, emit, fail, finite, progress_bar, warn

if TYPE_CHECKING:
    from tensorwise.collect.job import Job
    from tensorwise.model import RankingModel
    from tensorwise.model.calibration import Calibration
    from tensorwise.store.record import Record


@command
def calibrate(
    sources: Sources,
    op: Annotated[str, typer.Option("--op", help="The operation: spmv, spmm, sddmm, mttkrp, ...")],
    n: Annotated[int | None, typer.Option("--n", min=1, help="Dense extent (64; rank 16).")] = None,
    mode: Annotated[int, typer.Option("--mode", min=0, help="Output mode of mttkrp.")] = 0,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, max=1024, help="Threads of a call; default: all.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="The model's folder; default: the one that tuning uses.")
    ] = None,
    budget: Annotated[
        float, typer.Option("--budget", help="Seconds after which no further pattern is begun.")
    ] = 180.0,
    samples: Annotated[int, typer.Option("--samples", min=16, help="Configs tried on each pattern.")] = 40,
    store: StorePath = None,
    device: DeviceName = "cpu",
    out: Annotated[
        Path | None, typer.Option("--out", help="The new model's folder; default: where tuning looks.")
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Adapt a model to this machine with a few minutes of measurements, and test the adapted model. Needs no torch.

    Can be interrupted: the same command resumes with the remaining patterns.
    """
    from tensorwise.collect.corpus import patterns
    from tensorwise.collect.job import plan
    from tensorwise.collect.workloads import Workloads
    from tensorwise.model.calibration import calibrate as fit
    from tensorwise.model.finding import calibrated_for
    from tensorwise.toolchain.places import private_dir
    from tensorwise.toolchain.threads import available_threads

    if not budget > 0:
        raise InputError(f"--budget must be positive, got {budget}")
    found, count = patterns(sources), threads or available_threads()
    extents = () if n is None else (n,)
    jobs = plan(
        found, [op], n=extents, modes=(mode,), threads=(count,), samples=samples, seed=seed, device=device
    )
    einsum = str(jobs[0].load()[1].einsum)
    folder, old = _model(model, op, einsum, count)
    records = [one for one in _measured(jobs, store, budget) if one.workload["einsum"] == einsum]
    with progress_bar("fitting"):
        result = fit(old, records, Workloads(found).of)
    facts = _facts(records, result)
    place = (out or private_dir(calibrated_for(op, einsum, count))) if result.better else None
    if place is not None:
        _save(result, old, facts, folder, place, count)
    if json:
        emit({"event": "result", "model": str(place) if place else None, "better": result.better, **facts})
    else:
        print(_text(facts, place))


def _model(folder: Path | None, op: str, einsum: str, threads: int) -> "tuple[Path, RankingModel]":
    """Return the model to start from and its folder: the named model, else the bundled one."""
    from tensorwise.model import RankingModel
    from tensorwise.model.finding import NOT_INSTALLED, bundled_folders, find_models_for

    # A calibrated model is not calibrated again: it was fitted to these measurements.
    bundled = bundled_folders()
    known = (
        [folder] if folder else [one for one in find_models_for(op, einsum, threads) if one.parent in bundled]
    )
    if not known and not bundled:
        raise InputError(f"{NOT_INSTALLED}; or name a model with --model, or make one: tensorwise train")
    if not known:
        raise InputError(
            f"no model of {op} ({einsum}) is bundled; name one with --model, or make one: tensorwise train"
        )
    return known[0], RankingModel.load(known[0])


def _measured(jobs: "list[Job]", path: Path | None, budget_s: float) -> "list[Record]":
    """Run jobs until the time is up, and return the records of all that are done on this machine."""
    from tensorwise.collect.collected import Collected
    from tensorwise.collect.driver import collect
    from tensorwise.collect.executors import LocalExecutor
    from tensorwise.store.store import Store

    with Store(path) as store, progress_bar("measuring") as progress:

        def observe(job: "Job", found: Collected) -> None:
            share = min(1.0, found.seconds / budget_s)
            progress(f"{found.before + found.jobs} patterns, {found.records} records", share)

        found = collect(jobs, store, LocalExecutor(), budget_s=budget_s, observe=observe)
        with jobs[0].open() as device:
            wanted = {job.id for job in jobs}
            records = [
                one for one in store.records(device_id=device.id) if one.provenance.get("job") in wanted
            ]
    for problem in found.failed:
        warn(problem)
    if found.interrupted:
        fail("interrupted; the same command resumes with the remaining patterns", INTERRUPTED)
    return records


def _facts(records: "list[Record]", result: "Calibration") -> dict[str, Any]:
    """What the card says of a calibration, JSON-able."""
    from tensorwise.front.model_card import figures

    facts = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "data": data_facts(records),
        "before": figures(result.before),
        "after": figures(result.after),
    }
    found: dict[str, Any] = finite(facts)
    return found


def _save(
    result: "Calibration",
    old: "RankingModel",
    facts: dict[str, Any],
    source: Path,
    target: Path,
    threads: int,
) -> None:
    """Save the model with its card, and the graph that lies beside the old one: configs are embedded as before."""
    from tensorwise.device.host import host
    from tensorwise.search.graph import GRAPH, ConfigGraph

    before = {key: old.card.get(key) for key in ("machine", "threads")}
    here = {"machine": host().facts, "threads": threads}
    result.model.card = {**old.card, **here, "calibration": {**facts, "trained": before}}
    if (source / GRAPH.files[0]).exists():
        ConfigGraph.load(source).save(target)
    result.model.save(target)
    write_page(target, result.model.card)


def _text(facts: dict[str, Any], place: Path | None) -> str:
    from tensorwise.front.model_card import calibration_table, text_table

    verdict = (
        f"in {place}"
        if place
        else "it ranks no better than before: nothing is saved, and tuning goes on as it was"
    )
    return f"{text_table(calibration_table(facts))}\n\n{verdict}"
