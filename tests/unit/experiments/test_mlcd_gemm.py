"""Versions of GEMM agree, and the sweep keeps within its ranges."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from gemm.versions import features, gemm, inputs, make, nearby

from tensorwise.device.versions import difference
from tensorwise.errors import CompilerError
from tensorwise.toolchain.compiler import find_compiler

VALUES = tomllib.loads((Path(__file__).parents[3] / "experiments" / "mlcd-gemm" / "values.toml").read_text())[
    "scaled"
]


@pytest.fixture(scope="module", autouse=True)
def _needs_a_compiler() -> None:
    try:
        find_compiler()
    except CompilerError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("m", "n", "k", "sparsity"),
    [
        (1, 1, 1, 0.0),
        (2, 3, 5, 0.6),
        (37, 300, 141, 0.9),
        (4, 257, 129, 0.5),
        (130, 2, 400, 0.995),
        (7, 8, 9, 1.0),
    ],
)
def test_all_versions_agree(m: int, n: int, k: int, sparsity: float) -> None:
    selection = gemm("gemm-test", inputs(VALUES))
    a, b = make(m, n, k, sparsity)
    expected = a.dense.astype(np.float64) @ b
    for version in selection.space.versions:
        assert difference(version.whole(a, b), expected.astype(np.float32)) is None, version.name


def test_features_are_what_was_asked_for() -> None:
    a, b = make(30, 20, 10, 0.9)
    assert features(a, b) == pytest.approx((30, 20, 10, 0.9))
    assert a.csr.nnz == 30


def test_the_sweep_keeps_within_its_ranges() -> None:
    rng = np.random.default_rng(0)
    draw, close = inputs(VALUES), nearby(VALUES)
    for _ in range(300):
        one = draw(rng)
        assert one["m"] * one["n"] * one["k"] <= VALUES["most_terms"]
        assert min(one["m"], one["n"], one["k"]) >= 2
        assert one["sparsity"] in VALUES["sparsities"]
        assert one["cell"] == f"{one['m']} {one['n']} {one['k']}"
        square = close(rng)
        assert square["m"] == square["n"] == square["k"] <= VALUES["most_nearby"]
        assert square["m"] % 100 == 50
