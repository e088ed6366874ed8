"""PyG's own tests of its layers and models, as they are and with every layer fused.

    python tests/peers/pyg_suite.py PYG --write tests/peers/pyg_suite.json

``PYG`` is a checkout of pytorch_geometric at the tag of the installed version; nothing of it is kept here. Each test runs
twice: with PyG's layers, and with `tensorwise.front.pyg.fuse` applied to every message-passing layer as soon as it is made.
What passes the first time and does not the second is listed, and makes the exit status 1.
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDERS = ("test/nn/conv", "test/nn/models")
_FUSING, _OUTCOMES = "TENSORWISE_PEERS_FUSE", "TENSORWISE_PEERS_OUTCOMES"


def main() -> int:
    """Run the tests twice, and return 1 if a test fails that passes unfused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pyg", type=Path, help="checkout of pytorch_geometric")
    parser.add_argument("--write", type=Path, help="file for the summary (JSON)")
    parser.add_argument(
        "--only", nargs="*", default=FOLDERS, help=f"folders or files, for {' and '.join(FOLDERS)}"
    )
    parser.add_argument("--limit", type=int, default=3600, help="seconds for each of the two runs")
    given = parser.parse_args()
    plain, ours = (run_tests(given.pyg, given.only, fusing, given.limit) for fusing in (False, True))
    worse = sorted(
        name for name, outcome in plain["tests"].items() if outcome == "passed" != ours["tests"].get(name)
    )
    summary = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"python tests/peers/pyg_suite.py PYG --only {' '.join(given.only)}",
        "versions": {name: version(name) for name in ("torch_geometric", "torch", "numpy", "pytest")},
        "python": platform.python_version(),
        "unfused": count_outcomes(plain["tests"]),
        "fused": count_outcomes(ours["tests"]),
        "layers": ours["layers"],
        "fail_only_fused": worse,
    }
    text = json.dumps(summary, indent=1) + "\n"
    if given.write:
        given.write.write_text(text)
    print(text, end="")
    return 1 if worse or not plain["tests"] else 0


def run_tests(pyg: Path, only: list[str], fusing: bool, limit_s: int) -> dict[str, Any]:
    """Return the outcome of each test, and how many layers were made and fused."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = Path(folder) / "outcomes.json"
        here, source = Path(__file__).parent, Path(__file__).parents[2]
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
        subprocess.run(
            [*command, "--tb=no", *only],
            cwd=pyg,
            env=environment,
            timeout=limit_s,
            check=False,
            stdout=sys.stderr,
        )
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


def pytest_unconfigure() -> None:
    """Write the outcomes for `run_tests`."""
    if path := os.environ.get(_OUTCOMES):
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
