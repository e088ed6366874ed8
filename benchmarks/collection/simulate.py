"""Claim: on 1,000 nodes that fail in many ways, with drivers that are killed, a collection loses, doubles and mixes nothing.

And a driver takes less than 10 % of a core.

    python benchmarks/collection/simulate.py [--nodes 1000] [--jobs 12000] [--drivers 2] [--kills 6] [--speed 4]

The drivers, their store (a folder of parts), ledger and plan (a spool) are the real ones, in processes of their own that
SIGKILL ends at random moments; the nodes are played by one process, a third of them of each kind (``nodes.py``). A job
takes a minute, of simulated time, and has 100 samples. Each driver has its share of the nodes, and seems to be on a
machine of its own, so that the others wait for its lease before they take its jobs. In the end every record is compared
with what the node's device would have said:

lost     jobs that have no records, though some node could run them, or that a driver had acknowledged
doubled  jobs with records of two attempts, or with a record twice
false    records that are not what the device said
mixed    records of another kind of nodes than their job is for

All must be 0. ``share`` is the CPU time of a driver (user and system, starts included) over the simulated time until nine
tenths of the jobs were done; afterwards most nodes are idle, and wait for those that hang.
What a real cluster's client takes (Ray's or Dask's) is not in it.
"""

import argparse
import asyncio
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.collection.nodes import KINDS, Cluster, Node, Times, measured
from tensorwise import entries_from
from tensorwise.collect.corpus import patterns
from tensorwise.collect.job import Job, plan
from tensorwise.collect.spool import Spool
from tensorwise.store.parts import PartStore
from tensorwise.tensor.files import write

DRIVER: Final = Path(__file__).with_name("driver.py")
PATTERNS: Final = 10
LEASE_S, BEAT_S, AWAY_S = 120.0, 12.0, 120.0
"""Simulated seconds: shorter than the defaults, so that a short simulation meets them often."""
SHARE: Final = 0.10
"""The claim about a driver's share of a core."""


@dataclass(frozen=True)
class Setting:
    """What is simulated; ``speed`` is how many simulated seconds pass in one."""

    nodes: int
    jobs: int
    drivers: int
    kills: int
    speed: float
    job_s: float = 60.0
    samples: int = 100
    patience_s: float = 600.0
    seed: int = 0


def jobs_of(folder: Path, setting: Setting) -> list[Job]:
    """Return jobs that differ in pattern, seed and kind of nodes."""
    rng = np.random.default_rng(setting.seed)
    for k in range(PATTERNS):
        write(folder / f"p{k}.mtx", entries_from((rng.random((60 + k, 60)) < 0.1) * 1.0))
    found = patterns([folder])
    jobs: list[Job] = []
    for seed in range(math.ceil(setting.jobs / PATTERNS / len(KINDS))):
        jobs += plan(
            found, ["spmm"], n=[8], device="null", samples=setting.samples, seed=seed, kinds=tuple(KINDS)
        )
    return jobs[: setting.jobs]


async def run_drivers(folder: Path, setting: Setting, jobs: Sequence[Job]) -> dict[str, Any]:
    """Run drivers, kill some, and start them again until all jobs are done; return what it took."""
    draw = random.Random(setting.seed)
    picked = draw.sample(range(len(jobs)), 4)
    poison, unreadable = ({jobs[k].id for k in some} for some in (picked[:2], picked[2:]))
    times = Times(setting.job_s, setting.patience_s, AWAY_S, setting.speed)
    templates = measured(jobs)
    kinds, clusters = list(KINDS), []
    for k in range(setting.drivers):
        nodes = [Node(kinds[n % len(kinds)]) for n in range(k, setting.nodes, setting.drivers)]
        clusters.append(Cluster(nodes, templates, times, frozenset(poison), frozenset(unreadable), k))
    servers = [await cluster.serve(folder / f"{k}.socket") for k, cluster in enumerate(clusters)]
    spent = {"cpu_s": 0.0, "runs": 0, "kills": 0, "reports": []}
    left_to_kill = [
        setting.kills // setting.drivers + (k < setting.kills % setting.drivers)
        for k in range(setting.drivers)
    ]
    running: list[subprocess.Popen[bytes]] = []
    start = time.monotonic()

    async def keep_driving(k: int) -> None:
        lives = random.Random(1000 + k)
        while True:
            report = folder / f"report-{k}-{spent['runs']}.json"
            process = subprocess.Popen([sys.executable, str(DRIVER), _orders(folder, setting, k, report)])
            running.append(process)
            spent["runs"] += 1
            waiting = asyncio.create_task(_ended(process))
            if left_to_kill[k]:
                await asyncio.wait([waiting], timeout=lives.uniform(1.0, 6.0) * setting.job_s / setting.speed)
                if not waiting.done():
                    left_to_kill[k] -= 1
                    spent["kills"] += 1
                    process.kill()
            status, used_s = await waiting
            spent["cpu_s"] += used_s
            if os.WIFSIGNALED(status):  # sometimes it is back at once, sometimes others have its jobs by then
                await times.sleep(lives.choice([0.0, 2 * LEASE_S]))
                continue
            assert os.WEXITSTATUS(status) == 0, "a driver failed"
            spent["reports"].append(json.loads(report.read_text()))
            if {job for job, _ in PartStore(folder / "s.parts").jobs()} >= {
                one.id for one in jobs
            } - poison - unreadable:
                return

    async def watch() -> None:
        """Note when nine tenths of the jobs were done, and what the drivers had taken until then."""
        store = PartStore(folder / "s.parts")
        while len(store.jobs()) < 0.9 * len(jobs):
            await asyncio.sleep(0.5)
        alive = sum(_cpu_s(process.pid) for process in running if process.returncode is None)
        spent["busy_s"], spent["busy_cpu_s"] = time.monotonic() - start, spent["cpu_s"] + alive
        spent["busy_records"] = len(store)

    watching = asyncio.create_task(watch())
    try:
        await asyncio.gather(*(keep_driving(k) for k in range(setting.drivers)))
    finally:
        for process in running:
            if process.returncode is None:
                process.kill()
                process.wait()
    await watching
    wall_s = time.monotonic() - start
    for server in servers:
        server.close()
    outcomes = sum((cluster.outcomes for cluster in clusters), Counter())
    return {
        **spent,
        "wall_s": wall_s,
        "outcomes": outcomes,
        "spoiled": poison | unreadable,
        "templates": templates,
    }


def _orders(folder: Path, setting: Setting, k: int, report: Path) -> str:
    speed = setting.speed
    limits = {
        "batch_s": 5 / speed, "gather_s": 0.2 / speed, "look_s": 0.5 / speed, "beat_s": BEAT_S / speed,
        "lease_s": LEASE_S / speed, "patience_s": setting.patience_s / speed,
    }  # fmt: skip
    return json.dumps({
        "socket": str(folder / f"{k}.socket"), "spool": str(folder / "spool"), "store": str(folder / "s.parts"),
        "machine": f"machine-{k}", "diary": str(folder / f"diary-{k}"), "report": str(report), "count_s": 5 / speed,
        "limits": limits,
    })  # fmt: skip


def _cpu_s(process: int) -> float:
    """Return the CPU time of a process that runs."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _ended(process: "subprocess.Popen[bytes]") -> tuple[int, float]:
    """Return the status of a process that ended, and its CPU time."""
    while True:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            process.returncode = status
            return status, usage.ru_utime + usage.ru_stime
        await asyncio.sleep(0.05)


def check(folder: Path, jobs: Sequence[Job], found: dict[str, Any]) -> dict[str, int]:
    """Compare the records with what the devices said."""
    by_id = {job.id: job for job in jobs}
    expected = {
        key: {(row[5], row[6], json.loads(row[-1])["batch"]) for row in rows}
        for key, rows in found["templates"].items()
    }
    devices = {kind: rows[0][3] for (_, kind), rows in found["templates"].items()}
    attempts: dict[str, set[object]] = defaultdict(set)
    counts: Counter[str] = Counter()
    ids: set[str] = set()
    wrong = Counter(lost=0, doubled=0, false=0, mixed=0)
    records = 0
    for record in PartStore(folder / "s.parts"):
        records += 1
        job = by_id.get(str(record.provenance["job"]))
        if job is None or record.id in ids:
            wrong["false" if job is None else "doubled"] += 1
            continue
        ids.add(record.id)
        attempts[job.id].add(record.provenance["attempt"])
        counts[job.id] += 1
        seconds = None if math.isinf(record.seconds) else record.seconds
        wrong["mixed"] += record.device_id != devices[job.kind] or record.provenance["kind"] != job.kind
        wrong["false"] += (record.config.text, seconds, record.provenance["batch"]) not in expected[
            job.name, job.kind
        ]
    wrong["doubled"] += sum(len(some) > 1 for some in attempts.values())
    wrong["false"] += sum(
        count != len(found["templates"][by_id[job].name, by_id[job].kind]) for job, count in counts.items()
    )
    told = {line for path in folder.glob("diary-*") for line in path.read_text().split("\n")[:-1]}
    wrong["lost"] += len((by_id.keys() - found["spoiled"] | (told - found["spoiled"])) - counts.keys())
    return {**wrong, "records": records}


def simulate(setting: Setting) -> dict[str, Any]:
    """Return what became of a collection, and what its drivers took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "patterns").mkdir()
        jobs = jobs_of(folder / "patterns", setting)
        Spool(folder / "spool").plan(jobs)
        found = asyncio.run(run_drivers(folder, setting, jobs))
        checked = check(folder, jobs, found)
        files = [path for path in (folder / "s.parts").rglob("*") if path.is_file()]
        parts = [path.stat().st_size for path in files if path.suffix == ".parquet"]
        reports = found["reports"]
        busy_s = found["busy_s"] * setting.speed
        return {
            **vars(setting), **checked, "outcomes": dict(found["outcomes"]), "runs": found["runs"], "killed": found["kills"],
            "redone": sum(one["redone"] for one in reports), "dropped": sum(one["dropped"] for one in reports),
            "wall_s": found["wall_s"],
            "simulated_s": found["wall_s"] * setting.speed,
            "cpu_s": found["cpu_s"],
            "busy_s": busy_s,
            "busy_cpu_s": found["busy_cpu_s"],
            "share": found["busy_cpu_s"] / busy_s / setting.drivers,
            "cpu_us_a_record": 1e6 * found["busy_cpu_s"] / found["busy_records"],
            "records_a_second": found["busy_records"] / busy_s,
            "start_cpu_s": max(one["start_cpu_s"] for one in reports),
            "memory_mb": max(one["memory_mb"] for one in reports), "parts": len(parts), "files": len(files),
            "part_bytes": sum(parts), "bytes_a_record": sum(parts) / checked["records"],
        }  # fmt: skip


def main() -> None:
    """Simulate, print, and write the result."""
    from benchmarks.corpus import made_by

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=12_000)
    parser.add_argument("--drivers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--speed", type=float, default=4.0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "collection.json")
    asked = parser.parse_args()
    found = simulate(Setting(asked.nodes, asked.jobs, asked.drivers, asked.kills, asked.speed))
    holds = not any(found[name] for name in ("lost", "doubled", "false", "mixed")) and found["share"] < SHARE
    result = {"when": time.strftime("%Y-%m-%d"), "holds": holds, **found, **made_by(Path(__file__))}
    asked.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    raise SystemExit(not holds)


if __name__ == "__main__":
    main()
