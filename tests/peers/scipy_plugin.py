"""A plugin of pytest: SciPy's solvers take something else in place of the matrix that a test gives them.

``TENSORWISE_IN_PLACE`` says what: ``matrix`` (nothing else), ``linear`` (``aslinearoperator(matrix)``) or ``operator``
(ours, untuned, on one thread). Every matrix, sparse or dense, is replaced; operators and functions stay. A complex
matrix becomes the sum of two operators, of its real and of its imaginary part.
"""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import scipy.sparse.linalg as sla
from scipy.sparse import issparse

from tensorwise.program.workload import workload
from tensorwise.tensor.convert import entries_from
from tensorwise.tuning.operator import bind, default_kernel

SOLVERS: Final = {
    **dict.fromkeys(
        ("bicg", "bicgstab", "cg", "cgs", "gcrotmk", "gmres", "lgmres", "minres", "qmr", "tfqmr"), 0
    ),
    **dict.fromkeys(("lsmr", "lsqr", "eigs", "eigsh", "svds", "lobpcg", "expm_multiply", "onenormest"), 0),
    "funm_multiply_krylov": 1,
}
"""Function of ``scipy.sparse.linalg`` -> place of the matrix among its arguments."""


def ours(A: Any) -> sla.LinearOperator:
    """Return our operator for a matrix."""
    if np.iscomplexobj(A):
        return ours(A.real) + 1j * ours(A.imag)
    work = workload("spmv", entries_from(A))
    made = bind(default_kernel(work), work, 1)
    assert isinstance(made, sla.LinearOperator)
    return made


IN_PLACE: Final[dict[str, Callable[[Any], Any]]] = {
    "matrix": lambda A: A,
    "linear": sla.aslinearoperator,
    "operator": ours,
}
replaced = 0
"""Matrices that were replaced in this process."""


def is_matrix(A: Any) -> bool:
    """Whether A is a matrix of numbers, and neither an operator nor a function."""
    return (isinstance(A, np.ndarray) or issparse(A)) and A.ndim == 2 and A.dtype.kind in "biufc"


def with_replaced(
    function: Callable[..., Any], place: int, replace: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Return ``function`` with its matrix replaced."""

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        global replaced
        if "A" in named and is_matrix(named["A"]):
            named["A"], replaced = replace(named["A"]), replaced + 1
        elif len(arguments) > place and is_matrix(arguments[place]):
            fresh = replace(arguments[place])
            arguments, replaced = (*arguments[:place], fresh, *arguments[place + 1 :]), replaced + 1
        return function(*arguments, **named)

    return called


def pytest_configure(config: pytest.Config) -> None:
    """Replace the solvers wherever SciPy's modules name them, before tests import them."""
    replace = IN_PLACE[os.environ.get("TENSORWISE_IN_PLACE", "operator")]
    capabilities = getattr(sys.modules.get("scipy._lib._array_api"), "xp_capabilities_table", {})
    for name, place in SOLVERS.items():
        function = getattr(sla, name, None)
        if function is None:  # a SciPy that does not have it yet
            continue
        called = with_replaced(function, place, replace)
        if function in capabilities:  # the tests ask for what SciPy has noted about a function
            capabilities[called] = capabilities[function]
        for home, module in list(sys.modules.items()):
            if home.startswith("scipy.sparse.linalg") and getattr(module, name, None) is function:
                setattr(module, name, called)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell how many matrices were replaced: none would mean that nothing was tried."""
    terminalreporter.write_line(f"{replaced} matrices replaced")
