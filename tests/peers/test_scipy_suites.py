"""A few of SciPy's tests with our operator in place of the matrix; all: ``python tests/peers/scipy_suites.py``."""

import pytest

from tests.peers.scipy_suites import QUICK, failures, run


@pytest.mark.parametrize("suite", QUICK)
def test_our_operator_passes_where_scipys_does(suite: str) -> None:
    found = {in_place: run(QUICK[suite], in_place) for in_place in ("linear", "operator")}
    assert found["operator"]["replaced"] == found["linear"]["replaced"] > 20
    assert found["operator"]["outcomes"].keys() == found["linear"]["outcomes"].keys()
    assert failures(found["operator"]) <= failures(found["linear"])
