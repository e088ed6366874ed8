"""Tuning one operation for a GPU: ask, measure, tell; then the best few and cuSPARSE meet in rounds."""

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from tensorwise.data.record import Record
from tensorwise.data.store import Store
from tensorwise.device.cuda import CudaDevice
from tensorwise.device.device import Device, Measurement
from tensorwise.device.libraries.cusparse import CusparseKernel
from tensorwise.device.rounds import RoundTable
from tensorwise.errors import InputError, StoreError
from tensorwise.model import CostModel
from tensorwise.program.program import Program
from tensorwise.program.workload import Workload
from tensorwise.result import Trial
from tensorwise.search import STRATEGIES
from tensorwise.searching import Observe, Progress, check_limits
from tensorwise.space.config import Config
from tensorwise.space.cuda import CudaSpace
from tensorwise.units import time_text

BATCH: Final = 16
"""Configs asked for at a time."""
SEARCH_SHARE: Final = 0.8
"""Share of the budget for the search; the rest is for rounds, which decide."""
FINALISTS: Final = 4
"""Generated kernels that meet cuSPARSE in the rounds."""
LIBRARY: Final = "cusparse"
POOL: Final = 2000
"""Configs that a model is asked about."""
KEPT: Final = 20
"""Configs of these that are tried: 5 to 20 in the paper."""


@final
@dataclass(frozen=True)
class GpuResult:
    """What a tuning for a GPU found.

    Attributes:
        gpu: its name.
        program: the fastest generated program that was right; None where none ran.
        seconds: of a call, its operands in the GPU's memory; of the program and of cuSPARSE, infinite where it did not run.
        ratio: time of the program over that of cuSPARSE, median of in-round ratios; 0 where they did not meet.
        trials: every candidate of the search.
        tuning_s, compile_s: wall seconds of all of it, and of NVRTC.
    """

    workload: Workload
    gpu: str
    program: Program | None
    seconds: Mapping[str, float]
    ratio: float
    trials: Sequence[Trial]
    tuning_s: float
    compile_s: float
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return what was found, for people."""
        lines = [f"{self.workload.einsum} on {self.gpu}"]
        if self.program is not None:
            lines += [f"  {self.program.name}", f"  {time_text(self.seconds['tensorwise'])} a call"]
        if math.isfinite(self.seconds[LIBRARY]):
            faster = f", {1 / self.ratio:.2f} times as long" if self.ratio else ""
            lines.append(f"  cuSPARSE takes {time_text(self.seconds[LIBRARY])}{faster}")
        ran = sum(trial.measurement.ok for trial in self.trials)
        lines.append(f"  {ran} of {len(self.trials)} candidates ran and were right, in {self.tuning_s:.1f} s")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def to_json(self) -> dict[str, Any]:
        """Return the documented keys of the command line's answer."""
        program = self.program
        return {
            "device": "cuda", "gpu": self.gpu, "einsum": str(self.workload.einsum),
            "format": program.format_text if program else "", "schedule": program.schedule_text if program else "",
            "seconds": self.seconds["tensorwise"], "cusparse_seconds": self.seconds[LIBRARY], "ratio": self.ratio,
            "candidates": len(self.trials), "tuning_s": self.tuning_s, "compile_s": self.compile_s, "notes": self.notes,
        }  # fmt: skip


def tune_gpu(
    work: Workload,
    *,
    budget_s: float | None = None,
    trials: int | None = None,
    strategy: str = "genetic",
    model: CostModel | None = None,
    store: Store | bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    observe: Observe | None = None,
    device: CudaDevice | None = None,
) -> GpuResult:
    """Find the fastest program for a workload on this machine's GPU.

    Args:
        budget_s: wall seconds for all of it (default 60, unlimited when ``trials`` is given).
        trials: most candidates to try.
        strategy: a name of ``tensorwise.search.STRATEGIES``.
        model: what says which configs are tried first: the KEPT best of POOL that are drawn, from which a genetic search
            goes on (G-Sparse, section III-D).
        store: where measurements are remembered: a Store, True for the default one, False for nowhere.
        seed: of operands and search.
        progress: called as the work goes on.
        observe: called with each candidate that was tried.
        device: the GPU, which stays open (default: the first one, for this tuning).

    Raises:
        MissingExtraError: CuPy is not installed.
        MeasurementError: there is no GPU that can be used.
        InputError: an argument makes no sense.
    """
    check_limits(budget_s, trials, None, strategy)
    start = time.perf_counter()
    budget = budget_s if budget_s is not None else (60.0 if trials is None else math.inf)
    most, notes = math.inf if trials is None else trials, list[str]()
    tried: list[Trial] = []
    with contextlib.nullcontext(device) if device is not None else CudaDevice(seed=seed) as device:
        space = device.space(work)
        rng = np.random.default_rng(seed)
        first = [space.default(work), *(promising(model, space, work, device, rng) if model else [])]
        search = STRATEGIES[strategy](space, work, rng, seeds=list(dict.fromkeys(first)))
        home = _home(store, notes)
        libraries = [LIBRARY] if CusparseKernel.why_not(work) is None else []
        best = math.inf
        try:
            while len(tried) < most and time.perf_counter() - start < SEARCH_SHARE * budget:
                configs = search.ask(int(min(BATCH, most - len(tried))))
                if not configs:
                    break
                programs = [space.program(work, config) for config in configs]
                told: list[Measurement] = []
                for config, program, found in zip(
                    configs, programs, device.measure_kernels(work, programs, best), strict=False
                ):
                    told.append(found)
                    tried.append(Trial(config, program, found))
                    best = min(best, found.seconds if found.ok else math.inf)
                    if home is not None:
                        home.append([Record.of(found, work, device, space.name, config, device.provenance)])
                    if observe is not None:
                        observe(tried[-1])
                    if progress is not None:
                        share = max(len(tried) / most, (time.perf_counter() - start) / budget)
                        progress(f"{len(tried)} candidates", min(1.0, share))
                search.tell(configs[: len(told)], [found.cost for found in told])
        except KeyboardInterrupt:
            notes.append("interrupted: this is the best found so far")
        ranked = sorted((t for t in tried if t.measurement.ok), key=lambda t: t.measurement.seconds)
        finalists = {str(place): trial.program for place, trial in enumerate(ranked[:FINALISTS])}
        table = device.rounds(work, {**finalists, **dict.fromkeys(libraries, LIBRARY)}) if finalists else None
        return _answer(work, device, tried, ranked, table, time.perf_counter() - start, notes)


def promising(
    model: CostModel,
    space: CudaSpace,
    work: Workload,
    device: Device,
    rng: np.random.Generator,
    kept: int = KEPT,
) -> list[Config]:
    """Return the ``kept`` configs that a model predicts to be the best among POOL drawn ones, the best first.

    Raises InputError where the model cannot read configs of ``space``.
    """
    if why := model.misfit(space):
        raise InputError(f"the model cannot be used here: {why}")
    drawn = list(dict.fromkeys(space.sample(work, rng) for _ in range(POOL)))
    predicted = model.predict(work, drawn, device)
    return [drawn[place] for place in np.argsort(predicted, kind="stable")[:kept]]


def _answer(
    work: Workload,
    device: CudaDevice,
    tried: Sequence[Trial],
    ranked: Sequence[Trial],
    table: RoundTable | None,
    tuning_s: float,
    notes: list[str],
) -> GpuResult:
    """Say who won the rounds, or the search where there were none."""
    winner, ratio = (ranked[0] if ranked else None), 0.0
    seconds = {"tensorwise": winner.measurement.seconds if winner else math.inf, LIBRARY: math.inf}
    if table is not None:
        fastest = min((name for name in table.names if name != LIBRARY), key=table.median)
        winner = ranked[int(fastest)]
        seconds["tensorwise"] = table.median(fastest)
        if LIBRARY in table.names:
            seconds[LIBRARY], ratio = table.median(LIBRARY), table.ratio(fastest, LIBRARY).median
    wrong = [trial for trial in tried if trial.measurement.status in ("wrong", "crash")]
    if wrong:
        notes.append(
            f"{len(wrong)} candidates failed, such as {wrong[0].program.name}: {wrong[0].measurement.note}"
        )
    program = winner.program if winner else None
    return GpuResult(
        work, str(device.facts["name"]), program, seconds, ratio, tried, tuning_s, device.compile_s, notes
    )


def _home(store: Store | bool, notes: list[str]) -> Store | None:
    if not isinstance(store, bool):
        return store
    try:
        return Store() if store else None
    except StoreError as error:
        notes.append(f"measurements are not remembered: {error}")
        return None
