"""PyG's own tests of its layers and models, with every layer fused.

    python tests/peers/pyg_suite.py PYG --write tests/peers/pyg_suite.json

``PYG`` is a checkout of pytorch_geometric at the tag of the installed version; nothing of it is kept here. Each test runs
with `tensorwise.front.pyg.fuse` applied to every message-passing layer as soon as it is made. What does not pass then runs
again with PyG's layers; what passes there is listed, and makes the exit status 1. Outcomes are kept in ``--folder``, by
versions and paths, so that a run that was interrupted goes on with the paths that are left.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDERS = ("test/nn/conv", "test/nn/models")
_FUSING, _OUTCOMES = "TENSORWISE_PEERS_FUSE", "TENSORWISE_PEERS_OUTCOMES"


def main() -> int:
    """Run the tests, and return 1 if one fails that passes unfused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pyg", type=Path, help="checkout of pytorch_geometric")
    parser.add_argument("--write", type=Path, help="file for the summary (JSON)")
    parser.add_argument(
        "--only", nargs="*", default=FOLDERS, help=f"folders or files, for {' and '.join(FOLDERS)}"
    )
    parser.add_argument("--folder", type=Path, help="folder for outcomes, to go on with")
    parser.add_argument("--limit", type=int, default=3600, help="seconds for each path")
    given = parser.parse_args()
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    folder = given.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    tests: dict[str, str] = {}
    layers = dict(_LAYERS)
    for path in given.only:
        found = run_tests(given.pyg, [path], folder, given.limit, fusing=True)
        tests |= found["tests"]
        layers = {name: count + found["layers"][name] for name, count in layers.items()}
    failed = sorted(name for name, outcome in tests.items() if outcome == "failed")
    plain = run_tests(given.pyg, failed, folder, given.limit, fusing=False)["tests"] if failed else {}
    worse = [name for name in failed if plain.get(name) == "passed"]
    summary = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"python tests/peers/pyg_suite.py PYG --only {' '.join(given.only)}",
        "versions": versions(),
        "fused": count_outcomes(tests),
        "layers": layers,
        "fail_unfused_too": [name for name in failed if name not in worse],
        "fail_only_fused": worse,
    }
    text = json.dumps(summary, indent=1) + "\n"
    if given.write:
        given.write.write_text(text)
    print(text, end="")
    return 1 if worse or not tests else 0


def versions() -> dict[str, str]:
    """Return the versions that a result depends on, and a digest of our sources."""
    import tensorwise
    from benchmarks.corpus import digest_of

    found = {name: version(name) for name in ("torch_geometric", "torch", "numpy", "pytest")}
    return {
        **found,
        "python": platform.python_version(),
        "sources": digest_of(Path(tensorwise.__file__).parent),
    }


def run_tests(pyg: Path, only: list[str], folder: Path, limit_s: int, fusing: bool) -> dict[str, Any]:
    """Return the outcome of each test, and how many layers were made and fused; from the folder, if it was run before."""
    key = sha256(json.dumps([versions(), only, fusing]).encode()).hexdigest()[:12]
    outcomes = (folder / f"{key}.json").resolve()
    if not outcomes.is_file():
        here, source = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
        paths = [str(here), str(source), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), _OUTCOMES: str(outcomes)}
        environment[_FUSING] = "1" if fusing else ""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "pyg_suite",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore",
        ]
        command += ["--tb=short", *only]
        done = subprocess.run(
            command, cwd=pyg, env=environment, timeout=limit_s, check=False, stdout=sys.stderr
        )
        if done.returncode not in (0, 1):  # 2: some tests could not be collected
            outcomes.unlink(missing_ok=True)
            raise SystemExit("pytest did not run all tests; its output is above")
    found: dict[str, Any] = json.loads(outcomes.read_text())
    return found


def count_outcomes(tests: dict[str, str]) -> dict[str, int]:
    """Return how many tests had each outcome."""
    outcomes = sorted(set(tests.values()))
    return {outcome: sum(other == outcome for other in tests.values()) for outcome in outcomes}


# -- the plugin of pytest -------------------------------------------------------------------------------

_TESTS: dict[str, str] = {}
_LAYERS = {"made": 0, "fused": 0}


def pytest_configure() -> None:
    """Fuse layers as they are made, in the process that runs PyG's tests."""
    if os.environ.get(_FUSING):
        fuse_all()


def pytest_runtest_logreport(report: Any) -> None:
    """Keep the outcome of a test: that of the call, unless its set-up or its end was none that passed."""
    if report.when == "call" or report.outcome != "passed":
        _TESTS[report.nodeid] = report.outcome


def pytest_sessionfinish(exitstatus: int) -> None:
    """Write the outcomes for `run_tests`, unless the run was cut short."""
    path = os.environ.get(_OUTCOMES)
    if path and int(exitstatus) in (0, 1):
        Path(path).write_text(json.dumps({"tests": _TESTS, "layers": _LAYERS}))


def fuse_all() -> None:
    """Let each class of layers, now and later, fuse what it makes."""
    from torch_geometric.nn import MessagePassing

    def make_fusing(kind: Any) -> None:
        made = vars(kind).get("__init__")
        if made is None or hasattr(made, "makes_fused"):
            return

        def make(self: Any, *args: Any, **given: Any) -> None:
            kind_of_layer = type(self)
            made(self, *args, **given)
            if kind_of_layer is kind or "__init__" not in vars(kind_of_layer):
                fuse_layer(self)

        make.makes_fused = True  # type: ignore[attr-defined]
        make.__wrapped__ = made  # type: ignore[attr-defined]
        kind.__init__ = make

    def begin(cls: Any, **given: Any) -> None:
        super(MessagePassing, cls).__init_subclass__(**given)
        if "_kind" not in vars(cls):
            make_fusing(cls)

    MessagePassing.__init_subclass__ = classmethod(begin)  # type: ignore[assignment]
    waiting = list(MessagePassing.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        make_fusing(kind)


def fuse_layer(layer: Any) -> None:
    """Fuse a layer, and count it."""
    from tensorwise.front.pyg import Fused, fuse

    if isinstance(layer, Fused):
        return
    with warnings.catch_warnings(action="ignore"):
        fuse(layer)
    _LAYERS["made"] += 1
    _LAYERS["fused"] += isinstance(layer, Fused)


if __name__ == "__main__":
    sys.exit(main())
