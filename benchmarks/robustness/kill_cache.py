"""Claim: the kernel cache survives kills at random moments, and builds a kernel once for many processes.

    python benchmarks/robustness/kill_cache.py --kills 1000 --processes 16 --kernels 50

Part one keeps a few writers busy on one cache (some compile, some only publish and read back) and kills
them at random moments. Nobody may ever see a damaged entry, a wrong kernel or a lock that stays. Part
two lets many processes ask for the same cold kernels at once and counts how often each was compiled.
The result goes to ``--out`` as JSON; the exit status is 1 when the claim does not hold.
"""

import argparse
import json
import logging
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.corpus import made_by
from tensorwise.toolchain.cache import KernelCache
from tensorwise.toolchain.compiler import Compiler, find_compiler
from tensorwise.toolchain.shelf import Shelf

_WRITERS = 3
_POOL = 60  # different kernels
_LONGEST_LIFE_S = 0.3
_CHECK_EVERY = 100
_LARGEST_REPEAT = 1.05


def kernel_text(number: int) -> str:
    """Return a kernel that returns ``number`` after a little vector work."""
    return f"""
    static float TW_SYMBOL_twice(const float *p) {{ return 2 * tw_fold_add_f32x8(tw_load_f32x8(p)); }}
    int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
    {{
        float zero[8] = {{0}};
        return {number} + (int)TW_SYMBOL_twice(buffers ? buffers[0] : zero);
    }}
    """


class Diary(logging.Handler):
    """Appends what a process has to tell to a file that survives it; one ``kind<TAB>text`` a line."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def write(self, kind: str, text: str) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(f"{kind}\t{' '.join(text.split())[:2000]}\n".encode())

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        kind = "corrupt" if "checksum" in message or "undefined symbol" in message else "log"
        self.write("lock" if "locks were not free" in message else kind, message)

    def read(self) -> list[tuple[str, str]]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [(kind, text) for kind, _, text in (line.partition("\t") for line in lines)]


def start(work: Callable[[], None], diary: Diary) -> int:
    """Fork a process that does ``work``; return its id."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        work()
        status = 0
    except BaseException as error:
        diary.write("error", repr(error))
    finally:
        os._exit(status)


def join(process: int, limit_s: float) -> int | None:
    """Return the exit status of a process, or kill it and return None when it does not end."""
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def ask(cache: KernelCache, numbers: Sequence[int], diary: Diary) -> None:
    for number, kernel in zip(numbers, cache.get([kernel_text(n) for n in numbers]), strict=True):
        answer = kernel.function(None, None)
        if answer != number:
            diary.write("wrong", f"kernel {number} returned {answer}")


def compile_for_ever(root: Path, diary: Diary, rng: np.random.Generator) -> None:
    """Lose a few entries, ask for a few: most requests compile and publish."""
    while True:
        cache = KernelCache(root)
        numbers = [int(n) for n in rng.choice(_POOL, 3, replace=False)]
        for number in numbers[:2]:
            cache._shelf.path(cache.key(kernel_text(number))).unlink(missing_ok=True)
        ask(cache, numbers, diary)
        diary.write("put", "compiled")


def publish_for_ever(root: Path, diary: Diary, rng: np.random.Generator) -> None:
    """Publish and read back without a compiler between, so that kills fall into the writing."""
    while True:
        shelf = Shelf(root)
        keys = [f"{rng.integers(256):02x}{'0' * 29}{k:x}" for k in range(4)]
        content = rng.bytes(int(rng.integers(1_000, 200_000)))
        with shelf.locked(keys, 60.0) as held:
            if held:
                shelf.publish(content, keys)
        for key in keys:
            shelf.find(key)  # says so in the log when it is damaged
        diary.write("put", "published")


def kill_writers(kills: int, directory: Path, diary: Diary, rng: np.random.Generator) -> dict[str, int]:
    """Part one; returns counts of what must not be."""
    root = directory / "killed"
    living: dict[int, float] = {}
    hangs = damaged = done = started = 0
    checks = set(range(_CHECK_EVERY, kills, _CHECK_EVERY)) | {kills}
    while done < kills:
        while len(living) < min(_WRITERS, kills - done):
            kind = (compile_for_ever, publish_for_ever)[started % 2]
            (own,) = rng.spawn(1)
            process = start(lambda kind=kind, own=own: kind(root, diary, own), diary)
            living[process] = time.monotonic() + float(rng.uniform(0, _LONGEST_LIFE_S))
            started += 1
        process = min(living, key=living.__getitem__)
        time.sleep(max(0.0, living.pop(process) - time.monotonic()))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        done += 1
        if done in checks:
            damaged += len(KernelCache(root).verify())
            reader = start(lambda: ask(KernelCache(root), range(_POOL), diary), diary)
            hangs += join(reader, 120.0) is None
    for process in living:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    said = [kind for kind, _ in diary.read()]
    kinds = {name: said.count(name) for name in ("corrupt", "wrong", "error", "lock")}
    return {"kills": done, "puts": said.count("put"), "damaged_entries": damaged, "hangs": hangs, **kinds}


@contextmanager
def counted_compilations(diary: Diary) -> Iterator[None]:
    """Write the name of every kernel that is compiled into the diary."""
    plain = Compiler.compile

    def compile_and_count(self: Compiler, sources: Sequence[Path], *more: object) -> None:
        for source in sources:
            for name in re.findall(r"int (tw_[0-9a-f]{32})\(", source.read_text()):
                diary.write("compiled", name)
        plain(self, sources, *more)  # type: ignore[arg-type]

    Compiler.compile = compile_and_count  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Compiler.compile = plain  # type: ignore[method-assign]


def ask_together(
    processes: int, kernels: int, directory: Path, diary: Diary, rng: np.random.Generator
) -> dict[str, float]:
    """Part two; each process asks for the same kernels in an order and in portions of its own."""
    root = directory / "cold"
    begin_s = time.monotonic() + 0.5

    def work(own: np.random.Generator) -> None:
        cache, order = KernelCache(root), own.permutation(kernels)
        time.sleep(max(0.0, begin_s - time.monotonic()))
        for part in np.array_split(order, int(own.integers(1, 4))):
            ask(cache, [int(n) for n in part], diary)

    with counted_compilations(diary):
        started = [start(lambda own=own: work(own), diary) for own in rng.spawn(processes)]
        statuses = [join(process, 300.0) for process in started]
    compiled = [text for kind, text in diary.read() if kind == "compiled"]
    return {
        "processes": processes,
        "kernels": len(set(compiled)),
        "compilations_a_kernel": len(compiled) / max(1, len(set(compiled))),
        "failed_processes": sum(status != 0 for status in statuses),
        "wrong_or_error": sum(kind in ("wrong", "error", "corrupt") for kind, _ in diary.read()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--kernels", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "kill_cache.json")
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    compiler = find_compiler()  # proved before anybody is killed
    start_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tensorwise-kill-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        tempfile.tempdir = str(directory / "tmp")  # what killed compilers leave lies here and goes with it
        Path(tempfile.tempdir).mkdir()
        diaries = Diary(directory / "one.txt"), Diary(directory / "two.txt")
        log = logging.getLogger("tensorwise")
        log.propagate = False
        log.addHandler(diaries[0])
        killed = kill_writers(given.kills, directory, diaries[0], rng)
        log.removeHandler(diaries[0])
        log.addHandler(diaries[1])
        together = ask_together(given.processes, given.kernels, directory, diaries[1], rng)
        unusual = [
            text for diary in diaries for kind, text in diary.read() if kind not in ("compiled", "log", "put")
        ]
    bad = {name: count for name, count in killed.items() if name not in ("kills", "puts") and count}
    holds = (
        not bad
        and together["kernels"] == given.kernels
        and together["compilations_a_kernel"] <= _LARGEST_REPEAT
        and not together["failed_processes"]
        and not together["wrong_or_error"]
    )
    result = {
        "claim": "no damaged entry, wrong kernel, error or hang; at most 1.05 compilations a kernel",
        "holds": holds,
        "kills": killed,
        "together": together,
        "unusual": unusual[:20],
        "seed": given.seed,
        "elapsed_s": round(time.monotonic() - start_s, 1),
        "compiler": compiler.version,
        **made_by(Path(__file__)),
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
