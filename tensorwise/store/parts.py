"""PartStore: a folder of Parquet files to which many processes append, on one machine or over a shared file system.

    data/NAME.parquet      a part: the records of some jobs, written once
    log/000000000017.json  a commit: {"part": NAME, "size": BYTES, "records": N, "jobs": [[JOB, DEVICE, RECORDS], ...]},
                           and "replaces": [NAME, ...] where the part holds the records of others

A part counts when a commit names it, so that no unfinished file is ever read. Commits are numbered without gaps. A
number is taken by ``link``, which fails where another process took it first: this puts all commits into one order
without locks and clocks. Before a process takes a number it has read all earlier commits, and leaves out the jobs in
them: a job has the records of one result, the first. Delta Lake and Iceberg commit in the same way.
"""

import contextlib
import errno
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from tensorwise.errors import InputError, StoreError
from tensorwise.reading import parse_dataclass, parse_json, printable, reason, shown, user_path
from tensorwise.store.finished import FinishedJobs, JobRecords
from tensorwise.store.parquet import SUFFIX, read_records, write_records, write_rows
from tensorwise.store.record import Record
from tensorwise.store.sqlite import CorruptStoreError
from tensorwise.system import open_flags
from tensorwise.writing import replacing

FOLDER_SUFFIX: Final = ".parts"
"""Suffix of a new PartStore's folder, which distinguishes its path from that of a Store."""
COMPACT_RECORDS: Final = 200_000
"""Records of a merged part: while it is written they take about 0.5 GB of memory."""
ORPHAN_S: Final = 86_400.0
"""A file that no commit names is removed after a day: no commit takes so long."""
_NAME: Final = re.compile(r"[0-9a-f]{32}\.parquet")
_VISIBLE_S: Final = 30.0
"""Seconds that a commit of another machine may take to become visible on a network file system."""


@dataclass(frozen=True)
class Commit:
    """What an entry of the log says.

    Attributes:
        part: name of the file; size: its bytes; records: how many it has.
        jobs: (job, device id, records) of the jobs that this commit added.
        replaces: names of parts whose records this part holds.
    """

    part: str
    size: int
    records: int
    jobs: tuple[tuple[str, str, int], ...] = ()
    replaces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (self.part, *self.replaces):
            if not _NAME.fullmatch(name):
                raise InputError(
                    f"a part is a file such as 0a1b...{SUFFIX} in the folder data, got {shown(name)}"
                )


@final
class PartStore:
    """A folder of records, to which any number of processes and machines may append at the same time.

    Appending costs one file of data and one of the log, whatever the number of jobs. One object is used by one thread.

    Args:
        path: the folder, made if absent. The file system must have hard links, as local ones, NFS and Lustre do.

    Raises:
        StoreError: (on opening, and from every method) the folder cannot be read or written.
        CorruptStoreError: an entry of the log is malformed, or the size of its data file is not the one that it states.
        MissingExtraError: (when records are read or appended) pyarrow is not installed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = user_path(path).absolute()
        self._data, self._log = self.path / "data", self.path / "log"
        self._next = 0
        self._parts: dict[str, Commit] = {}
        self._replaced: set[str] = set()
        self._finished = FinishedJobs()
        try:
            for folder in (self._data, self._log):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{printable(str(self.path))}: cannot be made a folder of records ({reason(error)})"
            ) from error

    def finished(self) -> FinishedJobs:
        """Return the jobs that have records here. The object is the store's own, and is updated by later calls."""
        self._read_log()
        return self._finished

    def jobs(self) -> set[tuple[str, str]]:
        """Return (job, device id) of all jobs that have records here."""
        return set(self.finished().pairs)

    def append_jobs(self, results: Sequence[JobRecords], *, anywhere: bool = False) -> list[JobRecords]:
        """Append the records of whole jobs as one part and return those that were not there yet.

        When this returns the records are on the disk. Of several results for one job the first stays: a job that already
        has records of the same device, or with ``anywhere`` of any device, is left out, whichever process appended them.
        """
        written: list[JobRecords] = []
        commit = None
        while True:
            self._read_log()
            new = self._finished.choose_new(results, anywhere=anywhere)
            if not new:
                self._discard(commit)
                return []
            if commit is None or new != written:  # another process was faster with some of them
                self._discard(commit)
                commit, written = self._write(new), new
            if self._take_number(commit):
                self._read_log()
                return new

    def records(self) -> Iterator[Record]:
        """Yield all records, in the order of their commits."""
        self._read_log()
        for commit in list(self._parts.values()):
            yield from self._read_part(commit)

    def _read_part(self, commit: Commit) -> Iterator[Record]:
        """Yield the records of a part."""
        path = self._data / commit.part
        mend = "restore it from a copy, or measure its jobs again into another folder"
        try:
            size = path.stat().st_size
            if size != commit.size:
                raise CorruptStoreError(
                    f"{printable(str(path))}: has {size} bytes, and had {commit.size} when it was written; {mend}"
                )
            yield from read_records(path)
        except FileNotFoundError as error:
            raise StoreError(
                f"{printable(str(path))}: is gone; if the folder was compacted twice meanwhile, read it again"
            ) from error
        except InputError as error:
            raise CorruptStoreError(f"{error}; {mend}") from error

    @property
    def num_parts(self) -> int:
        """Number of files that hold the records, as of now."""
        self._read_log()
        return len(self._parts)

    @property
    def num_bytes(self) -> int:
        """Total size of these files."""
        self._read_log()
        return sum(commit.size for commit in self._parts.values())

    def compact(
        self,
        most_records: int = COMPACT_RECORDS,
        observe: Callable[[int, int], None] = lambda done, total: None,
    ) -> int:
        """Merge small parts into parts of up to ``most_records``; return how many parts were merged.

        May be done while others append and read. Files that an earlier call replaced are removed, and files that were
        written but never committed. A merged part has a column for each choice of the configs (see ``parquet``).
        May be interrupted: what is merged by then stays.

        Args:
            most_records: of a merged part.
            observe: called with (parts merged, parts to merge) after each merged part.

        Raises:
            CorruptStoreError: a part is damaged; what is merged by then stays.
        """
        self._read_log()
        self._remove_unused()
        merged = 0
        groups = list(self._groups(most_records))
        total = sum(map(len, groups))
        for names in groups:
            target = self._data / f"{secrets.token_hex(16)}{SUFFIX}"
            parts = [self._parts[name] for name in names if name in self._parts]
            if len(parts) < len(names):  # another process merged them
                continue
            count = write_records(target, (one for part in parts for one in self._read_part(part)))
            commit = Commit(target.name, target.stat().st_size, count, (), tuple(names))
            while True:
                self._read_log()
                if any(name in self._replaced for name in names):  # another process merged them
                    self._discard(commit)
                    break
                if self._take_number(commit):
                    merged += len(names)
                    observe(merged, total)
                    break
        self._read_log()
        return merged

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def __len__(self) -> int:
        self._read_log()
        return sum(commit.records for commit in self._parts.values())

    def close(self) -> None:
        """Do nothing: no file is open between calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PartStore({str(self.path)!r})"

    def _write(self, results: Sequence[JobRecords]) -> Commit:
        """Write a part that no commit names yet."""
        path = self._data / f"{secrets.token_hex(16)}{SUFFIX}"
        rows = [record.to_row() for one in results for record in one.records]
        try:
            write_rows(path, rows)
            _sync(self._data)
            size = path.stat().st_size
        except (OSError, InputError) as error:
            raise StoreError(
                f"{printable(str(self.path))}: records cannot be appended: {reason(error)}; mend it and begin again"
            ) from error
        jobs = tuple((one.job, one.device, len(one.records)) for one in results)
        return Commit(path.name, size, len(rows), jobs)

    def _take_number(self, commit: Commit) -> bool:
        """Append to the log, unless the next number is taken."""
        entry = self._entry(self._next)
        facts = {name: value for name, value in vars(commit).items() if value != ()}
        unfinished = self._log / f".{secrets.token_hex(8)}.tmp"
        try:
            with replacing(unfinished) as file:
                file.write(json.dumps(facts, separators=(",", ":")).encode())
            with contextlib.suppress(FileExistsError):
                os.link(unfinished, entry)
            # The answer to ``link`` may be lost on a network: what counts is whose file has the name.
            mine = os.stat(unfinished).st_nlink == 2
            _sync(self._log)
        except OSError as error:
            raise StoreError(f"{printable(str(entry))}: cannot be committed ({reason(error)})") from error
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink()
        if not mine:
            self._wait_for(entry)
        return mine

    def _wait_for(self, entry: Path) -> None:
        """Wait until a commit of another machine is visible here."""
        until = time.monotonic() + _VISIBLE_S
        while not entry.exists():
            if time.monotonic() > until:
                raise StoreError(
                    f"{printable(str(entry))}: is taken, and cannot be seen after {_VISIBLE_S:g} s; try again"
                )
            os.listdir(self._log)  # has network file systems look again
            time.sleep(0.05)

    def _read_log(self) -> None:
        """Read the commits since the last time."""
        while True:
            entry = self._entry(self._next)
            try:
                text = entry.read_bytes()
            except FileNotFoundError:
                return
            except OSError as error:
                raise StoreError(f"{printable(str(entry))}: cannot be read ({reason(error)})") from error
            try:
                commit = parse_dataclass(Commit, parse_json(text, "no commit"), "commit")
            except InputError as error:
                raise CorruptStoreError(
                    f"{printable(str(entry))}: {error}; restore it from a copy"
                ) from error
            self._parts[commit.part] = commit
            for name in commit.replaces:
                self._parts.pop(name, None)
                self._replaced.add(name)
            self._finished.add((job, device) for job, device, _ in commit.jobs)
            self._next += 1

    def _entry(self, number: int) -> Path:
        return self._log / f"{number:012}.json"

    def _groups(self, most_records: int) -> Iterator[list[str]]:
        """Yield the names of parts that are merged into one."""
        group: list[str] = []
        size = 0
        for name, commit in list(self._parts.items()):
            if size + commit.records > most_records:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(name)
            size += commit.records
        if len(group) > 1:
            yield group

    def _remove_unused(self) -> None:
        """Remove files that were replaced, and old ones that were never committed."""
        for path in [*self._data.iterdir(), *self._log.glob(".*")]:
            with contextlib.suppress(FileNotFoundError):
                old = time.time() - path.stat().st_mtime > ORPHAN_S
                if path.name in self._replaced or (old and path.name not in self._parts):
                    path.unlink()

    def _discard(self, commit: Commit | None) -> None:
        if commit is not None:
            with contextlib.suppress(OSError):
                (self._data / commit.part).unlink()


def is_part_store(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a PartStore: by its suffix, or by what is there."""
    place = user_path(path)
    return place.suffix == FOLDER_SUFFIX or (place / "log").is_dir()


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | open_flags("DIRECTORY"))
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems have no such thing
            raise
    finally:
        os.close(descriptor)
