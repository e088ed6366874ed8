"""Binsparse files: what is well formed reads as its arrays say; the rest is an InputError that names the file."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.sparse.files import read_binsparse
from tensorwise.tensor import hdf5, hdf5_map
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import read, write

h5py = pytest.importorskip("h5py")
DTYPES = ["bool", "float32", "float64", "complex64", "complex128"]
DTYPES += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
SMALL = {
    "pointers_to_1": np.array([0, 2, 2, 3]),
    "indices_1": np.array([0, 3, 1]),
    "values": np.array([1.0, -2, 3]),
}
DENSE = np.array([[1.0, 0, 0, -2], [0, 0, 0, 0], [0, 3, 0, 0]])
Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def _put(arrays: dict[str, Any] = SMALL, types: Any = (), about: Any = None, **members: Any) -> Path:
        """Write a file by hand; ``members`` change the descriptor, and None leaves one out."""
        path = tmp_path / "a.bsp.h5"
        found = {name: np.asarray(array) for name, array in arrays.items()}
        descriptor = {
            "version": "0.1",
            "format": "CSR",
            "shape": [3, 4],
            "number_of_stored_values": len(found["values"]) if "values" in found else 3,
            "data_types": {name: array.dtype.name for name, array in found.items()} | dict(types),
        } | members
        descriptor = {name: value for name, value in descriptor.items() if value is not None}
        with h5py.File(path, "w") as file:
            file.attrs["binsparse"] = json.dumps({"binsparse": descriptor} if about is None else about)
            for name, array in found.items():
                file[name] = array
        return path

    return _put


def dense_of(path: Path, part: Any = None) -> np.ndarray:
    return read(path, part=part).to_scipy().toarray()


def refused(path: Path, pattern: str) -> None:
    for door in (read, read_binsparse):
        with pytest.raises(InputError) as error:
            door(path)
        assert str(path) in str(error.value)
        assert re.search(pattern, str(error.value)), error.value


@settings(max_examples=15, deadline=None)
@given(
    kind=st.sampled_from(["csr", "csc", "coo"]),
    dtype=st.sampled_from(DTYPES),
    shape=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    seed=st.integers(0, 99),
)
def test_scipy_arrays_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, kind: str, dtype: str, shape: tuple[int, int], seed: int
) -> None:
    path = tmp_path_factory.mktemp("round") / "a.bsp.h5"
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 3, shape) * (1 + 1j if dtype.startswith("c") else 1)
    matrix = sp.coo_array(values.astype(dtype)).asformat(kind)
    write(path, matrix)
    found = read_binsparse(path)
    assert (found.dtype, found.format, found.shape) == (matrix.dtype, kind, shape)
    np.testing.assert_array_equal(found.toarray(), matrix.toarray())
    if not dtype.startswith("c"):
        entries = read(path)
        np.testing.assert_array_equal(entries.to_scipy().toarray(), matrix.toarray())
        write(path, entries)
        assert read_binsparse(path).dtype == matrix.dtype


def test_special_values_and_extremes_are_kept(tmp_path: Path) -> None:
    for values in (
        np.array([np.nan, np.inf, -0.0]),
        np.array([2**63 - 1, -(2**63), 2**53 + 1]),
        np.array([2**64 - 1, 0, 1], np.uint64),
    ):
        matrix = sp.coo_array((values, ([0, 1, 2], [2, 1, 0])), shape=(3, 2**31 + 5))
        write(tmp_path / "a.h5", matrix)
        found = read_binsparse(tmp_path / "a.h5")
        assert found.data.tobytes() == values.tobytes()
        assert found.shape == matrix.shape


def test_what_is_written_is_sorted_and_what_was_given_is_unchanged(tmp_path: Path) -> None:
    """The format asks for sorted indices without duplicates."""
    path = tmp_path / "a.h5"
    unsorted = sp.csr_array((np.array([1.0, 2, 4]), np.array([3, 0, 3]), np.array([0, 3])), shape=(1, 4))
    for matrix in (
        unsorted,
        sp.csc_array(unsorted.T),
        sp.coo_array(([1.0, 2, 4], ([0, 0, 0], [3, 0, 3])), shape=(1, 4)),
    ):
        before = matrix.data.copy()
        write(path, matrix)
        np.testing.assert_array_equal(matrix.data, before)
        with h5py.File(path) as file:
            assert file["indices_1"][:].tolist() == [0, 3]
            assert file["values"][:].tolist() == [2, 5]
    matrix = sp.coo_array(([1.0, 2, 3], ([1, 0, 0], [0, 2, 1])), shape=(2, 3))
    write(path, matrix)
    with h5py.File(path) as file:
        assert file["indices_0"][:].tolist() == [0, 0, 1]
        assert file["indices_1"][:].tolist() == [1, 2, 0]


def test_entries_and_other_formats_are_written(tmp_path: Path) -> None:
    for given_ in (
        entries_from(DENSE),
        sp.dia_array(np.eye(3)),
        sp.bsr_array(np.eye(4)),
        DENSE,
        sp.eye_array(2, 2**40),
    ):
        write(tmp_path / "a.h5", given_)
        again = entries_from(given_)
        assert read(tmp_path / "a.h5").pattern_id == again.pattern_id
        np.testing.assert_array_equal(read(tmp_path / "a.h5").values, again.values)


def test_what_has_no_type_or_is_malformed_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with pytest.raises(InputError, match="no type for"):
        write(path, sp.csr_array(np.ones((2, 2), np.longdouble)))
    broken = sp.csr_array(np.eye(3))
    broken.indices[1] = 7
    with pytest.raises(InputError, match="outside shape"):
        write(path, broken)
    with pytest.raises(InputError, match="order 3"):
        write(path, np.ones((2, 2, 2)))
    assert not path.exists()


@pytest.mark.parametrize(
    ("kind", "arrays"),
    [
        ("CSR", SMALL),
        ("CSC", {"pointers_to_1": [0, 1, 2, 2, 3], "indices_1": [0, 2, 0], "values": [1.0, 3, -2]}),
        ("COO", {"indices_0": [0, 0, 2], "indices_1": [0, 3, 1], "values": [1.0, -2, 3]}),
        ("COOR", {"indices_0": [0, 0, 2], "indices_1": [0, 3, 1], "values": [1.0, -2, 3]}),
        ("COOC", {"indices_0": [0, 1, 3], "indices_1": [0, 2, 0], "values": [1.0, 3, -2]}),
        (
            "DCSR",
            {"indices_0": [0, 2], "pointers_to_1": [0, 2, 3], "indices_1": [0, 3, 1], "values": [1.0, -2, 3]},
        ),
        (
            "DCSC",
            {
                "indices_0": [0, 1, 3],
                "pointers_to_1": [0, 1, 2, 3],
                "indices_1": [0, 2, 0],
                "values": [1.0, 3, -2],
            },
        ),
        ("DMAT", {"values": DENSE.ravel()}),
        ("DMATR", {"values": DENSE.ravel()}),
        ("DMATC", {"values": DENSE.T.ravel()}),
    ],
)
def test_formats(put: Put, kind: str, arrays: dict[str, Any]) -> None:
    path = put(arrays, format=kind)
    np.testing.assert_array_equal(dense_of(path), DENSE)
    np.testing.assert_array_equal(read_binsparse(path).toarray(), DENSE)


def test_vectors_are_rows(put: Put) -> None:
    path = put({"indices_0": [1, 3], "values": [5.0, 6]}, format="CVEC", shape=[4])
    np.testing.assert_array_equal(dense_of(path), [[0, 5, 0, 6]])
    np.testing.assert_array_equal(dense_of(put({"values": [0.0, 7]}, format="DVEC", shape=[2])), [[0, 7]])


@pytest.mark.parametrize("version", ["0.1", 0.1, "1.0", 1, "1.7"])
def test_versions_and_where_the_descriptor_is(put: Put, version: Any) -> None:
    path = put(version=version)
    np.testing.assert_array_equal(dense_of(path), DENSE)
    with h5py.File(path, "r+") as file:  # as other writers do: without the name, and as text of fixed length
        inner = json.loads(file.attrs["binsparse"])["binsparse"]
        file.attrs["binsparse"] = np.bytes_(json.dumps({**inner, "author": "é"}))
    np.testing.assert_array_equal(dense_of(path), DENSE)


def test_types_of_values(put: Put) -> None:
    iso = read_binsparse(
        put({**SMALL, "values": np.array([7], np.int8)}, {"values": "iso[int8]"}, number_of_stored_values=3)
    )
    assert (iso.dtype, iso.data.tolist()) == (np.int8, [7, 7, 7])
    flags = {**SMALL, "values": np.array([1, 0, 2], np.uint8)}
    assert read_binsparse(put(flags, {"values": "bint8"})).data.tolist() == [True, False, True]
    numpy_bools = {**SMALL, "values": np.array([True, False, True])}
    assert read_binsparse(put(numpy_bools, {"values": "bint8"})).data.tolist() == [True, False, True]
    pairs = {**SMALL, "values": np.arange(6, dtype=np.float32)}
    path = put(pairs, {"values": "complex[float32]"}, number_of_stored_values=3)
    found = read_binsparse(path)
    assert (found.dtype, found.data.tolist()) == (np.complex64, [1j, 2 + 3j, 4 + 5j])
    assert read(path, part="real").values.tolist() == [0, 2, 4]
    assert read(path, part="imaginary").values.tolist() == [1, 3, 5]
    with pytest.raises(InputError, match="part='real'"):
        read(path)
    with pytest.raises(InputError, match="no imaginary part"):
        read(put(), part="imaginary")
    pair = {**SMALL, "values": np.array([1.0, 2.0])}
    path = put(pair, {"values": "iso[complex[float64]]"}, number_of_stored_values=3)
    assert read_binsparse(path).data.tolist() == [1 + 2j] * 3
    swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in SMALL.items()}
    np.testing.assert_array_equal(dense_of(put(swapped)), DENSE)


@pytest.mark.parametrize("half", ["lower", "upper"])
@pytest.mark.parametrize("kind", ["symmetric", "hermitian", "skew_symmetric"])
@pytest.mark.parametrize("layout", ["CSR", "CSC", "COO", "DCSR"])
def test_structures(put: Put, kind: str, half: str, layout: str) -> None:
    lower = np.array([[1, 0, 0], [2 + 3j, 0, 0], [-4j, 5, 6]])
    if kind == "skew_symmetric":
        lower[np.diag_indices(3)] = 0
    image = lower.conj() if kind == "hermitian" else -lower if kind.startswith("skew") else lower
    whole = lower + np.tril(image, -1).T
    stored = sp.coo_array(lower if half == "lower" else np.triu(whole))
    compressed = stored.tocsc() if layout == "CSC" else stored.tocsr()
    arrays: dict[str, Any] = {"values": compressed.data.view(np.float64), "indices_1": compressed.indices}
    if layout == "COO":
        arrays["indices_0"] = compressed.tocoo().coords[0]
    elif layout == "DCSR":
        rows = np.flatnonzero(np.diff(compressed.indptr))
        arrays |= {"indices_0": rows, "pointers_to_1": compressed.indptr[[*rows, 3]]}
    else:
        arrays["pointers_to_1"] = compressed.indptr
    about = {
        "format": layout,
        "shape": [3, 3],
        "structure": f"{kind}_{half}",
        "number_of_stored_values": stored.nnz,
    }
    path = put(arrays, {"values": "complex[float64]"}, **about)
    np.testing.assert_array_equal(read_binsparse(path).toarray(), whole)
    np.testing.assert_array_equal(dense_of(path, "imaginary"), whole.imag)


def test_compressed_chunks_and_missing_ones(put: Put) -> None:
    """What other writers store: deflate, shuffle, checksums, chunks that were never written, compact arrays."""
    values = np.arange(1.0, 101)
    path = put(
        {"indices_0": np.arange(100), "indices_1": np.arange(100), "values": values},
        format="COO",
        shape=[100, 100],
    )
    expected = dense_of(path)
    for options in (
        {"compression": "gzip"},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"shuffle": True},
        {"fletcher32": True},
        {},
    ):
        with h5py.File(path, "r+") as file:
            del file["values"], file["indices_1"]
            file.create_dataset("values", data=values, chunks=(7,), **options)
            file.create_dataset("indices_1", data=np.arange(100), chunks=(1000,), maxshape=(None,), **options)
        np.testing.assert_array_equal(dense_of(path), expected)
    with h5py.File(path, "r+") as file:
        del file["values"]
        file.create_dataset("values", (100,), np.float64, chunks=(7,), fillvalue=3.5)[:7] = values[:7]
    np.testing.assert_array_equal(np.diag(dense_of(path)), [*values[:7], *[3.5] * 93])
    with h5py.File(path, "r+") as file:
        del file["values"]
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((100,))
        h5py.h5d.create(file.id, b"values", h5py.h5t.NATIVE_DOUBLE, space, made).write(space, space, values)
    np.testing.assert_array_equal(dense_of(path), expected)


def test_a_fill_value_is_zero_or_refused(put: Put) -> None:
    np.testing.assert_array_equal(dense_of(put({**SMALL, "fill_value": np.zeros(1)}, fill=True)), DENSE)
    refused(put({**SMALL, "fill_value": np.ones(1)}, fill=True), "fill value is not 0")
    refused(put(fill=True), "fill_value.*missing")


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"about": [1]}, "descriptor: expected an object"),
        ({"about": "x"}, "descriptor"),
        ({"about": {"binsparse": 3}}, "expected an object"),
        ({"version": "2.0"}, "version '2.0'"),
        ({"version": None}, "'version' is missing"),
        ({"format": "ELL"}, "format 'ELL' is unknown"),
        ({"format": None}, "'format' is missing"),
        ({"custom": {"level": {}}}, "custom formats are not supported"),
        ({"shape": [3, 4, 5]}, "3 dimensions"),
        ({"shape": [3, -4]}, "dimension 1"),
        ({"shape": [3, 2**63]}, "dimension 1"),
        ({"shape": [3, 4.5]}, "shape"),
        ({"shape": [5, 4]}, "pointers_to_1.*has 4 elements; expected 6"),
        ({"shape": [3, 3]}, "outside shape 3x3"),
        ({"number_of_stored_values": 4}, "has 3 elements; expected 4"),
        ({"number_of_stored_values": -1}, "stored values"),
        ({"number_of_stored_values": 10**30}, "stored values"),
        ({"data_types": None}, "data_types"),
        ({"data_types": {}}, "'pointers_to_1' is missing"),
        ({"types": {"values": "float16"}}, "type 'float16'"),
        ({"types": {"values": "float32"}}, "stored as float64; the descriptor says float32"),
        ({"types": {"values": "iso[float64"}}, "type 'iso"),
        ({"types": {"values": "complex[int8]"}}, "type 'complex"),
        ({"types": {"indices_1": "float64"}}, "expected integers"),
        ({"structure": "symmetric_lower"}, "square"),
        ({"structure": "symmetric", "shape": [4, 4]}, "structure 'symmetric' is unknown"),
        ({"structure": 7}, "structure"),
        ({"arrays": {**SMALL, "indices_1": [0, -3, 1]}}, "outside shape"),
        ({"arrays": {**SMALL, "pointers_to_1": [0, 3, 2, 3]}}, "fall"),
        ({"arrays": {**SMALL, "pointers_to_1": [1, 2, 2, 3]}}, "the first is 1"),
        ({"arrays": {**SMALL, "pointers_to_1": [0, 2, 2, 2]}}, "the last is 2"),
        (
            {"arrays": {**SMALL, "values": [[1.0, 2, 3]]}, "number_of_stored_values": 3},
            "no array of one dimension",
        ),
        ({"arrays": {"values": [1.0] * 3}}, "'pointers_to_1' is missing"),
        ({"arrays": {"values": [1.0] * 3}, "format": "DMAT"}, "expected 12"),
        (
            {"arrays": {**SMALL, "indices_0": [0, 9], "pointers_to_1": [0, 2, 3]}, "format": "DCSR"},
            "names row 9",
        ),
    ],
)
def test_what_is_malformed_is_named(put: Put, changes: dict[str, Any], pattern: str) -> None:
    refused(put(**changes), pattern)


@pytest.mark.parametrize(
    ("kind", "values", "pattern"),
    [
        ("symmetric_upper", np.array([1.0, 2, 3]), "outside the half"),
        ("hermitian_lower", np.array([1.0, 2, 3]), "expected complex"),
        ("skew_symmetric_lower", np.array([1.0, 2, 3]), "on the diagonal"),
        ("skew_symmetric_lower", np.array([0, 2, -128], np.int8), "negatives"),
        ("skew_symmetric_lower", np.array([0, 2, 3], np.uint8), "negatives"),
    ],
)
def test_structures_that_the_entries_do_not_have(
    put: Put, kind: str, values: np.ndarray, pattern: str
) -> None:
    arrays = {"indices_0": [0, 1, 2], "indices_1": [0, 0, 1], "values": values}
    refused(put(arrays, format="COO", shape=[3, 3], structure=kind), pattern)


def test_links_and_foreign_data_are_not_followed(put: Put, tmp_path: Path) -> None:
    path = put()
    elsewhere = tmp_path / "other.h5"
    with h5py.File(elsewhere, "w") as file:
        file["values"] = SMALL["values"]
    layout = h5py.VirtualLayout((3,), np.float64)
    layout[:] = h5py.VirtualSource(elsewhere, "values", (3,))
    (tmp_path / "raw").write_bytes(SMALL["values"].tobytes())
    makers: list[tuple[str, Callable[[Any], object]]] = [
        ("SoftLink", lambda file: file.__setitem__("values", h5py.SoftLink("/kept"))),
        (
            "ExternalLink",
            lambda file: file.__setitem__("values", h5py.ExternalLink(str(elsewhere), "values")),
        ),
        ("other files", lambda file: file.create_virtual_dataset("values", layout)),
        (
            "other files",
            lambda file: file.create_dataset(
                "values", (3,), float, external=[(str(tmp_path / "raw"), 0, 24)]
            ),
        ),
        (
            "HDF5 filter 32000",
            lambda file: file.create_dataset("values", data=SMALL["values"], compression="lzf"),
        ),
        ("no array", lambda file: file.create_group("values")),
        ("plain numbers", lambda file: file.create_dataset("values", data=["a", "b", "c"])),
        ("plain numbers", lambda file: file.create_dataset("values", data=np.zeros(3, "f4,f4"))),
    ]
    for pattern, make in makers:
        with h5py.File(path, "r+") as file:
            if "kept" not in file:
                file["kept"] = SMALL["values"]
            del file["values"]
            make(file)
        refused(path, pattern)


def test_sizes_are_checked_before_memory_is_taken(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(number_of_stored_values=2**40)
    with h5py.File(path, "r+") as file:
        for name in ("indices_1", "values"):  # 8 TiB that were never written
            del file[name]
            file.create_dataset(name, (2**40,), SMALL[name].dtype, chunks=(2**20,), compression="gzip")
    refused(path, "too large for the memory left|more than a file of this size may")
    path = put()
    with h5py.File(path, "r+") as file:
        del file["values"]
        file.create_dataset(
            "values", data=SMALL["values"], chunks=(2**24,), maxshape=(None,), compression="gzip"
        )
    refused(path, "in chunks of 134217728")
    data = put().read_bytes()
    path.write_bytes(data[:-8])
    refused(path, "cut off|truncated|damaged|no readable")
    monkeypatch.setattr(hdf5, "available_bytes", lambda: 40)
    refused(put(), "too large for the memory left")


def test_a_forged_length_of_the_descriptor_ends_soon_and_outside(
    put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libhdf5 believes lengths of texts: it takes gigabytes for one that lies, in a process of its own."""
    data = bytearray(put().read_bytes())
    at = data.index(b"GCOL")
    for size in (2**31, 2**32 - 1, 2**62):
        changed = bytearray(data)
        changed[at + 8 : at + 16] = size.to_bytes(8, "little")
        path = put()
        path.write_bytes(changed)
        refused(path, "no readable|takes more memory|cannot read it")
    monkeypatch.setattr(hdf5_map, "__file__", str(put().parent / "crash.py"))
    (put().parent / "crash.py").write_text("import os; os.abort()")
    refused(put(), "libhdf5 cannot read it .*it crashed")


def test_files_that_are_none(put: Put, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    path.write_bytes(b"no file of this kind" * 100)
    refused(path, "no readable HDF5 file")
    with h5py.File(path, "w"):
        pass
    refused(path, "without the attribute 'binsparse'")
    with h5py.File(path, "w") as file:
        file.attrs["binsparse"] = [1, 2]
    refused(path, "no single text")
    with h5py.File(path, "w") as file:
        file.attrs["binsparse"] = "{"
    refused(path, "holds no descriptor")
    with h5py.File(path, "w", userblock_size=512) as file:
        file.attrs["binsparse"] = "{}"
    refused(path, "user block")
    refused(tmp_path / "none.h5", "does not exist")
    refused(tmp_path, "no regular file|unknown kind")


def test_without_h5py_the_extra_is_named(put: Put, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = put()
    monkeypatch.setattr(hdf5, "_map_of", lambda *_: (_ for _ in ()).throw(hdf5._missing()))
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"tensorwise\[binsparse\]"):
        read(path)
    with pytest.raises(MissingExtraError, match=r"tensorwise\[binsparse\]"):
        write(tmp_path / "b.h5", DENSE)
