"""The baselines of the benchmarks give right numbers."""

import numpy as np
import pytest

from benchmarks.baselines.fixed_csr import FixedCsr, compressed_levels
from benchmarks.baselines.numba_kernels import NumbaKernel
from benchmarks.baselines.plain_c import PlainCKernel
from benchmarks.baselines.pydata_sparse import PydataSparseKernel
from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.device.verify import poison
from tensorwise.errors import InputError
from tensorwise.program.workload import workload
from tests.unit.device import cases

CASES = dict(cases.workloads(np.random.default_rng(31)))
KERNELS = [
    pytest.param(
        cls, marks=pytest.mark.skipif(not cls.installed(), reason=f"{cls.name} is not installed"), id=cls.name
    )
    for cls in (PlainCKernel, FixedCsr, NumbaKernel, PydataSparseKernel)
]


@pytest.mark.parametrize("cls", KERNELS)
@pytest.mark.parametrize("op", ["spmv", "spmm", "sddmm", "mttkrp"])
def test_agrees_with_the_reference(op: str, cls: type[LibraryKernel]) -> None:
    rng = np.random.default_rng(1)
    some = [work for case, work in CASES.items() if case.startswith(op)]
    some = [work for work in some if cls().why_not(work) is None]
    for work in some:
        operands = work.operands(rng)
        bound = cls().bind(work, 2)
        # Fixed CSR is compiled with -ffast-math, as TACO's users do: it promises nothing for NaN and infinities.
        spoiled = [] if cls is FixedCsr else [cases.spoiled(operands, rng)]
        for given in (operands, *spoiled, [cases.strided(operand) for operand in operands]):
            out = np.empty(work.output_shape, work.output_dtype)
            poison(out)
            bound.run(given, out)
            with np.errstate(invalid="ignore"):
                assert work.reference(given).mismatch(out) is None
    assert len(some) >= 8 or (cls is PydataSparseKernel and op in ("sddmm", "mttkrp"))


@pytest.mark.parametrize("cls", KERNELS)
def test_what_they_cannot_run_is_refused(cls: type[LibraryKernel]) -> None:
    rng = np.random.default_rng(2)
    with pytest.raises(InputError, match="cannot run"):
        cls().bind(workload("ttv", cases.tensor((4, 5, 6), 20, rng)), 1)


def test_fixed_csf_has_compressed_levels_only() -> None:
    coordinates = ([1, 1, 1, 4], [0, 0, 2, 2], [3, 5, 3, 3])
    levels = compressed_levels([np.array(coordinate) for coordinate in coordinates])
    assert [level.tolist() for level in levels] == [
        [0, 2],
        [1, 4],
        [0, 2, 3],
        [0, 2, 2],
        [0, 2, 3, 4],
        [3, 5, 3, 3],
    ]


def test_fixed_csr_refuses_what_its_positions_cannot_address() -> None:
    rng = np.random.default_rng(3)
    wide = cases.tensor((2, 2**20), 5, rng)
    assert FixedCsr().why_not(workload("spmm", wide, n=2**10)) is None
    assert "32-bit" in str(FixedCsr().why_not(workload("spmm", wide, n=2**11)))


def test_the_process_keeps_its_subnormal_numbers() -> None:
    """Code linked with -ffast-math would flush them to zero from then on, in whatever runs beside it."""
    work = next(work for case, work in CASES.items() if case.startswith("spmv") and not work.halves)
    if not FixedCsr.installed():
        pytest.skip("needs gcc")
    FixedCsr().bind(work, 1)
    assert np.float32(1e-40) / np.float32(2) > 0
