"""Records wherever they are: in a store (SQLite), a folder of parts, or a Parquet file."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tensorwise.store.parquet import SUFFIX, read_records
from tensorwise.store.parts import PartStore, is_part_store
from tensorwise.store.record import Record
from tensorwise.store.store import Store


def records_of(paths: Iterable[Path]) -> Iterator[Record]:
    """Yield the records of stores (SQLite), folders of parts and Parquet files, one after the other."""
    for path in paths:
        if path.suffix == SUFFIX:
            yield from read_records(path)
        else:
            with open_store(path) as store:
                yield from store


def open_store(path: Path | None) -> Store | PartStore:
    """Open the store at ``path``: a folder of parts, by its suffix ``.parts`` or by what is there, else an SQLite file."""
    return PartStore(path) if path is not None and is_part_store(path) else Store(path)
