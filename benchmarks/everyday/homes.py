"""Environments of measuring processes: thread limits, a copy of a warm kernel cache, and an empty store."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

from benchmarks.corpus import ROOT

LIMITS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "TENSORWISE_NUM_THREADS")
BLAS_LIMITS: Final = ("OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")


def variables(threads: int, blas_threads: int | None = None) -> dict[str, str]:
    """Return the environment of a measuring process: that of this one without settings of Tensorwise, and with limits.

    Python keeps the bytecode of our modules, as it has that of all packages which are installed.

    Args:
        threads: of all libraries.
        blas_threads: of NumPy's and SciPy's BLAS; None: as many.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TENSORWISE_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    paths = [str(ROOT), str(ROOT / "models"), *filter(None, [os.environ.get("PYTHONPATH")])]
    limits = dict.fromkeys(LIMITS, str(threads))
    blas = dict.fromkeys(BLAS_LIMITS, str(blas_threads or threads))
    return {**kept, **limits, **blas, "PYTHONPATH": os.pathsep.join(paths)}


@final
class Homes:
    """Homes of processes: each has a copy of one warm kernel cache, and a store of its own.

    The copy consists of hard links: what a process compiles for one matrix is unknown to the next, which compiles it again.

    Args:
        folder: where homes are made, on one file system.
        warm: a kernel cache to copy; None: one is made, by `prepare`.
    """

    def __init__(self, folder: Path, warm: Path | None = None) -> None:
        self._folder, self.warm = folder, warm or folder / "warm"
        self.warm.mkdir(parents=True, exist_ok=True)

    def prepare(self, environment: Mapping[str, str], *, portfolio: bool = True) -> None:
        """Compile the library of in-place kernels, and the portfolio that a used machine has.

        Args:
            environment: of the process.
            portfolio: whether ``tensorwise cache warm`` runs too; it takes minutes.

        Raises:
            subprocess.CalledProcessError: one of them failed.
        """
        commands = [["-m", "tensorwise.sparse.prepare"], ["-m", "tensorwise", "cache", "warm"]]
        for command in commands[: 1 + portfolio]:
            subprocess.run(
                [sys.executable, *command],
                env={**environment, "TENSORWISE_CACHE_DIR": str(self.warm)},
                stdout=subprocess.DEVNULL,
                check=True,
            )

    @contextmanager
    def home(self) -> Iterator[dict[str, str]]:
        """Make a home for one process, and remove it; yields the environment variables that name it."""
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as place:
            cache = Path(place) / "cache"
            shutil.copytree(self.warm, cache, copy_function=_link)
            cache.chmod(0o700)
            yield {"TENSORWISE_CACHE_DIR": str(cache), "TENSORWISE_STORE": str(Path(place) / "store.sqlite")}


def _link(source: str, target: str) -> None:
    """Make a hard link, or a copy on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
