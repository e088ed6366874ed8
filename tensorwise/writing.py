"""Files that appear whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file beside ``path`` that takes its place when the block ends without an exception.

    Readers see ``path`` as it was or complete. A link is followed: what it points to is replaced.

    Raises:
        OSError: the file cannot be written or renamed; nothing is left behind.
    """
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{target.name[:80]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()
