"""Libraries obey decision 0103, or are refused: only stored entries bring NaN into a result."""

from collections.abc import Sequence

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.device.libraries.mkl import MklKernel
from tensorwise.device.libraries.strays import find_stray
from tensorwise.device.library import LIBRARY
from tensorwise.errors import InputError
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.kernel import BoundKernel
from tensorwise.tensor.convert import entries_from

SHAPES = [
    (1, 1, 1.0),
    (33, 8, 0.01),
    (257, 33, 0.0005),
    (257, 33, 0.5),
    (1000, 8, 0.01),
    (1000, 300, 0.0005),
    (5000, 33, 0.5),
    (300, 300, 0.1),
]
"""Rows, columns and density: MKL's inspector chooses other layouts for few entries and for dense, narrow matrices."""
OPS = {"spmv": {}, "spmm": {"n": 3}, "spmv_t": {}, "spmm_t": {"n": 2}}


def a_matrix(m: int, n: int, density: float, dtype: str = "float64") -> sp.csr_array:
    rng = np.random.default_rng(m + n)
    dense = (rng.random((m, n)) < density) * rng.uniform(1, 2, (m, n))
    dense[m // 2, n // 2] = 1.5
    return sp.csr_array(dense.astype(dtype))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", list(LIBRARY))
def test_nan_reaches_the_rows_that_read_it_and_no_other(name: str, shape: tuple[int, int, float]) -> None:
    if not LIBRARY[name].installed():
        pytest.skip(f"{name} is not installed")
    rng = np.random.default_rng(1)
    for dtype in ("float32", "float64"):
        A = a_matrix(*shape, dtype)
        for op, options in OPS.items():
            work = workload(op, entries_from(A), **options)
            if LIBRARY[name]().why_not(work):
                continue
            bound = LIBRARY[name]().bind(work, 1)
            M = A.T if op.endswith("_t") else A
            for column in {0, M.shape[1] - 1, *rng.integers(M.shape[1], size=4).tolist()}:
                operand = np.ones(work.shape("B"), dtype)
                operand[column] = np.nan
                out = np.full(work.output_shape, np.nan, dtype)
                bound.run([operand], out)
                reads = np.zeros(M.shape[0], bool)
                reads[M[:, [column]].tocoo().coords[0]] = True
                expected = np.broadcast_to(reads.reshape(-1, *[1] * (out.ndim - 1)), out.shape)
                np.testing.assert_array_equal(np.isnan(out), expected)


def test_what_mkl_pads_runs_without_its_inspector() -> None:
    if not MklKernel.installed():
        pytest.skip("mkl is not installed")
    notes = []
    for shape in SHAPES:
        work = workload("spmv", entries_from(a_matrix(*shape)))
        notes.append(MklKernel().bind(work, 1).note)
    assert any("without its own optimisation" in note and "which reads none" in note for note in notes)
    assert not all(notes)


class Padding(BoundKernel):
    """Adds zero times something to every row, or does one of the other things that libraries must not."""

    def __init__(self, work: Workload, fault: str) -> None:
        self.matrix, self.fault = work.entries.to_scipy(), fault

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        right = self.matrix @ operands[0]
        if self.fault == "out":
            right = right + 0 * out
        elif self.fault == "drops":
            right = np.nan_to_num(right)
        elif self.fault:
            right = right + 0 * operands[0][int(self.fault)]
        out[...] = right


class Toy(LibraryKernel):
    name = "toy"
    package = "toy"
    opaque = True
    fault = ""

    @classmethod
    def installed(cls) -> bool:
        return True

    def why_not(self, workload: Workload) -> str | None:
        return None

    def convert(self, workload: Workload, threads: int) -> BoundKernel:
        return Padding(workload, self.fault)


@pytest.mark.parametrize("op", ["spmv", "spmm"])
@pytest.mark.parametrize("fault", ["out", "drops", "0", "-1", "7"])
def test_faults_are_found_and_refused(fault: str, op: str) -> None:
    """As a kernel that leaves rows alone, drops what meets zero, or pads with the first, last or another column."""
    A = a_matrix(40, 20, 0.05)
    A = A[:, :]
    A.data[0] = np.inf
    work = workload(op, entries_from(A))
    assert find_stray(Padding(work, ""), work) is None
    assert find_stray(Padding(work, fault), work) is not None

    class Faulty(Toy):
        pass

    Faulty.fault = fault
    with pytest.raises(InputError, match="choose another kernel"):
        Faulty().bind(work, 1)

    class Mended(Faulty):
        def plainer(self) -> LibraryKernel:
            return Toy()

    bound = Mended().bind(work, 1)
    assert "without its own optimisation" in bound.note
    assert find_stray(bound, work) is None


def test_other_operations_and_empty_matrices_are_left() -> None:
    A = a_matrix(20, 20, 0.2)
    work = workload("sddmm", entries_from(A), n=3)
    assert find_stray(Padding(work, "0"), work) is None
    empty = workload("spmv", entries_from(sp.csr_array((0, 5))))
    assert find_stray(Padding(empty, "0"), empty) is None
