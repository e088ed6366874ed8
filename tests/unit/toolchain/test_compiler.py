import ctypes
import platform
import shlex
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tensorwise.errors import CompilerError, InputError
from tensorwise.toolchain import compiler as module
from tensorwise.toolchain import processor
from tensorwise.toolchain.compiler import Compiler, CompilerTimeoutError, find_compiler
from tensorwise.toolchain.deadline import within
from tensorwise.toolchain.processor import WIDTHS, cpu_id, describe_processor, narrowing, vector_bytes


def script(path: Path, body: str) -> Path:
    """Write a fake compiler that says it is gcc and then does ``body``."""
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "gcc (fake) 1.0"; exit 0; fi\n{body}\n')
    path.chmod(0o755)
    return path


def fake(path: Path, body: str) -> Compiler:
    return Compiler((str(script(path, body)),), "gcc", "fake", (), cpu_id())


def source(tmp_path: Path, text: str = "int f(void) { return 7; }") -> Path:
    path = tmp_path / "source.c"
    path.write_text(text)
    return path


def test_compiles_a_loadable_library(compiler: Compiler, tmp_path: Path) -> None:
    compiler.compile([source(tmp_path)], tmp_path / "out.so")
    assert ctypes.CDLL(str(tmp_path / "out.so")).f() == 7


def test_relative_paths_work(compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source(tmp_path)
    monkeypatch.chdir(tmp_path)
    compiler.compile([Path("source.c")], Path("out.so"))
    assert Path("out.so").is_file()


def test_no_flag_changes_what_nan_means(compiler: Compiler) -> None:
    assert not {"-ffast-math", "-Ofast", "-ffinite-math-only", "-funsafe-math-optimizations"} & {
        *compiler.flags
    }


def test_error_has_the_first_lines(compiler: Compiler, tmp_path: Path) -> None:
    broken = source(tmp_path, "int f(void) { return nothing_of_the_kind; }")
    with pytest.raises(CompilerError, match=r"source\.c[^\0]*nothing_of_the_kind"):
        compiler.compile([broken], tmp_path / "out.so")
    assert not (tmp_path / "out.so").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="asked of the linker on Linux only")
def test_unknown_functions_are_refused_by_name(compiler: Compiler, tmp_path: Path) -> None:
    with pytest.raises(CompilerError, match="from_nowhere"):
        compiler.compile(
            [source(tmp_path, "int from_nowhere(); int f(void) { return from_nowhere(); }")], tmp_path / "o"
        )


def test_mathematics_is_linked(compiler: Compiler, tmp_path: Path) -> None:
    text = "double f(double x) { return __builtin_exp(x) + __builtin_tanh(x); }"
    compiler.compile([source(tmp_path, text)], tmp_path / "out.so")
    ctypes.CDLL(str(tmp_path / "out.so"))


def test_long_errors_are_cut(tmp_path: Path) -> None:
    verbose = fake(
        tmp_path / "cc", 'i=0; while [ $i -lt 500 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1'
    )
    with pytest.raises(CompilerError) as caught:
        verbose.compile([source(tmp_path)], tmp_path / "out.so")
    assert "line 0" in str(caught.value)
    assert "more lines" in str(caught.value)
    assert len(str(caught.value).splitlines()) < 30


def test_timeout_kills_the_whole_group(tmp_path: Path) -> None:
    # the grandchild would write after the compiler was killed
    hanging = fake(tmp_path / "cc", f"(sleep 2; touch {tmp_path}/survived) & sleep 60")
    with pytest.raises(CompilerTimeoutError, match=r"after 0\.3 s"):
        hanging.compile([source(tmp_path)], tmp_path / "out.so", timeout_s=0.3)
    time.sleep(2.2)
    assert not (tmp_path / "survived").exists()


def test_stop_abandons(tmp_path: Path) -> None:
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(CompilerError, match="abandoned"):
        fake(tmp_path / "cc", "sleep 60").compile([source(tmp_path)], tmp_path / "out.so", stop=stop)


def test_scratch_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr(module.tempfile, "tempdir", str(scratch))
    with pytest.raises(CompilerError):
        fake(tmp_path / "cc", 'touch "$TMPDIR/rubbish"; exit 1').compile(
            [source(tmp_path)], tmp_path / "out.so"
        )
    assert not list(scratch.iterdir())


def test_success_without_output_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CompilerError, match="exit status 0"):
        fake(tmp_path / "cc", "exit 0").compile([source(tmp_path)], tmp_path / "out.so")


def test_runs_at_low_priority(tmp_path: Path) -> None:
    # by the time it has slept, its parent has set its priority
    with pytest.raises(CompilerError):
        fake(tmp_path / "cc", f"sleep 0.2; nice > {tmp_path}/nice; exit 1").compile(
            [source(tmp_path)], tmp_path / "o"
        )
    assert int((tmp_path / "nice").read_text()) >= 10


def test_own_variable_is_the_last_word(
    tmp_path: Path, own_cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORWISE_CC", str(tmp_path / "absent"))
    with pytest.raises(
        CompilerError, match=r"TENSORWISE_CC is .*absent.*\n.*not found\n.*install gcc or clang"
    ):
        find_compiler()
    monkeypatch.setenv("TENSORWISE_CC", str(script(tmp_path / "cc", "echo this one is lame >&2; exit 3")))
    with pytest.raises(CompilerError, match="this one is lame"):
        find_compiler()


def test_broken_common_variable_is_passed_over(
    compiler: Compiler, tmp_path: Path, own_cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENSORWISE_CC", raising=False)
    monkeypatch.setenv("CC", f"{script(tmp_path / 'cc', 'exit 1')} -m64")
    assert find_compiler().command != (str(tmp_path / "cc"), "-m64")


def test_variables_may_have_arguments(
    compiler: Compiler, own_cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORWISE_CC", f"{shlex.join(compiler.command)} -DTWICE=2")
    found = find_compiler()
    assert found.command == (*compiler.command, "-DTWICE=2")
    assert found.id != compiler.id


def test_no_compiler_says_what_to_install(
    own_cache_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TENSORWISE_CC", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerError, match=r"apt install gcc[^\0]*tensorwise\[zig\][^\0]*TENSORWISE_CC"):
        find_compiler()


def test_is_proved_once_a_machine(
    compiler: Compiler, tmp_path: Path, own_cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = script(
        tmp_path / "cc", f'echo run >> {tmp_path}/runs; exec {shlex.join(compiler.command)} "$@"'
    )
    monkeypatch.setenv("TENSORWISE_CC", str(counting))
    for _ in range(3):
        find_compiler()
        module._find.cache_clear()
    assert (tmp_path / "runs").read_text() == "run\n"


def test_importing_starts_no_process() -> None:
    code = (
        "import subprocess, sys; subprocess.Popen.__init__ = lambda *a, **k: sys.exit(1);"
        "import tensorwise.toolchain.cache, tensorwise.toolchain.runtime"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_id_depends_on_everything(compiler: Compiler) -> None:
    others = [
        Compiler(("/x",), compiler.kind, compiler.version, compiler.flags, compiler.cpu),
        Compiler(compiler.command, compiler.kind, "2", compiler.flags, compiler.cpu),
        Compiler(compiler.command, compiler.kind, compiler.version, (*compiler.flags, "-O3"), compiler.cpu),
        Compiler(compiler.command, compiler.kind, compiler.version, compiler.flags, "other"),
    ]
    assert len({compiler.id, *(other.id for other in others)}) == 5


def test_code_for_a_processor_that_the_command_names(monkeypatch: pytest.MonkeyPatch) -> None:
    native = ("-march=native", "-mcpu=native")
    assert set(native) & set(find_compiler().flags)
    monkeypatch.setenv("TENSORWISE_CC", f"{find_compiler().command[0]} -mtune=generic")
    assert set(native) & set(find_compiler().flags)
    if find_compiler().kind == "gcc" and platform.machine() == "x86_64":
        monkeypatch.setenv("TENSORWISE_CC", f"{find_compiler().command[0]} -march=x86-64-v2")
        assert not set(native) & set(find_compiler().flags)


def test_an_emulator_shows_the_features_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "ON_ARM", True)
    monkeypatch.setattr(processor, "describe_processor", lambda: ("aarch64", frozenset({"avx2", "avx512f"})))
    assert vector_bytes() == 16


def test_processors(tmp_path: Path) -> None:
    x86, arm = tmp_path / "x86", tmp_path / "arm"
    x86.write_text(
        "processor\t: 0\nmodel name\t: Fast 9\nflags\t\t: sse avx2 avx512f\n\nprocessor\t: 1\nflags\t: no\n"
    )
    arm.write_text("processor : 0\nFeatures : fp asimd sve\nCPU implementer : 0x41\nCPU part : 0xd40\n")
    assert describe_processor(x86)[0].endswith("Fast 9")
    assert describe_processor(x86)[1] == {"sse", "avx2", "avx512f"}
    assert describe_processor(arm)[0].endswith("0x41 0xd40")
    assert describe_processor(arm)[1] == {"fp", "asimd", "sve"}
    assert describe_processor(tmp_path / "absent")[1] == frozenset()
    assert vector_bytes() in (16, 32, 64)


@pytest.mark.parametrize(
    ("features", "given", "width", "flags"),
    [
        ({"avx2", "avx512f"}, "", 64, ()),
        ({"avx2", "avx512f"}, "64", 64, ()),
        ({"avx2", "avx512f"}, "32", 32, ("-mno-avx512f",)),
        ({"avx2", "avx512f"}, "16", 16, ("-mno-avx",)),
        ({"avx2"}, "64", 32, ()),
        ({"avx2"}, "16", 16, ("-mno-avx",)),
        ({"asimd"}, "32", 16, ()),
    ],
)
def test_vectors_can_be_kept_narrow(
    features: set[str], given: str, width: int, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "describe_processor", lambda: ("", frozenset(features)))
    monkeypatch.setenv("TENSORWISE_VECTOR_BYTES", given)
    assert vector_bytes() == width
    assert narrowing() == flags


def test_narrow_vectors_have_kernels_of_their_own(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    if vector_bytes() == WIDTHS[0]:
        pytest.skip("vectors of this processor cannot be narrower")
    monkeypatch.setenv("TENSORWISE_VECTOR_BYTES", str(WIDTHS[0]))
    narrow = find_compiler()
    assert narrow.id != compiler.id
    assert set(narrow.flags) - set(compiler.flags) == {"-mno-avx"}
    monkeypatch.setenv("TENSORWISE_VECTOR_BYTES", "24")
    with pytest.raises(InputError, match="TENSORWISE_VECTOR_BYTES is '24'; expected one of 16, 32, 64"):
        find_compiler()


def test_scripts_are_executable(tmp_path: Path) -> None:
    assert script(tmp_path / "cc", "").stat().st_mode & stat.S_IXUSR


def test_what_a_compiler_leaves_running_ends_with_it(tmp_path: Path) -> None:
    leaving = fake(tmp_path / "cc", f"(sleep 1.5; touch {tmp_path}/survived) & exit 1")
    with pytest.raises(CompilerError, match="refused"):
        leaving.compile([source(tmp_path)], tmp_path / "out.so")
    time.sleep(1.7)
    assert not (tmp_path / "survived").exists()


def test_nothing_is_compiled_longer_than_there_is_time(tmp_path: Path) -> None:
    hanging = fake(tmp_path / "cc", f"echo run >> {tmp_path}/runs; sleep 600")
    with (
        within(0.3),
        pytest.raises(
            CompilerTimeoutError,
            match=r"time for it is over, 0\.3 s; a larger budget .*TENSORWISE_COMPILE_TIMEOUT_S",
        ),
    ):
        hanging.compile([source(tmp_path)], tmp_path / "out.so")
    with within(0.0), pytest.raises(CompilerTimeoutError, match="no time is left"):
        hanging.compile([source(tmp_path)], tmp_path / "out.so")
    assert (tmp_path / "runs").read_text() == "run\n"


MUTE = "#!/bin/sh\necho asked >> {runs}\n(sleep 1.5; touch {survived}) &\nsleep 600\n"


def test_one_that_does_not_say_its_version_is_not_asked_again_and_again(
    tmp_path: Path, own_cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "VERSION_S", 0.3)
    runs, survived = tmp_path / "runs", tmp_path / "survived"
    (tmp_path / "cc").write_text(MUTE.format(runs=runs, survived=survived))
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("TENSORWISE_CC", str(tmp_path / "cc"))
    for _ in range(3):
        with pytest.raises(
            CompilerError, match=r"did not answer --version[^\0]*TENSORWISE_CC|TENSORWISE_CC[^\0]*--version"
        ):
            find_compiler()
    assert runs.read_text() == "asked\n"
    time.sleep(1.6)
    assert not survived.exists()


def test_one_that_had_too_little_time_is_asked_again(
    compiler: Compiler, tmp_path: Path, own_cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = script(tmp_path / "cc", f'sleep 0.3; exec {shlex.join(compiler.command)} "$@"')
    monkeypatch.setenv("TENSORWISE_CC", str(slow))
    with within(0.2), pytest.raises(CompilerError):
        find_compiler()
    assert find_compiler().version == "gcc (fake) 1.0"


def test_one_whose_libraries_are_none_is_not_used(
    tmp_path: Path, own_cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rubbish = 'while [ $# -gt 0 ]; do [ "$1" = -o ] && echo rubbish > "$2"; shift; done'
    monkeypatch.setenv("TENSORWISE_CC", str(script(tmp_path / "cc", rubbish)))
    with pytest.raises(CompilerError, match="no library"):
        find_compiler()
