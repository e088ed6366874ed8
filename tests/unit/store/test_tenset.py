"""Logs of Ansor, as TenSet has them, as Records."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tensorwise.errors import InputError
from tensorwise.front.cli import app
from tensorwise.store.recorded import RecordedDevice
from tensorwise.store.store import Store
from tensorwise.store.tenset import SPACE, looks_like_tenset, tenset_records

SAMPLES = Path(__file__).parents[4] / "shared" / "measurements" / "tenset"
STEPS = [["SP", 2, 0, 1024, [2, 1, 4], 1], ["RE", 2, [0, 2, 1]], ["AN", 2, 0, 3]]


def line(costs: list[float], error: int = 0, steps: object = STEPS) -> str:
    task = ['["matmul_add", 1024, 1024, "float32"]', "llvm -mcpu=core-avx2", [18, 64, 64]]
    return json.dumps({"i": [task, [[], steps]], "r": [costs, error, 0.5, 1607112214], "v": "v0.6"})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "e5-2673" / "tasks.json"
    path.parent.mkdir()
    other = line([1e10], 7, STEPS[:1])
    path.write_text("\n".join(["# a comment", line([2e-3, 1e-3, 3e-3]), "", other]) + "\n")
    return path


def test_lines_become_records(log: Path) -> None:
    ran, failed = tenset_records(log, "e5-2673")
    assert ran.seconds == 2e-3
    assert ran.op == "matmul_add"
    assert ran.workload["arguments"] == [1024, 1024, "float32"]
    assert json.loads(str(ran.config["steps"])) == STEPS
    assert ran.space == SPACE
    assert ran.provenance["device"] == "e5-2673"
    assert str(ran.provenance["when"]).startswith("2020-12-04")
    assert failed.status == "timeout"
    assert math.isinf(failed.seconds)
    assert failed.workload_id == ran.workload_id
    assert failed.device_id == ran.device_id
    (elsewhere, _) = tenset_records(log, "t4")
    assert elsewhere.device_id != ran.device_id
    assert RecordedDevice([ran, failed]).id == ran.device_id


def test_a_log_is_imported_once_and_named_by_its_folder(log: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    command = ["store", "--store", str(store), "import", str(log)]
    first = CliRunner().invoke(app, [*command, "--json"])
    assert json.loads(first.output)["imported"] == 2
    assert "0 new records" in CliRunner().invoke(app, command).output
    with Store(store) as records:
        assert {record.provenance["device"] for record in records} == {"e5-2673"}
        records.export(tmp_path / "own.jsonl")
    assert not looks_like_tenset(tmp_path / "own.jsonl")
    own = ["store", "--store", str(store), "import", str(tmp_path / "own.jsonl"), "--device", "t4"]
    refused = CliRunner().invoke(app, own)
    assert refused.exit_code
    assert "is for logs of TenSet" in refused.output


@pytest.mark.parametrize(
    "bad", ['{"i": [["[]", "llvm"], [[], []]], "r": [[1e-3], 0, 1, 2]}', '{"i": 3}', '{"i": [', line([-1.0])]
)
def test_a_malformed_line_is_named(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(f"{line([1e-3])}\n{bad}\n")
    with pytest.raises(InputError, match="line 2"):
        list(tenset_records(path, "d"))


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="needs the samples of TenSet")
def test_the_samples_are_read() -> None:
    found = [record for path in sorted(SAMPLES.glob("*.json")) for record in tenset_records(path, "sample")]
    assert len(found) == 53
    assert all(record.ok for record in found)
