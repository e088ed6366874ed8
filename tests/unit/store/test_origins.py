"""Files that divide families by origin: what is malformed is named in one line."""

import os
from pathlib import Path

import pytest

from tensorwise.errors import InputError
from tensorwise.store.origins import Origins

SOUND = """
[patterns]
train = ["a"]
validation = ["b"]
test = []
[families.a]
members = ["a*"]
"""


def test_a_sound_file(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SOUND)
    found = Origins.load(tmp_path / "s.toml")
    assert (found.family("a1~x"), found.part("b")) == ("a", "validation")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = " + "[" * 5000, "does not divide families"),
        ("\x00", "does not divide families"),
        (SOUND.replace("test", "tests"), r"\('test' is missing\); expected \[patterns\] with train"),
        (SOUND.replace('["a*"]', "5"), "does not divide families"),
        (SOUND.replace('"b"', '"a"'), "a: in two parts"),
    ],
)
def test_what_is_malformed_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        Origins.load(tmp_path / "s.toml")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "absent", Path("/dev/zero")):
        with pytest.raises(InputError, match="does not divide families"):
            Origins.load(path)
