"""A tensor prints as its tree, shortened when it is large, and checks its parts."""

import numpy as np
import pytest

from tensorwise.errors import FormatError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.fibertree import MOST_LINES, Tensor
from tensorwise.tensor.format import Format, csr, dcsr
from tensorwise.tensor.pack import pack


def test_large_trees_are_cut() -> None:
    eye = entries_from(np.eye(50))
    lines = str(pack(eye, csr())).splitlines()
    assert lines[0] == "(i,k) -> U(i) C(k)  50 x 50, 50 values of float64, 804 bytes"
    assert lines[1:3] == ["|-- i=0", "|   `-- k: 0=1.0"]
    assert lines[-1] == "`-- ..."
    tall = pack(eye, Format.parse("C(i1) C(k1) U(i0:8) U(k0:8)"))
    lines = str(tall).splitlines()
    assert len(lines) == MOST_LINES + 2
    assert lines[-1] == "..."


def test_wide_fibers_are_cut() -> None:
    assert str(pack(entries_from(np.ones((1, 20))), csr())).endswith("6=1.0 7=1.0 ...")


def test_huge_extents_print() -> None:
    entries = entries_from(((2**27, 2**40), ([3], [2**40 - 1]), [1.0]))
    assert str(pack(entries, dcsr())).splitlines()[1:] == ["`-- i=3", "    `-- k: 1099511627775=1.0"]


def test_repr_is_one_line() -> None:
    tensor = pack(entries_from(np.eye(2, dtype=np.float32)), csr())
    assert repr(tensor) == "Tensor((i,k) -> U(i) C(k)  2 x 2, 2 values of float32, 28 bytes)"


def test_parts_must_agree() -> None:
    tensor = pack(entries_from(np.eye(2)), csr())
    with pytest.raises(FormatError, match="has 2 levels; got"):
        Tensor(csr(), (2, 2), tensor.arrays, tensor.counts, tensor.values[:1])
    with pytest.raises(FormatError, match="keeps the arrays"):
        Tensor(csr(), (2, 2), ({}, {}), tensor.counts, tensor.values)
