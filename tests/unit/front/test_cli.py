"""The command line as a person or a script meets it: output, exit status, and what it says when it fails."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from typer.testing import CliRunner, Result

import tensorwise as tw
from tensorwise.errors import InputError
from tensorwise.front.cli import OPS, STRATEGIES, app
from tensorwise.program.ops import NAMED
from tensorwise.search import STRATEGIES as KNOWN_STRATEGIES
from tests.unit.front.test_report import check

KEYS = {
    "event",
    "op",
    "threads",
    "best",
    "best_generated",
    "baselines",
    "candidates_measured",
    "conversion_s",
    "tuning_s",
    "break_even_calls",
    "verified",
}
KERNEL = {"name", "format", "schedule", "seconds"}
TINY = ["--budget", "60", "--trials", "4", "--threads", "1"]


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORWISE_STORE", str(tmp_path / "records.sqlite"))


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "small.mtx"
    scipy.io.mmwrite(path, sp.random_array((60, 50), density=0.1, rng=np.random.default_rng(0)))
    return path


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fails_in_one_line(result: Result, status: int = 1) -> str:
    """Check the status, and that all that was said is one line on standard error; return it."""
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


def lines(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]


def test_tune_json_report_save_and_run(matrix: Path, tmp_path: Path) -> None:
    report, saved, out = tmp_path / "r.html", tmp_path / "o.tw", tmp_path / "c.npy"
    result = invoke(
        "tune", matrix, "--op", "spmm", "--n", 8, *TINY, "--json", "--report", report, "--save", saved
    )
    *candidates, last = lines(result)
    assert result.stderr == ""  # no progress bar where there is no terminal
    assert last.keys() >= KEYS
    assert last["event"] == "result"
    assert last["dtype"] == "float32"
    assert last["verified"] is True
    assert last["best"].keys() >= KERNEL  # type: ignore[attr-defined]
    assert "scipy" in last["baselines"]  # type: ignore[operator]
    for number, candidate in enumerate(candidates, 1):
        assert candidate["event"] == "candidate"
        assert candidate["number"] == number
        assert candidate.keys() >= {"config", "format", "schedule", "seconds", "status"}
    documented = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()
    assert all(f"`{key}`" in documented for line in (*candidates, last) for key in line)
    checked = check(report.read_text())
    assert "small.mtx" in checked.text

    B = np.random.default_rng(1).random((50, 8), dtype=np.float32)
    np.save(tmp_path / "b.npy", B)
    (said,) = lines(invoke("run", saved, tmp_path / "b.npy", "--out", out, "--json"))
    assert said["shape"] == [60, 8]
    np.testing.assert_allclose(np.load(out), scipy.io.mmread(matrix) @ B, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(dtype: str, matrix: Path, tmp_path: Path) -> None:
    report, saved, out = tmp_path / "r.html", tmp_path / "o.tw", tmp_path / "c.npy"
    options = ("--dtype", dtype, "--json", "--report", report, "--save", saved)
    last = lines(invoke("tune", matrix, "--op", "spmm", "--n", 8, *TINY, *options))[-1]
    assert last["dtype"] == dtype
    assert dtype in check(report.read_text()).text
    B = np.random.default_rng(1).random((50, 8), dtype=np.float32)
    np.save(tmp_path / "b.npy", B if dtype == "bfloat16" else B.astype(dtype))  # .npy has no bfloat16
    (said,) = lines(invoke("run", saved, tmp_path / "b.npy", "--out", out, "--json"))
    assert said["dtype"] == dtype
    written = np.load(out)
    assert written.dtype == ("float32" if dtype == "bfloat16" else dtype)
    np.testing.assert_allclose(written, scipy.io.mmread(matrix) @ B, rtol=0.02, atol=0.05)


def test_all_modes(tmp_path: Path) -> None:
    path = tmp_path / "cube.tns"
    rng = np.random.default_rng(0)
    places = [np.unravel_index(place, (7, 6, 5)) for place in rng.choice(210, 60, replace=False)]
    path.write_text("".join(f"{i + 1} {k + 1} {m + 1} {rng.random()}\n" for i, k, m in places))
    arguments = ["tune", path, "--op", "mttkrp", "--n", 4, "--all-modes", *TINY]
    *candidates, last = lines(invoke(*arguments, "--memory-bytes", 100_000, "--json"))
    assert {one["event"] for one in candidates} == {"candidate"}
    assert last["event"] == "result"
    assert (last["op"], last["rank"], last["memory_bytes"]) == ("mttkrp", 4, 100_000)
    best = last["best"]
    assert isinstance(best, dict)
    assert [mode["name"] for mode in best["modes"]] == 3 * ["tensorwise"]
    assert sorted(mode for one in best["tensors"] for mode in one["modes"]) == [0, 1, 2]
    assert best in last["alternatives"]  # type: ignore[operator]
    text = invoke(*arguments)
    assert "mttkrp in every mode of 7 x 6 x 5, 60 entries, float32, rank 4, 1 thread" in text.stdout
    assert "memory_bytes=100 is less" in fails_in_one_line(invoke(*arguments, "--memory-bytes", 100))


def test_tune_text_and_store(matrix: Path, tmp_path: Path) -> None:
    result = invoke("tune", matrix, "--op", "spmv", "--trials", 3, "--threads", 1, "--dtype", "float64")
    assert result.exit_code == 0, result.output
    assert "breaks even" in result.stdout
    assert result.stderr == ""
    (info,) = lines(invoke("store", "--json"))
    assert info["records"] == 3
    exported = tmp_path / "x.jsonl"
    assert lines(invoke("store", "export", exported, "--json"))[0]["exported"] == 3
    other = tmp_path / "other.sqlite"
    assert lines(invoke("store", "--store", other, "import", exported, "--json"))[0]["imported"] == 3
    assert lines(invoke("store", "--store", other, "import", exported, "--json"))[0]["imported"] == 0


def test_no_store_leaves_nothing(matrix: Path, tmp_path: Path) -> None:
    result = invoke("tune", matrix, "--op", "spmv", "--trials", 0, "--threads", 1, "--no-store")
    assert result.exit_code == 0, result.output
    assert not (tmp_path / "records.sqlite").exists()


def test_run_with_random_operands_and_sparse_result(matrix: Path, tmp_path: Path) -> None:
    import tensorwise as tw

    saved = tmp_path / "o.tw"
    operator = tw.compile(
        "C[i,j] += A[i,j] * B[i,k] * D[k,j]", A=tw.read(matrix, np.float32), sizes={"k": 4}, threads=1
    )
    operator.save(saved)
    for name in ("c.mtx", "c.npz", "c.npy"):
        assert invoke("run", saved, "--out", tmp_path / name).exit_code == 0
    assert (
        tw.read(tmp_path / "c.mtx").nnz == len(np.load(tmp_path / "c.npy")) == operator.workload.entries.nnz
    )


def test_bench(matrix: Path) -> None:
    (said,) = lines(
        invoke("bench", matrix, "--op", "spmm", "--n", 8, "--budget", 0.5, "--threads", 1, "--json")
    )
    assert {"tensorwise", "scipy"} <= said["seconds"].keys()  # type: ignore[attr-defined]
    assert said["rounds"] >= 3  # type: ignore[operator]
    assert invoke("bench", matrix, "--op", "spmv", "--budget", 0.5).exit_code == 0


def test_bad_input_is_one_line_and_status_1(matrix: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.mtx"
    bad.write_text("%%MatrixMarket matrix coordinate real general\n3 3 1\n9 9 1.0\n")
    binary = tmp_path / "bad.npz"
    binary.write_bytes(os.urandom(300))
    assert "does not exist" in fails_in_one_line(invoke("tune", tmp_path / "no.mtx", "--op", "spmv"))
    assert "bad.mtx" in fails_in_one_line(invoke("tune", bad, "--op", "spmv"))
    fails_in_one_line(invoke("tune", binary, "--op", "spmv"))
    fails_in_one_line(invoke("tune", tmp_path, "--op", "spmv"))
    assert "order" in fails_in_one_line(invoke("tune", matrix, "--op", "mttkrp"))
    fails_in_one_line(invoke("tune", matrix, "--op", "spmv", "--budget", "-1"))
    fails_in_one_line(invoke("tune", matrix, "--op", "spmv", "--n", "5"))
    fails_in_one_line(invoke("bench", bad, "--op", "spmv"))
    fails_in_one_line(invoke("run", matrix))
    fails_in_one_line(invoke("run", tmp_path / "no.tw"))
    fails_in_one_line(invoke("store", "import", matrix))
    fails_in_one_line(invoke("store", "--store", tmp_path / "no.sqlite", "export", tmp_path / "x"))
    # Known before the search, not after it.
    fails_in_one_line(invoke("tune", matrix, "--op", "spmv", "--report", tmp_path / "no" / "r.html"))
    fails_in_one_line(invoke("tune", matrix, "--op", "spmv", "--save", tmp_path))


def test_bad_operands_of_run(matrix: Path, tmp_path: Path) -> None:
    import tensorwise as tw

    saved, wrong = tmp_path / "o.tw", tmp_path / "b.npy"
    tw.compile("C[i] += A[i,k] * B[k]", A=tw.read(matrix), threads=1).save(saved)
    np.save(wrong, np.ones(7))
    assert "shape" in fails_in_one_line(invoke("run", saved, wrong))
    wrong.write_bytes(b"no array")
    fails_in_one_line(invoke("run", saved, wrong))
    np.save(wrong, np.array([{}], dtype=object), allow_pickle=True)
    fails_in_one_line(invoke("run", saved, wrong))
    fails_in_one_line(invoke("run", saved, "--out", tmp_path / "c.txt"))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["tune"],
        ["tune", "x.mtx"],
        ["tune", "x.mtx", "--op", "conv"],
        ["tune", "x.mtx", "--op", "spmv", "--dtype", "int8"],
        ["tune", "x.mtx", "--op", "spmv", "--strategy", "luck"],
        ["tune", "x.mtx", "--op", "spmv", "--threads", "0"],
        ["tune", "x.mtx", "--op", "spmv", "--store", "s", "--no-store"],
        ["tune", "x.mtx", "--op", "spmv", "--all-modes"],
        ["tune", "x.tns", "--op", "mttkrp", "--memory-bytes", "1000"],
        ["tune", "x.tns", "--op", "mttkrp", "--all-modes", "--memory-bytes", "0"],
        ["tune", "x.tns", "--op", "mttkrp", "--all-modes", "--mode", "1"],
        ["tune", "x.tns", "--op", "mttkrp", "--all-modes", "--save", "x.tw"],
        ["bench", "x.mtx", "--op", "spmm", "--n", "many"],
        ["cache", "warm", "--op", "conv"],
        ["frobnicate"],
    ],
)
def test_wrong_usage_is_status_2(arguments: list[str]) -> None:
    assert invoke(*arguments).exit_code == 2


def test_help_lists_what_the_tables_hold() -> None:
    assert all(op in OPS for op in (*NAMED, "mttkrp"))
    assert all(name in STRATEGIES for name in KNOWN_STRATEGIES)


def test_cache_and_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(tmp_path / "cache"))
    (info,) = lines(invoke("cache", "--json"))
    assert info["kernels"] == 0
    (warmed,) = lines(invoke("cache", "warm", "--op", "spmv", "--dtype", "float32", "--json"))
    assert warmed["failed"] == 0
    assert warmed["kernels"] > 10  # type: ignore[operator]
    assert lines(invoke("cache", "--json"))[0]["kernels"] == warmed["kernels"]
    assert lines(invoke("cache", "verify", "--json"))[0] == {"kernels": warmed["kernels"], "damaged": []}
    assert lines(invoke("cache", "clear", "--json"))[0]["removed_kernels"] == warmed["kernels"]
    assert lines(invoke("cache", "--json"))[0]["kernels"] == 0
    for text in (["cache"], ["cache", "verify"], ["cache", "clear"], ["store"], ["devices"]):
        assert invoke(*text).exit_code == 0
    (found,) = lines(invoke("devices", "--json"))
    assert found.keys() >= {"cpu", "threads", "compiler", "libraries"}
    assert found["libraries"]["scipy"]  # type: ignore[index]


def start(*arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tensorwise", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def test_interrupt_gives_the_best_so_far(matrix: Path) -> None:
    process = start("tune", matrix, "--op", "spmm", "--n", 8, "--budget", 500, "--json", "--no-store")
    assert process.stdout is not None
    first = process.stdout.readline()  # the first candidate is measured
    assert json.loads(first)["event"] == "candidate"
    os.killpg(process.pid, signal.SIGINT)
    rest, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    last = json.loads(rest.splitlines()[-1])
    assert last["event"] == "result"
    assert any("interrupted" in note for note in last["notes"])
    assert said == ""


def test_interrupt_before_anything_was_found_is_130(matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tensorwise.tensor.files.read", interrupted)
    assert "interrupted" in fails_in_one_line(invoke("tune", matrix, "--op", "spmv"), 130)


def test_no_memory_is_one_line(matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("tensorwise.tensor.files.read", exhausted)
    assert "memory" in fails_in_one_line(invoke("bench", matrix, "--op", "spmv"))


def test_module_version_and_quick_start() -> None:
    code = "import sys, tensorwise.front.cli; sys.exit('scipy' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    process = start("--version")
    said = process.communicate(timeout=60)[0].strip()
    assert re.fullmatch(r"tensorwise [\d.]+\w*, NumPy [\w.]+, SciPy [\w.]+, Python [\w.+]+", said), said
    assert process.returncode == 0


def test_a_reader_that_leaves_causes_no_traceback(matrix: Path) -> None:
    process = start("tune", matrix, "--op", "spmv", "--trials", 3, "--threads", 1, "--json", "--no-store")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.wait(timeout=120)
    assert "Traceback" not in said
    assert process.returncode == 1


def test_complex_values_give_their_real_parts_and_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "c.mtx"
    path.write_text("%%MatrixMarket matrix coordinate complex general\n2 2 2\n1 1 3.0 1.0\n2 2 4.0 -1.0\n")
    result = invoke("bench", path, "--op", "spmv", "--budget", 0.3, "--threads", 1, "--json")
    assert lines(result)[0]["nnz"] == 2
    assert len(result.stderr.splitlines()) == 1
    assert "real parts" in result.stderr


def test_a_double_matrix_on_a_simulated_accelerator_says_what_to_pass(matrix: Path) -> None:
    options = (
        "tune",
        matrix,
        "--op",
        "spmm",
        "--n",
        32,
        "--device",
        "spade-small",
        "--no-store",
        "--trials",
        1,
    )
    assert "pass dtype='float32' (--dtype float32)" in fails_in_one_line(
        invoke(*options, "--dtype", "float64")
    )
    with pytest.raises(InputError, match=r"in float64; pass dtype='float32'"):
        tw.tune(scipy.io.mmread(matrix).tocsr(), "spmm", n=32, device="spade-small", trials=1, store=False)
