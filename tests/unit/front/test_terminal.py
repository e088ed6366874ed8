"""Progress of commands: plain lines where standard error is no terminal."""

import re
import time

import pytest

from tensorwise.front import terminal
from tensorwise.front.terminal import progress_bar


def test_without_a_terminal_progress_is_lines_at_growing_intervals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step without news shows the elapsed time, too."""
    monkeypatch.setattr(terminal, "FIRST_LINE_S", 0.05)
    monkeypatch.setattr(terminal, "LONGEST_WAIT_S", 0.2)
    with progress_bar("measuring") as progress:
        time.sleep(0.1)
        progress("3 of 4 jobs", 0.75)
        time.sleep(0.6)
    found = capsys.readouterr()
    assert found.out == ""
    first, *others = found.err.splitlines()
    assert re.fullmatch(r"tensorwise: measuring, \d+ s", first)
    assert 1 <= len(others) <= 5
    assert all(re.fullmatch(r"tensorwise: measuring, \d+ s: 75% done, 3 of 4 jobs", line) for line in others)


def test_short_work_and_ended_work_print_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("measuring") as progress:
        progress("1 of 4 jobs", 0.25)
    monkeypatch.setattr(terminal, "FIRST_LINE_S", 0.05)
    with pytest.raises(KeyError), progress_bar("measuring"):
        raise KeyError
    time.sleep(0.1)
    assert capsys.readouterr().err == ""
