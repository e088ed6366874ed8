"""A device that answers from records: search is compared, and models are tried, without running anything."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast, final

from tensorwise.device.device import Candidate, Device, Measurement
from tensorwise.errors import InputError
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space_of
from tensorwise.space.space import Space
from tensorwise.store.record import Record
from tensorwise.store.store import Store

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload
    from tensorwise.runtime.call import Call


@final
class RecordedDevice(Device):
    """Replays the measurements of a device from its records; a config without a record is ``refused``.

    If a config was measured several times, its last record counts; records of measurements beside other processes
    (`Record.is_isolated`) are never used. This device has the id of the recorded one, because the times are that device's.

    Args:
        records: a Store (read once, now) or any records.
        device_id: whose records to play; needed when there are several devices' among them.
        space: what could be chosen when they were recorded (default: what a CPU has for the workload).

    Raises:
        InputError: no record, none of ``device_id``, or records of several devices.
    """

    deterministic: ClassVar[bool] = True

    def __init__(
        self, records: Store | Iterable[Record], device_id: str | None = None, space: Space[Any] | None = None
    ) -> None:
        self._space = space
        if isinstance(records, Store):
            records = records.records(device_id=device_id)
        chosen = [one for one in records if device_id in (None, one.device_id) and one.is_isolated]
        devices = sorted({record.device_id for record in chosen})
        if not devices:
            of = "" if device_id is None else f" of device {device_id}"
            raise InputError(f"there is no record{of} to play")
        if len(devices) > 1:
            raise InputError(
                f"the records are of {len(devices)} devices; choose device_id: {', '.join(devices)}"
            )
        self.name = "recorded"
        self.id = devices[0]
        self._measured = {(record.workload_id, record.config): record.measurement for record in chosen}

    def space(self, workload: "Workload | Call") -> Space[Any]:
        """Return the space that was given, or that of a CPU."""
        if self._space is not None:
            return self._space
        return cpu_space_of(cast("Workload", workload))

    def measure(
        self,
        workload: "Workload | Call",
        candidates: Sequence[Candidate],
        *,
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        """Yield what was recorded of each config; there are no libraries."""
        for config in candidates:
            measured = None if isinstance(config, str) else self._measured.get((workload.id, config))
            yield measured or Measurement.failed("refused", f"not in the recording: {config}")

    def configs(self, workload: "Workload | Call") -> list[Config]:
        """Return the configs that are recorded for ``workload``, in the order of their first record."""
        return [config for known, config in self._measured if known == workload.id]
