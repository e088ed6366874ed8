"""Every name of prelude.h against NumPy, in one kernel an element type and width."""

import shutil

import numpy as np
import pytest

from tensorwise.errors import CompilerError
from tensorwise.tensor.elements import ELEMS, value_dtype
from tensorwise.toolchain.cache import KernelCache
from tensorwise.toolchain.compiler import Compiler, describe_compiler
from tests.unit.toolchain.kernels import call

TYPES = {"f32": ("float", "i32", np.float32), "f64": ("double", "i64", np.float64)}
VECTOR = """
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    const C *a = buffers[1], *b = buffers[2];
    C *out = buffers[0];
    tw_TxN x = tw_load_TxN(a), y = tw_load_TxN(b);
    int at = 0;
#define KEEP(v) tw_store_TxN(out + N * at++, (v))
    KEEP(tw_splat_TxN(a[1]));
    KEEP(tw_fmin_TxN(x, y));
    KEEP(tw_fmax_TxN(x, y));
    KEEP(tw_select_TxN(x < y, x, y));
    KEEP(tw_gather_TxN_i32(a, buffers[3]));
    KEEP(tw_gather_TxN_i64(a, buffers[4]));
    KEEP(tw_gather_TxN_u16(a, buffers[5]));
    out += N * at;
    *out++ = tw_fold_add_TxN(x);
    *out++ = tw_fold_mul_TxN(x);
    *out++ = tw_fold_min_TxN(x);
    *out++ = tw_fold_max_TxN(x);
    tw_IxN mask = x == x;
    const tw_TxNu *anywhere = (const tw_TxNu *)(a + 1);
    const tw_IxNu *there = (const tw_IxNu *)buffers[3];
#if N > 2
    tw_Tx4 sums = tw_folds_add_TxN(y, tw_load_TxN(b + 1), tw_load_TxN(b + 2), tw_load_TxN(b + 3));
    for (int lane = 0; lane < 4; ++lane) out[lane + 1] = sums[lane];
#endif
    *out++ = mask[0] + (*anywhere)[0] + (C)(sizeof *there == sizeof mask);
    return 0;
}
"""
SCALAR = """
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    C *a = buffers[0], b = a[4];
    a[5] = tw_fmin_T(a[0], b);
    a[6] = tw_fmax_T(a[0], b);
    tw_atomic_add_T(a, b);
    tw_atomic_mul_T(a + 1, b);
    tw_atomic_min_T(a + 2, b);
    tw_atomic_max_T(a + 3, b);
    return 1;
}
"""
HALVES = """
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    const uint16_t *bits = buffers[0];
    float *wide = buffers[1];
    uint16_t *narrow = buffers[2];
    for (int64_t at = 0; at < sizes[0]; at += LANES) {
        *(tw_f32xNu *)(wide + at) = tw_widen_HxN(*(const tw_u16xNu *)(bits + at));
        *(tw_u16xNu *)(narrow + at) = tw_narrow_HxN(*(const tw_f32xNu *)(wide + sizes[0] + at));
    }
    return 0;
}
"""
SCALAR_HALVES = """
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    const uint16_t *bits = buffers[0];
    float *wide = buffers[1];
    uint16_t *narrow = buffers[2];
    for (int64_t at = 0; at < sizes[0]; ++at) {
        wide[at] = tw_widen_H(bits[at]);
        narrow[at] = tw_narrow_H(wide[sizes[0] + at]);
    }
    return 0;
}
"""


def others() -> list[str]:
    """Return the compilers of this machine that are not the first choice."""
    return [name for name in ("clang", "zig cc") if shutil.which(name.split()[0])]


@pytest.fixture(params=["default", "baseline", *others()])
def any_cache(
    request: pytest.FixtureRequest, compiler: Compiler, tmp_path_factory: pytest.TempPathFactory
) -> KernelCache:
    root = tmp_path_factory.mktemp("prelude") / "kernels"
    if request.param == "default":
        return KernelCache(root, compiler)
    if request.param == "baseline":  # the oldest processor of this kind: no masks, short registers
        flags = tuple(flag for flag in compiler.flags if not flag.endswith("=native"))
        return KernelCache(
            root, Compiler(compiler.command, compiler.kind, compiler.version, flags, "baseline")
        )
    try:
        return KernelCache(root, describe_compiler(tuple(request.param.split())))
    except CompilerError as error:
        pytest.skip(str(error))


def fill(text: str, kind: str, lanes: int = 0) -> str:
    names = {
        "TxN": f"{kind}x{lanes}", "IxN": f"{TYPES[kind][1]}x{lanes}", "Tx4": f"{kind}x4", "#if N": f"#if {lanes}",
    }  # fmt: skip
    for name, value in names.items():
        text = text.replace(name, value)
    text = text.replace("const C ", f"const {TYPES[kind][0]} ").replace("    C ", f"    {TYPES[kind][0]} ")
    return text.replace("(C)", f"({TYPES[kind][0]})").replace("_T(", f"_{kind}(").replace("N *", f"{lanes} *")


@pytest.mark.parametrize("kind", TYPES)
def test_vectors(kind: str, any_cache: KernelCache) -> None:
    _, _, dtype = TYPES[kind]
    rng = np.random.default_rng(11)
    widths = [2, 4, 8, 16]
    kernels = any_cache.get([fill(VECTOR, kind, lanes) for lanes in widths])
    for lanes, kernel in zip(widths, kernels, strict=True):
        for n in range(-1, lanes + 2):
            a, b = rng.uniform(0.5, 2.0, (2, 40)).astype(dtype)
            a[n % lanes] = np.nan if n % 3 == 0 else np.inf if n % 3 == 1 else 1.0
            b[(n + 1) % lanes] = np.nan
            i32, i64, u16 = (
                rng.integers(0, 39, lanes + 1).astype(width)[1:] for width in (np.int32, np.int64, np.uint16)
            )
            out = np.full(7 * lanes + 9, -7, dtype)
            # unaligned on purpose
            assert call(kernel, [out, a[1:], b[1:], i32, i64, u16]) == 0
            a, b = a[1:], b[1:]
            x, y = a[:lanes], b[:lanes]
            expected = [
                np.full(lanes, a[1]), np.minimum(x, y), np.maximum(x, y), np.where(x < y, x, y),
                a[i32], a[i64], a[u16],
            ]  # fmt: skip
            for row, values in enumerate(expected):
                np.testing.assert_array_equal(
                    out[row * lanes : (row + 1) * lanes], values, f"{lanes=} {n=} {row=}"
                )
            folds = out[7 * lanes :]
            np.testing.assert_allclose(folds[:2], [x.sum(), x.prod()], rtol=1e-5)
            np.testing.assert_array_equal(folds[2:4], [x.min(), x.max()])
            if lanes > 2:
                sums = [b[first : first + lanes].sum() for first in range(4)]
                np.testing.assert_allclose(folds[5:9], sums, rtol=1e-5)
            np.testing.assert_array_equal(folds[4], dtype(0 if np.isnan(x[0]) else -1) + a[1] + 1)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("value", [3.0, -1.0, np.nan, np.inf])
def test_scalars(kind: str, value: float, any_cache: KernelCache) -> None:
    (kernel,) = any_cache.get([fill(SCALAR, kind)])
    for start in (2.0, np.nan, -np.inf):
        a = np.full(7, start, TYPES[kind][2])
        a[4] = value
        assert call(kernel, [a]) == 1
        with np.errstate(invalid="ignore"):
            low, high = np.minimum(start, value), np.maximum(start, value)
            np.testing.assert_array_equal(a, [start + value, start * value, low, high, value, low, high])


@pytest.mark.parametrize("kind", ["i32", "i64"])
def test_search(kind: str, any_cache: KernelCache) -> None:
    dtype = {"i32": np.int32, "i64": np.int64}[kind]
    text = f"""
    int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
    {{
        int64_t *out = buffers[1];
        out[0] = tw_search_{kind}(buffers[0], sizes[0], sizes[1], sizes[2]);
        out[1] = tw_lower_{kind}(buffers[0], sizes[0], sizes[1], sizes[2]);
        out[2] = tw_min_i64(sizes[0], sizes[2]);
        out[3] = tw_max_i64(sizes[0], sizes[2]);
        return 0;
    }}
    """
    (kernel,) = any_cache.get([text])
    rng = np.random.default_rng(3)
    for _ in range(300):
        crd = np.unique(rng.integers(-5, 60, rng.integers(1, 30))).astype(dtype)
        lo, hi = sorted(int(v) for v in rng.integers(0, crd.size + 1, 2))
        c = int(rng.integers(-7, 63))
        out = np.zeros(4, np.int64)
        call(kernel, [crd, out], [lo, hi, c])
        found = lo + int(np.searchsorted(crd[lo:hi], c))
        assert out[1] == found
        assert out[0] == (found if found < hi and crd[found] == c else -1)
        assert (out[2], out[3]) == (min(lo, c), max(lo, c))


def close_to_halves(half: np.dtype) -> np.ndarray:
    """All halves in ascending order, what lies midway between two, and the floats next to those, as float32."""
    every = np.arange(2**16, dtype=np.uint16).view(half).astype(np.float32)
    finite = np.unique(every[np.isfinite(every)].astype(np.float64))
    step = finite[-1] - finite[-2]
    finite = np.concatenate([[finite[0] - step], finite, [finite[-1] + step]])
    middle = ((finite[:-1] + finite[1:]) / 2).astype(np.float32)
    beside = [np.nextafter(middle, np.float32(towards)) for towards in (-np.inf, np.inf)]
    tiny = np.array([2.0**-149, -(2.0**-149), 2.0**-127], np.float32)
    return np.concatenate([every, middle, *beside, tiny]).astype(np.float32)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_every_half_widens_and_narrows_as_numpy_does(half: str, any_cache: KernelCache) -> None:
    dtype, letter = value_dtype(half), ELEMS[half]
    texts = [SCALAR_HALVES.replace("_H(", f"_{letter}(")]
    for lanes in (2, 4, 8, 16):
        texts.append(
            HALVES.replace("HxN", f"{letter}xN").replace("xN", f"x{lanes}").replace("LANES", f"{lanes}")
        )
    floats = close_to_halves(dtype)
    size = -(-len(floats) // 16) * 16
    floats = np.concatenate([floats, np.ones(size - len(floats), np.float32)])
    bits = np.resize(np.arange(2**16, dtype=np.uint16), size)
    for kernel in any_cache.get(texts):
        wide, narrow = np.concatenate([np.zeros(size, np.float32), floats]), np.zeros(size, np.uint16)
        assert call(kernel, [bits, wide, narrow], [size]) == 0
        expected = bits.view(dtype).astype(np.float32)
        np.testing.assert_array_equal(wide[:size], expected)
        np.testing.assert_array_equal(np.signbit(wide[:size]), np.signbit(expected))
        with np.errstate(all="ignore"):
            expected = floats.astype(dtype)
        nan = np.isnan(floats)
        assert np.isnan(narrow[nan].view(dtype)).all()
        np.testing.assert_array_equal(narrow[~nan], expected[~nan].view(np.uint16))
