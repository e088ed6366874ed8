"""The tables of the language: named operations, combine operators, reduction monoids.

An operation (SpMV, SDDMM, ...) is a line of text here and nothing else: no folder, model or
loader carries an operator's name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tensorwise.registry import Registry, needs_instance

NAMED: Final[Registry[str]] = Registry(
    "operation",
    "operations",
    {
        "spmv": "C[i] += A[i,k] * B[k]",
        "spmm": "C[i,j] += A[i,k] * B[k,j]",
        "spmv_t": "C[k] += A[i,k] * B[i]",
        "spmm_t": "C[k,j] += A[i,k] * B[i,j]",
        "sddmm": "C[i,j] += A[i,j] * B[i,k] * D[k,j]",
        "ttv": "C[i,j] += A[i,j,k] * B[k]",
        "ttm": "C[i,j,r] += A[i,j,k] * B[k,r]",
    },
    needs_instance(str),
)
"""Operation name -> einsum text. The sparse operand is called A; SDDMM's output keeps A's pattern. The operations
with a ``_t`` use A transposed; whether that is stored, or A as it is, is a matter of format and schedule."""

MTTKRP_MODES: Final = "iklmn"
"""Names of A's modes in MTTKRP, in storage order; the output's mode is one of them, the rank is r."""


def mttkrp(order: int, mode: int = 0) -> str:
    """Return the einsum text of MTTKRP along ``mode`` of a tensor with ``order`` modes (3 to 5).

    >>> mttkrp(3)
    'C[i,r] += A[i,k,l] * B[k,r] * D[l,r]'
    >>> mttkrp(3, mode=1)
    'C[k,r] += A[i,k,l] * B[i,r] * D[l,r]'
    """
    if not 3 <= order <= len(MTTKRP_MODES):
        raise ValueError(f"mttkrp is defined for tensors of order 3 to 5, got order {order}")
    if not 0 <= mode < order:
        raise ValueError(f"mttkrp mode must lie in 0..{order - 1}, got {mode}")
    modes = MTTKRP_MODES[:order]
    factors = zip("BDEF", [m for position, m in enumerate(modes) if position != mode], strict=False)
    product = " * ".join(f"{name}[{m},r]" for name, m in factors)
    return f"C[{modes[mode]},r] += A[{','.join(modes)}] * {product}"


MTTKRP: Final = frozenset(mttkrp(order, mode) for order in (3, 4, 5) for mode in range(order))
"""The texts of all of them."""


@dataclass(frozen=True)
class Combine:
    """A scalar operator inside the right-hand side.

    ``magnitude`` evaluates the same operator on absolute values: the size of the rounding errors
    is measured against it. (Of a quotient, an exponential and a choice it depends on the values as well: see
    :mod:`tensorwise.program.reference`.)
    """

    arity: int
    evaluate: Callable[..., Any]
    magnitude: Callable[..., Any]


COMBINE: Final[dict[str, Combine]] = {
    "add": Combine(2, np.add, np.add),
    "sub": Combine(2, np.subtract, np.add),
    "mul": Combine(2, np.multiply, np.multiply),
    "div": Combine(2, np.divide, np.divide),
    "max": Combine(2, np.maximum, np.maximum),
    "min": Combine(2, np.minimum, np.maximum),
    "neg": Combine(1, np.negative, np.abs),
    "abs": Combine(1, np.abs, np.abs),
    "exp": Combine(1, np.exp, np.exp),
    "lt": Combine(2, np.less, np.maximum),
    "le": Combine(2, np.less_equal, np.maximum),
    "eq": Combine(2, np.equal, np.maximum),
    "where": Combine(3, np.where, np.where),
}
"""Combine operators by name. The comparisons are conditions of ``where``, which is ``a if x < y else b``."""


@dataclass(frozen=True)
class Component:
    """One part of a monoid's state: where it starts and whether it holds a value or a coordinate."""

    name: str
    identity: float
    holds: str = "value"


@dataclass(frozen=True)
class Monoid:
    """A reduction: an associative and commutative ``combine`` on a tuple state.

    ``combine`` names the rule by which two states merge (``add``, ``mul``, ``max``, ``min`` for one
    component; ``mean`` adds value and count; ``argmax`` and ``argmin`` keep the first extreme value
    and its coordinate). ``ufunc`` is what the dense reference reduces with.
    """

    name: str
    combine: str
    components: tuple[Component, ...]
    ufunc: np.ufunc

    @property
    def single(self) -> bool:
        """Whether the state is one value, so that partial results can live in the output itself."""
        return len(self.components) == 1


_INF = float("inf")

MONOIDS: Final[dict[str, Monoid]] = {
    "sum": Monoid("sum", "add", (Component("value", 0.0),), np.add),
    "prod": Monoid("prod", "mul", (Component("value", 1.0),), np.multiply),
    "max": Monoid("max", "max", (Component("value", -_INF),), np.maximum),
    "min": Monoid("min", "min", (Component("value", _INF),), np.minimum),
    "mean": Monoid("mean", "mean", (Component("value", 0.0), Component("count", 0.0)), np.add),
    "argmax": Monoid(
        "argmax", "argmax", (Component("value", -_INF), Component("argument", -1.0, "coordinate")), np.maximum
    ),
    "argmin": Monoid(
        "argmin", "argmin", (Component("value", _INF), Component("argument", -1.0, "coordinate")), np.minimum
    ),
}
"""Reductions by the name that stands before ``=`` (``+=`` is ``sum=``)."""
