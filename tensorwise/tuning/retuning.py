"""Tuning programs that run already, such as the operators of a graph: each is replaced by the fastest one found.

One worker process measures them all, one after the other. Meanwhile entries are numbered in storage order, since the rows
of another operand to which they belong have no influence on the choice.
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tensorwise.device.cpu import CpuDevice
from tensorwise.device.timing import interleave
from tensorwise.model import CostModel
from tensorwise.program.workload import Workload
from tensorwise.runtime.generated import BoundProgram
from tensorwise.store.store import Store
from tensorwise.tensor.entries import Entries
from tensorwise.tuning.advice import SHIPPED
from tensorwise.tuning.limits import Guidance, Listener, Observe, Progress, TuningLimits
from tensorwise.tuning.result import TuneResult
from tensorwise.tuning.searching import INTERRUPTED
from tensorwise.tuning.tune import advisor_of, tune_workload

ROUNDS, ROUNDS_S = 9, 0.5
"""What is found is compared with what runs for so many rounds, and about so many seconds."""
KEPT = "what ran before stays: it is as fast in this process"


def retuned(
    bounds: Sequence[BoundProgram],
    *,
    budget_s: float | None = None,
    trials: int | None = None,
    expected_calls: float | None = None,
    strategy: str = "genetic",
    model: CostModel | str | os.PathLike[str] | None = SHIPPED,
    store: Store | bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    observe: Observe | None = None,
) -> list[tuple[BoundProgram, TuneResult]]:
    """Return what to run in place of each program, on the threads that it has now, and what its tuning found.

    Args:
        bounds: programs of one sparse operand each.
        budget_s: wall seconds for all of them (default 30, unlimited when ``trials`` is given), in equal shares; unused
            time goes to the later ones.
        trials: most candidates to try for each.
        expected_calls: how often each will be called; see `tensorwise.tune`, as for the other arguments.

    Returns:
        A pair for each, in order; after Ctrl-C for those that were begun.

    Raises:
        InputError: an argument makes no sense.
    """
    whole = TuningLimits.of(budget_s, trials, expected_calls, CpuDevice.budget_s)
    guidance = Guidance(strategy, advisor_of(model), store, seed)
    found: list[tuple[BoundProgram, TuneResult]] = []
    plain: dict[Entries, Entries] = {}
    with contextlib.ExitStack() as opened:
        devices: dict[int, CpuDevice] = {}
        for place, bound in enumerate(bounds):
            if bound.threads not in devices:
                devices[bound.threads] = opened.enter_context(CpuDevice(bound.threads, seed=seed))
            share_s = max(0.0, whole.left_s) / (len(bounds) - place)
            operator = tune_workload(
                _as_they_stand(bound.workload, plain),
                devices[bound.threads],
                TuningLimits(share_s, trials, expected_calls),
                guidance,
                Listener(progress, observe),
            )
            result = operator.result
            assert result is not None
            better = bound
            if operator.program is not None and operator.program != bound.program:
                other = BoundProgram(operator.program, bound.workload, bound.threads)
                if _faster(other, bound, seed):
                    better = other
                else:
                    result.notes.append(KEPT)
            found.append((better, result))
            if INTERRUPTED in result.notes:
                break
    return found


def _faster(other: BoundProgram, bound: BoundProgram, seed: int) -> bool:
    """Whether the other program is the faster one in this process, too: a search takes the luckiest of many."""
    rng = np.random.default_rng(seed)
    operands = bound.workload.operands(rng)
    out = np.empty(bound.workload.output_shape, bound.workload.output_dtype)
    calls = {"now": bound.ready(operands, out), "found": other.ready(operands, out)}
    return interleave(calls, ROUNDS, ROUNDS_S, rng).ratio("found", "now").median < 1


def _as_they_stand(work: Workload, known: dict[Entries, Entries]) -> Workload:
    """Return the workload with entries that have no numbers of their own; ``known`` are those made before."""
    sparse = {
        name: entries
        if entries.numbers is None
        else known.setdefault(entries, replace(entries, numbers=None))
        for name, entries in work.sparse.items()
    }
    return replace(work, sparse=sparse)
