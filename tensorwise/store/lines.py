"""Records as JSON lines."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tensorwise.errors import InputError, StoreError
from tensorwise.reading import lines_of, reason
from tensorwise.store.record import Record
from tensorwise.writing import replacing


def write_lines(path: Path, records: Iterable[Record]) -> int:
    """Write records as JSON lines and return how many. The file appears under its name only when it is complete.

    Raises:
        StoreError: the file cannot be written.
    """
    count = 0
    try:
        with replacing(path) as out:
            for record in records:
                out.write(f"{record.to_json()}\n".encode())
                count += 1
    except OSError as error:
        raise StoreError(f"records cannot be written to {path}: {reason(error)}") from error
    return count


def read_lines(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Yield the records of a file of JSON lines.

    Raises:
        InputError: the file cannot be read, or a line is malformed.
    """
    try:
        for number, line in enumerate(lines_of(path), 1):
            if line.strip():
                try:
                    yield Record.from_json(line.decode())
                except InputError as error:
                    raise InputError(f"{path}, line {number}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"records cannot be read from {path}: {reason(error)}") from error
