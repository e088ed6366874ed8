"""Loop trees: by hand, and of lowered programs against what a run would do."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.analysis.loop_tree import LOOP_KINDS, OPERATIONS, BufferAccess, Leaf, Loop, LoopTree, Node
from tensorwise.analysis.measured_tree import program_tree
from tensorwise.errors import InputError
from tensorwise.lower.program import Program
from tensorwise.program.schedule import Schedule
from tensorwise.program.workload import Workload, workload
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.format import Format


def trees(depth: int = 0) -> st.SearchStrategy[Node]:
    """Nodes with ``depth`` loops around them, numbers short enough for a text."""
    small = st.integers(0, 999)
    access = st.builds(
        lambda strides, mode, size: BufferAccess(
            "x", mode, 4, size, tuple(map(float, strides)), tuple(float(s > 0) for s in strides)
        ),
        st.lists(small, min_size=depth, max_size=depth),
        st.sampled_from(["read", "write", "update"]),
        small,
    )
    leaf = st.builds(
        Leaf,
        st.dictionaries(st.sampled_from(OPERATIONS), small, max_size=3),
        st.lists(access, max_size=2).map(tuple),
    )
    if depth == 3:
        return leaf
    below = st.lists(st.deferred(lambda: trees(depth + 1)), max_size=3).map(tuple)
    return leaf | st.builds(Loop, st.sampled_from(LOOP_KINDS), st.just(1) | small, below)


@settings(max_examples=60, deadline=None)
@given(st.lists(trees(), max_size=3))
def test_a_tree_is_read_back_from_its_text(nodes: list[Node]) -> None:
    tree = LoopTree(tuple(nodes))
    assert LoopTree.from_text(tree.text) == tree


@settings(max_examples=60, deadline=None)
@given(st.lists(trees(), max_size=3))
def test_without_loops_that_run_once_a_program_touches_the_same(nodes: list[Node]) -> None:
    tree = LoopTree(tuple(nodes))
    for (loops, leaf), (left, same) in zip(tree.leaves(), tree.repeating().leaves(), strict=True):
        assert left == tuple(loop for loop in left if loop.extent != 1 or loop.kind == "condition")
        before, after = [loop.extent for loop in loops], [loop.extent for loop in left]
        assert math.prod(before) == math.prod(after)
        assert same.operations == leaf.operations
        for one, other in zip(leaf.accesses, same.accesses, strict=True):
            assert one.touched(before) == other.touched(after)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[["serial",2]]', '[["twice",2,[]]]', "[" * 100_000, '[["leaf",{"x":1},[]]]']
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        LoopTree.from_text(text)


def test_an_access_has_a_stride_for_each_loop() -> None:
    leaf = Leaf({}, (BufferAccess("x", "read", 4, 10, (1.0,), (1.0,)),))
    with pytest.raises(InputError, match="1 strides"):
        LoopTree((leaf,))


@pytest.mark.parametrize(
    ("strides", "extents"),
    [
        ((100, 1), (8, 32)),  # a tile of rows
        ((1, 100), (8, 32)),  # the same by columns
        ((20, 1, 20, 1), (6, 7, 3, 3)),  # a convolution's window
        ((40, 2, 20, 1), (6, 7, 3, 3)),  # ... with stride 2
        ((0, 1), (5, 64)),
        ((64, 0, 1), (4, 9, 64)),
    ],
)
def test_touched_elements_are_those_of_a_run(strides: tuple[int, ...], extents: tuple[int, ...]) -> None:
    access = BufferAccess(
        "x", "read", 4, 1e9, tuple(map(float, strides)), tuple(float(s > 0) for s in strides)
    )
    for depth in range(len(extents) + 1):
        ranges = [range(extent) for extent in extents[depth:]]
        places = {
            sum(a * b for a, b in zip(strides[depth:], at, strict=True)) for at in itertools.product(*ranges)
        }
        distinct, run = access.touched(extents, depth)
        assert len(places) <= distinct <= 1.25 * len(places)
        assert run <= distinct
    assert access.lines(*access.touched(extents)) <= access.touched(extents)[0]


@pytest.mark.parametrize("count", [4, 64])
@pytest.mark.parametrize(
    ("strides", "extents", "first"),
    [
        ((16, 1), (8, 16), 1.0),  # lines next to each other
        ((1024, 1), (8, 16), 1.0),  # 4 KB apart: all in the same set of 64
        ((512, 0, 1), (9, 5, 3), 1.0),
        ((100, 7), (30, 30), 1.0),
        ((48, 20), (50, 3), 4.0),
        ((0, 0), (3, 4), 1.0),
    ],
)
def test_sets_are_those_of_a_run(
    count: int, strides: tuple[int, ...], extents: tuple[int, ...], first: float
) -> None:
    moves = tuple(float(stride > 0) for stride in strides)
    access = BufferAccess("x", "read", 4, 1e9, tuple(map(float, strides)), moves, first)
    for depth in range(len(extents) + 1):
        ranges = [range(extent) for extent in (*extents[depth:], int(first))]
        steps = (*strides[depth:], 1)
        places = (sum(a * b for a, b in zip(steps, at, strict=True)) for at in itertools.product(*ranges))
        assert access.sets(extents, depth, count) == len({place * 4 // 64 % count for place in places})


def program_of(work: Workload, schedule: str = "") -> Program:
    return Program(work.assignment, {"A": Format.parse("(i,k) -> U(i) C(k)")}, Schedule.parse(schedule))


def tree_of(program: Program, matrix: sp.csr_array, op: str, **more: int) -> LoopTree:
    work = workload(op, entries_from(matrix), **more)
    return program_tree(program, work, np.random.default_rng(0))


def executions(tree: LoopTree, name: str) -> float:
    """How often elements of a buffer are read."""
    total = 0.0
    for loops, leaf in tree.leaves():
        times = np.prod([loop.extent for loop in loops])
        total += sum(times * a.count for a in leaf.accesses if a.buffer == name)
    return total


def matrix_of(lengths: np.ndarray, columns: int, rng: np.random.Generator) -> sp.csr_array:
    rows = [np.sort(rng.choice(columns, length, replace=False)) for length in lengths]
    indices = np.concatenate(rows)
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    return sp.csr_array((np.ones(len(indices), np.float32), indices, pointers), (len(lengths), columns))


def test_rows_of_one_length_are_counted_exactly() -> None:
    matrix = matrix_of(np.full(200, 6), 300, np.random.default_rng(1))
    work = workload("spmv", entries_from(matrix))
    tree = tree_of(program_of(work, "parallel(i)"), matrix, "spmv")
    assert executions(tree, "A_values") == pytest.approx(200 * 6)
    assert executions(tree, "B_values") == pytest.approx(200 * 6)
    (outer,) = (node for node in tree.nodes if isinstance(node, Loop))
    assert outer.kind == "parallel"
    assert outer.extent == 200


def test_skewed_rows_are_counted_about_right() -> None:
    rng = np.random.default_rng(2)
    lengths = np.minimum(rng.zipf(1.8, 2000), 400)
    matrix = matrix_of(lengths, 500, rng)
    work = workload("spmm", entries_from(matrix), n=32)
    tree = tree_of(program_of(work, "parallel(i) tile(j,1x8)"), matrix, "spmm", n=32)
    read = executions(tree, "B_values")
    assert 0.5 * 32 * matrix.nnz < read < 2 * 32 * matrix.nnz
    assert any(loop.kind == "vectorized" for loops, _ in tree.leaves() for loop in loops)


def test_gathers_move_as_far_as_the_pattern_says() -> None:
    rng = np.random.default_rng(3)
    wide = matrix_of(np.full(300, 4), 10_000, rng)
    near = sp.csr_array((wide.data, np.tile(np.arange(4), 300), wide.indptr), wide.shape)

    def stride(matrix: sp.csr_array) -> float:
        work = workload("spmv", entries_from(matrix))
        tree = tree_of(program_of(work), matrix, "spmv")
        return max(
            a.strides[-1] for _, leaf in tree.leaves() for a in leaf.accesses if a.buffer == "B_values"
        )

    assert stride(near) == pytest.approx(1.0)
    assert stride(wide) > 500
