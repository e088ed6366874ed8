"""Dtypes of the operands of sparse products: what autocast converts, and what is refused."""

from typing import Any, Final

import torch
from torch import Tensor

from tensorwise.errors import InputError

_FULL: Final = torch.float64
"""Autocast converts every floating-point dtype except this one, as for ``torch.nn.functional.linear``."""


def converted_operands(values: Tensor, *dense: Any) -> tuple[Tensor, ...]:
    """Return the operands of a product in one dtype: autocast's where it is active.

    Args:
        values: (nnz,) of the sparse operand.
        dense: the dense operands.

    Raises:
        InputError: one is not a dense tensor, dtypes differ, or they are on different devices.
    """
    for operand in dense:
        if not isinstance(operand, Tensor) or operand.layout is not torch.strided:
            kind = operand.layout if isinstance(operand, Tensor) else type(operand).__name__
            raise InputError(f"expected a dense torch tensor, got {kind}")
        if operand.device.type != values.device.type:
            raise InputError(
                f"the values are on {values.device} and an operand on {operand.device}; move one with .to(device)"
            )
    operands = (values, *dense)
    device = values.device.type
    if torch.is_autocast_enabled(device):
        fast = torch.get_autocast_dtype(device)
        operands = tuple(
            one.to(fast) if one.dtype.is_floating_point and one.dtype != _FULL else one for one in operands
        )
    for operand in operands[1:]:
        if operand.dtype != operands[0].dtype:
            raise InputError(
                f"the values are {operands[0].dtype} and an operand is {operand.dtype}; "
                f"convert it with .to({operands[0].dtype})"
            )
    return operands
