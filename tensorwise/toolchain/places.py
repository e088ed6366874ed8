"""Where Tensorwise keeps what it can make again: one directory a user, which nobody else may write to."""

import contextlib
import os
import stat
from pathlib import Path

from tensorwise.errors import InputError
from tensorwise.reading import user_path


def cache_dir() -> Path:
    """Return the directory of everything cached: ``TENSORWISE_CACHE_DIR``, else the user's cache directory.

    It need not exist yet.
    """
    given = os.environ.get("TENSORWISE_CACHE_DIR")
    if given:
        try:
            return user_path(given).absolute()
        except InputError as error:
            raise InputError(f"TENSORWISE_CACHE_DIR: {error}") from error
    import platformdirs

    return Path(platformdirs.user_cache_dir("tensorwise"))


def number_from(variable: str, default: int, unit: str, least: int = 0) -> int:
    """Return the whole number, of ``unit``, in an environment variable, ``default`` where it is empty; else InputError."""
    given = os.environ.get(variable, "").strip()
    if given and not (given.isascii() and given.isdecimal() and int(given[:19]) >= least):
        raise InputError(f"{variable} is {given!r}; expected a number of {unit} such as {default}")
    return int(given[:19]) if given else default


def boot_id() -> str:
    """Return the id of this start of this machine; empty where the system has none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def private_dir(path: Path) -> Path:
    """Make ``path`` and the folders above it that are missing, each with mode 0700 whatever the umask; return ``path``.

    Raises:
        OSError: one cannot be made.
    """
    missing = []
    for folder in (path, *path.parents):
        if folder.is_dir():
            break
        missing.append(folder)
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:  # another process was faster
            if not folder.is_dir():
                raise
        else:
            with contextlib.suppress(OSError):
                folder.chmod(0o700)  # a umask may have taken even the owner's rights
    return path


def distrusted(path: Path, top: Path | None = None) -> str | None:
    """Return why ``path`` may be another user's work, or None: what is loaded from it runs as this user.

    All from ``top`` down to ``path`` must be this user's, no link, and writable for nobody else: who may write to a
    folder can put another one in the place of those below it.

    Args:
        path: a file or folder that exists.
        top: where the way begins; default: `cache_dir`. The folders above it are the user's own choice.

    Raises:
        FileNotFoundError: it does not exist.
    """
    top = cache_dir() if top is None else top
    way = [top if path.is_relative_to(top) else path.parent]
    for part in path.relative_to(way[0]).parts:
        way.append(way[-1] / part)
    for place in way:
        status = place.lstat() if place is not way[0] else place.stat()
        if fault := foreign(status):
            return f"{place}: {fault}"
    return None


def foreign(status: os.stat_result) -> str | None:
    """Return why a file or folder of this status may be another user's work, or None."""
    if stat.S_ISLNK(status.st_mode):
        return "it is a symbolic link"
    if not hasattr(os, "geteuid"):  # access control lists take the place of modes, and are not read
        return None
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}, not to user {os.geteuid()}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):o}); remove it, or chmod go-w it if you trust it"
    return None
