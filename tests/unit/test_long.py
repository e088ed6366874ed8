"""``.ci/long``: what its parts run and depend on."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.house import ROOT

LONG: Final = runpy.run_path(str(ROOT / ".ci" / "long"))


def test_what_parts_depend_on_exists() -> None:
    assert list(LONG["PARTS"]) == list(LONG["DEPENDS"])
    lost = [path for paths in LONG["DEPENDS"].values() for path in paths if not (ROOT / path).exists()]
    assert lost == []


def test_a_part_depends_on_code_and_not_on_what_is_said_of_it(tmp_path: Path) -> None:
    file = tmp_path / "some.py"

    def contents(text: str) -> bytes:
        file.write_text(text)
        LONG["contents"].cache_clear()
        return bytes(LONG["contents"](file))

    code = '"""A module."""\n\nLIMIT = 3  # of what\n\ndef f(x):\n    """Do."""\n    return "# x" + x\n'
    assert contents(code.replace("Do.", "Do what\n    it says.").replace("of what", "of calls")) == contents(
        code
    )
    assert contents(code.replace("# x", "# y")) != contents(code)


def test_without_an_emulator_the_part_of_aarch64_fails(tmp_path: Path) -> None:
    """A run that skips everything must not be written down as a pass."""
    (command,) = LONG["PARTS"]["aarch64"]
    words = shlex.split(command.format(python=sys.executable))
    environment = {**os.environ, "TENSORWISE_EMULATOR": str(tmp_path / "none")}
    ran = subprocess.run(
        [*words, "-p", "no:cacheprovider"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert ran.returncode != 0
    told = re.search(r"apt-get install (.*)", ran.stdout)
    assert told, ran.stdout
    assert "qemu-user" in told[1].split()  # the cross compiler may be missing, too
