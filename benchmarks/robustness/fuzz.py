"""Claim: whatever enters by any door ends as a value or as a TensorwiseError - no other exception, crash, hang, or memory.

    python benchmarks/robustness/fuzz.py --minutes 10
    python benchmarks/robustness/fuzz.py --cases 1000000 --out benchmarks/robustness/fuzz.json

A door is where foreign bytes or objects enter: files, texts, JSON, models, objects of other libraries, environment
variables, arguments. Each has valid inputs, which are changed at random but in keeping with their structure. Cases run in
this process's forks, some hundred a fork, under limits of memory and time. A case is known by door, seed and number: the
same command goes on where it stopped (see ``--state``), and ``--case DOOR:NUMBER`` runs one case in the open.

finding kinds: ``exception`` (no TensorwiseError), ``hang`` (over ``--limit`` seconds), ``crash`` (a signal), ``memory``
(over 512 MiB for one case), ``exit``. The exit status is 1 when there are any.
"""

import argparse
import datetime
import hashlib
import json
import mmap
import os
import platform
import random
import resource
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # so that it runs as a script

from fuzzing.doors import DOORS, Door

from tensorwise.errors import TensorwiseError

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 500
"""Cases a fork."""
MEMORY_BYTES = 512 * 2**20
"""One case may add so much to the most memory that its process had."""
ADDRESS_BYTES = 8 * 2**30
"""Address space of a fork, beyond which allocating raises MemoryError."""


class HangError(BaseException):
    """A case takes too long; no handler of exceptions may stop it."""


def main() -> int:
    """Run cases until there are enough; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, help="end after so many minutes instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--doors", nargs="*", default=list(DOORS), choices=list(DOORS))
    parser.add_argument("--limit", type=float, default=10.0, help="seconds of a case")
    parser.add_argument("--case", help="DOOR:NUMBER: run this one in the open")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--state", type=Path, help="where an interrupted campaign goes on; default: beside --out"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"  # cases run in forks, which OpenMP's threads do not survive
    with tempfile.TemporaryDirectory(
        prefix="fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None
    ) as folder:
        os.environ["TENSORWISE_CACHE_DIR"] = f"{folder}/cache"
        os.environ["TENSORWISE_STORE"] = f"{folder}/store.sqlite"
        if given.case:
            name, _, number = given.case.rpartition(":")
            case(DOORS[name], given.seed, int(number), Path(folder))
            return 0
        return campaign(given, Path(folder))


def case(door: Door, seed: int, number: int, folder: Path) -> str:
    """Run one case and return how it ended: ``ok`` or the name of a TensorwiseError; other exceptions pass."""
    try:
        door.run(random.Random(f"{seed} {door.name} {number}"), folder)
    except TensorwiseError as error:
        str(error).encode()  # a message is whole text, too
        return type(error).__name__
    except MemoryError:
        return "MemoryError"
    return "ok"


def campaign(given: argparse.Namespace, folder: Path) -> int:
    """Run chunk after chunk, door after door; write the result."""
    state_path = given.state or (given.out.with_suffix(".state.json") if given.out else None)
    state: dict[str, Any] = {
        "seed": given.seed,
        "done": {},
        "ended": {},
        "findings": [],
        "seconds": 0.0,
        "took": {},
        "digest": digest(),
    }
    if state_path and state_path.exists():
        kept = json.loads(state_path.read_text())
        if (kept["seed"], kept["digest"]) == (state["seed"], state["digest"]):
            state = kept
    if closed := [name for name in given.doors if not DOORS[name].works]:
        print(f"left out, for want of a package: {', '.join(closed)}", flush=True)
        given.doors = [name for name in given.doors if DOORS[name].works]
    begin, before = time.monotonic(), state["seconds"]
    for name in given.doors:
        DOORS[name].prepare(folder)
    while True:
        state["seconds"] = before + time.monotonic() - begin
        total = sum(state["done"].values())
        late = given.minutes is not None and state["seconds"] > 60 * given.minutes
        if late or (given.minutes is None and total >= given.cases):
            break
        # The door that lags most behind its share is next.
        name = min(given.doors, key=lambda one: state["done"].get(one, 0) / DOORS[one].weight)
        door, first = DOORS[name], state["done"].get(name, 0)
        share = door.weight / sum(DOORS[one].weight for one in given.doors)
        most = CHUNK if given.minutes is not None else min(CHUNK, int(given.cases * share / 3))
        count = max(10, int(most * min(1.0, door.weight)))
        since = time.monotonic()
        done, ended, findings = chunk(door, given.seed, first, count, given.limit, folder)
        state["took"][name] = round(state["took"].get(name, 0.0) + time.monotonic() - since, 2)
        state["done"][name] = first + done
        state["ended"][name] = Counter(state["ended"].get(name, {})) + ended
        state["findings"] += findings
        for one in findings:
            print(f"{one['kind']}: {name}:{one['case']}: {one['what'][:300]}", flush=True)
        if state_path:
            state_path.write_text(json.dumps(state))
    return report(given, state, state_path)


def chunk(
    door: Door, seed: int, first: int, count: int, limit_s: float, folder: Path
) -> tuple[int, Counter[str], list[dict[str, Any]]]:
    """Run cases in a fork; return how many, how they ended, and what was found."""
    shared = mmap.mmap(-1, 16)
    read, write = os.pipe()
    own = folder / "case"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    child = os.fork()
    if child == 0:
        os.close(read)
        status = 1
        try:
            _serve(door, seed, first, count, limit_s, own, shared, write)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    seen, since, found = -1, time.monotonic(), b""
    os.set_blocking(read, False)
    killed = False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        while True:
            try:
                piece = os.read(read, 1 << 16)
            except BlockingIOError:
                break
            if not piece:
                break
            found += piece
        if ended:
            break
        (now,) = struct.unpack_from("q", shared, 0)
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > 2 * limit_s + 5:
            os.kill(child, signal.SIGKILL)
            killed = True
            os.waitpid(child, 0)
            break
        time.sleep(0.002)
    os.close(read)
    (at,) = struct.unpack_from("q", shared, 0)
    lines = [json.loads(line) for line in found.splitlines() if line.endswith(b"}")]
    counts = Counter[str]()
    findings = []
    for line in lines:
        if "ended" in line:
            counts.update(line["ended"])
        else:
            findings.append(line)
    done = count
    if killed or status != 0:
        done = at - first + 1
        kind = "hang" if killed else "crash" if os.WIFSIGNALED(status) else "exit"
        findings.append({"kind": kind, "door": door.name, "case": at, "what": f"status {status}"})
        counts["lost"] += done
    return done, counts, findings


def _serve(
    door: Door, seed: int, first: int, count: int, limit_s: float, folder: Path, shared: mmap.mmap, write: int
) -> None:
    """The fork: run cases, and write a line for each finding and one in the end."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)

    def late(number: int, frame: FrameType | None) -> None:
        raise HangError("".join(traceback.format_stack(frame)[-3:]))

    signal.signal(signal.SIGALRM, late)
    counts = Counter[str]()
    with os.fdopen(write, "w") as out:

        def tell(kind: str, at: int, what: str) -> None:
            counts[kind] += 1
            out.write(json.dumps({"kind": kind, "door": door.name, "case": at, "what": what}) + "\n")
            out.flush()

        for at in range(first, first + count):
            struct.pack_into("q", shared, 0, at)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            signal.setitimer(signal.ITIMER_REAL, limit_s)
            try:
                counts[case(door, seed, at, folder)] += 1
            except HangError as error:
                tell("hang", at, str(error))
            except BaseException as error:
                where = traceback.extract_tb(error.__traceback__)
                ours = [one for one in where if Path(one.filename).is_relative_to(ROOT / "tensorwise")][-3:]
                if not ours:  # the input could not be made
                    counts["no case"] += 1
                    continue
                lines = " ".join(f"{Path(one.filename).name}:{one.lineno}" for one in ours)
                tell("exception", at, f"{type(error).__name__}: {str(error)[:120]!a} {lines}")
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
            if grown > MEMORY_BYTES:
                tell("memory", at, f"{grown >> 20} MiB")
        out.write(json.dumps({"ended": counts}) + "\n")


def digest() -> str:
    """Return the SHA-256 of the package and of these scripts."""
    found = hashlib.sha256()
    for path in sorted(
        [
            *ROOT.glob("tensorwise/**/*.py"),
            *ROOT.glob("tensorwise/**/*.c"),
            *ROOT.glob("benchmarks/robustness/**/*.py"),
        ]
    ):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def report(given: argparse.Namespace, state: dict[str, Any], state_path: Path | None) -> int:
    """Print and write the result; return the exit status."""
    total = sum(state["done"].values())
    commit: Sequence[str] = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    result = {
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(),
        "machine": f"{platform.processor() or platform.machine()} {platform.system()} Python {platform.python_version()}",
        "commit": commit[0] if commit else "",
        "digest": state["digest"],
        "seed": state["seed"],
        "cases": total,
        "seconds": round(state["seconds"], 1),
        "cases_per_s": round(total / max(state["seconds"], 1e-9)),
        "doors": {
            name: {
                "cases": state["done"][name],
                "seconds": state["took"][name],
                **state["ended"].get(name, {}),
            }
            for name in state["done"]
        },
        "findings": state["findings"],
    }
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")
        if state_path:
            state_path.unlink(missing_ok=True)
    print(
        f"{total} cases in {result['seconds']} s ({result['cases_per_s']} a second): {len(state['findings'])} findings"
    )
    broken = [
        name for name, ended in state["ended"].items() if ended.get("no case", 0) > state["done"][name] / 2
    ]
    for name in broken:
        print(
            f"{name}: most of its inputs could not be made: run tests/unit/benchmarks/test_fuzz.py -k {name!r}"
        )
    return 1 if state["findings"] or broken else 0


if __name__ == "__main__":
    sys.exit(main())
