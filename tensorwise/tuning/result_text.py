"""The answer of a tuning as text, with a table of times, the costs and notes, and as JSON."""

import math
from collections import Counter
from typing import Any

from tensorwise.device.device import STATUSES
from tensorwise.tuning.result import HAD, Standing, TuneResult
from tensorwise.units import time_text


def result_text(result: TuneResult) -> str:
    """Return a tuning's answer for people.

    A row is a kernel: median seconds of a call, their interquartile range, the time over that of the kernel in use
    (``*``) as the median of the rounds' ratios, and in which interval that median lies (see
    `tensorwise.device.rounds.Ratio`).
    """
    best = result.best
    names = {
        **result.baselines,
        **({"tensorwise": result.best_generated} if result.best_generated else {}),
        **({"untuned": result.default} if result.default else {}),
    }
    rows: dict[tuple[str, str, str], tuple[str, Standing]] = {}
    for name, row in [*names.items(), ("", best)]:
        rows.setdefault((row.name, row.format, row.schedule), (name, row))
    lines = [_problem(result)]
    if math.isfinite(best.seconds):
        lines.append(
            f"{'kernel':<12} {'time':>10} {'spread':>9} {'x best':>7} {'interval':>12}  format; schedule"
        )
        used = next((name for name, row in rows.values() if row == best), "")
        for name, row in sorted(rows.values(), key=lambda one: one[1].seconds):
            lines.append(_row_text(result, name, row, used))
    else:
        lines.append(
            f"kernel: {'; '.join(filter(None, (best.name, best.format, best.schedule)))}  (untuned, not timed)"
        )
    lines.append(
        f"{len(result.trials)} candidates tried, {result.candidates_measured} measured; tuning {_spent(result)}"
    )
    lines += _break_even(result)
    lines.extend(f"note: {note}" for note in result.notes)
    return "\n".join(lines)


def result_summary(result: TuneResult) -> str:
    """Return a tuning's answer in a few lines: the chosen kernel, its speed, the trials by status, and what was spent."""
    best = result.best
    chosen = "; ".join(filter(None, (best.name, best.format, best.schedule)))
    times = "not measured"
    if math.isfinite(best.seconds):
        times = f"{time_text(best.seconds)} a call"
        had = against(result), result.baseline, result.baselines.get(result.baseline)
        for name, key, other in (("the untuned kernel", "untuned", result.default), had):
            if other is not None and other != best and best.seconds > 0:
                ratio, table = other.seconds / best.seconds, result.table
                if table is not None and {key, best.name} <= {*table.names}:
                    ratio = table.ratio(key, best.name).median
                times += f", {ratio:.2f} times as fast as {name}"
    statuses = Counter(trial.measurement.status for trial in result.trials)
    by_status = ", ".join(f"{statuses[status]} {status}" for status in STATUSES if statuses[status])
    return "\n".join(
        [
            _problem(result),
            f"chosen: {chosen}",
            f"time: {times}",
            f"trials: {len(result.trials)}" + f" ({by_status})" * bool(by_status),
            f"spent: {_spent(result)}",
            *_break_even(result),
        ]
    )


def _problem(result: TuneResult) -> str:
    work = result.workload
    name = work.assignment if work.op == "einsum" else work.op
    shape = " x ".join(map(str, work.entries.shape))
    return f"{name} on {shape}, {work.entries.nnz} entries, {work.dtype_text}, {_where(result)}"


def _spent(result: TuneResult) -> str:
    best = result.best
    return (
        f"{result.tuning_s:.1f} s (compiling {result.compile_s:.1f} s, waiting {result.waited_s:.1f} s), "
        f"conversion {time_text(best.conversion_s)}, {best.bytes_held / 1e6:.2f} MB held"
    )


def _break_even(result: TuneResult) -> list[str]:
    """Return the line on when the tuning is paid for; none where nothing was compared."""
    if not math.isfinite(result.best.seconds) or not (result.baselines or result.trials):
        return []
    calls = result.break_even_calls
    when = f"after {int(calls)} calls" if math.isfinite(calls) else "never"
    return [f"breaks even {when} against {against(result)}"]


def result_json(result: TuneResult) -> dict[str, Any]:
    """Return the answer as JSON; see `TuneResult.to_json`."""
    calls = result.break_even_calls
    generated = result.best_generated.to_json() if result.best_generated else None
    if generated is not None:
        ratio = result.generated_ratio
        generated |= {
            "ratio_to_best_library": ratio.median if ratio else None,
            "ratio_spread": ratio.spread if ratio else None,
        }
    return {
        "op": result.workload.op,
        "device": result.device,
        "host": result.host,
        "threads": result.threads,
        "sizes": dict(result.workload.sizes),
        "nnz": result.workload.entries.nnz,
        "dtype": result.workload.dtype_text,
        "best": result.best.to_json(),
        "best_generated": generated,
        "baselines": {name: standing.seconds for name, standing in result.baselines.items()},
        "ratio_to_best_library": result.ratio,
        "candidates_measured": result.candidates_measured,
        "conversion_s": result.best.conversion_s,
        "compile_s": result.compile_s,
        "tuning_s": result.tuning_s,
        "waited_s": result.waited_s,
        "break_even_calls": None if math.isinf(calls) else int(calls),
        "bytes_held": result.best.bytes_held,
        "verified": result.verified,
        "notes": list(result.notes),
    }


def _row_text(result: TuneResult, name: str, row: Standing, used: str) -> str:
    """Return a kernel's row; ``name`` and ``used`` are its name and that of the kernel in use in the table of rounds."""
    what = f"{row.format}; {row.schedule}" if row.format else ""
    if row == result.default:
        what += "  (untuned)"
    if row.rounds == 0 and result.table is not None:
        what += "  (too slow for the rounds)"
    if has_note(result, row):
        what += "  (see its note)"
    times, interval = "-", ""
    if row.rounds and result.table is not None and name != used and {name, used} <= {*result.table.names}:
        ratio = result.table.ratio(name, used)
        times, interval = f"{ratio.median:.2f}x", f"{ratio.low:.2f}-{ratio.high:.2f}"
    elif math.isfinite(row.seconds) and result.best.seconds > 0:
        times = f"{row.seconds / result.best.seconds:.2f}x"
    marker = "*" if row == result.best else " "
    return (
        f"{row.name:<11}{marker} {time_text(row.seconds):>10} {time_text(row.spread_s or math.inf):>9} {times:>7} "
        f"{interval:>12}  {what}"
    ).rstrip()


def has_note(result: TuneResult, row: Standing) -> bool:
    """Whether a note says on what condition a library ran, such as MKL without its own optimisation."""
    return not row.format and any(note.startswith(f"{row.name}: ") for note in result.notes)


def _where(result: TuneResult) -> str:
    """Return where it runs, in words."""
    if result.device == "cpu":
        return f"{result.threads} thread{'s'[: result.threads > 1]}"
    return f"on {result.device}" + (f" ({result.host})" if result.host not in ("", result.device) else "")


def against(result: TuneResult) -> str:
    """Return what break-even is counted against, in words."""
    if result.baseline not in result.baselines:
        return "the untuned kernel"
    return "SciPy" if result.baseline == HAD else result.baseline
