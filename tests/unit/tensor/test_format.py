"""Formats parse, print, rename and refuse."""

import pytest

from tensorwise.errors import FormatError
from tensorwise.tensor.format import Format, bcsr, csc, csf, csr, dcsr, dense
from tensorwise.tensor.levels import LEVELS, Compressed, Dense
from tensorwise.tensor.remap import Axis

TEXTS = [
    "(i,k) -> U(i) C(k)",
    "(i,k) -> U(k) C(i)",
    "(i,k) -> U(i1) C(k1) U(i0:4) U(k0:4)",
    "(i,k) -> C(k0:3) U(i) C(k1)",
    "(k,i) -> C(k) C(i)",
    "(row,column) -> C(row1) U(column) C(row0:7)",
    "(i,k,l,m,n) -> C(i) C(k) C(l) C(m) U(n)",
    "(i) -> C(i1) U(i0:8)",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_round_trips(text: str) -> None:
    assert str(Format.parse(text)) == text
    assert Format.parse(str(Format.parse(text))) == Format.parse(text)
    assert hash(Format.parse(text)) == hash(Format.parse("  " + text.replace(" ", "  ")))


def test_header_may_be_left_out() -> None:
    assert Format.parse("U(k) C(i)") == csc()
    assert Format.parse("U(k) C(i)").modes == ("i", "k")


def test_helpers() -> None:
    assert str(csr()) == "(i,k) -> U(i) C(k)"
    assert str(dcsr()) == "(i,k) -> C(i) C(k)"
    assert str(bcsr(2, 8)) == "(i,k) -> U(i1) C(k1) U(i0:2) U(k0:8)"
    assert str(csf(4)) == "(i,k,l,m) -> C(i) C(k) C(l) C(m)"
    assert str(dense(2)) == "(i,k) -> U(i) U(k)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(i,k) -> U(i) C(k", "expected ')' at the end"),
        ("(i,k) -> U(i) X(k)", f"expected a level {', '.join(LEVELS)} in column 15, got 'X'"),
        ("(i,k) -> ", "expected a level"),
        ("", "expected a level"),
        ("(i,k] -> U(i)", "expected ')' in column 5, got ']'"),
        ("(i,k) U(i) C(k)", "expected '->' in column 7, got 'U'"),
        ("(i,k0) -> U(i) C(k)", "expected a mode, letters only in column 4, got 'k0'"),
        ("(i,k) -> U(i) C(k2)", "expected an axis such as i, i1, i0:4, k# or k-i"),
        ("(i,k) -> U(i) C(k0:x)", "expected a size"),
        ("(i,k) -> U(i:4) C(k)", "expected ')' in column 13, got ':'"),
        ("(i,k) -> U(i) C(k1) U(k0)", "'k0' has no size; write it as in k0:4"),
        ("(i,k) -> U(i) C(k1) U(k0:0)", "'k0' has the size 0; sizes lie between 1"),
        ("(i,k) -> U(i) C(k1) U(k0:2147483648)", "'k0' has the size 2147483648"),
        ("(i,k) -> U(i) C(k1) U(k0:" + "9" * 5000 + ")", "sizes lie between 1"),
        ("(i,k) -> S(i) C(k)", "S(i) needs a level above it that lists positions"),
        ("(i,k) -> U(i) S(k)", "S(k) holds one coordinate a position; above it a level N, or slots k#"),
        ("(i,k) -> N(i) C(k)", "N(i) keeps one position an entry; only levels S follow it"),
        ("(i,k) -> U(i) P(k)", "P(k): a level P keeps slots and nothing else does"),
        ("(i,k) -> U(i) U(k#) S(k)", "U(k#): a level P keeps slots and nothing else does"),
        ("(i,k) -> U(i) P(k#) C(k)", "'k' is stored by slots; keep its coordinates in a level S(k)"),
        ("(i,k) -> U(i) P(k#)", "'k' is stored as slot; slots need S(k) below"),
        ("(i,k,l) -> U(i) P(k#) S(k) C(l)", "'k#': slots and diagonals are for matrices, got 3 modes"),
        ("(i,k) -> U(i) C(k-k)", "'k-k': diagonals run along the other mode 'i', stored whole or split"),
        ("(i:length,k) -> U(i) C(k-i)", "'k-i': diagonals need both modes in their own order"),
        ("(i:up,k) -> U(i) C(k)", "'up' is no order of a mode; there are length, degree, rcm, cluster"),
        ("(i:rcm8,k) -> U(i) C(k)", "'rcm8' is no order of a mode"),
        ("(i:length,k:length) -> U(i) C(k)", "one mode may be stored in an order of its own, got i, k"),
        ("(i,k) -> U(i)", "mode 'k' is not stored; add a level for it (got i)"),
        ("(i,k) -> U(i) C(k) C(l)", "'l' belongs to no mode of (i,k)"),
        ("(i,k) -> U(i) C(k) C(i)", "'i' is stored twice"),
        ("(i,k) -> U(i) C(k) C(k1) U(k0:2)", "mode 'k' is stored both whole and split"),
        ("(i,k) -> U(i) C(k1)", "'k1' is stored without 'k0'; list both (got i, k1)"),
        ("(i,k) -> U(i) U(k0:4)", "'k0' is stored without 'k1'"),
        ("(i,i) -> U(i)", "mode 'i' is listed twice"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(FormatError) as refused:
        Format.parse(text, "A")
    assert message in str(refused.value)
    assert str(refused.value).startswith("format of A '")
    assert "\n" not in str(refused.value)


def test_inner_above_outer_is_a_format() -> None:
    assert Format.parse("(i,k) -> U(i0:4) U(i1) C(k)").extents((10, 3)) == (4, 3, 3)


def test_refuses_splits_of_unsplit_modes() -> None:
    with pytest.raises(FormatError, match="a split of 4 is given for mode 'i'"):
        Format(("i",), (Compressed(Axis("i")),), {"i": 4})


def test_extents() -> None:
    assert bcsr(4, 16).extents((0, 5)) == (0, 1, 4, 16)
    assert csc().extents((2, 3)) == (3, 2)
    with pytest.raises(FormatError, match="stores a tensor of order 2"):
        csr().extents((2, 3, 4))


def test_renamed() -> None:
    assert str(bcsr(2, 4).renamed(("k", "i"))) == "(k,i) -> U(k1) C(i1) U(k0:2) U(i0:4)"
    assert csr().renamed(("i", "k")) == csr()
    with pytest.raises(FormatError, match="has 2 modes, got 1 names"):
        csr().renamed(("i",))


@pytest.mark.parametrize(
    ("text", "padded", "kept"),
    [
        ("U(i) C(k)", False, True),
        ("C(i) C(k)", False, True),
        ("U(i1) U(i0:3) C(k)", False, True),
        ("U(i) C(k1) C(k0:3)", False, True),
        ("U(i) C(k0:3) C(k1)", False, False),
        ("U(k) C(i)", False, False),
        ("U(k1) U(i) C(k0:8)", False, False),
        ("U(i1) C(k1) U(i0:4) U(k0:4)", True, False),
        ("U(i) U(k)", True, False),
        ("C(i) U(k)", True, False),
        ("(k,i) -> U(k) C(i)", False, True),
    ],
)
def test_padding_and_order(text: str, padded: bool, kept: bool) -> None:
    format = Format.parse(text)
    assert (format.padded, format.order_kept) == (padded, kept)


def test_structure_forgets_sizes_only() -> None:
    assert bcsr(2, 2).structure == bcsr(4, 8).structure != csr().structure


def test_splits_cannot_be_changed() -> None:
    sizes = {"i": 4, "k": 4}
    format = Format(bcsr(4, 4).modes, bcsr(4, 4).levels, sizes)
    sizes["i"] = 5
    assert format == bcsr(4, 4)


def test_level_table() -> None:
    assert set(LEVELS) >= {"U", "C", "C16", "B", "N", "P", "S", "S16"}
    assert all(LEVELS[letter].letter == letter for letter in LEVELS)


def test_level_arithmetic_is_symbolic() -> None:
    class Text(str):
        def __mul__(self, other: object) -> "Text":  # type: ignore[override]
            return Text(f"{self}*{other}")

        def __add__(self, other: object) -> "Text":  # type: ignore[override]
            return Text(f"{self}+{other}")

        def __getitem__(self, index: object) -> "Text":  # type: ignore[override]
            return Text(f"{self}[{index}]")

    p, arrays = Text("p"), {"pos": Text("pos"), "crd": Text("crd")}
    assert Dense(Axis("i")).locate({}, p, Text("i"), Text("n")) == "p*n+i"
    assert Compressed(Axis("i")).bounds(arrays, p) == ("pos[p]", "pos[p+1]")
    assert Compressed(Axis("i")).coordinate(arrays, p, p, Text("n")) == "crd[p]"
    with pytest.raises(NotImplementedError):
        Compressed(Axis("i")).locate(arrays, p, p, p)
