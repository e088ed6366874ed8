"""From an operator to its report: gathers what `report.render` shows, and writes the page."""

import contextlib
import datetime
import math
import os

import numpy as np
import scipy

import tensorwise
from tensorwise.device.host import host
from tensorwise.device.roofline import level_holding, roofline
from tensorwise.errors import CompilerError, InputError
from tensorwise.front.draw_pattern import spy_of
from tensorwise.front.page import Report
from tensorwise.front.report import render
from tensorwise.front.report_data import Attempt, Candidate, ReportData
from tensorwise.lower.program import Program
from tensorwise.reading import user_path
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.toolchain.compiler import find_compiler
from tensorwise.tuning.operator import Operator
from tensorwise.tuning.result import Standing, Trial, TuneResult, program_texts
from tensorwise.tuning.result_text import against, has_note

UNTUNED = "tensorwise (untuned)"
"""The default program's name in a report."""


def report_of(operator: Operator, name: str = "the matrix") -> Report:
    """Return the report on an operator: its text, and a page for one that was tuned here.

    Args:
        operator: any; of one that was compiled by hand or loaded there is no page. The text of a loaded one is that of its
            tuning, from the file.
        name: of the matrix.
    """
    text = operator.saved_report or repr(operator) if operator.result is None else operator.result.text()
    return Report(text, lambda: render(report_data(operator, name)))


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise InputError when no file can be made at ``path``: known before a search, not after it."""
    target = user_path(path)
    if target.is_dir():
        raise InputError(f"{path}: is a folder; name a file to write")
    if not target.parent.is_dir():
        raise InputError(f"{path}: the folder {target.parent} does not exist; make it, or name another file")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(f"{path}: the folder {target.parent} cannot be written to; name another file")


def report_data(operator: Operator, name: str) -> ReportData:
    """Return what the report on a tuned operator shows; ``name`` is the matrix's.

    Raises:
        InputError: the operator was compiled by hand or loaded, so nothing is known about it.
    """
    result = operator.result
    if result is None:
        raise InputError(
            "this operator was not tuned here: it was loaded or compiled by hand, and the measurements of a search, which "
            "the page shows, are not saved with an operator; write the page where it is tuned "
            "(operator.report().save(path)), or call tune"
        )
    work = operator.workload
    entries = work.entries
    candidates = _candidates(result)
    generated = result.best_generated
    best = next(c.name for c in candidates if _is(c, result.best))
    best_generated = next((c.name for c in candidates if generated and _is(c, generated)), None)
    shown = _shown_program(operator, result)
    tensors = operator.tensors
    if not tensors and shown is not None:  # a library won: pack for the picture of the best generated kernel
        with contextlib.suppress(tensorwise.errors.TensorwiseError, MemoryError):
            tensors = GeneratedKernel(shown).bind(work, 1).tensors
    tensor = next(iter(tensors.values()), None)
    free = [
        i for i in work.assignment.indices if i not in work.assignment.access(next(iter(work.sparse))).indices
    ]
    peak, bandwidth, level = _roof(operator)
    rows, columns = entries.coordinates[:2]
    calls = result.break_even_calls
    return ReportData(
        title=f"Tensorwise: {work.op} of {name}",
        matrix=name,
        shape=entries.shape,
        nnz=entries.nnz,
        dtype=work.dtype_text,
        row_lengths=np.bincount(rows, minlength=entries.shape[0]),
        spy=spy_of(rows, columns, (entries.shape[0], entries.shape[1]), _block(shown)),
        op=work.op,
        threads=result.threads,
        flops=work.flops,
        candidates=candidates,
        best=best,
        best_generated=best_generated,
        fibertree=str(tensor) if tensor is not None else "",
        loops=str(shown) if shown is not None else "",
        source=operator.source()
        or (_source(shown, operator) if shown is not None and result.device == "cpu" else ""),
        n=work.sizes[free[0]] if free else None,
        stored_positions=len(tensor.values) if tensor is not None else None,
        costs={
            "conversion_s": result.best.conversion_s,
            "compile_s": result.compile_s,
            "tuning_s": result.tuning_s,
            "break_even_calls": calls,
            "held_bytes": result.best.bytes_held,
            "input_bytes": sum(a.nbytes for a in (*entries.coordinates, entries.values)),
            "candidates_measured": result.candidates_measured,
        },
        peak_flop_per_s=peak,
        bandwidth_bytes_per_s=bandwidth,
        bandwidth_of=level,
        baseline=against(result),
        break_even=_break_even(result),
        environment=_environment(result),
        notes=result.notes,
    )


def _candidates(result: TuneResult) -> list[Candidate]:
    """The standings of the rounds, then the candidates of the search that were not in them."""
    table = result.table
    library = min(result.baselines.values(), key=lambda s: s.seconds, default=None)

    def of(name: str, standing: Standing, key: str, baseline: bool) -> Candidate:
        timed = table is not None and key in table.names
        ratio = None
        if timed and table is not None and library is not None and library.name in table.names:
            ratio = table.ratio(key, library.name)
        return Candidate(
            name, standing.seconds, standing.spread_s, standing.format, standing.schedule, baseline,
            result.workload.compulsory_bytes, "ok" if math.isfinite(standing.seconds) else "not measured",
            # A library too slow for the rounds belongs into the chart all the same.
            in_rounds=timed or baseline, ratio=ratio,
            attempt=None if baseline else tried.pop((standing.format, standing.schedule), None),
            has_note=has_note(result, standing),
        )  # fmt: skip

    tried = _tried(result)
    found = [of(name, standing, name, True) for name, standing in result.baselines.items()]
    generated = result.best_generated
    if generated is not None:
        found.append(of("tensorwise", generated, "tensorwise", False))
    if result.default is not None:
        found.append(of(UNTUNED, result.default, "untuned", False))
    if not any(_is(c, result.best) for c in found):  # nothing could be measured
        best = result.best
        found.append(of(f"{best.name} (not measured)", best, "", best.name != "tensorwise"))
    known = {(c.format, c.schedule) for c in found}
    moved = result.workload.compulsory_bytes
    for number, trial in enumerate(result.trials, 1):
        one = trial.measurement
        _, format, schedule = program_texts(trial.program)
        if (format, schedule) not in known:
            made = Candidate(
                f"candidate {number}", one.seconds, one.spread_s, format, schedule, False, moved, one.status,
                in_rounds=False, attempt=_attempt(number, trial),
            )  # fmt: skip
            found.append(made)
    return found


def _tried(result: TuneResult) -> dict[tuple[str, str], Attempt]:
    """What the search measured, by format and schedule."""
    found: dict[tuple[str, str], Attempt] = {}
    for number, trial in enumerate(result.trials, 1):
        _, format, schedule = program_texts(trial.program)
        found.setdefault((format, schedule), _attempt(number, trial))
    return found


def _attempt(number: int, trial: Trial) -> Attempt:
    one = trial.measurement
    return Attempt(number, one.seconds, one.status, trial.at_s, trial.score)


def _break_even(result: TuneResult) -> tuple[float, float] | None:
    """Fewest and most calls after which the tuning is paid for, by the interval of the ratio of the rounds."""
    table, had = result.table, result.baselines.get(result.baseline) or result.default
    if table is None or had is None:
        return None
    name = had.name if had.name in table.names else "untuned"
    best = result.best.name
    if best == name or best not in table.names or name not in table.names:
        return None
    ratio, spent_s = table.ratio(best, name), result.tuning_s + result.best.conversion_s

    def calls(share: float) -> float:
        return spent_s / (had.seconds * (1 - share)) if share < 1 else math.inf

    return calls(ratio.low), calls(ratio.high)


def _is(candidate: Candidate, standing: Standing) -> bool:
    return (candidate.format, candidate.schedule) == (standing.format, standing.schedule) and (
        bool(standing.format) or candidate.name.split(" (")[0] == standing.name
    )


def _shown_program(operator: Operator, result: TuneResult) -> Program | None:
    """The program whose storage and loops are shown: the best generated one."""
    shown = operator.program if result.best_generated is None else result.best_generated.program
    return shown if isinstance(shown, Program) else operator.program


def _block(program: Program | None) -> tuple[int, int]:
    """Rows and columns of the format's dense blocks, (1, 1) for none."""
    if program is None:
        return 1, 1
    format = next(iter(program.formats.values()))
    dense = {level.axis.mode for level in format.levels if level.full and level.axis.part == "inner"}
    tall, wide = (format.splits.get(mode, 1) if mode in dense else 1 for mode in format.modes[:2])
    return tall, wide


def _source(program: Program, operator: Operator) -> str:
    with contextlib.suppress(tensorwise.errors.TensorwiseError):
        return "\n".join(GeneratedKernel(program).texts(operator.workload))
    return ""


def _roof(operator: Operator) -> tuple[float | None, float | None, str]:
    """Peak arithmetic, and the bandwidth of the smallest level that holds all that a call moves."""
    if operator.result is None or operator.result.device != "cpu":
        return None, None, ""
    try:
        peak = roofline(operator.threads)
    except CompilerError:
        return None, None, ""
    level = level_holding(operator.workload.compulsory_bytes, operator.threads)
    return peak.flops[str(operator.workload.dtype)], peak.bandwidth[level], level


def _environment(result: TuneResult) -> dict[str, str]:
    found = (
        _cpu_facts(result.threads)
        if result.device == "cpu"
        else {"Device": f"{result.device}, {result.host}"}
    )
    found["Versions"] = (
        f"Tensorwise {tensorwise.__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    )
    if result.table is not None:
        table = result.table
        found["Timing"] = f"{len(table.rounds)} interleaved rounds, caches {table.cache}"
    found["Date"] = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return found


def _cpu_facts(threads: int) -> dict[str, str]:
    facts = host()
    size = {"L1": facts.l1d_bytes, "L2": facts.l2_bytes, "L3": facts.l3_bytes}
    found = {
        "Processor": facts.cpu,
        "Cores": f"{facts.physical_cores} physical, {facts.logical_cores} logical; {threads} used",
        "Caches": ", ".join(f"{level} {_bytes(held)}" for level, held in size.items() if held),
        "Memory": _bytes(facts.memory_bytes),
        "System": facts.os,
    }
    with contextlib.suppress(CompilerError):
        compiler = find_compiler()
        found["Compiler"] = compiler.version
        found["Flags"] = " ".join(compiler.flags)
    return found


def _bytes(count: int) -> str:
    for scale, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} B"
