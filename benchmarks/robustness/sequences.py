"""Claim: any sequence of calls on our sparse arrays gives what SciPy's give: values, types, exceptions, and no crash.

    python benchmarks/robustness/sequences.py --sequences 1000
    python benchmarks/robustness/sequences.py --sequences 100000 --out benchmarks/robustness/sequences.json

A sequence creates matrices (CSR, CSC, COO, BSR; arrays and matrices; all dtypes; empty, with duplicates, unsorted, NaN),
multiplies them (dense operands of any layout, sparse ones, wrong shapes, ``out=``), mutates, transposes, slices, copies and
pickles them, and multiplies in forks and threads. Each line runs with SciPy's classes and with ours: our classes, SciPy's
objects wrapped by ``asarray``, or SciPy's classes under ``patch_scipy()``; as by default, with ``reproducible()``, or with
all kernels in trials from the first call. Numbers may differ by the bound of rounding errors, ``|A| |x|`` times terms times
the machine epsilon; the rest must be equal.

Sequences run in forks of this process, some hundred a fork. A sequence is known by seed and number: the same command goes
on where it stopped, as long as the sources are the same. A difference is printed as a short program that shows it. Exit
status 1: there are some.
"""

import argparse
import datetime
import faulthandler
import hashlib
import json
import mmap
import os
import platform
import random
import re
import resource
import shlex
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))  # so that it runs as a script

ROOT: Final = Path(__file__).resolve().parents[2]
CHUNK: Final = 200
"""Sequences a fork."""
LIMIT_S: Final = 60.0
"""Seconds that a sequence may take."""
OWN_LIMIT_S: Final = LIMIT_S / 4
"""Seconds that SciPy may take for both sides of a sequence; beyond, one that exceeds `LIMIT_S` is no hang of ours."""
MOST_SHOWN: Final = 3
"""Programs kept for one kind of difference; more are counted only."""


def main() -> int:
    """Run sequences until there are enough; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--minutes", type=float, help="end after so many minutes, too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sequence", type=int, help="run this one in the open, and print its lines")
    parser.add_argument("--out", type=Path, help="result; progress is kept beside it")
    given = parser.parse_args()
    prepare()
    if given.sequence is not None:
        return show(given.seed, given.sequence)
    state_path = given.out.with_suffix(".state.json") if given.out else None
    state: dict[str, Any] = {
        "seed": given.seed,
        "digest": digest(),
        "done": 0,
        "seconds": 0.0,
        "counts": {},
        "findings": {},
    }
    if state_path and state_path.exists():
        kept = json.loads(state_path.read_text())
        if (kept["seed"], kept["digest"]) == (state["seed"], state["digest"]):
            state = kept
    begin, before = time.monotonic(), state["seconds"]
    while state["done"] < given.sequences and (
        given.minutes is None or time.monotonic() - begin < 60 * given.minutes
    ):
        count = min(CHUNK, given.sequences - state["done"])
        done, counts, findings = chunk(given.seed, state["done"], count)
        state["done"] += done
        state["counts"] = dict(Counter(state["counts"]) + counts)
        for finding in findings:
            note(state["findings"], finding)
        state["seconds"] = before + time.monotonic() - begin
        if state_path:
            state_path.write_text(json.dumps(state))
    return report(given, state, state_path)


def prepare() -> None:
    """Have the library of kernels compiled: without it SciPy computes, and nothing is tried."""
    os.environ.setdefault("TENSORWISE_AUTOTUNE", "background")
    import tensorwise.sparse as ours
    from tensorwise.sparse.kernels import FAMILIES
    from tensorwise.sparse.library import library

    with ours.reproducible():
        if any(library(wait=True, family=family) is None for family in FAMILIES.values()):
            raise SystemExit(
                "the library of kernels is missing: python -m tensorwise.sparse.prepare says why"
            )


def chunk(seed: int, first: int, count: int) -> tuple[int, Counter[str], list[dict[str, Any]]]:
    """Run sequences in a fork; return how many, what was counted, and what was found."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        log, lines = Path(folder, "log"), Path(folder, "lines")
        at = in_fork(lambda tell: _serve(seed, first, count, log, lines, tell), LIMIT_S)
        written = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        counts: Counter[str] = Counter()
        findings = []
        for one in written:
            if "counts" in one:
                counts.update(one["counts"])
            else:
                findings.append(one)
        done = count
        if at is not None:
            number, how = at
            done = number - first + 1
            kind, setting, *text = lines.read_text().splitlines()
            counts["sequences"] += done
            findings.append({"number": number, "kind": kind, "setting": setting, "lines": text, "what": how})
        for one in findings:
            one["lines"] = shorten(one)
        ours = [one for one in findings if not differs_from_itself(one["lines"])]
        counts["lines on which SciPy differs from SciPy"] += len(findings) - len(ours)
        return done, counts, ours


def _serve(seed: int, first: int, count: int, log: Path, lines: Path, tell: Callable[[int], None]) -> None:
    """The fork: run sequences, and write a line for each difference and one in the end."""
    from sequencing.playing import draw, invent

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    counts: Counter[str] = Counter()
    with log.open("w") as out, lines.open("w") as running:
        for number in range(first, first + count):
            tell(number)
            rng = random.Random(f"{seed} {number}")
            kind, setting, length = draw(rng)
            running.seek(0)
            running.truncate()
            running.write(f"{kind}\n{setting}\n")

            def write(line: str) -> None:
                running.write(line + "\n")
                running.flush()

            played, what = invent(rng, kind, setting, length, write)
            counts["sequences"] += 1
            counts["lines"] += len(played)
            counts[f"{kind}, {setting}"] += 1
            if what:
                finding = {
                    "number": number,
                    "kind": kind,
                    "setting": setting,
                    "lines": played,
                    "what": what[:2000],
                }
                out.write(json.dumps(finding) + "\n")
                out.flush()
        out.write(json.dumps({"counts": {**counts, **_products()}}) + "\n")


def _products() -> dict[str, int]:
    """Return how many products our kernels computed in this process, where that is counted."""
    from sequencing.playing import counted

    return dict(counted)


def in_fork(run: Callable[[Callable[[int], None]], None], limit_s: float) -> tuple[int, str] | None:
    """Call ``run`` in a fork; return the last number that it told and how it ended, or None where it ended well."""
    shared = mmap.mmap(-1, 8)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            faulthandler.disable()  # crashes are told by number

            def tell(number: int) -> None:
                struct.pack_into("q", shared, 0, number)
                signal.setitimer(signal.ITIMER_REAL, limit_s)

            run(tell)
            status = 0
        except BaseException as error:
            import traceback

            traceback.print_exc()
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    (number,) = struct.unpack_from("q", shared, 0)
    if status == 0:
        return None
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return number, "hang" if name == "SIGALRM" else f"crash: {name}"
    return number, "an exception of the fuzzer itself"


def shorten(finding: dict[str, Any]) -> list[str]:
    """Return fewer lines that still differ, or still end the process."""
    from sequencing import playing

    kind, setting = finding["kind"], finding["setting"]
    ends = finding["what"].startswith(("crash", "hang", "an exception"))

    def differs(lines: list[str]) -> bool:
        wanted = "ended" if ends else f"{len(lines) - 1} {generalize(finding['what'])}"
        return _play_in_fork(lines, kind, setting) == wanted

    return playing.shorten(finding["lines"], differs)


def generalize(what: str) -> str:
    """Return the beginning of a description, without its numbers."""
    return re.sub(r"[\d.e+-]+", "0", what.partition("\n")[0])[:60]


def differs_from_itself(lines: list[str], limit_s: float = OWN_LIMIT_S) -> bool:
    """Whether SciPy differs from SciPy on these lines, crashes, or needs long.

    It reads memory that nobody wrote, for some inputs, and a masked array times a matrix makes a matrix for each element.
    """
    return any(_play_in_fork(lines, "scipy", "plain", limit_s) is not None for _ in range(5))


def _play_in_fork(lines: list[str], kind: str, setting: str, limit_s: float = LIMIT_S) -> str | None:
    """Return which line differs first and how, in general, ``ended`` where the process ended by it, or None."""
    from sequencing import playing

    read, write = os.pipe()

    def run(tell: Callable[[int], None]) -> None:
        tell(0)
        found = playing.play(lines, kind, setting)
        os.write(write, json.dumps(found and f"{found[0]} {generalize(found[1])}").encode())

    ended = in_fork(run, limit_s)
    os.close(write)
    answer = os.read(read, 1000)
    os.close(read)
    return "ended" if ended is not None else json.loads(answer)


def note(findings: dict[str, Any], finding: dict[str, Any]) -> None:
    """Add a finding to those of its kind, and print it where it is among the first."""
    from sequencing.playing import MARK, script

    last = finding["lines"][-1].partition(MARK)[0] if finding["lines"] else ""
    form = re.sub(r"operand\(.*?\)(?=;|$)|\b[ABD]\b|\d+|x = ", "", last)[:120]
    what = generalize(finding["what"])
    same = findings.setdefault(f"{what} | {form}", {"count": 0, "programs": []})
    same["count"] += 1
    if len(same["programs"]) < MOST_SHOWN:
        title = f"sequence {finding['number']}: {' '.join(finding['what'].split())[:300]}"
        same["programs"].append(script(finding["lines"], finding["kind"], finding["setting"], title))
        print(same["programs"][-1], flush=True)


def show(seed: int, number: int) -> int:
    """Run one sequence in the open."""
    from sequencing.playing import draw, invent

    rng = random.Random(f"{seed} {number}")
    kind, setting, length = draw(rng)
    print(kind, setting)
    _, what = invent(rng, kind, setting, length, lambda line: print(line, flush=True))
    print(what or "no difference")
    return 1 if what else 0


def digest() -> str:
    """Return the SHA-256 of the package and of these scripts."""
    found = hashlib.sha256()
    here = Path(__file__).parent
    package = [*ROOT.glob("tensorwise/**/*.py"), *ROOT.glob("tensorwise/**/*.c")]
    for path in sorted([*package, *here.glob("sequencing/*.py"), here / "sequences.py"]):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def report(given: argparse.Namespace, state: dict[str, Any], state_path: Path | None) -> int:
    """Print and write the result; return the exit status."""
    import numpy
    import scipy

    different = sum(same["count"] for same in state["findings"].values())
    result = {
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "versions": f"Python {platform.python_version()}, NumPy {numpy.__version__}, SciPy {scipy.__version__}",
        "machine": f"{platform.machine()} {platform.system()}, {os.cpu_count()} CPUs",
        "digest": state["digest"],
        "seed": state["seed"],
        "sequences": state["done"],
        "seconds": round(state["seconds"], 1),
        "different": different,
        "counts": state["counts"],
        "findings": state["findings"],
    }
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")
        if state_path and state["done"] >= given.sequences:
            state_path.unlink(missing_ok=True)
    kinds = len(state["findings"])
    took = f"{state['done']} sequences in {state['seconds']:.0f} s"
    print(f"{took}: {different} with a difference, of {kinds} kinds")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
