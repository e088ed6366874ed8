"""The SQLite file behind a Store: opening, schema, transactions, forks, and errors in plain words.

Rules kept here, each the lesson of a corrupted file somewhere:

* No connection crosses a fork: all are closed before and opened again when needed, in both processes.
* Nothing else opens the file in a process that has a connection to it: closing any descriptor of a file
  drops all POSIX locks that the process holds on it, SQLite's included.
* A file that is damaged, newer than this code, or another program's is never written to.
* Nothing of a file is computed: its tables are those below, without views and triggers of others.
"""

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

from tensorwise.errors import StoreError
from tensorwise.reading import odd_kind, shown
from tensorwise.store.record import COLUMNS
from tensorwise.toolchain.deadline import left_s, waiting
from tensorwise.toolchain.places import private_dir

SCHEMA = 1
"""Version of the tables. A higher one in a file was written by a newer Tensorwise."""

APPLICATION_ID = 0x54575253
"""Marks the file as ours ("TWRS") in SQLite's header."""

BUSY_S = 30.0
"""Seconds to wait for other processes that write."""

TABLES = (
    "CREATE TABLE schema_version (version INTEGER NOT NULL, created TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
    f"INSERT INTO schema_version (version) VALUES ({SCHEMA})",
    """CREATE TABLE records (
        n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, workload_id TEXT NOT NULL, workload TEXT NOT NULL,
        device_id TEXT NOT NULL, space TEXT NOT NULL, config TEXT NOT NULL, seconds REAL,
        spread_s REAL NOT NULL, status TEXT NOT NULL, note TEXT NOT NULL, provenance TEXT NOT NULL)""",
    "CREATE INDEX records_by_workload ON records (workload_id, device_id)",
    *(
        f"""CREATE TRIGGER records_no_{verb.lower()} BEFORE {verb} ON records
        BEGIN SELECT RAISE(ABORT, 'records are append-only'); END"""
        for verb in ("UPDATE", "DELETE")
    ),
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA}",
)

_OBJECTS = (
    "SELECT type, name, sql FROM sqlite_master "
    "WHERE type IN ('view', 'trigger') OR lower(name) IN ('records', 'schema_version')"
)
_STEPS = 100_000
"""Instructions of SQLite's between two looks at whether a signal came: some milliseconds."""

INSERT = (
    f"INSERT INTO records ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "
    "ON CONFLICT (id) DO NOTHING"
)


class CorruptStoreError(StoreError):
    """The file of a store is damaged, or no database at all."""


@final
class Database:
    """One connection per process to the file of a store; any thread may use it, one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.closed = False
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._raised: list[BaseException] = []
        _OPEN.add(self)
        with self._lock, self._explaining():
            self._connect()

    def fetch_rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Return all rows of a query."""
        with self._lock, self._explaining():
            return self._connect().execute(sql, values).fetchall()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block in one transaction: all of it is kept, or nothing."""
        with self._lock, self._explaining():
            connection = self._connect()
            with waiting():
                # wait for the write lock here, where waiting is possible
                connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close for good. May be called twice."""
        with self._lock:
            self.closed = True
            self.disconnect()

    def disconnect(self) -> None:
        """Drop the connection; the next use opens another."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()

    def _connect(self) -> sqlite3.Connection:
        if self.closed:
            raise StoreError(f"the store {self.path} has been closed; open it again with Store(path)")
        if self._connection is None:
            private_dir(self.path.parent)
            with contextlib.suppress(FileExistsError):  # SQLite would let everybody read it
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with contextlib.suppress(FileNotFoundError):  # a link to what is not there yet
                if what := odd_kind(os.stat(self.path)):
                    raise StoreError(
                        f"the store {self.path} cannot be opened: it is {what}; expected a regular file: {_ELSEWHERE}"
                    )
            connection = sqlite3.connect(
                self.path, timeout=left_s(BUSY_S), isolation_level=None, check_same_thread=False
            )
            self._raised.clear()
            handler = _listening(self._raised)
            next(handler)
            connection.set_progress_handler(handler.__next__, _STEPS)
            try:
                _prepare(connection, self.path)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        else:
            self._connection.execute(f"PRAGMA busy_timeout = {int(1000 * left_s(BUSY_S))}")
        return self._connection

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if not _is(error, sqlite3.SQLITE_BUSY):
                self.disconnect()  # whatever state the connection is in, the next one has none of it
            if self._raised:
                raise self._raised.pop() from None
            raise explain(error, self.path) from error
        except UnicodeDecodeError as error:  # SQLite hands on what a damaged file has for text
            self.disconnect()
            raise explain(sqlite3.DatabaseError(f"a text in it is no UTF-8: {error}"), self.path) from error
        except OSError as error:
            raise StoreError(
                f"the store {self.path} cannot be opened: {error.strerror or error}; {_ELSEWHERE}"
            ) from error

    def __reduce__(self) -> str:
        raise TypeError("a store is not sent between processes; send its path")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file; refuse a file that is not ours or newer than this code."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("BEGIN")  # one look at all marks: another process may be making the tables
    new = _is_new(connection, path)
    connection.execute("COMMIT")
    _use_write_ahead_log(connection)
    if new:
        connection.execute("BEGIN IMMEDIATE")
        if _is_new(connection, path):  # no other process was faster
            for statement in TABLES:
                connection.execute(statement)
        connection.execute("COMMIT")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA recursive_triggers = ON")  # INSERT OR REPLACE is a deletion too


def _is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is empty; StoreError if it is not ours. To be called in a transaction."""
    mark, version, tables = (
        int(connection.execute(sql).fetchone()[0])
        for sql in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if mark == 0 and version == 0 and tables == 0:
        return True
    if mark != APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program, not a store of records; {_ELSEWHERE}")
    if version > SCHEMA:
        raise StoreError(
            f"the store {path} was written by a newer Tensorwise (schema {version}, this one knows "
            f"{SCHEMA}); upgrade with: pip install -U tensorwise - or {_ELSEWHERE}"
        )
    _check_objects(connection, path)
    return False


def _check_objects(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError if the file has other tables than ours under their names, or computes anything by itself."""
    for kind, name, sql in connection.execute(_OBJECTS):
        if _plain(sql) not in _OURS:
            raise StoreError(
                f"{path} is no store of records: its {kind} {shown(name)} is not one that Tensorwise makes; {_ELSEWHERE}"
            )


def _plain(sql: object) -> str:
    return " ".join(str(sql).split())


_OURS = frozenset(_plain(sql) for sql in TABLES)


def _listening(raised: list[BaseException]) -> Iterator[int]:
    """Yield 0 to let SQLite continue, and 1 to stop it after a signal's handler raised: Python runs such handlers in here.

    SQLite drops an exception of its progress handler, so that it is caught here and raised again for SQLite's caller.
    """
    try:
        while True:
            yield 0
    except GeneratorExit:
        raise
    except BaseException as error:
        raised.append(error)
        yield 1


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Readers do not wait for writers then. SQLite does not wait by itself while switching to it."""
    deadline = time.monotonic() + left_s(BUSY_S)
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if not _is(error, sqlite3.SQLITE_BUSY) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


_ELSEWHERE = "name another file with TENSORWISE_STORE or --store"


def explain(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the StoreError that says what happened to the store at ``path`` and what to do."""
    if _is(error, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(
            f"the store {path} is busy: another process kept writing to it for all the time that could be waited ({error}); "
            "end that process, or try again"
        )
    if _is(error, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return StoreError(
            f"the store {path} cannot be opened for writing ({error}); make the file and its folder "
            f"writable, or {_ELSEWHERE}"
        )
    if _is(error, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return StoreError(
            f"the store {path} could not be written ({error}); nothing of this batch was kept: make room "
            f"on the disk and try again, or {_ELSEWHERE}"
        )
    if _is(error, sqlite3.SQLITE_CONSTRAINT):
        return StoreError(f"the store {path} refuses the change: {error}")
    return CorruptStoreError(
        f"the store {path} is damaged ({error}); move it aside (also its -wal and -shm files, or use "
        "Store.open_or_move_aside) and measure again, or rescue what is readable with: "
        f"sqlite3 {path} .recover"
    )


def _is(error: sqlite3.Error, *codes: int) -> bool:
    return getattr(error, "sqlite_errorcode", -1) & 0xFF in codes


# -- forks -------------------------------------------------------------------------------------------

_OPEN: "weakref.WeakSet[Database]" = weakref.WeakSet()
_HELD: list[Database] = []


def _before_fork() -> None:
    # one order of locks, so that two threads that fork concurrently cannot deadlock
    held = sorted(_OPEN, key=id)
    for database in held:
        database._lock.acquire()
        database.disconnect()
    _HELD.extend(held)


def _after_fork_in_parent() -> None:
    while _HELD:
        _HELD.pop()._lock.release()


def _after_fork_in_child() -> None:
    for database in _OPEN:
        database._lock = threading.RLock()
    _HELD.clear()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
