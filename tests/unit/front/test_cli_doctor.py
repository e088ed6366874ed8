"""`tensorwise doctor`: a line for each thing, and the exit status."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tensorwise.errors import CompilerError
from tensorwise.front.cli import app
from tensorwise.front.cli_doctor import CHECKS


def rows(*arguments: str, status: int = 0) -> dict[str, dict[str, str]]:
    result = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    assert result.exit_code == status, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return {row["name"]: row for row in found}


def test_each_thing_has_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORWISE_STORE", str(tmp_path / "records.sqlite"))
    monkeypatch.setenv("TENSORWISE_AUTOTUNE", "full")
    found = rows()
    assert list(found) == [*CHECKS, "products"]
    assert found["environment"]["text"].startswith("autotune full; ")
    assert "nothing is remembered so far" in found["store"]["text"]
    text = CliRunner().invoke(app, ["doctor"]).stdout
    assert len(text.splitlines()) == len(found)
    monkeypatch.setenv("TENSORWISE_AUTOTUNE", "always")
    assert "expected one of off, background, full" in rows()["environment"]["text"]
    assert rows()["environment"]["status"] == "missing"


def test_without_kernels_and_a_compiler_the_status_is_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_compiler() -> None:
        raise CompilerError("no C compiler works: install gcc")

    monkeypatch.setattr("tensorwise.sparse.prepare.is_prepared", lambda family: False)
    found = rows()
    assert "run python -m tensorwise.sparse.prepare" in found["kernels"]["text"]
    assert found["products"]["text"] == "SciPy computes until the kernels are compiled"
    monkeypatch.setattr("tensorwise.toolchain.compiler.find_compiler", no_compiler)
    found = rows(status=1)
    assert found["compiler"] == {
        "name": "compiler",
        "status": "missing",
        "text": "no C compiler works: install gcc",
    }
    assert found["products"]["status"] == "failed"
