"""The library of in-place kernels, made before tests that multiply."""

import pytest

from tensorwise.sparse.kernels import FAMILIES
from tensorwise.sparse.library import library
from tensorwise.toolchain.compiler import find_compiler


@pytest.fixture(scope="session", autouse=True)
def _library():
    find_compiler()  # where there is none the tests fail, and say so
    for family in FAMILIES.values():
        assert library(True, family) is not None
