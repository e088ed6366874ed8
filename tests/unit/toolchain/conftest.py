"""Compilers and caches for the tests of this folder; nothing touches the user's own cache."""

from pathlib import Path

import pytest

from tensorwise.errors import CompilerError
from tensorwise.toolchain.cache import KernelCache
from tensorwise.toolchain.compiler import Compiler, find_compiler


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    try:
        return find_compiler()
    except CompilerError as error:
        pytest.skip(str(error))


@pytest.fixture
def cache(tmp_path: Path, compiler: Compiler) -> KernelCache:
    return KernelCache(tmp_path / "kernels", compiler)


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory, compiler: Compiler) -> KernelCache:
    """One cache for tests that only need their kernels compiled."""
    return KernelCache(tmp_path_factory.mktemp("shared") / "kernels", compiler)


@pytest.fixture
def own_cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tensorwise's cache directory, fresh for this test."""
    monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(tmp_path / "own"))
    return tmp_path / "own"
