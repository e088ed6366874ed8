"""Options of the test suite."""

import signal
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

# A suite that runs as a shell's background job ignores it, and children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the generated sources in tests/golden anew"
    )


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
