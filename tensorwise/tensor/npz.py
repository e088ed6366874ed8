"""SciPy's ``.npz`` files of sparse matrices, read without pickle and without trusting what their
headers claim."""

import math
import os
import zipfile
from typing import IO, Any, Final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.tensor.checks import checked_shape
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.file_formats import FileFormat
from tensorwise.tensor.memory import available_bytes
from tensorwise.tensor.raw import RawCompressed, RawCoordinates, RawEntries, expand_blocks, expand_diagonals

FREE_BYTES = 64 * 2**20
"""A file may expand to so many bytes whatever its size, and beyond them to ``MOST_EXPANSION`` times its size."""
MOST_EXPANSION = 100
"""Matrices of ones expand 10 to 50 times; deflate's limit is 1032 times."""


def read_npz(path: str) -> RawEntries:
    """Read the entries of a file that ``scipy.sparse.save_npz`` wrote."""
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = _Arrays(path, archive)
            kind = arrays["format"].item()
            kind = kind.decode("ascii") if isinstance(kind, bytes) else str(kind)
            shape = checked_shape(arrays["shape"].tolist(), path)
            if kind == "coo":
                names = ["coords"] if "coords" in arrays else ["row", "col"]
                parts = [arrays[name] for name in names]
                coordinates = tuple(parts[0]) if len(parts) == 1 else tuple(parts)
                return RawCoordinates(shape, coordinates, arrays["data"], path)
            if len(shape) != 2:
                raise InputError(f"{path}: format {kind!r} of order {len(shape)}; expected order 2")
            if kind in ("csr", "csc", "bsr"):
                pointers, indices, data = (arrays[name] for name in ("indptr", "indices", "data"))
                raw = RawCompressed(shape, pointers, indices, data, path, kind == "csc")
                return expand_blocks(raw) if kind == "bsr" else raw
            if kind == "dia":
                return expand_diagonals(shape, arrays["offsets"], arrays["data"], path)
        raise InputError(f"{path}: sparse format {kind!r} is unknown; expected csr, csc, coo, bsr or dia")
    except InputError:
        raise
    except Exception as error:  # a damaged archive fails in zipfile, zlib, struct, ast or NumPy
        raise InputError(
            f"{path}: no readable .npz file of a sparse matrix ({type(error).__name__}: {error}); "
            "expected what scipy.sparse.save_npz writes"
        ) from error


def write_npz(stream: IO[bytes], entries: Entries) -> None:
    """Write what ``scipy.sparse.load_npz`` reads: CSR where there are row pointers, else COO."""
    arrays: dict[str, Any] = {"shape": entries.shape, "data": entries.values, "_is_array": True}
    if entries.pointers is not None:
        arrays |= {"format": b"csr", "indices": entries.coordinates[1], "indptr": entries.pointers}
    elif entries.order == 2:
        arrays |= {"format": b"coo", "row": entries.coordinates[0], "col": entries.coordinates[1]}
    else:
        arrays |= {"format": b"coo", "coords": np.stack(entries.coordinates)}
    np.savez_compressed(stream, **arrays)


class _Arrays:
    """Members of the archive, each read only after its header agrees with its size, and that with the
    memory."""

    def __init__(self, path: str, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        self._memory = available_bytes() // 4  # the arrays are copied, sorted and copied again
        self._expansion = max(FREE_BYTES, MOST_EXPANSION * os.path.getsize(path))

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self._archive.NameToInfo

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self:
            raise InputError(
                f"{self._path}: no array {name!r} inside; expected what scipy.sparse.save_npz writes"
            )
        info = self._archive.getinfo(f"{name}.npy")
        if info.file_size > self._memory:
            raise InputError(
                f"{self._path}: array {name!r} of {info.file_size} bytes is too large for the memory left"
            )
        if info.file_size > self._expansion:
            raise InputError(
                f"{self._path}: array {name!r} expands to {info.file_size} bytes, more than a file of this size may "
                f"({FREE_BYTES >> 20} MiB, or {MOST_EXPANSION} times its size); if you trust it, load it with "
                "scipy.sparse.load_npz and give the matrix"
            )
        self._memory -= info.file_size
        self._expansion -= info.file_size
        with self._archive.open(info) as member:
            version = np.lib.format.read_magic(member)
            if version == (1, 0):
                shape, by_column, dtype = np.lib.format.read_array_header_1_0(member)
            elif version == (2, 0):
                shape, by_column, dtype = np.lib.format.read_array_header_2_0(member)
            else:
                raise InputError(
                    f"{self._path}: array {name!r} has .npy version {version}; expected 1.0 or 2.0"
                )
            if dtype.hasobject:
                raise InputError(f"{self._path}: array {name!r} holds pickled objects; they are never read")
            claimed = math.prod(shape) * dtype.itemsize
            if claimed != info.file_size - member.tell():
                raise InputError(
                    f"{self._path}: array {name!r} claims shape {shape} of {dtype} ({claimed} bytes), "
                    f"but {info.file_size - member.tell()} bytes are stored"
                )
            data = member.read()
        return np.frombuffer(data, dtype).reshape(shape, order="F" if by_column else "C")


NPZ: Final = FileFormat("SciPy's .npz", read_npz, write_npz, is_text=False)
"""The row of `FILE_FORMATS`."""
