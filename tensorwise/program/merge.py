"""Terms at coordinates that not all sparse operands store: what is left of an expression where some have no entry.

These are the points of the merge lattices of Kjolstad et al. (2017): a product vanishes with any factor, a sum, a maximum
or a minimum with all of its arguments. An operand without an entry is a structural zero. It annihilates whatever multiplies
it, NaN and infinities too, as nothing is computed there; an explicit zero is a number like any other.

>>> from tensorwise.program.einsum import Einsum
>>> union = Einsum.parse("C[i,j] = A[i,j] - B[i,j]").single
>>> print(term_without(union, frozenset("A"))), term_without(union, frozenset("AB"))
-(B[i,j])
(None, None)
>>> term_without(Einsum.parse("C[i,j] = A[i,j] * B[i,j]").single, frozenset("A"))
"""

from collections.abc import Sequence

import numpy as np

from tensorwise.program.einsum import Access, Apply, Assignment, Constant, Expression
from tensorwise.program.ops import COMBINE


def term_without(assignment: Assignment, absent: frozenset[str]) -> Expression | None:
    """Return the term of ``assignment`` where the operands ``absent`` have no entry; None where it vanishes."""
    if assignment.pattern is not None and assignment.pattern.tensor in absent:
        return None
    left = _without(assignment.expression, absent)
    return None if left == Constant(0.0) else left


def _without(expression: Expression, absent: frozenset[str]) -> Expression | None:
    match expression:
        case Access(tensor=name):
            return None if name in absent else expression
        case Apply(operator="where", arguments=(condition, chosen, other)):
            assert isinstance(condition, Apply)
            sides = [_number(_without(side, absent)) for side in condition.arguments]
            branches = [_without(chosen, absent), _without(other, absent)]
            decided = _folded(condition.operator, sides)
            if isinstance(decided, Constant):
                return branches[0] if decided.value else branches[1]
            if branches == [None, None]:
                return None
            return Apply("where", (decided, _number(branches[0]), _number(branches[1])))
        case Apply(operator=operator, arguments=arguments):
            return _combined(operator, [_without(argument, absent) for argument in arguments])
    return expression


def _combined(operator: str, arguments: Sequence[Expression | None]) -> Expression | None:
    """Apply an operator to what is left of its arguments; None is a structural zero."""
    first, last = arguments[0], arguments[-1]
    if operator == "mul" and (first is None or last is None):
        return None
    if operator == "div" and first is None and last is not None:
        return None
    if operator in ("add", "sub", "max", "min", "neg", "abs") and first is None and last is None:
        return None
    if operator in ("add", "sub") and last is None:
        return first
    if first is None and operator == "add":
        return last
    if first is None and operator == "sub":
        return _folded("neg", [_number(last)])
    folded = _folded(operator, [_number(argument) for argument in arguments])
    return None if folded == Constant(0.0) and None in arguments else folded


def _number(expression: Expression | None) -> Expression:
    return Constant(0.0) if expression is None else expression


def _folded(operator: str, arguments: Sequence[Expression]) -> Expression:
    """Return the operator's call, or its value where all arguments are numbers."""
    numbers = [argument.value for argument in arguments if isinstance(argument, Constant)]
    if len(numbers) < len(arguments):
        return Apply(operator, tuple(arguments))
    with np.errstate(all="ignore"):
        return Constant(float(COMBINE[operator].evaluate(*numbers)))
