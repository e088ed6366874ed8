"""The measurements of ginkgo-data as records: SpMV of SuiteSparse matrices in several formats, on several devices."""

import csv
import gzip
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorwise.device.device import Measurement
from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError
from tensorwise.runtime.call import Call
from tensorwise.space.config import Config
from tensorwise.space.versions import VERSION, space_name
from tensorwise.store.record import Record

OP = "spmv"
VALUE_BYTES = 8


@dataclass(frozen=True)
class Transfers:
    """What reaching an accelerator costs; the CPU has the data.

    Attributes:
        latency_s: of one transfer; a call makes two, of x and of y.
        bytes_per_s: of the link.
        calls: over so many calls the transfer of the matrix is spread.
        devices: those that are chosen among.
        hosts: devices that need no transfers.
    """

    latency_s: float
    bytes_per_s: float
    calls: float
    devices: tuple[str, ...]
    hosts: tuple[str, ...]

    def seconds(self, device: str, shape: tuple[int, int], storage_bytes: float) -> float:
        """Seconds a call."""
        if device in self.hosts:
            return 0.0
        moved = storage_bytes / self.calls + VALUE_BYTES * sum(shape)
        return 2 * self.latency_s + moved / self.bytes_per_s


def matrices(folder: Path, fields: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the features of each matrix, by ``GROUP/NAME``; what is not given is 0.

    Raises:
        InputError: a column is missing.
    """
    found: dict[str, dict[str, float]] = {}
    for row in _rows(folder / "matrices.csv.gz", ("group", "name", *fields)):
        numbers = {field: float(row[field] or 0) for field in fields}
        found[f"{row['group']}/{row['name']}"] = {
            field: number if math.isfinite(number) else 0.0 for field, number in numbers.items()
        }
    return found


def records(
    folder: Path, fields: Sequence[str], formats: Sequence[str], transfers: Transfers | None = None
) -> dict[str, list[Record]]:
    """Return the records of each device; a call's features are the matrix's, its cell is the matrix's group.

    Args:
        folder: holds ``matrices.csv.gz`` and ``spmv_times.csv.gz``.
        fields: columns of the former, for features.
        formats: in small letters; others are left out.
        transfers: with them all is one problem, ``all``, in which a version is a format on a device and pays its transfers.

    Raises:
        InputError: a file is missing or lacks a column.
    """
    known = matrices(folder, fields)
    played: dict[str, NullDevice] = {}
    configs: dict[str, Config] = {}
    found: dict[str, list[Record]] = {}
    columns = ("device", "group", "name", "format", "time_s", "storage_bytes", "completed")
    for row in _rows(folder / "spmv_times.csv.gz", columns):
        matrix, of, kept = f"{row['group']}/{row['name']}", row["device"], row["format"].lower()
        if kept not in formats or matrix not in known or (transfers and of not in transfers.devices):
            continue
        seconds = float(row["time_s"]) if row["completed"] == "True" and row["time_s"] else math.inf
        device, version = of, kept
        if transfers is not None:
            shape = int(known[matrix]["rows"]), int(known[matrix]["cols"])
            seconds += transfers.seconds(of, shape, float(row["storage_bytes"] or 0))
            device, version = "all", f"{kept} on {of}"
        measured = (
            Measurement(seconds) if 0 < seconds < math.inf else Measurement.failed("crash", "not completed")
        )
        played.setdefault(device, NullDevice(name=f"ginkgo {device}"))
        about = {"input": matrix, "cell": row["group"], "source": "ginkgo-data"}
        config = configs.setdefault(version, Config({VERSION: version}))
        call = Call(OP, known[matrix])
        found.setdefault(device, []).append(
            Record.of(measured, call, played[device], space_name(OP), config, about)
        )
    return found


def _rows(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, str]]:
    if not path.is_file():
        raise InputError(f"{path} is not there; the README says where the data is from")
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if missing := [name for name in columns if name not in (reader.fieldnames or ())]:
            raise InputError(f"{path} lacks the column {missing[0]!r}")
        yield from reader
