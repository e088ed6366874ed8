"""A directory of compiled libraries that many processes share, any of which may be killed at any moment.

One file an entry, ``<root>/<first two of key>/<key>.so``: the library, a mark and the SHA-256 of what
stands before (loaders do not mind). An entry that is not exactly what somebody of this user published
is a miss and is removed. Libraries that hold several entries are hard links of one file.
"""

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from tensorwise.system import open_flags, open_lock, unlock, wait_for_lock
from tensorwise.toolchain.deadline import waiting
from tensorwise.toolchain.forks import opened
from tensorwise.toolchain.places import distrusted, foreign, private_dir

_log = logging.getLogger(__name__)

_MARK = b"tensorwise-so-1\n"
_TRAILER_BYTES = len(_MARK) + 32
_TOUCH_EVERY_S = 3600.0
_STALE_S = 3600.0
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}


def seal(library: bytes) -> bytes:
    """Return ``library`` with the trailer that proves it whole."""
    return library + _MARK + hashlib.sha256(library).digest()


def is_whole(sealed: bytes) -> bool:
    """Return whether ``sealed`` is what ``seal`` returned, bit for bit."""
    library, trailer = memoryview(sealed)[:-_TRAILER_BYTES], sealed[-_TRAILER_BYTES:]
    return trailer[: len(_MARK)] == _MARK and hashlib.sha256(library).digest() == trailer[len(_MARK) :]


class Shelf:
    """The entries under ``root``, a directory of this user alone (made with mode 0700 when first needed).

    Args:
        root: of the entries.
        top: from where on folders must be this user's alone; default: ``root``.
    """

    def __init__(self, root: Path, top: Path | None = None) -> None:
        self.root = root
        self._top = root if top is None else top
        self._verified: set[tuple[int, ...]] = set()

    def path(self, key: str) -> Path:
        """Return where the entry of ``key`` lies, if it exists."""
        return self.root / key[:2] / f"{key}.so"

    def find(self, key: str) -> Path | None:
        """Return the path of a whole and trusted entry, or None. A bad one is removed, with a log line."""
        path = self.path(key)
        try:
            if distrusted(self.root, self._top):  # its owner could swap the file after we looked
                return None
            fault = self.fault(path)
        except OSError:
            return None
        if fault:
            self.discard(path, fault)
            return None
        return path

    def fault(self, path: Path) -> str | None:
        """Return why an entry cannot be trusted, or None; raises FileNotFoundError without one."""
        try:
            if fault := distrusted(path.parent, self._top):
                path.lstat()
                return fault
            with open(os.open(path, os.O_RDONLY | open_flags("NOFOLLOW")), "rb") as file:
                return self._fault(file)
        except FileNotFoundError:
            raise
        except OSError as error:  # a symbolic link, no right to read, a stale handle
            return str(error)

    def _fault(self, file: BinaryIO) -> str | None:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return "it is not a regular file"
        if fault := foreign(status):
            return fault
        known = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if known not in self._verified:
            if not is_whole(file.read()):
                return "its checksum is wrong"
            self._verified.add(known)
        if time.time() - status.st_mtime > _TOUCH_EVERY_S:  # its last use, for trim()
            with contextlib.suppress(OSError, TypeError):  # Windows wants a path
                os.utime(file.fileno())
        return None

    def discard(self, path: Path, reason: str) -> None:
        """Remove a bad entry and say so; never fails."""
        _log.warning("cache entry %s is not used and removed: %s", path, reason)
        with contextlib.suppress(OSError):
            path.unlink()

    def publish(self, library: bytes, keys: Sequence[str]) -> None:
        """Make ``library`` the entry of all ``keys``; each entry appears atomically.

        Raises:
            OSError: it cannot be written here, or the directory is not this user's alone.
        """
        self._prepare()
        sealed = seal(library)
        first = self._write(sealed)
        try:
            for key in keys:
                target = self.path(key)
                self._refuse_foreign(private_dir(target.parent))
                name = first.with_name(f"{first.name}-{key}")
                try:
                    os.link(first, name)
                except OSError:  # no hard links here, or too many
                    self._write(sealed).rename(name)
                os.replace(name, target)
                # Replacing a name by another name of the same file does nothing, and leaves both.
                name.unlink(missing_ok=True)
        finally:
            with contextlib.suppress(OSError):
                first.unlink()

    def _prepare(self) -> None:
        for name in ("tmp", "locks"):
            self._refuse_foreign(private_dir(self.root / name))

    def _refuse_foreign(self, folder: Path) -> None:
        if fault := distrusted(folder, self._top):
            raise PermissionError(errno.EPERM, fault)

    def _write(self, data: bytes) -> Path:
        number, name = tempfile.mkstemp(dir=self.root / "tmp")
        try:
            with open(number, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(number)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        return Path(name)

    @contextlib.contextmanager
    def locked(self, keys: Iterable[str], timeout_s: float) -> Iterator[bool]:
        """A context that holds the right to build ``keys``; yields False if it was not free within ``timeout_s``.

        Locks belong to buckets of keys and are taken in order, so that two builders never wait for each other; the system
        releases those of a killed process. On a system without locks, the worst is that a kernel is built twice.

        Raises:
            OSError: the directory cannot be written, or is not this user's alone.
        """
        self._prepare()
        deadline_s = time.monotonic() + timeout_s
        held: list[int] = []
        shared = contextlib.ExitStack()
        try:
            got = True
            for bucket in sorted({key[:2] for key in keys}):
                held.append(open_lock(self.root / "locks" / bucket))
                shared.enter_context(opened(held[-1]))
                with waiting():
                    got = got and _lock(held[-1], deadline_s)
                if not got:
                    break
            yield got
        finally:
            shared.close()
            for number in held:
                unlock(number)
                os.close(number)

    def files(self) -> list[tuple[os.stat_result, list[Path]]]:
        """Return each file of entries once, with all its names."""
        names: defaultdict[tuple[int, int], list[Path]] = defaultdict(list)
        found: dict[tuple[int, int], os.stat_result] = {}
        for path in self.root.glob("[0-9a-f][0-9a-f]/*.so"):
            with contextlib.suppress(OSError):
                status = path.lstat()
                names[status.st_dev, status.st_ino].append(path)
                found[status.st_dev, status.st_ino] = status
        return [(found[number], names[number]) for number in found]

    def trim(self, cap_bytes: int) -> None:
        """Remove what killed processes left and, above ``cap_bytes``, what was not used for longest."""
        for path in (self.root / "tmp").glob("*"):
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime > _STALE_S:
                    path.unlink()
        files = sorted(self.files(), key=lambda item: item[0].st_mtime)
        held_bytes = sum(status.st_size for status, _ in files)
        if held_bytes <= cap_bytes:
            return
        for status, paths in files:
            if held_bytes <= 0.9 * cap_bytes:
                break
            for path in paths:
                with contextlib.suppress(OSError):
                    path.unlink()
            held_bytes -= status.st_size

    def verify(self) -> list[Path]:
        """Check all entries anew; remove and return the bad ones."""
        self._verified.clear()
        bad: list[Path] = []
        for path in (path for _, paths in self.files() for path in paths):
            with contextlib.suppress(FileNotFoundError):
                if fault := self.fault(path):
                    self.discard(path, fault)
                    bad.append(path)
        return bad

    def clear(self) -> None:
        """Remove all entries. Lock files stay: to remove one that is held would let two builders in."""
        for _, paths in self.files():
            for path in paths:
                with contextlib.suppress(OSError):
                    path.unlink()

    def remove(self) -> None:
        """Remove the whole directory; for private ones."""
        shutil.rmtree(self.root, ignore_errors=True)


def _lock(number: int, deadline_s: float) -> bool:
    try:
        return wait_for_lock(number, deadline_s - time.monotonic())
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True
