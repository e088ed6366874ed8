"""Plain arrays in HDF5 files, read without trusting what the file claims, and written.

A child process of little memory and time asks libhdf5 where the arrays lie (`hdf5_map`). Their bytes are read and
decompressed here, once their sizes are known to fit the file and the memory.
"""

import base64
import contextlib
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import numpy as np

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.reading import conform, open_regular, read_json, reading, reason, shown
from tensorwise.tensor import hdf5_map
from tensorwise.tensor.memory import available_bytes
from tensorwise.tensor.npz import FREE_BYTES, MOST_EXPANSION
from tensorwise.toolchain.child import run_bounded

_DEFLATE, _SHUFFLE, _FLETCHER = 1, 2, 3
"""Numbers of the filters of HDF5 that are undone here; others are refused."""
_WAIT_S: Final = 120.0
"""Seconds in which the child must end: it computes for `hdf5_map.CPU_S` at most, and may wait for a busy machine."""


@dataclass(frozen=True)
class _Array:
    """What `hdf5_map` says of an array."""

    length: int
    dtype: str
    chunk: int
    filters: tuple[int, ...]
    fill: str
    pieces: tuple[tuple[int, int, int, int], ...]
    inline: str | None


class Hdf5Arrays:
    """The arrays in the root group of an HDF5 file, and the text of an attribute.

    Args:
        path: of the file, which begins every message.
        file: the same, open.
        text: of the attribute.
        arrays: name -> what `hdf5_map` says.
    """

    def __init__(self, path: str, file: IO[bytes], text: str, arrays: Mapping[str, Any]) -> None:
        self.text = text
        self._path, self._file, self._arrays = path, file, arrays
        self._file_bytes = os.fstat(file.fileno()).st_size
        self._memory = available_bytes() // 4  # the arrays are copied, sorted and copied again
        self._expansion = max(FREE_BYTES, MOST_EXPANSION * self._file_bytes)

    def length(self, name: str) -> int:
        """Return the number of elements of an array; InputError unless it is there and can be read."""
        return self._described(name).length

    def array(self, name: str, dtype: np.dtype, length: int) -> np.ndarray:
        """Return an array (length,) of ``dtype`` in native byte order, once its size is known to fit.

        Raises:
            InputError: it is missing, has another length or dtype, or more bytes than the file or the memory allows.
        """
        about = self._described(name)
        if about.length != length:
            self._refuse(name, f"has {about.length} elements; expected {length}")
        stored = np.dtype(about.dtype)
        if stored.newbyteorder("=") != dtype:
            self._refuse(name, f"is stored as {stored}; the descriptor says {dtype}")
        self._check_size(name, about, length * dtype.itemsize, about.chunk * dtype.itemsize)
        if about.inline is not None:
            data = base64.b64decode(about.inline)
            if len(data) != length * dtype.itemsize:
                self._refuse(name, "is damaged")
            return np.frombuffer(data, stored).astype(dtype)
        if not about.chunk and about.pieces:
            self._file.seek(about.pieces[0][1])
            return np.fromfile(self._file, stored, length).astype(dtype, copy=False)
        found = np.full(length, np.frombuffer(base64.b64decode(about.fill), stored)[0], dtype)
        for first, offset, size, mask in about.pieces:
            self._file.seek(offset)
            data = _unfiltered(self._file.read(size), about, mask, stored.itemsize)
            if len(data) != about.chunk * stored.itemsize or not 0 <= first < length:
                self._refuse(name, f"has a damaged chunk at element {first}")
            found[first : first + about.chunk] = np.frombuffer(data, stored)[: length - first]
        return found

    def check_memory(self, name: str, size: int) -> None:
        """Count ``size`` bytes that an array takes; InputError where they are more than the memory left."""
        if size > self._memory:
            self._refuse(name, f"of {size} bytes is too large for the memory left")
        self._memory -= size

    def _described(self, name: str) -> _Array:
        if name not in self._arrays:
            self._refuse(name, "is missing; the descriptor promises it")
        if "error" in self._arrays[name]:
            self._refuse(name, self._arrays[name]["error"])
        about: _Array = conform(self._arrays[name], _Array, f"{self._path}: {name}")
        if odd := [one for one in about.filters if one not in (_DEFLATE, _SHUFFLE, _FLETCHER)]:
            self._refuse(
                name,
                f"passes the HDF5 filter {odd[0]}; expected none, deflate, shuffle or fletcher32; "
                "h5repack -f NONE removes filters",
            )
        return about

    def _check_size(self, name: str, about: _Array, size: int, chunk: int) -> None:
        """Raise InputError where reading ``size`` bytes would take more than the file or the memory has."""
        self.check_memory(name, size + 3 * chunk)
        self._memory += 3 * chunk  # which are freed
        if size + chunk > self._expansion:
            self._refuse(
                name,
                f"expands to {size} bytes, in chunks of {chunk}, more than a file of this size may "
                f"({FREE_BYTES >> 20} MiB, or {MOST_EXPANSION} times its size); if you trust it, "
                "h5repack -f NONE -l CONTI writes a file that may be read",
            )
        self._expansion -= size
        if about.chunk and len(about.pieces) > -(-about.length // about.chunk):
            self._refuse(name, f"has {len(about.pieces)} chunks, more than {about.length} elements have")
        for _, offset, stored, _ in about.pieces:
            if offset < 0 or stored < 0 or offset + stored > self._file_bytes:
                self._refuse(
                    name,
                    f"has {stored} bytes at {offset}, but the file has {self._file_bytes}; it is cut off or damaged",
                )

    def _refuse(self, name: str, what: str) -> NoReturn:
        raise InputError(f"{self._path}: array {name!r} {what}")


def _unfiltered(data: bytes, about: _Array, mask: int, itemsize: int) -> bytes:
    """Return the bytes of a chunk before the filters changed them, of at most the chunk's size and a few more."""
    for at, one in reversed(list(enumerate(about.filters))):
        if mask >> at & 1:
            continue
        if one == _DEFLATE:
            data = zlib.decompressobj().decompress(data, about.chunk * itemsize + 4 * len(about.filters))
        elif one == _SHUFFLE:
            whole = len(data) - len(data) % itemsize
            planes = np.frombuffer(data[:whole], np.uint8).reshape(itemsize, -1)
            data = planes.T.tobytes() + data[whole:]
        else:
            data = data[:-4]  # the checksum
    return data


@contextlib.contextmanager
def open_hdf5(path: str, attribute: str, names: Sequence[str]) -> Iterator[Hdf5Arrays]:
    """Open an HDF5 file for reading an attribute and those of the arrays ``names`` that are there.

    Raises:
        InputError: it cannot be read.
        MissingExtraError: h5py is not installed.
    """
    try:
        with open_regular(path) as file:
            found = _map_of(path, attribute, names)
            with reading(f"{path}: no readable HDF5 file"):
                yield Hdf5Arrays(path, file, found["text"], found["arrays"])
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{path}: too large for the memory left") from error
    except (OSError, zlib.error) as error:
        raise InputError(f"{path}: no readable HDF5 file ({reason(error)})") from error


def _map_of(path: str, attribute: str, names: Sequence[str]) -> Any:
    with tempfile.TemporaryDirectory(prefix="tensorwise-hdf5-") as folder:
        out = Path(folder) / "map.json"
        command = [sys.executable, "-P", str(Path(hdf5_map.__file__).resolve())]
        command += [os.path.abspath(path), attribute, str(out), *names]
        status, said = run_bounded(command, Path(folder), _WAIT_S)
        if status != 0:
            lines = said.strip().splitlines() or ["it crashed, or took too much memory or time"]
            raise InputError(
                f"{path}: libhdf5 cannot read it ({shown(lines[-1])}, status {status}); it is damaged"
            )
        found = read_json(out, "is no map of an HDF5 file")
    if "missing" in found:
        raise _missing()
    if "error" in found:
        raise InputError(f"{path}: {found['error']}")
    return found


def write_hdf5(stream: IO[bytes], texts: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays, neither in chunks nor compressed, and texts as attributes, to a file open for reading and writing.

    Raises:
        OSError: the file cannot be written.
        MissingExtraError: h5py is not installed.
    """
    try:
        import h5py
    except ImportError as error:
        raise _missing() from error
    try:
        with h5py.File(stream, "w") as root:
            for name, text in texts.items():
                root.attrs[name] = text
            for name, array in arrays.items():
                root.create_dataset(name, data=array)
    except RuntimeError as error:  # libhdf5 says so where a write fails
        raise OSError(f"libhdf5: {reason(error)}") from error


def _missing() -> MissingExtraError:
    return MissingExtraError("h5py", "binsparse", "reading and writing binsparse files")
