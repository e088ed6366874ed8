"""A plugin of pytest: tests of other projects get our sparse classes, or SciPy's under `patch_scipy`.

``TENSORWISE_SPARSE`` says which: ``scipy`` (nothing is changed), ``classes`` (the names of SciPy's classes, in
``scipy.sparse`` and in its functions that make matrices, are those of ours before tests are imported) or ``patch``. Our
kernels compute from the first call of a product on, and others are tried after a few: in tests, matrices are too small and
live too short for anything else.
"""

import importlib
import os
from typing import Any, Final

import pytest
import scipy.sparse

NAMES: Final = (
    "bsr_array", "bsr_matrix", "coo_array", "coo_matrix", "csc_array", "csc_matrix", "csr_array", "csr_matrix",
)  # fmt: skip
MODULES: Final = tuple(
    f"scipy.sparse.{name}"
    for name in (
        "_construct",
        "_extract",
        "_matrix_io",
        "csgraph._flow",
        "csgraph._tools",
        "csgraph._min_spanning_tree",
    )
)
"""Modules of SciPy whose functions make matrices for tests, which compare their classes with those that they import."""
KNOBS: Final = {
    "products": {"MAKING_NS": -1},
    "product": {"THREADS_NS": 0, "FIRST_NS": 2000, "FIRST_CALLS": 0},
    "trials": {"COUNTED_NS": 0},
    "ways": {"SETTLE_NS": 2000},
}
"""Constants of modules of `tensorwise.sparse` -> what they are in tests: nothing waits until it pays."""
made = 0
"""Products that our kernels computed in this process, by kind of operation and matrix."""


def pytest_configure(config: pytest.Config) -> None:
    """Put ours in place, after SciPy's own modules have been imported and before tests are."""
    ours = os.environ.get("TENSORWISE_SPARSE", "classes")
    if ours == "scipy":
        return
    for name in ("csgraph", "linalg"):
        importlib.import_module(f"scipy.sparse.{name}")
    import tensorwise.sparse
    from tensorwise.sparse import products
    from tensorwise.sparse.kernels import FAMILIES
    from tensorwise.sparse.library import library

    for family in FAMILIES.values():
        assert library(wait=True, family=family) is not None, "python -m tensorwise.sparse.prepare says why"

    for place, constants in KNOBS.items():
        for name, value in constants.items():
            assert hasattr(getattr(tensorwise.sparse, place), name), name
            setattr(getattr(tensorwise.sparse, place), name, value)
    by_table = products.ProductTable.product

    def product(self: Any, *given: Any) -> Any:
        global made
        before = len(self.products)
        found = by_table(self, *given)
        made += len(self.products) != before
        return found

    products.ProductTable.product = product  # type: ignore[method-assign]
    if ours == "patch":
        tensorwise.sparse.patch_scipy()
        return
    for module in (scipy.sparse, *map(importlib.import_module, MODULES)):
        for name in NAMES:
            if hasattr(module, name):
                setattr(module, name, getattr(tensorwise.sparse, name))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell how many products our kernels computed: none would mean that nothing was tried."""
    terminalreporter.write_line(f"{made} products of ours")
