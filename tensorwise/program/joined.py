"""Several sparse operands in one term: kernels compute where all of them have an entry, which has to be all that counts.

A term counts nothing where it is 0, if terms are added up. So each sparse operand has to make the whole term 0 by its
own absence: ``A * P`` does, ``A + P`` does not, since the entries of A alone count as well. What the term becomes without
an operand is found by computing with 0 in its place, as far as that decides the result.
"""

import math
from collections.abc import Collection
from typing import Final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.program.einsum import Access, Apply, Assignment, Constant, Expression
from tensorwise.program.ops import COMBINE

ANY: Final = None
"""Some finite number, which depends on other operands."""
NOT_FINITE: Final = math.nan
"""Perhaps no finite number: a division by 0."""


def check_joined(assignment: Assignment, sparse: Collection[str]) -> None:
    """Raise InputError where ``assignment`` has terms that count although not all of its ``sparse`` operands have an entry.

    With one sparse operand its entries are the terms, whatever becomes of them; see decision 0103.
    """
    if len(sparse) < 2:
        return
    names = ", ".join(sparse)
    if assignment.monoid.name != "sum":
        raise InputError(
            f"'{assignment}' reduces by {assignment.monoid.name} over several sparse operands ({names}): coordinates that "
            "one of them does not store would be left out, not counted as 0. Multiply or combine the operands with SciPy "
            "before, and give the result as the only sparse operand; sums of their products are computed in one"
        )
    read = {access.tensor for access in assignment.accesses}
    for name in sparse:
        if name in read and value_without(assignment.expression, name) != 0:
            others = ", ".join(other for other in sparse if other != name)
            raise InputError(
                f"'{assignment}' has several sparse operands ({names}), and where {name} has no entry its terms are not "
                f"surely 0: entries of {others} alone would be left out. Compute the terms of each sparse operand with an "
                "operator of its own and add the results, or combine the operands with SciPy before (such as A + P), and "
                "give the result as the only sparse operand; products such as A[i,k] * P[i,k] are computed in one. "
                "tensorwise.interpret computes such terms as well, slowly"
            )


def value_without(expression: Expression, operand: str) -> float | None:
    """Return the value of ``expression`` where ``operand`` is 0: a number, ANY, or NOT_FINITE.

    Other operands are taken to be finite, and what divides is taken not to be 0 unless it reads ``operand``.

    >>> from tensorwise.program.einsum import Einsum
    >>> term = Einsum.parse("C[i] += (exp(A[i,k] * P[i,k]) - 1) * B[k]").single.expression
    >>> value_without(term, "A"), value_without(term, "B")
    (0.0, 0.0)
    >>> value_without(Einsum.parse("C[i] += A[i,k] + P[i,k]").single.expression, "A") is ANY
    True
    """
    match expression:
        case Constant(value=value):
            return value
        case Access(tensor=name):
            return 0.0 if name == operand else ANY
        case Apply(operator="where", arguments=(condition, chosen, other)):
            assert isinstance(condition, Apply)
            sides = [value_without(side, operand) for side in condition.arguments]
            if condition.operator != "eq" and all(side is not ANY and math.isfinite(side) for side in sides):
                holds = COMBINE[condition.operator].evaluate(*sides)
                return value_without(chosen if holds else other, operand)
            return _either(value_without(chosen, operand), value_without(other, operand))
        case Apply(operator=operator, arguments=arguments):
            values = [value_without(argument, operand) for argument in arguments]
            if operator == "div" and values[1] is ANY and _reads(arguments[1], operand):
                return NOT_FINITE
            return _applied(operator, values)
    return ANY


def _reads(expression: Expression, operand: str) -> bool:
    match expression:
        case Access(tensor=name):
            return name == operand
        case Apply(arguments=arguments):
            return any(_reads(argument, operand) for argument in arguments)
    return False


def _either(one: float | None, other: float | None) -> float | None:
    if _not_finite(one) or _not_finite(other):
        return NOT_FINITE
    return one if one == other else ANY


def _not_finite(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)


def _applied(operator: str, values: list[float | None]) -> float | None:
    if any(_not_finite(value) for value in values) or (operator == "div" and values[1] == 0):
        return NOT_FINITE
    if operator in ("mul", "div") and 0.0 in values:
        return 0.0
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return ANY
    with np.errstate(all="ignore"):
        return float(COMBINE[operator].evaluate(*known))
