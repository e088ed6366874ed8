"""Folders that keep what took long to make: a description as JSON beside arrays as safetensors, neither trusted."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.reading import open_regular, parse_json, reading
from tensorwise.writing import replacing

MOST_DESCRIPTION_BYTES: Final = 64 * 2**20
"""A longer description is not read: ours are kilobytes."""

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Keeping:
    """The two files in which one kind of thing is kept; several kinds may share a folder.

    Attributes:
        what: the kind, in one word: the files are ``WHAT.json`` and ``WHAT.safetensors``.
    """

    what: str

    @property
    def files(self) -> tuple[str, str]:
        """Names of the description and of the arrays."""
        return f"{self.what}.json", f"{self.what}.safetensors"

    def save(
        self,
        directory: str | os.PathLike[str],
        description: Mapping[str, object],
        arrays: Mapping[str, np.ndarray],
    ) -> None:
        """Write both files into ``directory`` (made if absent).

        The description is written last and holds the arrays' checksum, so that an interrupted save is detected. Arrays of
        `round_to_float16` take half the space.

        Raises:
            InputError: the directory cannot be written.
        """
        from safetensors.numpy import save  # only what is saved or loaded needs it

        data = save({name: np.ascontiguousarray(_shortest(array)) for name, array in arrays.items()})
        described = {**description, "sha256": hashlib.sha256(data).hexdigest()}
        folder = Path(directory)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(described, indent=1, allow_nan=False).encode()
            description_file, arrays_file = self.files
            for name, content in ((arrays_file, data), (description_file, text)):
                with replacing(folder / name) as file:
                    file.write(content)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"the {self.what} cannot be saved in {folder}: {reason}") from error

    def describe(self, directory: str | os.PathLike[str]) -> dict[str, object]:
        """Return the description in ``directory``, an object with a ``kind``.

        Raises:
            InputError: there is none, or it is malformed.
        """
        path = Path(directory) / self.files[0]
        try:
            with open_regular(path) as file:
                text = file.read(MOST_DESCRIPTION_BYTES + 1)
        except OSError as error:
            raise InputError(
                f"there is no {self.what} in {Path(directory)}: {error.strerror or error}"
            ) from error
        with reading(f"{path} does not describe a {self.what}", f"save the {self.what} again"):
            if len(text) > MOST_DESCRIPTION_BYTES:
                raise ValueError("too long")
            described = parse_json(text, f"{path} does not describe a {self.what}")
            if not isinstance(described, dict) or not isinstance(described.get("kind"), str):
                raise TypeError("no object with a kind")
        return described

    def load(
        self,
        directory: str | os.PathLike[str],
        kind: str,
        version: int,
        make: Callable[[dict[str, object], dict[str, np.ndarray]], T],
    ) -> T:
        """Return what ``make`` makes of description and arrays.

        Args:
            directory: that ``save`` wrote into.
            kind: that the description must name.
            version: that it must name.
            make: may raise whatever `reading` turns into an InputError for what it cannot use. Of floats it is given
                float32 and float64.

        Raises:
            InputError: a file is missing, damaged, or of another kind or version.
        """
        folder, described = Path(directory), self.describe(directory)
        if described["kind"] != kind or described.get("version") != version:
            raise InputError(
                f"{folder} holds a {self.what} {described['kind']!r} of version {described.get('version')!r}, "
                f"expected {kind!r} of version {version}"
            )
        from safetensors import SafetensorError
        from safetensors.numpy import load

        path = folder / self.files[1]
        try:
            with open_regular(path) as file:
                data = file.read()
            if hashlib.sha256(data).hexdigest() != described.get("sha256"):
                raise InputError(
                    f"{path} is damaged or belongs to another {self.what}; save the {self.what} again"
                )
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
        damaged = f"the {self.what} in {folder} is damaged", f"save the {self.what} again"
        try:
            with reading(*damaged):
                return make(described, {
                    name: array.astype(np.float32) if array.dtype == np.float16 else array
                    for name, array in load(data).items()
                })  # fmt: skip
        except SafetensorError as error:
            raise InputError(f"{damaged[0]}: {error}; {damaged[1]}") from error


def round_to_float16(array: np.ndarray) -> np.ndarray:
    """Return an array rounded to float16, as float32: eleven bits of precision suffice for weights.

    An array with a number beyond float16's range is returned unrounded.
    """
    return (array.astype(np.float16) if _fits(array) else array).astype(np.float32)


def _shortest(array: np.ndarray) -> np.ndarray:
    """The same numbers as float16 where that holds them."""
    short = array.dtype == np.float32 and _fits(array) and np.array_equal(array, round_to_float16(array))
    return array.astype(np.float16) if short else array


def _fits(array: np.ndarray) -> bool:
    return bool(np.abs(array).max(initial=0) <= np.finfo(np.float16).max)
