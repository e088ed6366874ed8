"""Records as Parquet: one row a record, a column for each choice of its config and each fact of its provenance.

Files that a collection appends have the columns of ``record.COLUMNS`` instead (``write_rows``); both are read alike.

Some fifty bytes a record, where JSON lines take sixteen hundred. Nothing is lost: records that are read back have the
content ids that they had.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, BinaryIO, Final

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.reading import WRONG_DATA, open_regular, parse_json, printable, reason
from tensorwise.space.config import Config
from tensorwise.store.record import COLUMNS, Record
from tensorwise.writing import replacing

SUFFIX: Final = ".parquet"
_PLAIN: Final = ("workload_id", "device_id", "space", "spread_s", "status", "note")
_PAGE: Final = 10_000
_FREE_BYTES: Final = 64 * 2**20
_MOST_EXPANSION: Final = 1000
"""A file is read until its records are 64 MiB, and so many times its size: texts of ours are 7 to 21 times it,
and of many configs of one large workload perhaps 200 times."""
_ROW_BYTES: Final = 64
"""A record counts for at least so many: texts that are all empty end, too."""
_NULL: Final = object()
"""JSON's null in a provenance, which is not the absence of a value."""


def write_records(path: str | os.PathLike[str], records: Iterable[Record]) -> int:
    """Write records to ``path`` and return how many.

    Columns are those of ``record.COLUMNS`` without ``id``; of config and provenance each key has one, such as
    ``config.split_i`` and ``provenance.drawn``, empty where a record lacks it. ``seconds`` is empty where it is infinite.
    Numbers of provenance are numbers where all of a key are; all else is JSON text.

    Raises:
        InputError: the file cannot be written.
        MissingExtraError: pyarrow is not installed.
    """
    pa, parquet = _arrow()
    columns: dict[str, list[Any]] = {}
    texts: dict[str, str] = {}  # equal texts are kept once
    count = 0
    for record in records:
        for name, value in _row(record).items():
            if (column := columns.get(name)) is None:
                column = columns[name] = [None] * count
            column.append(texts.setdefault(value, value) if isinstance(value, str) else value)
        count += 1
        for column in columns.values():
            if len(column) < count:
                column.append(None)
    table = pa.table({name: pa.array(*_typed(pa, name, column)) for name, column in columns.items()})
    _write(path, lambda file: parquet.write_table(table, file, compression="zstd"))
    return count


def write_rows(path: str | os.PathLike[str], rows: Sequence[Sequence[str | float | None]]) -> None:
    """Write rows of records (see ``Record.to_row``) to ``path``, with a column for each of ``record.COLUMNS``.

    Six microseconds a record, where ``write_records`` takes a hundred and writes smaller files.

    Raises:
        InputError: the file cannot be written.
        MissingExtraError: pyarrow is not installed.
    """
    pa, parquet = _arrow()
    table = pa.table(
        {
            name: pa.array(column, pa.float64() if name in ("seconds", "spread_s") else pa.string())
            for name, column in zip(COLUMNS, zip(*rows, strict=True), strict=True)
        }
    )
    repeated = [name for name in COLUMNS if name not in ("id", "config", "provenance", "seconds", "spread_s")]
    options = {"compression": "zstd", "use_dictionary": repeated, "write_statistics": False}
    _write(path, lambda file: parquet.write_table(table, file, **options))


def _write(path: str | os.PathLike[str], write: Callable[[IO[bytes]], None]) -> None:
    try:
        with replacing(path) as file:
            write(file)
    except OSError as error:
        raise InputError(f"records cannot be written to {path}: {error.strerror or error}") from error


def read_records(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Yield the records of a file that ``write_records`` or ``write_rows`` wrote.

    Raises:
        InputError: the file cannot be read, or holds no records.
        MissingExtraError: pyarrow is not installed.
    """
    pa, parquet = _arrow()
    number = 0
    try:
        with open_regular(path) as source:
            most = max(_FREE_BYTES, _MOST_EXPANSION * os.fstat(source.fileno()).st_size)
            for row, size in _rows(pa, parquet, source, most):
                number += 1
                most -= size
                if most < 0:
                    raise InputError(_EXPANDED)
                yield _record(row)
    except (OSError, pa.ArrowException, *WRONG_DATA) as error:
        where = f", record {number}" if number else ""
        raise InputError(
            f"{printable(str(path))}{where}: no records can be read from it ({reason(error)})"
        ) from error


_EXPANDED: Final = (
    f"it expands to more than a file of its size may: {_FREE_BYTES >> 20} MiB, or {_MOST_EXPANSION} times its size; if you "
    "trust it, write its records into several files"
)


def _rows(pa: Any, parquet: Any, source: BinaryIO, most: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield rows and the bytes of their texts. Equal texts of a page are one: a row that repeats a text costs no memory."""
    about = parquet.read_metadata(source)
    # What metadata say of a column is not asked for: of a damaged file that ends the process (pyarrow 26).
    if sum(about.row_group(k).total_byte_size for k in range(about.num_row_groups)) > most:
        raise InputError(_EXPANDED)
    texts = [
        about.schema.column(k).path
        for k in range(len(about.schema))
        if about.schema.column(k).physical_type == "BYTE_ARRAY"
    ]
    with parquet.ParquetFile(source, read_dictionary=texts) as file:
        for batch in file.iter_batches(_PAGE):
            names = batch.schema.names
            columns = [_values(pa, column) for column in batch.columns]
            for values in zip(*columns, strict=True):
                size = sum(len(value) for value in values if isinstance(value, str | bytes))
                yield dict(zip(names, values, strict=True)), size + _ROW_BYTES


def _values(pa: Any, column: Any) -> list[Any]:
    """Return what a column holds; what stands in its dictionary once is one object."""
    if not pa.types.is_dictionary(column.type):
        found: list[Any] = column.to_pylist()
        return found
    known = column.dictionary.to_pylist()
    return [None if place is None else known[place] for place in column.indices.to_pylist()]


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", "reading and writing Parquet files") from error
    return pyarrow, parquet


def _row(record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(record, name) for name in _PLAIN}
    row["workload"] = _dump(record.workload)
    row["seconds"] = record.seconds if math.isfinite(record.seconds) else None
    row |= {f"config.{name}": _dump(value) for name, value in record.config.items()}
    facts = record.provenance.items()
    return row | {f"provenance.{name}": _NULL if value is None else value for name, value in facts}


def _typed(pa: Any, name: str, column: list[Any]) -> tuple[list[Any], Any]:
    """A column as Arrow takes it: provenance as numbers where every value is one of the same kind, else as JSON."""
    if name in ("seconds", "spread_s"):
        return column, pa.float64()
    if not name.startswith("provenance."):
        return column, pa.string()
    kinds = {type(value) for value in column if value is not None}
    if kinds == {float}:
        return column, pa.float64()
    if kinds == {int} and all(value is None or abs(value) < 2**63 for value in column):
        return column, pa.int64()
    texts = [None if value is None else _dump(None if value is _NULL else value) for value in column]
    return texts, pa.string()


def _record(row: Mapping[str, Any]) -> Record:
    if "id" in row:
        return Record.from_row([row[name] for name in COLUMNS])
    parts: dict[str, dict[str, Any]] = {"config": {}, "provenance": {}}
    for name, value in row.items():
        part, _, key = name.partition(".")
        if key and value is not None:
            parts[part][key] = parse_json(value, name) if isinstance(value, str) else value
    return Record(
        **{name: row[name] for name in _PLAIN},
        workload=parse_json(row["workload"], "workload"),
        config=Config(parts["config"]),
        seconds=math.inf if row["seconds"] is None else row["seconds"],
        provenance=parts["provenance"],
    )


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
