"""Element types of values: float16, bfloat16, float32 and float64.

Halves (float16, bfloat16) are what values are kept in; every sum is accumulated in float32. NumPy has no
bfloat16 of its own: ``ml_dtypes`` brings it, an extra that is imported when the type is first asked for by name.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.reading import shown

ELEMS: Final = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
"""Name of a dtype -> element type in the loop IR."""
EXPECTED: Final = "float32, float64, float16 or bfloat16"


def value_dtype(dtype: Any) -> np.dtype:
    """Return the dtype that ``dtype`` (a name, a type or a dtype) stands for, in native byte order.

    Raises:
        InputError: it is none of ``ELEMS``.
        MissingExtraError: it is bfloat16, and ml_dtypes is not installed.
    """
    if isinstance(dtype, str) and dtype == "bfloat16":
        return _bfloat16()
    try:
        given = np.dtype(dtype)
    except Exception as error:  # TypeError, and for texts and objects of others whatever NumPy's parsers meet
        raise InputError(f"dtype {shown(dtype)} is not a NumPy dtype; expected {EXPECTED}") from error
    if given.name not in ELEMS:
        raise InputError(f"dtype {str(given)[:80]} is not supported for values; expected {EXPECTED}")
    result: np.dtype = np.dtype(given.type)
    return result


def _bfloat16() -> np.dtype:
    try:
        import ml_dtypes
    except ImportError as error:
        raise MissingExtraError("ml_dtypes", "bfloat16", "dtype bfloat16") from error
    result: np.dtype = np.dtype(ml_dtypes.bfloat16)
    return result


def is_float(dtype: np.dtype) -> bool:
    """Whether ``dtype`` is one of ``ELEMS`` (NumPy does not count bfloat16 as a floating-point type)."""
    return str(dtype.name) in ELEMS


def is_half(dtype: np.dtype) -> bool:
    """Whether values of ``dtype`` are kept in 16 bits and computed with in float32."""
    return dtype.name in ("float16", "bfloat16")


def as_bits(array: np.ndarray) -> np.ndarray:
    """Return halves as the uint16 that they are in memory, other arrays as they are; nothing is copied.

    Files, buffers and SciPy know integers of 16 bits, but not bfloat16.
    """
    return array.view(np.uint16) if is_half(array.dtype) else array


@dataclass(frozen=True)
class FloatLimits:
    """Of a floating-point type: distance from 1 to the next number, least normal and subnormal, largest."""

    eps: float
    smallest_normal: float
    smallest_subnormal: float
    max: float


def limits(dtype: np.dtype) -> FloatLimits:
    """Return the limits of one of ``ELEMS``, which ``numpy.finfo`` knows three of."""
    if dtype.name == "bfloat16":
        return FloatLimits(2.0**-7, 2.0**-126, 2.0**-133, (2 - 2.0**-7) * 2.0**127)
    info = np.finfo(dtype)
    return FloatLimits(
        *(float(x) for x in (info.eps, info.smallest_normal, info.smallest_subnormal, info.max))
    )
