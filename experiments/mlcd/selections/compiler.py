"""TVM's meta-schedule on dense products: what a tuning compiler finds, and how long that takes (MLCD, section V-A3)."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from selections import gemm
from tensorwise.device.timing import interleave, measuring_slot, time_calls
from tensorwise.device.versions import difference
from tensorwise.errors import InputError
from tensorwise.selection import Selection
from tensorwise.tasks.cpu import ISAS, TvmCpu
from tensorwise.tasks.task import Task
from tensorwise.tasks.tvm_extra import derived_object, meta_schedule, tvm
from tensorwise.toolchain.threads import available_threads

Shape = tuple[int, int, int]
"""Rows of A, columns of B, columns of A."""
BATCH: Final = 16
"""Programs that are measured before TVM's cost model learns from them."""
LIMIT_S: Final = 5.0
"""A program that takes longer than this to begin or to end is given up."""


@derived_object
class _Builder(meta_schedule.builder.PyBuilder):
    """Asks a function."""

    def __init__(self, build: Callable[[Sequence[Any]], list[Any]]) -> None:
        super().__init__()
        self._build = build

    def build(self, build_inputs: Sequence[Any]) -> list[Any]:
        return self._build(build_inputs)


@derived_object
class _Runner(meta_schedule.runner.PyRunner):
    """Asks a function."""

    def __init__(self, run: Callable[[Sequence[Any]], list[Any]]) -> None:
        super().__init__()
        self._run = run

    def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
        return self._run(runner_inputs)


@derived_object
class _Known(meta_schedule.runner.PyRunnerFuture):
    """A result that is there already."""

    def __init__(self, seconds: Sequence[float] | None, note: str) -> None:
        super().__init__()
        self._seconds, self._note = seconds, note

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        if self._seconds is None:
            return meta_schedule.runner.RunnerResult(None, self._note)
        return meta_schedule.runner.RunnerResult(list(self._seconds), None)


def device() -> TvmCpu:
    """Return this processor with the best instruction set that it has, and all of its threads; its caches stay warm."""
    for isa in reversed(ISAS):
        try:
            return TvmCpu(isa, available_threads(), LIMIT_S, cold=False)
        except InputError as error:
            refused = error
    raise refused


def target(on: TvmCpu) -> Any:
    """Return what TVM is told of a device."""
    return tvm.target.Target({"kind": "llvm", "mcpu": ISAS[on.isa], "num-cores": on.threads})


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

    Programs are built here and run in forked processes: TVM's own workers take ten times as long for each, most of it to
    begin.

    Returns:
        ``search_s``, ``trials`` that were measured, and ``ok``: those that ran.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    module = product(shape)
    built: dict[str, Any] = {}
    outcomes: list[bool] = []
    task = Task.of("matmul", module["main"])

    def build(inputs: Sequence[Any]) -> list[Any]:
        results = []
        for one in on.build([given.mod for given in inputs]):
            path = str(Path(tempfile.mkdtemp()) / "program")  # TVM removes its folder
            built[path] = one
            results.append(meta_schedule.builder.BuilderResult(path, None))
        return results

    def run(inputs: Sequence[Any]) -> list[Any]:
        measured = on.time([built.pop(str(one.artifact_path)) for one in inputs], task)
        outcomes.extend(one.ok for one in measured)
        return [_Known(one.samples if one.ok else None, one.note) for one in measured]

    start = time.perf_counter()
    meta_schedule.tune_tir(
        module, target(on), str(folder), max_trials_global=trials, num_trials_per_iter=BATCH, cost_model="xgb",
        builder=_Builder(build), runner=_Runner(run), num_tuning_cores=on.threads, seed=seed + 1,
    )  # fmt: skip
    return {"search_s": time.perf_counter() - start, "trials": len(outcomes), "ok": sum(outcomes)}


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
    module = product(shape)
    files = [folder / f"database_{name}.json" for name in ("workload", "tuning_record")]
    if not all(file.is_file() for file in files):
        raise InputError(f"{shape} was not tuned yet: there is no {files[0]}")
    database = meta_schedule.database.JSONDatabase(*map(str, files))

    def lookup() -> Any:
        return database.query_ir_module(module, target(on), "main")

    best = lookup()
    if best is None:
        raise InputError(f"nothing that TVM tried for {shape} ran; remove {folder} and tune again")
    programs = dict(zip(("tvm", "untuned"), on.build([best, module]), strict=True))
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
