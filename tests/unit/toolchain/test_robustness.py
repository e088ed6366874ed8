"""Short runs of benchmarks/robustness/kill_cache.py and interrupts.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensorwise.toolchain.compiler import Compiler

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benchmarks" / "robustness" / "kill_cache.py"
INTERRUPTS = SCRIPT.with_name("interrupts.py")


@pytest.mark.skipif(not SCRIPT.exists() or not hasattr(os, "fork"), reason="needs the benchmarks and fork")
def test_kills_and_crowds_do_no_harm(compiler: Compiler, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    command = [
        sys.executable,
        str(SCRIPT),
        "--kills",
        "20",
        "--processes",
        "4",
        "--kernels",
        "10",
        "--out",
        str(out),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads(out.read_text())
    assert result["holds"]
    assert result["kills"]["puts"] > 0
    assert result["together"]["kernels"] == 10


@pytest.mark.skipif(
    not INTERRUPTS.exists() or not hasattr(os, "fork"), reason="needs the benchmarks and fork"
)
def test_interrupts_and_forks_do_no_harm(compiler: Compiler) -> None:
    command = [sys.executable, str(INTERRUPTS), "--interrupts", "20", "--forks", "20"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads(ran.stdout)
    assert result["interrupts"]["interrupts"] == 20
    assert result["forks"]["forks"] == 20
