"""Temporary folders, and removing those of killed processes: operands for a measuring process may be gigabytes.

A folder's name contains the id and the start time of its process, and the id of the system on which both are valid. When a
process makes its first folder, folders of processes that have certainly ended are removed.
"""

import contextlib
import os
import re
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from tensorwise.ids import content_id
from tensorwise.toolchain.places import boot_id

_NAME: Final = re.compile(r"tensorwise-[a-z]+-(?P<system>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+)-")


def scratch_prefix(what: str) -> str:
    """Return what names of this process's temporary folders begin with; ``what`` is in them, a word of small letters."""
    _sweep_once()
    start = _start_of(os.getpid())
    if start is None or not _system():  # it could not be proved to be gone
        return f"tensorwise-{what}-"
    return f"tensorwise-{what}-{_system()}-{os.getpid()}-{start}-"


@cache
def _system() -> str:
    """Which processes the numbers are of: those of one boot and one container. Empty where that cannot be told."""
    try:
        return content_id([boot_id(), os.readlink("/proc/self/ns/pid")])[:8] if boot_id() else ""
    except OSError:
        return ""


def _start_of(pid: int) -> str | None:
    """When a process started, as its system counts; or None. ``self/..``: emulators make up a process's own file."""
    try:
        return Path(f"/proc/self/../{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


@cache
def _sweep_once() -> None:
    sweep(Path(tempfile.gettempdir()))


def sweep(folder: Path) -> None:
    """Remove the temporary folders in ``folder`` that processes of this user and system left which are gone."""
    if not _system() or _start_of(os.getpid()) is None:
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            named = _NAME.match(entry.name)
            if (
                named is None
                or named["system"] != _system()
                or _start_of(int(named["pid"])) == named["start"]
            ):
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                    shutil.rmtree(entry.path, ignore_errors=True)
