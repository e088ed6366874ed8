"""Records between a store and a file: JSON lines or Parquet, for stores of both kinds."""

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tensorwise.errors import InputError, StoreError
from tensorwise.reading import lines_of, reason
from tensorwise.store.finished import JobRecords
from tensorwise.store.parts import PartStore
from tensorwise.store.record import Record
from tensorwise.writing import replacing

_BATCH_JOBS: Final = 100
"""Jobs of an imported part: about 10,000 records."""


def write_lines(path: Path, records: Iterable[Record]) -> int:
    """Write records as JSON lines and return how many. The file appears under its name only when it is complete.

    Raises:
        StoreError: the file cannot be written.
    """
    count = 0
    try:
        with replacing(path) as out:
            for record in records:
                out.write(f"{record.to_json()}\n".encode())
                count += 1
    except OSError as error:
        raise StoreError(f"records cannot be written to {path}: {reason(error)}") from error
    return count


def read_lines(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Yield the records of a file of JSON lines.

    Raises:
        InputError: the file cannot be read, or a line is malformed.
    """
    try:
        for number, line in enumerate(lines_of(path), 1):
            if line.strip():
                try:
                    yield Record.from_json(line.decode())
                except InputError as error:
                    raise InputError(f"{path}, line {number}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"records cannot be read from {path}: {reason(error)}") from error


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
