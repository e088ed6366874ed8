"""Dask: jobs on the workers of a Dask cluster (extra ``dask``)."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, final

from tensorwise.collect.cluster import SLOT, ClusterExecutor, ClusterFuture, give_up, run
from tensorwise.errors import MissingExtraError


@final
class DaskExecutor(ClusterExecutor):
    """See ``ClusterExecutor``; an address is the scheduler's, ``tcp://HOST:PORT``.

    The cluster that is started here lies in this process.
    """

    how_to_join = f'dask worker tcp://HOST:PORT --nthreads 1 --resources "{SLOT}=1"'

    def _open(self, address: str | None, slots: int) -> None:
        try:
            import distributed
        except ImportError as error:
            raise MissingExtraError("distributed", "dask", "the executor dask") from error
        self.losses = (distributed.scheduler.KilledWorker,)
        self._cluster = None
        if address is None:
            # Each of them also answers HTTP, which cannot be helped; LocalCluster would not keep that to this machine.
            http = {"dashboard": False, "dashboard_address": "127.0.0.1:0", "protocol": "inproc://"}
            worker = {"nthreads": 1, "resources": {SLOT: 1}, "memory_limit": None, **http}
            self._cluster = distributed.SpecCluster(
                scheduler={"cls": distributed.Scheduler, "options": http},
                workers={slot: {"cls": distributed.Worker, "options": worker} for slot in range(slots)},
                silence_logs=logging.CRITICAL,
            )
        self._client = distributed.Client(address or self._cluster, set_as_default=False)

    def _count(self, resource: str) -> int:
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return int(sum(worker["resources"].get(resource, 0) for worker in workers))

    def _begin(self, resources: Mapping[str, int], *arguments: Any) -> ClusterFuture:
        task: ClusterFuture = self._client.submit(run, *arguments, resources=dict(resources), pure=False)
        return task

    def _give_up(self, tasks: Sequence[Any]) -> None:
        self._client.cancel(tasks)
        self._client.run(give_up, self._owner, on_error="ignore")

    def _close(self) -> None:
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
