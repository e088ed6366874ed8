"""A few tests of SciPy and pyamg with our sparse classes; all: ``python tests/peers/sparse_suites.py``."""

import importlib.util
import json

import pytest

from tests.peers.sparse_suites import (
    FAULTS,
    QUICK,
    RESULT,
    SUITES,
    Suite,
    compile_kernels,
    described,
    missing,
    new_failures,
    run,
)


@pytest.mark.parametrize("name", QUICK)
def test_what_passes_without_us_passes_with_ours(name: str) -> None:
    suite = QUICK[name]
    if importlib.util.find_spec(suite.package) is None:
        pytest.skip(f"{suite.package} is not installed")
    compile_kernels()
    runs = {in_place: run(suite, in_place) for in_place in suite.runs}
    assert new_failures(runs) == set()
    assert missing(runs) == set()
    assert "passed" in runs["scipy"]["outcomes"].values()
    assert runs["scipy"]["products"] == 0
    for in_place in suite.runs[1:]:
        assert runs[in_place]["products"] > 0, "our kernels computed nothing"


def test_a_test_that_fails_with_ours_alone_is_named() -> None:
    passed = {"outcomes": {"a": "passed", "b": "failed", "c": "passed"}, "products": 0, "seconds": 1}
    failed = {"outcomes": {"a": "failed", "b": "failed"}, "products": 3, "seconds": 1}
    runs = {"scipy": passed, "patch": failed}
    assert new_failures(runs) == {"a"}
    assert missing(runs) == {"c"}
    told = described({"suite": runs})["suite"]
    assert told["fail_with_ours_alone"] == ["a"]
    assert told["patch"]["failed"] == 2
    assert told["known"] == []


def test_what_is_known_to_fail_is_listed_apart() -> None:
    eq, lsqr = (
        f"x::sparse.linalg.tests.test_pydata_sparse::test_{name}"
        for name in ("eq[COO-csr_array]", "lsqr[COO]")
    )
    passed = {"outcomes": {eq: "passed", lsqr: "passed"}, "products": 0, "seconds": 1}
    failed = {"outcomes": {eq: "failed", lsqr: "failed"}, "products": 3, "seconds": 1}
    runs = {"scipy": passed, "classes": failed, "patch": failed}
    assert new_failures(runs, ["classes"]) == set()
    assert new_failures(runs) == {eq}, "under the patch, classes are SciPy's"
    assert len(described({"suite": runs})["suite"]["known"]) == 3


def test_a_broken_class_fails(tmp_path) -> None:
    """With a plugin that makes products wrong, the same run reports failures."""
    (tmp_path / "test_one.py").write_text(
        "import numpy as np\nimport scipy.sparse as sp\n"
        "def test_one():\n"
        "    import tensorwise.sparse.methods as methods\n"
        "    A = sp.csr_array(np.eye(3))\n"
        "    assert type(A).__module__.startswith('tensorwise')\n"
        "    assert (A @ np.ones(3)).tolist() == [1, 1, 1]\n"
    )
    suite = Suite("scipy", ("test_one.py",), runs=("scipy", "classes"))
    compile_kernels()
    runs = {in_place: run(suite, in_place, home=tmp_path) for in_place in suite.runs}
    assert [*runs["scipy"]["outcomes"].values()] == ["failed"]  # the class is SciPy's
    assert [*runs["classes"]["outcomes"].values()] == ["passed"]
    assert runs["classes"]["products"] == 1


def test_no_test_failed_with_ours_alone() -> None:
    """What the whole runs, which take an hour, said last."""
    result = json.loads(RESULT.read_text())["suites"]
    assert result.keys() == SUITES.keys()
    for suite in result.values():
        assert {kind: suite[kind] for kind in FAULTS} == {kind: [] for kind in FAULTS}
    assert result["scipy.sparse"]["classes"]["passed"] > 10_000
    assert result["anndata"]["patch"]["passed"] > 1000
