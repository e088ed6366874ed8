"""Logs of TVM's older auto-scheduler (Ansor), which TenSet consists of (Zheng et al., NeurIPS 2021, Datasets), as Records.

A line is a JSON object: ``i`` has the task (key and target, then figures of the machine) and the schedule's steps, ``r`` the
seconds of each run, an error number, the seconds that measuring took, and when that was; ``v`` is the format's version.
Lines that begin with # are comments. The computation itself is not in a log, so that these records have no loop tree: they
can be replayed and searched, but no LatencyModel learns from them.
"""

import datetime
import json
import os
from collections.abc import Iterator
from typing import Any, Final

from tensorwise.device.device import Measurement, Status
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.reading import WRONG_DATA, lines_of, parse_json, reason
from tensorwise.space.config import Config
from tensorwise.store.record import Record

SPACE: Final = "ansor"
"""Of the configs: ``steps``, the transform steps as JSON."""
ERRORS: Final[dict[int, tuple[Status, str]]] = {
    1: ("refused", "the schedule cannot be applied"), 2: ("refused", "it does not compile on the host"),
    3: ("refused", "it does not compile for the device"), 4: ("crash", "it failed on the device"),
    5: ("wrong", "it computes something else"), 6: ("timeout", "compiling took too long"),
    7: ("timeout", "running took too long"),
}  # fmt: skip
"""Ansor's error numbers."""


def looks_like_tenset(path: str | os.PathLike[str]) -> bool:
    """Return whether the first line that is no comment begins as Ansor's do."""
    try:
        first = next((line for line in lines_of(path) if line.strip() and not line.startswith(b"#")), b"")
    except (OSError, ValueError, InputError):
        return False
    return first.lstrip().startswith(b'{"i"')


def tenset_records(path: str | os.PathLike[str], device: str) -> Iterator[Record]:
    """Yield the records of a log, in its order.

    Args:
        device: name of the machine that was measured; a log has its target only.

    Raises:
        InputError: the file cannot be read, or a line is malformed.
    """
    try:
        for number, line in enumerate(lines_of(path), 1):
            if line.strip() and not line.startswith(b"#"):
                try:
                    found = _record(parse_json(line, "no JSON"), device)
                except (*WRONG_DATA, OSError) as error:  # a date that the system has not is an OSError
                    raise InputError(
                        f"{path}, line {number}: no record of TenSet: {reason(error)}"
                    ) from error
                yield found
    except OSError as error:
        raise InputError(f"records cannot be read from {path}: {reason(error)}") from error


def _record(line: Any, device: str) -> Record:
    (task, (_, steps)), (costs, error, took_s, when) = line["i"], line["r"][:4]
    key, target = str(task[0]), str(task[1])
    name, *arguments = parse_json(key, "the key of a task")
    if int(error):
        measured = Measurement.failed(*ERRORS.get(int(error), ("crash", f"Ansor's error {error}")))
    else:
        measured = Measurement.of([float(cost) for cost in costs])
    return Record(
        workload_id=content_id(["tenset", key]),
        workload={"op": str(name), "arguments": arguments},
        device_id=content_id(["tenset", device, target]),
        space=SPACE,
        config=Config({"steps": json.dumps(steps, separators=(",", ":"))}),
        seconds=measured.seconds,
        spread_s=measured.spread_s,
        status=measured.status,
        note=measured.note,
        provenance={
            "when": datetime.datetime.fromtimestamp(float(when), datetime.UTC).isoformat(),
            "device": device, "target": target, "measured_s": float(took_s), "version": f"ansor {line.get('v', '')}".strip(),
        },
    )  # fmt: skip
