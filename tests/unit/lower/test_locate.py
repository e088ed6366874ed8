"""``locate``: an entry is found by the number that an operand holds, instead of looking at all of its row."""

from dataclasses import replace

import numpy as np
import pytest

from tensorwise.errors import ScheduleError
from tensorwise.lower.program import program_for
from tensorwise.program.einsum import Einsum
from tensorwise.program.workload import Workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.interpreted import InterpretedKernel
from tests.unit.device.cases import tensor

ROWS, COLUMNS, WIDTH = 12, 9, 5
CSR = "(i,k) -> U(i) C(k)"
SCATTER = "G[k,j] += D[i,j] if P[i,j] == A else 0 for A[i,k]"
GATHER = "C[i,j] += B[k,j] * E[A,j] if P[i,j] == A else 0 for A[i,k]"
ON_EDGES = "G[A] += D[i,j] * B[k,j] if P[i,j] == A else 0 for A[i,k]"
SCHEDULES = {
    SCATTER: [
        "reorder(i,k,j) locate(A)",
        "reorder(k,j,i) parallel(j,dynamic,1) locate(A)",
        "split(j,2) reorder(j1,i,k,j0) parallel(j1,dynamic,1) unroll(j0) locate(A)",
        "reorder(i,k,j) parallel(i,balanced,2,private) locate(A)",
        "reorder(i,k,j) parallel(i,merge-path,2) locate(A)",
    ],
    GATHER: ["reorder(i,k,j) parallel(i,balanced,2) locate(A)", "reorder(j,i,k) bound(j,5) locate(A)"],
    ON_EDGES: ["reorder(i,k,j) parallel(i,dynamic,2) locate(A)", "reorder(j,i,k) locate(A)"],
}


def drawn(text: str, numbered: bool) -> tuple[Workload, list[np.ndarray]]:
    """A workload, with numbers of entries most of which are in the row that asks, some in others and some nowhere."""
    rng = np.random.default_rng(0)
    entries = tensor((ROWS, COLUMNS), 50, rng)
    numbers = rng.permutation(entries.nnz).astype(np.int32) if numbered else None
    work = Workload(
        "einsum",
        Einsum.parse(text),
        {"A": replace(entries, numbers=numbers)},
        {"i": ROWS, "k": COLUMNS, "j": WIDTH},
    )
    operands = work.operands(rng)
    holds = operands[work.dense.index("P")]
    for place, row in enumerate(entries.coordinates[0]):
        own = place if numbers is None else numbers[place]
        holds[row, rng.integers(WIDTH, size=2)] = own
    holds[0, 0], holds[3, 1], holds[4, 2] = -1, entries.nnz, np.iinfo(np.int32).max
    return work, operands


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize(("text", "schedule"), [(text, s) for text, own in SCHEDULES.items() for s in own])
def test_located_is_as_looked_for(text: str, schedule: str, numbered: bool) -> None:
    work, operands = drawn(text, numbered)
    wanted = work.reference(operands)
    program = program_for(work, CSR, schedule)
    for kernel in (GeneratedKernel(program), InterpretedKernel(program, np.random.default_rng(1))):
        out = np.full(work.output_shape, np.nan, np.float32)
        kernel.bind(work, 2).run(operands, out)
        assert wanted.mismatch(out) is None
    assert "C[A" in text or np.count_nonzero(wanted.value) > 5


@pytest.mark.parametrize(
    ("text", "format", "schedule", "message"),
    [
        ("C[i,j] += B[k,j] for A[i,k]", CSR, "locate(A)", "only one entry may count"),
        (SCATTER, "(i,k) -> U(k) C(i)", "locate(A)", "formats such as"),
        (SCATTER, "(i,k) -> N(i) S(k)", "locate(A)", "formats such as"),
        (SCATTER, CSR, "tile(j,1x4) locate(A)", "one by one"),
        (SCATTER, CSR, "parallel(k) locate(A)", "one by one"),
        (SCATTER, CSR, "locate(A) locate(A)", "at most one locate"),
        (
            SCATTER,
            f"{CSR}; rows>2: {CSR}",
            "reorder(i,k,j) locate(A); reorder(i,k,j)",
            "a hybrid has two",
        ),
    ],
)
def test_what_cannot_be_located(text: str, format: str, schedule: str, message: str) -> None:
    work, _ = drawn(text, False) if "P[" in text else (drawn(SCATTER, False)[0], None)
    work = replace(work, einsum=Einsum.parse(text))
    with pytest.raises(ScheduleError, match=message):
        GeneratedKernel(program_for(work, format, schedule)).texts(work)
