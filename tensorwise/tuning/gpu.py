"""Tuning one operation for a GPU: the search of every tuning; then the best few and cuSPARSE meet in rounds."""

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from tensorwise.data.store import Store
from tensorwise.device.cuda import CudaDevice
from tensorwise.device.libraries.cusparse import CusparseKernel
from tensorwise.device.rounds import RoundTable
from tensorwise.errors import InputError
from tensorwise.model import CostModel, MetricsModel
from tensorwise.program.program import Program
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config
from tensorwise.space.cuda import CudaSpace
from tensorwise.tuning.result import Trial
from tensorwise.tuning.searching import Observe, Progress, Search, budget_of, check_limits
from tensorwise.units import time_text

BUDGET_S: Final = 60.0
"""Seconds of a tuning where no budget is given."""
FINALISTS: Final = 4
"""Generated kernels that meet cuSPARSE in the rounds."""
LIBRARY: Final = CusparseKernel.name
POOL: Final = 2000
"""Configs that a model is asked about."""
COMPILED: Final = 80
"""Configs of these that are compiled, for what the model says when it knows their registers."""
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
    rng = np.random.default_rng(seed)
    with contextlib.nullcontext(device) if device is not None else CudaDevice(seed=seed) as device:
        search = Search(
            work, device, start, budget_of(budget_s, trials, BUDGET_S), trials, None, store, progress, observe
        )
        space = device.space(work)
        first = [space.default(work), *(promising(model, space, work, device, rng) if model else [])]
        # However fast cuSPARSE is, programs are found: it meets them in the rounds.
        search.run(strategy, rng, libraries=False, starts=first)
        ranked = sorted((t for t in search.trials if t.measurement.ok), key=lambda t: t.measurement.seconds)
        kernels: dict[str, Program | str] = {
            str(place): trial.program for place, trial in enumerate(ranked[:FINALISTS])
        }
        kernels |= {name: name for name in device.libraries(work)}
        unrun = search.interrupted or search.worker_lost or not ranked
        table = None if unrun else device.rounds(work, kernels)
        return _answer(search, device, ranked, table)


def promising(
    model: CostModel,
    space: CudaSpace,
    work: Workload,
    device: CudaDevice,
    rng: np.random.Generator,
    kept: int = KEPT,
) -> list[Config]:
    """Return the ``kept`` configs that a model predicts to be the best among POOL drawn ones, the best first.

    A MetricsModel is asked again about the best of them, which are compiled, so that it knows their registers and spills.

    Raises InputError where the model cannot read configs of ``space``.
    """
    if why := model.misfit(space):
        raise InputError(f"the model cannot be used here: {why}")
    drawn = list(dict.fromkeys(space.sample(work, rng) for _ in range(POOL)))
    best = _cheapest(drawn, model.predict(work, drawn, device))
    if isinstance(model, MetricsModel):
        best = best[:COMPILED]
        taken = device.resources(work, [space.program(work, config) for config in best])
        best = _cheapest(best, model.predict(work, best, device, taken))
    return best[:kept]


def _cheapest(configs: Sequence[Config], predicted: np.ndarray) -> list[Config]:
    return [configs[place] for place in np.argsort(predicted, kind="stable")]


def _answer(
    search: Search[CudaDevice], device: CudaDevice, ranked: Sequence[Trial], table: RoundTable | None
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
    wrong = [trial for trial in search.trials if trial.measurement.status in ("wrong", "crash")]
    if wrong:
        search.notes.append(
            f"{len(wrong)} candidates failed, such as {wrong[0].program.name}: {wrong[0].measurement.note}"
        )
    return GpuResult(
        search.work, str(device.facts["name"]), winner.program if winner else None, seconds, ratio, search.trials,
        search.spent(), device.compile_s, search.notes,
    )  # fmt: skip
