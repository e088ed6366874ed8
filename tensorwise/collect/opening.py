"""The executors by name, and how one is started."""

from collections.abc import Callable
from typing import Any, Final

from tensorwise.collect.executors import Executor, ExecutorOptions
from tensorwise.errors import InputError, TensorwiseError
from tensorwise.reading import reason, shown
from tensorwise.registry import Registry

EXECUTORS: Final[Registry[Callable[[ExecutorOptions], Executor[Any]]]] = Registry(
    "executor",
    "executors",
    {
        "local": "tensorwise.collect.executors:LocalExecutor.from_options",
        "spool": "tensorwise.collect.spool:SpoolExecutor.from_options",
        "ray": "tensorwise.collect.ray:RayExecutor.from_options",
        "dask": "tensorwise.collect.dask:DaskExecutor.from_options",
    },
    callable,
)
"""Name -> function that starts the executor."""


def open_executor(name: str, options: ExecutorOptions) -> Executor[Any]:
    """Start the executor of a name.

    Raises:
        InputError: there is no such executor, or it cannot be started with ``options``.
        MissingExtraError: a package that it needs is not installed.
        MeasurementError: its cluster cannot be reached.
    """
    start = EXECUTORS[name]
    try:
        found = start(options)
    except TensorwiseError:
        raise
    except Exception as error:  # whatever another distribution raises
        raise InputError(
            f"executor {name!r} cannot be started: {type(error).__name__}: {reason(error)}"
        ) from error
    if not isinstance(found, Executor):
        raise InputError(
            f"executor {name!r} cannot be started: {shown(start)} returns {shown(found)}, not an Executor"
        )
    return found
