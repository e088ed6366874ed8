"""Element types: their names, and what is known of them."""

import ml_dtypes
import numpy as np
import pytest

from tensorwise.tensor.elements import ELEMS, as_bits, is_float, is_half, limits, value_dtype


@pytest.mark.parametrize("name", ELEMS)
def test_limits_are_those_of_ml_dtypes(name: str) -> None:
    info, known = ml_dtypes.finfo(value_dtype(name)), limits(value_dtype(name))
    for field in ("eps", "smallest_normal", "smallest_subnormal", "max"):
        assert getattr(known, field) == float(getattr(info, field)), field


def test_kinds() -> None:
    names = [*ELEMS, "int64"]
    assert [is_half(np.dtype(name)) for name in names] == [True, True, False, False, False]
    assert [is_float(np.dtype(name)) for name in names] == [True, True, True, True, False]
    array = np.ones(3, value_dtype("bfloat16"))
    assert np.shares_memory(as_bits(array), array)
    assert as_bits(array).tolist() == [0x3F80] * 3
    assert as_bits(np.ones(3)).dtype == np.float64
