"""The baselines of the benchmarks give right numbers."""

import numpy as np
import pytest

from benchmarks.baselines.numba_kernels import NumbaKernel
from benchmarks.baselines.plain_c import PlainCKernel
from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.device.verify import poison
from tensorwise.errors import InputError
from tensorwise.program.workload import workload
from tests.unit.device import cases

CASES = dict(cases.workloads(np.random.default_rng(31)))
KERNELS = [
    pytest.param(cls, marks=[] if cls.installed() else pytest.mark.skip, id=cls.name)
    for cls in (PlainCKernel, NumbaKernel)
]


@pytest.mark.parametrize("cls", KERNELS)
@pytest.mark.parametrize("op", ["spmv", "spmm", "sddmm", "mttkrp"])
def test_agrees_with_the_reference(op: str, cls: type[LibraryKernel]) -> None:
    rng = np.random.default_rng(1)
    some = [work for case, work in CASES.items() if case.startswith(op)]
    for work in some:
        operands = work.operands(rng)
        spoiled = cases.spoiled(operands, rng)
        bound = cls().bind(work, 2)
        for given in (operands, spoiled, [cases.strided(operand) for operand in operands]):
            out = np.empty(work.output_shape, work.output_dtype)
            poison(out)
            bound.run(given, out)
            with np.errstate(invalid="ignore"):
                assert work.reference(given).mismatch(out) is None
    assert len(some) >= 8


@pytest.mark.parametrize("cls", KERNELS)
def test_what_they_cannot_run_is_refused(cls: type[LibraryKernel]) -> None:
    rng = np.random.default_rng(2)
    with pytest.raises(InputError, match="cannot run"):
        cls().bind(workload("ttv", cases.tensor((4, 5, 6), 20, rng)), 1)
