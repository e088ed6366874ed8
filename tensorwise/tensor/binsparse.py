"""Binsparse files: sparse and dense matrices and vectors in HDF5, described by JSON.

The format: https://graphblas.org/binsparse-specification/. The attribute ``binsparse`` of the root group holds the
descriptor; arrays such as ``pointers_to_1``, ``indices_1`` and ``values`` lie beside it. Files in a user-defined format
(``custom``) are refused.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import IO, Any, Final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.reading import conform, parse_json, shown
from tensorwise.tensor.adapters import from_scipy
from tensorwise.tensor.checks import (
    checked_indices,
    checked_pointers,
    checked_shape,
    coordinate_dtype,
    refuse_entry,
)
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.file_formats import FileFormat
from tensorwise.tensor.hdf5 import Hdf5Arrays, open_hdf5, write_hdf5
from tensorwise.tensor.pointers import rows_of
from tensorwise.tensor.raw import Part, RawCompressed, RawCoordinates, RawEntries

_VERSION: Final = "0.1"
"""Version of the specification that written files name: its latest text."""
_ARRAYS: Final = ("indices_0", "pointers_to_1", "indices_1", "values", "fill_value")
_ALIASES: Final = {"COO": "COOR", "DMAT": "DMATR"}
_FORMATS: Final = ("CSR", "CSC", "COOR", "COOC", "DCSR", "DCSC", "CVEC", "DVEC", "DMATR", "DMATC")
_STRUCTURES: Final = tuple(
    f"{kind}_{half}" for kind in ("symmetric", "hermitian", "skew_symmetric") for half in ("lower", "upper")
)
_SCALARS: Final = {
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "bint8": np.dtype(np.uint8),
}
_VALUE_TYPE: Final = re.compile(r"(iso\[)?(complex\[)?(\w+?)(\]{0,2})", re.ASCII)


@dataclass(frozen=True)
class _Descriptor:
    """What a descriptor says, checked.

    Attributes:
        path: of the file.
        format: one of ``_FORMATS``.
        shape: rows and columns; a vector of n elements is a matrix of one row.
        count: number of stored values.
        types: array -> type.
        fill: the file has a fill value.
        structure: one of ``_STRUCTURES``, or empty.
    """

    path: str
    format: str
    shape: tuple[int, ...]
    count: int
    types: Mapping[str, str]
    fill: bool
    structure: str

    @property
    def by_column(self) -> bool:
        return self.format in ("CSC", "DCSC", "COOC", "DMATC")


def read_binsparse(path: str, part: Part | None = None) -> RawEntries:
    """Read the entries of a binsparse file; one triangle of a matrix with a structure is expanded to the whole.

    Args:
        part: of complex values, which are refused without it.

    Raises:
        InputError: anything wrong with the file.
        MissingExtraError: h5py is not installed.
    """
    raw = read_stored(path)
    is_complex = raw.values.dtype.kind == "c"
    if is_complex and part is None:
        raise InputError(
            f"{path}: complex values are not supported; read one part with part='real' or part='imaginary', "
            "or all of it with tensorwise.sparse.read_binsparse"
        )
    if not is_complex and part == "imaginary":
        raise InputError(f"{path}: has {raw.values.dtype} values, so it has no imaginary part")
    if not is_complex:
        return raw
    return replace(raw, values=raw.values.imag if part == "imaginary" else raw.values.real)


def read_stored(path: str) -> RawEntries:
    """Return the arrays of a binsparse file with values of the type that it names, bool for ``bint8``; complex too.

    The indices of a `RawCompressed` are not checked yet. Of a dense matrix the nonzeros and NaN are entries.

    Raises:
        InputError: anything else wrong with the file.
        MissingExtraError: h5py is not installed.
    """
    with open_hdf5(path, "binsparse", _ARRAYS) as arrays:
        about = _read_descriptor(path, arrays.text)
        if about.fill:
            _check_fill(about, arrays)
        if about.format.startswith("D") and not about.format.startswith("DCS"):
            return _read_dense(about, arrays)
        if about.format in ("CSR", "CSC") and not about.structure:
            lines = about.shape[about.by_column]
            pointers = _indices(about, arrays, "pointers_to_1", lines + 1)
            inner = _indices(about, arrays, "indices_1", about.count)
            return RawCompressed(about.shape, pointers, inner, _values(about, arrays), path, about.by_column)
        coordinates = _read_coordinates(about, arrays)
        values = _values(about, arrays)
    if about.structure:
        coordinates, values = _expand_structure(about, coordinates, values)
    return RawCoordinates(about.shape, coordinates, values, path)


def write_binsparse(stream: IO[bytes], entries: Entries) -> None:
    """Write entries as CSR where there are row pointers, else COO; integers and booleans as they were given."""
    values = entries.as_given()
    if _type_of(values.dtype) is None:  # longdouble
        values = entries.values
    rows, columns = entries.coordinates
    if entries.pointers is None:
        _write(stream, "COOR", entries.shape, {"indices_0": rows, "indices_1": columns}, values)
    else:
        _write(
            stream, "CSR", entries.shape, {"pointers_to_1": entries.pointers, "indices_1": columns}, values
        )


def array_writer(array: Any) -> Callable[[IO[bytes]], None] | None:
    """Return what writes a SciPy array of the format csr, csc or coo in its format and dtype; None for anything else.

    The file's entries are sorted, and duplicates are summed as SciPy sums them; ``array`` is unchanged.

    Raises:
        InputError: the arrays do not fit each other, or binsparse has no such type of values.
    """
    from scipy.sparse import issparse

    found: Any = array
    if not issparse(array) or found.format not in ("csr", "csc", "coo") or len(found.shape) != 2:
        return None
    sound = scipy_array(from_scipy(found))
    if _type_of(sound.dtype) is None:
        raise InputError(
            f"{type(array).__name__}: binsparse has no type for {sound.dtype}; convert it with .astype"
        )
    if sound.format != "coo":
        if not sound.has_canonical_format:
            sound = sound.copy()  # what is given stays as it is
            sound.sum_duplicates()
        compressed = {"pointers_to_1": sound.indptr, "indices_1": sound.indices}
        kind, shape, data = sound.format.upper(), sound.shape, sound.data
        return lambda stream: _write(stream, kind, shape, compressed, data)
    rows, columns, data = _sorted(sound)
    if bool(((rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1])).any()):
        sound.sum_duplicates()
        rows, columns, data = _sorted(sound)
    pairs = {"indices_0": rows, "indices_1": columns}
    return lambda stream: _write(stream, "COOR", sound.shape, pairs, data)


def _sorted(array: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, columns and values of a ``coo_array`` in row-major order."""
    rows, columns = array.coords
    order = np.lexsort((columns, rows))
    return rows[order], columns[order], array.data[order]


def scipy_array(raw: RawEntries) -> Any:
    """Return a SciPy ``csr_array``, ``csc_array`` or ``coo_array`` of raw entries, whose indices are checked here.

    Raises:
        InputError: arrays that do not fit each other or the shape.
    """
    import scipy.sparse as sp

    shape, source, values = raw.shape, raw.source, np.ascontiguousarray(raw.values)
    index = coordinate_dtype((*shape, values.size))
    if isinstance(raw, RawCoordinates):
        parts = _checked_coordinates(source, shape, raw.coordinates, values)
        coordinates: Any = tuple(part.astype(index, copy=False) for part in parts)
        return sp.coo_array((values, coordinates), shape=shape)
    line, other = ("column", "row") if raw.by_column else ("row", "column")
    starts = checked_pointers(raw.pointers, shape[raw.by_column], values.size, source, line)
    inner, outside = checked_indices(raw.indices, shape[1 - raw.by_column], index, source, other)
    if values.ndim != 1 or inner.shape != values.shape:
        raise InputError(f"{source}: {len(inner)} {other} indices for values of shape {values.shape}")
    if outside is not None:
        at = int(np.searchsorted(starts, outside, side="right")) - 1
        place = (inner[outside], at) if raw.by_column else (at, inner[outside])
        refuse_entry(source, shape, outside, place, values[outside])
    make: Any = sp.csc_array if raw.by_column else sp.csr_array
    return make((values, inner, starts.astype(index, copy=False)), shape=shape)


def _read_descriptor(path: str, text: str) -> _Descriptor:
    where = f"{path}: descriptor"
    found = parse_json(text, f"{path}: the attribute 'binsparse' holds no descriptor")
    found = conform(found, Mapping[str, Any], where)
    if "binsparse" in found:
        found = conform(found["binsparse"], Mapping[str, Any], f"{where}: binsparse")

    def member(name: str, kind: Any, otherwise: Any = None) -> Any:
        if name not in found and otherwise is None:
            raise InputError(
                f"{where}: {name!r} is missing; expected version, format, shape, data_types and others"
            )
        return conform(found.get(name, otherwise), kind, f"{where}: {name}")

    version = str(member("version", str | float))
    if version.partition(".")[0] not in ("0", "1"):
        raise InputError(f"{where}: version {shown(version)} of binsparse; expected 0 or 1, such as 0.1")
    if "custom" in found:
        raise InputError(f"{where}: custom formats are not supported; expected {', '.join(_FORMATS)}")
    kind = member("format", str)
    kind = _ALIASES.get(kind, kind)
    if kind not in _FORMATS:
        raise InputError(
            f"{where}: format {shown(kind)} is unknown; expected {', '.join((*_FORMATS, *_ALIASES))}"
        )
    sizes = member("shape", tuple[int, ...])
    modes = 1 if kind.endswith("VEC") else 2
    if len(sizes) != modes:
        raise InputError(f"{where}: shape of {len(sizes)} dimensions for format {kind}; expected {modes}")
    shape = checked_shape((1, *sizes) if modes == 1 else sizes, path)
    count = member("number_of_stored_values", int)
    if not 0 <= count < 2**63:
        raise InputError(f"{where}: {shown(count)} stored values; expected 0 to 2**63 - 1")
    structure = member("structure", str, "")
    if structure and structure not in _STRUCTURES:
        raise InputError(
            f"{where}: structure {shown(structure)} is unknown; expected {', '.join(_STRUCTURES)}"
        )
    if structure and (shape[0] != shape[1] or kind in ("DVEC", "CVEC", "DMATR", "DMATC")):
        raise InputError(
            f"{where}: {structure} with format {kind}, shape {shape}; expected a square sparse matrix"
        )
    types = member("data_types", Mapping[str, str])
    return _Descriptor(path, kind, shape, count, types, member("fill", bool, False), structure)


def _type_name(about: _Descriptor, name: str) -> str:
    if name not in about.types:
        raise InputError(f"{about.path}: descriptor: data_types: {name!r} is missing")
    return about.types[name]


def _indices(about: _Descriptor, arrays: Hdf5Arrays, name: str, length: int) -> np.ndarray:
    kind = _type_name(about, name)
    if kind not in _SCALARS or "int" not in kind or kind == "bint8":
        raise InputError(
            f"{about.path}: descriptor: type {shown(kind)} of {name}; expected integers such as uint64"
        )
    return arrays.array(name, _SCALARS[kind], length)


def _values(about: _Descriptor, arrays: Hdf5Arrays) -> np.ndarray:
    """Return (count,) values; of ``iso`` all are one element in memory."""
    text = _type_name(about, "values")
    match = _VALUE_TYPE.fullmatch(text)
    iso, pair, kind, ends = match.groups() if match else (None, None, "", "")
    if kind not in _SCALARS or len(ends) != bool(iso) + bool(pair) or (pair and not kind.startswith("float")):
        raise InputError(
            f"{about.path}: descriptor: type {shown(text)} of values; expected {', '.join(_SCALARS)}, complex[float32] "
            "or complex[float64], or one of them in iso[...]"
        )
    count = 1 if iso else about.count
    values = arrays.array("values", _SCALARS[kind], 2 * count if pair else count)
    if pair:
        values = values.view(np.complex64 if kind == "float32" else np.complex128)
    if kind == "bint8":
        values = values != 0
    if iso:
        arrays.check_memory("values", about.count * values.dtype.itemsize)
        values = np.repeat(values, about.count)
    return values


def _check_fill(about: _Descriptor, arrays: Hdf5Arrays) -> None:
    text = about.types.get("fill_value", about.types.get("values", ""))
    kind = text.removeprefix("iso[").rstrip("]")
    pair = kind.startswith("complex[")
    kind = kind.removeprefix("complex[")
    if kind not in _SCALARS:
        raise InputError(f"{about.path}: descriptor: type {shown(text)} of fill_value is unknown")
    if arrays.array("fill_value", _SCALARS[kind], 1 + pair).any():
        raise InputError(
            f"{about.path}: the fill value is not 0; elements that are not stored must be 0 here"
        )


def _read_dense(about: _Descriptor, arrays: Hdf5Arrays) -> RawCoordinates:
    elements = about.shape[0] * about.shape[1]
    if about.count != elements:
        raise InputError(
            f"{about.path}: {about.count} stored values of a dense {about.format}; expected {elements}"
        )
    values = _values(about, arrays)
    stored = np.flatnonzero(values)
    outer, inner = np.divmod(stored, max(about.shape[1 - about.by_column], 1))
    coordinates = (inner, outer) if about.by_column else (outer, inner)
    return RawCoordinates(about.shape, coordinates, values[stored], about.path)


def _read_coordinates(about: _Descriptor, arrays: Hdf5Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column indices (count,) of a sparse format; those of lines are checked."""
    if about.format == "CVEC":
        columns = _indices(about, arrays, "indices_0", about.count)
        return np.zeros(about.count, columns.dtype), columns
    inner = _indices(about, arrays, "indices_1", about.count)
    line = "column" if about.by_column else "row"
    size = about.shape[about.by_column]
    if about.format.startswith("COO"):
        outer = _indices(about, arrays, "indices_0", about.count)
    else:
        index = coordinate_dtype(about.shape)
        lines: np.ndarray | None = None
        if about.format.startswith("D"):
            named = _indices(about, arrays, "indices_0", arrays.length("indices_0"))
            lines, outside = checked_indices(named, size, index, about.path, line)
            if outside is not None:
                raise InputError(
                    f"{about.path}: indices_0 names {line} {named[outside]}; expected 0 to {size - 1}"
                )
        count = size if lines is None else len(lines)
        pointers = _indices(about, arrays, "pointers_to_1", count + 1)
        outer = rows_of(checked_pointers(pointers, count, about.count, about.path, line), np.dtype(np.int64))
        if lines is not None:
            outer = lines[outer]
    return (inner, outer) if about.by_column else (outer, inner)


def _checked_coordinates(
    source: str, shape: tuple[int, ...], coordinates: Any, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    index, found = coordinate_dtype(shape), []
    for mode, array in enumerate(coordinates):
        if np.shape(array) != values.shape:
            raise InputError(f"{source}: {len(array)} coordinates of mode {mode} for {values.size} values")
        checked, outside = checked_indices(array, shape[mode], index, source, f"mode {mode}")
        if outside is not None:
            refuse_entry(source, shape, outside, [other[outside] for other in coordinates], values[outside])
        found.append(checked)
    rows, columns = found
    return rows, columns


def _expand_structure(
    about: _Descriptor, coordinates: tuple[np.ndarray, np.ndarray], values: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Add the mirror image of the entries off the diagonal."""
    path, kind = about.path, about.structure
    rows, columns = _checked_coordinates(path, about.shape, coordinates, values)
    wrong = np.flatnonzero(rows < columns if kind.endswith("lower") else rows > columns)
    if wrong.size:
        at = int(wrong[0])
        raise InputError(
            f"{path}: entry {at} (row {rows[at]}, column {columns[at]}) lies outside the half of {kind}"
        )
    mirrored = rows != columns
    image = values[mirrored]
    if kind.startswith("hermitian"):
        if values.dtype.kind != "c":
            raise InputError(f"{path}: {kind} with {values.dtype} values; expected complex values")
        image = image.conj()
    elif kind.startswith("skew"):
        if values[~mirrored].any():
            at = int(np.flatnonzero(~mirrored & (values != 0))[0])
            raise InputError(
                f"{path}: entry {at} is on the diagonal of a skew-symmetric matrix, which has zeros there"
            )
        if values.dtype.kind in "bui" and (
            values.dtype.kind != "i" or (image == np.iinfo(values.dtype).min).any()
        ):
            raise InputError(f"{path}: {kind} with values of {values.dtype} whose negatives it does not hold")
        image = -image
    parts = np.concatenate((rows, columns[mirrored])), np.concatenate((columns, rows[mirrored]))
    return parts, np.concatenate((values, image))


def _type_of(dtype: np.dtype) -> str | None:
    """Return what binsparse calls a type of values; None: it has none."""
    if dtype.kind == "b":
        return "bint8"
    if dtype.kind == "c" and dtype.itemsize <= 16:
        return f"complex[float{dtype.itemsize * 4}]"
    name = dtype.newbyteorder("=").name
    return name if name in _SCALARS else None


def _write(
    stream: IO[bytes],
    kind: str,
    shape: tuple[int, ...],
    indices: Mapping[str, np.ndarray],
    values: np.ndarray,
) -> None:
    name = _type_of(values.dtype)
    stored = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    if values.dtype.kind in "bc":
        stored = stored.view(np.uint8 if values.dtype.kind == "b" else stored.real.dtype)
    types = {array: indices[array].dtype.name for array in indices} | {"values": name}
    descriptor = {
        "version": _VERSION,
        "format": kind,
        "shape": [int(size) for size in shape],
        "number_of_stored_values": len(values),
        "data_types": types,
    }
    text = json.dumps({"binsparse": descriptor})
    write_hdf5(stream, {"binsparse": text}, {**indices, "values": stored})


BINSPARSE: Final = FileFormat(
    "binsparse", read_binsparse, write_binsparse, read_binsparse, 2, is_text=False, array_writer=array_writer
)
"""The row of `FILE_FORMATS`."""
