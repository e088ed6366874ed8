"""G-Sparse's cost model: what its metrics say, and that it learns both spaces."""

from dataclasses import replace

import numpy as np
import pytest
from paper_models.analytic import (
    CODE,
    METRICS,
    SHAPES,
    SMALLEST,
    MetricsModel,
    metrics,
    performances,
    shapes,
)

from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.space.cuda import cuda_space
from tensorwise.space.space import Space
from tensorwise.store.record import Record
from tensorwise.tensor.convert import entries_from
from tensorwise.toolchain.cubin import Resources

RNG = np.random.default_rng(6)


def spmm(rows: int, n: int) -> Workload:
    matrix = (RNG.random((rows, rows)) < 0.1) * RNG.standard_normal((rows, rows))
    return workload("spmm", entries_from(matrix.astype("f4")), n=n)


def cost(work: Workload, config: Config) -> float:
    """Seconds that follow the sizes, as real ones do: best at certain powers of two, longer for more work."""
    sizes = [
        np.log2(v) for name, v in config.items() if isinstance(v, int) and not isinstance(v, bool) and v > 0
    ]
    return work.terms * 1e-9 * (1 + sum((s - 3) ** 2 for s in sizes))


def records(space: Space, works: list[Workload], count: int) -> list[Record]:
    device = NullDevice(cost)
    found = []
    for work in works:
        configs = [space.sample(work, RNG) for _ in range(count)]
        measured = device.measure(work, configs)
        found += [
            Record.of(m, work, device, space.name, c, {}) for m, c in zip(measured, configs, strict=True)
        ]
    return found


def test_metrics_follow_algorithm_4() -> None:
    work = spmm(40, 64)
    space, described = cuda_space(work.assignment), work.describe()
    few = space.complete({"layout": "rows", "threads": 4, "vector": 1, "registers": 1, "teams": 8}, work)
    many = space.complete({"layout": "rows", "threads": 32, "vector": 2, "registers": 1, "teams": 8}, work)
    a, b = (dict(zip(METRICS, metrics(described, config), strict=True)) for config in (few, many))
    assert b["mem_eff"] == pytest.approx(2 * a["mem_eff"])  # 16 of 32 bytes that memory moves at once
    assert a["blck_size"] == 32 / 128
    assert b["blck_size"] == 1
    assert (b["reuse"], b["instr_parall"]) == (2, 2)
    assert a["parall"] == 2 * b["parall"]
    assert shapes(described) == [40, 40, work.entries.nnz, 64, work.entries.longest]
    assert a["walk"] == work.entries.longest
    cut = space.complete({"layout": "rows", "balance": "split", "piece": 8, "threads": 4}, work)
    assert dict(zip(METRICS, metrics(described, cut), strict=True))["walk"] == 8
    apart = space.complete({"layout": "entries", "threads": 4}, work)
    assert dict(zip(METRICS, metrics(described, apart), strict=True))["walk"] == 1
    old = {name: value for name, value in described.items() if name != "longest"}
    assert shapes(old)[-1] == -(-work.entries.nnz // 40)  # the mean is all that records of before tell


def test_performance_is_relative_to_the_best_of_a_workload() -> None:
    work = spmm(20, 8)
    some = records(cuda_space(work.assignment), [work], 6)
    found = performances(some)
    assert found.max() == 1
    assert found.min() == pytest.approx(min(r.seconds for r in some) / max(r.seconds for r in some))


@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize("make", [cuda_space, cpu_space])
def test_it_learns_what_is_fast_in_both_spaces(make) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("torch")
    works = [spmm(30, 32), spmm(50, 64), spmm(40, 128)]
    space = make(works[0].assignment)
    model = MetricsModel(space, epochs=60)
    model.fit(records(space, works[:2], 150))
    assert model.pearson(records(space, works[2:], 100)) > 0.5
    assert model.misfit(space) is None
    assert model.unknown_params(space) == []
    spmv = cpu_space(workload("spmv", works[0].entries).assignment)
    if (
        space.name == spmv.name
    ):  # its table lacks the dense index: whose operation a model is of, its card says
        assert model.misfit(spmv) is None
        assert "parameter split_j is gone" in model.unknown_params(spmv)
    else:
        assert "another table" in (model.misfit(spmv) or "")


AT = len(METRICS) + len(SHAPES)
"""Where what machine code says stands among the inputs."""


def test_it_sees_what_machine_code_says_where_it_is_known() -> None:
    work = spmm(30, 32)
    space = cuda_space(work.assignment)
    model, configs = MetricsModel(space), [space.sample(work, RNG) for _ in range(3)]
    taken = [Resources(40, 8), None, Resources(32, 0)]
    blind, told = model.inputs(work.describe(), configs), model.inputs(work.describe(), configs, taken)
    assert told[:, AT : AT + len(CODE)].tolist() == [[40, 8], [0, 0], [32, 0]]
    assert not blind[:, AT : AT + len(CODE)].any()
    others = np.delete(np.arange(told.shape[1]), [AT, AT + 1])
    np.testing.assert_array_equal(told[:, others], blind[:, others])


@pytest.mark.usefixtures("one_torch_thread")
def test_records_that_tell_are_learned_with_and_without() -> None:
    pytest.importorskip("torch")
    work = spmm(30, 32)
    space, device = cuda_space(work.assignment), NullDevice(cost)
    configs = [space.sample(work, RNG) for _ in range(6)]
    learned = [
        Record.of(replace(m, registers=40, frame_bytes=8), work, device, space.name, c, {})
        for m, c in zip(device.measure(work, configs), configs, strict=True)
    ]
    model = MetricsModel(space, epochs=1)
    model.fit(learned)
    _, arrays = model.state()
    assert arrays["mean"][AT] == pytest.approx((np.log(SMALLEST) + np.log(SMALLEST + 40)) / 2)
    blind = model.predict(work, configs, device)
    told = model.predict(work, configs, device, [Resources(255, 4096)] * len(configs))
    assert not np.array_equal(blind, told)


@pytest.mark.usefixtures("one_torch_thread")
def test_what_is_not_finite_or_of_another_shape_is_no_model() -> None:
    pytest.importorskip("torch")
    work = spmm(30, 32)
    space = cuda_space(work.assignment)
    model = MetricsModel(space, epochs=1)
    model.fit(records(space, [work], 6))
    values, arrays = model.state()
    for spoiled in (np.full_like(arrays["bias0"], np.nan), arrays["bias0"][1:]):
        with pytest.raises(InputError, match="expected finite arrays"):
            MetricsModel.from_state(values, {**arrays, "bias0": spoiled})
