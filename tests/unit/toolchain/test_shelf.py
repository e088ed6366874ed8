import errno
import fcntl
import logging
import multiprocessing
import os
import stat
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tensorwise.toolchain.shelf import Shelf, is_whole, seal

KEYS = ["00aa", "01bb", "01cc"]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    shelf = Shelf(tmp_path / "root")
    shelf.publish(b"library" * 100, KEYS)
    return shelf


def test_entries_are_found_whole(shelf: Shelf) -> None:
    for key in KEYS:
        path = shelf.find(key)
        assert path is not None
        assert path.read_bytes() == seal(b"library" * 100)
    assert shelf.find("00ff") is None
    assert not list((shelf.root / "tmp").iterdir())


def test_one_file_under_many_names(shelf: Shelf) -> None:
    ((status, paths),) = shelf.files()
    assert sorted(path.stem for path in paths) == KEYS
    assert status.st_nlink == 3


def test_directories_are_the_users_alone(shelf: Shelf) -> None:
    for path in (shelf.root, shelf.root / "01", shelf.root / "tmp", shelf.root / "locks"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_works_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    shelf = Shelf(tmp_path)
    shelf.publish(b"x", KEYS)
    assert all(shelf.find(key) for key in KEYS)
    assert len(shelf.files()) == 3
    assert not list((shelf.root / "tmp").iterdir())


def test_replacing_an_entry(shelf: Shelf) -> None:
    shelf.publish(b"other", KEYS[:1])
    shelf.publish(b"other", KEYS[:1])
    assert shelf.path(KEYS[0]).read_bytes() == seal(b"other")
    assert shelf.path(KEYS[1]).read_bytes() == seal(b"library" * 100)


def test_any_flipped_bit_is_a_miss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(5)
    content = rng.bytes(3000)
    sealed = seal(content)
    places = {*range(0, len(sealed), 41), *range(len(sealed) - 60, len(sealed)), 0, 1, 2}
    for place in sorted(places):
        shelf = Shelf(tmp_path)
        shelf.publish(content, ["00aa"])
        assert shelf.find("00aa")
        damaged = bytearray(sealed)
        damaged[place] ^= 1 << int(rng.integers(8))
        shelf.path("00aa").write_bytes(damaged)
        caplog.clear()
        assert shelf.find("00aa") is None
        assert len(caplog.records) == 1
        assert not shelf.path("00aa").exists()
        assert shelf.find("00aa") is None


@pytest.mark.parametrize("length", [0, 1, 47, 48, 49, 700, 747])
def test_torn_entries_are_misses(shelf: Shelf, length: int) -> None:
    path = shelf.path(KEYS[0])
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:length])
    path.chmod(0o600)
    assert shelf.find(KEYS[0]) is None
    assert shelf.find(KEYS[1]) is not None


def test_seal() -> None:
    assert is_whole(seal(b""))
    assert not is_whole(b"")
    assert not is_whole(seal(b"a") + b"\0")
    assert not is_whole(b"\0" + seal(b"a"))


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_entries_others_may_write_are_misses(shelf: Shelf, mode: int) -> None:
    shelf.path(KEYS[0]).chmod(mode)
    assert shelf.find(KEYS[0]) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_foreign_entries_are_misses(shelf: Shelf) -> None:
    os.chown(shelf.path(KEYS[0]), 12345, -1)
    assert shelf.find(KEYS[0]) is None


def test_links_and_directories_are_misses(shelf: Shelf, tmp_path: Path) -> None:
    whole = tmp_path / "elsewhere.so"
    whole.write_bytes(shelf.path(KEYS[0]).read_bytes())
    shelf.path(KEYS[0]).unlink()
    shelf.path(KEYS[0]).symlink_to(whole)
    assert shelf.find(KEYS[0]) is None
    assert whole.exists()
    shelf.path(KEYS[1]).unlink()
    shelf.path(KEYS[1]).mkdir()
    assert shelf.find(KEYS[1]) is None


def test_a_root_others_may_write_is_not_used(shelf: Shelf) -> None:
    shelf.root.chmod(0o777)
    assert shelf.find(KEYS[0]) is None
    with pytest.raises(PermissionError, match="others may write"):
        shelf.publish(b"x", KEYS)
    with pytest.raises(PermissionError), shelf.locked(KEYS, 1.0):
        pass


def test_verify_removes_what_is_bad(shelf: Shelf) -> None:
    assert shelf.verify() == []
    shelf.publish(b"second", ["02dd"])
    shelf.path("02dd").write_bytes(b"rubbish")
    assert shelf.verify() == [shelf.path("02dd")]
    assert shelf.verify() == []


def test_trim_drops_what_was_unused_longest(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    now = time.time()
    for age, key in enumerate(["00aa", "11aa", "22aa", "33aa"]):
        shelf.publish(bytes(1000), [key, f"{key}bb"])
        os.utime(shelf.path(key), (now - 100 * age,) * 2)
    shelf.trim(10**9)
    assert len(shelf.files()) == 4
    shelf.trim(2200)
    assert [bool(shelf.find(key)) for key in ("00aa", "00aabb", "11aa", "22aa", "33aa", "33aabb")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


def test_use_counts_at_most_once_an_hour(shelf: Shelf) -> None:
    path = shelf.path(KEYS[0])
    recent = time.time() - 600
    os.utime(path, (recent, recent))
    shelf.find(KEYS[0])
    assert path.stat().st_mtime == pytest.approx(recent)
    old = time.time() - 10_000
    os.utime(path, (old, old))
    shelf.find(KEYS[0])
    assert path.stat().st_mtime > old + 9_000


def test_trim_sweeps_up_after_killed_processes(shelf: Shelf) -> None:
    old, young = shelf.root / "tmp" / "old", shelf.root / "tmp" / "young"
    for path in (old, young):
        path.write_bytes(b"half an ent")
    os.utime(old, (0, 0))
    shelf.trim(10**9)
    assert not old.exists()
    assert young.exists()


def test_clear(shelf: Shelf) -> None:
    with shelf.locked(KEYS, 1.0):
        shelf.clear()
    assert shelf.files() == []
    assert list((shelf.root / "locks").iterdir())


def test_locks_exclude_threads_and_time_out(shelf: Shelf) -> None:
    entered = threading.Event()
    leave = threading.Event()

    def hold() -> None:
        with shelf.locked(KEYS, 1.0) as held:
            assert held
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(30)
    with shelf.locked([KEYS[2]], 0.05) as held:
        assert not held
    with shelf.locked(["77"], 0.05) as held:
        assert held
    leave.set()
    with shelf.locked(KEYS, 30.0) as held:
        assert held
    thread.join()


def _hold_for_ever(root: Path, entered: "multiprocessing.synchronize.Event") -> None:
    with Shelf(root).locked(KEYS, 1.0):
        entered.set()
        time.sleep(600)


def test_locks_die_with_their_process(shelf: Shelf) -> None:
    context = multiprocessing.get_context("spawn")
    entered = context.Event()
    process = context.Process(target=_hold_for_ever, args=(shelf.root, entered))
    process.start()
    assert entered.wait(60)
    with shelf.locked(KEYS, 0.01) as held:
        assert not held
    process.kill()
    process.join()
    with shelf.locked(KEYS, 30.0) as held:
        assert held


def test_a_forked_child_does_not_keep_the_lock(shelf: Shelf) -> None:
    with shelf.locked(KEYS, 1.0):
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(0)
    try:
        with shelf.locked(KEYS, 5.0) as held:
            assert held
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_where_there_are_no_locks_work_goes_on(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with shelf.locked(KEYS, 1.0) as held:
        assert held


def test_a_full_disk_leaves_nothing_behind(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        shelf.publish(b"new", ["00ff"])
    assert shelf.find("00ff") is None
    assert not list((shelf.root / "tmp").iterdir())


def test_cleaning_never_fails(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def busy(*_: object, **__: object) -> None:
        raise OSError(errno.EBUSY, "device or resource busy")

    monkeypatch.setattr(Path, "unlink", busy)
    with caplog.at_level(logging.WARNING):
        shelf.discard(shelf.path(KEYS[0]), "a test")
        shelf.clear()
        shelf.trim(0)
    assert len(shelf.files()) == 1
