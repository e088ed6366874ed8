"""The C printer: details that go wrong quietly. Every text is compiled and run."""

import ctypes
import math

import numpy as np
import pytest

from tensorwise.lower import ir
from tensorwise.lower.c import print_c
from tensorwise.lower.interpret import interpret
from tensorwise.lower.ir import Buffer, BufferStore, Const, For, Let, Load, Ramp, Reduce, Reg, Set, Type, Var
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.runtime import driver_address

AT, N = Var("i"), Var("n")


def both(
    kernel: ir.LoweredFunction, arrays: dict[str, np.ndarray], sizes: dict[str, int], threads: int = 3
) -> str:
    """Run a kernel compiled and interpreted; assert that they agree and return the text."""
    text = print_c(kernel)
    (loaded,) = default_cache().get([text])
    compiled = {name: array.copy() for name, array in arrays.items()}
    pointers = [driver_address(), 0, *(compiled[b.name].ctypes.data for b in kernel.buffers)]
    numbers = [threads, 1, 0, *(sizes[s.name] for s in kernel.sizes)]
    code = loaded.function(
        (ctypes.c_void_p * len(pointers))(*pointers), (ctypes.c_int64 * len(numbers))(*numbers)
    )
    assert code == 0
    interpret(kernel, arrays, sizes, np.random.default_rng(0))
    for name, array in arrays.items():
        np.testing.assert_array_equal(compiled[name], array, err_msg=f"{name}\n{text}")
    return text


def constants(elem: str, *values: float) -> tuple[str, np.ndarray]:
    out = Buffer("out", elem, writable=True)
    body = tuple(BufferStore(out, Const(n), Const(v, Type(elem))) for n, v in enumerate(values))
    array = np.zeros(len(values), {"f32": "f4", "f64": "f8", "i64": "i8"}[elem])
    return both(ir.LoweredFunction((out,), (), body), {"out": array}, {}), array


NUMBERS = (
    0.0,
    -0.0,
    1.0,
    -2.5,
    0.1,
    1e-45,
    1.1754943508222875e-38,
    3.4028234663852886e38,
    1e30,
    math.inf,
    -math.inf,
    math.nan,
)


@pytest.mark.parametrize("elem", ["f32", "f64"])
def test_literals(elem: str) -> None:
    text, array = constants(elem, *NUMBERS)
    assert np.signbit(array[1])
    expected = np.array(NUMBERS, array.dtype)
    np.testing.assert_array_equal(array, expected)
    assert ("0.1f" in text) == (elem == "f32")


def test_integers_beyond_32_bits() -> None:
    values = (0, -1, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**62))
    text, array = constants("i64", *values)
    assert tuple(array.tolist()) == values
    assert "INT64_C(4611686018427387904)" in text


def test_index_arithmetic_does_not_wrap() -> None:
    out = Buffer("out", "i64", writable=True)
    body = (
        BufferStore(out, Const(0), Const(2**16) * N * Const(2**16)),
        BufferStore(out, Const(1), (N * 2**20) // 3 - N),
    )
    both(ir.LoweredFunction((out,), (N,), body), {"out": np.zeros(2, np.int64)}, {"n": 2**15})


def test_32_bit_integers_count_in_64() -> None:
    out, crd = Buffer("out", "i64", writable=True), Buffer("crd", "i32")
    body = (
        BufferStore(out, Const(0), crd[0] * 4),
        BufferStore(out, Const(1), crd[0] + crd[1]),
        BufferStore(out, Const(2), ir.compare("lt", crd[0] * 8, Const(0))),
    )
    arrays = {"out": np.zeros(3, np.int64), "crd": np.array([2**30, 2**30 - 1], "i4")}
    both(ir.LoweredFunction((out, crd), (), body), arrays, {})
    assert arrays["out"].tolist() == [2**32, 2**31 - 1, 0]


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("elem", ["f32", "f64"])
def test_operators_in_all_widths(elem: str, lanes: int) -> None:
    """Special values in every lane; NaN propagates through minimum and maximum."""
    out, x, y = (Buffer(name, elem, writable=name == "out") for name in ("out", "x", "y"))
    special = [1.5, -2.0, 0.0, -0.0, math.inf, -math.inf, math.nan, 3.0]
    pairs = np.array([(a, b) for a in special for b in special], {"f32": "f4", "f64": "f8"}[elem])
    index = Ramp(AT, lanes) if lanes > 1 else AT
    a, b = Load(x, index), Load(y, index)
    values = [ir.compute(o, a, b) for o in ("add", "sub", "mul", "div", "min", "max")]
    values += [ir.compute(o, a) for o in ("neg", "abs")]
    values.append(ir.compute("mul", a, Const(2.5, Type(elem))))
    body = tuple(
        BufferStore(out, ir.binary("add", index, N * place) if lanes > 1 else AT + N * place, value)
        for place, value in enumerate(values)
    )
    kernel = ir.LoweredFunction((out, x, y), (N,), (For(AT, Const(0), N, lanes, body),))
    arrays = {
        "out": np.zeros(64 * len(values), pairs.dtype),
        "x": pairs[:, 0].copy(),
        "y": pairs[:, 1].copy(),
    }
    both(kernel, arrays, {"n": 64})
    magnitudes = arrays["out"][64 * 7 : 64 * 8]
    assert not np.signbit(magnitudes[~np.isnan(magnitudes)]).any()  # also of -0


@pytest.mark.parametrize("lanes", [2, 8])
@pytest.mark.parametrize("elem", ["f32", "f64"])
def test_integers_of_every_width_in_lanes(elem: str, lanes: int) -> None:
    """What is compared, chosen and gathered by: buffers of all integer types, read as neighbours and otherwise."""
    kinds, beside = {"i32": "i4", "i64": "i8", "u16": "u2", "u32": "u4"}, Type(ir.integer_elem(elem), lanes)
    length = 3 * lanes
    rng = np.random.default_rng(lanes)
    x, y = Buffer("x", elem), Buffer("y", elem)
    buffers = {kind: Buffer(kind, kind) for kind in kinds}
    ramp = Ramp(AT, lanes)
    places = [ramp, ir.binary("mul", ramp, Const(2)), *(Load(b, ramp) for b in buffers.values())]
    numbers = [
        changed
        for buffer in buffers.values()
        for place in places
        for read in [Load(buffer, place)]
        for changed in (read, ir.compute("max", read - 1, ramp))
    ]
    out, chosen = Buffer("out", beside.elem, writable=True), Buffer("chosen", elem, writable=True)
    body: list[ir.Stmt] = []
    for number, value in enumerate(numbers):
        at = ir.binary("add", ramp, N * number)
        same = ir.compare("lt", value, ramp + 3, beside.elem)
        body.append(BufferStore(out, at, ir.narrow(value, beside)))
        body.append(
            BufferStore(chosen, at, ir.select(same, Load(x, places[number % len(places)]), Load(y, ramp)))
        )
    kernel = ir.LoweredFunction(
        (out, chosen, x, y, *buffers.values()), (N,), (For(AT, Const(0), N, lanes, tuple(body)),)
    )
    float_kind = {"f32": "f4", "f64": "f8"}[elem]
    arrays = {
        "out": np.zeros(length * len(numbers), kinds[beside.elem]),
        "chosen": np.zeros(length * len(numbers), float_kind),
        "x": rng.random(2 * length).astype(float_kind),
        "y": rng.random(length).astype(float_kind),
        **{name: rng.integers(0, length, 2 * length).astype(kind) for name, kind in kinds.items()},
    }
    text = both(kernel, arrays, {"n": length}, threads=1)
    if beside.elem == "i64":
        assert "(const tw_i64x" in text
        assert "*)&i32[" not in text


@pytest.mark.parametrize("operator", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("lanes", [2, 8, 16])
def test_folds(operator: str, lanes: int) -> None:
    out, x = Buffer("out", "f64", writable=True), Buffer("x", "f64")
    body = (BufferStore(out, Const(0), ir.Fold(operator, Load(x, Ramp(Const(0), lanes)))),)
    x_values = np.arange(1.0, lanes + 1) % 3 + 1  # exact under any association
    both(ir.LoweredFunction((out, x), (), body), {"out": np.zeros(1), "x": x_values}, {})


def test_gathers_scatters_and_strided_updates() -> None:
    out, x, crd = Buffer("out", "f32", writable=True), Buffer("x", "f32"), Buffer("crd", "i32")
    stride = ir.binary("add", ir.binary("mul", Ramp(Const(0), 4), Const(3)), Const(1))
    body = (
        BufferStore(out, stride, Load(x, Load(crd, Ramp(Const(0), 4)))),
        Reduce(out, stride, "add", Load(x, Ramp(Const(0), 4))),
        Reduce(out, stride, "max", Load(x, Ramp(Const(1), 4)), atomic=True),
        Reduce(out, Ramp(Const(2), 4), "mul", ir.widen(Const(2.0, Type("f32")), 4)),
    )
    arrays = {"out": np.ones(12, "f4"), "x": np.arange(5, dtype="f4"), "crd": np.array([4, 0, 0, 2], "i4")}
    both(ir.LoweredFunction((out, x, crd), (), body), arrays, {})


def test_bodies_of_parallel_loops_capture_values_of_any_type() -> None:
    """A float that travelled as an integer once lost its fraction."""
    out, x = Buffer("out", "f32", writable=True), Buffer("x", "f32")
    scalar, vector = Var("s", Type("f32")), Var("v", Type("f32", 4))
    inner = For(
        AT, Const(0), N, 1,
        (BufferStore(out, ir.binary("add", Ramp(AT * 4, 4), Const(0)), ir.compute("mul", scalar, vector)),),
        ir.Workers("dynamic"),
    )  # fmt: skip
    body = (Let(scalar, x[0]), Let(vector, Load(x, Ramp(Const(1), 4))), inner)
    arrays = {"out": np.zeros(20, "f4"), "x": np.array([0.75, 1.5, 2, 3, 4], "f4")}
    text = both(ir.LoweredFunction((out, x), (N,), body), arrays, {"n": 5})
    assert "float s; tw_f32x4 v;" in text


@pytest.mark.parametrize("policy", ["dynamic", "even"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 100])
def test_parallel_loops_of_any_length(policy: str, n: int) -> None:
    out = Buffer("out", "f64", writable=True)
    one = Const(1.0, Type("f64"))
    loop = For(
        AT,
        Const(0),
        N,
        1,
        (Reduce(out, AT, "add", one), Reduce(out, N, "add", one, atomic=True)),
        ir.Workers(policy),
    )
    for threads in (1, 2, 7):
        arrays = {"out": np.zeros(n + 1)}
        both(ir.LoweredFunction((out,), (N,), (loop,)), arrays, {"n": n}, threads)
        assert arrays["out"].tolist() == [1.0] * n + [float(n)]


@pytest.mark.parametrize("elem", ["f32", "f64"])
@pytest.mark.parametrize("operator", ["add", "mul", "min", "max"])
def test_atomic_updates_lose_nothing(operator: str, elem: str) -> None:
    out, x = Buffer("out", elem, writable=True), Buffer("x", elem)
    loop = For(
        AT, Const(0), N, 1, (Reduce(out, Const(0), operator, x[AT], atomic=True),), ir.Workers("dynamic")
    )
    dtype = {"f32": "f4", "f64": "f8"}[elem]
    x_values = np.ones(2000, dtype)
    x_values[::100] = 2.0
    both(ir.LoweredFunction((out, x), (N,), (loop,)), {"out": np.ones(1, dtype), "x": x_values}, {"n": 2000})


def test_registers_steps_and_ends_are_evaluated_once() -> None:
    out = Buffer("out", "i64", writable=True)
    n, acc = Var("m"), Var("acc")
    body = (
        Reg(n, N + 0),
        Reg(acc, Const(0)),
        For(AT, Const(1), n - 1, 3, (Set(acc, ir.binary("add", acc, AT)),)),
        BufferStore(out, Const(0), acc),
    )
    both(ir.LoweredFunction((out,), (N,), body), {"out": np.zeros(1, np.int64)}, {"n": 12})


def test_only_what_is_used_is_named() -> None:
    out, x, y = Buffer("out", "f32", writable=True), Buffer("x", "f32"), Buffer("y", "f32")
    text = print_c(
        ir.LoweredFunction((out, x, y), (N, Var("m")), (BufferStore(out, Const(0), x[N]),), ("a note",))
    )
    assert text.startswith("/* a note */\n")
    assert "buffers[3]" in text
    assert "buffers[4]" not in text
    assert "sizes[4]" not in text
    assert "#include" not in text
