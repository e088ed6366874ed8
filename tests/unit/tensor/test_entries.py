"""Entries: everything that comes in is validated once, sorted, and free of duplicates."""

import re
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.tensor.canonical import canonical_entries, row_major
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import value_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.pointers import rows_of
from tensorwise.tensor.raw import RawCompressed

VECTORS = hasattr(sp.coo_array((1, 1)), "coords")  # SciPy 1.13: sparse arrays of other orders than 2
FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")


def dense_of(entries: Entries) -> np.ndarray:
    out = np.zeros(entries.shape, entries.dtype)
    out[tuple(np.asarray(c) for c in entries.coordinates)] = entries.values
    return out


def check_invariants(entries: Entries) -> None:
    index = np.int32 if max(entries.shape) < 2**31 else np.int64
    assert entries.dtype in (np.float32, np.float64)
    assert len(entries.coordinates) == entries.order == len(entries.shape)
    previous = np.zeros(max(entries.nnz - 1, 0), bool)
    for array, size in zip(entries.coordinates, entries.shape):
        assert array.dtype == index
        assert array.shape == (entries.nnz,)
        assert array.flags.c_contiguous
        assert not array.flags.writeable
        assert not entries.nnz or (array.min() >= 0 and array.max() < size)
        assert (previous | (array[1:] >= array[:-1])).all()
        previous |= array[1:] > array[:-1]
    assert previous.all()  # strictly rising: sorted and no duplicates
    assert entries.values.shape == (entries.nnz,)
    assert entries.values.flags.c_contiguous
    assert not entries.values.flags.writeable
    if entries.order != 2:
        assert entries.pointers is None
    elif entries.pointers is not None:
        assert entries.pointers.dtype == np.int32
        assert not entries.pointers.flags.writeable
        expected = np.searchsorted(entries.coordinates[0], np.arange(entries.shape[0] + 1))
        np.testing.assert_array_equal(entries.pointers, expected)


def sample(rng: np.random.Generator, shape: tuple[int, int] = (6, 8)) -> np.ndarray:
    return np.where(rng.random(shape) < 0.4, rng.standard_normal(shape), 0.0)


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_scipy_format(name: str, kind: str, dtype: type) -> None:
    dense = sample(np.random.default_rng(1)).astype(dtype)
    given = getattr(sp, f"{name}_{kind}")(dense)
    entries = entries_from(given)
    check_invariants(entries)
    assert entries.dtype == dtype
    assert entries.pointers is not None
    np.testing.assert_array_equal(dense_of(entries), dense)
    if name != "bsr":  # a block stores its zeros
        assert entries.nnz == np.count_nonzero(dense)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (1, 7), (7, 1), (4, 4)])
@pytest.mark.parametrize("name", FORMATS)
def test_empty_matrices_of_any_shape(name: str, shape: tuple[int, int]) -> None:
    if name == "bsr" and 0 in shape:
        pytest.skip("SciPy has no such block matrix")
    entries = entries_from(getattr(sp, f"{name}_array")(shape))
    check_invariants(entries)
    assert (entries.shape, entries.nnz) == (shape, 0)
    assert entries.to_scipy().shape == shape


def test_blocks_with_several_rows_and_columns() -> None:
    dense = np.kron(np.eye(3), np.arange(6.0).reshape(2, 3))
    entries = entries_from(sp.bsr_array(dense, blocksize=(2, 3)))
    check_invariants(entries)
    assert entries.nnz == 18  # the zeros of the blocks are stored
    np.testing.assert_array_equal(dense_of(entries), dense)


def test_diagonals_like_scipy() -> None:
    data = np.array([[1.0, 2, 3, 4], [5, 6, np.nan, 8]])
    for shape in ((4, 4), (3, 4), (4, 3), (2, 6), (6, 2)):
        for offsets in ([0, 1], [-2, 3], [-5, 5], [1, -1]):
            given = sp.dia_array((data, offsets), shape=shape)
            np.testing.assert_array_equal(dense_of(entries_from(given)), given.toarray())


@pytest.mark.parametrize("name", ["csr", "csc"])
def test_unsorted_and_duplicated_compressed(name: str) -> None:
    arrays = ([1.0, 2, 3, 4, 5], [2, 0, 2, 1, 1], [0, 3, 3, 5])
    given = getattr(sp, f"{name}_array")(arrays, shape=(3, 3))
    entries = entries_from(given)
    check_invariants(entries)
    np.testing.assert_array_equal(dense_of(entries), given.toarray())
    assert entries.nnz == 3


def test_explicit_zeros_nan_and_inf_are_entries() -> None:
    given = sp.csr_array(([0.0, np.nan, -np.inf, -0.0], ([0, 0, 1, 1], [0, 1, 0, 1])), shape=(2, 2))
    entries = entries_from(given)
    np.testing.assert_array_equal(entries.values, [0.0, np.nan, -np.inf, -0.0])
    assert np.signbit(entries.values[3])
    assert entries_from(np.array([[0.0, np.nan], [np.inf, 0.0]])).nnz == 2


def test_duplicates_are_summed_in_double_precision_and_in_order() -> None:
    values = np.array([1.0, 1e8, 1.0, -1e8, 7.0], np.float32)  # float32 sums would lose both ones
    entries = entries_from(((2, 2), ([1, 1, 1, 1, 0], [1, 1, 1, 1, 0]), values))
    assert entries.dtype == np.float32
    np.testing.assert_array_equal(entries.values, [7.0, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        merged = entries_from(((1, 2), ([0, 0, 0, 0], [0, 0, 1, 1]), [np.inf, -np.inf, np.nan, 1.0]))
    assert np.isnan(merged.values).all()


def test_boolean_values_are_a_pattern() -> None:
    entries = entries_from(((2, 2), ([1, 0, 1], [1, 0, 1]), np.array([True, False, True])))
    assert entries.dtype == np.float32
    np.testing.assert_array_equal(entries.values, [0.0, 1.0])  # duplicates by "or"; False is stored
    assert entries_from(((2, 2), ([1, 0], [1, 0]), None), dtype="float64").values.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("bool", "float32"),
        ("int8", "float32"),
        ("uint16", "float32"),
        ("float16", "float16"),
        (">f2", "float16"),
        ("bfloat16", "bfloat16"),
        ("float32", "float32"),
        ("int32", "float64"),
        ("uint32", "float64"),
        ("int64", "float64"),
        ("uint64", "float64"),
        ("longdouble", "float64"),
        ("float64", "float64"),
        (">f4", "float32"),
        (">i8", "float64"),
    ],
)
def test_dtypes(given: str, expected: str) -> None:
    value_dtype("bfloat16")  # makes NumPy know the name
    dense = np.array([[0, 1], [1, 0]], dtype=given)
    for obj in (dense, ((2, 2), ([0, 1], [1, 0]), np.ones(2, given))):
        assert entries_from(obj).dtype == expected
        for asked in (np.float32, np.float64, "f4", float, np.float16, "bfloat16"):
            assert entries_from(obj, dtype=asked).dtype == np.dtype(asked)
    assert entries_from(dense).values.dtype.isnative


@pytest.mark.parametrize("given", ["bool", "int8", "uint16", ">i4", "int64", "uint64"])
def test_booleans_and_integers_are_told_and_come_back(given: str) -> None:
    dense = np.array([[0, 1], [1, 1]]).astype(given)
    native = np.dtype(given).newbyteorder("=")
    plain = dense.astype(native)  # SciPy takes no other byte order
    for obj in (
        dense,
        sp.csr_array(plain),
        sp.coo_array(plain),
        ((2, 2), ([0, 1], [1, 0]), np.ones(2, given)),
    ):
        entries = entries_from(obj)
        assert entries.given == native
        back = entries.as_given()
        assert back.dtype == native
        np.testing.assert_array_equal(back, np.ones(entries.nnz, native))
        assert entries_from(obj, dtype="float32").given is None
        assert entries.astype("float64").given is None
        assert entries.with_values(np.ones(entries.nnz)).given is None
    assert entries_from(dense.astype("float32")).given is None


LOST = [
    ("int64", None, [1, 2**53 + 1], "9007199254740993"),
    ("int64", None, [-(2**53) - 1, 1], "-9007199254740993"),
    ("uint64", None, [1, 2**64 - 1], "18446744073709551615"),
    ("int64", "float64", [2**62 + 1, 1], "int64"),
    ("int32", "float32", [1, 2**24 + 1], "16777217"),
    ("int16", "float16", [1, 2049], "2049"),
    ("uint16", "bfloat16", [1, 257], "257"),
    ("int32", "float16", [1, 2**17], "inf"),
    ("float64", "float32", [1, 1e39], "inf"),
    ("float64", "float16", [65520, 1], "inf"),
    ("float32", "bfloat16", [1, 3.4e38], "inf"),
]
"""dtype given, dtype asked for, values of which one is lost, what the message says."""


@pytest.mark.parametrize(("given", "asked", "values", "told"), LOST)
def test_numbers_are_not_lost(given: str, asked: str | None, values: list[Any], told: str) -> None:
    value_dtype("bfloat16")
    array = np.array(values, given)
    for obj in (array[None, :], sp.csr_array(array[None, :]), ((1, 2), ([0, 0], [0, 1]), array)):
        with pytest.raises(InputError, match=told):
            entries_from(obj, dtype=asked)
    if asked is not None and given not in ("int64", "uint64"):
        with pytest.raises(InputError, match=told):
            entries_from(array[None, :]).astype(asked)


@pytest.mark.parametrize(
    ("given", "asked", "values"),
    [
        ("int64", None, [2**53, -(2**53)]),
        ("int64", None, [2**62, -(2**63)]),
        ("uint64", None, [2**63, 3 * 2**60]),
        ("int32", "float32", [2**24, 2**30 + 2**7]),
        ("uint16", "bfloat16", [256, 65280]),
        ("int32", "float16", [2048, 65504]),
        ("float64", "float32", [np.inf, np.nan]),
        ("float64", "float16", [65519, 1e-30]),
    ],
)
def test_numbers_that_are_kept_or_rounded(given: str, asked: str | None, values: list[Any]) -> None:
    value_dtype("bfloat16")
    made = entries_from(np.array([values], given), dtype=asked).values.astype(np.float64)
    if given != "float64":
        assert [int(value) for value in made] == values
    else:
        assert not np.isinf(made[1])


def test_longdouble_is_exact_or_asked_for() -> None:
    wide = np.array([[np.longdouble(1) / 3, 0]])
    if wide.dtype.itemsize == 8:
        pytest.skip("longdouble is float64 here")
    with pytest.raises(InputError, match="float64 would round"):
        entries_from(wide)
    assert entries_from(wide, dtype="float64").given is None
    exact = entries_from(np.array([[0.1, np.nan, np.inf]], np.longdouble))
    assert (exact.dtype, exact.given) == (np.float64, np.longdouble)
    assert exact.as_given().dtype == np.longdouble


def test_sums_of_duplicates_are_exact_or_refused() -> None:
    rows, columns = np.zeros(2, int), np.zeros(2, int)
    assert entries_from(((1, 1), (rows, columns), np.array([100, 100], np.int8))).values.tolist() == [200]
    with pytest.raises(InputError, match="add up"):
        entries_from(((1, 1), (rows, columns), np.array([2**53, 1])))
    three = np.zeros(3, int)
    with pytest.raises(InputError, match="add up"):
        entries_from(((1, 1), (three, three), np.array([2**53, 1, -(2**53)])))
    apart = entries_from(((1, 2), ([0, 0, 0], [0, 0, 1]), np.array([1, 2, 2**60])))
    assert apart.values.tolist() == [3, 2**60]
    many = np.zeros(521, int)
    with pytest.raises(InputError, match="add up"):
        entries_from(((1, 1), (many, many), np.full(521, 2**15 - 1, np.int16)))


@pytest.mark.parametrize("dtype", ["int32", "complex64", "longdouble", "no dtype", object])
def test_other_dtypes_cannot_be_asked_for(dtype: Any) -> None:
    with pytest.raises(InputError, match="dtype"):
        entries_from(np.eye(2), dtype=dtype)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_halves_keep_their_bits(half: str) -> None:
    dtype = value_dtype(half)
    bits = np.random.default_rng(3).permutation(2**16).astype(np.uint16)
    bits = bits[~np.isnan(bits.view(dtype).astype(np.float32))]
    rows, columns = np.divmod(np.arange(len(bits)), 300)
    by_columns = np.lexsort((rows, columns))
    pointers = np.concatenate([[0], np.cumsum(np.bincount(columns))])
    shape = (int(rows.max()) + 1, 300)
    values = bits.view(dtype)
    coordinates = entries_from((shape, (rows, columns), values))
    compressed = canonical_entries(
        RawCompressed(shape, pointers, rows[by_columns], values[by_columns], "by columns", by_column=True),
        None,
    )
    for entries in (coordinates, compressed):
        assert entries.dtype == dtype
        np.testing.assert_array_equal(entries.values.view(np.uint16), bits)
    widened = coordinates.to_scipy()
    assert widened.dtype == np.float32
    np.testing.assert_array_equal(widened.data, bits.view(dtype).astype(np.float32))


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_halves_round_and_add_up(half: str) -> None:
    dtype = value_dtype(half)
    given = (2, 2), ([0, 0, 1], [1, 1, 0]), np.array([1.0, 2.0**-20, np.nan])
    entries = entries_from(given, dtype=half)
    assert entries.values[0] == dtype.type(1)
    assert np.isnan(entries.values[1])
    assert entries_from(entries, np.float32).astype(half).dtype == dtype


def test_bfloat16_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(MissingExtraError, match=r"tensorwise\[bfloat16\]"):
        entries_from(np.eye(2), dtype="bfloat16")


@pytest.mark.parametrize("name", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_complex_values_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="complex"):
        entries_from(getattr(sp, f"{name}_array")(np.eye(3) * 1j))
    with pytest.raises(InputError, match="complex"):
        entries_from(np.eye(3, dtype=complex))


def test_input_is_copied_and_left_alone() -> None:
    given = sp.csr_array(sample(np.random.default_rng(2)))
    data, indices, indptr = given.data.copy(), given.indices.copy(), given.indptr.copy()
    entries = entries_from(given)
    for array in (*entries.coordinates, entries.values, entries.pointers):
        for own in (given.data, given.indices, given.indptr):
            assert not np.shares_memory(array, own)
    assert given.data.flags.writeable
    unsorted = sp.csr_array(([1.0, 2.0], [1, 0], [0, 2]), shape=(1, 2))
    entries_from(unsorted)
    assert unsorted.indices.tolist() == [1, 0]
    for before, after in zip((data, indices, indptr), (given.data, given.indices, given.indptr)):
        np.testing.assert_array_equal(before, after)
    values = entries.values.copy()
    given.data[:] = 0
    np.testing.assert_array_equal(entries.values, values)
    with pytest.raises(ValueError, match="read-only"):
        entries.values[0] = 1.0


@pytest.fixture
def matrix() -> sp.csr_array:
    """Rows 0 and 1 hold two entries each, row 2 none, row 3 one."""
    values, columns = np.array([1.0, 2, 3, 4, 5]), np.array([0, 2, 1, 3, 2], np.int32)
    return sp.csr_array((values, columns, np.array([0, 2, 4, 4, 5], np.int32)), shape=(4, 4))


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        (
            "indices",
            {3: 10**6},
            r"entry 3 \(row 1, column 1000000, value 4.0\).*column indices run from 0 to 3",
        ),
        ("indices", {4: 4}, r"entry 4 \(row 3, column 4, value 5.0\)"),
        ("indices", {0: -1}, r"entry 0 \(row 0, column -1, value 1.0\)"),
        ("indices", {1: -(2**31)}, r"column -2147483648"),
        ("indptr", {2: 1}, r"row pointers: they fall from 2 to 1 at row 1"),
        ("indptr", {1: -1}, r"row pointers: they fall"),
        ("indptr", {0: 1}, r"row pointers: the first is 1; expected 0"),
        ("indptr", {4: 4}, r"the last is 4, but 5 indices"),
        ("indptr", {4: 2**31 - 1}, r"the last is 2147483647, but 5 indices"),
        ("indptr", {2: 2**31 - 1}, r"they fall from 2147483647 to 4 at row 2"),
        ("indptr", {}, r"row pointers: 4 of them for 4 rows; expected 5"),
        ("indices", {}, r"4 column indices, but values of shape \(5,\)"),
        ("data", {}, r"5 column indices, but values of shape \(4,\)"),
    ],
)
@pytest.mark.parametrize("name", ["csr", "csc"])
def test_corrupted_compressed(
    matrix: sp.csr_array, name: str, part: str, change: dict[int, int], message: str
) -> None:
    given = matrix if name == "csr" else matrix.T  # the same arrays, read the other way
    assert given.format == name
    for at, value in change.items():
        getattr(given, part)[at] = value
    if not change:
        setattr(given, part, getattr(given, part)[:-1])
    with pytest.raises(InputError) as refused:
        entries_from(given)
    if name == "csr":
        assert re.search(message, str(refused.value)), refused.value


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("indices", np.array([0.0, 2.0, 1.0, 3.0, np.nan])),
        ("indices", np.array([0.0, 2.0, 1.5, 3.0, 1.0])),
        ("indices", np.array(["0", "2", "1", "3", "1"])),
        ("indices", np.array([0, 2, 1, 3, None])),
        ("indices", np.array([True] * 5)),
        ("indices", np.zeros((5, 1), int)),
        ("indices", np.array(3)),
        ("indices", None),
        ("indptr", np.array([0.0, 2, 4, 4, 5])),
        ("indptr", np.array([], int)),
        ("indptr", None),
        ("data", np.array([1, 2, 3, 4, 5], object)),
        ("data", np.array(list("abcde"))),
        ("data", np.zeros((5, 2))),
        ("data", None),
        ("data", np.ma.masked_array(np.ones(5), [0, 1, 0, 0, 0])),
        ("indices", np.array([0, 2, 1, 3, 2**63], np.uint64)),
        ("indices", np.array([0, 2, 1, 3, 2**40], np.int64)),
        ("indices", np.array([0, 2, 1, 3, -1], np.int8)),
        ("_shape", (4,)),
        ("_shape", (4, 4, 1)),
    ],
)
def test_strange_arrays_inside_a_csr_array(matrix: sp.csr_array, attribute: str, value: Any) -> None:
    matrix.__dict__[attribute] = value
    with pytest.raises(InputError):
        entries_from(matrix)


def test_a_bad_index_is_named_whatever_its_dtype() -> None:
    for dtype in (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64):
        with pytest.raises(
            InputError, match=r"entry 1 \(row 0, column 100, value 2.0\) is outside shape 1x100"
        ):
            entries_from(((1, 100), (np.zeros(2, dtype), np.array([99, 100], dtype)), [1.0, 2.0]))
    with pytest.raises(InputError, match=r"column 18446744073709551615"):
        entries_from(((1, 2**63 - 1), ([0], np.array([2**64 - 1], np.uint64)), [1.0]))
    with pytest.raises(InputError, match=r"entry 0: 1\.5|entry 1: nan"):
        entries_from(((9, 9), ([0, 1], np.array([1.0, np.nan])), [1.0, 2.0]))


def test_other_corrupted_formats() -> None:
    coo = sp.coo_array(np.eye(3))
    coo.col[2] = 7
    with pytest.raises(InputError, match=r"entry 2 \(row 2, column 7, value 1.0\)"):
        entries_from(coo)
    bsr = sp.bsr_array(np.eye(4), blocksize=(2, 2))
    bsr.indices[1] = 2
    with pytest.raises(InputError, match=r"block 1 has block column 2; expected 0 to 1"):
        entries_from(bsr)
    bsr = sp.bsr_array(np.eye(4), blocksize=(2, 2))
    bsr.indptr[1] = 5
    with pytest.raises(InputError, match="block row pointers"):
        entries_from(bsr)
    bsr.data = np.ones((2, 3, 2))
    with pytest.raises(InputError, match="do not divide"):
        entries_from(bsr)
    lil = sp.lil_array(np.eye(3))
    lil.rows[1] = [0, 1]
    with pytest.raises(InputError, match="row 1 has 2 column indices and 1 values"):
        entries_from(lil)
    lil.rows[1] = [5]
    with pytest.raises(InputError, match=r"row 1, column 5"):
        entries_from(lil)
    lil.rows[1] = [0.5]
    with pytest.raises(InputError, match="expected integers"):
        entries_from(lil)
    lil.rows[1] = None
    with pytest.raises(InputError, match="malformed"):
        entries_from(lil)
    dok = sp.dok_array(np.eye(3))
    inner = getattr(dok, "_dict", dok)  # SciPy 1.12 had a subclass of dict
    dict.__setitem__(inner, (9, 0), 1.0)
    with pytest.raises(InputError, match="row 9, column 0"):
        entries_from(dok)
    dict.__setitem__(inner, (0.5, 0), 1.0)
    with pytest.raises(InputError, match="expected integers"):
        entries_from(dok)
    dia = sp.dia_array(np.eye(3))
    dia.offsets = np.array([0.5])
    with pytest.raises(InputError, match="offsets"):
        entries_from(dia)
    dia.offsets = np.array([0, 1])
    with pytest.raises(InputError, match="2 diagonals"):
        entries_from(dia)


@pytest.mark.parametrize(
    "obj",
    [
        3,
        None,
        [[1.0, 2.0]],
        np.ones(3),
        np.float64(3.0),
        np.array(3.0),
        np.array([["a", "b"]]),
        np.array([[1, None]]),
        np.ma.masked_array(np.eye(2), np.eye(2)),
        pytest.param(
            sp.coo_array(np.ones(3)), marks=pytest.mark.skipif(not VECTORS, reason="SciPy is too old")
        ),
        (),
        ((2, 2), ([0], [0])),
        ((2, 2), ([0],), [1.0]),
        ((2, 2), ([0], [0], [0]), [1.0]),
        ((2, 2), ([0, 1], [0]), [1.0]),
        ((2, 2), ([0], [0]), [[1.0]]),
        ((2, 2), ([0], [0]), 1.0),
        ((2, 2), 5, [1.0]),
        ((2, 2), ([0], [[0], [1, 2]]), [1.0]),
        ((2,), ([0],), [1.0]),
        ((), (), []),
        (2, ([0], [0]), [1.0]),
        ((2, 2.5), ([0], [0]), [1.0]),
        ((2, -1), ([], []), []),
        ((2, 2**63), ([], []), []),
        ((2,) * 33, ([0],) * 33, [1.0]),
        ((0, 2), ([0], [0]), [1.0]),
        ((2, 2), ([0], [0]), ["x"]),
    ],
    ids=lambda obj: repr(obj)[:40],
)
def test_refused_objects(obj: Any) -> None:
    with pytest.raises(InputError):
        entries_from(obj)


@pytest.mark.parametrize("order", [2, 3, 4, 5])
def test_dense_arrays_and_tuples_of_any_order(order: int) -> None:
    rng = np.random.default_rng(order)
    dense = np.where(rng.random((3, 4, 5, 2, 3)[:order]) < 0.3, rng.standard_normal(), 0.0)
    dense[(0,) * order] = np.nan
    entries = entries_from(np.asfortranarray(dense))
    check_invariants(entries)
    np.testing.assert_array_equal(dense_of(entries), dense)
    shuffled = rng.permutation(entries.nnz)
    stacked = np.stack(entries.coordinates)[:, shuffled]  # an (order, nnz) array does, too
    again = entries_from((dense.shape, stacked, entries.values[shuffled]))
    check_invariants(again)
    assert again.pattern_id == entries.pattern_id
    np.testing.assert_array_equal(again.values, entries.values)


@pytest.mark.skipif(not VECTORS, reason="SciPy is too old for order 3")
def test_coo_array_of_order_3() -> None:
    given = sp.coo_array(([1.0, 2.0, 3.0], ([2, 0, 2], [1, 1, 1], [3, 0, 3])), shape=(3, 2, 4))
    entries = entries_from(given)
    check_invariants(entries)
    assert entries.shape == (3, 2, 4)
    assert entries.values.tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    "shape",
    [(2**31 + 5, 3), (3, 2**31 + 5), (2**31 - 1, 3), (2**31, 2**31), (2**62, 2**62), (2**63 - 1,) * 4],
)
def test_dimensions_around_and_beyond_32_bits(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    tops = np.array([[size - 1 for size in shape]] * 3 + [[0] * len(shape)], dtype=np.int64)
    low = np.stack([rng.integers(0, size, 50) for size in shape], axis=1)
    points = np.concatenate((tops, low))
    order = rng.permutation(len(points))
    entries = entries_from((shape, points[order].T, np.ones(len(points))))
    check_invariants(entries)
    expected = sorted({tuple(point) for point in points.tolist()})
    assert list(zip(*(array.tolist() for array in entries.coordinates))) == expected
    assert entries.values[-1] == 3.0
    if shape[0] > 2**28:
        assert entries.pointers is None  # they would take gigabytes
    if len(shape) == 2 and shape[0] > 2**28:
        with pytest.raises(InputError, match="GiB"):
            entries.to_scipy()
    with pytest.raises(InputError, match="is outside shape"):
        entries_from((shape, [[0]] * (len(shape) - 1) + [[shape[-1]]], [1.0]))


def test_scipy_matrices_with_very_many_rows() -> None:
    rows = np.array([2**31 + 4, 7, 2**31 + 4])
    given = sp.coo_array(([1.0, 2.0, 3.0], (rows, np.array([1, 2, 1]))), shape=(2**31 + 5, 3))
    entries = entries_from(given)
    check_invariants(entries)
    assert entries.values.tolist() == [2.0, 4.0]
    tall = entries_from(given.tocsc())  # by column, and no pointers of rows are made on the way
    check_invariants(tall)
    assert tall.pattern_id == entries.pattern_id
    wide = entries_from(given.T.tocsr())
    assert wide.coordinates[1].dtype == np.int64
    assert wide.to_scipy().shape == (3, 2**31 + 5)


def test_pointers_on_demand() -> None:
    rows = 2**21
    entries = entries_from(((rows, 2), ([rows - 1, 5], [0, 1]), [1.0, 2.0]))
    assert entries.pointers is None
    pointers = entries.row_pointers()
    assert pointers is entries.row_pointers()
    assert (pointers[5], pointers[6], pointers[-1], len(pointers)) == (0, 1, 2, rows + 1)
    assert entries.to_scipy()[5, 1] == 2.0
    assert entries.with_values([3.0, 4.0]).row_pointers() is pointers
    with pytest.raises(InputError, match="order 3"):
        entries_from(np.ones((2, 2, 2))).row_pointers()
    with pytest.raises(InputError, match="order 3"):
        entries_from(np.ones((2, 2, 2))).to_scipy()


def test_to_scipy_shares_and_multiplies() -> None:
    dense = sample(np.random.default_rng(5))
    entries = entries_from(dense)
    matrix = entries.to_scipy()
    assert isinstance(matrix, sp.csr_array)
    assert np.shares_memory(matrix.data, entries.values)
    assert np.shares_memory(matrix.indices, entries.coordinates[1])
    assert matrix.has_canonical_format
    np.testing.assert_allclose(matrix @ np.ones(8), dense @ np.ones(8))
    assert entries_from(matrix).pattern_id == entries.pattern_id


def test_ids_values_and_dtypes() -> None:
    entries = entries_from(sample(np.random.default_rng(6)))
    other = entries.with_values(np.arange(entries.nnz, dtype=np.float32))
    assert other.dtype == np.float32
    assert other.coordinates is entries.coordinates
    assert other.pattern_id == entries.pattern_id
    assert entries.astype(np.float64) is entries
    assert entries.astype("float32").dtype == np.float32
    assert entries_from(entries) is entries
    assert entries_from(entries, dtype=np.float32).dtype == np.float32
    wider = entries_from(((6, 9), entries.coordinates, entries.values))
    assert wider.pattern_id != entries.pattern_id
    assert repr(other) == f"Entries(6x8, {entries.nnz} stored, float32)"
    for wrong in (np.ones(entries.nnz + 1), 1.0, np.ones(entries.nnz, complex), ["x"] * entries.nnz):
        with pytest.raises(InputError):
            entries.with_values(wrong)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.sampled_from([1, 2, 3, 7, 2**20, 2**40, 2**62]), min_size=2, max_size=6),
    count=st.integers(0, 60),
)
def test_sorting_agrees_with_python(seed: int, sizes: list[int], count: int) -> None:
    rng = np.random.default_rng(seed)
    coords = [rng.choice(rng.integers(0, size, 4), count) for size in sizes]  # few values: many duplicates
    values = rng.integers(-8, 8, count).astype(np.float64)
    expected: dict[tuple[int, ...], float] = {}
    for place, value in zip(zip(*(array.tolist() for array in coords)), values.tolist()):
        expected[place] = expected.get(place, 0.0) + value
    sorted_coords, merged = row_major(sizes, coords, values)
    assert list(zip(*(array.tolist() for array in sorted_coords))) == sorted(expected)
    assert merged.tolist() == [expected[place] for place in sorted(expected)]
    if count:
        check_invariants(entries_from((sizes, coords, values)))


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(0, 9), max_size=30))
def test_rows_of_pointers(lengths: list[int]) -> None:
    pointers = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int32)
    expected = [row for row, length in enumerate(lengths) for _ in range(length)]
    assert rows_of(pointers, np.dtype(np.int32)).tolist() == expected


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_corruption_is_refused_or_harmless(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = sp.coo_array(sample(rng, (9, 7))).asformat(rng.choice(["csr", "csc", "bsr", "coo"]))
    names = ["data"] + (["indices", "indptr"] if given.format != "coo" else [])
    arrays = {name: getattr(given, name) for name in names}
    if given.format == "coo":
        arrays |= {"row": given.row, "col": given.col}
    for array in arrays.values():
        array.setflags(write=True)
    for _ in range(rng.integers(1, 4)):
        array = arrays[rng.choice(list(arrays))].reshape(-1)
        if array.size:
            array[rng.integers(array.size)] = rng.choice([-(2**31), -1, 0, 1, 6, 7, 9, 2**31 - 1])
    if rng.random() < 0.3 and given.format != "coo":
        name = rng.choice(list(arrays))
        given.__dict__[str(name)] = arrays[name][: rng.integers(0, len(arrays[name]) + 1)]
    try:
        entries = entries_from(given)
    except InputError:
        return
    check_invariants(entries)


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    dense = sample(np.random.default_rng(7)).astype(np.float32)
    plain = torch.tensor(dense)
    for tensor in (plain, plain.to_sparse(), plain.to_sparse_csr(), plain.to_sparse_csc()):
        entries = entries_from(tensor)
        check_invariants(entries)
        assert entries.dtype == np.float32
        np.testing.assert_array_equal(dense_of(entries), dense)
    assert entries_from(plain.requires_grad_().to_sparse()).nnz == np.count_nonzero(dense)
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool):
        assert entries_from(plain.to(dtype).to_sparse()).nnz == np.count_nonzero(
            plain.detach().to(dtype).float()
        )
    for half in ("bfloat16", "float16"):
        tensor = plain.detach().to(getattr(torch, half)).to_sparse_csr()
        entries = entries_from(tensor)
        assert entries.dtype == value_dtype(half)
        np.testing.assert_array_equal(entries.values.astype(np.float32), tensor.values().float().numpy())
        assert entries_from(tensor, np.float32).dtype == np.float32
    twice = torch.sparse_coo_tensor([[1, 0, 1], [2, 0, 2]], [1.0, 2.0, 3.0], (2, 3))
    assert entries_from(twice).values.tolist() == [2.0, 4.0]
    assert entries_from(torch.ones((2, 3, 4)).to_sparse()).order == 3
    refused = [
        torch.sparse_coo_tensor([[0, 1]], [[1.0, 2.0], [3.0, 4.0]], (2, 2)),  # a dense dimension
        torch.ones((2, 2), dtype=torch.complex64).to_sparse(),
        torch.ones((2, 2), dtype=torch.complex64).conj(),
        torch.ones((2, 3, 3)).to_sparse_csr(),
        torch.ones(3),
        torch.ones((2, 2), device="meta"),
    ]
    for tensor in refused:
        with pytest.raises(InputError):
            entries_from(tensor)


def test_corrupted_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.sparse_csr_tensor(
        [0, 1, 2], torch.tensor([0, 99]), torch.tensor([1.0, 2.0]), (2, 2), check_invariants=False
    )
    with pytest.raises(InputError, match=r"entry 1 \(row 1, column 99, value 2.0\)"):
        entries_from(tensor)
    tensor = torch.sparse_coo_tensor([[0], [-5]], [1.0], (2, 2), check_invariants=False)
    with pytest.raises(InputError, match="column -5"):
        entries_from(tensor)


def test_entries_made_by_hand_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns, values = (
        np.array([0, 0, 2], np.int32),
        np.array([1, 3, 0], np.int32),
        np.ones(3, np.float32),
    )
    right = Entries((3, 4), (rows, columns), values)
    assert entries_from(right) is right
    read = entries_from(((3, 4), (rows, columns), values))
    monkeypatch.setattr("tensorwise.tensor.entries._problem", lambda _: pytest.fail("compared again"))
    assert entries_from(right) is right
    assert entries_from(read) is read
    assert entries_from(read.with_values(values), np.float64).dtype == np.float64
    monkeypatch.undo()
    wrong = {
        "coordinates from 0 to 3 in mode 1": Entries((3, 3), (rows, columns), values),
        "coordinates from -1 to 3 in mode 1": Entries((3, 4), (rows, np.array([1, 3, -1], np.int32)), values),
        "have 1 arrays of coordinates": Entries((3, 4), (rows,), values),
        "coordinates of int32 .2,. in mode 1 for 3 values": Entries((3, 4), (rows, columns[:2]), values),
        "coordinates of float64": Entries((3, 4), (rows, columns.astype(float)), values),
        "not in order, or repeated, at entry 1": Entries(
            (3, 4), (rows, np.array([1, 1, 0], np.int32)), values
        ),
        "not in order, or repeated, at entry 2": Entries(
            (3, 4), (np.array([0, 2, 0], np.int32), columns), values
        ),
        "row pointers": Entries((3, 4), (rows, columns), values, np.array([0, 2, 2, 9], np.int32)),
        "have numbers": Entries((3, 4), (rows, columns), values, None, np.array([0, 1, 3], np.int32)),
    }
    for message, entries in wrong.items():
        with pytest.raises(InputError, match=message):
            entries_from(entries)
