"""The command line. Heavy modules are imported inside the commands, so that ``--help`` is quick."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensorwise.errors import InputError, TensorwiseError
from tensorwise.front.cli_calibrate import calibrate
from tensorwise.front.cli_collect import collect
from tensorwise.front.cli_doctor import doctor
from tensorwise.front.cli_machine import cache_app, devices, store_app
from tensorwise.front.cli_model import evaluate, model_info, train
from tensorwise.front.cli_predict import predict
from tensorwise.front.cli_select import plan, select_app
from tensorwise.front.cli_tasks import tasks_app
from tensorwise.front.cli_transfer import transfer
from tensorwise.front.terminal import INTERRUPTED, command, emit, fail, progress_bar, warn

if TYPE_CHECKING:
    from tensorwise.tensor.entries import Entries
    from tensorwise.tuning.result import Trial

app = typer.Typer(
    help="Make sparse tensor programs fast by choosing storage format, loop schedule and code.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(cache_app, name="cache")
app.add_typer(store_app, name="store")
app.command()(devices)
app.command()(doctor)
app.command()(collect)
app.command()(train)
app.command()(evaluate)
app.command()(calibrate)
app.command()(transfer)
app.command("model")(model_info)
app.add_typer(select_app, name="select")
app.add_typer(tasks_app, name="tasks")
app.command()(plan)
app.command()(predict)

OPS = "spmv, spmm, spmv_t, spmm_t (A transposed), sddmm, mttkrp, ttv or ttm"
STRATEGIES = "genetic, random or exhaustive"

FilePath = Annotated[
    Path, typer.Argument(metavar="PATH", help="A .mtx, .mtx.gz, .tns, .tns.gz, .npz or .bsp.h5 file.")
]
Op = Annotated[str, typer.Option("--op", help=f"What to compute: {OPS}.")]
Extent = Annotated[
    int | None,
    typer.Option("--n", min=1, help="Columns of B in spmm, inner extent of sddmm (64); rank of mttkrp (16)."),
]
Mode = Annotated[int, typer.Option("--mode", min=0, help="Output mode of mttkrp.")]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, max=1024, help="Threads of a call; default: all it may use.")
]
Dtype = Annotated[
    str, typer.Option("--dtype", help="float32, float64, float16 or bfloat16, whatever the file holds.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the dense operands and of the search.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the versions of Tensorwise, Python, NumPy and SciPy.")
    ] = False,
) -> None:
    if version:
        from tensorwise.front.cli_doctor import versions_text

        print(versions_text())
        raise typer.Exit


@app.command()
@command
def tune(
    path: FilePath,
    op: Op,
    n: Extent = None,
    mode: Mode = 0,
    all_modes: Annotated[
        bool, typer.Option("--all-modes", help="mttkrp in every mode, on tensors that modes may share.")
    ] = False,
    memory_bytes: Annotated[
        int | None,
        typer.Option("--memory-bytes", min=1, help="Most that tensors and workspaces of all modes may take."),
    ] = None,
    threads: Threads = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            help="Seconds for all of it; default 30 (a mode, with --all-modes), unlimited with --trials.",
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option("--trials", min=0, help="Most candidates to try.")] = None,
    expected_calls: Annotated[
        float | None,
        typer.Option("--expected-calls", help="How often it will be called: then what is spent once counts."),
    ] = None,
    strategy: Annotated[str, typer.Option("--strategy", help=f"How to search: {STRATEGIES}.")] = "genetic",
    model: Annotated[
        str,
        typer.Option(
            "--model", help="Cost model that proposes candidates: shipped, none, or the folder of a model."
        ),
    ] = "shipped",
    dtype: Dtype = "float32",
    seed: Seed = 0,
    store: Annotated[Path | None, typer.Option("--store", help="Where measurements are remembered.")] = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Remember nothing.")] = False,
    report: Annotated[Path | None, typer.Option("--report", help="Write an HTML page about it.")] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Save the operator for `tensorwise run`.")
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device", help="Where it is to run: cpu, cuda, spade, spade-small, or an installed one."
        ),
    ] = "cpu",
    json: Json = False,
) -> None:
    """Find the fastest format and schedule for an operation on a sparse operand.

    Computes in float32 unless --dtype says otherwise. Ctrl-C ends the search with the best found so far. With
    ``--device cuda`` what is found is a program for this machine's GPU, which ``--json`` prints for `compile`.
    """
    _check_choices(op, dtype)
    from tensorwise.device.opening import DEVICES
    from tensorwise.front.reporting import check_writable, report_of
    from tensorwise.search import STRATEGIES as KNOWN
    from tensorwise.store.store import Store
    from tensorwise.tuning.tune import tune as search

    if device not in DEVICES:
        raise typer.BadParameter(f"{device!r} is not one of {', '.join(DEVICES)}", param_hint="'--device'")
    if strategy not in KNOWN:
        raise typer.BadParameter(f"{strategy!r} is not one of {', '.join(KNOWN)}", param_hint="'--strategy'")
    if store is not None and no_store:
        raise typer.BadParameter("give --store or --no-store, not both", param_hint="'--no-store'")
    _check_modes(op, all_modes, memory_bytes, mode, bool(report or save or model not in ("shipped", "none")))
    for target in (report, save):
        if target is not None:
            check_writable(target)
    if device != "cpu" and (all_modes or save or threads or expected_calls or dtype.endswith("16")):
        raise typer.BadParameter(
            "--all-modes, --save, --threads, --expected-calls and 16-bit elements are for the CPU",
            param_hint="'--device'",
        )
    entries = _entries(path, dtype)
    home: Store | bool = Store(store) if store is not None else not no_store
    if all_modes:
        from tensorwise.tuning.modes import tune_modes

        with progress_bar("tuning") as progress:
            sweep = tune_modes(
                entries, n=n, memory_bytes=memory_bytes, budget_s=budget, trials=trials,
                expected_calls=expected_calls, threads=threads, strategy=strategy, store=home, seed=seed, progress=progress,
                observe=_Candidates() if json else None,
            )  # fmt: skip
        _refuse_empty(sweep.result.verified, sweep.result.notes)
        if json:
            emit({"event": "result", **sweep.result.to_json()})
        else:
            print(sweep.report())
        return
    with progress_bar("tuning") as progress:
        operator = search(
            entries, op, n=n, mode=mode, budget_s=budget, trials=trials, expected_calls=expected_calls, threads=threads,
            device=device, strategy=strategy, model=model, store=home, seed=seed, progress=progress,
            observe=_Candidates() if json else None,
        )  # fmt: skip
    result = operator.result
    assert result is not None
    _refuse_empty(math.isfinite(result.best.seconds), result.notes)
    problem = None
    try:
        if report is not None:
            report_of(operator, path.name).save(report)
        if save is not None:
            operator.save(save)
    except TensorwiseError as error:
        problem = error
    if json:
        emit({"event": "result", **result.to_json()})
    else:
        print(result.text())
    if problem is not None:
        raise problem


@app.command()
@command
def run(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="What `tune --save` or Operator.save wrote.")],
    operands: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[B.npy ...]",
            help="Dense operands in the einsum's order (bfloat16 as float32); none: random.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Write the result: .npy (of sddmm the values), or .mtx or .npz if sparse."
        ),
    ] = None,
    matrix: Annotated[
        Path | None, typer.Option("--matrix", help="A matrix of the same pattern whose values to use.")
    ] = None,
    any_machine: Annotated[
        bool, typer.Option("--any-machine", help="Load it though it was tuned on other hardware.")
    ] = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Apply a saved operator."""
    import time

    import numpy as np

    from tensorwise.front.reporting import check_writable
    from tensorwise.tensor.files import write
    from tensorwise.tuning.saving import load
    from tensorwise.writing import replacing

    if out is not None:
        check_writable(out)
        if out.suffix not in (".npy", ".npz", ".mtx", ".gz"):
            raise InputError(
                f"{out}: unknown kind of file; expected .npy, or .mtx or .npz for a sparse result"
            )
    fresh = None if matrix is None else _entries(matrix, None)
    operator = load(path, fresh, check_machine=not any_machine, rounding=True)
    work = operator.workload
    given = [_array(file) for file in operands or []] or work.operands(np.random.default_rng(seed))
    for place, (name, array) in enumerate(zip(work.dense, given)):
        if work.dtype_of(name).name == "bfloat16" and array.dtype == np.float32:  # .npy has no bfloat16
            given[place] = array.astype(work.dtype_of(name))
    start = time.perf_counter()
    result = operator(*given)
    took_s = time.perf_counter() - start
    sparse = not isinstance(result, np.ndarray)
    if out is not None:
        if out.suffix == ".npy":
            array = result.data if sparse else result
            if array.dtype.name == "bfloat16":
                array = array.astype(np.float32)
            with replacing(out) as file:
                np.save(file, array, allow_pickle=False)
        elif sparse:
            write(out, work.entries.with_values(result.data))
        else:
            raise InputError(f"{out}: the result is dense; name a .npy file")
    facts = {
        "op": work.op,
        "kernel": operator.kernel,
        "format": operator.format,
        "schedule": operator.schedule,
        "threads": operator.threads,
        "shape": list(result.shape),
        "dtype": str(result.dtype),
        "first_call_s": took_s,
        "out": str(out) if out is not None else None,
    }
    if json:
        emit(facts)
    else:
        print(repr(operator))
        print(f"result: {facts['dtype']} {tuple(result.shape)}{f', written to {out}' if out else ''}")


@app.command()
@command
def bench(
    path: FilePath,
    op: Op,
    n: Extent = None,
    mode: Mode = 0,
    threads: Threads = None,
    budget: Annotated[
        float, typer.Option("--budget", help="Seconds, conversions and verification included.")
    ] = 5.0,
    dtype: Dtype = "float32",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Time the default generated kernel and the libraries in interleaved rounds, without a search."""
    _check_choices(op, dtype)
    from tensorwise.front.benching import bench as measure

    if not budget > 0:
        raise InputError(f"--budget must be positive, got {budget}")
    entries = _entries(path, dtype)
    found = measure(entries, op, n=n, mode=mode, threads=threads, budget_s=budget, seed=seed)
    if json:
        emit(found.to_json())
    else:
        print(found.text())


def main() -> None:
    """Run the command line."""
    app()


class _Candidates:
    """Prints a JSON line for each candidate."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, trial: "Trial") -> None:
        from tensorwise.tuning.result import program_texts

        self.count += 1
        measurement = trial.measurement
        _, format, schedule = program_texts(trial.program)
        emit(
            {
                "event": "candidate",
                "number": self.count,
                "config": trial.config.id,
                "format": format,
                "schedule": schedule,
                "seconds": measurement.seconds,
                "spread_s": measurement.spread_s,
                "status": measurement.status,
                "note": measurement.note,
            }
        )


def _check_choices(op: str, dtype: str) -> None:
    """Wrong names are wrong usage: exit status 2."""
    from tensorwise.program.ops import NAMED
    from tensorwise.tensor.elements import ELEMS, EXPECTED

    known = [*NAMED, "mttkrp"]
    if op not in known and "=" not in op:  # the text of an einsum
        raise typer.BadParameter(f"{op!r} is not one of {', '.join(known)}", param_hint="'--op'")
    if dtype not in ELEMS:
        raise typer.BadParameter(f"{dtype!r} is not {EXPECTED}", param_hint="'--dtype'")


def _check_modes(op: str, all_modes: bool, memory_bytes: int | None, mode: int, single: bool) -> None:
    """Options that do not go with tuning all modes, or only with it, are wrong usage."""
    if memory_bytes is not None and not all_modes:
        raise typer.BadParameter(
            "it limits what all modes take; give --all-modes", param_hint="'--memory-bytes'"
        )
    if all_modes and op != "mttkrp":
        raise typer.BadParameter(f"it is for --op mttkrp, got {op}", param_hint="'--all-modes'")
    if all_modes and (mode or single):
        given = "--mode" if mode else "--report, --save and --model"
        raise typer.BadParameter(f"{given} are for one mode; leave them out", param_hint="'--all-modes'")


def _refuse_empty(measured: bool, notes: Sequence[str]) -> None:
    """End here when nothing was measured."""
    if measured:
        return
    if any(note.startswith("interrupted") for note in notes):
        fail("interrupted before anything was measured", INTERRUPTED)
    fail(f"nothing could be measured: {'; '.join(notes)}")


def _entries(path: Path, dtype: str | None) -> "Entries":
    """Read an operand; of complex values the real parts, with a warning."""
    from tensorwise.tensor.files import read

    try:
        return read(path, dtype)
    except InputError as error:
        if "complex" not in str(error):
            raise
        entries: Entries = read(path, dtype, part="real")
        warn(f"{path}: the values are complex; their real parts are used")
        return entries


def _array(path: Path) -> Any:
    import numpy as np

    try:
        array = np.load(path, allow_pickle=False)
    except (
        Exception
    ) as error:  # NumPy reads the header as a piece of Python, by parsers that raise what they like
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: cannot be read as an .npy array ({reason})") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: holds several arrays; expected an .npy file with one")
    return array
