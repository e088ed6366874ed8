"""SciPy's own classes under a patch, and the program that patches."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
from tensorwise.sparse import products
from tensorwise.sparse.methods import COMPRESSED


@pytest.fixture
def _patched(monkeypatch):
    monkeypatch.setattr(products, "MAKING_NS", 0)
    tw.patch_scipy()
    yield
    tw.unpatch_scipy()


@pytest.mark.usefixtures("_patched")
@pytest.mark.parametrize("cls", COMPRESSED)
def test_scipys_classes_multiply_by_our_kernels(cls):
    given = sp.random_array((60, 50), density=0.2, rng=np.random.default_rng(0))
    matrix = cls(given, **({"blocksize": (2, 2)} if "bsr" in cls.__name__ else {}))
    dense, x = matrix.toarray(), np.linspace(-1, 1, 50)
    for _ in range(4):
        np.testing.assert_allclose(matrix @ x, dense @ x)
        np.testing.assert_allclose(matrix.T @ matrix.toarray(), dense.T @ dense)
        np.testing.assert_allclose(np.ones(60) @ matrix, dense.sum(0))
        if issubclass(cls, sp.spmatrix):
            np.testing.assert_allclose(matrix * x, dense @ x)
    assert type(matrix.T).__module__.startswith("scipy.")
    assert tw.sparse.patching.is_patched()
    assert matrix.__dict__["_tensorwise"].last.x_shape == (50,)


def read_back(matrix):
    return pickle.loads(pickle.dumps(matrix))  # noqa: S301 - our own, made in this line


@pytest.mark.parametrize("cls", COMPRESSED)
def test_what_a_pickle_and_a_hash_take_is_as_without_the_patch(cls, monkeypatch):
    """Products leave no trace in them, under the patch and after it."""
    joblib = pytest.importorskip("joblib")
    dask = pytest.importorskip("dask.base")
    monkeypatch.setattr(products, "MAKING_NS", 0)
    matrix = cls(sp.random_array((60, 60), density=0.2, rng=np.random.default_rng(0)))
    facts = {
        "pickle": lambda: len(pickle.dumps(matrix)),
        "hash": lambda: joblib.hash(matrix),
        "token": lambda: dask.tokenize(matrix),
        "copy": lambda: sorted(vars(copy.copy(matrix))),
        "read back": lambda: sorted(vars(read_back(matrix))),
    }
    before = {name: fact() for name, fact in facts.items()}
    tw.patch_scipy()
    try:
        for _ in range(2):
            matrix @ np.ones(60)
        matrix.T @ np.ones(60)
        assert "_tensorwise" in vars(matrix)
        assert {name: fact() for name, fact in facts.items()} == before
        np.testing.assert_allclose(read_back(matrix) @ np.ones(60), matrix @ np.ones(60))
    finally:
        tw.unpatch_scipy()
    joblib.hash(matrix)  # another one than before, since SciPy's class says nothing of what it holds
    again = read_back(matrix)
    np.testing.assert_allclose(again @ np.ones(60), matrix @ np.ones(60))
    tw.patch_scipy()
    try:
        np.testing.assert_allclose(again @ np.ones(60), matrix @ np.ones(60))
    finally:
        tw.unpatch_scipy()


@pytest.mark.usefixtures("_patched")
def test_scikit_learns_pipelines_keep_what_they_computed(tmp_path):
    sklearn = pytest.importorskip("sklearn.pipeline")
    from sklearn.decomposition import TruncatedSVD
    from sklearn.linear_model import Ridge

    matrix = sp.random_array((200, 50), density=0.1, rng=np.random.default_rng(0), format="csr")
    y = matrix @ np.ones(50)
    pipe = sklearn.make_pipeline(TruncatedSVD(10, random_state=0), Ridge(), memory=str(tmp_path))
    first = pipe.fit(matrix, y).predict(matrix)
    np.testing.assert_allclose(pipe.fit(matrix, y).predict(matrix), first)


def test_the_patch_is_undone_wholly():
    before = {cls: dict(vars(cls)) for cls in COMPRESSED}
    tw.patch_scipy()
    tw.patch_scipy()
    assert any(dict(vars(cls)) != before[cls] for cls in COMPRESSED)
    tw.unpatch_scipy()
    assert {cls: dict(vars(cls)) for cls in COMPRESSED} == before
    tw.unpatch_scipy()


PROGRAM = """
import subprocess, sys
import scipy.sparse as sp
said = "import scipy.sparse as sp; print(sp.csr_array.__matmul__.__module__)"
print(sys.argv[1:], sp.csr_array.__matmul__.__module__)
print(subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True).stdout.strip())
"""


def run_patched(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "tensorwise.patch", *arguments], capture_output=True, text=True, **options
    )


def test_a_program_and_its_children_are_patched(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text("print('hidden')")
    path = os.pathsep.join([str(tmp_path), os.getcwd(), os.environ.get("PYTHONPATH", "")])
    done = run_patched(str(script), "a", "-b", env={**os.environ, "PYTHONPATH": path})
    assert done.stdout.splitlines() == [
        "hidden",
        "['a', '-b'] tensorwise.sparse.methods",
        "hidden",
        "tensorwise.sparse.methods",
    ], done.stderr


def test_a_module_is_run_and_its_exit_status_passed_on():
    done = run_patched("-m", "json.tool", "--help")
    assert done.returncode == 0
    assert "json" in done.stdout
    assert run_patched().returncode == 2
    assert "usage" in run_patched("--help").stdout


def test_a_program_that_is_not_there_is_one_line_and_status_2(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    for arguments, said in (
        (["nosuch.py"], "nosuch.py: no such file"),
        ([str(tmp_path)], "a folder without __main__.py"),
        (["-m", "nosuch"], "no module named nosuch"),
        (["-m", "nosuch.inner"], "no module named nosuch.inner"),
        (["-m", "package"], "no module named package.__main__"),
        (["--reprot", "x.py"], "unknown option --reprot; usage: "),
        (["--report"], "there is no program to run; usage: "),
        ([], "there is no program to run; usage: "),
    ):
        path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
        done = run_patched(*arguments, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
        assert done.returncode == 2, done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("python -m tensorwise.patch: ")
        assert said in line


def test_what_a_module_lacks_is_said_by_itself(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import nosuch")
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    done = run_patched("-m", "package.inner", cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
    assert "No module named 'nosuch'" in done.stderr


def test_preparing_says_that_the_kernels_are_ready():
    done = subprocess.run([sys.executable, "-m", "tensorwise.sparse.prepare"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "the kernels of sparse arrays are ready (" in done.stdout.splitlines()[-1]
    again = subprocess.run(
        [sys.executable, "-m", "tensorwise.sparse.prepare"], capture_output=True, text=True
    )
    assert "are ready (they were compiled before): /" in again.stdout
    broken = {**os.environ, "TENSORWISE_CC": "/nonexistent/cc"}  # its kernels are others
    done = subprocess.run(
        [sys.executable, "-m", "tensorwise.sparse.prepare"], capture_output=True, text=True, env=broken
    )
    assert done.returncode == 1
    assert done.stderr.startswith("the kernels cannot be compiled, so that SciPy computes: ")
