"""Store: the append-only home of records, one file that many processes may share.

A batch is appended in one transaction: after a kill at any moment it is there wholly or not at all, and
what was reported as appended is there. (A power cut may cost the last batches, never the file.)
The file must lie on a local disk: its write-ahead log needs memory shared among its users.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, final

from tensorwise.device.device import Status
from tensorwise.errors import InputError, StoreError
from tensorwise.reading import user_path
from tensorwise.store.finished import FinishedJobs, JobRecords
from tensorwise.store.lines import read_lines, write_lines
from tensorwise.store.record import COLUMNS, Record
from tensorwise.store.sqlite import BUSY_S, INSERT, CorruptStoreError, Database
from tensorwise.system import wait_for_lock

__all__ = ["CorruptStoreError", "Store", "default_path"]

PAGE = 1000
"""Records read or imported at a time: nothing stays locked while a caller works on them."""


def default_path() -> Path:
    """Return the store used when none is named: TENSORWISE_STORE, else a file in the user's data folder."""
    if named := os.environ.get("TENSORWISE_STORE"):
        return user_path(named)
    import platformdirs  # not needed when a path is named

    return Path(platformdirs.user_data_dir("tensorwise")) / "records.sqlite"


@final
class Store:
    """Appends, finds and hands out Records. There is no way to change or remove one.

    May be used by several threads, and across ``fork``: each process opens the file for itself.

    Args:
        path: the file; made if absent, with its folders. Default: ``default_path()``.

    Attributes:
        path: absolute path of the file.
        moved_aside: where ``open_or_move_aside`` put a damaged file; None if it was sound.

    Raises:
        StoreError: (on opening, and from every method) the file cannot be read or written, is locked
            by another process for 30 s, or was written by a newer version.
        CorruptStoreError: the file is damaged or no database. It is left as it is.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(os.path.abspath(user_path(path) if path is not None else default_path()))
        self.moved_aside: Path | None = None
        self._database = Database(self.path)
        self._finished = FinishedJobs()
        self._finished_until = 0
        """Number of the last record whose job is among them."""

    @classmethod
    def open_or_move_aside(cls, path: str | os.PathLike[str] | None = None) -> "Store":
        """Open a store; rename a damaged file to ``<name>.broken-<time>`` and begin a new one.

        Nothing is deleted; ``moved_aside`` says where the old file is. The whole file is read to find
        damage (some seconds for 100,000 records). One that is locked, newer, not writable or another
        program's still raises StoreError.
        """
        with contextlib.suppress(CorruptStoreError):
            return cls._checked(path)
        damaged = Path(os.path.abspath(user_path(path) if path is not None else default_path()))
        with exclusive(damaged.with_name(damaged.name + ".lock")):
            with contextlib.suppress(CorruptStoreError):
                return cls._checked(path)  # another process was faster
            aside = damaged.with_name(f"{damaged.name}.broken-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
            for suffix in ("-wal", "-shm", ""):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(f"{damaged}{suffix}", f"{aside}{suffix}")
            store = cls(damaged)
            store.moved_aside = aside
            return store

    @classmethod
    def _checked(cls, path: str | os.PathLike[str] | None) -> "Store":
        store = cls(path)
        try:
            store.check()
        except BaseException:
            store.close()
            raise
        return store

    def append(self, records: Iterable[Record]) -> int:
        """Append a batch in one transaction and return how many of the records were new.

        A record that is already there (same content id) is skipped, so a retry does no harm.
        """
        rows = [record.to_row() for record in records]
        if not rows:
            return 0
        with self._database.transaction() as connection:
            before = connection.total_changes
            connection.executemany(INSERT, rows)
            return connection.total_changes - before

    def query(
        self,
        workload_id: str | None = None,
        device_id: str | None = None,
        space: str | None = None,
        status: Status | None = None,
    ) -> list[Record]:
        """Return the records that agree with every filter given, oldest first."""
        return list(self.records(workload_id, device_id, space, status))

    def records(
        self,
        workload_id: str | None = None,
        device_id: str | None = None,
        space: str | None = None,
        status: Status | None = None,
    ) -> Iterator[Record]:
        """Yield what ``query`` returns, a page at a time; records appended meanwhile may be among them."""
        where, values = _where(workload_id, device_id, space, status)
        last = 0
        while True:
            rows = self._database.fetch_rows(
                f"SELECT n, {', '.join(COLUMNS)} FROM records WHERE n > ? {where} ORDER BY n LIMIT {PAGE}",
                (last, *values),
            )
            for row in rows:
                yield self._record(row)
            if len(rows) < PAGE:
                return
            last = int(str(rows[-1][0]))

    def count(
        self,
        workload_id: str | None = None,
        device_id: str | None = None,
        space: str | None = None,
        status: Status | None = None,
    ) -> int:
        """Return the number of records that agree with every filter given."""
        where, values = _where(workload_id, device_id, space, status)
        rows = self._database.fetch_rows(f"SELECT count(*) FROM records WHERE n > 0 {where}", values)
        return int(str(rows[0][0]))

    def jobs(self) -> set[tuple[str, str]]:
        """Return (job, device id) of all jobs of collections that have records here (see ``collect.job``)."""
        return set(self.finished().pairs)

    def finished(self) -> FinishedJobs:
        """Return the jobs that have records here. The object is the store's own, and is updated by later calls."""
        self._read_finished(self._database.fetch_rows)
        return self._finished

    def append_all(self, records: Iterable[Record]) -> int:
        """Append any number of records, a page in a transaction, and return how many were new."""
        rest = iter(records)
        new = 0
        while page := list(itertools.islice(rest, PAGE)):
            new += self.append(page)
        return new

    def append_jobs(self, results: Sequence[JobRecords], *, anywhere: bool = False) -> list[JobRecords]:
        """Append the records of whole jobs in one transaction and return those that were not there yet.

        Of several results for one job the first stays: a job that already has records of the same device, or with
        ``anywhere`` of any device, is left out, whichever process appended them.
        """
        with self._database.transaction() as connection:
            self._read_finished(lambda sql, values: connection.execute(sql, values).fetchall())
            new = self._finished.choose_new(results, anywhere=anywhere)
            connection.executemany(INSERT, [record.to_row() for one in new for record in one.records])
        return new

    def _read_finished(self, read: Callable[[str, Sequence[object]], list[tuple[object, ...]]]) -> None:
        """Read which jobs were appended since the last time."""
        rows = read(
            "SELECT json_extract(provenance, '$.job'), device_id, max(n) FROM records WHERE n > ? GROUP BY 1, 2",
            (self._finished_until,),
        )
        self._finished.add((str(job), str(device)) for job, device, _ in rows if job is not None)
        self._finished_until = max([self._finished_until, *(int(str(last)) for _, _, last in rows)])

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def __len__(self) -> int:
        return self.count()

    def check(self) -> None:
        """Read the whole file; raise CorruptStoreError if SQLite or any record's content id objects."""
        problems = [str(row[0]) for row in self._database.fetch_rows("PRAGMA quick_check(3)")]
        if problems != ["ok"]:
            raise CorruptStoreError(
                f"the store {self.path} is damaged ({'; '.join(problems)}); see Store.open_or_move_aside"
            )
        for _ in self:
            pass

    def export(self, path: str | os.PathLike[str]) -> int:
        """Write all records to ``path`` as JSON lines, oldest first, and return how many.

        The file appears under its name only when it is complete.
        """
        return write_lines(self._other_file(path), self)

    def import_(self, path: str | os.PathLike[str]) -> int:
        """Append the records of a file that ``export`` wrote and return how many were new.

        Raises:
            InputError: the file cannot be read, or a line is malformed; what was imported before stays,
                and importing the mended file adds only the rest.
        """
        return self.append_all(read_lines(self._other_file(path)))

    def close(self) -> None:
        """Close the file. May be called twice; any later use raises StoreError."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def _record(self, row: tuple[object, ...]) -> Record:
        try:
            return Record.from_row(row[1:])
        except InputError as error:
            raise CorruptStoreError(
                f"record number {row[0]} of the store {self.path} is damaged: {error}; "
                "see Store.open_or_move_aside"
            ) from error

    def _other_file(self, path: str | os.PathLike[str]) -> Path:
        """Return ``path``, refusing the store's own files: opening them would drop SQLite's locks."""
        other = user_path(path)
        own = [Path(f"{self.path}{suffix}") for suffix in ("", "-wal", "-shm")]
        if any(mine.exists() and other.exists() and mine.samefile(other) for mine in own):
            raise InputError(f"{other} is the store itself; name a file of JSON lines")
        return other


def _where(
    workload_id: str | None, device_id: str | None, space: str | None, status: str | None
) -> tuple[str, list[str]]:
    filters = {"workload_id": workload_id, "device_id": device_id, "space": space, "status": status}
    given = {column: value for column, value in filters.items() if value is not None}
    return "".join(f" AND {column} = ?" for column in given), list(given.values())


@contextlib.contextmanager
def exclusive(path: Path, wait_s: float = BUSY_S) -> Iterator[None]:
    """Hold a lock that the system releases when this process ends, however it ends.

    Raises:
        StoreError: another process has held it for ``wait_s``.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not wait_for_lock(descriptor, wait_s):
            raise StoreError(f"{path} has been locked by another process for {wait_s:.0f} s")
        yield
    finally:
        os.close(descriptor)
