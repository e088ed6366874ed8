"""Graph operators on a GPU: the assignments of a graph as launched programs, on arrays that lie in the GPU's memory."""

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tensorwise.device.gpus import gpu_named
from tensorwise.device.opening import DeviceOptions, opened
from tensorwise.lower.program import Program
from tensorwise.model import CostModel
from tensorwise.program.workload import Workload
from tensorwise.runtime.launched import BoundLaunched, LaunchedKernel
from tensorwise.space.cuda import cuda_space
from tensorwise.space.readings import operand
from tensorwise.store.store import Store
from tensorwise.toolchain.gpu import Gpu, Held
from tensorwise.tuning.limits import Guidance, Listener, Observe, Progress, TuningLimits
from tensorwise.tuning.result import TuneResult
from tensorwise.tuning.tune import advisor_of, tune_workload

if TYPE_CHECKING:
    from tensorwise.front.gnn import Graph

MOST_KERNELS: Final = 64
"""Programs that a graph keeps on a GPU: each holds its pattern there."""


@final
class OnGpu:
    """A graph with a launched program for each operator and feature size that it has met on a GPU.

    Args:
        graph: what is evaluated; its pattern is brought to the GPU for each program, in the form that it reads.
        gpu: where.
    """

    def __init__(self, graph: "Graph", gpu: Gpu) -> None:
        self._graph, self._gpu = graph, gpu
        self._kernels: dict[tuple[object, ...], BoundLaunched] = {}
        self._tuned: set[tuple[object, ...]] = set()

    def evaluate(self, text: str, operands: Sequence[Held]) -> Held:
        """Evaluate an assignment, see `Graph.einsum`; operands and result are in the GPU's memory, by rows.

        The call returns before the GPU is done.

        Raises:
            InputError: operands do not fit.
            ScheduleError: the GPU's programs do not compute it.
            CompilerError: NVRTC refused the program.
        """
        bound = self.bound(text, tuple((tuple(one.shape), one.dtype) for one in operands))
        if not math.prod(bound.output_shape):
            return self._gpu.empty(0, bound.workload.output_dtype).reshape(bound.output_shape)
        return bound.compute(*operands)

    def bound(self, text: str, operands: tuple[tuple[tuple[int, ...], np.dtype], ...]) -> BoundLaunched:
        """Return the program of an assignment, for operands of such shapes and dtypes.

        Raises:
            InputError, ScheduleError, CompilerError: as `evaluate`.
        """
        key = (text, operands)
        found = self._kernels.get(key)
        if found is None:
            work = self._graph.workload(
                text, [shape for shape, _ in operands], [dtype for _, dtype in operands]
            )
            found = self._there(self._default(work), work)
            while len(self._kernels) >= MOST_KERNELS:
                oldest = next(iter(self._kernels))
                self._kernels.pop(oldest, None)
                self._tuned.discard(oldest)
            self._kernels[key] = found
        return found

    def _there(self, program: Program, work: Workload) -> BoundLaunched:
        """A program that has all that it reads: calls may be on another stream than what was uploaded."""
        bound = LaunchedKernel(program, self._gpu).bind(work)
        self._gpu.synchronize()
        return bound

    def _default(self, work: Workload) -> Program:
        space = cuda_space(work.assignment, operand(work).tensor, gpu_named(self._gpu.name))
        return space.program(work, space.default(work))

    def tune(
        self,
        budget_s: float | None = None,
        *,
        trials: int | None = None,
        strategy: str = "genetic",
        model: CostModel | str | os.PathLike[str] | None = None,
        store: Store | bool = True,
        seed: int = 0,
        progress: Progress | None = None,
        observe: Observe | None = None,
    ) -> list[TuneResult]:
        """Find the fastest program for all that was evaluated here, and use it from now on.

        Each assignment with its feature sizes is tuned once.

        Args:
            budget_s: wall seconds for each of them; the others are as of `tensorwise.tune`.

        Returns:
            What was found for each, in the order in which they were evaluated first.
        """
        found = list[TuneResult]()
        guidance = Guidance(strategy, advisor_of(model), store, seed)
        left = [key for key in self._kernels if key not in self._tuned]
        if not left:
            return found
        with opened("cuda", DeviceOptions(seed=seed)) as device:
            for key in left:
                work = self._kernels[key].workload
                limits = TuningLimits.of(budget_s, trials, None, device.budget_s)
                result = tune_workload(work, device, limits, guidance, Listener(progress, observe)).result
                assert result is not None
                if result.best_generated is not None:
                    self._kernels[key] = self._there(result.best_generated.program, work)
                self._tuned.add(key)
                found.append(result)
        return found
