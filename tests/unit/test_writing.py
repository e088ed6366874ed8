"""Files appear whole or not at all."""

from pathlib import Path

import pytest

from tensorwise.writing import replacing


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match="absent"), replacing(tmp_path / "absent" / "file"):
        pass


def test_a_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"
