"""The devices by name, and how one is opened."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, final

from tensorwise.device.device import Device
from tensorwise.errors import InputError
from tensorwise.reading import shown
from tensorwise.registry import Registry, needs_function


@final
@dataclass(frozen=True)
class DeviceOptions:
    """What a device may be told when it is opened; each uses what it understands.

    Attributes:
        threads: CPU threads of a call; None: as many as this process may use.
        seed: of the dense operands that candidates are measured with.
        first_run_s: seconds after which a candidate's first run is ended; None: the device's default.
    """

    threads: int | None = None
    seed: int = 0
    first_run_s: float | None = None


DEVICES: Final[Registry[Callable[[DeviceOptions], Device[Any]]]] = Registry(
    "device",
    "devices",
    {
        "cpu": "tensorwise.device.cpu:CpuDevice.from_options",
        "cuda": "tensorwise.device.cuda:CudaDevice.from_options",
        "null": "tensorwise.device.null:NullDevice.from_options",
        "spade": "tensorwise.device.spade:open_spade",
        "spade-small": "tensorwise.device.spade:open_spade_small",
    },
    needs_function,
)
"""Name -> what opens the device. ``null`` answers from a formula, to try out a plan; ``spade`` and ``spade-small`` are
simulated."""


def open_device(device: str | Device[Any], options: DeviceOptions) -> Device[Any]:
    """Return the device of a name, opened with ``options``; a device is returned as it is.

    Raises:
        InputError: there is no such device, or it is a device already and ``options`` ask for threads.
        MissingExtraError: a package that the device needs is not installed.
        MeasurementError: this machine has no such device.
    """
    if isinstance(device, Device):
        if options.threads is not None:
            raise InputError(
                f"threads={options.threads} is given with the open device {device.name!r}; open it with so many threads"
            )
        return _check(device)
    if not isinstance(device, str):
        raise InputError(f"device is a name ({', '.join(DEVICES)}) or a Device, got {shown(device)}")
    return _check(DEVICES.make(device, options, Device, "opened"))


def _check(device: Device[Any]) -> Device[Any]:
    """Raise InputError where a device does not say what records and results need."""
    for name in ("name", "id"):
        value = getattr(device, name, None)
        if not isinstance(value, str) or not value:
            raise InputError(
                f"{type(device).__name__}.{name} must be a text that is not empty, got {shown(value)}"
            )
    if not isinstance(device.threads, int) or device.threads < 1:
        raise InputError(
            f"{type(device).__name__}.threads must be a positive integer, got {shown(device.threads)}"
        )
    return device


def opened(device: str | Device[Any], options: DeviceOptions) -> AbstractContextManager[Device[Any]]:
    """Return a context in which a device is open: one that is given by name is closed behind it, a `Device` stays open.

    Raises:
        InputError, MissingExtraError, MeasurementError: as `open_device`.
    """
    found = open_device(device, options)
    return nullcontext(found) if found is device else found
