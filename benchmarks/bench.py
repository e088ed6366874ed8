"""A process that measures, with environment variables of its own."""

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import ParamSpec, Self, TypeVar, final

from tensorwise.errors import MeasurementError

P = ParamSpec("P")
T = TypeVar("T")


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the length of a block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@final
class Bench:
    """A process that measures: OpenMP runtimes read their number of threads as they start, and a library may crash.

    Args:
        threads: of OpenMP and Numba there.
        variables: environment variables of the process.
    """

    def __init__(self, threads: int, variables: Mapping[str, str] | None = None) -> None:
        count = str(threads)
        self._variables = {"OMP_NUM_THREADS": count, "NUMBA_NUM_THREADS": count, **(variables or {})}
        self._pool: ProcessPoolExecutor | None = None

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function there and return what it returns, or raise what it raises.

        Raises:
            MeasurementError: the process died of it; the next call starts another one.
        """
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            with environment(self._variables):
                job = self._pool.submit(function, *args, **kwargs)
            return job.result()
        except BrokenProcessPool as error:
            self.close()
            raise MeasurementError("the measuring process died") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
