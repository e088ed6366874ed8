"""Pieces of long iterations on a GPU: what they cover, in which order they come, and what cannot be cut."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwise.errors import FormatError, ScheduleError
from tensorwise.lower.lower import lower
from tensorwise.lower.program import PlanKey, program_for
from tensorwise.program.workload import einsum_workload
from tensorwise.runtime.launched import cuda_text
from tensorwise.runtime.packed import PackedOperands, pieces_of
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format
from tensorwise.tensor.pack import pack

CSR = "(i,k) -> U(i) C(k)"
SPMM = "C[i,j] += A[i,k] * B[k,j]"
TEAMS = "bind(i,block,2) tile(j,1x4) bind(j,thread,4)"


def matrix(counts: list[int], width: int) -> Entries:
    """Rows with so many entries each, at random columns."""
    rng = np.random.default_rng(len(counts))
    columns = [np.sort(rng.choice(width, count, replace=False)) for count in counts]
    row = np.repeat(np.arange(len(counts)), counts)
    places = np.concatenate([*columns, np.zeros(0, np.int64)])
    return entries_from(((len(counts), width), (row, places), np.ones(len(row), np.float32)))


@given(
    st.lists(st.integers(0, 30), max_size=25),
    st.integers(1, 40),
    st.sampled_from([CSR, "(i,k) -> C(i) C(k)"]),
)
def test_pieces_cover_everything_once(counts: list[int], most: int, text: str) -> None:
    tensor = pack(matrix(counts, 30), Format.parse(text))
    pieces, cut = pieces_of(tensor, most)
    starts, coordinates = tensor.arrays[1]["pos"], tensor.arrays[1]["crd"]
    row, begin, end, whole = pieces.T
    length = end - begin
    assert length.max(initial=0) <= most
    assert sorted(np.concatenate([np.arange(b, e) for b, e in zip(begin, end, strict=True)] or [[]])) == list(
        range(starts[-1])
    )
    assert set(row) == set(range(tensor.counts[0])), "an empty row has a piece, which stores what it comes to"
    assert whole.tolist() == [
        int(b == starts[r] and e == starts[r + 1]) for r, b, e in zip(row, begin, end, strict=True)
    ]
    assert cut.tolist() == sorted(set(row[whole == 0]))
    doublings = [(n - 1).bit_length() if n else -1 for n in length.tolist()]
    assert doublings == sorted(doublings, reverse=True), "long ones come first"
    middle = [coordinates[b + (e - b) // 2] if e > b else 0 for b, e in zip(begin, end, strict=True)]
    for k in range(1, len(middle)):
        assert doublings[k] < doublings[k - 1] or middle[k] >= middle[k - 1], "neighbours read the same"


def test_rows_that_cannot_be_numbered_are_refused() -> None:
    tensor = pack(matrix([1], 3), Format.parse(CSR))
    many = replace(tensor, counts=(2**31, 1))
    with pytest.raises(FormatError, match="2147483648 iterations are more than int32 can number"):
        pieces_of(many, 4)


def test_nothing_is_cleared_where_nothing_is_cut() -> None:
    for counts, clearing in (([2, 3, 1], 0), ([2, 9, 1], 1)):
        work = einsum_workload(SPMM, {"A": matrix(counts, 12)}, {"j": 4})
        packed = PackedOperands(
            program_for(work, CSR, f"parallel(i,pieces,4) {TEAMS} reorder(i,j,k)"), work, 2
        )
        _, (clear, main), _, names = cuda_text(PlanKey(packed.plan(packed.program, None)))
        sizes = {name: packed.size(name) for name in names}
        assert sizes["n_cut"] == clearing
        assert clear.grid(sizes, {})[0] == clearing, "a grid without blocks is not launched"
        assert main.grid(sizes, {})[0] > 0


@pytest.mark.parametrize(
    ("einsum", "format", "schedule", "message"),
    [
        (SPMM, CSR, "reorder(i,j,k) parallel(i,pieces,4)", "pieces are for GPUs"),
        (SPMM, CSR, f"reorder(i,j,k) parallel(i,merge-path,4) {TEAMS}", r"as parallel\(i,pieces,64\)"),
        (SPMM, "(i,k) -> N(i) S(k)", f"reorder(i,k,j) parallel(i,pieces,4) {TEAMS}", "that lies below i"),
        ("C[i,j] mean= A[i,k] * B[k,j]", CSR, f"reorder(i,j,k) parallel(i,pieces,4) {TEAMS}", "in one piece"),
        (SPMM, CSR, f"reorder(i,j,k) parallel(i,pieces,0) {TEAMS}", "must be at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_cut_is_said(einsum: str, format: str, schedule: str, message: str) -> None:
    work = einsum_workload(einsum, {"A": matrix([2, 3, 1], 12)}, {"j": 4})
    program = program_for(work, format, schedule)
    with pytest.raises(ScheduleError, match=message):
        lower(program.plan(work.elem))
