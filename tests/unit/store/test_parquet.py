"""Records as Parquet: what is read back is what was written; and the datasheet beside it."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorwise.device.device import Measurement
from tensorwise.device.null import NullDevice
from tensorwise.errors import InputError
from tensorwise.front.cli import app
from tensorwise.reading import open_regular
from tensorwise.store.datasheet import Datasheet
from tensorwise.store.parquet import _rows, read_records, write_records
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tests.contract.toys import GARDEN, TINY, ToyWorkload, draw_many
from tests.unit.model import latencies

pytest.importorskip("pyarrow")

W: Any = ToyWorkload()
DEVICE = NullDevice()


def records() -> list[Record]:
    """Records of two spaces, of all kinds of status and provenance."""
    rng = np.random.default_rng(0)
    made = []
    for space in (GARDEN, TINY):
        for k, config in enumerate(draw_many(space, W, 0, 20)):
            facts: dict[str, object] = {
                "job": str(k // 5),
                "batch": k,
                "family": "fem",
                "pattern": f"p{k // 5}",
            }
            facts |= {"drawn": "default", "host": "Ünï", "threads": 2} if k % 5 < 2 else {"drawn": "random"}
            facts |= {"log_probability": -float(rng.random())} if k % 5 > 2 else {}
            facts |= {
                "odd": [None, 2**70, {"deep": True}][k % 3],
                "none": None,
                "mixed": k if k % 2 else k / 4,
            }
            one = Measurement(float(rng.random()), float(rng.random()) / 10)
            made.append(Record.of(one, W, DEVICE, space.name, config, facts))
    made[3] = replace(made[3], status="censored")
    made[4] = replace(made[4], status="crash", seconds=math.inf, spread_s=0.0, note='line, with "quotes"')
    return made


def table_of(note: Any, count: int) -> Any:
    """A table of records that are alike, with their notes."""
    import pyarrow as pa

    facts = {"workload_id": "a", "device_id": "b", "space": "c", "status": "ok", "workload": "{}"}
    columns: dict[str, Any] = {name: pa.array([value] * count) for name, value in facts.items()}
    columns |= {"seconds": pa.array([1.0] * count), "spread_s": pa.array([0.0] * count)}
    return pa.table({**columns, "note": note})


@pytest.mark.parametrize("schema", [True, False])
def test_a_text_that_rows_share_is_in_memory_once(tmp_path: Path, schema: bool) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    note = pa.DictionaryArray.from_arrays(pa.array([0, None] * 750, pa.int32()), pa.array(["x" * 2**16]))
    path = tmp_path / "r.parquet"
    parquet.write_table(table_of(note, 1500), path, compression="zstd", store_schema=schema)
    rows = list(_rows(pa, parquet, open_regular(path), 2**40))
    assert len(rows) == 1500
    assert len({id(row["note"]) for row, _ in rows}) == 2
    assert sum(size for _, size in rows) > 750 * 2**16


@pytest.mark.parametrize("shared", [True, False])
def test_a_small_file_that_expands_without_an_end_is_refused(tmp_path: Path, shared: bool) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "r.parquet"
    if shared:  # its pages are small
        note = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), pa.array(["x" * 2**20]))
    else:
        note = pa.array(["x" * (66 * 2**20)])
    parquet.write_table(table_of(note, len(note)), path, compression="zstd", use_dictionary=shared)
    assert path.stat().st_size < 20_000
    seen: list[Record] = []
    with pytest.raises(InputError, match=r"r\.parquet.*expands to more than a file of its size may: 64 MiB"):
        seen.extend(read_records(path))
    assert len(seen) == (63 if shared else 0)


def test_rows_without_texts_end_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorwise.store import parquet

    write_records(tmp_path / "r.parquet", records())
    monkeypatch.setattr(parquet, "_FREE_BYTES", 0)
    monkeypatch.setattr(parquet, "_MOST_EXPANSION", 20)
    monkeypatch.setattr(parquet, "_ROW_BYTES", 2**20)
    with pytest.raises(InputError, match="expands to more"):
        list(read_records(tmp_path / "r.parquet"))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r.parquet")
    with pytest.raises(InputError, match="it is a pipe; expected a regular file"):
        list(read_records(tmp_path / "r.parquet"))


def test_nothing_is_lost(tmp_path: Path) -> None:
    given = records()
    assert write_records(tmp_path / "r.parquet", given) == len(given)
    again = list(read_records(tmp_path / "r.parquet"))
    assert [record.id for record in again] == [record.id for record in given]
    assert [record.to_json() for record in again] == [record.to_json() for record in given]


def test_no_records_at_all(tmp_path: Path) -> None:
    assert write_records(tmp_path / "r.parquet", []) == 0
    assert list(read_records(tmp_path / "r.parquet")) == []


def test_it_is_compact(tmp_path: Path) -> None:
    given = [replace(r, provenance={**r.provenance, "batch": k}) for k in range(50) for r in records()]
    write_records(tmp_path / "r.parquet", given)
    lines = sum(len(record.to_json()) for record in given)
    assert (tmp_path / "r.parquet").stat().st_size < lines / 15


def test_other_files_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "r.parquet"
    write_records(path, records())
    sound = path.read_bytes()
    for data in (b"", b"PAR1" * 10, sound[:-20], sound[: len(sound) // 2]):
        path.write_bytes(data)
        with pytest.raises(InputError, match="no records can be read"):
            list(read_records(path))
    parquet.write_table(pa.table({"config.a": ["[1"], "workload_id": [7]}), path)
    with pytest.raises(InputError, match="record 1: no records can be read"):
        list(read_records(path))
    with pytest.raises(InputError, match="no records can be read"):
        list(read_records(tmp_path / "absent.parquet"))
    with pytest.raises(InputError, match="cannot be written"):
        write_records(tmp_path / "absent" / "r.parquet", records())


def test_the_datasheet(tmp_path: Path) -> None:
    sheet = Datasheet()
    given = records()
    assert list(sheet.watch(given)) == given
    text = sheet.text("spmm")
    assert text.startswith("# spmm\n\n40 measurements of 1 workloads on 4 patterns of 1 families, from 20")
    assert "| spmm C[i,j] += A[i,k] * B[k,j] with n = 16, float32 | 40 |" in text
    for line in ("| ok | 38 |", "| censored | 1 |", "| random | 24 |", "| fem | 4 |", "| Ünï | 16 |"):
        assert line in text
    times = {
        job: [
            r.seconds
            for r in given
            if r.ok and r.provenance["job"] == job and r.provenance["drawn"] == "default"
        ]
        for job in "0123"
    }
    assert sorted(sheet.repeats) == pytest.approx(sorted(max(of) / min(of) for of in times.values()))


def test_the_datasheet_of_programs(tmp_path: Path) -> None:
    sheet, (one, *others) = Datasheet(), [record for record in latencies.records() if record.ok]
    list(sheet.watch([one, *others, replace(one, seconds=1.5 * one.seconds)]))
    text = sheet.text("tasks")
    assert "Made by `tensorwise tasks collect`" in text
    assert "patterns" not in text.partition("## What")[0]
    assert "None" not in text
    assert "designs of TVM's meta-schedule" in text
    assert sheet.repeat_errors == pytest.approx([0.5])


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORWISE_STORE", str(tmp_path / "one.sqlite"))
    with Store() as store:
        store.append(records())
    path = tmp_path / "records.parquet"
    out = CliRunner().invoke(app, ["store", "export", str(path), "--json"])
    assert json.loads(out.stdout) == {"exported": 40, "path": str(path)}
    assert path.with_suffix(".md").read_text().startswith("# records\n\n40 measurements")
    arguments = ["store", "--store", str(tmp_path / "other.sqlite"), "import", str(path), "--json"]
    for new in (40, 0):
        assert json.loads(CliRunner().invoke(app, arguments).stdout)["imported"] == new
