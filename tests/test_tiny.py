"""The tiny test: pack, compile and run two products on a small matrix. The commit hook runs it."""

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.program.generated import GeneratedKernel
from tensorwise.program.program import program_for
from tensorwise.program.workload import workload
from tensorwise.tensor.entries import entries_from


@pytest.mark.parametrize(
    ("format", "schedule"),
    [
        ("U(i) C(k)", "parallel(i,balanced,4)"),
        (
            "U(i1) C(k1) U(i0:2) U(k0:2)",
            "reorder(i1,k1,i0,k0{j}) parallel(i1,dynamic,8) unroll(i0) unroll(k0)",
        ),
    ],
    ids=["rows", "blocks"],
)
@pytest.mark.parametrize("op", ["spmv", "spmm"])
def test_products_agree_with_scipy(op: str, format: str, schedule: str) -> None:
    rng = np.random.default_rng(1)
    matrix = sp.random_array((37, 29), density=0.15, format="csr", dtype=np.float32, rng=rng)
    work = workload(op, entries_from(matrix), n=12 if op == "spmm" else None)
    program = program_for(work, f"(i,k) -> {format}", schedule.format(j=",j" if op == "spmm" else ""))
    bound = GeneratedKernel(program).bind(work, threads=2)
    (operand,) = work.operands(rng)
    out = np.full(work.output_shape, np.nan, np.float32)
    bound.run([operand], out)
    np.testing.assert_allclose(out, matrix @ operand, rtol=1e-5, atol=1e-6)
