"""The jobs that have records in a store. Of several results for one job the first stays, from any collector."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self, final

from tensorwise.store.record import Record


class JobRecords(NamedTuple):
    """The records of one job, which stores append as a whole or not at all.

    Attributes:
        job: its id; device: content id of the device that measured it.
        records: at least one.
    """

    job: str
    device: str
    records: Sequence[Record]

    @classmethod
    def of(cls, job: str, records: Sequence[Record]) -> Self:
        """Return the records of a job, on the device of the first."""
        return cls(job, records[0].device_id, records)


@final
class FinishedJobs:
    """The jobs with records in a store, as of when the store was last read. About 200 bytes a job."""

    def __init__(self) -> None:
        self.pairs: set[tuple[str, str]] = set()
        """(job, device id)."""
        self._devices: dict[str, str] = {}
        """Job -> the device of its first result."""

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Add (job, device id) of jobs."""
        for pair in pairs:
            self.pairs.add(pair)
            self._devices.setdefault(*pair)

    def has(self, job: str, device: str | None) -> bool:
        """Whether the job has records of the device; None: of any device."""
        return job in self._devices if device is None else (job, device) in self.pairs

    def get_device(self, job: str) -> str | None:
        """Return the id of the device of a job's first result; None: the job has no records."""
        return self._devices.get(job)

    def choose_new(self, results: Sequence[JobRecords], *, anywhere: bool) -> list[JobRecords]:
        """Return the first result of each job that has no records of its device yet; ``anywhere``: of any device."""
        chosen: dict[object, JobRecords] = {}
        for one in results:
            if one.records and not self.has(one.job, None if anywhere else one.device):
                chosen.setdefault(one.job if anywhere else (one.job, one.device), one)
        return list(chosen.values())
