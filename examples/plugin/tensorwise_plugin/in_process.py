"""An executor: jobs run one after the other in this process, as under a debugger."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import final

from tensorwise.collect.executors import AnyJob, Executor, ExecutorOptions
from tensorwise.errors import MeasurementError, TensorwiseError
from tensorwise.store.record import Record


@final
class InProcess(Executor[AnyJob]):
    """A job that ends this process ends the collection, too."""

    slots = 1
    remote = False

    def __init__(self, options: ExecutorOptions) -> None:
        self._thread = ThreadPoolExecutor(1)

    def submit(self, job: AnyJob) -> "Future[list[Record]]":
        return self._thread.submit(measure, job)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._thread.shutdown(wait, cancel_futures=cancel_futures)


def measure(job: AnyJob) -> list[Record]:
    """Measure a job; every error is one of Tensorwise."""
    try:
        return job.measured()
    except TensorwiseError:
        raise
    except Exception as error:
        raise MeasurementError(f"{type(error).__name__}: {error}") from error
