"""Options of a tuning besides workload and device: limits, guidance (strategy, model, store) and progress callbacks."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, final

from tensorwise.errors import InputError
from tensorwise.search import STRATEGIES
from tensorwise.store.store import Store

if TYPE_CHECKING:
    from tensorwise.tuning.advice import Advisor
    from tensorwise.tuning.result import Trial

SHIPPED: Final = "shipped"
"""Stands for the model that comes with Tensorwise, or was calibrated on this machine."""

Progress = Callable[[str, float], None]
"""Called with what is going on and the share of the budget spent (0 to 1)."""
Observe = Callable[["Trial"], None]
"""Called with each candidate that was tried."""


@final
@dataclass(frozen=True)
class TuningLimits:
    """How much a tuning may spend.

    Attributes:
        budget_s: wall seconds of the whole tuning, or infinity.
        trials: most candidates to try; None: as many as the budget allows.
        calls: how often the operator will be called; None: not known, so that only the time of a call counts.
        start: when the tuning began, in seconds of ``clock``; the budget counts from there. Default: now.
        clock: returns seconds.
    """

    budget_s: float
    trials: int | None = None
    calls: float | None = None
    start: float = -math.inf
    clock: Callable[[], float] = field(default=time.perf_counter, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.start == -math.inf:
            object.__setattr__(self, "start", self.clock())

    @classmethod
    def of(
        cls, budget_s: float | None, trials: int | None, calls: float | None, default_s: float,
        start: float = -math.inf,
    ) -> Self:  # fmt: skip
        """Return the limits that a user gives; ``default_s`` seconds where neither budget nor trials are given.

        Raises:
            InputError: a limit makes no sense.
        """
        if budget_s is not None and not budget_s > 0:
            raise InputError(f"budget_s must be positive, got {budget_s}")
        if trials is not None and trials < 0:
            raise InputError(f"trials must not be negative, got {trials}")
        if calls is not None and not calls > 0:
            raise InputError(f"expected_calls must be positive, got {calls}")
        if budget_s is None:
            budget_s = default_s if trials is None else math.inf
        return cls(budget_s, trials, calls, start)

    @property
    def is_timed(self) -> bool:
        """Whether there is a budget of seconds."""
        return math.isfinite(self.budget_s)

    @property
    def spent_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.start

    @property
    def left_s(self) -> float:
        """Seconds that are left of the budget."""
        return self.budget_s - self.spent_s


@final
@dataclass(frozen=True)
class Guidance:
    """What guides a tuning.

    Attributes:
        strategy: a name of ``tensorwise.search.STRATEGIES``.
        model: an advisor that names the candidates to try first; ``shipped`` for the bundled one; None for none.
        store: where measurements are remembered: a Store, True for the default one, False for nowhere.
        seed: of the search.

    Raises:
        InputError: there is no such strategy.
    """

    strategy: str = "genetic"
    model: "Advisor | str | None" = SHIPPED
    store: Store | bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            STRATEGIES[self.strategy]  # raises


@final
@dataclass(frozen=True)
class Listener:
    """Callbacks that receive a tuning's progress; None for no callback."""

    progress: Progress | None = None
    observe: Observe | None = None


DEFAULT_GUIDANCE: Final = Guidance()
"""The genetic strategy, the shipped model and the default store."""
SILENT: Final = Listener()
"""No callbacks."""
