import errno
import logging
import os
import re
import shlex
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tensorwise.errors import CompilerError, InputError
from tensorwise.toolchain import cache as module
from tensorwise.toolchain import compiler as compiler_module
from tensorwise.toolchain.cache import KernelCache, default_cache
from tensorwise.toolchain.compiler import Compiler, CompilerTimeoutError
from tensorwise.toolchain.deadline import counting_waits, within
from tensorwise.toolchain.shelf import Shelf
from tensorwise.toolchain.threads import available_threads
from tests.unit.toolchain.kernels import BROKEN, call, returning


class Counting:
    """Stands before ``Compiler.compile`` and remembers how many kernels each call had."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.plain = Compiler.compile
        monkeypatch.setattr(Compiler, "compile", lambda own, *given: self.compile(own, *given))

    def compile(self, own: Compiler, sources: Sequence[Path], *more: object) -> None:
        self.sizes.append(sources[0].read_text().count("\nint tw_"))
        self.plain(own, sources, *more)  # type: ignore[arg-type]


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch, compiler: Compiler) -> Counting:
    monkeypatch.setattr(module, "available_threads", lambda: 2)
    return Counting(monkeypatch)


def again(cache: KernelCache) -> KernelCache:
    """The same cache as another process sees it."""
    return KernelCache(cache._shelf.root, cache.compiler)


def run(cache: KernelCache, texts: Sequence[str]) -> list[int]:
    return [call(kernel, [None]) for kernel in cache.get(texts)]


def test_kernels_come_in_order_and_run(cache: KernelCache) -> None:
    texts = [returning(n) for n in (5, 3, 5, 8)]
    kernels = cache.get(texts)
    assert [call(kernel, [None]) for kernel in kernels] == [5, 3, 5, 8]
    assert kernels[0] == kernels[2]
    assert kernels[0].address != 0
    assert kernels[0].path.name == f"{kernels[0].key}.so"
    assert kernels[0].key == cache.key(texts[0])


def test_time_is_told_once(cache: KernelCache) -> None:
    assert cache.get([returning(1)])[0].compile_s > 0
    assert cache.get([returning(1)])[0].compile_s == 0
    assert again(cache).get([returning(1)])[0].compile_s == 0


def test_a_second_process_compiles_nothing(cache: KernelCache, counting: Counting) -> None:
    texts = [returning(n) for n in range(3)]
    assert run(cache, texts) == run(again(cache), texts) == [0, 1, 2]
    assert len(counting.sizes) == 1


def test_known_texts_cost_no_system_call(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = cache.get([returning(1)])
    monkeypatch.setattr(module, "content_id", None)
    monkeypatch.setattr(Shelf, "find", None)
    assert cache.get([returning(1)])[0].function is kernels[0].function


def test_many_kernels_are_compiled_in_bundles(cache: KernelCache, counting: Counting) -> None:
    assert run(cache, [returning(n) for n in range(70)]) == list(range(70))
    assert sum(counting.sizes) == 70
    assert max(counting.sizes) <= 32
    assert len(counting.sizes) <= 4
    assert cache.info().entries == 70


def test_few_kernels_share_a_compiler_process(cache: KernelCache, counting: Counting) -> None:
    run(cache, [returning(n) for n in range(7)])
    run(cache, [returning(n) for n in range(10, 18)])
    assert sorted(counting.sizes) == [4, 4, 7]


def test_names_made_of_the_symbol_do_not_clash(cache: KernelCache) -> None:
    text = """
    static int TW_SYMBOL_body0(int x) {{ return x + {0}; }}
    int TW_SYMBOL(void *const *buffers, const int64_t *sizes) {{ return TW_SYMBOL_body0((int)sizes[0]); }}
    """
    assert [call(k, [None], [10]) for k in cache.get([text.format(n) for n in range(3)])] == [10, 11, 12]


def test_names_that_clash_are_compiled_apart(cache: KernelCache) -> None:
    text = "static int common(void) {{ return {0}; }}\n" + returning(0).replace("0;", "common();")
    text = text.replace("{ return common(); }", "{{ return common(); }}")
    assert run(cache, [text.format(n) for n in range(5)]) == list(range(5))


def test_only_the_culprit_fails(cache: KernelCache, counting: Counting) -> None:
    texts = [returning(n) for n in range(6)]
    texts.insert(2, BROKEN)
    with pytest.raises(CompilerError, match="no_such_name"):
        cache.get(texts)
    before = len(counting.sizes)
    kernels = cache.get(texts, on_error="none")
    assert kernels[2] is None
    assert [call(k, [None]) for k in kernels if k] == list(range(6))
    assert "no_such_name" in str(cache.failures[cache.key(BROKEN)])
    with pytest.raises(CompilerError, match="no_such_name"):
        cache.get([BROKEN])
    assert len(counting.sizes) == before  # a failure is remembered, and the others were kept
    assert before <= 8


def test_unknown_functions_fail_alone(cache: KernelCache) -> None:
    unknown = "int from_nowhere(); int TW_SYMBOL(void *const *b, const int64_t *s) { return from_nowhere(); }"
    kernels = cache.get([returning(1), unknown, returning(2)], on_error="none")
    assert [kernel is None for kernel in kernels] == [False, True, False]
    assert "from_nowhere" in str(cache.failures[cache.key(unknown)])


def test_a_kernel_that_hangs_the_compiler_fails_alone(
    cache: KernelCache, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COMPILE_TIMEOUT_S", 2)
    script = tmp_path / "cc"
    hang = "for a; do case $a in *.c) grep -q HANGING $a && sleep 60;; esac; done"
    script.write_text(f'#!/bin/sh\n{hang}\nexec {shlex.join(compiler.command)} "$@"\n')
    script.chmod(0o755)
    slow = KernelCache(tmp_path / "slow", Compiler((str(script),), "gcc", "1", compiler.flags, compiler.cpu))
    kernels = slow.get([returning(1), "/* HANGING */" + returning(2), returning(3)], on_error="none")
    assert [kernel is None for kernel in kernels] == [False, True, False]
    (error,) = slow.failures.values()
    assert isinstance(error, CompilerTimeoutError)
    assert re.search(
        r"killed on kernels\.c after 2 s[^\0]*set TENSORWISE_COMPILE_TIMEOUT_S to more", str(error)
    )
    assert error.__traceback__ is None
    monkeypatch.setenv("TENSORWISE_COMPILE_TIMEOUT_S", "2 s")
    with pytest.raises(
        InputError, match="TENSORWISE_COMPILE_TIMEOUT_S is '2 s'; expected a number of seconds"
    ):
        slow.get([returning(4)])


def test_keys_know_text_compiler_and_processor(
    cache: KernelCache, compiler: Compiler, tmp_path: Path
) -> None:
    other = Compiler(compiler.command, compiler.kind, compiler.version, compiler.flags, "another processor")
    assert KernelCache(tmp_path, other).key("x") != cache.key("x") != cache.key("y")


@pytest.mark.parametrize("damage", ["flip", "cut", "stranger", "empty", "not a library"])
def test_damaged_entries_are_compiled_again(
    damage: str, cache: KernelCache, counting: Counting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = KernelCache(tmp_path / "other", cache.compiler)  # nothing of `cache` is loaded in this process
    fresh, stranger = (other.get([returning(n)])[0].path.read_bytes() for n in (4, 5))
    shelf, key = Shelf(cache._shelf.root), cache.key(returning(4))
    if damage in ("stranger", "not a library"):  # both are whole
        shelf.publish(stranger if damage == "stranger" else b"not a library", [key])
    else:
        shelf.publish(b"", [key])
        flipped = fresh[:900] + bytes([fresh[900] ^ 16]) + fresh[901:]
        shelf.path(key).write_bytes({"flip": flipped, "cut": fresh[:-100], "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        assert run(again(cache), [returning(4)]) == [4]
    assert sum("is not used and removed" in record.message for record in caplog.records) == 1
    caplog.clear()
    assert run(again(cache), [returning(4)]) == [4]
    assert not caplog.records


def test_unusable_root_falls_back(
    tmp_path: Path, compiler: Compiler, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = KernelCache(tmp_path / "file" / "kernels", compiler)
    with caplog.at_level(logging.WARNING):
        assert run(cache, [returning(n) for n in range(3)]) == [0, 1, 2]
        assert run(cache, [returning(n) for n in range(5)]) == [0, 1, 2, 3, 4]
    assert len(caplog.records) == 1
    assert "TENSORWISE_CACHE_DIR" in caplog.text
    assert cache.info().entries == 0
    assert cache.verify() == []
    cache.clear()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_root_still_answers(cache: KernelCache, counting: Counting) -> None:
    run(cache, [returning(1)])
    directories = [cache._shelf.root, *cache._shelf.root.iterdir()]
    for path in directories:
        path.chmod(0o500)
    try:
        assert run(again(cache), [returning(1), returning(2)]) == [1, 2]
        assert counting.sizes == [1, 1]
    finally:
        for path in directories:
            path.chmod(0o700)


def test_full_disk_falls_back(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root, plain = cache._shelf.root, Shelf._write

    def full(own: Shelf, data: bytes) -> Path:
        if own.root == root:
            raise OSError(errno.ENOSPC, "no space left on device")
        return plain(own, data)

    monkeypatch.setattr(Shelf, "_write", full)
    assert run(cache, [returning(1), returning(2)]) == [1, 2]
    assert "no space left" in caplog.text
    assert not cache._shelf.find(cache.key(returning(1)))


def test_passing_trouble_is_not_remembered(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_bundle", full)
        with pytest.raises(CompilerError, match=r"no space left.*TMPDIR"):
            cache.get([returning(1)])
    assert run(cache, [returning(1)]) == [1]


def test_locks_that_are_not_free_cost_a_private_compilation(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_LOCK_TIMEOUT_S", 0.1)
    with Shelf(cache._shelf.root).locked([cache.key(returning(1))], 1.0):
        assert run(cache, [returning(1)]) == [1]
    assert "locks were not free" in caplog.text
    assert cache._shelf.find(cache.key(returning(1))) is None


def test_the_least_recently_used_go(tmp_path: Path, compiler: Compiler) -> None:
    size_bytes = KernelCache(tmp_path / "one", compiler).get([returning(0)])[0].path.stat().st_size
    cache = KernelCache(tmp_path / "small", compiler, cap_bytes=6 * size_bytes)
    for n in range(12):
        run(cache, [returning(n)])
        path = cache._shelf.path(cache.key(returning(n)))
        os.utime(path, (1000 * n, 1000 * n))
    run(cache, [returning(12)])
    info = cache.info()
    assert 0 < info.held_bytes <= info.cap_bytes
    assert info.entries < 13
    assert cache._shelf.find(cache.key(returning(0))) is None
    assert cache._shelf.find(cache.key(returning(12)))
    assert run(cache, [returning(n) for n in range(13)]) == list(range(13))  # loaded ones stay usable


def test_clear_and_verify(cache: KernelCache, counting: Counting) -> None:
    run(cache, [returning(n) for n in range(3)])
    cache._shelf.publish(b"", ["00bad"])
    cache._shelf.path("00bad").write_bytes(b"bad")
    assert cache.verify() == [cache._shelf.path("00bad")]
    assert cache.info().entries == 3
    cache.clear()
    assert cache.info().entries == cache.info().held_bytes == 0
    assert run(again(cache), [returning(0)]) == [0]


def test_threads_ask_for_the_same(cache: KernelCache, counting: Counting) -> None:
    texts = [returning(n) for n in range(12)]
    results: list[list[int]] = []
    threads = [threading.Thread(target=lambda: results.append(run(cache, texts))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [list(range(12))] * 4
    assert sum(counting.sizes) == 12


def test_works_after_a_fork(cache: KernelCache) -> None:
    run(cache, [returning(1)])
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if run(cache, [returning(n) for n in range(1, 12)]) == list(range(1, 12)) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_leaves_its_parents_directory_alone(
    tmp_path: Path, compiler: Compiler, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    cache = KernelCache(tmp_path / "file" / "kernels", compiler)
    run(cache, [returning(1)])
    private = cache.get([returning(1)])[0].path
    child = os.fork()
    if child == 0:
        try:
            fine = (
                run(cache, [returning(2)]) == [2]
                and cache.get([returning(2)])[0].path.parents[1] != private.parents[1]
            )
            module.atexit._run_exitfuncs()
            os._exit(0 if fine else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert private.exists()


def test_an_interrupt_ends_the_compilers(
    cache: KernelCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\nsleep 100\n")
    script.chmod(0o755)
    monkeypatch.setattr(module, "available_threads", lambda: 2)
    slow = KernelCache(tmp_path / "slow", Compiler((str(script),), "gcc", "1", (), ""))
    plain = slow._compile

    def compile_or_interrupt(keys: Sequence[str], *more: object) -> None:
        if slow.key(returning(0)) in keys:
            raise KeyboardInterrupt
        plain(keys, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(slow, "_compile", compile_or_interrupt)
    with pytest.raises(KeyboardInterrupt):
        slow.get([returning(n) for n in range(8)])
    assert not slow.failures


def test_libraries_are_compiled_once(
    cache: KernelCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, header = tmp_path / "one.c", tmp_path / "two.c", tmp_path / "own.h"
    one.write_text('#include "own.h"\nint one(void) { return ONE; }')
    two.write_text("int two(void) { return 2; }")
    header.write_text("#define ONE 1\n")
    path = cache.library([one, two], [header])
    assert again(cache).library([one, two], [header]) == path
    library = module.ctypes.CDLL(str(path))
    assert (library.one(), library.two()) == (1, 2)
    header.write_text("#define ONE 11\n")
    assert module.ctypes.CDLL(str(cache.library([one, two], [header]))).one() == 11
    two.write_text("int two(void) { return ; }}")
    with pytest.raises(CompilerError, match=r"two\.c"):
        cache.library([one, two], [header])


def test_default_cache_follows_the_environment(own_cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORWISE_CACHE_BYTES", "1000000")
    assert default_cache() is default_cache()
    assert default_cache().info().root == own_cache_dir / "kernels"
    assert default_cache().info().cap_bytes == 1_000_000
    monkeypatch.setenv("TENSORWISE_CACHE_BYTES", "2 GB")
    with pytest.raises(InputError, match="TENSORWISE_CACHE_BYTES is '2 GB'"):
        default_cache()


def test_timeout_is_a_compiler_error() -> None:
    assert issubclass(CompilerTimeoutError, CompilerError)


HANGING = """#!/bin/sh
case "$*" in *--version*) echo "gcc hanging 1"; exit 0;; esac
echo run >> {runs}
[ -e {well} ] && exec {real} "$@"
sleep 600
"""


def hanging(tmp_path: Path, real: Compiler) -> Compiler:
    path = tmp_path / "cc"
    runs, well = tmp_path / "runs", tmp_path / "well"
    path.write_text(HANGING.format(runs=runs, well=well, real=shlex.join(real.command)))
    path.chmod(0o755)
    return replace(real, command=(str(path),))


def test_a_compiler_that_hangs_is_given_up_once(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once for each kernel of a file, which would be hours."""
    monkeypatch.setattr(module, "_COMPILE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(compiler_module, "PROOF_S", 0.3)
    cache = KernelCache(tmp_path / "kernels", hanging(tmp_path, compiler))
    texts = [returning(number) for number in range(20)]
    with pytest.raises(CompilerError, match=r"hangs[^\0]*TENSORWISE_CC"):
        cache.get(texts)
    asked = len((tmp_path / "runs").read_text().splitlines())
    assert asked <= 2 * available_threads() + 2
    assert cache.get([returning(21)], on_error="none") == [None]
    assert len((tmp_path / "runs").read_text().splitlines()) == asked
    # it may answer again later
    monkeypatch.setattr(module, "HUNG_S", 0.0)
    monkeypatch.setattr(module, "_COMPILE_TIMEOUT_S", 60.0)
    (tmp_path / "well").touch()
    assert run(cache, texts[:2]) == [0, 1]


def test_what_no_time_was_left_for_is_compiled_later(
    tmp_path: Path, compiler: Compiler, cache: KernelCache
) -> None:
    with within(0.0):
        with pytest.raises(CompilerError, match="no time is left"):
            cache.get([returning(1)])
        with pytest.raises(CompilerError, match="no time is left"):
            cache.library([Path(module.__file__).with_name("runtime.c")])
    assert run(cache, [returning(1)]) == [1]
    with within(0.0):
        assert run(cache, [returning(1)]) == [1]


def test_locks_of_others_are_waited_for_no_longer_than_there_is_time(
    cache: KernelCache, caplog: pytest.LogCaptureFixture
) -> None:
    text = returning(1)
    with Shelf(cache.info().root).locked([cache.key(text)], 1), counting_waits() as waited:
        with within(0.02), pytest.raises(CompilerError, match=r"no time is left|time for it is over"):
            cache.get([text])
        assert waited.seconds > 0
    assert not caplog.records
    assert run(cache, [text]) == [1]
