"""Claim: the store of records survives kills at random moments - nothing torn, nothing lost, nobody stuck.

    python benchmarks/robustness/kill_store.py --kills 1000

Processes append batches to one store and write into a diary what the store has acknowledged: two without
haste, one as fast as it can. That one is killed with SIGKILL at a random moment - while it makes the file,
appends, checkpoints or closes - and now and then one of the others. After each kill the store is read
and compared with the diary while the others go on, and appended to:

corrupt_reads   readings that raised, or found a record that does not match its content id
lost_batches    acknowledged batches that are not there
partial_batches batches of which some records are there and some are not
hangs           appends or readings that took longer than the store's own 30 s
errors          anything that a writer raised

All five must be 0. The result goes to ``--out`` as JSON; the exit status is 1 when the claim does not hold.
"""

import argparse
import itertools
import json
import os
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.corpus import made_by
from tensorwise.errors import TensorwiseError
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tensorwise.store.sqlite import BUSY_S
from tensorwise.store.store import Store

_BYSTANDERS = 2
_PAUSE_S = 0.02  # of a bystander between batches, so that reading keeps up with writing
_LARGEST_BATCH = 8
_LONGEST_LIFE_S = 0.04
_BYSTANDER_DIES_EVERY = 4
_KILLS_A_STORE = 25  # then a new file, so that its making is interrupted as well
_FULL_CHECK_EVERY = 5


def batch_of(writer: int, number: int, size: int) -> list[Record]:
    """Return the records of one batch: each says which batch it belongs to and how large that is."""
    return [
        Record(
            workload_id=f"writer-{writer}",
            workload={"op": "spmm", "filling": "x" * 200},
            device_id="nowhere",
            space="none",
            config=Config({"writer": writer, "batch": number, "size": size, "k": k}),
            seconds=1e-3 * (k + 1),
        )
        for k in range(size)
    ]


def write(path: Path, diary: Path, writer: int, pause_s: float) -> None:
    """Append batches until killed; note each one in the diary once the store has acknowledged it."""
    rng = np.random.default_rng(writer)
    notes = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    number = 0
    while True:
        with Store(path) as store:
            for _ in range(int(rng.integers(1, 10))):
                size = int(rng.integers(1, _LARGEST_BATCH + 1))
                store.append(batch_of(writer, number, size))
                os.write(notes, f"{writer} {number} {size}\n".encode())
                number += 1
                time.sleep(pause_s)


def start(path: Path, diary: Path, writer: int, pause_s: float) -> int:
    """Fork a writer and return its process id."""
    process = os.fork()
    if process:
        return process
    try:
        write(path, diary, writer, pause_s)
    except BaseException as error:
        with diary.with_suffix(".errors").open("a") as file:
            file.write(f"{writer}: {error!r}\n")
    finally:
        os._exit(1)


def audit(path: Path, diary: Path, found: Counter[str], full: bool) -> None:
    """Read the store and compare it with what the diary said before."""
    acknowledged = {
        (int(writer), int(number)): int(size)
        for writer, number, size in (line.split() for line in _lines(diary))
    }
    started = time.monotonic()
    present: Counter[tuple[int, int]] = Counter()
    sizes: dict[tuple[int, int], int] = {}
    try:
        with Store(path) as store:
            if full:
                store.check()
            for record in store:
                key = (_number(record, "writer"), _number(record, "batch"))
                present[key] += 1
                sizes[key] = _number(record, "size")
    except TensorwiseError as error:
        found["corrupt_reads"] += 1
        print(f"reading failed: {error}", file=sys.stderr)
        return
    found["records_read"] += present.total()
    found["lost_batches"] += sum(key not in present for key in acknowledged)
    found["partial_batches"] += sum(count != sizes[key] for key, count in present.items())
    found["hangs"] += time.monotonic() - started > BUSY_S


def _number(record: Record, name: str) -> int:
    return int(str(record.config[name]))


def _lines(diary: Path) -> list[str]:
    return diary.read_text().splitlines() if diary.exists() else []


def kill(process: int) -> bool:
    """Kill a writer and return whether it was still alive."""
    os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def run(kills: int, folder: Path, seed: int = 0) -> dict[str, Any]:
    """Kill ``kills`` writers; return what was found."""
    rng = np.random.default_rng(seed)
    writers = itertools.count()
    found: Counter[str] = Counter()
    longest_append_s = 0.0
    started = time.monotonic()
    while found["kills"] < kills:
        path, diary = folder / f"{found['kills']}.sqlite", folder / f"{found['kills']}.diary"
        bystanders: list[int] = []
        try:
            for round_ in range(_KILLS_A_STORE):
                while len(bystanders) < _BYSTANDERS:
                    bystanders.append(start(path, diary, next(writers), _PAUSE_S))
                victims = [start(path, diary, next(writers), 0.0)]
                time.sleep(float(rng.random()) * _LONGEST_LIFE_S)
                if round_ % _BYSTANDER_DIES_EVERY == 0:
                    victims.append(bystanders.pop(0))
                for victim in victims:
                    found["died_before"] += not kill(victim)
                found["kills"] += len(victims)
                audit(path, diary, found, full=round_ % _FULL_CHECK_EVERY == 0)
                before = time.monotonic()
                with Store(path) as store:
                    store.append(batch_of(next(writers), 0, 3))
                longest_append_s = max(longest_append_s, time.monotonic() - before)
                if found["kills"] >= kills:
                    break
        finally:
            for process in bystanders:
                kill(process)
        audit(path, diary, found, full=True)
        found["batches_acknowledged"] += len(_lines(diary))
        found["errors"] += len(_lines(diary.with_suffix(".errors")))
        for line in _lines(diary.with_suffix(".errors")):
            print(f"writer {line}", file=sys.stderr)
    found["hangs"] += longest_append_s > BUSY_S
    bad = ("corrupt_reads", "lost_batches", "partial_batches", "hangs", "errors")
    return {
        "kills": found["kills"],
        **{name: found[name] for name in (*bad, "died_before", "batches_acknowledged", "records_read")},
        "longest_append_s": round(longest_append_s, 3),
        "seconds": round(time.monotonic() - started, 1),
        "seed": seed,
        "sqlite": sqlite3.sqlite_version,
        "holds": not any(found[name] for name in bad),
    }


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "kill_store.json")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tensorwise-kill-store-") as folder:
        result = run(chosen.kills, Path(folder), chosen.seed) | made_by(Path(__file__))
    text = json.dumps(result, indent=1)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(text + "\n")
    print(text)
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
