"""The executors by name, and how one is started."""

from collections.abc import Callable
from typing import Any, Final

from tensorwise.collect.executors import Executor, ExecutorOptions
from tensorwise.registry import Registry, needs_function

EXECUTORS: Final[Registry[Callable[[ExecutorOptions], Executor[Any]]]] = Registry(
    "executor",
    "executors",
    {
        "local": "tensorwise.collect.executors:LocalExecutor.from_options",
        "spool": "tensorwise.collect.spool:SpoolExecutor.from_options",
        "ray": "tensorwise.collect.ray:RayExecutor.from_options",
        "dask": "tensorwise.collect.dask:DaskExecutor.from_options",
    },
    needs_function,
)
"""Name -> function that starts the executor."""


def open_executor(name: str, options: ExecutorOptions) -> Executor[Any]:
    """Start the executor of a name.

    Raises:
        InputError: there is no such executor, or it cannot be started with ``options``.
        MissingExtraError: a package that it needs is not installed.
        MeasurementError: its cluster cannot be reached.
    """
    found: Executor[Any] = EXECUTORS.make(name, options, Executor, "started")
    return found
