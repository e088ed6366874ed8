"""Records for the tests of this folder."""

from typing import Any

from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tests.contract.toys import ToyWorkload

W: Any = ToyWorkload()


def record(n: int, **changes: Any) -> Record:
    """Return a record that differs from others by ``n``."""
    fields: dict[str, Any] = {
        "workload_id": W.id,
        "workload": W.describe(),
        "device_id": "device-1",
        "space": "garden",
        "config": Config({"n": n, "loops": ("i", "k"), "off": None}),
        "seconds": 0.1 + n * 1e-3,
        "spread_s": 1e-4,
        "provenance": {"when": "2026-01-01T00:00:00+00:00", "n": n, "threads": 2},
    }
    return Record(**{**fields, **changes})
