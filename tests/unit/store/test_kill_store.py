"""The first twenty kills of benchmarks/robustness/kill_store.py, which runs a thousand."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "robustness" / "kill_store.py"


def test_twenty_kills(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("kill_store", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    result = script.run(20, tmp_path, seed=1)
    assert result["holds"], result
    assert result["kills"] >= 20
    assert result["batches_acknowledged"] > 0
