"""What is dropped is freed: no door of the package keeps an operand, a kernel, a file, a thread or a process.

The long run of the same rounds is ``benchmarks/robustness/lifetime.py``.
"""

import gc
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
from tensorwise.errors import InputError
from tensorwise.front import gnn
from tensorwise.program.workload import Workload
from tensorwise.runtime.generated import BoundProgram
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tuning.operator import Operator

SIZE = 400
KINDS = (Entries, Workload, Tensor, BoundProgram, Operator, gnn.Graph)
HYBRID = "(i,k) -> U(i) C(k); rows>64: (i,k) -> C(i) C(k)"


def matrix(seed: int) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.random_array((SIZE, SIZE), density=0.02, format="csr", rng=rng, dtype=np.float32)


def vector() -> np.ndarray:
    return np.ones(SIZE, np.float32)


def wide(width: int) -> np.ndarray:
    return np.ones((SIZE, width), np.float32)


def default_of_one(seed: int) -> None:
    op = tw.compile("C[i] += A[i,k] * B[k]", A=matrix(seed), threads=2)
    op(vector())
    op @ wide(3)


def default_of_several(seed: int) -> None:
    op = tw.compile("C[i,j] += A[i,k] * B[k,j]", A=matrix(seed), sizes={"j": 8}, threads=2)
    op(wide(8))


def pattern_kept(seed: int) -> None:
    op = tw.compile("C[i,j] += A[i,j] * B[i,k] * D[k,j]", A=matrix(seed), sizes={"k": 4}, threads=2)
    op(wide(4), np.ascontiguousarray(wide(4).T))


def hybrid(seed: int) -> None:
    both = "parallel(i,dynamic,16); parallel(i,dynamic,16)"
    tw.compile("C[i] += A[i,k] * B[k]", A=matrix(seed), format=HYBRID, schedule=both, threads=2)(vector())


def workspaces(seed: int) -> None:
    schedule = "parallel(i,merge-path,16)"
    op = tw.compile(
        "C[i] += A[i,k] * B[k]", A=matrix(seed), format="(i,k) -> U(i) C(k)", schedule=schedule, threads=2
    )
    op(vector())


def extremum(seed: int) -> None:
    tw.compile("C[i] max= A[i,k] * B[k]", A=matrix(seed), threads=2)(vector())


def transposes(seed: int) -> None:
    op = tw.compile("C[i] += A[i,k] * B[k]", A=matrix(seed), threads=2)
    assert op.T.T is op
    op.T(vector())
    op.rmatmat(wide(3))


def widths(seed: int) -> None:
    op = tw.compile("C[i] += A[i,k] * B[k]", A=matrix(seed), threads=2)
    for width in range(1, 13):  # more than are kept
        op.matmat(wide(width))


def graph(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = gnn.Graph(rng.integers(0, SIZE, 1000), rng.integers(0, SIZE, 1000), (SIZE, SIZE), threads=1)
    one.einsum("C[i,f] += B[k,f] for A[i,k]", B=wide(4))
    one.gradient("C[i,f] += B[k,f] for A[i,k]", "B", wide(4), B=wide(4))


def saved(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tw.compile("C[i] += A[i,k] * B[k]", A=matrix(seed), threads=1).save(f"{folder}/op.tw")
        tw.load(f"{folder}/op.tw")(vector())


def refused(seed: int) -> None:
    op = tw.compile("C[i] += A[i,k] * B[k]", A=matrix(seed), threads=1)
    with pytest.raises(InputError):
        op(np.ones(SIZE + 1, np.float32))


def answered_at_once(seed: int) -> None:
    tw.tune(matrix(seed), "spmv", expected_calls=1, threads=1, store=False)(vector())


def searched(seed: int) -> None:
    op = tw.tune(matrix(seed), "spmv", trials=1, threads=1, store=False, seed=seed)
    op(vector())
    op.report()


QUICK = [
    default_of_one, default_of_several, pattern_kept, hybrid, workspaces, extremum, transposes, widths, graph, saved,
    refused, answered_at_once,
]  # fmt: skip


def alive() -> Counter[str]:
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS))


def held() -> dict[str, int]:
    """What this process holds of the system."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "children": len(children.read_text().split()),
        "temporary": len([p for p in os.listdir(tempfile.gettempdir()) if p.startswith("tensorwise")]),
    }


@pytest.fixture
def own_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.parametrize("door", [*QUICK, searched], ids=lambda door: door.__name__)
def test_a_door_keeps_nothing(door: Callable[[int], None], own_temporary: None) -> None:
    door(0)  # what is loaded once stays
    gc.collect()
    before, had = alive(), held()
    for seed in range(1, 3 if door is searched else 7):
        door(seed)
    gc.collect()
    assert alive() - before == Counter()
    after = held()
    assert {name: after[name] - had[name] for name in had if after[name] > had[name]} == {}


@pytest.mark.parametrize("door", QUICK, ids=lambda door: door.__name__)
def test_matrices_do_not_wait_for_a_collection(door: Callable[[int], None]) -> None:
    """Collections count objects, not bytes: a matrix in a ring of references may stay for minutes."""
    door(0)
    gc.collect()
    before = alive()
    gc.disable()
    try:
        for seed in range(1, 4):
            door(seed)
        assert alive() - before == Counter()
    finally:
        gc.enable()


def test_a_graph_keeps_so_many_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gnn, "MOST_KERNELS", 5)
    one = gnn.Graph([0, 1, 2], [1, 2, 0], (3, 3), threads=1)
    for width in (*range(1, 9), 1, 8):
        features = np.arange(3 * width, dtype=np.float32).reshape(3, width)
        found = one.einsum("C[i,f] += B[k,f] for A[i,k]", B=features)
        np.testing.assert_array_equal(found, features[[2, 0, 1]])
        assert len(one._kernels) <= 5


def test_a_transpose_outlives_what_it_was_made_of() -> None:
    a = matrix(0)
    turned = tw.compile("C[i] += A[i,k] * B[k]", A=a, threads=1).T
    gc.collect()
    np.testing.assert_allclose(turned(vector()), a.T @ vector(), rtol=1e-4)
    np.testing.assert_allclose(turned.T(vector()), a @ vector(), rtol=1e-4)


LONG = Path(__file__).parents[3] / "benchmarks" / "robustness" / "lifetime.py"


@pytest.mark.skipif(
    not LONG.exists() or not Path("/proc/self/statm").exists(), reason="needs benchmarks, /proc"
)
def test_memory_stays_flat() -> None:
    """A short run: one matrix a round kept would be four times what it may grow."""
    command = [sys.executable, str(LONG), "--rounds", "24", "--uses", "compilations", "widths"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
