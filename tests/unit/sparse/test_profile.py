"""A profile of the products of a block, and of a program under the patch."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise.sparse as ts
from tensorwise.sparse import profile as profiles
from tensorwise.sparse.product import Product


def multiplied(rows: int, calls: int, columns: int | None = None) -> ts.csr_array:
    made = ts.csr_array(sp.random_array((rows, 50), density=0.2, format="csr", rng=np.random.default_rng(0)))
    for _ in range(calls):
        made @ np.ones((50,) if columns is None else (50, columns))
    return made


def test_calls_and_times_of_a_block_are_counted_and_of_nothing_else() -> None:
    before = multiplied(60, 3)
    with ts.profile_products() as profile:
        kept = multiplied(40, 5, columns=8)
        before @ np.ones(50)
        assert np.ones(60) @ before is not None
    kept @ np.ones((50, 8))
    rows = {(row.shape, row.columns): row for row in profile.rows}
    assert {key: row.calls for key, row in rows.items()} == {
        ((40, 50), 8): 5,
        ((60, 50), None): 1,
        ((50, 60), None): 1,  # the transpose
    }
    row = rows[(40, 50), 8]
    assert (row.nnz, row.dtype) == (kept.nnz, "float64")
    assert 0 < row.seconds < 1
    assert row.kernel.startswith("in place")
    assert profile.rows == tuple(sorted(profile.rows, key=lambda row: -row.seconds))
    assert "40 x 50, 400 entries, float64" in str(profile)
    assert "8 columns" in str(profile)


def test_arrays_are_not_kept_and_are_counted_when_they_are_gone() -> None:
    with ts.profile_products() as profile:
        gone = [weakref.ref(multiplied(30 + n, 2).data) for n in range(3)]
        gc.collect()
        assert [one() for one in gone] == [None] * 3
        assert len(profile.rows) == 3
    assert [row.calls for row in profile.rows] == [2, 2, 2]
    assert not hasattr(Product, "__del__")


def test_of_many_that_are_gone_the_ones_with_most_time_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "MOST_ROWS", 2)
    monkeypatch.setattr(profiles, "SHOWN_ROWS", 1)
    with ts.profile_products() as profile:
        for n in range(4):
            multiplied(30 + n, 1)
        gc.collect()
    assert len(profile.rows) == 2
    assert "1 other products" in str(profile)


def test_nothing_is_said_of_nothing() -> None:
    with ts.profile_products() as profile:
        pass
    assert str(profile) == "no products by kernels of Tensorwise"


PROGRAM = """
import numpy as np, scipy.sparse as sp
A = sp.random_array((400, 300), density=0.5, format="csr")
for _ in range(7):
    A @ np.ones(300)
print("done")
raise SystemExit(3)
"""


def test_a_patched_program_reports_at_its_end(tmp_path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "tensorwise.patch", "--report", str(script)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (3, "done\n")
    assert "400 x 300, 60,000 entries, float64" in done.stderr
    assert "         7  " in done.stderr
