"""All configs of a machine on many matrices: a table of seconds, a row a workload, that grows until it is whole."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.splits import splits
from cognate.data import target_workload
from tensorwise.collect.corpus import Pattern
from tensorwise.device.spade import SpadeDevice
from tensorwise.errors import InputError
from tensorwise.writing import replacing

Row = dict[str, Any]
Job = tuple[str, str]
"""Operation, and pattern with how it is enlarged."""


def simulated(job: Job, machine: str, files: Mapping[str, Pattern], n: int) -> Row:
    """Return what all configs of a workload take, in the order of the space's table.

    Args:
        files: of the corpus, by name; n: dense columns.
    """
    op, pattern = job
    device, work = SpadeDevice(machine), target_workload(op, files, pattern, n)
    seconds = [one.seconds for one in device.measure(work, list(device.space(work).enumerate(work)))]
    rows, columns = work.entries.shape
    family = splits().family(pattern, files[pattern.partition("~")[0]].family)
    return {
        "pattern": pattern, "family": family, "op": op, "workload_id": work.id,
        "rows": rows, "columns": columns, "nnz": work.entries.nnz, "seconds": seconds,
    }  # fmt: skip


def each_simulated(
    jobs: Sequence[Job], machine: str, files: Mapping[str, Pattern], n: int, ends: float
) -> Iterator[Row]:
    """Yield rows as they are there, of as many workloads at a time as there are processors; none is begun after ``ends``."""
    waiting, running = list(reversed(jobs)), set[Future[Row]]()
    count = os.cpu_count() or 1
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        while True:
            while waiting and len(running) < count and time.monotonic() < ends:
                running.add(pool.submit(simulated, waiting.pop(), machine, files, n))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (one.result() for one in done)


class Simulations:
    """The table in a Parquet file. What it depends on, the machine's id and the dense columns, is its metadata.

    Raises:
        InputError: the file is of another machine, or another number of columns.
    """

    def __init__(self, path: Path, about: Mapping[str, str]) -> None:
        from pyarrow.parquet import read_table

        self.path, self.about, self.rows = path, dict(about), list[Row]()
        if path.exists():
            found = read_table(path)
            held = {key.decode(): value.decode() for key, value in found.schema.metadata.items()}
            if held != self.about:
                raise InputError(f"{path} was made with {held}, not {self.about}; move it away")
            self.rows = found.to_pylist()

    def left(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs that the table does not have."""
        known = {(row["op"], row["pattern"]) for row in self.rows}
        return [job for job in jobs if job not in known]

    def add(self, row: Row) -> None:
        """Add a row and write the file: whole or not at all."""
        import pyarrow
        from pyarrow.parquet import write_table

        self.rows.append(row)
        table = pyarrow.Table.from_pylist(self.rows).replace_schema_metadata(self.about)
        with replacing(self.path) as file:
            write_table(table, file, compression="zstd")
