"""Sparse arrays from files, in the dtype and format that the file has."""

import os
from typing import Any

from tensorwise.errors import InputError
from tensorwise.reading import user_path
from tensorwise.sparse.arrays import asarray


def read_binsparse(path: str | os.PathLike[str]) -> Any:
    """Return the matrix in a binsparse file as a sparse array of this package: values keep their dtype, complex ones too.

    CSR and CSC stay what they are; all else, and what has a structure such as ``symmetric_lower``, becomes COO. A vector
    is a matrix of one row. ``tensorwise.write`` writes such files. Reading takes some 0.3 s more than the bytes do: a child
    process asks libhdf5 where they lie.

    Raises:
        InputError: anything wrong with the file, named.
        MissingExtraError: h5py is not installed (extra ``binsparse``).
    """
    from tensorwise.tensor.binsparse import read_stored, scipy_array

    place = user_path(path)
    if not place.is_file():
        what = "is no regular file" if place.exists() else "does not exist"
        raise InputError(f"{place}: {what}; expected a file to read")
    return asarray(scipy_array(read_stored(str(place))))
