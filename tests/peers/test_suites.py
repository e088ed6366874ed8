"""A few of SciPy's tests with our operator in place of the matrix; all: ``python tests/peers/scipy_suites.py``."""

import json

import pytest

from tests.peers.scipy_suites import HERE, QUICK, RESULT, failures, run


@pytest.mark.parametrize("suite", QUICK)
def test_our_operator_passes_where_scipys_does(suite: str) -> None:
    found = {in_place: run(QUICK[suite], in_place) for in_place in ("linear", "operator")}
    assert found["operator"]["replaced"] == found["linear"]["replaced"] > 20
    assert found["operator"]["outcomes"].keys() == found["linear"]["outcomes"].keys()
    assert failures(found["operator"]) <= failures(found["linear"])


def test_no_test_failed_with_our_objects_alone() -> None:
    """What the whole runs, which take long, said last."""
    scipy = json.loads(RESULT.read_text())
    assert scipy["fail_with_our_operator_and_not_with_linear_operator"] == []
    assert scipy["counts"]["operator"]["passed"] > 3000
    pyg = json.loads((HERE / "pyg_suite.json").read_text())
    assert pyg["fail_only_fused"] == []
    assert pyg["fused"]["passed"] > 2000
