"""Gradients: what an assignment's output says about an operand is again an assignment, over the same entries.

With D the gradient of the output C, each place where an operand X is read gives (reverse mode, one step)::

    C[i,j] += B[k,j] * E[A,j] for A[i,k]      dB: G[k,j] += D[i,j] * E[A,j] for A[i,k]       (over columns: reversed)
                                              dE: G[A,j] += D[i,j] * B[k,j] for A[i,k]       (one element an entry)
    C[i,j] max= B[k,j] for A[i,k]             dB: G[k,j] += D[i,j] if P[i,j] == A else 0 for A[i,k]

so that g-SpMM and g-SDDMM have g-SpMM and g-SDDMM as gradients, and these have gradients in turn. A maximum or minimum
belongs to one entry, whose number the assignment of :func:`argument` gives; a mean shares out among the entries of a
row, by the reciprocals of their numbers.
"""

from typing import Final

from tensorwise.errors import InputError
from tensorwise.program.einsum import Access, Assignment, Call, Constant, Expression, Index

ARGUMENTS: Final = {"max": "argmax", "min": "argmin"}
"""Reductions that choose a term -> those that give its number."""
_ZERO, _ONE = Constant(0.0), Constant(1.0)


def argument(assignment: Assignment) -> Assignment:
    """Return the assignment of the numbers of the entries that a maximum or minimum over ``for A[..]`` comes from."""
    name = f"a{assignment.output.tensor}"
    output = Access(name, assignment.output.indices)
    return Assignment(output, ARGUMENTS[str(assignment.reduction)], assignment.expression, assignment.pattern)


def gradients(assignment: Assignment, operand: str) -> list[Assignment]:
    """Return the gradients of ``operand``, one for each way in which it is accessed; they add up.

    For an output C they read, besides the operands, ``dC``: its gradient; ``aC``: the numbers that the assignment of
    :func:`argument` gives, for a maximum or minimum; ``nC``: the reciprocal number of entries of each row, for a mean.

    Raises:
        InputError: the reduction has none (prod, argmax), or chooses terms other than the entries of a pattern; or
            an operand counts several times, and nothing that is multiplied with it says how often.
    """
    given = Access(f"d{assignment.output.tensor}", assignment.output.indices)
    reduction = assignment.reduction or "sum"
    upstream: Expression = given
    numbers: str | None = None
    if reduction == "mean":
        pattern = assignment.pattern
        rows = () if pattern is None else tuple(i for i in pattern.indices if i in assignment.kept)
        if pattern is None or not set(assignment.reduced) <= set(pattern.indices) or len(rows) != 1:
            raise InputError(
                f"'{assignment}' has no gradient here: a mean is taken over rows of entries, 'for A[i,k]'"
            )
        upstream = Call("mul", (given, Access(f"n{assignment.output.tensor}", rows)))
    elif reduction in ARGUMENTS:
        if assignment.pattern is None or not set(assignment.reduced) <= set(assignment.pattern.indices):
            raise InputError(
                f"'{assignment}' has no gradient here: a {reduction} chooses among entries, 'for A[i,k]'"
            )
        numbers = f"a{assignment.output.tensor}"
    elif reduction != "sum":
        raise InputError(f"'{assignment}': {reduction} has no gradient; sum, mean, max and min do")
    made = []
    for access in dict.fromkeys(access for access in assignment.accesses if access.tensor == operand):
        part = _derivative(assignment.expression, access)
        part = _ZERO if part is None else _times(upstream, part)
        if numbers is not None and assignment.pattern is not None:
            chosen = Access(numbers, assignment.output.indices)
            part = Call("where", (Call("eq", (chosen, Index(assignment.pattern.tensor))), part, _ZERO))
        derived = Assignment(Access(f"d{operand}", access.indices), "sum", part, assignment.pattern)
        lost = [index for index in assignment.indices if index not in derived.indices]
        if lost and part != _ZERO:
            raise InputError(
                f"'{assignment}' has no gradient of {access} here: it counts once for each {', '.join(lost)}, which nothing "
                f"that it is multiplied with says; multiply it with ones, O[{','.join(lost)}]"
            )
        made.append(derived)
    return made


def _derivative(expression: Expression, access: Access) -> Expression | None:
    """Return the derivative of ``expression`` by the element that ``access`` reads; None is 0."""
    match expression:
        case Access():
            return _ONE if expression == access else None
        case Call(operator="where", arguments=(condition, a, b)):
            return _either(condition, _derivative(a, access), _derivative(b, access))
        case Call(operator=operator, arguments=(a,)):
            inner = _derivative(a, access)
            if inner is None or operator == "neg":
                return None if inner is None else Call("neg", (inner,))
            if operator == "abs":
                return _either(Call("lt", (a, _ZERO)), Call("neg", (inner,)), inner)
            return _times(expression, inner)  # of the exponential
        case Call(operator=operator, arguments=(a, b)):
            left, right = _derivative(a, access), _derivative(b, access)
            match operator:
                case "add":
                    return _sum(left, right)
                case "sub":
                    return _sum(left, None if right is None else Call("neg", (right,)))
                case "mul":
                    return _sum(left and _times(left, b), right and _times(a, right))
                case "div":
                    falls = right and Call("neg", (Call("div", (_times(a, right), Call("mul", (b, b)))),))
                    return _sum(left and Call("div", (left, b)), falls)
                case "max" | "min":  # where they are equal, the first is meant
                    return _either(Call("le", (b, a) if operator == "max" else (a, b)), left, right)
    return None


def _either(condition: Expression, holds: Expression | None, other: Expression | None) -> Expression | None:
    return None if holds is other is None else Call("where", (condition, holds or _ZERO, other or _ZERO))


def _sum(a: Expression | None, b: Expression | None) -> Expression | None:
    return Call("add", (a, b)) if a is not None and b is not None else a or b


def _times(a: Expression, b: Expression) -> Expression:
    if a == _ONE:
        return b
    match b:
        case Constant(value=1.0):
            return a
        case Call(operator="neg", arguments=(inner,)):
            return Call("neg", (_times(a, inner),))
    return Call("mul", (a, b))
