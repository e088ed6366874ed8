"""Files made to exhaust memory or time end as InputError, early; relatives of FROSTT are read."""

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.tensor import npz, text
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import read

BANNER = b"%%MatrixMarket matrix coordinate real general\n"


def _gz(path: Path, head: bytes, line: bytes, total: int) -> Path:
    """Write ``head`` and copies of ``line``, ``total`` bytes of them, compressed."""
    with gzip.open(path, "wb", 1) as file:
        file.write(head)
        piece = line * max(1, 2**20 // len(line))
        for _ in range(total // len(piece)):
            file.write(piece)
    return path


@pytest.mark.parametrize(
    ("name", "head", "line"),
    [
        ("newlines.mtx.gz", BANNER + b"1 1 1\n", b"\n"),
        ("comments.mtx.gz", BANNER, b"%" + b"x" * 100 + b"\n"),
        ("blanks.mtx.gz", BANNER + b"1 1 1\n", b" " * 1000 + b"\n"),
        ("repeated.tns.gz", b"", b"1 1 1 1\n"),
        ("long lines.tns.gz", b"", b"1 " * 32 + b"1\n"),
    ],
)
def test_a_file_that_expands_too_far_is_read_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, head: bytes, line: bytes
) -> None:
    monkeypatch.setattr(text, "FREE_BYTES", 2**20)
    monkeypatch.setattr(text, "MOST_EXPANSION", 10)
    monkeypatch.setattr(text, "BLOCK_BYTES", 2**18)
    path = _gz(tmp_path / name, head, line, 2**24)
    taken = 0
    fill = text.TextFile._fill

    def counted(self: text.TextFile) -> None:
        nonlocal taken
        try:
            fill(self)
        finally:
            taken = self._taken

    monkeypatch.setattr(text.TextFile, "_fill", counted)
    with pytest.raises(InputError, match=r"expands to more than .* decompress it first"):
        read(path)
    assert taken <= max(2**20, 10 * path.stat().st_size) + 2**18


@pytest.mark.parametrize(
    "head",
    [BANNER + b"1 1 20000000\n", b"%%MatrixMarket matrix array real general\n1000000 40\n"],
)
def test_a_header_that_promises_more_than_may_be_expanded_is_refused_at_once(
    tmp_path: Path, head: bytes
) -> None:
    path = _gz(tmp_path / "a.mtx.gz", head, b"1 1 1\n", 2**20)
    with pytest.raises(InputError, match=r"declares .* but its size allows at most .* decompress it first"):
        read(path)


def test_the_advice_to_decompress_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "FREE_BYTES", 1000)
    monkeypatch.setattr(text, "MOST_EXPANSION", 2)
    path = _gz(tmp_path / "a.tns.gz", b"", b"1 1 1 1\n", 2**20)
    with pytest.raises(InputError, match="decompress it first"):
        read(path)
    plain = tmp_path / "a.tns"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    assert read(plain).values.tolist() == [2**17]


def test_an_npz_that_expands_too_far_is_refused_and_the_advice_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import scipy.sparse as sp

    monkeypatch.setattr(npz, "FREE_BYTES", 1000)
    matrix = sp.csr_array(np.ones((400, 400)))
    path = tmp_path / "a.npz"
    sp.save_npz(path, matrix)
    assert npz.MOST_EXPANSION * path.stat().st_size < 400 * 400 * 8, "it must be one that expands far"
    with pytest.raises(InputError, match=r"scipy\.sparse\.load_npz and give the matrix"):
        read(path)
    assert entries_from(sp.load_npz(path)).nnz == 160_000


def test_a_header_inside_an_npz_is_not_allocated(tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "format.npy", b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little") + b" " * 2**20
        )
    path = tmp_path / "a.npz"
    path.write_bytes(data.getvalue())
    with pytest.raises(InputError):
        read(path)


@pytest.mark.parametrize(
    "digits", [b"1" * 2**19, b"1." + b"1" * 2**19, b"." + b"1" * 2**19, b"1" * 2**19 + b"."]
)
@pytest.mark.parametrize("end", [b"x", b"dx", b"d", b"d+"])
def test_long_numbers_are_matched_in_linear_time(digits: bytes, end: bytes) -> None:
    assert text._FORTRAN.fullmatch(digits + end) is None  # quadratic: hours
    assert text._FORTRAN.fullmatch(digits + b"D-7")


def test_blank_lines_and_comments_go_to_the_fast_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: list[int] = []
    parse = text._parse_slowly
    monkeypatch.setattr(text, "_parse_slowly", lambda *args: slow.append(1) or parse(*args))  # type: ignore[func-returns-value]
    path = tmp_path / "a.mtx"
    path.write_bytes(BANNER + b"%\n\n3 4 3\n\n  \n1 1 5 % one\n%%\n2 2 6\n\n3 4 7.5\n\n%")
    entries = read(path)
    assert (entries.values.tolist(), entries.coordinates[1].tolist(), slow) == (
        [5.0, 6.0, 7.5],
        [0, 1, 3],
        [],
    )
    path.write_bytes(BANNER + b"3 4 3\n\n1 1 5\n% x\n2 2 6\n\n3 9 7.5\n")
    with pytest.raises(InputError, match="line 8: column index 9"):
        read(path)


@pytest.mark.parametrize(
    "content",
    [
        "# extended FROSTT format\n3 2\n2 3 2\n1 1 1 1.0\n2 3 2 2.0\n",
        "3 2\n# sizes\n2 3 2\n\n1 1 1 1.0\n2 3 2 2.0\n",
        "sptensor\n3\n2 3 2\n2\n1 1 1 1.0\n2 3 2 2.0\n",
        "1,1,1,1.0\n2,3,2,2.0\n",
        "# dims: 2 3 2\n1, 1, 1, 1.0\n2, 3, 2, 2.0\n",
    ],
)
def test_relatives_of_frostt_are_read(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.tns"
    path.write_text(content)
    entries = read(path)
    assert entries.shape == (2, 3, 2)
    assert entries.values.tolist() == [1.0, 2.0]
    assert [c.tolist() for c in entries.coordinates] == [[0, 1], [0, 2], [0, 1]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("3 2\n2 3 2\n1 1 1 1.0\n", "ends after 1 of the 2 entries"),
        ("3 1\n2 3 2\n1 1 1 1.0\n2 3 2 2.0\n", "more entries than the 1 declared"),
        ("3 2\n2 3\n1 1 1 1.0\n", "line 2: '2 3' in the header; expected 3 whole numbers.*extended FROSTT"),
        ("3 1\n2 3 2\n3 1 1 1.0\n", "mode 0 index 3 is larger than the declared size 2"),
        ("sptensor\n3\n2 3 2\n", "expected 1 whole numbers, the number of entries"),
        ("tensor\n3\n2 3 2\n1\n2\n", "a tensor of the Tensor Toolbox"),
        ("1 1 1 1,5\n", "decimal point"),
        ("1,1 1,1 5\n", "commas and blanks"),
        ("1 1 1 1.5\n2 2 2 2,5\n", "decimal point"),
        ("99 2\n1 1\n", "order 99"),
    ],
)
def test_what_is_wrong_with_a_relative_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.tns"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read(path)


def test_an_extended_file_without_entries_has_its_sizes(tmp_path: Path) -> None:
    path = tmp_path / "a.tns"
    path.write_text("3 0\n2 3 4\n")
    assert (read(path).shape, read(path).nnz) == ((2, 3, 4), 0)
