"""What a tuning found, and its price: the candidates that were tried, the kernels of the last rounds, the answer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, final

from tensorwise.device.device import Measurement
from tensorwise.device.rounds import Ratio, RoundTable
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config

TEXTS: Final = "tensorwise.tuning.result_text"
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
        """Return the number of calls after which tuning and conversion have paid off against ``baseline``; inf if never.

        If no library has the operation, the untuned kernel takes the place of the baseline.
        """
        had = self.baselines.get(self.baseline) or self.default
        if had is None or had.seconds <= self.best.seconds or self.best.name == self.baseline:
            return math.inf
        return math.ceil((self.tuning_s + self.best.conversion_s) / (had.seconds - self.best.seconds))

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON; the keys are documented and stable (docs/command-line.md)."""
        return dict(import_module(TEXTS).result_json(self))  # by name: a search needs no text

    def text(self) -> str:
        """Return the answer for people: a table of times and the costs; ``str`` has the choice and the costs alone."""
        return str(import_module(TEXTS).result_text(self))

    def __str__(self) -> str:
        return str(import_module(TEXTS).result_summary(self))
