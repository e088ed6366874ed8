"""Deprecated: the tuner of GPUs of version 0.1, now `tensorwise.tuning.tune.tune_workload` with ``device="cuda"``."""

import warnings

from tensorwise.device.device import Device
from tensorwise.device.opening import DeviceOptions, opened
from tensorwise.model import CostModel
from tensorwise.program.workload import Workload
from tensorwise.store.store import Store
from tensorwise.tuning.limits import Guidance, Listener, Observe, Progress, TuningLimits
from tensorwise.tuning.result import TuneResult
from tensorwise.tuning.tune import advisor_of, tune_workload


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
    device: Device[Workload] | None = None,
) -> TuneResult:
    """Find the fastest program for a workload on this machine's GPU. Deprecated: use `tune_workload`.

    The arguments are those of `tensorwise.tune`. It returns the result that tunings of all devices have.

    Raises:
        MissingExtraError: CuPy is not installed.
        MeasurementError: there is no GPU that can be used.
        InputError: an argument makes no sense.
    """
    warnings.warn(
        "tune_gpu is deprecated: call tensorwise.tune(..., device='cuda'), or tune_workload for a workload",
        DeprecationWarning,
        stacklevel=2,
    )
    with opened("cuda" if device is None else device, DeviceOptions(seed=seed)) as where:
        limits = TuningLimits.of(budget_s, trials, None, where.budget_s)
        guidance = Guidance(strategy, advisor_of(model), store, seed)
        result = tune_workload(work, where, limits, guidance, Listener(progress, observe)).result
    assert result is not None
    return result
