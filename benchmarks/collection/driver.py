"""A driver of the simulation: all of it is real, but for the cluster, which is fake nodes behind a socket.

python benchmarks/collection/driver.py '{"socket": ..., "spool": ..., "store": ..., "machine": ..., ...}'
"""

import json
import resource
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, final

sys.path.insert(0, str(Path(__file__).parents[2]))

from tensorwise.collect import cluster, ledger
from tensorwise.collect.cluster import ClusterExecutor, ClusterFuture
from tensorwise.collect.driver import Limits, collect
from tensorwise.collect.spool import Spool
from tensorwise.store.parts import PartStore


class NodeGoneError(Exception):
    """A node was lost."""


@final
class SocketExecutor(ClusterExecutor):
    """Runs jobs on the fake nodes behind a socket."""

    losses = (NodeGoneError,)
    how_to_join = "benchmarks/collection/simulate.py"

    def _open(self, address: str | None, slots: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(address))
        self._counts: dict[str, int] = {}
        self._heard = threading.Event()
        self._open_tasks: dict[int, Future[Any]] = {}
        self._number = 0
        threading.Thread(target=self._listen, daemon=True).start()
        self._heard.wait()

    def _listen(self) -> None:
        with self._socket.makefile("rb") as lines:
            for line in lines:
                said = json.loads(line)
                if "counts" in said:
                    self._counts = said["counts"]
                    self._heard.set()
                elif (task := self._open_tasks.pop(said["task"], None)) is not None:  # None: it answers twice
                    if "gone" in said:
                        task.set_exception(NodeGoneError(said["gone"]))
                    else:
                        task.set_result(said["answer"])

    def _count(self, resource: str) -> int:
        return self._counts.get(resource, 0)

    def _begin(self, resources: Mapping[str, int], *arguments: Any) -> ClusterFuture:
        self._number += 1
        task: Future[Any] = Future()
        self._open_tasks[self._number] = task
        self._socket.sendall(json.dumps({"task": self._number, "job": arguments[1]}).encode() + b"\n")
        return task

    def _give_up(self, tasks: Sequence[Any]) -> None:
        pass

    def _close(self) -> None:
        self._socket.close()


def main() -> None:
    """Collect, and write down what the store has acknowledged, and what it took."""
    asked = json.loads(sys.argv[1])
    ledger.boot_id = lambda: asked["machine"]  # each driver is on a machine of its own
    cluster.COUNT_S = asked["count_s"]
    store = PartStore(asked["store"])
    began_s = time.process_time()
    with open(asked["diary"], "a", buffering=1) as diary:
        found = collect(
            Spool(asked["spool"]).planned(), store, SocketExecutor(asked["socket"]), anywhere=True,
            observe=lambda job, found: diary.write(f"{job.id}\n"), limits=Limits(**asked["limits"]),
        )  # fmt: skip
    facts = {**found.to_json(), "start_cpu_s": began_s, "cpu_s": time.process_time()}
    facts["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    Path(asked["report"]).write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
