"""Ray: jobs on the nodes of a Ray cluster (extra ``ray``)."""

import os
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any, Final, final

from tensorwise.collect.cluster import SLOT, ClusterExecutor, ClusterFuture, run
from tensorwise.errors import MeasurementError, MissingExtraError

HERE: Final = "127.0.0.1"
GRACE_S: Final = 10.0
"""Tasks that are given up may take so long to end."""


@final
class RayExecutor(ClusterExecutor):
    """See ``ClusterExecutor``; an address is ``HOST:PORT`` of the head, from a machine that is a node itself."""

    how_to_join = f"""ray start --address=HOST:PORT --resources='{{"{SLOT}": 1}}'"""

    def _open(self, address: str | None, slots: int) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
        if address is None:
            # On Linux Ray replaces 127.0.0.1 by the machine's own address, unless told, when imported, that there are
            # no clusters.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("ray", "ray", "the executor ray") from error
        self._ray = ray
        self.losses = (
            ray.exceptions.NodeDiedError,
            ray.exceptions.WorkerCrashedError,
            ray.exceptions.OutOfMemoryError,
        )
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address is not None:
            ray.init(address, **quiet)
        elif ray.util.get_node_ip_address() == HERE:
            ray.init(
                "local",
                num_cpus=slots,
                resources={SLOT: slots},
                include_dashboard=False,
                _node_ip_address=HERE,
                **quiet,
            )
        else:
            raise MeasurementError(
                f"ray was imported earlier, and would listen on more than {HERE}; before that, set "
                "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0, or name the address of a cluster"
            )
        self._run = ray.remote(num_cpus=0, max_retries=0)(run)

    def _count(self, resource: str) -> int:
        return int(self._ray.cluster_resources().get(resource, 0))

    def _begin(self, resources: Mapping[str, int], *arguments: Any) -> ClusterFuture:
        task: ClusterFuture = self._run.options(resources=dict(resources)).remote(*arguments).future()
        return task

    def _give_up(self, tasks: Sequence[Any]) -> None:
        for task in tasks:
            self._ray.cancel(task.object_ref, force=True)  # ends the process, and Ray those that it started
        futures.wait(tasks, GRACE_S)

    def _close(self) -> None:
        self._ray.shutdown()
