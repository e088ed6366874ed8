"""The answer without a search, where so few calls are expected that searching would take longer than it saves.

Up to three kernels are looked at, in this process and for about two calls of each: the default kernel of the space, the one
that the user has, and of the known structures the one that a model says is the fastest; each where it is compiled or
worth compiling, and worth its calls. What a search finds on top is expected from what searches found before. If that is
worth the search, there is no answer here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from tensorwise.device.library import LIBRARY
from tensorwise.device.timing import time_calls
from tensorwise.errors import MeasurementError, TensorwiseError
from tensorwise.program.generated import GeneratedKernel
from tensorwise.program.kernel import BoundKernel, Kernel
from tensorwise.program.workload import Workload
from tensorwise.space.portfolio import portfolio
from tensorwise.toolchain.cache import default_cache
from tensorwise.tuning.operator import Operator, default_kernel, operator_of
from tensorwise.tuning.result import HAD, Standing, TuneResult
from tensorwise.tuning.searching import Search
from tensorwise.tuning.worth import Prospect, cheapest, total_s, worth_s

UNTUNED, PREDICTED = "untuned", "predicted"
"""The default kernel, and the one that a model names, beside the one that the user has."""


@final
@dataclass(frozen=True)
class Usual:
    """Speed-ups of an operation over the corpus: geometric mean, and standard deviation of the logarithm.

    Attributes:
        default, default_spread: of the default kernel over what the user had.
        search, search_spread: of what a search found over the default kernel.
    """

    default: float
    default_spread: float
    search: float
    search_spread: float


USUAL: Final[Mapping[str, Usual]] = {
    "spmv": Usual(1.4, 0.43, 1.75, 0.43),
    "spmm": Usual(2.6, 0.26, 1.25, 0.19),
    "sddmm": Usual(8.0, 0.38, 1.03, 0.09),
    "mttkrp": Usual(4.1, 0.27, 1.3, 0.18),
}
"""By operation, from ``benchmarks/results/kernels.json``: every tenth matrix of the corpus, one thread."""
OTHERS: Final = Usual(1.5, 0.4, 1.3, 0.3)
"""Where nothing was measured over the corpus."""
START_S: Final = 1.0
"""Seconds before a search has results: a process that measures, the libraries, the first candidates and last rounds."""
COMPILE_S: Final = 0.4
"""Seconds of compiling one kernel."""
CONVERSION_S: Final = 25e-9
"""Seconds of packing an entry into a format that is worth searching for (``benchmarks/results/packing.json``)."""
ASKING_S: Final = 0.1
"""Seconds of asking a model about the known structures, ..."""
LOOKING_S: Final = 15e-9
"""... and of looking at an entry of the pattern for it (``benchmarks/results/features.json``)."""
LOOKED_FOR: Final = 4
"""Of the known structures, how many of those that are predicted to be the fastest are looked for among compiled kernels."""
LOOKS: Final = 2
"""Calls of a kernel that is looked at."""
TOLERANCE: Final = 1e-3
"""How far a kernel's numbers may be from another one's, over the largest of them: a wrong kernel is off by more ..."""
OF_HALVES: Final = 2e-2
"""... where operands are kept in 16 bits."""
NUMBERS: Final = 0.5 + np.arange(1021) ** 2 % 1021 / 1021
"""What operands are filled with: cheap to repeat, and different enough for wrong gathers to show."""
SHARE: Final = 0.25
"""Share of the time of all calls that a search may spend beyond START_S: what is lost where nothing better is found."""


def at_once(search: Search) -> Operator | None:
    """Return what to call where a search would not pay, otherwise None, with the search's budget bound by what it may save.

    There is always a search where the number of calls is not known, where candidates are asked for by number, and on devices
    other than this process's CPU. What the
    user has is not looked at where no library computes it, nor where the default kernel is compiled and so many calls
    would not repay finding out whether the library is, against expectation, the faster one.
    """
    work, calls = search.work, search.limits.calls
    if not search.device.in_process or calls is None or search.limits.trials is not None:
        return None
    usual = USUAL.get(work.op.removesuffix("_t"), OTHERS)
    contest = _Contest(work, search.device.threads)
    untuned = _looked(contest, usual, calls, search.notes)
    if untuned is None:
        return None
    best = cheapest(contest.known, calls)  # what was converted is paid for already, and counts all the same
    found = Prospect(
        contest.known[best].seconds / usual.search,
        usual.search_spread,
        CONVERSION_S * work.entries.nnz,
        START_S,
    )
    if worth_s(found, contest.known[best], calls) > 0:
        most_s = START_S + SHARE * total_s(contest.known[best], calls)
        search.limits = replace(search.limits, budget_s=min(search.limits.budget_s, most_s))
        return None
    asking = replace(found, price_s=ASKING_S + LOOKING_S * work.entries.nnz)
    asked = worth_s(asking, contest.known[best], calls) > 0
    if asked and (kernel := _predicted(search, untuned, contest.known[best], calls)) is not None:
        try:
            contest.enter(PREDICTED, kernel, check=True)
        except (TensorwiseError, MemoryError) as error:
            search.notes.append(f"what the model named cannot be used here: {error}")
        best = cheapest(contest.known, calls)
    return contest.answer(best, search)


def _looked(contest: "_Contest", usual: Usual, calls: float, notes: list[str]) -> Prospect | None:
    """Look at the default kernel and at the one that the user has, as far as that is worth it.

    Returns:
        What is known or expected of the default kernel; None where there is neither.
    """
    work, had, default = contest.work, LIBRARY[HAD](), default_kernel(contest.work)
    able = had.why_not(work) is None
    price_s = _price_s(default, work) if isinstance(default, GeneratedKernel) else math.inf
    if not able and price_s == math.inf:
        return None
    if able and price_s > 0:
        contest.enter(HAD, had)
        expected = Prospect(contest.known[HAD].seconds / usual.default, usual.default_spread, price_s=price_s)
        if worth_s(expected, contest.known[HAD], calls) <= 0:  # as always where it cannot be compiled at all
            return expected
    try:
        contest.enter(UNTUNED, default)
    except (TensorwiseError, MemoryError) as error:
        if not able:
            raise
        notes.append(f"the default kernel cannot be used here: {error}")
        if HAD not in contest.known:
            contest.enter(HAD, had)
        return Prospect(contest.known[HAD].seconds / usual.default, usual.default_spread)
    untuned = contest.known[UNTUNED]
    if able and HAD not in contest.known:
        seconds = untuned.seconds * usual.default
        looking = Prospect(seconds, usual.default_spread, price_s=LOOKS * seconds)
        if worth_s(looking, Prospect(untuned.seconds), calls) > 0:  # its conversion is paid for already
            contest.enter(HAD, had)
        else:
            notes.append(
                f"{HAD} was not timed: it usually takes {usual.default:g} times as long, and {calls:g} calls would "
                "not repay looking"
            )
    return untuned


def _price_s(kernel: GeneratedKernel, work: Workload) -> float:
    """Seconds until a kernel can be called."""
    return 0.0 if default_cache().holds(kernel.texts(work)) else COMPILE_S


def _predicted(search: Search, untuned: Prospect, best: Prospect, calls: float) -> GeneratedKernel | None:
    """Return the known structure that the model says is the fastest, if it is worth trying out; None without a model.

    Args:
        untuned: what the default kernel takes: the model says how much more or less another takes.
        best: what would be the answer otherwise.
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
    for config in list(forecast.scores)[:LOOKED_FOR]:
        kernel = GeneratedKernel(space.program(work, config))
        alike = kernel.program.formats == default.formats
        conversion_s = untuned.conversion_s if alike else CONVERSION_S * work.entries.nnz
        if worth_s(forecast.prospect(config, conversion_s, _price_s(kernel, work)), best, calls) > 0:
            return kernel
    return None


class _Contest:
    """Bound kernels, and what a call of each takes."""

    def __init__(self, work: Workload, threads: int) -> None:
        self.work, self.threads = work, threads
        # Drawing random operands would take longer than many a product; speed does not depend on the numbers.
        self.operands = [
            np.resize(NUMBERS.astype(work.dtype_of(name)), math.prod(work.shape(name))).reshape(
                work.shape(name), order="F" if work.column_major(name) else "C"
            )
            for name in work.dense
        ]
        self.out = np.empty(work.output_shape, work.output_dtype)
        self.bound: dict[str, tuple[Kernel, BoundKernel]] = {}
        self.known: dict[str, Prospect] = {}

    def enter(self, name: str, kernel: Kernel, check: bool = False) -> None:
        """Bind a kernel, and time a call of it.

        Args:
            check: whether what it computes must be what the last one did.

        Raises:
            TensorwiseError, MemoryError: it cannot be bound, or computes something else.
        """
        last = self.out.astype(np.float64) if check else None
        bound = kernel.bind(self.work, self.threads)
        call = bound.ready(self.operands, self.out)
        seconds = min(time_calls(call, min_s=0.0, min_calls=1, warm_s=0.0))
        tolerance = OF_HALVES if self.work.halves else TOLERANCE
        if last is not None and not np.abs(self.out - last).max(initial=0) <= tolerance * np.abs(last).max(
            initial=0
        ):
            bound.close()
            raise MeasurementError("its numbers differ from those of the kernel that the user has")
        self.bound[name] = kernel, bound
        self.known[name] = Prospect(seconds, conversion_s=bound.conversion_s)

    def answer(self, best: str, search: Search) -> Operator:
        """Return the operator, with what was found."""
        standings = {name: self._standing(name) for name in self.known}
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

    def _standing(self, name: str) -> Standing:
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
