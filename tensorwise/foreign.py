"""Dense operands of PyTorch and of libraries of the array API standard. A result is an array of the operand's library."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import scipy.sparse as sp

from tensorwise.errors import InputError


def namespace_of(operand: Any) -> Any | None:
    """Return the library that a dense array is of; None for NumPy's arrays, sparse ones, and whatever is no array."""
    if isinstance(operand, np.ndarray | np.generic | list | tuple | int | float | complex) or sp.issparse(
        operand
    ):
        return None
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(operand, torch.Tensor):
        return torch
    dask = hasattr(operand, "dask")  # lazy: SciPy computes it
    if dask or not hasattr(operand, "__array_namespace__") or not hasattr(operand, "__dlpack__"):
        return None
    return operand.__array_namespace__()


def as_numpy(operand: Any, namespace: Any) -> np.ndarray:
    """Return the operand as a NumPy array over the same memory.

    Raises:
        InputError: its memory is not the CPU's, or it is part of a graph of gradients.
    """
    if getattr(operand, "requires_grad", False):
        raise InputError(
            "the operand requires gradients, which products of sparse arrays and operators do not record; "
            "use tensorwise.nn.spmm, or detach()"
        )
    if namespace.__name__.startswith(
        "jax"
    ):  # its arrays are read-only, which DLPack cannot say to older NumPys
        return np.asarray(operand)
    try:
        return np.from_dlpack(operand)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"the operand, {type(operand).__module__}.{type(operand).__name__}, cannot be read as an array of the CPU: "
            f"{error}; copy it to the CPU"
        ) from error


def as_foreign(result: Any, namespace: Any) -> Any:
    """Return a NumPy array as one of another library, over the same memory where it can; sparse ones as they are."""
    if sp.issparse(result):
        return result
    if isinstance(result, np.ndarray) and hasattr(namespace, "from_dlpack"):
        return namespace.from_dlpack(result)
    return namespace.asarray(result)


def for_all_libraries(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a method of one operand that takes dense ones of all libraries, and gives an array of the operand's."""

    @wraps(method)
    def multiply(self: Any, other: Any) -> Any:
        namespace = namespace_of(other)
        if namespace is None:
            return method(self, other)
        return as_foreign(method(self, as_numpy(other, namespace)), namespace)

    return multiply
