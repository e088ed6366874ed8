"""A CPU ``tune`` loads what is counted as the core, and no more than the rows that are listed here."""

import subprocess
import sys

from tests.house import read_house

ROWS = {
    "tensorwise.device.libraries.mkl",
    "tensorwise.device.libraries.torch",
    "tensorwise.front",
    "tensorwise.front.api",
}
"""Where a tuning begins, and library kernels, which run where they are installed. Models are not asked here."""
TUNE = """
import sys
import numpy as np, scipy.sparse as sp
import tensorwise as tw
matrix = sp.random_array((60, 50), density=0.1, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
tw.tune(matrix, "spmm", n=8, trials=1, store=False, model=None)
print("modules:", *(name for name in sys.modules if name.partition(".")[0] == "tensorwise"))
"""


def test_a_tune_loads_nothing_that_the_core_does_not_count() -> None:
    """A module that a registry names by text is no part of the core: none may be needed by every tune."""
    done = subprocess.run([sys.executable, "-c", TUNE], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split("modules:")[1].split())
    core = set(read_house().closure())
    assert {"tensorwise.tuning.tune", "tensorwise.runtime.generated"} <= loaded & core
    assert loaded - core - ROWS == set()
