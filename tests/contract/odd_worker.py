"""A collecting worker whose jobs do what their pattern's family says: it is killed, hangs, waits, is slow, or is well."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tensorwise.collect.executors import LocalExecutor
from tensorwise.collect.job import Job
from tensorwise.collect.serve import main
from tensorwise.collect.spool import Spool, work
from tensorwise.device.device import Device, Measurement
from tensorwise.device.null import NullDevice
from tensorwise.space.space import Space

COMMAND = [sys.executable, "-P", "-m", "tests.contract.odd_worker"]


class OddDevice(Device):
    """The null device, with the manners of a family."""

    def __init__(self, job: Job) -> None:
        self._null, self._job = NullDevice(), job
        self.name, self.id = self._null.name, self._null.id

    def space(self, workload: Any) -> Space[Any]:
        return self._null.space(workload)

    def measure(self, workload: Any, candidates: Sequence[Any], **limits: Any) -> Iterator[Measurement]:
        for count, measurement in enumerate(self._null.measure(workload, candidates)):
            if self._job.family == "slow":
                time.sleep(0.02)
            if count == 2 and self._job.family == "hangs":
                time.sleep(1000)
            # A first time only: then the next worker has better luck.
            marker = Path(self._job.path).with_suffix(f".{self._job.name}-was-here")
            if count == 2 and self._job.family == "waits-once" and not marker.exists():
                marker.write_text(f"{os.getpid()}\n")
                time.sleep(1000)
            if count == 2 and (
                self._job.family == "kills" or (self._job.family == "kills-once" and not marker.exists())
            ):
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield measurement


if __name__ == "__main__":  # not in the tests' own process
    Job.open = lambda job: OddDevice(job)  # type: ignore[method-assign]
    if len(sys.argv) == 1:
        main()
    else:  # a node of a spool: FOLDER NAME SILENCE LEASE
        executor = LocalExecutor(1, float(sys.argv[3]), COMMAND)
        work(Spool(sys.argv[1]), sys.argv[2], executor, lease_s=float(sys.argv[4]))
        executor.shutdown()
