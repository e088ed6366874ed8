"""``tensorwise store`` on folders of parts: what is there, export, import and merging."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tensorwise.front.cli import app
from tensorwise.store.finished import JobRecords
from tensorwise.store.parts import PartStore
from tensorwise.store.store import Store
from tests.unit.store.examples import record

pytest.importorskip("pyarrow")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["store", *map(str, arguments)])


def job_of(name: str) -> JobRecords:
    facts = [{"job": name, "batch": k, "when": "now"} for k in range(3)]
    return JobRecords.of(name, [record(k, provenance=one) for k, one in enumerate(facts)])


@pytest.fixture
def parts(tmp_path: Path) -> PartStore:
    store = PartStore(tmp_path / "s.parts")
    for name in "abcd":
        store.append_jobs([job_of(name)])
    return store


def test_what_is_there(parts: PartStore) -> None:
    said = json.loads(invoke("--store", parts.path, "--json").stdout)
    size = sum(path.stat().st_size for path in (parts.path / "data").iterdir())
    assert said == {
        "path": str(parts.path), "records": 12, "bytes": size, "parts": 4, "jobs": 4, "statuses": {"ok": 12},
    }  # fmt: skip
    assert "parts" in invoke("--store", parts.path).stdout


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_export_and_import_keep_all_records(parts: PartStore, tmp_path: Path, name: str) -> None:
    out, other, file = tmp_path / name, tmp_path / "other.parts", tmp_path / "other.sqlite"
    assert json.loads(invoke("--store", parts.path, "export", out, "--json").stdout)["exported"] == 12
    for place in (other, file):
        assert json.loads(invoke("--store", place, "import", out, "--json").stdout)["imported"] == 12
        assert json.loads(invoke("--store", place, "import", out, "--json").stdout)["imported"] == 0
    there = {one.id for one in parts}
    assert {one.id for one in PartStore(other)} == there
    assert PartStore(other).jobs() == parts.jobs()
    with Store(file) as store:
        assert {one.id for one in store} == there


def test_what_is_no_whole_job_is_not_imported_into_parts(tmp_path: Path) -> None:
    out, other = tmp_path / "out.jsonl", tmp_path / "other.parts"
    a, b = job_of("a").records, job_of("b").records
    for records, said in (
        ([*a, record(9)], "is of no job"),
        ([a[0], *b, *a[1:]], "do not follow each other"),
    ):
        out.write_text("".join(f"{one.to_json()}\n" for one in records))
        result = invoke("--store", other, "import", out)
        assert result.exit_code == 1
        assert said in " ".join(result.stderr.split())
        assert len(PartStore(other)) == 0


def test_parts_are_merged(parts: PartStore, tmp_path: Path) -> None:
    before = {one.id for one in parts}
    said = json.loads(invoke("--store", parts.path, "compact", "--json").stdout)
    assert said == {"path": str(parts.path), "merged": 4, "parts_before": 4, "parts": 1}
    assert {one.id for one in PartStore(parts.path)} == before
    for path in (tmp_path / "s.sqlite", tmp_path / "absent.parts"):
        refused = invoke("--store", path, "compact")
        assert refused.exit_code == 1
        assert "is no folder of parts" in refused.stderr
        assert not path.exists()


def test_ctrl_c_keeps_what_is_merged(parts: PartStore, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {one.id for one in parts}
    whole = PartStore.compact

    def compact(store: PartStore, observe: Callable[[int, int], None]) -> int:
        def interrupt(done: int, total: int) -> None:
            observe(done, total)
            assert (done, total) == (2, 4)
            raise KeyboardInterrupt

        return whole(store, 6, interrupt)

    monkeypatch.setattr(PartStore, "compact", compact)
    result = invoke("--store", parts.path, "compact", "--json")
    assert result.exit_code == 130
    assert json.loads(result.stdout)["merged"] == 2
    store = PartStore(parts.path)
    assert (store.num_parts, {one.id for one in store}) == (3, before)
    monkeypatch.undo()
    assert json.loads(invoke("--store", parts.path, "compact", "--json").stdout)["parts"] == 1


@pytest.mark.parametrize("command", [["compact"], ["export", "out.jsonl"], []])
def test_a_damaged_part_is_named(
    parts: PartStore, command: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    damaged = sorted((parts.path / "data").iterdir())[0]
    whole = damaged.read_bytes()
    for text, said in (
        (whole[:-9], "had"),
        (b"x" * len(whole), "no records can be read from it"),
    ):
        damaged.write_bytes(text)
        result = invoke("--store", parts.path, *command)
        assert result.exit_code == 1
        message = " ".join(result.stderr.split())
        assert damaged.name in message.replace(" ", "")
        assert said in message
        assert "restore it from a copy, or measure its jobs again" in message
    damaged.write_bytes(whole)
    assert len(list(PartStore(parts.path))) == 12
