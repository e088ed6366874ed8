"""The levels beside U and C, permuted modes, slots and diagonals: packing and its inverse."""

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.errors import FormatError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format, coo, dia, sell
from tensorwise.tensor.orders import ORDERS, permutation
from tensorwise.tensor.pack import pack, source_map, unpack

TEXTS = (
    "(i,k) -> N(i) S(k)",
    "(i,k) -> N(k) S16(i)",
    "(i:length16,k) -> U(i1) P(k#) U(i0:8) S16(k)",
    "(i,k) -> P(k#) U(i) S(k)",
    "(i,k) -> P(k#) C(i) S(k)",
    "(i:length,k) -> P(k#) C(i) S(k)",
    "(i,k) -> U(k1) P(i#) U(k0:4) S(i)",
    "(i:rcm,k) -> U(i) C(k)",
    "(i:cluster,k) -> U(i) C16(k)",
    "(i:degree,k) -> U(k) C(i)",
    "(i:rcm,k) -> C(k) C(i)",
    "(i:length,k) -> C(i1) C(k1) U(i0:2) C(k0:4)",
    "(i:degree,k) -> U(i0:2) C(k) C(i1)",
    "(i,k) -> U(i1) C(k-i) U(i0:4)",
    "(i,k) -> C(k-i) U(i)",
    "(i,k) -> C(k-i) C16(i)",
    "(i,k) -> U(k1) C(i-k) U(k0:8)",
    "(i,k) -> U(i) C(k1) B(k0:8)",
    "(i,k) -> U(i1) C(k) B(i0:32)",
)


def matrix(rows: int, columns: int, density: float = 0.1, seed: int = 0) -> Entries:
    rng = np.random.default_rng(seed)
    return entries_from(sp.random_array((rows, columns), density=density, rng=rng, format="csr"))


def same(a: Entries, b: Entries) -> bool:
    return all(map(np.array_equal, a.coordinates, b.coordinates)) and np.array_equal(a.values, b.values)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("shape", [(50, 40), (1, 30), (30, 1), (7, 7), (3, 0), (0, 3)])
def test_unpack_is_the_inverse(text: str, shape: tuple[int, int]) -> None:
    entries, format = matrix(*shape), Format.parse(text)
    assert Format.parse(str(format)) == format
    tensor, source = pack(entries, format), source_map(entries, format)
    assert same(unpack(tensor, source), entries)
    assert sorted(source[source > 0]) == list(range(1, entries.nnz + 1))
    assert str(tensor)
    if not format.padded:
        assert len(tensor.values) == entries.nnz
        assert same(unpack(tensor), entries)


def test_names() -> None:
    assert coo(3) == Format.parse("(i,k,l) -> N(i) S(k) S(l)")
    assert sell(8).orders == {"i": "length"}
    assert dia(16).padded
    assert not coo().padded
    assert sell(8).loops[1].name == "k#"


def test_slices_are_as_wide_as_their_longest_row() -> None:
    dense = np.zeros((6, 9))
    for row, count in enumerate((1, 7, 2, 2, 9, 3)):
        dense[row, :count] = row + 1
    tensor = pack(entries_from(dense), Format.parse("(i,k) -> U(i1) P(k#) U(i0:2) S(k)"))
    assert np.diff(tensor.arrays[1]["pos"]).tolist() == [7, 2, 9]
    assert len(tensor.values) == 2 * (7 + 2 + 9)
    ordered = pack(entries_from(dense), Format.parse("(i:length,k) -> U(i1) P(k#) U(i0:2) S(k)"))
    assert ordered.permutations["i"].tolist() == [4, 1, 5, 2, 3, 0]
    assert np.diff(ordered.arrays[1]["pos"]).tolist() == [9, 3, 2]


def test_short_coordinates_take_two_bytes_and_refuse_long_axes() -> None:
    narrow = pack(matrix(10, 2**16), Format.parse("(i,k) -> U(i) C16(k)"))
    assert narrow.arrays[1]["crd"].dtype == np.uint16
    for text in ("(i,k) -> U(i) C16(k)", "(i,k) -> N(i) S16(k)"):
        with pytest.raises(FormatError, match=r"k has 65537 coordinates .* keeps at most 65536"):
            pack(matrix(10, 2**16 + 1, 0.001), Format.parse(text))
    with pytest.raises(FormatError, match="a level B keeps at most 32"):
        pack(matrix(10, 33), Format.parse("(i,k) -> U(i) B(k)"))


def test_full_masks() -> None:
    tensor = pack(entries_from(np.ones((3, 32))), Format.parse("(i,k) -> U(i) B(k)"))
    assert tensor.arrays[1]["mask"].tolist() == [2**32 - 1] * 3


def test_slots_and_diagonals_that_blow_up_are_refused() -> None:
    entries = entries_from(
        ((100_000, 100_000), (np.arange(99_999), np.arange(99_999, 0, -1)), np.ones(99_999))
    )
    with pytest.raises(FormatError, match=r"would keep"):
        pack(entries, Format.parse("(i,k) -> U(i1) C(k-i) U(i0:64)"))
    hub = sp.csr_array((np.ones(40_000), (np.zeros(40_000, int), np.arange(40_000))), shape=(40_000, 40_000))
    with pytest.raises(FormatError, match=r"would keep"):
        pack(entries_from(hub), Format.parse("(i,k) -> P(k#) U(i) S(k)"))


@pytest.mark.parametrize("order", [*ORDERS, "length7"])
@pytest.mark.parametrize("mode", [0, 1])
def test_orders_are_permutations(order: str, mode: int) -> None:
    for entries in (matrix(40, 30), matrix(30, 30, 0.05), matrix(5, 0), matrix(0, 5), matrix(0, 0)):
        found = permutation(entries, mode, order)
        assert sorted(found.tolist()) == list(range(entries.shape[mode]))


def test_length_sorts_within_its_window() -> None:
    entries = matrix(40, 30)
    lengths = np.bincount(entries.coordinates[0], minlength=40)
    assert (np.diff(lengths[permutation(entries, 0, "length")]) <= 0).all()
    windowed = permutation(entries, 0, "length8")
    assert (windowed // 8 == np.arange(40) // 8).all()
    assert all((np.diff(lengths[windowed[at : at + 8]]) <= 0).all() for at in range(0, 40, 8))


def test_similar_rows_come_together() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.integers(4, size=200)
    dense = np.zeros((200, 400))
    for row, kind in enumerate(kinds):
        dense[row, 100 * kind : 100 * kind + 100 : 3] = 1
    order = permutation(entries_from(dense), 0, "cluster")
    assert np.count_nonzero(np.diff(kinds[order])) == 3


def test_cuthill_mckee_narrows_a_shuffled_band() -> None:
    rng = np.random.default_rng(0)
    shuffle = rng.permutation(300)
    band = sp.diags_array([np.ones(299), np.ones(300), np.ones(299)], offsets=[-1, 0, 1]).tocsr()
    mixed = entries_from(band[shuffle][:, shuffle])
    order = permutation(mixed, 0, "rcm")
    assert np.abs(np.diff(shuffle[order])).max() == 1


def test_matrix_orders_refuse_tensors() -> None:
    cube = entries_from(((2, 2, 2), ([0], [1], [1]), [1.0]))
    with pytest.raises(FormatError, match=r"'rcm' is for matrices, got a tensor of order 3"):
        pack(cube, Format.parse("(i:rcm,k,l) -> U(i) C(k) C(l)"))
    assert unpack(pack(cube, Format.parse("(i:degree,k,l) -> C(i) C(k) C(l)"))).nnz == 1
