"""Reading records, of stores and of Parquet files alike."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tensorwise.data.parquet import SUFFIX, read_records
from tensorwise.data.record import Record
from tensorwise.data.store import Store


def records_of(paths: Iterable[Path]) -> Iterator[Record]:
    """Yield the records of stores (SQLite) and Parquet files, one file after the other."""
    for path in paths:
        if path.suffix == SUFFIX:
            yield from read_records(path)
        else:
            with Store(path) as store:
                yield from store
