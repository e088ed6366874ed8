"""Records of a collection from a file into a folder of parts."""

import itertools
from collections.abc import Iterable
from typing import Final

from tensorwise.errors import InputError
from tensorwise.store.finished import JobRecords
from tensorwise.store.parts import PartStore
from tensorwise.store.record import Record

_BATCH_JOBS: Final = 100
"""Jobs of an imported part: about 10,000 records."""


def import_jobs(store: PartStore, records: Iterable[Record]) -> int:
    """Append the records of a collection to a folder of parts; return how many were new.

    A job that has records of its device in the folder already is skipped.

    Raises:
        InputError: a record is of no job, or the records of a job do not follow each other. What was appended before stays.
    """
    new = 0
    seen: set[tuple[str, str]] = set()
    jobs = itertools.groupby(records, lambda record: record.provenance.get("job"))
    while batch := [_job_records(job, list(some)) for job, some in itertools.islice(jobs, _BATCH_JOBS)]:
        for one in batch:
            if (one.job, one.device) in seen:
                raise InputError(
                    f"the records of the job {one.job} do not follow each other; import them into a store's file, export "
                    "its records sorted by job, and import those"
                )
            seen.add((one.job, one.device))
        new += sum(len(one.records) for one in store.append_jobs(batch))
    return new


def _job_records(job: object, records: list[Record]) -> JobRecords:
    if not isinstance(job, str):
        raise InputError(
            f"the record {records[0].id} is of no job of a collection; folders of parts hold whole jobs only: "
            "import it into a store's file"
        )
    return JobRecords.of(job, records)
