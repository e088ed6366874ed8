"""TVM's meta-schedule on dense products: what a tuning compiler finds, and how long that takes (MLCD, section V-A3)."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from selections import gemm
from selections.threads import placed
from tensorwise.device.timing import interleave, measuring_slot, time_calls
from tensorwise.device.versions import difference
from tensorwise.errors import InputError
from tensorwise.selection import Selection
from tensorwise.tasks.cpu import TvmCpu
from tensorwise.tasks.searching import found_in, search_schedules
from tensorwise.tasks.targets import ISAS
from tensorwise.tasks.task import Task
from tensorwise.tasks.tvm_extra import tvm
from tensorwise.toolchain.threads import available_threads

Shape = tuple[int, int, int]
"""Rows of A, columns of B, columns of A."""
LIMIT_S: Final = 5.0
"""A program that takes longer than this to begin or to end is given up."""


def device() -> TvmCpu:
    """Return this processor with the best instruction set that it has, and all of its threads; its caches stay warm."""
    for isa in reversed(ISAS):
        try:
            return TvmCpu(isa, available_threads(), LIMIT_S, cold=False)
        except InputError as error:
            refused = error
    raise refused


def product(shape: Shape) -> Any:
    """Return C = A B in float32, without a schedule, as a module of TVM."""
    m, n, k = shape
    a, b = (tvm.te.placeholder(of, name=name) for of, name in (((m, k), "A"), ((k, n), "B")))
    along = tvm.te.reduce_axis((0, k), name="k")
    c = tvm.te.compute((m, n), lambda i, j: tvm.te.sum(a[i, along] * b[along, j], axis=along), name="C")
    made = tvm.te.create_prim_func([a, b, c])
    return tvm.IRModule({"main": made.with_attr("global_symbol", "main")})


def tuned(shape: Shape, folder: Path, trials: int, on: TvmCpu, seed: int) -> dict[str, float]:
    """Let TVM search for a schedule; its database of what was tried is all that is left in ``folder``.

    Returns:
        ``search_s``, ``trials`` that were measured, and ``ok``: those that ran.
    """
    found = search_schedules(_task(shape), on, folder, trials, seed=seed)
    return {
        "search_s": found.seconds, "trials": len(found.trials), "ok": sum(one.ok for one in found.trials),
    }  # fmt: skip


def _task(shape: Shape) -> Task:
    return Task.of("matmul", product(shape)["main"])


def compared(
    shape: Shape,
    sparsities: Sequence[float],
    folder: Path,
    function: Selection,
    on: TvmCpu,
    rounds: int,
    budget_s: float,
) -> dict[str, Any]:
    """Time TVM's program, and the call of ours that chooses, in the same rounds, for each sparsity of A.

    No process may be forked after this: it wakes TVM's threads.

    Returns:
        ``lookup_s``: to find the best schedule in TVM's database; ``select_s``: for our choice, from Python; ``untuned_s``:
        TVM's program without a schedule; ``cases``: of each sparsity the version chosen, seconds of both, their ratio.

    Raises:
        InputError: the shape was not tuned, nothing that TVM tried ran, or a result is wrong.
    """
    # Read when TVM's threads begin; bound to processors, they would bind ours, too.
    os.environ["TVM_NUM_THREADS"], os.environ["TVM_BIND_THREADS"] = str(on.threads), "0"
    task, look = _task(shape), found_in(folder)

    def lookup() -> Any:
        return look(task, on)

    best = lookup()
    if best is None:
        raise InputError(f"nothing that TVM tried for {shape} ran; remove {folder} and tune again")
    programs = dict(zip(("tvm", "untuned"), on.build([best, task.module]), strict=True))
    rng, found = np.random.default_rng(0), list[dict[str, Any]]()
    untuned_s = 0.0
    with measuring_slot() as slot:
        lookup_s = float(np.median(time_calls(lookup)))
        for sparsity in sparsities:
            (one,) = gemm.make(False, *shape, sparsity)
            _, whole, b, _ = one.operands
            a, b, c = (
                tvm.runtime.tensor(array) for array in (whole, b, np.zeros((shape[0], shape[1]), np.float32))
            )
            calls: dict[str, Callable[[], Any]] = {
                name: _calling(program, a, b, c) for name, program in programs.items()
            }
            calls["ours"] = _calling(function, one)
            expected = whole.astype(np.float64) @ one.operands[2]
            for name, call in calls.items():
                result = call()
                told = difference(result if name == "ours" else c.numpy(), expected.astype(np.float32))
                if told is not None:
                    raise InputError(f"{name} computes something else for {shape}: {told}")
            if found:
                del calls["untuned"]
            with placed():
                table = interleave(calls, rounds, budget_s, rng)
            untuned_s = untuned_s or table.median("untuned")
            ratio = table.ratio("tvm", "ours")
            found.append({
                "sparsity": sparsity, "version": function.choose(one).name, "tvm_s": table.median("tvm"),
                "ours_s": table.median("ours"), "ratio": ratio.median, "low": ratio.low, "high": ratio.high,
                "note": table.note,
            })  # fmt: skip
        model = function.model
        assert model is not None
        assert model.choice is not None
        decide, numbers = model.choice.deciding(len(model.fields)), one.features[: len(model.fields)]
        select_s = float(np.median(time_calls(lambda: decide(*numbers))))
    return {
        "lookup_s": lookup_s, "select_s": select_s, "untuned_s": untuned_s, "cases": found, "note": slot.note,
    }  # fmt: skip


def _calling(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: function(*arguments)
