"""The answer without a search, where so few calls are expected that searching would take longer than it saves.

Two kernels are looked at, in this process and for about two calls of each: the one that the user has, and the
default kernel of the space where it is compiled or worth compiling. What a search finds on top is expected from what
searches found before. If that is worth the search, there is no answer here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tensorwise.device.library import LIBRARY
from tensorwise.device.timing import time_calls
from tensorwise.errors import TensorwiseError
from tensorwise.operator import Operator, default_kernel
from tensorwise.program.generated import GeneratedKernel
from tensorwise.program.kernel import BoundKernel, Kernel
from tensorwise.program.workload import Workload
from tensorwise.result import HAD, Standing, TuneResult
from tensorwise.searching import Search
from tensorwise.toolchain.cache import default_cache
from tensorwise.worth import Prospect, cheapest, total_s, worth_s


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
SHARE: Final = 0.25
"""Share of the time of all calls that a search may spend beyond START_S: what is lost where nothing better is found."""


def at_once(search: Search) -> Operator | None:
    """Return what to call where a search would not pay, otherwise None, with the search's budget bound by what it may save.

    There is always a search where the number of calls is not known, where candidates are asked for by number, and where
    the user has nothing that could be compared with.
    """
    work, calls = search.work, search.calls
    had = LIBRARY[HAD]()
    if calls is None or search.most_trials is not None or had.why_not(work) is not None:
        return None
    usual = USUAL.get(work.op.removesuffix("_t"), OTHERS)
    contest = _Contest(work, search.device.threads)
    contest.enter(HAD, had)
    untuned = default_kernel(work)
    if isinstance(untuned, GeneratedKernel):
        price_s = 0.0 if default_cache().holds(untuned.texts(work)) else COMPILE_S
        seconds = contest.known[HAD].seconds / usual.default
        if worth_s(Prospect(seconds, usual.default_spread, price_s=price_s), contest.known[HAD], calls) > 0:
            try:
                contest.enter("tensorwise", untuned)
            except (TensorwiseError, MemoryError) as error:
                search.notes.append(f"the default kernel cannot be used here: {error}")
    best = cheapest(contest.known, calls)  # what was converted is paid for already, and counts all the same
    found = Prospect(
        contest.known[best].seconds / usual.search,
        usual.search_spread,
        CONVERSION_S * work.entries.nnz,
        START_S,
    )
    if worth_s(found, contest.known[best], calls) > 0:
        search.budget_s = min(search.budget_s, START_S + SHARE * total_s(contest.known[best], calls))
        return None
    return contest.answer(best, search)


class _Contest:
    """Bound kernels, and what a call of each takes."""

    def __init__(self, work: Workload, threads: int) -> None:
        self.work, self.threads = work, threads
        # Drawing random operands would take longer than many a product; speed does not depend on the numbers.
        self.operands = [
            np.ones(work.shape(name), work.dtype_of(name), "F" if work.column_major(name) else "C")
            for name in work.dense
        ]
        self.out = np.empty(work.output_shape, work.output_dtype)
        self.bound: dict[str, tuple[Kernel, BoundKernel]] = {}
        self.known: dict[str, Prospect] = {}

    def enter(self, name: str, kernel: Kernel) -> None:
        """Bind a kernel, and time a call of it."""
        bound = kernel.bind(self.work, self.threads)
        call = bound.ready(self.operands, self.out)
        seconds = min(time_calls(call, min_s=0.0, min_calls=1, warm_s=0.0))
        self.bound[name] = kernel, bound
        self.known[name] = Prospect(seconds, conversion_s=bound.conversion_s)

    def answer(self, best: str, search: Search) -> Operator:
        """Return the operator, with what was found."""
        standings = {name: self._standing(name) for name in self.known}
        for name, (_, bound) in self.bound.items():
            if name != best:
                bound.close()
        kernel, bound = self.bound[best]
        operator = Operator(bound, self.work, self.threads, kernel)
        generated = standings.get("tensorwise")
        saved = total_s(self.known[best], search.calls or 1.0)
        search.notes.append(
            f"no search: {search.calls:g} calls take about {saved:.2g} s, too little to save what searching takes"
        )
        operator.result = TuneResult(
            self.work, self.threads, standings[best], generated, {HAD: standings[HAD]}, None,
            standings[best].seconds / standings[HAD].seconds, (), search.spent(), search.device.compile_s,
            False, None, search.notes,
        )  # fmt: skip
        return operator

    def _standing(self, name: str) -> Standing:
        kernel, bound = self.bound[name]
        program = kernel.program if isinstance(kernel, GeneratedKernel) else None
        return Standing(
            name=name,
            format=program.format_text if program else "",
            schedule=program.schedule_text if program else "",
            seconds=self.known[name].seconds,
            spread_s=0.0,
            rounds=0,
            conversion_s=bound.conversion_s,
            bytes_held=bound.bytes_held,
        )
