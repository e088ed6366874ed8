"""Without its dependencies the package says which are missing, and how to install them."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

import tensorwise

ROOT: Final = Path(__file__).parents[2]
BLOCKED: Final = """
import sys

class Hidden:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {names} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Hidden(finder) for finder in sys.meta_path]
{statement}
"""
"""A child process in which some packages cannot be found, as if they were not installed."""


def imported_without(names: tuple[str, ...], statement: str) -> subprocess.CompletedProcess[str]:
    text = BLOCKED.format(names=set(names), statement=statement)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "statement", ["import tensorwise", "import tensorwise.sparse", "from tensorwise.front.cli import main"]
)
def test_the_error_names_all_that_is_missing(statement: str) -> None:
    found = imported_without(("scipy", "typer"), statement)
    assert found.returncode == 1
    assert found.stderr.rstrip().endswith("not installed; run: pip install scipy typer"), found.stderr


def test_nothing_is_missing_here() -> None:
    found = imported_without(("no_such_package",), "import tensorwise; print('imported')")
    assert found.stdout == "imported\n", found.stderr


def test_every_dependency_is_looked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=!~ ;\[]", one)[0] for one in project["dependencies"]]
    assert sorted(names) == sorted(tensorwise._REQUIRED)
