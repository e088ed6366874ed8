"""A few of SciPy's tests with our operator in place of the matrix; all: ``python tests/peers/scipy_suites.py``."""

import json

import pytest

from tests.peers.scipy_suites import QUICK, RESULT, failures, run


@pytest.mark.parametrize("suite", QUICK)
def test_our_operator_passes_where_scipys_does(suite: str) -> None:
    found = {in_place: run(QUICK[suite], in_place) for in_place in ("linear", "operator")}
    assert found["operator"]["replaced"] == found["linear"]["replaced"] > 20
    assert found["operator"]["outcomes"].keys() == found["linear"]["outcomes"].keys()
    assert failures(found["operator"]) <= failures(found["linear"])


def test_the_result_of_all_is_kept() -> None:
    result = json.loads(RESULT.read_text())
    assert result["fail_with_our_operator_and_not_with_linear_operator"] == []
    assert result["counts"]["operator"]["replaced"] == result["counts"]["linear"]["replaced"]
