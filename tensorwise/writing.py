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

    Readers see ``path`` as it was or complete. A link is followed: what it points to is replaced. In a folder that is
    its owner's alone (mode 0700) the file is, too, whatever the umask.

    Raises:
        OSError: the file cannot be written or renamed; nothing is left behind.
    """
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{target.name[:80]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        alone = target.parent.stat().st_mode & 0o077 == 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        with open(os.open(unfinished, flags, 0o600 if alone else 0o666), "r+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()
