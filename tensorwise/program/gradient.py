"""Derivatives of an assignment, which are assignments over the same entries: gradients and tangents.

With D the gradient of the output C, each place where an operand X is read gives (reverse mode, one step)::

    C[i,j] += B[k,j] * E[A,j] for A[i,k]      dB: G[k,j] += D[i,j] * E[A,j] for A[i,k]       (over columns: reversed)
                                              dE: G[A,j] += D[i,j] * B[k,j] for A[i,k]       (one element an entry)
    C[i,j] max= B[k,j] for A[i,k]             dB: G[k,j] += D[i,j] if P[i,j] == A else 0 for A[i,k]

so that g-SpMM and g-SDDMM have g-SpMM and g-SDDMM as gradients, and these have gradients in turn. A maximum or minimum
belongs to one entry, whose number the assignment of :func:`argument` gives; a mean shares out among the entries of a
row, by the reciprocals of their numbers. With T the tangent of an operand, forward mode gives::

    C[i,j] += B[k,j] * E[A,j] for A[i,k]      tC: C[i,j] += tB[k,j] * E[A,j] + tE[A,j] * B[k,j] for A[i,k]

A derivative may read none of the tensors that have an index: the gradient of ``E`` in ``B[k,j] + E[A]`` adds up over j, and
the gradient of that is the same for each j. Then it is multiplied by ones that have the index.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from tensorwise.errors import InputError
from tensorwise.program.einsum import Access, Apply, Assignment, Constant, Expression, Index

ARGUMENTS: Final = {"max": "argmax", "min": "argmin"}
"""Reductions that choose a term -> those that give its number."""
_ZERO, _ONE = Constant(0.0), Constant(1.0)


def argument(assignment: Assignment) -> Assignment:
    """Return the assignment of the numbers of the entries that a maximum or minimum over ``for A[..]`` comes from."""
    name = f"a{assignment.output.tensor}"
    output = Access(name, assignment.output.indices)
    return Assignment(output, ARGUMENTS[str(assignment.reduction)], assignment.expression, assignment.pattern)


@dataclass(frozen=True)
class Names:
    """What the derivatives of an assignment call their additional operands; no operand of the assignment has such a name.

    Attributes:
        given: the gradient of the output.
        numbers: the numbers that the assignment of :func:`argument` gives, for a maximum or minimum.
        shares: the reciprocal number of entries of each row, for the gradient of a mean.
        ones: 1 for each coordinate of the indices that nothing else has.
    """

    given: str
    numbers: str
    shares: str
    ones: str


def names_of(assignment: Assignment) -> Names:
    """Return the names of the additional operands: dC, aC, nC and oC for an output C, unless an operand is called so."""
    output = assignment.output.tensor
    return Names(*(_unused(assignment, letter + output) for letter in "dano"))


def tangent_name(assignment: Assignment, operand: str) -> str:
    """Return what :func:`tangent` calls the tangent of ``operand``."""
    return _unused(assignment, f"t{operand}")


def gradients(assignment: Assignment, operand: str) -> list[Assignment]:
    """Return the gradients of ``operand``, one for each way in which it is accessed; they add up.

    Besides the operands they read what :func:`names_of` names.

    Raises:
        InputError: the reduction has none (prod, argmax), or chooses terms other than the entries of a pattern; or
            without a pattern, an index is left that nothing has.
    """
    names = names_of(assignment)
    upstream: Expression = Access(names.given, assignment.output.indices)
    reduction = _differentiable(assignment)
    if reduction == "mean":
        pattern = assignment.pattern
        rows = () if pattern is None else tuple(i for i in pattern.indices if i in assignment.free_indices)
        if pattern is None or not set(assignment.reduced) <= set(pattern.indices) or len(rows) != 1:
            raise InputError(
                f"'{assignment}' has no gradient here: a mean is taken over rows of entries, 'for A[i,k]'"
            )
        upstream = Apply("mul", (upstream, Access(names.shares, rows)))
    made = []
    for access in dict.fromkeys(access for access in assignment.accesses if access.tensor == operand):
        part = _derivative(assignment.expression, access)
        part = _ZERO if part is None else _times(upstream, part)
        output = Access(_unused(assignment, f"d{operand}"), access.indices)
        made.append(_derived(assignment, output, "sum", part))
    return made


def tangent(assignment: Assignment, operands: Collection[str]) -> Assignment | None:
    """Return the tangent of the output where ``operands`` have tangents (see `tangent_name`); None: it is 0.

    Besides the operands it reads ``numbers`` and ``ones`` of :func:`names_of`.

    Raises:
        InputError: as :func:`gradients`; the mean of anything has a tangent.
    """
    reduction = _differentiable(assignment)
    total: Expression | None = None
    for access in dict.fromkeys(access for access in assignment.accesses if access.tensor in operands):
        part = _derivative(assignment.expression, access)
        moved = Access(tangent_name(assignment, access.tensor), access.indices)
        total = _sum(total, part and _times(moved, part))
    if total is None:
        return None
    return _derived(assignment, assignment.output, "sum" if reduction in ARGUMENTS else reduction, total)


def batched(assignment: Assignment, operands: Collection[str]) -> Assignment:
    """Return the assignment for ``operands`` with one more index, their second, which the output then has as well."""
    used = {index for access in (assignment.output, *assignment.accesses) for index in access.indices}
    used |= set(
        () if assignment.pattern is None else (assignment.pattern.tensor, *assignment.pattern.indices)
    )
    letters = "bcdefghjlmnopqrstuvwxyz"
    fresh = next(name for name in (*letters, *(a + b for a in letters for b in letters)) if name not in used)

    def widened(access: Access) -> Access:
        return Access(access.tensor, (*access.indices[:1], fresh, *access.indices[1:]))

    def rewritten(expression: Expression) -> Expression:
        match expression:
            case Access(tensor=name):
                return widened(expression) if name in operands else expression
            case Apply(operator=operator, arguments=arguments):
                return Apply(operator, tuple(map(rewritten, arguments)))
        return expression

    output, expression = widened(assignment.output), rewritten(assignment.expression)
    return replace(assignment, output=output, expression=expression)


def _differentiable(assignment: Assignment) -> str | None:
    """Return the reduction; InputError where it has no derivative."""
    reduction = assignment.reduction
    if reduction in ARGUMENTS:
        if assignment.pattern is None or not set(assignment.reduced) <= set(assignment.pattern.indices):
            raise InputError(
                f"'{assignment}' has no gradient here: a {reduction} chooses among entries, 'for A[i,k]'"
            )
    elif reduction not in (None, "sum", "mean"):
        raise InputError(f"'{assignment}': {reduction} has no gradient; sum, mean, max and min do")
    return reduction


def _derived(assignment: Assignment, output: Access, reduction: str | None, term: Expression) -> Assignment:
    """A derivative with the given terms: of the chosen entries where the assignment chooses, and for every index."""
    names, pattern = names_of(assignment), assignment.pattern
    bare = Assignment(output, reduction, term, pattern)
    read = {index for access in bare._all for index in bare.spread(access)}
    if assignment.reduction in ARGUMENTS:
        read.update(assignment.output.indices)
    lost = tuple(index for index in assignment.indices if index not in read)
    if lost and pattern is None:
        raise InputError(
            f"'{assignment}' has no gradient of {output} here: it counts once for each {', '.join(lost)}, which nothing "
            f"that it is multiplied with says; multiply it with ones, O[{','.join(lost)}]"
        )
    if lost:
        term = _times(Access(names.ones, lost), term)
    if assignment.reduction in ARGUMENTS and pattern is not None:
        chosen = Access(names.numbers, assignment.output.indices)
        term = Apply("where", (Apply("eq", (chosen, Index(pattern.tensor))), term, _ZERO))
    return Assignment(output, reduction, term, pattern)


def _unused(assignment: Assignment, name: str) -> str:
    """``name``, with as many underscores behind it as it takes to be no tensor of the assignment."""
    while name in (assignment.output.tensor, *assignment.operands):
        name += "_"
    return name


def _derivative(expression: Expression, access: Access) -> Expression | None:
    """Return the derivative of ``expression`` by the element that ``access`` reads; None is 0."""
    match expression:
        case Access():
            return _ONE if expression == access else None
        case Apply(operator="where", arguments=(condition, a, b)):
            return _either(condition, _derivative(a, access), _derivative(b, access))
        case Apply(operator=operator, arguments=(a,)):
            inner = _derivative(a, access)
            if inner is None or operator == "neg":
                return None if inner is None else Apply("neg", (inner,))
            if operator == "abs":
                return _either(Apply("lt", (a, _ZERO)), Apply("neg", (inner,)), inner)
            return _times(expression, inner)  # of the exponential
        case Apply(operator=operator, arguments=(a, b)):
            left, right = _derivative(a, access), _derivative(b, access)
            match operator:
                case "add":
                    return _sum(left, right)
                case "sub":
                    return _sum(left, None if right is None else Apply("neg", (right,)))
                case "mul":
                    return _sum(left and _times(left, b), right and _times(a, right))
                case "div":
                    falls = right and Apply("neg", (Apply("div", (_times(a, right), Apply("mul", (b, b)))),))
                    return _sum(left and Apply("div", (left, b)), falls)
                case "max" | "min":  # where they are equal, the first is meant
                    return _either(Apply("le", (b, a) if operator == "max" else (a, b)), left, right)
    return None


def _either(condition: Expression, holds: Expression | None, other: Expression | None) -> Expression | None:
    return None if holds is other is None else Apply("where", (condition, holds or _ZERO, other or _ZERO))


def _sum(a: Expression | None, b: Expression | None) -> Expression | None:
    return Apply("add", (a, b)) if a is not None and b is not None else a or b


def _times(a: Expression, b: Expression) -> Expression:
    if a == _ONE:
        return b
    match b:
        case Constant(value=1.0):
            return a
        case Apply(operator="neg", arguments=(inner,)):
            return Apply("neg", (_times(a, inner),))
    return Apply("mul", (a, b))
