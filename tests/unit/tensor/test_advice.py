"""Advice in messages works when it is followed."""

from typing import Any

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.program.workload import workload
from tensorwise.tensor.convert import entries_from

DENSE = np.array([[1.0, 0, 2, 0], [0, 0, 0, 3], [4, 0, 0, 0], [0, 5, 0, 6]], np.float32)


def _same(given: Any) -> None:
    entries = entries_from(given)
    found = np.zeros(entries.shape, np.float32)
    found[entries.coordinates] = entries.values
    assert np.array_equal(found, DENSE)


def test_every_layout_of_torch_is_read_or_its_advice_works() -> None:
    torch = pytest.importorskip("torch")
    dense = torch.from_numpy(DENSE)
    for layout in (
        dense, dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((2, 2)),
        dense.to_sparse_bsc((2, 2)), dense.to_sparse_bsr((1, 4)), dense.to_sparse_bsc((4, 2)),
    ):  # fmt: skip
        _same(layout)
    refused = [
        torch.sparse_coo_tensor([[0, 2]], torch.ones(2, 4), (4, 4)),
        torch.eye(4).expand(1, 4, 4).to_sparse_csr(),
    ]
    for one in refused:
        with pytest.raises(InputError, match=r"convert with \.to_dense\(\)\.to_sparse\(\)"):
            entries_from(one)
        entries_from(one.to_dense().to_sparse())
    if torch.backends.mkldnn.is_available():
        with pytest.raises(InputError, match=r"convert with \.to_dense\(\)"):
            entries_from(dense.to_mkldnn())
        _same(dense.to_mkldnn().to_dense())


def test_blocks_of_columns_with_duplicates_and_odd_shapes() -> None:
    torch = pytest.importorskip("torch")
    dense = torch.arange(1.0, 25).reshape(4, 6)
    found = entries_from(dense.to_sparse_bsc((2, 3)))
    assert np.array_equal(found.to_scipy().toarray(), dense.numpy())


def test_indices_that_are_no_integers_are_converted_as_advised() -> None:
    for indices in ([0.0, 1.0], np.array([0.0, 1.0]), np.array([False, True])):
        with pytest.raises(InputError, match=r"convert with numpy\.asarray\(\.\.\., numpy\.int64\)"):
            entries_from(((2, 2), [indices, indices], [1.0, 2.0]))
        whole = np.asarray(indices, np.int64)
        assert entries_from(((2, 2), [whole, whole], [1.0, 2.0])).nnz == 2


@pytest.mark.parametrize("given", ["int64", "int8", "bool", "float64"])
def test_an_operand_of_another_type_is_told_what_works(given: str) -> None:
    entries = entries_from(DENSE)
    work = workload("spmv", entries)
    operand = np.ones(4, given)
    with pytest.raises(InputError) as refused:
        work.check_operands([operand])
    message = str(refused.value)
    assert ".astype(numpy.float32)" in message
    work.check_operands([operand.astype(np.float32)])
    if "tune the matrix in" in message:
        workload("spmv", entries.astype(message.rsplit(" ", 1)[1])).check_operands([operand])
    else:
        assert given != "float64"


def test_an_operand_of_complex_numbers_is_not_told_to_lose_half_of_them() -> None:
    work = workload("spmv", entries_from(DENSE))
    operand = np.ones(4, np.complex64)
    with pytest.raises(InputError, match=r"give \.real and \.imag in two calls"):
        work.check_operands([operand])
    work.check_operands([operand.real])
    work.check_operands([operand.imag])


def test_masked_arrays_and_vectors() -> None:
    masked = np.ma.masked_equal(DENSE, 3)
    with pytest.raises(InputError, match=r"use \.filled\(\)"):
        entries_from(((4, 4), [[0], [0]], masked[0, :1]))
    entries_from(((4, 4), [[0], [0]], masked[0, :1].filled(0)))
    with pytest.raises(InputError, match="give a vector as a matrix with one row"):
        entries_from(DENSE[0])
    assert entries_from(DENSE[:1]).nnz == 2


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "bool", "float32", "float64"])
def test_all_layouts_of_torch_keep_what_was_given(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    dense = (torch.arange(24).reshape(4, 6) % 5).to(getattr(torch, dtype))
    layouts = [dense.to_sparse_coo(), dense.to_sparse_csr(), dense.to_sparse_csc()]
    layouts += [dense.to_sparse_bsr((2, 3)), dense.to_sparse_bsc((2, 3))]
    for one in layouts:
        found = entries_from(one)
        assert (found.given or found.dtype) == np.dtype(dtype)
        assert np.array_equal(found.to_scipy().toarray(), dense.numpy())
