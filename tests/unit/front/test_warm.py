"""What ``cache warm`` compiles is what tunings of typical operands ask for."""

import numpy as np
import pytest

from tensorwise.front.warm import DTYPES, OPS, texts
from tensorwise.program.workload import workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.space.cpu import cpu_space
from tensorwise.space.portfolio import portfolio
from tests.unit.device.cases import tensor

COMMON = texts()


def test_about_a_hundred_structures() -> None:
    assert 80 <= len(COMMON) <= 180
    assert COMMON.keys() == {text for op in OPS for text in texts([op])}
    assert not COMMON.keys() & texts(dtypes=DTYPES[1:]).keys()
    assert texts(["spmm"]).keys() < texts(["spmm"], every=True).keys()


@pytest.mark.parametrize(
    ("op", "shape", "n"),
    [
        ("spmv", (1000, 1000), None),
        ("spmv", (4097, 333), None),
        ("spmm", (2000, 1999), 64),
        ("spmm", (300, 50_000), 256),
        ("sddmm", (900, 1100), 64),
        ("sddmm", (901, 1101), 64),
        ("mttkrp", (600, 70, 500), 16),
    ],
)
def test_typical_operands_find_their_kernels(op: str, shape: tuple[int, ...], n: int | None) -> None:
    work = workload(op, tensor(shape, 3000, np.random.default_rng(0)), n=n)
    space = cpu_space(work.assignment, "A")
    # an extent that is compiled in makes a kernel for itself: only common ones are compiled beforehand
    shared = [config for config in portfolio(space, work) if not config["bound"] or n in (16, 64)]
    wanted = [text for config in shared for text in GeneratedKernel(space.program(work, config)).texts(work)]
    assert wanted[0] in COMMON  # the untuned kernel
    assert sum(text in COMMON for text in wanted) >= 0.8 * len(wanted)
