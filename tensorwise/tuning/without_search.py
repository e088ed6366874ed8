"""Choosing a kernel without a search, for operators that are called too rarely for a search to pay.

At most three kernels are timed, for about two calls each, in this process: the default kernel of the space, SciPy's, and
the portfolio structure that a model predicts to be the fastest. A kernel is timed only where its expected saving exceeds
the cost of compiling and timing it. `SPEEDUP_PRIORS` give the expected speed-up of a search; where that speed-up pays for
the search, this module returns None.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from tensorwise.device.library import LIBRARY
from tensorwise.device.timing import time_calls
from tensorwise.errors import MeasurementError, TensorwiseError
from tensorwise.program.workload import Workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.kernel import BoundKernel, Kernel
from tensorwise.space.portfolio import portfolio
from tensorwise.toolchain.cache import default_cache
from tensorwise.tuning.operator import Operator, default_kernel, operator_of
from tensorwise.tuning.result import HAD, Standing, TuneResult
from tensorwise.tuning.searching import Search
from tensorwise.tuning.worth import Prospect, cheapest, total_s, worth_s

UNTUNED, PREDICTED = "untuned", "predicted"
"""Names of the default kernel and of the kernel that a model predicts to be the fastest; SciPy's is `HAD`."""


@final
@dataclass(frozen=True)
class SpeedupPrior:
    """Log-normal prior of an operation's speed-ups, measured over the corpus.

    Attributes:
        default: geometric mean of the default kernel's speed-up over SciPy.
        default_spread: standard deviation of that speed-up's logarithm.
        search: geometric mean of the speed-up of a search's best kernel over the default kernel.
        search_spread: standard deviation of that speed-up's logarithm.
    """

    default: float
    default_spread: float
    search: float
    search_spread: float


SPEEDUP_PRIORS: Final[Mapping[str, SpeedupPrior]] = {
    "spmv": SpeedupPrior(1.4, 0.43, 1.75, 0.43),
    "spmm": SpeedupPrior(2.6, 0.26, 1.25, 0.19),
    "sddmm": SpeedupPrior(8.0, 0.38, 1.03, 0.09),
    "mttkrp": SpeedupPrior(4.1, 0.27, 1.3, 0.18),
}
"""Priors by operation, from ``benchmarks/results/kernels.json``: every tenth matrix of the corpus, one thread."""
DEFAULT_PRIOR: Final = SpeedupPrior(1.5, 0.4, 1.3, 0.3)
"""Prior of operations that were not measured over the corpus."""
START_S: Final = 1.0
"""Seconds of a search's fixed costs: starting the worker, timing the libraries, the first candidates, the final rounds."""
COMPILE_S: Final = 0.4
"""Seconds to compile one kernel."""
CONVERSION_S_PER_ENTRY: Final = 25e-9
"""Seconds to pack one entry into another format (``benchmarks/results/packing.json``)."""
INFERENCE_S: Final = 0.1
"""Seconds of model inference for all portfolio structures."""
FEATURE_S_PER_ENTRY: Final = 15e-9
"""Seconds of feature extraction for one entry of the pattern (``benchmarks/results/features.json``)."""
NUM_PREDICTED: Final = 4
"""How many portfolio structures, fastest prediction first, are considered for timing."""
CALLS_PER_KERNEL: Final = 2
"""Calls made to time one kernel."""
TOLERANCE: Final = 1e-3
"""Largest difference allowed between two kernels' results, relative to the largest result; wrong kernels differ by more."""
TOLERANCE_16_BIT: Final = 2e-2
"""The same tolerance where operands are stored in 16 bits."""
OPERAND_VALUES: Final = 0.5 + np.arange(1021) ** 2 % 1021 / 1021
"""Values that fill the operands: cheap to repeat, and varied enough for a wrong gather to change the result."""
MAX_SEARCH_SHARE: Final = 0.25
"""Largest share of the run time of all expected calls that a search may spend beyond `START_S`.

A search that finds nothing faster loses this time.
"""


def tune_without_search(search: Search) -> Operator | None:
    """Return an operator without a search, or None where a search is needed.

    A search is needed where its expected saving exceeds its cost, where ``expected_calls`` is unset, where ``trials`` is
    set, and on devices other than this process's CPU. Where a search pays, its ``budget_s`` is reduced to a share of the
    run time of all calls.

    SciPy is not timed where it lacks the operation, nor where the default kernel is already compiled and the expected
    calls would not repay two calls of SciPy's kernel.
    """
    work, calls = search.work, search.limits.calls
    if not search.device.in_process or calls is None or search.limits.trials is not None:
        return None
    prior = SPEEDUP_PRIORS.get(work.op.removesuffix("_t"), DEFAULT_PRIOR)
    contest = _Contest(work, search.device.threads)
    untuned = _time_baselines(contest, prior, calls, search.notes)
    if untuned is None:
        return None
    best = cheapest(contest.known, calls)  # includes conversions already done
    searched = Prospect(
        contest.known[best].seconds / prior.search,
        prior.search_spread,
        CONVERSION_S_PER_ENTRY * work.entries.nnz,
        START_S,
    )
    if worth_s(searched, contest.known[best], calls) > 0:
        most_s = START_S + MAX_SEARCH_SHARE * total_s(contest.known[best], calls)
        search.limits = replace(search.limits, budget_s=min(search.limits.budget_s, most_s))
        return None
    inference = replace(searched, price_s=INFERENCE_S + FEATURE_S_PER_ENTRY * work.entries.nnz)
    inference_pays = worth_s(inference, contest.known[best], calls) > 0
    if (
        inference_pays
        and (kernel := _find_predicted(search, untuned, contest.known[best], calls)) is not None
    ):
        try:
            contest.enter(PREDICTED, kernel, check=True)
        except (TensorwiseError, MemoryError) as error:
            search.notes.append(
                f"the kernel that the model predicted to be the fastest cannot be used here: {error}"
            )
        best = cheapest(contest.known, calls)
    return contest.answer(best, search)


def _time_baselines(
    contest: "_Contest", prior: SpeedupPrior, calls: float, notes: list[str]
) -> Prospect | None:
    """Time the default kernel and SciPy's kernel, each only where timing it pays.

    Returns:
        The measured or expected run time of the default kernel; None where neither kernel can run.
    """
    work, had, default = contest.work, LIBRARY[HAD](), default_kernel(contest.work)
    able = had.why_not(work) is None
    price_s = _price_s(default, work) if isinstance(default, GeneratedKernel) else math.inf
    if not able and price_s == math.inf:
        return None
    if able and price_s > 0:
        contest.enter(HAD, had)
        expected = Prospect(contest.known[HAD].seconds / prior.default, prior.default_spread, price_s=price_s)
        if (
            worth_s(expected, contest.known[HAD], calls) <= 0
        ):  # price_s is infinite where no C kernel can be generated
            return expected
    try:
        contest.enter(UNTUNED, default)
    except (TensorwiseError, MemoryError) as error:
        if not able:
            raise
        notes.append(f"the default kernel cannot be used here: {error}")
        if HAD not in contest.known:
            contest.enter(HAD, had)
        return Prospect(contest.known[HAD].seconds / prior.default, prior.default_spread)
    untuned = contest.known[UNTUNED]
    if able and HAD not in contest.known:
        seconds = untuned.seconds * prior.default
        library = Prospect(seconds, prior.default_spread, price_s=CALLS_PER_KERNEL * seconds)
        if worth_s(library, Prospect(untuned.seconds), calls) > 0:  # the default kernel is already converted
            contest.enter(HAD, had)
        else:
            notes.append(
                f"{HAD} was not timed: it usually takes {prior.default:g} times as long, and {calls:g} calls would "
                "not repay timing it"
            )
    return untuned


def _price_s(kernel: GeneratedKernel, work: Workload) -> float:
    """Return the seconds until a kernel can be called: 0 where it is in the cache, else the compile time."""
    return 0.0 if default_cache().holds(kernel.texts(work)) else COMPILE_S


def _find_predicted(
    search: Search, untuned: Prospect, best: Prospect, calls: float
) -> GeneratedKernel | None:
    """Return the portfolio structure with the fastest prediction that is worth timing; None without one or without a model.

    Args:
        untuned: measured run time of the default kernel, to which the model's predictions are relative.
        best: the fastest kernel so far, which is returned where no prediction pays.
    """
    if search.advisor is None or search.doubtful:
        return None
    work, space = search.work, search.space
    configs = portfolio(space, work)
    try:
        forecast = search.advisor.forecast(work, search.device, configs)
    except TensorwiseError as error:
        search.notes.append(f"the model cannot tell what is fast here: {error}")
        return None
    forecast.learn(configs[0], untuned.seconds)
    if not forecast.compared:
        return None
    default = space.program(work, configs[0])
    for config in list(forecast.scores)[:NUM_PREDICTED]:
        kernel = GeneratedKernel(space.program(work, config))
        same_formats = kernel.program.formats == default.formats
        conversion_s = untuned.conversion_s if same_formats else CONVERSION_S_PER_ENTRY * work.entries.nnz
        if worth_s(forecast.prospect(config, conversion_s, _price_s(kernel, work)), best, calls) > 0:
            return kernel
    return None


class _Contest:
    """Bound kernels of one workload, with the measured run time of each."""

    def __init__(self, work: Workload, threads: int) -> None:
        self.work, self.threads = work, threads
        # Random operands would take longer to draw than a small product takes to run; speed does not depend on the values.
        self.operands = [
            np.resize(OPERAND_VALUES.astype(work.dtype_of(name)), math.prod(work.shape(name))).reshape(
                work.shape(name), order="F" if work.column_major(name) else "C"
            )
            for name in work.dense
        ]
        self.out = np.empty(work.output_shape, work.output_dtype)
        self.bound: dict[str, tuple[Kernel, BoundKernel]] = {}
        self.known: dict[str, Prospect] = {}

    def enter(self, name: str, kernel: Kernel, check: bool = False) -> None:
        """Bind a kernel and time it.

        Args:
            check: whether to compare the kernel's result with that of the kernel timed before.

        Raises:
            TensorwiseError, MemoryError: the kernel cannot be bound, or its result differs.
        """
        last = self.out.astype(np.float64) if check else None
        bound = kernel.bind(self.work, self.threads)
        call = bound.ready(self.operands, self.out)
        seconds = min(time_calls(call, min_s=0.0, min_calls=1, warm_s=0.0))
        tolerance = TOLERANCE_16_BIT if self.work.halves else TOLERANCE
        if last is not None and not np.abs(self.out - last).max(initial=0) <= tolerance * np.abs(last).max(
            initial=0
        ):
            bound.close()
            raise MeasurementError("its numbers differ from those of the kernel timed before")
        self.bound[name] = kernel, bound
        self.known[name] = Prospect(seconds, conversion_s=bound.conversion_s)

    def answer(self, best: str, search: Search) -> Operator:
        """Return the operator of kernel ``best`` with its result, and close the other kernels."""
        standings = {name: self._standing_of(name) for name in self.known}
        had = standings.get(HAD)
        for name, (_, bound) in self.bound.items():
            if name != best:
                bound.close()
        kernel, bound = self.bound[best]
        operator = operator_of(bound, self.work, self.threads, kernel)
        generated = min(
            (standings[name] for name in standings if name != HAD), key=lambda s: s.seconds, default=None
        )
        untuned = standings.get(UNTUNED)
        calls = search.limits.calls or 1.0
        saved = total_s(self.known[best], calls)
        search.notes.append(
            f"no search: {calls:g} calls take about {saved:.2g} s, too little to save what searching takes"
        )
        operator.result = TuneResult(
            self.work, self.threads, standings[best], generated, {HAD: had} if had else {},
            None if untuned is generated else untuned,
            standings[best].seconds / had.seconds if had else 1.0, (), search.limits.spent_s, search.device.compile_s,
            False, None, search.notes, host=str(search.device.provenance.get("host", "")),
        )  # fmt: skip
        return operator

    def _standing_of(self, name: str) -> Standing:
        kernel, bound = self.bound[name]
        program = kernel.program if isinstance(kernel, GeneratedKernel) else None
        return Standing(
            name="tensorwise" if program else name,
            format=program.format_text if program else "",
            schedule=program.schedule_text if program else "",
            seconds=self.known[name].seconds,
            spread_s=0.0,
            rounds=0,
            conversion_s=bound.conversion_s,
            bytes_held=bound.bytes_held,
        )
