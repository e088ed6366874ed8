"""``tensorwise collect``: measure many matrices and configs into the store, on this machine or on many."""

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensorwise.errors import InputError
from tensorwise.front.terminal import FAILED, INTERRUPTED, command, emit, progress_bar, warn

if TYPE_CHECKING:
    from tensorwise.collect.collected import Collected
    from tensorwise.collect.executors import AnyJob
    from tensorwise.collect.job import Job
    from tensorwise.collect.spool import Spool
    from tensorwise.collect.staged_job import StagedJob
    from tensorwise.collect.task_job import TaskJob
    from tensorwise.tuning.advice import Advisor

Progress = Callable[[str, float], None]
"""What `progress_bar` yields."""

Sources = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[SOURCE...]",
        help="Files, folders, or manifests (.csv with name, file, order, nnz and group, the family).",
    ),
]
Ops = Annotated[
    list[str] | None,
    typer.Option("--op", help="What to compute: spmv, spmm, sddmm, mttkrp, ...; may be repeated."),
]
Extents = Annotated[
    list[int] | None, typer.Option("--n", min=1, help="Dense extent (64; rank 16); may be repeated.")
]
Modes = Annotated[
    list[int] | None, typer.Option("--mode", min=0, help="Output mode of mttkrp (0); may be repeated.")
]
ThreadCounts = Annotated[
    list[int] | None,
    typer.Option("--threads", min=1, max=1024, help="Threads of a call; may be repeated; default: all."),
]
Dtype = Annotated[
    str,
    typer.Option(
        "--dtype", help="float32, float64, float16 or bfloat16 of all operands, whatever the files hold."
    ),
]
Samples = Annotated[int, typer.Option("--samples", min=1, help="Configs tried on each pattern.")]
Variants = Annotated[
    int,
    typer.Option(
        "--augment", min=0, help="Resized and densified variants of each pattern, of matrices also tensors."
    ),
]
SampleSeconds = Annotated[
    float, typer.Option("--budget-per-sample", help="Seconds after which one that packs or starts is killed.")
]
Hours = Annotated[float | None, typer.Option("--hours", help="Begin nothing more after so many.")]
MostTerms = Annotated[
    int | None, typer.Option("--most-terms", min=1, help="Leave out more multiplications a call: 30 million.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of order, augmentation and configs.")]
ModelFolder = Annotated[
    Path | None,
    typer.Option(
        "--model", help="Try also what this model would have a tuning try first on each pattern ..."
    ),
]
Named = Annotated[int, typer.Option("--named", min=1, help="... so many configs.")]
DeviceName = Annotated[
    str,
    typer.Option(
        "--device",
        help="cpu; cuda, a GPU; spade or spade-small, simulated accelerators; or null: a formula, to try out a plan.",
    ),
]
StorePath = Annotated[Path | None, typer.Option("--store", help="The store's file; default: the user's.")]
JobStorePath = Annotated[
    Path | None,
    typer.Option(
        "--store",
        help="The store's file, or a folder NAME.parts to which many machines append; default: the user's file.",
    ),
]
ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor",
        help="What runs jobs: local processes; ray or dask, which open ports; or one of an installed package.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option("--address", help="HOST:PORT of a running cluster; default: start one on 127.0.0.1."),
]
SpoolFolder = Annotated[
    Path | None, typer.Option("--spool", help="A folder through which other machines collect.")
]
Worker = Annotated[
    str | None, typer.Option("--worker", metavar="NAME", help="Run the spool's jobs here, under this name.")
]
Share = Annotated[
    str, typer.Option("--share", metavar="K/N", help="With --worker: the K-th of N shares of the jobs only.")
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="NAME",
        help="Kind of machines that the jobs are for; may be repeated, a job each; with --worker: of this machine.",
    ),
]
LostAfter = Annotated[
    float | None,
    typer.Option("--lost-after", help="With --worker: take over from one silent for so many seconds; 600."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]

MOST_NAMED = 12
"""Families that are listed before a collection, those with most patterns."""


@command
def collect(
    sources: Sources = None,
    op: Ops = None,
    n: Extents = None,
    mode: Modes = None,
    threads: ThreadCounts = None,
    dtype: Dtype = "float32",
    samples: Samples = 100,
    augment: Variants = 0,
    budget_per_sample: SampleSeconds = 10.0,
    hours: Hours = None,
    most_terms: MostTerms = None,
    seed: Seed = 0,
    model: ModelFolder = None,
    named: Named = 12,
    device: DeviceName = "cpu",
    store: JobStorePath = None,
    executor: ExecutorName = "local",
    address: Address = None,
    spool: SpoolFolder = None,
    worker: Worker = None,
    gather: Annotated[
        bool, typer.Option("--gather", help="Merge the spool's results into the store.")
    ] = False,
    share: Share = "1/1",
    kind: Kinds = None,
    lost_after: LostAfter = None,
    json: Json = False,
) -> None:
    """Measure formats and schedules on many matrices and tensors, for models to learn from.

    Can be interrupted: the same command resumes with the remaining jobs. Several collectors can run at a time and share
    the jobs. --spool alone writes the jobs for other machines, which run them with --worker; --gather merges their
    results. --executor runs the jobs on a cluster.
    """
    if (worker is not None or gather) and (spool is None or sources or (worker is not None and gather)):
        raise typer.BadParameter(
            "--worker and --gather go with --spool, without sources, and not with each other",
            param_hint="'--spool'",
        )
    _check_executor(executor, address)
    if executor != "local" and spool is not None and (sources or worker is not None or gather):
        raise typer.BadParameter(
            "a cluster runs the jobs of a spool that is planned; --worker runs them on this machine, and --gather none",
            param_hint="'--executor'",
        )
    if kind and (
        gather or (len(kind) > 1 and (worker is not None or (executor == "local" and spool is None)))
    ):
        raise typer.BadParameter("a machine is of one kind, and gathering takes all", param_hint="'--kind'")
    if hours is not None and not hours > 0:
        raise InputError(f"--hours must be positive, got {hours}")
    budget_s = float("inf") if hours is None else 3600 * hours
    if spool is not None and worker is not None:
        _work(spool, worker, share, kind[0] if kind else "", lost_after, budget_s, json)
    elif spool is not None and gather:
        _gather(spool, store, json)
    elif spool is not None and executor != "local":
        run_jobs(_existing(spool).planned(), store, budget_s, json, executor, address=address)
    else:
        from tensorwise.collect.corpus import patterns
        from tensorwise.collect.job import MOST_TERMS, plan
        from tensorwise.toolchain.threads import available_threads

        if not sources or not op:
            raise typer.BadParameter("name at least one source and one --op", param_hint="'SOURCE'")
        check_dtype(dtype, device)
        advisor = None if model is None else _advisor(model, op)
        left_out: list[str] = []
        jobs = plan(
            patterns(sources, left_out), op, n=n or (), modes=mode or (0,), threads=threads or (available_threads(),),
            kinds=kind or ("",), variants=augment, most_terms=most_terms or MOST_TERMS, seed=seed, device=device,
            dtype=dtype, samples=samples, sample_s=budget_per_sample, left_out=left_out,
            asked="" if advisor is None else f"{advisor.id} {named}",
        )  # fmt: skip
        complete = None if advisor is None else _add_predicted(advisor, named)
        warn(_families_text(jobs))
        if spool is not None:
            _plan(spool, jobs, complete, json, left_out)
        else:
            for problem in left_out:
                warn(f"left out: {problem}")
            run_jobs(jobs, store, budget_s, json, executor, complete, address=address)
            if left_out:
                raise typer.Exit(FAILED)


def _families_text(jobs: "Sequence[Job]") -> str:
    """Say which families are measured: a model is tested on others than it learned from, and records keep their family."""
    families = Counter(family for _, family in {(job.name, job.family) for job in jobs})
    patterns = families.total()
    text = f"{patterns} pattern{'s' * (patterns != 1)} of {len(families)} famil{'ies' if len(families) != 1 else 'y'}: "
    text += ", ".join(f"{name} {count}" for name, count in families.most_common(MOST_NAMED))
    if more := len(families) - MOST_NAMED:
        text += f" and {more} more" * (more > 0)
    if patterns > 1 and len(families) == 1:
        text += "; to train and test a model, collect two families and more: folders, or groups of a manifest"
    return text


def check_dtype(dtype: str, device: str = "cpu") -> None:
    """Refuse a dtype that is unknown, needs a package that is missing, or does not suit the device: wrong usage.

    Raises:
        MissingExtraError: it is bfloat16, and ml_dtypes is not installed.
    """
    from tensorwise.tensor.elements import ELEMS, EXPECTED, is_half, value_dtype

    if dtype not in ELEMS:
        raise typer.BadParameter(f"{dtype!r} is not {EXPECTED}", param_hint="'--dtype'")
    if is_half(value_dtype(dtype)) and device in ("cuda", "spade", "spade-small"):
        raise typer.BadParameter(
            f"16-bit elements are for the CPU, not for --device {device}; give float32",
            param_hint="'--dtype'",
        )
    if dtype != "float32" and device in ("spade", "spade-small"):
        raise typer.BadParameter(
            f"--device {device} simulates float32 only, got {dtype}", param_hint="'--dtype'"
        )


def _check_executor(name: str, address: str | None) -> None:
    """Refuse an executor that is unknown, or whose address is wrong, before anything is planned."""
    from tensorwise.collect.opening import EXECUTORS

    if name not in EXECUTORS:
        problem = f"unknown executor {name!r}; known: {', '.join(EXECUTORS)}"
    elif name == "local" and address is not None:
        problem = "local runs jobs on this machine and has no --address"
    elif name == "spool" and address is None:
        problem = "spool needs its folder as --address; to only write the jobs: --spool FOLDER"
    else:
        return
    raise typer.BadParameter(problem, param_hint="'--executor'")


def _advisor(folder: Path, ops: list[str]) -> "Advisor":
    """Read a model that knows all operations of a plan."""
    from tensorwise.tuning.advice import Advisor

    advisor = Advisor.load(folder)
    known = advisor.model.card.get("op")
    if known and (others := [op for op in ops if op != known]):
        raise InputError(f"{folder}: the model is of {known}, not of {', '.join(others)}")
    return advisor


def _add_predicted(advisor: "Advisor", count: int) -> "Callable[[Job], Job]":
    """Return a function that adds a model's ``count`` best configs to a job, the same ones at every call."""
    from dataclasses import replace

    import numpy as np

    def complete(job: "Job") -> "Job":
        rng = np.random.default_rng(job.seed)
        try:
            _, work = job.load()
            with job.open() as device:
                configs = advisor.top_configs(work, device.space(work), device, count, rng)
        except (
            InputError
        ):  # its collection will say what is wrong; or the model is of tensors of another order
            return job
        return replace(job, named=tuple(config.text for config in configs))

    return complete


def run_jobs(
    jobs: "Sequence[Job] | Sequence[TaskJob] | Sequence[StagedJob]",
    path: Path | None,
    budget_s: float,
    json: bool,
    name: str = "local",
    complete: "Callable[[Any], Any] | None" = None,
    **options: Any,
) -> None:
    """Collect on this machine or on a cluster, by the executor of a name, made with options."""
    from tensorwise.collect.driver import collect
    from tensorwise.collect.executors import ExecutorOptions
    from tensorwise.collect.opening import open_executor
    from tensorwise.store.reading import open_store

    with open_store(path) as store, progress_bar("collecting") as progress:
        executor = open_executor(name, ExecutorOptions(**options))
        found = collect(
            jobs, store, executor, budget_s=budget_s, anywhere=executor.remote,
            observe=lambda job, found: _show(job, found, progress, json),
            complete=complete,
        )  # fmt: skip
        place = store.path
    if json:
        emit({"event": "result", **found.to_json(), "store": str(place)})
    else:
        print(_summary(found, place))
    for problem in found.failed:
        warn(problem)
    for problem in [*found.mixed, *(f"lost, and not recorded: {problem}" for problem in found.lost)]:
        warn(problem)
    if found.lost:
        warn(
            f"{len(found.lost)} jobs were lost with their workers or nodes; the same command tries them again"
        )
    if found.num_left:
        warn(f"{found.num_left} jobs are left; go on with: {shlex.join(['tensorwise', *sys.argv[1:]])}")
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)
    if found.failed or found.lost:
        raise typer.Exit(FAILED)


def _show(job: "AnyJob", found: "Collected", progress: Progress, json: bool) -> None:
    if json:
        emit({"event": "job", "job": job.label, **found.to_json()})
    ended = found.planned - found.num_left
    progress(
        f"{ended} of {found.planned} jobs, {found.records} records, {found.per_minute:.0f} a minute, "
        f"{_duration(found.left_s)} left",
        ended / found.planned,
    )


def _summary(found: "Collected", place: Path) -> str:
    total = max(found.records, 1)
    shares = ", ".join(
        f"{status} {100 * count / total:.1f} %" for status, count in found.statuses.most_common()
    )
    before = f", {found.before} were done before" if found.before else ""
    before += f", {found.elsewhere} by other drivers" if found.elsewhere else ""
    redone = f", {found.redone} begun again after a worker or node was lost" if found.redone else ""
    return (
        f"{found.jobs} of {found.planned} jobs in {_duration(found.seconds)}{before}{redone}\n"
        f"{found.records} records, {found.per_minute:.0f} a minute{': ' if shares else ''}{shares}\n"
        f"in {place}"
    )


def _duration(seconds: float) -> str:
    """Seconds as a person says them.

    >>> _duration(42.4), _duration(600), _duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _plan(
    folder: Path,
    jobs: "list[Job]",
    complete: "Callable[[Job], Job] | None",
    json: bool,
    left_out: list[str],
) -> None:
    """Write the jobs down for other machines, which have no models."""
    from tensorwise.collect.spool import Spool, UnplannedError

    if complete is not None:
        with progress_bar("asking the model") as progress:
            for place, job in enumerate(jobs):
                progress(f"{place} of {len(jobs)} patterns, {job.label}", place / len(jobs))
                jobs[place] = complete(job)
    problems = left_out
    there = len(jobs)
    try:
        new = Spool(folder).plan(jobs)
    except UnplannedError as error:
        new, problems, there = error.planned, [*left_out, *error.problems], there - error.left_out
    if json:
        emit({"planned": there, "new": new, "spool": str(folder), "failed": problems})
    else:
        _print_planned(folder, jobs, there, new)
    for problem in problems:
        warn(f"left out: {problem}")
    if problems:
        raise typer.Exit(FAILED)


def _print_planned(folder: Path, jobs: "list[Job]", there: int, new: int) -> None:
    print(f"{there} jobs are in {folder}, {new} of them new")
    for kind in dict.fromkeys(job.kind for job in jobs):
        which = f"machine of the kind {kind}" if kind else "machine"
        of = f" --kind {kind}" if kind else ""
        print(f"on each {which}: tensorwise collect --spool {shlex.quote(str(folder))} --worker NAME{of}")
    print(f"in the end:      tensorwise collect --spool {shlex.quote(str(folder))} --gather")


def _work(
    folder: Path,
    worker: str,
    share: str,
    kind: str,
    lost_after: float | None,
    budget_s: float,
    json: bool,
) -> None:
    """Be a worker of a spool."""
    import time

    from tensorwise.collect.executors import LocalExecutor
    from tensorwise.collect.ledger import LEASE_S
    from tensorwise.collect.spool import Spool, work

    spool = _existing(folder)
    k, _, of = share.partition("/")
    if not (k.isdecimal() and of.isdecimal()):
        raise InputError(f"--share must be K/N such as 2/5, got {share!r}")
    executor = LocalExecutor()
    clean = False
    try:
        with progress_bar("collecting") as progress:

            def observe(done: int, total: int, said: str) -> None:
                if json:
                    emit({"event": "job", "job": said, "done": done, "total": total})
                progress(f"{done} of {total} jobs, {said}", done / total)

            ran = work(
                spool, worker, executor, share=(int(k), int(of)), kind=kind,
                lease_s=LEASE_S if lost_after is None else lost_after,
                until=time.monotonic() + budget_s, observe=observe,
            )  # fmt: skip
        clean = True
    finally:
        executor.shutdown(wait=clean, cancel_futures=True)
    lost = [times[-1] for job, times in spool.lost.items() if job not in spool.done]
    unfit = [whose[worker] for job, whose in spool.unfit.items() if worker in whose and job not in spool.done]
    if json:
        emit({"event": "result", "jobs": ran, "worker": worker, "lost": lost, "unfit": unfit, "odd": spool.odd,
              "unread": list(spool.unread.values())})  # fmt: skip
    else:
        print(f"{ran} jobs were run here; their results are in {Spool(folder).results / worker}.jsonl")
    for problem in [*spool.odd, *spool.unread.values()]:
        warn(problem)
    for problem in lost:
        warn(f"lost, and not recorded: {problem}; the same command tries it again")
    if unfit:
        warn(f"{len(unfit)} jobs are left to other machines, such as: {unfit[0]}")
    if lost:
        raise typer.Exit(FAILED)


def _gather(folder: Path, path: Path | None, json: bool) -> None:
    """Merge what the workers of a spool have found."""
    from tensorwise.collect.driver import mixed_kinds
    from tensorwise.collect.spool import gather
    from tensorwise.store.reading import open_store

    spool = _existing(folder)
    with open_store(path) as store:
        jobs, new = gather(spool, store)
        place = store.path
        mixed = mixed_kinds(spool.jobs(), store)
    planned = len(spool.jobs())
    failed = [why for why in spool.done.values() if why is not None]
    lost = [times[-1] for job, times in spool.lost.items() if job not in spool.done]
    left = planned - len(spool.done)
    unfit = [next(iter(whose.values())) for job, whose in spool.unfit.items() if job not in spool.done]
    if json:
        emit({"jobs": jobs, "records": new, "planned": planned, "left": left, "failed": failed, "lost": lost, "unfit": unfit,
              "damaged": spool.damaged, "odd": spool.odd, "unread": list(spool.unread.values()), "mixed": mixed,
              "store": str(place)})  # fmt: skip
    else:
        print(f"{jobs} jobs with {new} new records in {place}; {left} of {planned} are still to be done")
    for problem in [*failed, *spool.odd, *spool.unread.values(), *mixed]:
        warn(problem)
    for problem in lost:
        warn(f"lost, and not recorded: {problem}; a worker that is started again tries it again")
    if unfit:
        warn(f"{len(unfit)} jobs were left by a worker, and no other has run them, such as: {unfit[0]}")
    if spool.damaged:
        warn(
            f"{spool.damaged} lines of results cannot be read, as of workers killed while they wrote; left out"
        )
    if spool.unread:
        raise typer.Exit(FAILED)


def _existing(folder: Path) -> "Spool":
    from tensorwise.collect.spool import Spool

    if not (folder / "jobs.jsonl").is_file():
        raise InputError(
            f"{folder}: is no spool; make one with: tensorwise collect SOURCE... --op spmm --spool {folder}"
        )
    return Spool(folder)
