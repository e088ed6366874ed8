"""Store: append-only, shared, and honest about damage."""

import contextlib
import os
import resource
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tensorwise.errors import InputError, StoreError
from tensorwise.front.cli import app
from tensorwise.store import sqlite as database
from tensorwise.store.sqlite import APPLICATION_ID
from tensorwise.store.store import PAGE, CorruptStoreError, Store, default_path
from tests.unit.store.examples import record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "records.sqlite"


def raw(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def test_append_query_count(path: Path) -> None:
    with Store(path) as store:
        assert len(store) == 0
        records = [record(n) for n in range(5)]
        assert store.append(records) == 5
        assert store.append([]) == 0
        assert list(store) == records
        store.append([record(9, workload_id="w2"), record(9, device_id="d2"), record(9, space="s2")])
        store.append([record(10, status="crash", seconds=float("inf"), note="boom")])
        assert store.count() == len(store) == 9
        assert store.count(workload_id="w2") == store.count(device_id="d2") == store.count(space="s2") == 1
        assert [r.note for r in store.query(status="crash")] == ["boom"]
        assert store.query("w2", "d2") == []
    with Store(path) as store:
        assert store.query(space="garden")[:5] == records


def test_a_retry_does_not_double(path: Path) -> None:
    with Store(path) as store:
        assert store.append([record(1), record(1), record(2)]) == 2
        assert store.append([record(1), record(3)]) == 1
        assert len(store) == 3


def test_more_than_a_page(path: Path) -> None:
    with Store(path) as store:
        store.append(record(n) for n in range(2 * PAGE + 1))
        assert [r.config["n"] for r in store] == list(range(2 * PAGE + 1))


def test_a_batch_is_kept_wholly_or_not_at_all(path: Path) -> None:
    def failing() -> object:
        yield record(1)
        raise RuntimeError("half-way")

    with Store(path) as store:
        with pytest.raises(RuntimeError):
            store.append(failing())  # type: ignore[arg-type]
        assert len(store) == 0
        with contextlib.suppress(ZeroDivisionError), store._database.transaction() as connection:
            connection.execute(database.INSERT, record(1).to_row())
            raise ZeroDivisionError
        assert len(store) == 0
        store.append([record(1)])


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM records",
        "UPDATE records SET seconds = 0",
        "INSERT OR REPLACE INTO records SELECT * FROM records",
    ],
)
def test_records_cannot_be_changed_or_removed(path: Path, sql: str) -> None:
    with Store(path) as store:
        store.append([record(1)])
        with pytest.raises(StoreError, match="append-only"), store._database.transaction() as connection:
            connection.execute(sql)
        assert store.query() == [record(1)]


def test_a_newer_store_is_left_alone(path: Path) -> None:
    Store(path).close()
    with raw(path) as other:
        other.execute("PRAGMA user_version = 99")
    for opening in (Store, Store.open_or_move_aside):
        with pytest.raises(StoreError, match=r"newer Tensorwise \(schema 99.*upgrade"):
            opening(path)
    assert raw(path).execute("PRAGMA user_version").fetchone() == (99,)


def test_schema_version_is_written_down(path: Path) -> None:
    Store(path).close()
    connection = raw(path)
    assert connection.execute("SELECT version FROM schema_version").fetchall() == [(database.SCHEMA,)]
    assert connection.execute("PRAGMA user_version").fetchone() == (database.SCHEMA,)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.sqlite"
    with raw(path) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    for opening in (Store, Store.open_or_move_aside):
        with pytest.raises(StoreError, match="another program"):
            opening(path)
    assert path.read_bytes() == before


# -- damage ------------------------------------------------------------------------------------------


def filled(path: Path, count: int = 300) -> None:
    with Store(path) as store:
        store.append(record(n) for n in range(count))


def test_garbage_is_named_with_a_way_out_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    path.write_bytes(b"this is not a database, by any means" * 100)
    before = path.read_bytes()
    with pytest.raises(CorruptStoreError, match=r"records\.sqlite is damaged.*move it aside"):
        Store(path)
    assert path.read_bytes() == before
    with Store.open_or_move_aside(path) as store:
        assert store.moved_aside is not None
        assert store.moved_aside.read_bytes() == before
        assert store.append([record(1)]) == 1
    with Store.open_or_move_aside(path) as store:
        assert store.moved_aside is None
        assert len(store) == 1


@pytest.mark.parametrize("keep", [0.3, 0.7])
def test_a_truncated_file_is_reported(path: Path, keep: float) -> None:
    filled(path)
    os.truncate(path, int(path.stat().st_size * keep))
    with pytest.raises(CorruptStoreError), Store(path) as store:
        store.check()
    with Store.open_or_move_aside(path) as store:
        assert store.moved_aside is not None
        assert len(store) == 0


def test_no_flipped_byte_goes_unnoticed(path: Path) -> None:
    """Flip bytes all over the file: either a StoreError, or exactly the records that were written."""
    filled(path, 40)
    wanted = [record(n) for n in range(40)]
    sound = path.read_bytes()
    noticed = 0
    for position in range(0, len(sound), 97):
        damaged = bytearray(sound)
        damaged[position] ^= 0x15
        path.write_bytes(damaged)
        try:
            with Store(path) as store:
                found = store.query()
            assert all(one in wanted for one in found)
            assert found == sorted(found, key=lambda one: int(str(one.config["n"])))
        except StoreError:
            noticed += 1
    assert noticed > 50


def test_a_missing_table_is_damage(path: Path) -> None:
    Store(path).close()
    with raw(path) as other:
        other.execute("DROP TABLE records")
    with pytest.raises(CorruptStoreError, match="no such table"), Store(path) as store:
        store.count()


# -- places that cannot be written -------------------------------------------------------------------


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(tmp_path / "file" / "records.sqlite")
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(tmp_path)  # a folder


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="writable"):
        Store(tmp_path / "records.sqlite")


def test_a_store_without_write_permission_for_another_user(path: Path) -> None:
    """Checked in a child without privileges, so that it also runs as root."""
    filled(path, 3)
    if os.geteuid() != 0:
        pytest.skip("needs to become another user")
    for folder in (path.parent, *path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/") and "pytest" in str(folder):
            folder.chmod(0o755)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            try:
                with Store(path) as store:
                    store.append([record(9)])
            except StoreError as error:
                code = 0 if "writable" in str(error) else 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with Store(path) as store:
        assert len(store) == 3


def test_a_full_disk_keeps_nothing_of_the_batch(path: Path) -> None:
    filled(path, 50)
    store = Store(path)
    store._database._connect().execute("PRAGMA max_page_count = 30")
    with pytest.raises(StoreError, match=r"could not be written.*nothing of this batch was kept"):
        store.append(record(n) for n in range(100, 2000))
    assert store.append([record(2000)]) == 1  # a new connection, without the limit
    assert len(store) == 51
    store.check()


def test_a_file_size_limit_keeps_nothing_of_the_batch(path: Path) -> None:
    filled(path, 20)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
            store = Store(path)
            try:
                store.append(record(n) for n in range(100, 3000))
            except StoreError as error:
                code = 2 if "nothing of this batch" in str(error) else 3
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            if code == 2 and len(store) == 20 and store.append([record(3000)]) == 1:
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with Store(path) as store:
        store.check()
        assert len(store) == 21


# -- many users --------------------------------------------------------------------------------------

WRITER = """
import sys
from tensorwise.store.store import Store
from tests.unit.store.examples import record
path, first, batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with Store(path) as store:
    for batch in range(batches):
        store.append(record(first + 3 * batch + k) for k in range(3))
"""


def test_processes_write_at_once(path: Path) -> None:
    """They also make the file at once."""
    root = Path(__file__).parents[3]
    children = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(1000 * k), "20"], cwd=root)
        for k in range(4)
    ]
    assert [child.wait(120) for child in children] == [0] * 4
    with Store(path) as store:
        store.check()
        numbers = [int(str(r.config["n"])) for r in store]
        assert sorted(numbers) == [1000 * k + n for k in range(4) for n in range(60)]


def test_threads_write_at_once(path: Path) -> None:
    with Store(path) as store:
        threads = [
            threading.Thread(target=lambda k=k: [store.append([record(100 * k + n)]) for n in range(20)])
            for k in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store) == 80


def test_a_store_survives_forks(path: Path) -> None:
    store = Store(path)
    store.append([record(0)])
    children = []
    for k in range(1, 4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = (
                    0 if store.append([record(10 * k + n) for n in range(5)]) == 5 and len(store) > 5 else 1
                )
            finally:
                os._exit(code)
        children.append(child)
        store.append([record(100 + k)])
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 3
    assert len(store) == 1 + 3 + 15
    store.check()


def test_forks_while_threads_write(path: Path) -> None:
    store = Store(path)
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            store.append([record(n)])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for k in range(10):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = 0 if store.append([record(-1 - k)]) == 1 else 1
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()
    store.check()
    assert sum(int(str(r.config["n"])) < 0 for r in store) == 10


def test_a_busy_store_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.1)
    with Store(path) as store:
        other = raw(path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="busy: another process"):
            store.append([record(1)])
        assert len(store) == 0  # readers do not wait
        other.execute("COMMIT")
        assert store.append([record(1)]) == 1


def test_moving_aside_happens_once(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    path.write_bytes(b"broken" * 1000)
    stores: list[Store] = []
    threads = [
        threading.Thread(target=lambda: stores.append(Store.open_or_move_aside(path))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(store.moved_aside is not None for store in stores) == 1
    assert len(list(tmp_path.glob("records.sqlite.broken-*"))) == 1


# -- files and places --------------------------------------------------------------------------------


def test_export_and_import(tmp_path: Path) -> None:
    lines = tmp_path / "records.jsonl"
    with Store(tmp_path / "a.sqlite") as a, Store(tmp_path / "b.sqlite") as b:
        a.append(record(n) for n in range(PAGE + 5))
        b.append([record(3), record(-1)])
        assert a.export(lines) == PAGE + 5
        assert b.import_(lines) == PAGE + 4
        assert b.import_(lines) == 0
        assert set(a) < set(b)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_malformed_line_is_named_and_import_can_go_on(tmp_path: Path) -> None:
    lines = tmp_path / "records.jsonl"
    good = [record(n).to_json() for n in range(3)]
    lines.write_text("\n".join([good[0], "", good[1].replace("0.1", "0.2"), good[2]]))
    with Store(tmp_path / "s.sqlite") as store:
        with pytest.raises(InputError, match=r"records\.jsonl, line 3: record .* does not have the content"):
            store.import_(lines)
        lines.write_text("\n".join(good))
        store.import_(lines)
        assert len(store) == 3


ENDLESS = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"


@pytest.mark.parametrize(
    ("name", "statements"),
    [
        ("view 'records'", ["DROP TABLE records", f"CREATE VIEW records AS {ENDLESS} SELECT n FROM r WHERE n < 0"]),
        ("view 'other'", [f"CREATE VIEW other AS {ENDLESS} SELECT n FROM r"]),
        (
            "trigger 'more'",
            [
                f"CREATE TRIGGER more AFTER INSERT ON records BEGIN INSERT INTO schema_version (version) {ENDLESS} "
                "SELECT n FROM r; END"
            ],
        ),
        (
            "trigger 'records_no_update'",
            [
                "DROP TRIGGER records_no_update",
                "CREATE TRIGGER records_no_update BEFORE INSERT ON records BEGIN SELECT RAISE(IGNORE); END",
            ],
        ),
        ("table 'records'", ["ALTER TABLE records ADD COLUMN more AS (hex(zeroblob(400000000)))"]),
        ("table 'records'", ["DROP TABLE records", "CREATE TABLE records (n INTEGER PRIMARY KEY, id TEXT)"]),
        ("table 'records'", ["DROP TABLE records", "CREATE VIRTUAL TABLE records USING fts5(id)"]),
        ("table 'Records'", ["DROP TABLE records", "CREATE TABLE Records (n, id)"]),
        ("index 'schema_version'", ["DROP TABLE schema_version", "CREATE INDEX schema_version ON records (1)"]),
    ],
)  # fmt: skip
def test_a_file_that_would_compute_something_is_no_store(
    path: Path, name: str, statements: list[str]
) -> None:
    filled(path, 3)
    with contextlib.closing(raw(path)) as other:
        for statement in statements:
            try:
                other.execute(statement)
            except sqlite3.OperationalError as error:
                if "no such module" in str(error):
                    pytest.skip("this SQLite has no such tables")
                raise
        other.commit()
    for opening in (Store, Store.open_or_move_aside):
        with pytest.raises(
            StoreError, match=f"is no store of records: its {name} is not one that Tensorwise makes"
        ):
            opening(path)
    assert not list(path.parent.glob("*.broken-*"))


def test_what_others_add_and_do_not_compute_is_no_matter(path: Path) -> None:
    filled(path, 3)
    with contextlib.closing(raw(path)) as other:
        other.execute("CREATE TABLE notes (text TEXT)")
        other.execute("CREATE INDEX records_by_space ON records (space)")
        other.execute("ANALYZE")
        other.commit()
        other.execute("VACUUM")
    with Store(path) as store:
        store.check()
        assert len(store) == 3


def test_a_query_ends_when_it_is_interrupted(tmp_path: Path) -> None:
    script = f"""
import signal, sys
from tensorwise.store.store import Store
with Store(sys.argv[1]) as store:
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for _ in range(2):
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            store._database.fetch_rows("{ENDLESS} SELECT count(*) FROM r")
        except KeyboardInterrupt:
            assert len(store) == 0
            print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "s.sqlite"], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "interrupted\ninterrupted\n", done.stderr


def test_a_store_is_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place, kind in (
        (tmp_path / "pipe", "a pipe"),
        (Path("/dev/zero"), "a device"),
        (tmp_path, "a folder"),
    ):
        with pytest.raises(StoreError, match=f"cannot be opened: it is {kind}; expected a regular file"):
            Store(place)
    with (
        Store(tmp_path / "s.sqlite") as store,
        pytest.raises(InputError, match=r"cannot be read .* it is a pipe"),
    ):
        store.import_(tmp_path / "pipe")
    told = CliRunner().invoke(
        app, ["store", "--store", str(tmp_path / "s.sqlite"), "import", str(tmp_path / "pipe")]
    )
    assert told.exit_code == 1
    assert "pipe: is no regular file; expected a file that" in told.stderr


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.append([record(1)])
        with pytest.raises(InputError, match="cannot be read"):
            store.import_(tmp_path / "absent.jsonl")
        with pytest.raises(StoreError, match="cannot be written"):
            store.export(tmp_path / "absent" / "out.jsonl")
        for own in (store.path, Path(f"{store.path}-wal")):
            with pytest.raises(InputError, match="the store itself"):
                store.export(own)
            with pytest.raises(InputError, match="the store itself"):
                store.import_(own)
        (tmp_path / "binary").write_bytes(bytes(range(256)))
        with pytest.raises(InputError):
            store.import_(tmp_path / "binary")
        assert len(store) == 1


def test_default_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORWISE_STORE", str(tmp_path / "mine.sqlite"))
    assert default_path() == tmp_path / "mine.sqlite"
    with Store() as store:
        assert store.path == tmp_path / "mine.sqlite"
    monkeypatch.delenv("TENSORWISE_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "tensorwise" / "records.sqlite"


def test_the_path_does_not_follow_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("file:odd?name=x.sqlite") as store:
        monkeypatch.chdir("/")
        store._database.disconnect()
        assert store.append([record(1)]) == 1
        assert store.path == tmp_path / "file:odd?name=x.sqlite"
        assert store.path.exists()


def test_closed_is_closed(path: Path) -> None:
    store = Store(path)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.append([record(1)])


def test_opening_waits_for_nobody(path: Path) -> None:
    filled(path, 3)
    other = raw(path)
    other.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    with Store(path) as store:
        assert len(store) == 3
    assert time.monotonic() - started < database.BUSY_S / 2
    other.execute("ROLLBACK")


def test_processes_make_the_file_at_once(tmp_path: Path) -> None:
    """A process that looks while another one makes the tables sees none or all of them."""
    for attempt in range(25):
        path, start = tmp_path / f"{attempt}.sqlite", time.monotonic() + 0.03
        children = []
        for k in range(4):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    time.sleep(max(0.0, start - time.monotonic()))
                    with Store(path) as store:
                        code = 0 if store.append([record(k)]) == 1 else 2
                finally:
                    os._exit(code)
            children.append(child)
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
        with Store(path) as store:
            assert len(store) == 4


def test_a_schema_that_is_no_text_is_a_damaged_store(path: Path) -> None:
    filled(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    data = path.read_bytes()
    assert b"CREATE TABLE" in data
    path.write_bytes(data.replace(b"CREATE TABLE", b"CREATE\xa0TABLE"))
    with pytest.raises(StoreError), Store(path) as store:
        store.query()
