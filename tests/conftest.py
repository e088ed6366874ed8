"""Options of the test suite.

Tests of optional packages skip where these are not installed. ``--write-skips=FILE`` writes down which did, and
``--only-skips=FILE``, in an environment that has the packages, runs just those; a test that still misses a package then
fails, so that none is skipped for ever.
"""

import json
import re
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

LACKS = re.compile(r"could not import|unable to import|is not installed|got empty parameter set")
"""What a skip's reason says when a package is missing."""
GPU_ONLY = re.compile(r"triton|cupyx")
"""Packages that take a GPU to be of use."""

# A suite that runs as a shell's background job ignores it, and children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the generated sources in tests/golden anew"
    )
    parser.addoption("--write-skips", type=Path, help="file to write skipped tests and modules to")
    parser.addoption(
        "--only-skips", type=Path, help="file that --write-skips wrote: run only those, with their packages"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-skips") or config.getoption("--only-skips"):
        config.pluginmanager.register(Skips(config), "tensorwise-skips")


class Skips:
    """Writes down what was skipped, or runs what was."""

    def __init__(self, config: pytest.Config) -> None:
        self.wanted: frozenset[str] | None = None
        self.skipped: dict[str, str] = {}
        self.book: Path | None = config.getoption("--write-skips")
        if chosen := config.getoption("--only-skips"):
            self.wanted = frozenset(name.partition("[")[0] for name in json.loads(chosen.read_text()))
            config.args[:] = sorted({name.partition("::")[0] for name in self.wanted})

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self.wanted is None:
            return
        # A test counts as a whole: which parameters it has may depend on what is installed.
        kept = [
            one
            for one in items
            if {one.nodeid.partition("[")[0], one.nodeid.partition("::")[0]} & self.wanted
        ]
        config.hook.pytest_deselected(items=[one for one in items if one not in set(kept)])
        items[:] = kept

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def _note(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skipped[report.nodeid] = report.longrepr[2]

    @property
    def missing(self) -> dict[str, str]:
        """Tests that skipped for a package that is no GPU's -> the reason."""
        return {
            name: reason
            for name, reason in self.skipped.items()
            if LACKS.search(reason) and not GPU_ONLY.search(reason)
        }

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.book is not None:
            self.book.write_text(json.dumps(self.skipped, indent=1))
        if self.wanted is not None and self.missing and session.exitstatus in (0, 5):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.wanted is not None and self.missing:
            terminalreporter.section("packages are missing")
            for name, reason in self.missing.items():
                terminalreporter.line(f"{name}: {reason}")


@pytest.fixture(autouse=True)
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tuning tries does not depend on models that came along or were calibrated here."""
    monkeypatch.setattr("tensorwise.model.finding.roots", lambda: ())


@pytest.fixture(scope="module")
def one_torch_thread() -> Iterator[None]:
    """torch computes with one thread: on networks this small its threads mostly wait for each other."""
    if find_spec("torch") is None:
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
