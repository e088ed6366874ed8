"""Record: a remembered measurement. Collection, training, transfer, replay and reports all read these."""

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import numpy as np

from tensorwise.device.device import Device, Measurement, Status
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.reading import parse_json, reason, shown
from tensorwise.space.config import Config

COLUMNS = (
    "id",
    "workload_id",
    "workload",
    "device_id",
    "space",
    "config",
    "seconds",
    "spread_s",
    "status",
    "note",
    "provenance",
)
"""Names of the values of a row, in order; ``id`` is the content id of the others."""

MEASURED_BY: Final = "measured_by"
"""Key of the provenance of a time that was not taken alone: ``background``, at lowest priority beside the user's program, or
``use``, on the user's own calls."""

_NUMBERS: Final[Mapping[str, tuple[type, ...]]] = {
    "seconds": (float, int, type(None)),
    "spread_s": (float, int),
}
"""Types of the columns that are no text."""
_PARSED: Final = ("workload", "config", "provenance")
"""Values of a row that are JSON text, which takes ten times as long to parse as the rest."""


class Describable(Protocol):
    """What can be measured and remembered: a workload, a call of a function, a task of a network."""

    @property
    def id(self) -> str:
        """Content id."""

    def describe(self) -> dict[str, object]:
        """Return what a Record keeps of it, as JSON-able values; ``op`` names the operation."""


@final
@dataclass(frozen=True, eq=False)
class Record:
    """One measurement with everything needed to use it later, and elsewhere.

    Two records are equal when their content ids are.

    Attributes:
        workload_id: content id of the workload: einsum, sizes, dtype and sparsity pattern.
        workload: description of it, JSON-able: ``op``, ``einsum``, ``sizes``, ``shape``, ``nnz``, ``dtype``; of a call
            ``op`` and ``features``; of a task ``op`` and what else its facts are.
        device_id: content id of the device.
        space: name of the Space that the config belongs to.
        config: what was run.
        seconds: of one call, see `Measurement`; a lower bound when censored, infinite when failed.
        spread_s: interquartile range of the samples in seconds.
        status: how the measurement ended, one of ``tensorwise.device.device.STATUSES``.
        note: one line for people.
        provenance: JSON-able: ``when`` (UTC, ISO 8601), ``version``, ``device`` (its name), host features,
            compiler id and flags, ``threads``, ``cache`` (``warm`` or ``cold``), and whatever else a time
            depends on. `MEASURED_BY`, where it is there: see `is_isolated`.
    """

    workload_id: str
    workload: Mapping[str, object]
    device_id: str
    space: str
    config: Config
    seconds: float
    spread_s: float = 0.0
    status: Status = "ok"
    note: str = ""
    provenance: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The measurement refuses a status and seconds that do not fit each other, and cleans the note.
        object.__setattr__(self, "note", self.measurement.note)
        for name in ("workload", "provenance"):  # a private copy, of plain JSON types
            object.__setattr__(self, name, _load(name, _dump(name, getattr(self, name))))

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    @classmethod
    def of(
        cls,
        measurement: Measurement,
        workload: Describable,
        device: Device,
        space: str,
        config: Config,
        provenance: Mapping[str, object],
    ) -> "Record":
        """Return the record of ``measurement``, adding to ``provenance``: ``when``, the device's name, a GPU's registers."""
        now = datetime.datetime.now(datetime.UTC).isoformat()
        told = {"registers": measurement.registers, "frame_bytes": measurement.frame_bytes}
        return cls(
            workload_id=workload.id,
            workload=workload.describe(),
            device_id=device.id,
            space=space,
            config=config,
            seconds=measurement.seconds,
            spread_s=measurement.spread_s,
            status=measurement.status,
            note=measurement.note,
            provenance={
                "when": now,
                "device": device.name,
                **provenance,
                **(told if told["registers"] else {}),
            },
        )

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement without its single samples."""
        return Measurement(self.seconds, self.spread_s, (), self.status, self.note)

    @property
    def ok(self) -> bool:
        """Whether ``seconds`` is a verified time."""
        return self.status == "ok"

    @property
    def is_isolated(self) -> bool:
        """Whether it was timed with nothing of ours beside it. Models and recordings read no others."""
        return not any(self.has_fact(MEASURED_BY, how) for how in ("background", "use"))

    @property
    def op(self) -> str:
        """Name of the operation, empty if the description has none."""
        return str(self.workload.get("op", ""))

    def has_fact(self, name: str, text: str) -> bool:
        """Whether the provenance says ``text`` of ``name``; a record that is not parsed is not parsed for it."""
        if (row := self.__dict__.get("_row")) is None:
            return self.provenance.get(name) == text
        return f"{json.dumps(name)}:{json.dumps(text)}" in row[-1]

    @cached_property
    def id(self) -> str:
        """Content id: appending the same record twice stores it once."""
        return str(self.to_row()[0])

    def to_row(self) -> tuple[str | float | None, ...]:
        """Return the values of COLUMNS: JSON as canonical text, infinite seconds as None."""
        if (row := self.__dict__.get("_row")) is not None:
            return tuple(row)
        values: tuple[str | float | None, ...] = (
            self.workload_id,
            _dump("workload", self.workload),
            self.device_id,
            self.space,
            self.config.text,
            float(self.seconds) + 0.0 if math.isfinite(self.seconds) else None,  # + 0.0: -0.0 becomes 0.0
            float(self.spread_s) + 0.0,
            self.status,
            self.note,
            _dump("provenance", self.provenance),
        )
        return (row_id(values), *values)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Parse a value of a record that was read without ``parse``."""
            if name not in _PARSED or (row := self.__dict__.get("_row")) is None:
                raise AttributeError(f"a record has no {name!r}", name=name, obj=self)
            value = self.__dict__[name] = _parse(name, row[COLUMNS.index(name)])
            return value

    @classmethod
    def from_row(cls, row: Sequence[object], *, parse: bool = True) -> "Record":
        """Read back a row and check it against its content id.

        Args:
            row: values of COLUMNS.
            parse: whether to parse ``workload``, ``config`` and ``provenance`` now. Without it each is parsed when it is
                first read, and raises its InputError then: for processes that only pass records on.

        Raises:
            InputError: a value is missing or malformed, or the row does not have the content it was
                written with.
        """
        if len(row) != len(COLUMNS):
            raise InputError(f"a record has {len(COLUMNS)} values ({', '.join(COLUMNS)}), got {len(row)}")
        named = dict(zip(COLUMNS, row, strict=True))
        for name, value in named.items():
            if type(value) is str and name not in _NUMBERS:
                continue
            wanted = _NUMBERS.get(name, (str,))
            # float64 has larger ones, times have not
            number = isinstance(value, int | float) and abs(value) < 2**1023
            if (
                not isinstance(value, wanted)
                or isinstance(value, bool)
                or not (number or value is None or wanted[0] is str)
            ):
                raise InputError(f"{name} of a record must be {wanted[0].__name__}, got {shown(value)}")
        if row_id(row[1:]) != named["id"]:
            raise InputError(f"record {named['id']} does not have the content that its id stands for")
        seconds = None if named["seconds"] is None else float(named["seconds"])  # type: ignore[arg-type]
        spread_s = float(named["spread_s"])  # type: ignore[arg-type]
        record = object.__new__(cls)  # the constructor would copy once more what was just parsed
        record.__dict__.update(named, seconds=math.inf if seconds is None else seconds, spread_s=spread_s)
        if parse:
            record.__dict__.update((name, _parse(name, named[name])) for name in _PARSED)
        else:
            for name in _PARSED:
                del record.__dict__[name]
            record.__dict__["_row"] = (*row[:6], seconds, spread_s, *row[8:])
        _ = record.measurement  # refuses a status and seconds that do not fit each other
        return record

    def to_json(self) -> str:
        """Return one line of JSON: an object with the names of COLUMNS."""
        return json.dumps(dict(zip(COLUMNS, self.to_row(), strict=True)), separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str, *, parse: bool = True) -> "Record":
        """Read back one line of ``to_json``; ``parse`` is that of ``from_row``.

        Raises:
            InputError: as ``from_row``.
        """
        data = parse_json(line, "a record must be one JSON object a line")
        if not isinstance(data, dict):
            raise InputError(f"a record must be one JSON object a line, got {shown(line)}")
        if missing := [name for name in COLUMNS if name not in data]:
            raise InputError(f"record lacks {', '.join(missing)}")
        return cls.from_row([data[name] for name in COLUMNS], parse=parse)


def row_id(values: Sequence[object]) -> str:
    """Return the content id of a row: of the values of all COLUMNS but the first."""
    numbers = (repr(float(v)) if isinstance(v, (int, float)) else v for v in values)
    return content_id([value if isinstance(value, str) else "null" for value in numbers])


def check_facts(name: str, data: Mapping[str, object]) -> None:
    """Refuse what a record could not keep of ``name`` ("provenance"), before anything is measured for it.

    Raises:
        InputError: it cannot be written as JSON.
    """
    _dump(name, data)


def _dump(name: str, data: Mapping[str, object]) -> str:
    try:
        return json.dumps(
            dict(data), sort_keys=True, separators=(",", ":"), allow_nan=False, default=_python_number
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{name} of a record must be JSON-able, got {shown(data)}: {reason(error)}"
        ) from error


def _python_number(value: object) -> object:
    """Return NumPy's numbers as Python's, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _parse(name: str, text: object) -> "Config | dict[str, object]":
    return Config.parse(str(text)) if name == "config" else _load(name, str(text))


def _load(name: str, text: str) -> dict[str, object]:
    data = parse_json(text, f"{name} of a record must be a JSON object")
    if not isinstance(data, dict):
        raise InputError(f"{name} of a record must be a JSON object, got {shown(text)}")
    return data
