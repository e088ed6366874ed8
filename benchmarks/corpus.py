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
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.digests import bytes_digest, code_digest
from tensorwise.errors import TensorwiseError
from tensorwise.front.svg import element, escape
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.files import read
from tensorwise.writing import replacing

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).resolve().parents[1]
ADVICE = "use --fresh, or another --out"
DRAWING = {"page.py", "draw.py", "judging.py", "table.py", "run.py", "__init__.py"}
"""Python files of an experiment that no run follows from."""


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

    It has what the runs follow from: settings, digests of the inputs, and the machine. Runs of another machine, or of other
    inputs, are never added to it; drawing a page of it changes nothing in it.

    Args:
        settings: what the runs depend on; a file made with others is refused.
        fresh: forget what the file holds.
        inputs: files and folders that the runs follow from; see `digests`.
        drawing: only a page is drawn: nothing is written but that.
    """

    def __init__(
        self,
        path: Path,
        claim: str,
        settings: Mapping[str, Any],
        fresh: bool = False,
        *,
        inputs: Iterable[Path] = (),
        drawing: bool = False,
    ) -> None:
        self.path, self.claim, self.settings = path, claim, dict(settings)
        self.runs: dict[str, dict[str, Any]] = {}
        self.machine, self._drawing = machine(), drawing
        if drawing and not path.exists():
            raise SystemExit(f"{path} does not exist: there is nothing to draw")
        self.inputs = {} if drawing else digests(inputs)
        if path.exists() and (drawing or not fresh):
            held = json.loads(path.read_text())
            if not drawing:
                self._check(held)
            self.runs, self.machine = held["runs"], held["machine"]
            self.settings, self.inputs = held["settings"], held.get("inputs", {})

    def _check(self, held: Mapping[str, Any]) -> None:
        if held["settings"] != self.settings:
            raise SystemExit(f"{self.path} was made with {held['settings']}, not {self.settings}; {ADVICE}")
        same_inputs(self.path, held, self.inputs)

    def refuse_elsewhere(self) -> None:
        """End the program where the runs are of another machine, or only a page is drawn: none may be added."""
        if self.runs:
            same_machine(self.path, {"machine": self.machine})
        if self._drawing:
            raise SystemExit(f"{self.path}: drawing adds no run")
        self.machine = self.machine if self.runs else machine()

    def left(self, keys: Iterable[str]) -> Iterator[str]:
        """Yield the keys that were not run yet, with a progress line for each."""
        wanted = list(keys)
        todo = [key for key in wanted if key not in self.runs]
        if todo:
            self.refuse_elsewhere()
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
        """Keep a run. Ends the program as `refuse_elsewhere` does."""
        self.refuse_elsewhere()
        self.runs[key] = dict(run)
        self.write([], None)

    def write(self, summary: Sequence[str], holds: bool | None) -> None:
        """Write the file: whole or not at all; nothing where only a page is drawn."""
        if self._drawing:
            return
        document = {
            "claim": self.claim.strip(),
            "holds": holds,
            "summary": list(summary),
            "settings": self.settings,
            "machine": self.machine,
            "inputs": self.inputs,
            "runs": self.runs,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, document)

    def draw(self, text: str, target: Path | None = None) -> Path:
        """Write a page, by default beside the file, with a line that says of which results it is, and return where."""
        target = target or self.path.with_suffix(".html")
        target.write_text(drawn_of(text, self.path), encoding="utf-8")
        return target


def same_inputs(path: Path, held: Mapping[str, Any], inputs: Mapping[str, str]) -> None:
    """End the program where a file of results was made of other inputs than these, which `digests` returned."""
    known = held.get("inputs", {})
    if changed := sorted(name for name in {*known, *inputs} if known.get(name) != inputs.get(name)):
        raise SystemExit(
            f"{path} was made of other inputs: {', '.join(changed)} changed since, or was not recorded; {ADVICE}"
        )


def same_machine(path: Path, held: Mapping[str, Any]) -> None:
    """End the program where the runs of a file of results are of another machine. Older files say less of theirs."""
    here, there = machine(), held.get("machine", {})
    if other := [
        f"{key} {there[key]!r}, here {here.get(key)!r}" for key in there if there[key] != here.get(key)
    ]:
        raise SystemExit(
            f"{path} has runs of another machine ({'; '.join(other)}); go on there. Here, {ADVICE}"
        )


def continued(path: Path, inputs: Mapping[str, str], fresh: bool = False) -> dict[str, Any]:
    """Return what a file of results holds, to go on with; nothing where there is none. Ends the program as `same_inputs`."""
    held: dict[str, Any] = json.loads(path.read_text()) if path.exists() and not fresh else {}
    if held:
        same_inputs(path, held, inputs)
    return held


def drawn_of(text: str, *results: Path) -> str:
    """Return a page's text with a last line that says of which files it is drawn, by their digests, and of which machine."""
    told = []
    for path in results:
        held = json.loads(path.read_text())
        about = held.get("machine") or {}
        where = f", {about['processor']}, {about['processors']} processors" if about else ""
        told.append(f"{path.name} {bytes_digest(path.read_bytes())}{where}")
    footer = element("p", escape("Drawn of " + "; ".join(told)), class_="drawn-of")
    head, _, tail = text.rpartition("</main>")
    return f"{head}{footer}</main>{tail}" if head else f"{text}{footer}"


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """Return a digest of each input by its name: its path in this repository, or else its name alone.

    Of a TOML file and of Python code what they say counts, not their comments and docstrings; of a folder its Python files
    count, but for those that only draw or sum up. Of ``splits.toml`` the last sets do not count.
    """
    return {name_of(path): digest_of(path) for path in paths}


def made_by(script: Path) -> dict[str, Any]:
    """Return what a file of results that a script writes whole has besides: the machine, and the digest of the script."""
    return {"machine": machine(), "inputs": digests([script])}


def name_of(path: Path) -> str:
    """Return how an input is called in results."""
    full = path.resolve()
    return full.relative_to(ROOT).as_posix() if full.is_relative_to(ROOT) else full.name


def digest_of(path: Path) -> str:
    """Return the digest of an input; see `digests`.

    Raises:
        OSError: it cannot be read.
    """
    if path.is_dir():
        files = [one for one in sorted(path.rglob("*.py")) if one.name not in DRAWING]
        return code_digest(
            {one.relative_to(path).as_posix(): one.read_text(encoding="utf-8") for one in files}
        )
    if path.suffix == ".py":
        return code_digest({path.name: path.read_text(encoding="utf-8")})
    if path.suffix == ".toml":
        return toml_digest(path.read_text(encoding="utf-8"))
    return bytes_digest(path.read_bytes())


def toml_digest(text: str) -> str:
    """Return a digest of what a TOML file says, its last sets left out."""
    data = {key: value for key, value in tomllib.loads(text).items() if key != "last"}
    return bytes_digest(json.dumps(data, sort_keys=True, default=str).encode())


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

    facts = [line.partition(":") for line in _lines(Path("/proc/cpuinfo"))]
    known = {key.strip(): value.strip() for key, _, value in reversed(facts)}
    gpus = Path("/proc/driver/nvidia/gpus")
    cards = [
        line
        for path in sorted(gpus.glob("*/information"))
        for line in _lines(path)
        if line.startswith("Model")
    ]
    return {
        "processor": known.get("model name", "unknown"),
        "model": "-".join(known.get(key, "") for key in ("cpu family", "model", "stepping")),
        "gpus": [line.partition(":")[2].strip() for line in cards],
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        **{package: _version(package) for package in ("mkl", "torch", "numba", "sparse")},
    }


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


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
