"""Packing against a walk over the packed tensor in pure Python."""

import itertools
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from tensorwise.errors import FormatError, InputError
from tensorwise.tensor import pack as packing
from tensorwise.tensor import primitives
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.format import Format, bcsr, csc, csf, csr, dcsr, dense
from tensorwise.tensor.pack import pack, refill, source_map, unpack
from tensorwise.tensor.remap import Axis, join


def walk(tensor: Tensor) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield (coordinates, value position) of everything below the root, by the levels' own access."""
    format = tensor.format

    def descend(depth: int, parent: int, stored: dict[Axis, int]) -> Iterator[tuple[tuple[int, ...], int]]:
        if depth == len(format.levels):
            yield (
                tuple(
                    join(stored[Axis(m, "outer")], stored[Axis(m, "inner")], format.splits[m])
                    if m in format.splits
                    else stored[Axis(m)]
                    for m in format.modes
                ),
                parent,
            )
            return
        level, arrays, extent = format.levels[depth], tensor.arrays[depth], tensor.extents[depth]
        if level.full:
            for coordinate in range(extent):
                position = level.locate(arrays, parent, coordinate, extent)
                yield from descend(depth + 1, position, stored | {level.axis: coordinate})
        else:
            low, high = (int(bound) for bound in level.bounds(arrays, parent))
            coordinates = [
                int(level.coordinate(arrays, parent, position, extent)) for position in range(low, high)
            ]
            assert coordinates == sorted(set(coordinates)), f"{level} is not strictly ascending"
            assert all(0 <= coordinate < extent for coordinate in coordinates)
            for position, coordinate in zip(range(low, high), coordinates):
                yield from descend(depth + 1, position, stored | {level.axis: coordinate})

    return descend(0, 0, {})


def check(entries: Entries, format: Format, widths: bool = True) -> Tensor:
    """Pack, walk, and compare with a dictionary of the entries; then unpack and refill."""
    tensor, source = pack(entries, format), source_map(entries, format)
    expected = {
        place: (float(value), number + 1)
        for number, (*place, value) in enumerate(zip(*entries.coordinates, entries.values))
        for place in [tuple(map(int, place))]
    }
    assert len(source) == len(tensor.values) == tensor.counts[-1]
    met = 0
    positions = []
    for place, position in walk(tensor):
        value, number = expected.get(place, (0.0, 0))
        assert (float(tensor.values[position]), int(source[position])) == (value, number), (place, position)
        met += number > 0
        positions.append(position)
    assert met == entries.nnz
    assert sorted(positions) == list(range(len(tensor.values)))
    assert tensor.values.dtype == entries.dtype
    if not format.padded:
        assert len(tensor.values) == entries.nnz
    if format.order_kept:
        assert np.array_equal(source, np.arange(1, entries.nnz + 1))
    again = unpack(tensor, source)
    assert again.shape == entries.shape
    for ours, theirs in zip(
        (again.values, *again.coordinates, again.pointers),
        (entries.values, *entries.coordinates, entries.pointers),
    ):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert ours.dtype == theirs.dtype or not widths
            assert np.array_equal(ours, theirs)
    other = np.arange(entries.nnz) + 100.0
    refill(tensor, source, other)
    assert np.array_equal(tensor.values, np.concatenate([[0.0], other])[source])
    return tensor


def random_entries(rng: np.random.Generator, shape: tuple[int, ...], nnz: int) -> Entries:
    size = int(np.prod(shape))
    flat = np.sort(rng.choice(size, min(nnz, size), replace=False)) if size else np.zeros(0, np.int64)
    values = rng.standard_normal(len(flat)).astype(rng.choice(["f4", "f8"]))
    return entries_from((shape, np.unravel_index(flat, shape), values))


def random_format(rng: np.random.Generator, order: int) -> Format:
    modes = tuple("iklmn"[:order])
    splits = {mode: int(rng.choice([1, 2, 3, 4, 5, 7, 8, 16, 100])) for mode in modes if rng.random() < 0.5}
    names = [name for mode in modes for name in ([f"{mode}1", f"{mode}0"] if mode in splits else [mode])]
    levels = [f"{rng.choice(['U', 'C'])}({name})" for name in rng.permutation(names)]
    text = f"({','.join(modes)}) -> {' '.join(levels)}"
    for mode, size in splits.items():
        text = text.replace(f"{mode}0)", f"{mode}0:{size})")
    return Format.parse(text)


@pytest.mark.parametrize("order", [2, 3, 4, 5])
def test_random_formats(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(order)
    monkeypatch.setattr(packing, "SMALL", 20_000)
    packed = 0
    for _ in range(150):
        shape = tuple(int(n) for n in rng.integers(1, [0, 0, 14, 8, 6, 5][order], order, endpoint=True))
        entries = random_entries(rng, shape, int(rng.integers(0, 60)))
        format = random_format(rng, order)
        with suppress(FormatError):
            check(entries, format)
            packed += 1
    assert packed > 75


@pytest.mark.parametrize("split", ["", "1"])
def test_all_matrix_formats(split: str) -> None:
    """Every order of levels and every mix of kinds, both modes whole or both split."""
    entries = random_entries(np.random.default_rng(5), (7, 9), 25)
    names = ["i1", "i0:2", "k1", "k0:3"] if split else ["i", "k"]
    for axes in itertools.permutations(names):
        for kinds in itertools.product("UC", repeat=len(axes)):
            check(entries, Format.parse(" ".join(f"{kind}({axis})" for kind, axis in zip(kinds, axes))))


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (5, 5), (1, 1), (1, 9), (9, 1)])
@pytest.mark.parametrize(
    "text", ["U(i) C(k)", "C(k) C(i)", "U(i) U(k)", "U(i1) C(k1) U(i0:2) U(k0:4)", "C(k) U(i)"]
)
def test_empty_and_thin(shape: tuple[int, int], text: str) -> None:
    check(random_entries(np.random.default_rng(0), shape, 0), Format.parse(text))
    check(random_entries(np.random.default_rng(0), shape, 4), Format.parse(text))


def test_against_scipy() -> None:
    rng = np.random.default_rng(1)
    entries = random_entries(rng, (300, 200), 5000)
    matrix = entries.to_scipy()
    columns, tensor = matrix.tocsc(), pack(entries, csc())
    assert np.array_equal(tensor.arrays[1]["pos"], columns.indptr)
    assert np.array_equal(tensor.arrays[1]["crd"], columns.indices)
    assert np.array_equal(tensor.values, columns.data)
    blocks, tensor = matrix.tobsr((4, 8)), pack(entries, bcsr(4, 8))
    blocks.sort_indices()
    assert np.array_equal(tensor.arrays[1]["pos"], blocks.indptr)
    assert np.array_equal(tensor.arrays[1]["crd"], blocks.indices)
    assert np.array_equal(tensor.values, blocks.data.ravel())


@pytest.mark.parametrize(
    "text", ["U(i1) C(k1) U(i0:64) U(k0:2)", "C(k1) C(i0:64) U(i1) U(k0:2)", "C(k) U(i)"]
)
def test_many_coordinates_below_a_parent(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grouping sorts many distinct coordinates by another way than few; both cross chunks of entries."""
    monkeypatch.setattr(packing, "MOST_FILL", 1000)
    check(random_entries(np.random.default_rng(2), (130, 700), 6000), Format.parse(text))


def test_csr_shares_what_the_entries_hold() -> None:
    entries = random_entries(np.random.default_rng(3), (20, 30), 50)
    tensor = pack(entries, csr())
    assert tensor.arrays[1]["crd"] is entries.coordinates[1]
    assert not np.shares_memory(tensor.values, entries.values)


def test_index_widths_and_large_dimensions() -> None:
    low, high = 2**31 - 2, 2**31 + 5
    entries = entries_from(((high, low), ([0, 7, high - 1], [low - 1, 3, 0]), [1.0, 2.0, 3.0]))
    assert entries.coordinates[1].dtype == np.int64
    tensor = check(entries, dcsr())
    assert [array["crd"].dtype for array in tensor.arrays] == [np.int64, np.int32]
    assert [array["pos"].dtype for array in tensor.arrays] == [np.int32, np.int32]
    check(entries, Format.parse("C(k) C(i)"))
    check(entries, Format.parse("C(i1) C(k1) U(i0:4) U(k0:4)"))
    check(entries, Format.parse("C(k1) C(k0:1000003) C(i0:2147483647) C(i1)"))


@pytest.mark.parametrize("wide", [{"positions"}, {"coordinates"}, {"positions", "coordinates"}])
def test_64_bit_positions(wide: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What 2**31 entries would use, forced upon few: extents here are below 64, entries more."""
    entries = random_entries(np.random.default_rng(10), (60, 50), 500)

    def index_dtype(largest: int) -> type[np.signedinteger]:
        return np.int64 if ("coordinates" if largest < 64 else "positions") in wide else np.int32

    monkeypatch.setattr(primitives, "index_dtype", index_dtype)
    texts = ["C(i) C(k)", "U(k) C(i)", "C(k0:3) C(i) C(k1)", "U(i1) C(k1) U(i0:4) U(k0:4)"]
    for text in texts:
        check(entries, Format.parse(text), widths=False)


def test_keys_beyond_64_bits() -> None:
    rng = np.random.default_rng(4)
    shape = (2**40, 2**33, 2**31, 50, 2**62)
    coordinates = [rng.integers(0, size, 200) for size in shape]
    coordinates[0][:100] = coordinates[0][0]
    entries = entries_from((shape, coordinates, rng.standard_normal(200)))
    for modes in itertools.permutations("iklmn"):
        check(entries, Format.parse(" ".join(f"C({mode})" for mode in modes)))
    check(entries, Format.parse("C(n0:4096) C(l) C(n1) C(i0:3) C(m) C(k) C(i1)"))


@pytest.mark.parametrize(
    "text",
    [
        "U(l) C(k) C(i)",
        "C(k1) C(i) C(k0:8) C(l)",
        "U(i1) C(l1) U(k) C(i0:4) C(l0:4)",
        "C(i1) C(k1) C(l1) U(i0:2) U(k0:2) U(l0:2)",
        "U(k1) C(l) U(i1) C(i0:30) C(k0:50)",
    ],
)
def test_many_entries_round_trip(text: str) -> None:
    entries = random_entries(np.random.default_rng(11), (40, 300, 70), 40_000)
    tensor, source = pack(entries, Format.parse(text)), source_map(entries, Format.parse(text))
    again = unpack(tensor, source)
    assert np.array_equal(again.values, entries.values)
    assert all(map(np.array_equal, again.coordinates, entries.coordinates))
    assert np.count_nonzero(source) == entries.nnz


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("U(i) U(k)", "25000000 values for 100 entries"),
        ("U(i1) C(k1) U(i0:64) U(k0:64)", "values for 100 entries"),
        ("U(k1) U(i) C(k0:8)", "3125000 pointers above C(k0)"),
    ],
)
def test_fill_is_refused_before_memory_is_taken(text: str, what: str) -> None:
    entries = random_entries(np.random.default_rng(6), (5000, 5000), 100)
    with pytest.raises(FormatError) as refused:
        pack(entries, Format.parse(text))
    assert what in str(refused.value)
    assert "20 times is allowed; compress one of U(" in str(refused.value)


def test_enormous_fill_is_refused() -> None:
    entries = entries_from(((2**62, 2**62), ([5], [7]), [1.0]))
    for text in ("U(i) U(k)", "U(i) C(k)", "C(k) U(i)", "C(i) U(k)"):
        with pytest.raises(FormatError, match="times as many"):
            pack(entries, Format.parse(text))


def test_empty_rows_are_not_fill() -> None:
    entries = entries_from(((100_000, 3), ([99_999], [2]), [1.0]))
    assert pack(entries, csr()).counts == (100_000, 1)
    assert pack(entries, Format.parse("U(i1) U(i0:7) C(k)")).counts[-1] == 1


def test_nan_and_negative_zero_survive() -> None:
    entries = entries_from(((2, 2), ([0, 1], [1, 0]), np.array([np.nan, -0.0], np.float32)))
    values = pack(entries, dense(2)).values
    assert np.isnan(values[1])
    assert np.signbit(values[2])


def test_refill_refuses_what_does_not_fit() -> None:
    entries = random_entries(np.random.default_rng(7), (9, 9), 20)
    tensor, source = pack(entries, bcsr(2, 2)), source_map(entries, bcsr(2, 2))
    with pytest.raises(InputError, match=r"expected values of shape \(20,\)"):
        refill(tensor, source, np.zeros(21))
    with pytest.raises(InputError, match="the source map has the shape"):
        refill(tensor, source[1:], np.zeros(20))


def test_unpack_needs_the_source_of_padded_formats() -> None:
    entries = random_entries(np.random.default_rng(8), (4, 5, 6), 30)
    assert np.array_equal(unpack(pack(entries, csf(3))).values, entries.values)
    again = unpack(pack(entries, Format.parse("C(l) U(i) C(k)")))
    assert all(map(np.array_equal, again.coordinates, entries.coordinates))
    with pytest.raises(FormatError, match="is padded; unpack needs the source map"):
        unpack(pack(entries, dense(3)))


def test_wrong_order_is_refused() -> None:
    with pytest.raises(FormatError, match="stores a tensor of order 3"):
        pack(random_entries(np.random.default_rng(9), (4, 5), 3), csf(3))


def test_refill_never_reaches_what_an_operator_reads() -> None:
    """Its transpose, other widths, files and pickles would keep the old values."""
    import scipy.sparse as sp

    import tensorwise as tw

    matrix = sp.random_array((20, 30), density=0.2, format="csr", rng=np.random.default_rng(0))
    for text in ("(i,k) -> U(i) C(k)", "(i,k) -> U(i1) C(k1) U(i0:2) U(k0:2)", "(i,k) -> U(k) C(i)"):
        op = tw.compile(
            "C[i] += A[i,k] * B[k]", A=matrix, format=text, schedule="reorder(k,i)" if "U(k)" in text else ""
        )
        (tensor,) = op.tensors.values()
        before = op @ np.ones(30)
        with pytest.raises(InputError, match="belongs to a bound kernel"):
            refill(tensor, source_map(op.workload.entries, Format.parse(text)), np.zeros(matrix.nnz))
        for array in (tensor.values, *(array for table in tensor.arrays for array in table.values())):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        for array in (op.workload.entries.values, *op.workload.entries.coordinates):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        np.testing.assert_array_equal(op @ np.ones(30), before)


def test_refill_rounds_but_loses_nothing() -> None:
    entries = entries_from(((1, 2), ([0, 0], [0, 1]), np.ones(2, np.float32)))
    tensor, source = pack(entries, csr()), source_map(entries, csr())
    if not tensor.values.flags.writeable:
        pytest.skip("values are the entries' own")
    for lost in (np.array([1, 2**24 + 1]), np.array([1, 1e300]), np.array([1, 1j])):
        with pytest.raises(InputError):
            refill(tensor, source, lost)
    refill(tensor, source, np.array([1, 0.1]))
    assert tensor.values[1] == np.float32(0.1)


@pytest.mark.parametrize(
    "dtype", ["int16", "int32", "int64", "uint64", ">i4", ">i8", "float32", "float64", "O"]
)
def test_refill_reads_source_maps_of_any_integers(dtype: str) -> None:
    """They go to compiled code as they lie: other dtypes were read as integers of that size, beyond arrays."""
    entries = random_entries(np.random.default_rng(7), (9, 9), 20)
    tensor, source = pack(entries, bcsr(2, 2)), source_map(entries, bcsr(2, 2))
    fresh = np.arange(20.0) + 1
    if np.dtype(dtype).kind not in "iu":
        with pytest.raises(InputError, match=r"refill: source map: .*expected integers"):
            refill(tensor, source.astype(dtype), fresh)
        return
    refill(tensor, source.astype(dtype), list(fresh))  # type: ignore[arg-type]
    assert np.array_equal(unpack(tensor, source).values, fresh)
