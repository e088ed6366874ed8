"""Files: what is well formed reads as SciPy reads it; the rest is an InputError that names file and line."""

import csv
import errno
import gzip
import io
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.errors import InputError
from tensorwise.tensor import matrix_market, npz, text
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.file_formats import FILE_FORMATS, FileFormat
from tensorwise.tensor.files import read, write
from tensorwise.tensor.raw import RawCoordinates

REAL = "%%MatrixMarket matrix coordinate real general\n"
CORPUS = Path(os.environ.get("TENSORWISE_CORPUS") or Path(__file__).parents[4] / "shared" / "corpus")


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str | bytes, str], Path]:
    def _put(content: str | bytes, name: str = "a.mtx") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return _put


Put = Callable[..., Path]


def dense_of(entries: Entries) -> np.ndarray:
    out = np.zeros(entries.shape, entries.dtype)
    out[tuple(np.asarray(c) for c in entries.coordinates)] = entries.values
    return out


def refused(path: Path, pattern: str) -> None:
    with pytest.raises(InputError) as error:
        read(path)
    assert str(path) in str(error.value)
    assert re.search(pattern, str(error.value)), error.value


# Matrix Market, well formed


def test_general_coordinate(put: Put) -> None:
    entries = read(put(REAL + "% a comment\n\n2 3 4\n1 1 1.5\n2 3 -2e-3\n1 3 0\n2 1 4\n"))
    assert (entries.shape, entries.dtype) == ((2, 3), np.float64)
    assert [array.tolist() for array in entries.coordinates] == [[0, 0, 1, 1], [0, 2, 0, 2]]
    assert entries.values.tolist() == [1.5, 0.0, 4.0, -0.002]
    assert read(put(REAL + "1 1 1\n1 1 0.1\n"), dtype=np.float32).values == np.float32(0.1)


@pytest.mark.parametrize(
    ("banner", "body"),
    [
        ("coordinate real general", "3 3 3\n1 2 1.5\n3 1 -2\n2 2 0.25\n"),
        ("coordinate double symmetric", "3 3 3\n1 1 1.5\n3 1 -2\n2 2 0.25\n"),
        ("coordinate real skew-symmetric", "3 3 2\n2 1 1.5\n3 1 -2\n"),
        ("coordinate real hermitian", "3 3 2\n2 1 1.5\n3 3 -2\n"),
        ("coordinate integer general", "3 2 3\n1 2 15\n3 1 -2\n2 2 0\n"),
        ("coordinate unsigned-integer symmetric", "2 2 2\n2 1 15\n1 1 3\n"),
        ("coordinate pattern general", "3 4 3\n1 2\n3 1\n2 4\n"),
        ("coordinate pattern symmetric", "3 3 3\n1 1\n3 1\n2 2\n"),
        ("array real general", "2 3\n1.5\n0\n-2\n4\n5\n6\n"),
        ("array integer general", "2 3\n1\n0\n-2\n4\n5\n6\n"),
        ("array real symmetric", "3 3\n1.5\n2\n3\n4\n5\n6\n"),
        ("array real skew-symmetric", "3 3\n1.5\n2\n3\n"),
        ("coordinate real general", "0 0 0\n"),
        ("coordinate real general", "4 5 0\n"),
    ],
)
def test_fields_and_symmetries_agree_with_scipy(put: Put, banner: str, body: str) -> None:
    path = put(f"%%MatrixMarket matrix {banner}\n{body}")
    expected = scipy.io.mmread(path)
    expected = expected.toarray() if sp.issparse(expected) else expected
    entries = read(path)
    assert entries.shape == expected.shape
    assert entries.dtype == np.float64
    np.testing.assert_array_equal(dense_of(entries), expected)
    assert read(put(gzip.compress(path.read_bytes()), "b.mtx.gz")).pattern_id == entries.pattern_id


def test_empty_arrays(put: Put) -> None:
    """The first of them makes scipy.io.mmread divide by zero, which ends the process (SciPy 1.17)."""
    for symmetry, sizes in (
        ("general", "0 3"),
        ("general", "3 0"),
        ("symmetric", "0 0"),
        ("skew-symmetric", "1 1"),
    ):
        entries = read(put(f"%%MatrixMarket matrix array real {symmetry}\n{sizes}\n"))
        assert entries.shape == tuple(map(int, sizes.split()))
        assert entries.nnz == 0


@pytest.mark.parametrize("size", [2, 5, 11])
@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric"])
def test_packed_triangles(put: Put, size: int, symmetry: str) -> None:
    rng = np.random.default_rng(size)
    lower = np.tril(rng.standard_normal((size, size)), -1 if symmetry == "skew-symmetric" else 0)
    full = lower - lower.T if symmetry == "skew-symmetric" else lower + np.tril(lower, -1).T
    start = 1 if symmetry == "skew-symmetric" else 0
    body = "".join(f"{v!r}\n" for j in range(size) for v in lower[j + start :, j].tolist())
    path = put(f"%%MatrixMarket matrix array real {symmetry}\n{size} {size}\n{body}")
    np.testing.assert_array_equal(dense_of(read(path)), full)


@pytest.mark.parametrize(
    "body",
    [
        "2 2 2\r\n1 1 1.5\r\n2 2 2.5\r\n",
        "  2\t2   2  \n\n   1 1\t1.5\n% remark\n\n\t2   2 2.5   \n\n\n",
        "2 2 2\n1 1 1.5\n2 2 2.5",
        "2 2 2 % sizes\n1 1 1.5 % first\n2 2 2.5\n%",
        "2 2 2\n1 1 +1.5D+00\n2 2 25.d-1\n",
        "2 2 2\n1 1 1.5\n2 2 2.5000000000000000000000000000000000000000000\n",
        "2 2 2\n01 0000000001 1.5\n2 2 .25E+1\n",
        "2 2 3\n1 1 1\n2 2 2.5\n1 1 .5\n",
        "% \xff\xfe not ASCII\n2 2 2\n1 1 1.5\n2 2 2.5\n",
    ],
)
@pytest.mark.parametrize(
    "banner", [REAL, "%%matrixmarket  MATRIX Coordinate REAL General  \r\n", "\ufeff" + REAL]
)
def test_tolerated_spellings(put: Put, banner: str, body: str) -> None:
    content = banner.encode() + body.encode("latin-1")
    np.testing.assert_array_equal(dense_of(read(put(content))), [[1.5, 0.0], [0.0, 2.5]])


def test_long_tokens_nan_inf_and_overflow(put: Put) -> None:
    """Values of 22 digits and more crashed scipy.io.mmread (scipy#19949)."""
    tokens = [
        "0." + "123456789" * 30,
        "9" * 400,
        "-" + "1" * 22,
        "1e999",
        "-Inf",
        "nan",
        "1e-999",
        "Infinity",
    ]
    tokens += ["0" * 5000 + "7", "1." + "0" * 5000 + "e3", "123456789012345678901234567890"]
    for rest in (tokens, [token for token in tokens if token.lower()[-3:] not in ("inf", "nan", "ity")]):
        body = "".join(f"1 {column} {token}\n" for column, token in enumerate(rest, 1))
        entries = read(put(f"{REAL}1 {len(rest)} {len(rest)}\n{body}"))
        np.testing.assert_array_equal(entries.values, [float(token) for token in rest])


def test_dimensions_beyond_32_bits(put: Put) -> None:
    entries = read(put(f"{REAL}{2**31 + 5} {10**17} 2\n{2**31 + 5} {10**17} 1.5\n1 1 1\n"))
    assert entries.shape == (2**31 + 5, 10**17)
    assert [array.tolist() for array in entries.coordinates] == [[0, 2**31 + 4], [0, 10**17 - 1]]
    entries = read(put(f"%%MatrixMarket matrix coordinate pattern symmetric\n{2**40} {2**40} 1\n{2**40} 1\n"))
    assert [array.tolist() for array in entries.coordinates] == [[0, 2**40 - 1], [2**40 - 1, 0]]


COMPLEX = {
    "general": "3 3 4\n1 1 1.5 -2\n3 1 0 4\n2 2 7 0\n1 3 -1e2 .5\n",
    "symmetric": "3 3 3\n1 1 1.5 -2\n3 1 0 4\n3 2 7 0\n",
    "skew-symmetric": "3 3 2\n3 1 0 4\n3 2 7 -1\n",
    "hermitian": "3 3 3\n1 1 1.5 0\n3 1 0 4\n3 2 7 -1.25\n",
}


@pytest.mark.parametrize("part", ["real", "imaginary"])
@pytest.mark.parametrize("remark", ["", "% which the fast parser leaves to the slow one\n"])
@pytest.mark.parametrize("symmetry", COMPLEX)
def test_one_part_of_complex_values(put: Put, symmetry: str, remark: str, part: str) -> None:
    content = f"%%MatrixMarket matrix coordinate complex {symmetry}\n{COMPLEX[symmetry]}"
    expected = scipy.io.mmread(put(content)).toarray()
    entries = read(put(content + remark), part=part)  # type: ignore[arg-type]
    np.testing.assert_array_equal(dense_of(entries), expected.real if part == "real" else expected.imag)
    assert entries.nnz >= np.count_nonzero(expected)  # an entry stays where only its other part is zero


def test_one_part_of_whole_numbers_and_of_a_complex_array(put: Put) -> None:
    path = put("%%MatrixMarket matrix coordinate complex general\n2 2 2\n1 1 3 4\n2 2 5 6\n")
    assert read(path, np.float32, part="imaginary").values.tolist() == [4, 6]
    path = put("%%MatrixMarket matrix array complex general\n2 2\n1 2\n0 3\n4 0\n5 6.5\n")
    np.testing.assert_array_equal(dense_of(read(path, part="real")), [[1, 4], [0, 5]])
    np.testing.assert_array_equal(dense_of(read(path, part="imaginary")), [[2, 0], [3, 6.5]])


def test_a_part_that_is_not_there(put: Put) -> None:
    path = put(REAL + "1 1 1\n1 1 2\n")
    assert read(path, part="real").values.tolist() == [2]
    with pytest.raises(InputError, match=r"a\.mtx, line 1: has the field real, so it has no imaginary part"):
        read(path, part="imaginary")
    with pytest.raises(InputError, match="part must be 'real', 'imaginary' or None, got 'phase'"):
        read(path, part="phase")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"a \.tns file has no imaginary part"):
        read(put("1 1 2.0\n", "a.tns"), part="imaginary")
    path = put("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 2\n")
    with pytest.raises(
        InputError, match=r"line 3: 3 numbers; expected 4 \(2 indices and 2 numbers of a value\)"
    ):
        read(path, part="real")


# Matrix Market, malformed


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        ("", "is empty"),
        ("\n", r"line 1: begins with ''; expected"),
        ("1 1 1\n", r"line 1: begins with '1 1 1'"),
        ("\x00\x01\xff\xfe" * 50, "line 1: begins with"),
        ("%%MatrixMarket matrix\n", "line 1: 2 words"),
        ("%%MatrixMarket vector coordinate real general\n1 1\n", "object 'vector'"),
        ("%%MatrixMarket matrix sparse real general\n1 1 0\n", "format 'sparse'"),
        ("%%MatrixMarket matrix coordinate float general\n1 1 0\n", "field 'float'"),
        ("%%MatrixMarket matrix coordinate real diagonal\n1 1 0\n", "symmetry 'diagonal'"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n", "complex.*part='real'"),
        ("%%MatrixMarket matrix array pattern general\n1 1\n1\n", "a pattern cannot be array"),
        ("%%MatrixMarket matrix coordinate pattern skew-symmetric\n1 1 0\n", "a pattern cannot be skew"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 3 0\n", "symmetric but 2x3"),
        ("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 2 1\n", "on the diagonal"),
        (REAL, "ends before the line of sizes"),
        (REAL + "% only comments\n", "ends before the line of sizes"),
        (REAL + "2 2\n", "line 2: '2 2' is no line of sizes; expected 3"),
        (REAL + "2 2 -1\n", "line 2"),
        (REAL + "2 2 1.0\n", "line 2"),
        (REAL + f"2 2 {10**30}\n", "line 2"),
        (REAL + f"2 2 {10**12}\n1 1 1\n", "declares 1000000000000 entries, but its size allows at most"),
        (REAL + f"2 2 {10**18 - 1}\n1 1 1\n", "declares"),
        (f"%%MatrixMarket matrix array real general\n{10**17} {10**17}\n1\n", "declares"),
        (f"%%MatrixMarket matrix array real symmetric\n{10**17} {10**17}\n1\n", "declares"),
        (REAL + "2 2 2\n1 1 1\n", "ends after 1 of the 2 entries"),
        (REAL + "2 2 1\n", "ends after 0 of the 1 entries"),
        (REAL + "2 2 1\n1 1 1\n2 2 2\n", "line 4: more entries than the 1 declared"),
        (REAL + "2 2 0\n1 1 1\n", "line 3: more entries than the 0 declared"),
        (REAL + "2 2 1\n0 1 1\n", "line 3: row index 0; indices start at 1"),
        (REAL + "2 2 2\n1 1 1\n% x\n1 3 1\n", "line 5: column index 3 is larger than the declared size 2"),
        (REAL + "0 0 1\n1 1 1\n", "line 3: row index 1 is larger than the declared size 0"),
        (REAL + "2 2 1\n-1 1 1\n", "line 3: '-1' is no index"),
        (REAL + "2 2 1\n1.0 1 1\n", "line 3: '1.0' is no index"),
        (REAL + "2 2 1\n1 1e0 1.5\n", "line 3: '1e0' is no index"),
        (REAL + "2 2 1\n1 99999999999999999999 1\n", "line 3: '99999999999999999999' is no index"),
        (REAL + "2 2 1\n1 \u0661 1\n", "line 3: .* is no index"),
        (REAL + "2 2 1\n1 1\n", r"line 3: 2 numbers; expected 3 \(2 indices and a value\)"),
        (REAL + "2 2 1\n1 1 1 0\n", "line 3: 4 numbers"),
        (REAL + "2 2 2\n1 1\n1 1 1 1\n", "line 3: 2 numbers"),
        (REAL + "2 2 2\n1 1 1 1 1 1\n\n", "line 3: 6 numbers"),
        (REAL + "2 2 1\r1 1 1\r", "is no line of sizes"),
        ("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 1 1\n", "line 3: 3 numbers; expected 2"),
        ("%%MatrixMarket matrix array real general\n1 1\n1 1\n", "line 3: 2 numbers; expected 1"),
        ("%%MatrixMarket matrix array real general\n2 1\n1\n", "ends after 1 of the 2"),
        (REAL + "9 9 1\n1 1 1\x002\n", "line 3: .* is no number"),
        (REAL + "9 9 2\n1 1 1\n1\x002 3\n", "line 4"),
        (REAL + "2 2 1\n1 1 " + "x" * 10**6 + "\n", r"line 3: 'x{40}'\.\.\. is no number"),
        (REAL + "2 2 1\n" + "1" * (2**20 + 1), "line 3: longer than"),
        ("%" * (3 * 2**20), "line 1: longer than"),
    ],
)
def test_malformed_matrix_market(put: Put, content: str, pattern: str) -> None:
    refused(put(content), pattern)


@pytest.mark.parametrize(
    "token",
    ["1-2", "1+2", "--1", "+-1", "1.2.3", "1e", "1e5e6", "e5", ".", "-", "+", "1,5", "0x10", "1_0", "1d",
     "1e+", "e", "naninf", "nanx", "inff", "1f", "1.0L", "\u0661", "1\x0b\x00", "''", "1e5.5", "1.-5",
     "5.5-", "1d2d3", "d1"],
)  # fmt: skip
def test_wrong_values_are_never_half_read(put: Put, token: str) -> None:
    """NumPy's own parser reads "1-2" as two numbers and stops silently at "1e"; neither may pass."""
    warnings.simplefilter("ignore")  # as most programs have it
    refused(put(f"{REAL}3 3 3\n1 1 1.5\n2 2 {token}\n3 3 2.5\n"), "line 4")
    refused(put(f"{REAL}3 3 3\n1 1 1.5\n2 2 2\n3 3 {token}"), "line 5")
    # Two wrongs that keep the number of numbers.
    refused(put(f"{REAL}3 3 4\n1 1 1-2\n2 2 {token}\n3 3 2.5\n3 2 1\n"), "line 3")


def test_line_numbers_in_later_blocks(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", 100)
    lines = [f"{i % 7 + 1} {i % 5 + 1} {i}.5\n" for i in range(1000)]
    assert dense_of(read(put(f"{REAL}7 5 1000\n{''.join(lines)}"))).sum() == sum(i + 0.5 for i in range(1000))
    lines[700] = "9 1 1\n"
    refused(put(f"{REAL}7 5 1000\n{''.join(lines)}"), "line 703: row index 9")
    lines[300] = "\n%\n1 1 x\n"
    refused(put(f"{REAL}7 5 1000\n{''.join(lines)}"), "line 305: 'x' is no number")


# FROSTT


def test_frostt(put: Put) -> None:
    path = put(
        "# some\n# words dims: 4 3 2 nnz: 3 | more\n\n1 1 1 1.5\n3 2 1 2 # here\n1 3 2 -1\n3 2 1 1\n", "a.tns"
    )
    entries = read(path)
    assert entries.shape == (4, 3, 2)
    assert [array.tolist() for array in entries.coordinates] == [[0, 0, 2], [0, 2, 1], [0, 1, 0]]
    assert entries.values.tolist() == [1.5, -1.0, 3.0]
    entries = read(put(gzip.compress(b"7 2 3 4 5 1\n1 1 1 1 1 2\n"), "b.tns.gz"))
    assert entries.shape == (7, 2, 3, 4, 5)
    assert read(put("1 1 2.5", "c.tns")).shape == (1, 1)
    assert read(put("# dimensions = 3x4x5\n", "d.tns")).shape == (3, 4, 5)
    assert read(put(f"1 {10**18 - 1} 1 3\n", "e.tns")).shape == (1, 10**18 - 1, 1)


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        ("", "no entries"),
        ("# nothing\n\n", "no entries"),
        ("5\n", "0 indices|no entries"),
        ("1 5\n", "line 1: 1 indices"),
        ("1 " * 40 + "\n", "line 1: 39 indices"),
        ("1 1 1 1\n1 1 1\n", "line 2: 3 numbers; expected 4"),
        ("1 1 1 1\n1 0 1 1\n", "line 2: mode 1 index 0; indices start at 1"),
        ("1 1 1 1\n1 1.5 1 1\n", "line 2: '1.5' is no index"),
        ("1 1 1 1\n1 1 1 one\n", "line 2: 'one' is no number"),
        ("# dims: 2 2\n1 1 1 1\n", "line 2: 3 indices, but a comment gives 2 dims"),
        ("# dims: 2 2 2\n1 1 3 1\n", "line 2: mode 2 index 3 is larger than the declared size 2"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 0\n", "line 1"),
    ],
)
def test_malformed_frostt(put: Put, content: str, pattern: str) -> None:
    refused(put(content, "a.tns"), pattern)


# NumPy archives


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("name", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_npz_of_scipy(tmp_path: Path, name: str, kind: str, compressed: bool) -> None:
    dense = np.where(np.eye(6, 8) + np.eye(6, 8, 2) > 0, 1.5, 0.0).astype(np.float32)
    given = getattr(sp, f"{name}_{kind}")(dense)
    sp.save_npz(tmp_path / "a.npz", given, compressed=compressed)
    entries = read(tmp_path / "a.npz")
    assert entries.dtype == np.float32
    np.testing.assert_array_equal(dense_of(entries), dense)


def npz_bytes(**changes: Any) -> bytes:
    arrays: dict[str, Any] = {
        "format": b"csr",
        "shape": (2, 3),
        "data": np.array([1.0, 2.0]),
        "indices": np.array([0, 2]),
        "indptr": np.array([0, 1, 2]),
    }
    arrays |= changes
    stream = io.BytesIO()
    np.savez(stream, **{name: value for name, value in arrays.items() if value is not None})
    return stream.getvalue()


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"indices": np.array([0, 3])}, r"entry 1 \(row 1, column 3, value 2.0\)"),
        ({"indptr": np.array([0, 1, 3])}, "the last is 3"),
        ({"indptr": None}, "no array 'indptr'"),
        ({"format": None}, "no array 'format'"),
        ({"format": b"lil"}, "format 'lil' is unknown"),
        ({"format": b"csr\xff"}, "no readable"),
        ({"format": np.array([1, 2])}, "no readable"),
        ({"shape": (2,)}, "1 dimensions"),
        ({"shape": 5}, "not a tuple of integers"),
        ({"shape": (2, -3)}, "dimension 1"),
        ({"shape": (2.0, 3.0)}, "not a tuple of integers"),
        ({"shape": (2, 3, 4)}, "order 3"),
        ({"data": np.array([1.0, None])}, "pickled objects"),
        ({"data": np.array([1j, 2])}, "complex"),
        ({"format": b"coo", "row": [0, 1], "col": [0, 9]}, "row 1, column 9"),
        ({"format": b"coo"}, "no array 'row'"),
        ({"format": b"dia", "offsets": np.array([0, 1])}, "1-D|diagonals"),
        ({"format": b"bsr"}, "blocks have shape"),
    ],
)
def test_malformed_npz(put: Put, changes: dict[str, Any], pattern: str) -> None:
    refused(put(npz_bytes(**changes), "a.npz"), pattern)


def test_npz_headers_are_not_believed(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    good = npz_bytes()
    refused(put(b"", "a.npz"), "no readable")
    refused(put(good[: len(good) // 2], "a.npz"), "no readable")
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(stream, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data.replace(b"(2,), }", b"(%d,), }" % 10**12) if name == "data.npy" else data)
    refused(put(stream.getvalue(), "a.npz"), r"claims shape \(1000000000000,\).*bytes are stored")
    monkeypatch.setattr(npz, "available_bytes", lambda: 400)
    refused(put(good, "a.npz"), "too large for the memory")


# Files as such


@pytest.mark.parametrize("name", ["a.mtx", "a.mtx.gz", "a.tns", "a.tns.gz", "a.npz"])
def test_files_that_are_none(tmp_path: Path, name: str) -> None:
    refused(tmp_path / name, "does not exist")
    (tmp_path / name).mkdir()
    refused(tmp_path / name, "is no regular file")
    os.mkfifo(tmp_path / f"pipe{name}")
    refused(tmp_path / f"pipe{name}", "is no regular file")


@pytest.mark.parametrize("path", ["", "a", "a.csv", "a.gz", "a.npz.gz", "a.mtx.bz2", "a\0.mtx", 3, None])
def test_unknown_kinds(path: Any) -> None:
    with pytest.raises(InputError):
        read(path)
    with pytest.raises(InputError):
        write(path, entries_from(np.eye(2)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(put: Put) -> None:
    path = put(REAL)
    path.chmod(0)
    refused(path, "cannot be opened")


def test_damaged_gzip(put: Put) -> None:
    rng = np.random.default_rng(0)
    body = "".join(f"{i} 1 {value}\n" for i, value in enumerate(rng.random(2000).tolist(), 1))
    packed = gzip.compress(f"{REAL}2000 1 2000\n{body}".encode())
    assert read(put(packed, "a.mtx.gz")).nnz == 2000
    assert read(put(packed, "plain.mtx")).nnz == 2000  # told by the bytes, not the name
    assert read(put(gzip.decompress(packed), "b.mtx.gz")).nnz == 2000
    for cut in (3, 9, 11, 100, len(packed) // 2, len(packed) - 9, len(packed) - 1):
        refused(put(packed[:cut], "a.mtx.gz"), "damaged or cut off|begins with|empty")
    wrong = bytearray(packed)
    wrong[-6] ^= 1  # the checksum
    refused(put(bytes(wrong), "a.mtx.gz"), "damaged")
    refused(put(packed + b"garbage", "a.mtx.gz"), "damaged")
    refused(put(gzip.compress(b""), "a.mtx.gz"), "is empty")


def test_bombs(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = gzip.compress(b"\0" * 10**7)
    refused(put(zeros, "a.mtx.gz"), "line 1: longer than")
    refused(put(zeros, "a.tns.gz"), "line 1: longer than")
    lines = gzip.compress(b"1 1 1 1\n" * 10**6)
    monkeypatch.setattr(text, "available_bytes", lambda: 10**6)
    refused(put(lines, "a.tns.gz"), "more text than this machine has memory available")
    monkeypatch.setattr(text, "available_bytes", lambda: 10**7)
    refused(put(lines, "a.tns.gz"), "do not fit into")
    refused(
        put(gzip.compress(REAL.encode() + b"9 9 1000000\n" + b"1 1 1\n" * 10**6), "a.mtx.gz"), "too many for"
    )
    monkeypatch.setattr(text, "available_bytes", lambda: 10**8)
    comments = gzip.compress(REAL.encode() + b"% and\n" * 10**6 + b"1 1 1\n1 1 1\n")
    assert read(put(comments, "a.mtx.gz")).nnz == 1


# Writing


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["a.mtx", "a.mtx.gz", "A.MTX", "a.tns", "a.tns.gz", "a.npz"])
def test_round_trip(tmp_path: Path, name: str, dtype: type) -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal(200) * 10.0 ** rng.integers(-30, 30, 200)
    values[:6] = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0]
    coords = rng.permutation(50 * 40)[:200]
    entries = entries_from(((50, 40), np.divmod(coords, 40), values.astype(dtype)))
    write(tmp_path / name, entries)
    again = read(tmp_path / name, dtype=dtype)
    assert again.shape == entries.shape
    assert again.pattern_id == entries.pattern_id
    assert again.values.tobytes() == entries.values.tobytes()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    expected = entries.to_scipy().toarray()
    if name.startswith("a.mtx"):
        np.testing.assert_allclose(scipy.io.mmread(tmp_path / name).toarray(), expected, rtol=1e-6)
    if name == "a.npz":
        np.testing.assert_array_equal(sp.load_npz(tmp_path / name).toarray(), expected)


@pytest.mark.parametrize("name", ["a.tns", "a.tns.gz", "a.npz"])
def test_round_trip_of_higher_orders_and_empty_ones(tmp_path: Path, name: str) -> None:
    for entries in (
        entries_from(np.arange(24.0).reshape(2, 3, 4)),
        entries_from(np.zeros((3, 4, 5, 2))),
        entries_from(((3, 2**40, 2), ([1, 2], [2**39, 5], [0, 1]), [1.0, 2.0])),
        entries_from(((2**40, 2), ([2**39, 5], [0, 1]), [1.0, 2.0])),
        entries_from(np.zeros((0, 5))),
    ):
        write(tmp_path / name, entries)
        again = read(tmp_path / name)
        assert again.shape == entries.shape
        assert again.pattern_id == entries.pattern_id
        np.testing.assert_array_equal(again.values, entries.values)
    with pytest.raises(InputError, match="order 3"):
        write(tmp_path / "a.mtx", entries_from(np.ones((2, 2, 2))))


def test_writing_replaces_whole_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = entries_from(np.eye(3))
    for name in ("a.mtx", "a.mtx.gz", "a.tns", "a.npz"):
        path = tmp_path / name
        write(path, entries)
        before = path.read_bytes()
        write(path, entries)
        if name != "a.npz":  # (an archive holds the time)
            assert path.read_bytes() == before

        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(InputError, match="No space left"):
                write(path, entries_from(np.ones((4, 4))))
        assert read(path).nnz == 3

    def interrupted(*_: Any) -> Iterator[bytes]:
        yield b"1 1 1\n"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(matrix_market, "text_lines", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "a.mtx", entries)
    assert read(tmp_path / "a.mtx").nnz == 3
    assert len(list(tmp_path.iterdir())) == 4
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / "absent" / "a.npz", entries)
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / ("n" * 300 + ".tns"), entries)
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / "folder.npz", entries)
    assert len(list(tmp_path.iterdir())) == 5


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.mtx").symlink_to(tmp_path / "real.mtx")
    write(tmp_path / "link.mtx", entries_from(np.eye(3)))
    assert (tmp_path / "link.mtx").is_symlink()
    assert entries_from(str(tmp_path / "real.mtx"), dtype="float32").dtype == np.float32


# The two parsers, and everything


WORDS = st.one_of(
    st.integers(0, 12).map(str),
    st.floats(width=32).map(repr),
    st.integers().map(str),
    st.sampled_from(
        ["1e5", "-.5", "7.", "1d3", "x", "1-2", "1e", "nan", "%", "#", "1_1", "\x00", "\x1c", "2" * 19]
    ),
)
LINES = st.lists(WORDS, max_size=4).map(" ".join) | st.tuples(
    st.integers(1, 9).map(str), st.integers(1, 9).map(str), st.floats(allow_nan=False).map(repr)
).map(" ".join)


@settings(max_examples=500, deadline=None)
@given(
    lines=st.lists(LINES, min_size=1, max_size=6), end=st.sampled_from(["\n", "\r\n", " \n"]), data=st.data()
)
def test_the_fast_parser_agrees_with_the_slow_one(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str, data: st.DataObject
) -> None:
    block = "".join(line + end for line in lines).encode()
    valued = data.draw(st.booleans())
    layout = text.Layout(data.draw(st.integers(0 if valued else 1, 3)), valued, b"%")
    fast = text._parse_fast(block, layout, 1)
    if fast is None:
        return
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.touch()
    with text.TextFile(str(path)) as file:
        slow = text._parse_slowly(block, layout, file)
    np.testing.assert_array_equal(fast.indices, slow.indices)
    assert list(fast.lines) == list(slow.lines)
    assert (fast.values is None) == (slow.values is None)
    if fast.values is not None and slow.values is not None:
        assert fast.values.tobytes() == slow.values.tobytes()


SEEDS: dict[str, bytes] = {
    "a.mtx": (REAL + "% c\n3 4 4\n1 1 1.5\n2 3 -2\n3 4 1e-3\n3 1 7\n").encode(),
    "b.mtx": b"%%MatrixMarket matrix coordinate pattern symmetric\n4 4 3\n1 1\n3 2\n4 1\n",
    "c.mtx": b"%%MatrixMarket matrix array integer skew-symmetric\n3 3\n1\n2\n3\n",
    "d.mtx.gz": gzip.compress((REAL + "3 4 2\n1 1 1.5\n2 3 -2\n").encode(), mtime=0),
    "e.tns": b"# dims: 3 3 3\n1 2 3 1.5\n3 2 1 2\n",
    "f.tns.gz": gzip.compress(b"1 2 3 1.5\n3 2 1 2\n", mtime=0),
    "g.npz": npz_bytes(),
    "h.npz": npz_bytes(format=b"coo", row=[0, 1], col=[2, 0]),
    "i.npz": npz_bytes(format=b"dia", data=np.ones((1, 3)), offsets=[1]),
    "j.npz": npz_bytes(format=b"bsr", data=np.ones((2, 1, 3)), indices=[0, 0]),
}
PIECES = [
    b"",
    b"0",
    b"-1",
    b"999999999999",
    b"1e9",
    b"nan",
    b"\n",
    b"\r",
    b" ",
    b"%",
    b"#",
    b"\x00",
    b"\xff",
    b".",
]


def mutated(seed: bytes, rng: np.random.Generator) -> bytes:
    data = bytearray(seed)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, len(data) + 1))
        kind = rng.integers(0, 5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1 and at < len(data):
            data[at] = int(rng.integers(0, 256))
        elif kind == 2:
            data[at : at + int(rng.integers(0, 4))] = PIECES[int(rng.integers(0, len(PIECES)))]
        elif kind == 3:
            del data[at : at + int(rng.integers(1, 12))]
        else:
            data[at:at] = data[max(0, at - int(rng.integers(1, 30))) : at]
    return bytes(data)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(SEEDS))
def test_mutated_files_are_read_or_refused(tmp_path: Path, name: str) -> None:
    """TENSORWISE_FUZZ sets the number of cases a file kind."""
    rng = np.random.default_rng(sum(name.encode()))
    path = tmp_path / name
    outcomes = [0, 0]
    for _ in range(int(os.environ.get("TENSORWISE_FUZZ", "400"))):
        path.write_bytes(mutated(SEEDS[name], rng))
        try:
            entries = read(path)
        except InputError as error:
            assert name in str(error)  # noqa: PT017
            outcomes[0] += 1
            continue
        outcomes[1] += 1
        for array, size in zip(entries.coordinates, entries.shape):
            assert not entries.nnz or (array.min() >= 0 and array.max() < size)
    assert min(outcomes) > 0, outcomes


# The corpus


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not there")
@pytest.mark.parametrize("name", ["mn_celegans", "olm500", "wormnet_v3_benchmark", "kg_umls", "icews14s"])
def test_corpus(name: str) -> None:
    with open(CORPUS / "MANIFEST.csv", newline="") as table:
        row = next(row for row in csv.DictReader(table) if row["name"] == name)
    entries = read(CORPUS / row["file"])
    assert "x".join(map(str, entries.shape)) == row["dims"]
    assert entries.nnz == int(row["nnz"])
    if entries.order == 2:
        expected = sp.csr_array(scipy.io.mmread(CORPUS / row["file"])).astype(np.float64)
        assert (entries.to_scipy() != expected).nnz == 0


def test_integers_of_a_file_are_exact_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mtx"
    for field, kind in (("integer", "int64"), ("unsigned-integer", "uint64")):
        path.write_text(f"%%MatrixMarket matrix coordinate {field} general\n2 2 2\n1 1 16777217\n2 2 3\n")
        entries = read(path)
        assert (entries.given, entries.values.tolist()) == (np.dtype(kind), [16777217.0, 3.0])
        with pytest.raises(InputError, match="16777217"):
            read(path, "float32")
        path.write_text(path.read_text().replace("16777217", "9007199254740993"))
        with pytest.raises(InputError, match="not read exactly"):
            read(path)


@pytest.mark.parametrize(
    ("banner", "body", "message"),
    [
        (
            "coordinate unsigned-integer general",
            "2 2 1\n1 1 -2048\n",
            "has the value -2048; unsigned integers",
        ),
        ("array unsigned-integer general", "2 1\n3\n-1\n", "has the value -1; unsigned integers"),
        ("coordinate unsigned-integer skew-symmetric", "2 2 1\n2 1 2048\n", "unsigned and skew-symmetric"),
    ],
)
def test_unsigned_integers_do_not_wrap(put: Put, banner: str, body: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(put(f"%%MatrixMarket matrix {banner}\n{body}"))


def test_what_scipy_holds_is_written(tmp_path: Path) -> None:
    matrix = sp.random_array((5, 7), density=0.4, format="csr", rng=np.random.default_rng(0))
    for ending in (".mtx", ".tns", ".npz"):
        write(tmp_path / f"a{ending}", matrix)
        assert read(tmp_path / f"a{ending}").nnz == matrix.nnz


def test_a_kind_of_file_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row makes ``read``, ``write`` and ``entries_from`` know it, the order that it holds, and messages name it."""

    def read_lines(path: str) -> RawCoordinates:
        rows = [line.split() for line in Path(path).read_text().splitlines()]
        coordinates = [[int(row[mode]) for row in rows] for mode in (0, 1)]
        return RawCoordinates((3, 4), coordinates, [float(row[2]) for row in rows], path)

    def write_lines(stream: IO[bytes], entries: Entries) -> None:
        for row, column, value in zip(*entries.coordinates, entries.values):
            stream.write(f"{row} {column} {value}\n".encode())

    monkeypatch.setattr(FILE_FORMATS, "_rows", dict(FILE_FORMATS._rows))
    FILE_FORMATS.register("lines")(FileFormat("Lines", read_lines, write_lines, max_order=2, is_text=False))
    path = tmp_path / "a.lines"
    write(path, sp.coo_array(([2.5, 1.5], ([2, 0], [3, 1])), shape=(3, 4)))
    assert path.read_text() == "0 1 1.5\n2 3 2.5\n"
    assert entries_from(path, dtype="float32").values.tolist() == read(path).values.tolist() == [1.5, 2.5]
    path.write_text("0 1 1.5\n2 4 2.5\n")
    with pytest.raises(
        InputError, match=r"a\.lines: entry 1 \(row 2, column 4, value 2.5\) is outside shape 3x4"
    ):
        read(path)  # a reader that checks nothing is checked
    with pytest.raises(InputError, match="Lines holds matrices; this tensor has order 3"):
        write(path, np.ones((2, 2, 2)))
    with pytest.raises(InputError, match=r"a \.lines file has no imaginary part"):
        read(path, part="imaginary")
    with pytest.raises(InputError, match=r"expected .mtx, .mtx.gz, .tns, .tns.gz, .npz, .h5 or .lines"):
        read(tmp_path / "a.lines.gz")


@pytest.mark.parametrize("error", [MemoryError("no room"), OverflowError("too large")])
def test_a_file_whose_entries_do_not_fit_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Arrays of the user's own raise MemoryError; a file may claim any size."""

    def fail(*_: object) -> None:
        raise error

    write(tmp_path / "a.npz", entries_from(np.eye(3)))
    monkeypatch.setattr("tensorwise.tensor.convert.canonical_entries", fail)
    with pytest.raises(InputError, match=r"a\.npz: what it claims to hold does not fit into memory"):
        entries_from(tmp_path / "a.npz")
    with pytest.raises(type(error)):
        entries_from(np.eye(3))
