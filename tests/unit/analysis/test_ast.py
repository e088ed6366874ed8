"""Compact ASTs: a matrix product by hand, shapes of trees, and positions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.analysis.ast import END, LEAVES, CompactAst, positional_encoding, serialised
from tensorwise.analysis.loop_tree import BufferAccess, Leaf, Loop, LoopTree, Node
from tensorwise.analysis.place import Place

M, N, K, TILE = 64, 48, 32, 8


def product(m: int = M, n: int = N, k: int = K, once: bool = False) -> LoopTree:
    """Return C[i,j] += A[i,k] * B[k,j], j in vectors of TILE, innermost; with ``once`` there are loops that run once."""
    moves = ((1, 0, 1, 0), (0, 1, 1, 1), (1, 1, 0, 1))
    strides = ((k, 0, 1, 0), (0, TILE, n, 1), (n, TILE, 0, 1))
    loops = [("vectorized", TILE), ("serial", k), ("serial", n // TILE), ("parallel", m)]
    if once:
        loops = [(kind, size) for kind, extent in loops for size in (extent, 1)]
        moves = tuple(tuple(x for move in row for x in (0, move)) for row in moves)  # type: ignore[assignment]
        strides = tuple(tuple(x for step in row for x in (7, step)) for row in strides)  # type: ignore[assignment]
    a, b, c = (
        BufferAccess(name, mode, 4, size, tuple(map(float, stride)), tuple(map(float, move)))
        for name, mode, size, stride, move in zip(
            "ABC", ("read", "read", "update"), (m * k, k * n, m * n), strides, moves, strict=True
        )
    )
    body: tuple[Node, ...] = (Leaf({"float_mul": 1, "float_add": 1}, (a, b, c)),)
    for kind, extent in loops:
        body = (Loop(kind, extent, body),)  # type: ignore[arg-type]
    return LoopTree(body)


def named(tree: LoopTree) -> dict[str, float]:
    ((loops, leaf),) = tree.leaves()
    numbers = LEAVES.features(Place(loops, leaf)).tolist()
    return dict(zip((field.name for field in LEAVES.fields), numbers, strict=True))


def log(value: float) -> float:
    return math.log2(1 + value)


def test_a_matrix_product_is_described() -> None:
    numbers, runs = named(product()), M * N * K
    expected = {
        "operations.float_mul": log(runs),
        "operations.float_div": 0,
        "loops.count": log(4),
        "loops.executions": log(runs),
        "loops.reduction": log(K),
        "loops.condition": 1,
        "vectorized.extent": log(TILE),
        "vectorized.inside": log(1),
        "parallel.product": log(M),
        "parallel.inside": log(runs / M),
        "unrolled.count": 0,
        "inner1.extent": log(TILE),
        "inner1.vectorized": 1,
        "inner2.extent": log(K),
        "inner1.unrolled": 0,
        "inner1.bytes": log(4 * (TILE + 1 + TILE)),
        "inner1.executions": log(TILE),
        "inner1.stride1": log(1),  # C, which is written, before A, which has more lines than B
        "inner1.stride2": -1,  # A stays
        "inner1.stride4": -2,  # there are three buffers
        "inner2.reduction": 1,
        "inner2.bytes": log(4 * (TILE + K + K * TILE)),
        "inner2.stride1": -1,
        "inner2.stride3": log(N),
        "inner5.extent": 0,
        "inner5.stride1": -2,
        # A vector of C stays in registers for all of k.
        "tile64.runs": log(M * N / TILE),
        "tile64.bytes1": log(4 * M * N),
        "tile64.bytes2": log(4 * M * N / TILE * K),
        "tile64.bytes3": log(4 * M * N * K),
        "tile16.runs": log(runs),
        "memory.written": log(4 * M * N),
        "memory.touched": log(4 * (M * K + K * N + M * N)),
        "intensity.9": log(2 * runs / (4 * (M * K + K * N + M * N))),
        "traffic.32m": log(4 * (M * K + K * N + M * N)),
    }
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, rel=1e-5)


def one_leaf(loops: list[tuple[str, int]], **strides: tuple[int, ...]) -> LoopTree:
    """Return what adds a product of two buffers to a third, whose strides are given: loops are outermost first."""
    accesses = [
        BufferAccess(name, "update" if name == "C" else "read", 4, 1e6, tuple(map(float, steps)),
               tuple(float(step > 0) for step in steps)) for name, steps in strides.items()
    ]  # fmt: skip
    body: tuple[Node, ...] = (Leaf({"float_mul": 1, "float_add": 1}, tuple(accesses)),)
    for kind, extent in loops[::-1]:
        body = (Loop(kind, extent, body),)  # type: ignore[arg-type]
    return LoopTree(body)


def test_lanes_are_those_of_the_vectorized_loop() -> None:
    numbers = named(product())
    expected = {
        "lanes.explicit": 1,
        "lanes.extent": log(TILE),
        "lanes.twos": math.log2(TILE),
        "lanes.full8": 1,
        "lanes.full16": 0.5,
        "lanes.vectors4": log(2),
        "lanes.stride1": log(1),
        "lanes.stride2": -1,
        "lanes.stride4": -2,
        "lanes.neighbours": 2,
        "lanes.gathered": 0,
        "lanes.same": 1,
        "lanes.reduction_distance": log(TILE),
        "inner1.twos": 3,
    }
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, rel=1e-5)


def test_a_vector_of_49_is_one_of_48_and_one_more() -> None:
    numbers = named(one_leaf([("serial", 64), ("vectorized", 49)], C=(0, 1), A=(1, 0), B=(49, 1)))
    assert numbers["lanes.vectors16"] == pytest.approx(log(4))
    assert numbers["lanes.full16"] == pytest.approx(49 / 64)
    assert numbers["lanes.twos"] == 0


def test_a_compiler_can_vectorize_the_loop_around_straight_code_but_no_reduction() -> None:
    around = named(one_leaf([("serial", 197), ("unrolled", 16)], C=(1, 0), A=(0, 1), B=(1, 197)))
    assert (around["lanes.explicit"], around["lanes.loop"]) == (0, 1)
    assert around["lanes.extent"] == pytest.approx(log(197))
    assert around["lanes.straight"] == pytest.approx(log(16))
    assert around["lanes.reduction_distance"] == pytest.approx(
        log(1)
    )  # each summand waits for the one before
    reduced = named(one_leaf([("serial", 197), ("serial", 640)], C=(1, 0), A=(0, 1), B=(1, 197)))
    assert (reduced["lanes.loop"], reduced["lanes.extent"]) == (0, log(1))
    assert reduced["lanes.stride1"] == -2


def test_steps_of_powers_of_two_crowd_few_sets() -> None:
    def crowded(step: int) -> float:
        numbers = named(one_leaf([("serial", 8), ("serial", 640)], C=(1, 0), A=(0, 1), B=(0, step)))
        return numbers["buffer2.reuse_ways"]  # B has more lines than A

    assert crowded(1024) == pytest.approx(math.log2(640))  # 4 KB: all of them in one set
    assert crowded(1040) == pytest.approx(math.log2(640 / 64))


def test_buffers_come_by_their_lines_those_that_are_written_first() -> None:
    numbers = named(product(16, 8, 64))
    # A has most lines, then B, then C, each of which is touched as a whole.
    assert [numbers[f"buffer{rank}.unique_lines"] for rank in (1, 2, 3)] == pytest.approx(
        [log(4 * size / 64) for size in (16 * 8, 16 * 64, 64 * 8)], rel=1e-5
    )
    numbers = named(product())
    assert [numbers[f"buffer{rank}.writes"] for rank in (1, 2, 3, 4)] == [1, 0, 0, 0]
    assert numbers["buffer1.reuse_iterations"] == pytest.approx(log(TILE))  # C stays while k goes on
    assert numbers["buffer2.reuse_iterations"] == 0.0 or numbers["buffer2.reused"] == 1.0
    assert numbers["buffer3.reuse_count"] == pytest.approx(log(M))  # each of B is read once for each row
    assert numbers["buffer3.vector_stride"] == pytest.approx(log(1))
    assert numbers["buffer2.vector_stride"] == 0


def test_loops_that_run_once_are_no_part_of_it() -> None:
    plain, more = CompactAst.of(product()), CompactAst.of(product(once=True))
    assert (plain.leaves == more.leaves).all()
    assert (plain.order == more.order).all()


def test_traffic_falls_with_the_cache_and_never_below_what_is_touched() -> None:
    numbers = named(product())
    traffic = [numbers[f"traffic.{size}"] for size in ("32k", "256k", "1m", "4m", "32m")]
    assert traffic == sorted(traffic, reverse=True)
    assert traffic[-1] >= numbers["memory.touched"] - 1e-4


def test_every_field_has_a_name_a_unit_and_a_sentence() -> None:
    names = [field.name for field in LEAVES.fields]
    assert len(set(names)) == len(names)
    assert all(field.unit and field.doc for field in LEAVES.fields)


def shapes(depth: int = 0) -> st.SearchStrategy[Node]:
    leaf: st.SearchStrategy[Node] = st.just(Leaf({}, ()))
    if depth == 4:
        return leaf
    below = st.lists(st.deferred(lambda: shapes(depth + 1)), max_size=3)
    return leaf | below.map(lambda nodes: Loop("serial", 2, tuple(nodes)))


@settings(max_examples=60, deadline=None)
@given(st.lists(shapes(), max_size=3))
def test_the_serialised_tree_says_all_about_its_shape(nodes: list[Node]) -> None:
    tree = LoopTree(tuple(nodes))
    numbers, leaves = serialised(tree)
    stack: list[list[object]] = [[]]
    for number in numbers:
        if number == END:
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack.append([])

    def shape(parts: tuple[Node, ...]) -> list[object]:
        return [shape(part.body) if isinstance(part, Loop) else [] for part in parts]

    assert stack == [[shape(tree.nodes)]]
    assert [number for number in numbers if number != END] == list(range(len(numbers) // 2))
    assert len(leaves) == sum(1 for _ in tree.leaves())


def test_positions_are_waves() -> None:
    order = np.array([2, 5, 17])
    found = positional_encoding(order, 12)
    for row, place in zip(found, order, strict=True):
        for pair in range(6):
            angle = place / 10_000 ** (2 * pair / 12)
            assert row[2 * pair] == pytest.approx(math.sin(angle), abs=1e-6)
            assert row[2 * pair + 1] == pytest.approx(math.cos(angle), abs=1e-6)


def test_a_program_without_leaves_has_a_row_of_zeros() -> None:
    ast = CompactAst.of(LoopTree(()))
    assert ast.leaves.shape == (1, len(LEAVES.fields))
    assert not ast.leaves.any()


def test_leaves_are_rows_in_the_order_of_the_program() -> None:
    tree = LoopTree((*product().nodes, *product().nodes))
    ast = CompactAst.of(tree)
    assert ast.leaves.shape == (2, len(LEAVES.fields))
    assert ast.leaves.dtype == np.float32
    assert (ast.leaves[0] == ast.leaves[1]).all()
    assert ast.order.tolist() == [5, 15]
