"""The tool that mutates code keeps nothing of other code."""

from pathlib import Path

import pytest

from tests.mutation import __main__ as mutation


def test_what_was_found_of_other_code_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, folder = tmp_path / "root", tmp_path / "kept"
    for name in ("tensorwise", "tests"):
        (root / name).mkdir(parents=True)
        (root / name / "a.py").write_text("one = 1\n")
    folder.mkdir()
    monkeypatch.setattr(mutation, "ROOT", root)

    def keeps() -> bool:
        mutation.forget_other_code(folder)
        found = (folder / "reached.json").exists() and (folder / "verdicts-0.jsonl").exists()
        for name in ("reached.json", "verdicts-0.jsonl"):
            (folder / name).write_text("{}")
        return found

    assert not keeps(), "of what it was found is not known"
    assert keeps()
    (root / "tensorwise" / "a.py").write_text("one = 2\n")
    assert not keeps()
    assert keeps()
    (root / "tests" / "b.py").write_text("")
    assert not keeps()
