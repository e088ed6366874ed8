"""What the benchmarks on the corpus share: its list of matrices, result files that can be continued, the machine.

The corpus lies in ``../shared/corpus`` or where ``TENSORWISE_CORPUS`` says.
"""

import csv
import functools
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorwise.errors import TensorwiseError
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.files import read
from tensorwise.writing import replacing

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Item:
    """A matrix or tensor of the corpus; ``family`` says where it comes from: ``fem``, ``dnn-pruned``, ..."""

    name: str
    path: Path
    order: int
    nonzeros: int
    core: bool
    family: str

    def belongs_to(self, part: str) -> bool:
        """Whether ``part`` means this one: ``all``, ``core``, a family, a name, or the beginning of one (``dlmc``)."""
        known = part == "all" or (part == "core" and self.core) or part in (self.family, self.name)
        return known or self.name.startswith(f"{part}_")


def root() -> Path:
    """Return the corpus's directory; ends the program where there is none."""
    place = os.environ.get("TENSORWISE_CORPUS") or Path(__file__).parents[1] / ".." / "shared" / "corpus"
    path = Path(place).resolve()
    if not (path / "MANIFEST.csv").exists():
        raise SystemExit(f"no corpus at {path}; set TENSORWISE_CORPUS to the folder of its MANIFEST.csv")
    return path


def items(order: int | None = None, core: bool = False, least: int = 0) -> list[Item]:
    """Return the corpus, smallest first: of an order (2, or 3 for all tensors), or the core set only."""
    with open(root() / "MANIFEST.csv", newline="") as file:
        rows = [
            Item(
                row["name"],
                root() / row["file"],
                int(row["order"]),
                int(row["nnz"]),
                row["core"] == "1",
                row["group"],
            )
            for row in csv.DictReader(file)
        ]
    found = [
        item
        for item in rows
        if (order is None or (item.order == 2) == (order == 2))
        and item.nonzeros >= least
        and (item.core or not core)
        and item.path.exists()
    ]
    return sorted(found, key=lambda item: (item.nonzeros, item.name))


@functools.lru_cache(maxsize=1)
def entries_of(path: Path) -> Entries:
    """Read a matrix or tensor in float32, of complex ones the real part; the last one read is kept."""
    try:
        return read(path, "float32")
    except TensorwiseError as error:
        if "complex" not in str(error):
            raise
        return read(path, "float32", part="real")


class UnfinishedError(Exception):
    """The time of a step was over before it had what it needs; what it has is kept, and the same command goes on."""


class Results:
    """A JSON file of runs by key, written after each run, so that a benchmark goes on where it was stopped.

    Args:
        settings: what the runs depend on; a file made with others is refused.
        fresh: forget what the file holds.
    """

    def __init__(self, path: Path, claim: str, settings: Mapping[str, Any], fresh: bool = False) -> None:
        self.path, self.claim, self.settings = path, claim, dict(settings)
        self.runs: dict[str, dict[str, Any]] = {}
        if path.exists() and not fresh:
            held = json.loads(path.read_text())
            if held["settings"] != self.settings:
                raise SystemExit(
                    f"{path} was made with {held['settings']}, not {self.settings}; use --fresh, or another --out"
                )
            self.runs = held["runs"]

    def left(self, keys: Iterable[str]) -> Iterator[str]:
        """Yield the keys that were not run yet, with a progress line for each."""
        wanted = list(keys)
        todo = [key for key in wanted if key not in self.runs]
        for place, key in enumerate(todo):
            print(f"[{len(wanted) - len(todo) + place + 1}/{len(wanted)}] {key}: ", end="", flush=True)
            yield key

    def work(self, steps: Mapping[str, Callable[[], Mapping[str, Any]]]) -> None:
        """Run the steps that are left, in their order, and say how long the others will take.

        A step that fails is noted, and tried again the next time.
        """
        for key in [key for key, run in self.runs.items() if "error" in run]:
            del self.runs[key]
        todo, start = sum(key not in self.runs for key in steps), time.perf_counter()
        for done, key in enumerate(self.left(steps), 1):
            begin = time.perf_counter()
            try:
                self.add(key, steps[key]())
            except (TensorwiseError, MemoryError) as error:
                self.add(key, {"error": f"{type(error).__name__}: {error}"[:500]})
            now = time.perf_counter()
            left_min = (now - start) / done * (todo - done) / 60
            outcome = self.runs[key].get("error", "done")
            print(f"{outcome} ({now - begin:.0f} s; about {left_min:.0f} min left)", flush=True)

    def add(self, key: str, run: Mapping[str, Any]) -> None:
        """Keep a run."""
        self.runs[key] = dict(run)
        self.write([], None)

    def write(self, summary: Sequence[str], holds: bool | None) -> None:
        """Write the file: whole or not at all."""
        document = {
            "claim": self.claim.strip(),
            "holds": holds,
            "summary": list(summary),
            "settings": self.settings,
            "machine": machine(),
            "runs": self.runs,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, document)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a file of results: whole or not at all."""
    with replacing(path) as file:
        file.write(f"{json.dumps(document, indent=1)}\n".encode())


def resumable(main: Callable[[], None]) -> None:
    """Run a script that goes on where it was stopped, and say so after Ctrl-C."""
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("\nstopped; the same command goes on from here") from None


def machine() -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    import numpy
    import scipy

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return {
        "processor": name,
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        **{package: _version(package) for package in ("mkl", "torch", "numba", "sparse")},
    }


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean; NaN of nothing."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def speedups(ratios: Mapping[str, float], limit: float, worst: int = 5) -> str:
    """Describe speedups by name: geometric mean, share below ``limit``, the worst."""
    if not ratios:
        return "nothing measured"
    below = [ratio for ratio in ratios.values() if ratio < limit]
    last = sorted(ratios.items(), key=lambda pair: pair[1])[:worst]
    return (
        f"{geometric_mean(ratios.values()):.2f}x in geometric mean over {len(ratios)}, "
        f"{100 * len(below) / len(ratios):.1f} % below {limit:g}x; worst: "
        + ", ".join(f"{name} {ratio:.2f}x" for name, ratio in last)
    )
