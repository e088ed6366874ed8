"""Content ids: the same content has the same id on every machine."""

import hashlib
import os
from collections.abc import Iterable

import numpy as np

from tensorwise.errors import InputError
from tensorwise.reading import open_regular


def content_id(parts: Iterable[str | bytes | np.ndarray], length: int = 32) -> str:
    """Return a hexadecimal id of ``parts``; each part is length-prefixed, so their borders count.

    Arrays enter with dtype, shape and C-order bytes.
    """
    digest = hashlib.blake2b(digest_size=length // 2)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            data: bytes | memoryview = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
        else:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def file_id(path: str | os.PathLike[str]) -> str:
    """Return the id of a file's bytes, which differs between files of the same name and different content.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: cannot be read ({error.strerror or error})") from error
