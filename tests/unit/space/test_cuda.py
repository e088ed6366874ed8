"""The space of GPUs: whatever it draws lowers, fits a block and is right."""

import numpy as np
import pytest

from tensorwise.device.gpus import described, gpu_called, gpu_named
from tensorwise.errors import InputError
from tensorwise.lower.cuda import print_cuda
from tensorwise.lower.lower import lower
from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.space.cuda import ANY, cuda_space
from tensorwise.tensor.convert import entries_from

RNG = np.random.default_rng(3)
MATRIX = entries_from(((RNG.random((14, 11)) < 0.2) * RNG.standard_normal((14, 11))).astype("f4"))
WORKLOADS = [
    workload("spmm", MATRIX, n=24),
    workload("spmm", MATRIX, n=1),
    workload("spmv", MATRIX),
    workload("sddmm", MATRIX, n=70),
    workload("spmm_t", MATRIX, n=7),
    einsum_workload("C[i,j] argmax= L[k,j] for A[i,k]", {"A": MATRIX}, {"j": 41}),
    einsum_workload("C[i,j] max= L[k,j] + R[A] for A[i,k]", {"A": MATRIX}, {"j": 12}),
    einsum_workload("C[A,h] += L[k,h,j] * R[i,h,j] for A[i,k]", {"A": MATRIX}, {"h": 2, "j": 40}),
    einsum_workload("C[A,f] = exp(S[A,f] - M[i,f]) / Z[i,f] for A[i,k]", {"A": MATRIX}, {"f": 8}),
    einsum_workload("C[i] += A[i,k] * L[k,j] * R[i,j]", {"A": MATRIX}, {"j": 5}),
    workload("mttkrp", entries_from(((9, 8, 7), [RNG.integers(0, e, 40) for e in (9, 8, 7)], RNG.random(40))), n=6, mode=1),
]  # fmt: skip
DRAWS = 60


@pytest.mark.parametrize("work", WORKLOADS, ids=lambda w: str(w.assignment))
def test_what_is_drawn_lowers_and_fits_a_block(work: Workload) -> None:
    space, rng = cuda_space(work.assignment), np.random.default_rng(1)
    for config in [space.default(work), *(space.sample(work, rng) for _ in range(DRAWS))]:
        program = space.program(work, config)
        kernel = lower(program.plan(work.elem, sizes=work.sizes))
        _, launches = print_cuda(kernel)
        assert all(32 <= launch.threads * launch.teams <= 1024 for launch in launches)
        held = sum(length * buffer.item_bytes for buffer, length in kernel.scratch)
        assert held * program.schedule.teams <= ANY.shared_bytes


@pytest.mark.parametrize("work", WORKLOADS, ids=lambda w: str(w.assignment))
def test_what_is_drawn_is_right(work: Workload) -> None:
    space, rng = cuda_space(work.assignment), np.random.default_rng(2)
    operands = work.operands(rng)
    expected = work.reference(operands)
    small = [
        config for config in (space.sample(work, rng) for _ in range(40)) if (config["teams"] or 1) <= 64
    ]
    for config in [space.default(work), *small[:2]]:
        out = np.empty(work.output_shape, work.output_dtype)
        InterpretedKernel(space.program(work, config), rng).bind(work).run(operands, out)
        assert expected.mismatch(out) is None, config


def test_a_gpu_with_less_has_a_smaller_space() -> None:
    from dataclasses import replace

    work = WORKLOADS[0]
    small = cuda_space(work.assignment, "A", replace(ANY, threads=128, shared_bytes=4096))
    for config in (small.sample(work, np.random.default_rng(seed)) for seed in range(40)):
        assert (config["threads"] or 1) * config["teams"] <= 128
        if config["nnz_tile"]:
            assert config["nnz_tile"] * config["teams"] * 4 <= 4096


def test_edges_of_heads_are_summed_by_shuffles_over_features() -> None:
    dots = next(w for w in WORKLOADS if "h,j" in str(w.assignment))
    assert (
        "bind(j,lane,8)"
        in cuda_space(dots.assignment).program(dots, cuda_space(dots.assignment).default(dots)).name
    )


def test_gpus_are_described() -> None:
    assert gpu_named("NVIDIA H100 80GB HBM3").multiprocessors == 132
    assert gpu_named("GeForce 256") is ANY
    assert {gpu.threads for gpu in described().values()} == {1024}
    with pytest.raises(InputError, match="there are A100"):
        gpu_called("B1")
