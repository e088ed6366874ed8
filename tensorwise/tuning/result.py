"""What a tuning found, and its price: the candidates that were tried, the kernels of the last rounds, the answer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from tensorwise.device.device import Measurement
from tensorwise.device.rounds import Ratio, RoundTable
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config
from tensorwise.units import time_text

HAD: Final = "scipy"
"""Library that a CPU's user has without tuning: the baseline of break-even."""


def program_texts(program: Any) -> tuple[str, str, str]:
    """Return name, format and schedule of a config's program as texts.

    A program without ``format_text`` and ``schedule_text`` is shown whole as the schedule.
    """
    if program is None:
        return "", "", ""
    name, schedule = getattr(program, "name", str(program)), getattr(program, "schedule_text", str(program))
    return str(name), str(getattr(program, "format_text", "")), str(schedule)


@final
@dataclass(frozen=True)
class Trial:
    """One candidate that was tried in the search; ``program`` is what the device's space makes of ``config``,
    ``at_s`` the seconds from the begin of the tuning to its measurement, ``score`` a model's (see `Forecast`; or None)."""

    config: Config
    program: Any
    measurement: Measurement
    at_s: float = math.nan
    score: float | None = None


@final
@dataclass(frozen=True)
class Standing:
    """A kernel in the last rounds.

    Attributes:
        name: ``tensorwise`` or a library's name.
        format, schedule: of generated code; empty for a library.
        seconds: median of a call; spread_s: interquartile range.
        rounds: how many rounds it was timed in; 0 means that it was too slow for the rounds and the
            time is that of the screening.
        program: of generated code; None for a library.
    """

    name: str
    format: str
    schedule: str
    seconds: float
    spread_s: float
    rounds: int
    conversion_s: float
    bytes_held: int
    program: Any = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the documented keys of the command line's answer."""
        return {"name": self.name, "format": self.format, "schedule": self.schedule, "seconds": self.seconds}


def _ratio_text(seconds: float, best: float) -> str:
    """One time over another as text; a dash where they do not compare."""
    return f"{seconds / best:.2f}" if math.isfinite(seconds) and 0 < best < math.inf else "-"


@final
@dataclass
class TuneResult:
    """What a tuning found, and its price.

    Attributes:
        best: what the operator calls; best_generated: the fastest generated kernel, None if none ran.
        baselines: library name -> its standing, in the same rounds as ``best`` and ``best_generated``.
        default: the untuned generated kernel in the same rounds, where it is not ``best_generated``.
        ratio: time of best over time of the best library, median of in-round ratios (1 for a library).
        trials: every candidate of the search.
        tuning_s: wall seconds of the whole tuning, compilation included; compile_s: of compilation.
        verified: the winner's numbers were right, before and after timing.
        notes: what a reader should know: interruption, disturbed rounds, failures.
        device, host: name of the device, and of the machine that it is.
        baseline: library that a user calls without Tensorwise, against which break-even is counted.
        waited_s: of ``tuning_s``, what was spent waiting: for other processes that time or compile, and for the
            measuring process to start.
    """

    workload: Workload
    threads: int
    best: Standing
    best_generated: Standing | None
    baselines: Mapping[str, Standing]
    default: Standing | None
    ratio: float
    trials: Sequence[Trial]
    tuning_s: float
    compile_s: float
    verified: bool
    table: RoundTable | None
    notes: list[str] = field(default_factory=list)
    waited_s: float = 0.0
    device: str = "cpu"
    host: str = ""
    baseline: str = HAD

    @property
    def candidates_measured(self) -> int:
        """Generated candidates that ran, gave right numbers and were timed."""
        return sum(trial.measurement.status in ("ok", "censored") for trial in self.trials)

    @property
    def generated_ratio(self) -> Ratio | None:
        """Time of ``best_generated`` over that of the fastest library of the same rounds; None where one was in none."""
        timed = [standing for standing in self.baselines.values() if standing.rounds]
        if self.table is None or self.best_generated is None or not self.best_generated.rounds or not timed:
            return None
        return self.table.ratio("tensorwise", min(timed, key=lambda standing: standing.seconds).name)

    @property
    def break_even_calls(self) -> float:
        """Calls after which tuning and conversion are paid for, against what the user had; inf if never.

        Where no library computes it, that is the untuned kernel.
        """
        had = self.baselines.get(self.baseline) or self.default
        if had is None or had.seconds <= self.best.seconds or self.best.name == self.baseline:
            return math.inf
        return math.ceil((self.tuning_s + self.best.conversion_s) / (had.seconds - self.best.seconds))

    @property
    def _where(self) -> str:
        """Where it runs, in words."""
        if self.device == "cpu":
            return f"{self.threads} thread{'s'[: self.threads > 1]}"
        return f"on {self.device}" + (f" ({self.host})" if self.host not in ("", self.device) else "")

    @property
    def against(self) -> str:
        """What break-even is counted against, in words."""
        if self.baseline not in self.baselines:
            return "the untuned kernel"
        return "SciPy" if self.baseline == HAD else self.baseline

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON; the keys are documented and stable (docs/command-line.md)."""
        calls = self.break_even_calls
        generated = self.best_generated.to_json() if self.best_generated else None
        if generated is not None:
            ratio = self.generated_ratio
            generated |= {
                "ratio_to_best_library": ratio.median if ratio else None,
                "ratio_spread": ratio.spread if ratio else None,
            }
        return {
            "op": self.workload.op,
            "device": self.device,
            "host": self.host,
            "threads": self.threads,
            "sizes": dict(self.workload.sizes),
            "nnz": self.workload.entries.nnz,
            "dtype": self.workload.dtype_text,
            "best": self.best.to_json(),
            "best_generated": generated,
            "baselines": {name: standing.seconds for name, standing in self.baselines.items()},
            "ratio_to_best_library": self.ratio,
            "candidates_measured": self.candidates_measured,
            "conversion_s": self.best.conversion_s,
            "compile_s": self.compile_s,
            "tuning_s": self.tuning_s,
            "waited_s": self.waited_s,
            "break_even_calls": None if math.isinf(calls) else int(calls),
            "bytes_held": self.best.bytes_held,
            "verified": self.verified,
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Return the answer for people: a table of times and the costs."""
        rows = [self.best, *([self.best_generated] if self.best_generated else [])]
        rows += [*([self.default] if self.default else []), *self.baselines.values()]
        seen: dict[tuple[str, str, str], Standing] = {}
        for row in rows:
            seen.setdefault((row.name, row.format, row.schedule), row)
        lines = [
            f"{self.workload.op} on {' x '.join(map(str, self.workload.entries.shape))}, "
            f"{self.workload.entries.nnz} entries, {self.workload.dtype_text}, {self._where}",
            f"{'kernel':<12} {'time':>10} {'spread':>9} {'x best':>7}  format; schedule",
        ]
        for row in sorted(seen.values(), key=lambda row: row.seconds):
            what = f"{row.format}; {row.schedule}" if row.format else ""
            if row == self.default:
                what += "  (untuned)"
            if row.rounds == 0 and self.table is not None:
                what += "  (too slow for the rounds)"
            marker = "*" if row == self.best else " "
            lines.append(
                f"{row.name:<11}{marker} {time_text(row.seconds):>10} {time_text(row.spread_s):>9} "
                f"{_ratio_text(row.seconds, self.best.seconds):>6}x  {what}".rstrip()
            )
        calls = self.break_even_calls
        lines.append(
            f"{len(self.trials)} candidates tried, {self.candidates_measured} measured; tuning {self.tuning_s:.1f} s "
            f"(compiling {self.compile_s:.1f} s, waiting {self.waited_s:.1f} s), "
            f"conversion {time_text(self.best.conversion_s)}, {self.best.bytes_held / 1e6:.2f} MB held"
        )
        if self.baselines or self.trials:  # otherwise nothing was compared
            when = f"after {int(calls)} calls" if math.isfinite(calls) else "never"
            lines.append(f"breaks even {when} against {self.against}")
        lines.extend(f"note: {note}" for note in self.notes)
        return "\n".join(lines)
