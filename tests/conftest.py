"""Options of the test suite."""

import signal

import pytest

# A suite that runs as a shell's background job ignores it, and children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the generated sources in tests/golden anew"
    )
