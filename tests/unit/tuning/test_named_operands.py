"""Dense operands of ``tune`` by name: they tell sizes and dtypes, as those of ``compile`` tell sizes."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError
from tensorwise.program.workload import workload
from tensorwise.tensor.convert import entries_from
from tensorwise.tuning.operator import Operator

A = sp.random_array((30, 20), density=0.2, rng=np.random.default_rng(0), format="csr", dtype=np.float32)


def tuned(op: str, **arguments: Any) -> Operator:
    return tw.tune(A, op, trials=1, store=False, model=None, threads=1, **arguments)


def test_operands_tell_sizes_and_dtypes() -> None:
    text = "C[i,j] += A[i,k] * B[k,j] * D[i,l] * E[l]"
    B = np.ones((20, 3), np.float32)
    assert tuned(text, operands={"B": B}, n=7).workload.sizes == {"i": 30, "j": 3, "k": 20, "l": 7}
    operator = tuned(text, operands={"B": B, "D": (30, 5)})
    assert operator.workload.sizes == {"i": 30, "j": 3, "k": 20, "l": 5}
    D, E = np.ones((30, 5), np.float32), np.ones(5, np.float32)
    np.testing.assert_allclose(operator(B, D, E), 5 * (A @ B), rtol=1e-4)


def test_an_array_tells_its_dtype_unless_one_is_given() -> None:
    half = np.ones((20, 4), np.float16)
    assert tuned("spmm", operands={"B": half}).workload.dtype_of("B") == np.float16
    assert tuned("spmm", operands={"B": half}, dtype="float32").workload.dtype_of("B") == np.float32
    assert tuned("spmm", operands={"B": half}, dtype={"B": "float32"}).workload.dtype_of("B") == np.float32


@pytest.mark.parametrize(
    ("op", "arguments", "said"),
    [
        ("spmm", {"operands": {"B": sp.eye_array(20)}}, "tune takes one sparse operand, A; B is given as"),
        ("spmm", {"operands": {"A": (30, 20)}}, "A is given twice, as the first argument and in operands"),
        ("spmm", {"operands": {"X": (20, 4)}}, "has no operand 'X'; it has A, B"),
        ("spmm", {"operands": {"B": (19, 4)}}, "index 'k' has extent 19 in B of shape"),
        ("spmm", {"operands": {"B": (20,)}}, r"B\[k,j\] has 2 indices, but B has shape \(20,\)"),
        ("spmm", {"operands": {"B": (20, 0)}}, "extents of operand B must be positive"),
        ("spmm", {"operands": {"B": (20, 4)}, "n": 5}, r"n must be left out \(got n=5\)"),
        ("spmm", {"operands": {"B": np.ones((20, 4))}}, "float64 goes with float64 only"),
        ("C[i,j] = A[i,j] + B[i,j]", {"operands": {"B": A}}, "tensorwise.interpret"),
    ],
)
def test_operands_that_do_not_fit_are_refused(op: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        tw.tune(A, op, device=NullDevice(), **arguments)


def test_n_may_repeat_what_operands_tell() -> None:
    work = workload("spmm", entries_from(A), n=4, shapes={"B": (20, 4)})
    assert work.sizes["j"] == 4
