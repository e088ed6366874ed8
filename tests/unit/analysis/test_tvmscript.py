"""Programs of TVM, read from their text."""

import numpy as np
import pytest

from tensorwise.analysis.loop_tree import Leaf, Loop, LoopTree
from tensorwise.analysis.tvmscript import read_tvmscript
from tensorwise.errors import InputError

MATMUL = """
from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def main(A: T.Buffer((T.int64(64), T.int64(32)), "float32"), B: T.Buffer((32, 48)), C: T.Buffer((64, 48), "float32")):
    T.func_attr({"tirx.noalias": True})
    # with T.sblock("root"):
    for i_0_j_0_fused in T.parallel(T.int64(32), annotations={"pragma_auto_unroll_max_step": 16}):
        for k_0, i_1 in T.grid(T.int64(16), T.int64(4)):
            for k_1 in range(T.int64(2)):
                for j_1 in T.vectorized(T.int64(24)):
                    with T.sblock("C_update"):
                        v_i = T.axis.spatial(T.int64(64), i_0_j_0_fused // T.int64(2) * T.int64(4) + i_1)
                        v_j = T.axis.spatial(T.int64(48), i_0_j_0_fused % T.int64(2) * T.int64(24) + j_1)
                        v_k = T.axis.reduce(T.int64(32), k_0 * T.int64(2) + k_1)
                        T.reads(C[v_i, v_j], A[v_i, v_k], B[v_k, v_j])
                        T.writes(C[v_i, v_j])
                        C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
"""


def read(text: str) -> LoopTree:
    return read_tvmscript(text, np.random.default_rng(0))


def function(body: str, arguments: str = "") -> str:
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return f"@T.prim_func\ndef main({arguments}):\n{lines}\n"


def test_a_scheduled_product() -> None:
    ((loops, leaf),) = read(MATMUL).leaves()
    assert [(loop.kind, loop.extent) for loop in loops] == [
        ("parallel", 32),
        ("serial", 16),
        ("serial", 4),
        ("serial", 2),
        ("vectorized", 24),
    ]
    assert leaf.operations["float_mul"] == leaf.operations["float_add"] == 1
    a, b, c = (next(one for one in leaf.accesses if one.buffer == name) for name in "ABC")
    assert (a.mode, b.mode, c.mode) == ("read", "read", "update")
    assert a.strides[1:] == (2, 32, 1, 0)
    assert b.strides[1:] == (96, 0, 48, 1)
    assert c.strides[1:] == (0, 48, 0, 1)
    # Every other step of the fused loop goes on to the next four rows of A, the others to other columns of B.
    assert a.strides[0] == 4 * 32
    assert 0.3 < a.moves[0] < 0.7
    assert b.moves[0] == 1
    assert a.touched([loop.extent for loop in loops])[0] == pytest.approx(64 * 32, rel=0.5)


def test_small_bodies_are_unrolled_where_a_pragma_asks() -> None:
    text = MATMUL.replace("T.vectorized(T.int64(24))", "range(T.int64(8))")
    ((loops, _),) = read(text).leaves()
    assert [loop.kind for loop in loops] == ["parallel", "serial", "serial", "unrolled", "unrolled"]


def test_padding_is_a_choice_and_a_condition_a_share() -> None:
    body = """
pad = T.sblock_alloc_buffer((T.int64(10), T.int64(100)))
for i in range(T.int64(10)):
    for j in range(T.int64(100)):
        with T.sblock("pad"):
            T.where(j < T.int64(50))
            pad[i, j] = T.if_then_else(T.int64(1) <= i and i < T.int64(9), X[i - T.int64(1), j], T.float32(0.0))
        if i == T.int64(0):
            Y[j] = T.float32(0.0)
        else:
            Y[j] = T.max(Y[j], T.exp(pad[i, j]))
"""
    tree = read(function(body, 'X: T.Buffer((8, 100), "float32"), Y: T.Buffer((100,), "float32")'))
    (padded, first, later) = tree.leaves()
    assert padded[1].operations["select"] == 1
    assert padded[0][-1].kind == "condition"
    assert padded[0][-1].extent == pytest.approx(0.5, abs=0.2)
    assert first[0][-1].extent + later[0][-1].extent == pytest.approx(1.0, abs=0.3)
    assert later[1].operations == {"float_compare": 1, "float_math": 1}
    assert [access.mode for access in later[1].accesses] == ["update", "read"]


def test_gathers_go_anywhere() -> None:
    body = """
for i, j in T.grid(T.int64(50), T.int64(8)):
    with T.sblock("take"):
        v_i, v_j = T.axis.remap("SS", [i, j])
        Y[v_i, v_j] = X[I[v_i], v_j]
"""
    arguments = (
        'X: T.Buffer((30000, 8), "float32"), I: T.Buffer((50,), "int32"), Y: T.Buffer((50, 8), "float32")'
    )
    ((_, leaf),) = read(function(body, arguments)).leaves()
    found = {access.buffer: access for access in leaf.accesses}
    assert found["X"].strides[0] > 1000
    assert found["I"].strides == (1, 0)
    assert found["I"].item_bytes == 4


def test_threads_of_a_gpu() -> None:
    body = """
for b in T.thread_binding(T.int64(4), thread="blockIdx.x"):
    for t in T.thread_binding(T.int64(32), thread="threadIdx.x"):
        Y[b * T.int64(32) + t] = T.float32(1.0)
"""
    (node,) = read(function(body, 'Y: T.Buffer((128,), "float32")')).nodes
    assert isinstance(node, Loop)
    assert node.kind == "block"
    assert isinstance(node.body[0], Loop)
    assert node.body[0].kind == "thread"
    assert isinstance(node.body[0].body[0], Leaf)


@pytest.mark.parametrize(("inner", "share"), [(32, None), (8, 0.25)])
def test_threads_are_bound_again(inner: int, share: float | None) -> None:
    """What all threads load together is in a loop over them that is inside the first one."""
    body = f"""
for b in T.thread_binding(T.int64(4), thread="blockIdx.x"):
    for t in T.thread_binding(T.int64(32), thread="threadIdx.x"):
        for k in range(T.int64(8)):
            for u in T.thread_binding(T.int64({inner}), thread="threadIdx.x"):
                Y[b * T.int64(32) + u] = X[u * T.int64(8) + k]
"""
    arguments = 'X: T.Buffer((256,), "float32"), Y: T.Buffer((128,), "float32")'
    ((loops, leaf),) = read(function(body, arguments)).leaves()
    assert [loop.kind for loop in loops] == ["block", "thread", "serial", *(["condition"] if share else [])]
    if share:
        assert loops[-1].extent == pytest.approx(share, abs=0.2)
    by_name = {access.buffer: access for access in leaf.accesses}
    assert by_name["X"].strides[:3] == (0, 8, 1)
    assert by_name["Y"].strides[:3] == (32, 1, 0)


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(n):\n    Y[i] = T.float32(0.0)",
        "for i in something(T.int64(3)):\n    Y[i] = T.float32(0.0)",
        "while True:\n    Y[0] = T.float32(0.0)",
        "for i in range(T.int64(3)):\n    Y[().__class__.__base__] = T.float32(0.0)",
        "for i in range(T.int64(3)):\n    Y[[i for i in range(9)][i]] = T.float32(0.0)",
        "for i in range(T.int64(3)):\n    Y[9**9**9] = T.float32(0.0)",
        "with T.init():\n    Y[0] = T.float32(0.0)",
    ],
)
def test_other_text_is_refused(body: str) -> None:
    with pytest.raises(InputError):
        read(function(body, 'Y: T.Buffer((128,), "float32")'))
    with pytest.raises(InputError, match="function"):
        read("x = 1")
