"""A child process: says as JSON where the arrays of an HDF5 file lie, so that its parent reads them without libhdf5.

    python tensorwise/tensor/hdf5_map.py FILE ATTRIBUTE MAP.json NAME...

libhdf5 believes the lengths in a file: a changed byte makes it take gigabytes, or run without an end. Here it has
little memory and time, and a crash ends this process only.
"""

import base64
import json
import resource
import sys
from typing import Any, Final

MEMORY_BYTES: Final = 2 * 2**30
"""Address space of the process: with h5py it takes 0.2 GiB."""
CPU_S: Final = 5
"""Seconds of computing: sound files take 0.3, the import of h5py included."""
MAX_CHUNKS: Final = 500_000
"""Chunks of an array: more are slower to list than the array is to read."""


def describe(path: str, attribute: str, names: list[str]) -> dict[str, Any]:
    """Return the attribute as ``text`` and, as ``arrays``, what `_describe_array` says; or what is wrong as ``error``."""
    import h5py

    with h5py.File(path, "r", locking="best-effort") as root:
        if root.userblock_size:
            return {"error": f"begins with a user block of {root.userblock_size} bytes; expected none"}
        if attribute not in root.attrs:
            return {"error": f"an HDF5 file without the attribute {attribute!r}; expected a binsparse file"}
        text = root.attrs[attribute]
        text = text.reshape(-1)[0] if getattr(text, "size", 0) == 1 else text
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        if not isinstance(text, str):
            return {"error": f"attribute {attribute!r} is no single text; expected JSON"}
        arrays = {name: _describe_array(h5py, root, name) for name in names if name in root}
        return {"text": text.rstrip("\0"), "arrays": arrays}


def _describe_array(h5py: Any, root: Any, name: str) -> dict[str, Any]:
    """Return length, dtype, chunk, filters, fill value and pieces of an array, or what is wrong as ``error``.

    A piece is (first element, offset in the file, bytes in the file, mask of filters that were left out).
    """
    link = root.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        return {"error": f"is a {type(link).__name__}; expected an array of this file"}
    dataset = root[name]
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None or len(dataset.shape) != 1:
        return {"error": "is no array of one dimension"}
    made, handle, dtype = dataset.id.get_create_plist(), dataset.id, dataset.dtype
    if dataset.is_virtual or made.get_external_count():
        return {"error": "lies in other files, which are not read; store it in this one"}
    if dtype.kind not in "biuf" or not handle.get_type().equal(h5py.h5t.py_create(dtype)):
        return {"error": f"holds {dtype}, in a layout of its own; expected plain numbers"}
    chunk = int(dataset.chunks[0]) if dataset.chunks else 0
    found: dict[str, Any] = {
        "length": int(dataset.shape[0]),
        "dtype": ("|u1" if dtype.kind == "b" else dtype.str),
        "chunk": chunk,
        "filters": [int(made.get_filter(at)[0]) for at in range(made.get_nfilters())],
        "fill": base64.b64encode(dtype.type(dataset.fillvalue).astype(dtype).tobytes()).decode(),
        "pieces": [],
        "inline": None,
    }
    if made.get_layout() == h5py.h5d.COMPACT:
        found["inline"] = base64.b64encode(dataset[...].tobytes()).decode()
    elif not chunk:
        if (offset := handle.get_offset()) is not None:
            found["pieces"] = [(0, offset, found["length"] * dtype.itemsize, 0)]
    elif handle.get_num_chunks() > MAX_CHUNKS:
        return {
            "error": f"has {handle.get_num_chunks()} chunks; expected {MAX_CHUNKS} or fewer, see h5repack"
        }
    elif handle.get_num_chunks():
        handle.chunk_iter(
            lambda one: found["pieces"].append(
                (int(one.chunk_offset[0]), int(one.byte_offset), int(one.size), int(one.filter_mask))
            )
        )
    return found


def main(path: str, attribute: str, out: str, *names: str) -> int:
    """Write the map of a file to ``out``."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        found = describe(path, attribute, list(names))
    except ModuleNotFoundError as error:
        found = {"missing": str(error)}
    except MemoryError:
        found = {"error": "takes more memory to open than any sound file does"}
    except Exception as error:  # a damaged file fails anywhere in libhdf5
        found = {
            "error": f"no readable HDF5 file ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        }
    with open(out, "w", encoding="ascii") as file:
        json.dump(found, file)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
