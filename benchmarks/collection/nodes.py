"""Fake nodes: a process that plays a cluster of many nodes for one driver, over a socket.

A node waits as long as a measurement would take and answers with what the null device of its kind says; or it does what
nodes do: crash, vanish, hang, be slow, answer twice, late, damaged, or for another job.
"""

import asyncio
import json
import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

from tensorwise.collect.cluster import SLOT
from tensorwise.collect.job import Job
from tensorwise.device.null import NullDevice, smooth_cost
from tensorwise.store.record import row_id

KINDS: Final = {"slow": 3.0, "middle": 2.0, "fast": 1.0}
"""Kinds of nodes, and how long everything takes there: their answers differ."""
OUTCOMES: Final = {
    "well": 0.87, "crash": 0.02, "vanish": 0.03, "hang": 0.01, "late": 0.02, "slow": 0.02, "twice": 0.01, "damaged": 0.01,
    "other job": 0.005, "other kind": 0.005,
}  # fmt: skip
"""What becomes of a job on a node, and how often."""
LINE_BYTES: Final = 64 * 2**20
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Times:
    """Simulated seconds, and how many of them pass in a second.

    Attributes:
        job_s: median of a job; patience_s: after which the driver gives a job up; away_s: of a node that vanished.
    """

    job_s: float
    patience_s: float
    away_s: float
    speed: float

    async def sleep(self, seconds: float) -> None:
        """Wait for so many simulated seconds."""
        await asyncio.sleep(seconds / self.speed)


def measured(jobs: Sequence[Job]) -> dict[tuple[str, str], list[Row]]:
    """Return the rows of records of each pattern on each kind of nodes, measured on null devices that differ."""
    found: dict[tuple[str, str], list[Row]] = {}
    for job in jobs:
        if (job.name, job.kind) not in found:
            device = NullDevice(partial(_cost, KINDS[job.kind]), f"null-{job.kind}")
            with mock.patch.object(Job, "open", lambda _, device=device: device):
                found[job.name, job.kind] = [record.to_row() for record in job.measured()]
    return found


def _cost(factor: float, workload: Any, config: Any) -> float:
    return factor * smooth_cost(workload, config)


def rows_of(template: Sequence[Row], job: str, kind: str, attempt: str) -> list[Row]:
    """Return the rows of one attempt at a job."""
    made = []
    for row in template:
        facts = {**json.loads(row[-1]), "job": job, "kind": kind, "attempt": attempt}
        values = (*row[1:-1], json.dumps(facts, sort_keys=True, separators=(",", ":")))
        made.append((row_id(values), *values))
    return made


@dataclass
class Node:
    """One node of a kind."""

    kind: str
    busy: bool = False
    away: bool = False


@dataclass
class Cluster:
    """The nodes that one driver uses. They outlive it: the next one finds them."""

    nodes: list[Node]
    templates: Mapping[tuple[str, str], list[Row]]
    times: Times
    poison: frozenset[str]
    unreadable: frozenset[str]
    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._queue: deque[tuple[int, Job]] = deque()
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, path: Path) -> asyncio.Server:
        """Listen for drivers, one after the other."""
        return await asyncio.start_unix_server(self._talk, path, limit=LINE_BYTES)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Run what a driver submits, until it is gone: then its jobs end with it."""
        self._writer = writer
        self._queue.clear()
        try:
            self._count()
            while line := await reader.readline():
                asked = json.loads(line)
                self._queue.append((asked["task"], Job.from_json(asked["job"])))
                self._assign()
        except (ConnectionError, ValueError, asyncio.CancelledError):
            pass
        finally:
            for task in list(self._tasks):
                task.cancel()
            for node in self.nodes:
                node.busy = node.away = False
            self._writer = None
            writer.close()

    def _count(self) -> None:
        counts = Counter({SLOT: 0}) + Counter(
            name for node in self.nodes if not node.away for name in (SLOT, f"{SLOT}-{node.kind}")
        )
        self._send({"counts": counts})

    def _assign(self) -> None:
        """Give jobs that wait to free nodes of their kind."""
        for _ in range(len(self._queue)):
            task, job = self._queue.popleft()
            free = [node for node in self.nodes if node.kind == job.kind and not (node.busy or node.away)]
            if not free:
                self._queue.append((task, job))
                continue
            node = free[0]
            node.busy = True
            running = asyncio.create_task(self._run(node, task, job))
            self._tasks.add(running)
            running.add_done_callback(self._tasks.discard)

    async def _run(self, node: Node, task: int, job: Job) -> None:
        draw, times = self._random, self.times
        job_s = times.job_s * draw.lognormvariate(0.0, 0.5)
        outcome = draw.choices(list(OUTCOMES), list(OUTCOMES.values()))[0]
        outcome = "crash" if job.id in self.poison else "unreadable" if job.id in self.unreadable else outcome
        self.outcomes[outcome] += 1
        answer = {"records": self._rows(job, job.id, job.kind)}
        if outcome in ("crash", "unreadable", "vanish"):
            await times.sleep(job_s * draw.random())
        elif outcome in ("hang", "late"):
            await times.sleep(times.patience_s * draw.uniform(1.1, 2.0))
        else:
            await times.sleep(job_s * (8 if outcome == "slow" else 1))
        if outcome == "crash":
            answer = {"lost": "the worker ended with status -9"}
        elif outcome == "unreadable":
            answer = {"error": "it cannot be read"}
        elif outcome == "damaged":
            rows = answer["records"]
            rows[-1] = (*rows[-1][:6], 1e-9, *rows[-1][7:])
        elif outcome == "other job":
            answer = {"records": self._rows(job, "0" * 32, job.kind)}
        elif outcome == "other kind":
            answer = {"records": self._rows(job, job.id, next(kind for kind in KINDS if kind != job.kind))}
        if outcome in ("vanish", "hang"):
            self._send({"task": task, "gone": "the node does not answer"})
            node.away = True
            self._count()
            await times.sleep(times.away_s * draw.random())
            node.away = False
            self._count()
        else:
            for _ in range(2 if outcome == "twice" else 1):
                self._send({"task": task, "answer": answer})
        node.busy = False
        self._assign()

    def _rows(self, job: Job, said: str, kind: str) -> list[Row]:
        return rows_of(self.templates[job.name, kind], said, kind, f"{self._random.getrandbits(64):x}")

    def _send(self, message: dict[str, Any]) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
