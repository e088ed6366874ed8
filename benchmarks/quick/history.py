"""The history of the quick ratios: one line of JSON a commit and machine."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.corpus import ROOT
from tensorwise.writing import replacing

HISTORY: Final = Path(__file__).parent / "history.jsonl"
MACHINE: Final = ("processor", "model", "processors", "threads")
"""What makes two lines one machine's."""

Line = Mapping[str, Any]


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines, oldest first; none where there is no file.

    Raises:
        SystemExit: a line is not what `line_of` makes.
    """
    found = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else [], 1):
        try:
            line = json.loads(text)
            machine_of(line)
            for name, ratio in line["ratios"].items():
                median, low, high = map(float, ratio)
                if not 0 < low <= median <= high:
                    raise ValueError(f"the ratio of {name!r} is {ratio}")
            found.append({**line, "date": str(line["date"]), "commit": str(line["commit"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SystemExit(f"{path}, line {number} cannot be read: {error!r}") from None
    return found


def machine_of(line: Line) -> str:
    """Return the machine of a line in words.

    >>> machine_of({"machine": {"processor": "Zen", "model": "25-1-1", "processors": 4, "threads": 2}})
    'Zen (25-1-1), 4 processors, 2 threads'
    """
    processor, model, processors, threads = (line["machine"][key] for key in MACHINE)
    return f"{processor} ({model}), {processors} processors, {threads} threads"


def write(path: Path, line: Line) -> None:
    """Append a line; one of the same commit and machine is replaced."""
    lines = [
        one
        for one in read(path)
        if (one["commit"], machine_of(one)) != (line["commit"], machine_of(line))
    ]  # fmt: skip
    with replacing(path) as file:
        file.write("".join(f"{json.dumps(one)}\n" for one in [*lines, line]).encode())


def last(lines: Sequence[Line], machine: str, besides: str = "") -> Line | None:
    """Return the last line of a machine, but for those of the commit ``besides``; None where there is none."""
    some = [line for line in lines if machine_of(line) == machine and line["commit"] != besides]
    return some[-1] if some else None


def worse(line: Line, before: Line) -> list[str]:
    """Return a text for each ratio that is above the one before, beyond both 95 % intervals."""
    return [
        f"{name}: {median:.2f} [{low:.2f}, {high:.2f}], was {old[0]:.2f} [{old[1]:.2f}, {old[2]:.2f}]"
        for name, (median, low, high) in line["ratios"].items()
        if (old := before["ratios"].get(name)) and low > old[2]
    ]


def versions_changed(line: Line, before: Line) -> list[str]:
    """Return a text for each version that is another one than before."""
    keys = [key for key in line["machine"] if key not in MACHINE]
    pairs = ((key, before["machine"].get(key), line["machine"][key]) for key in keys)
    return [f"{key} {new}, was {old}" for key, old, new in pairs if old != new]


def short(path: Path) -> str:
    """Return how a file is called in texts."""
    full = path.resolve()
    return full.relative_to(ROOT).as_posix() if full.is_relative_to(ROOT) else str(path)
