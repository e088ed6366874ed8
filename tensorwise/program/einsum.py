"""What is computed: one assignment, or several (a cascade), over tensors with named indices.

Grammar (whitespace is free)::

    cascade = assignment (';' assignment)*
    assignment = access [monoid] '=' expression ['for' access]     monoid: + sum prod max min mean argmax argmin
    expression = access | number | expression (+ - * /) expression | -expression
               | ('max' | 'min' | 'abs' | 'exp') '(' expression, ... ')' | '(' expression ')'
               | expression 'if' condition 'else' expression
    condition = expression ('<' | '<=') expression | access '==' index
    access = NAME '[' index (',' index)* ']'

Only stored entries of sparse operands contribute: a sparse operand restricts the iteration to its
entries, whatever operator it stands under. Output elements that no entry reaches are 0. With several sparse operands
terms have to be summed, and to be 0 wherever one of the operands has no entry, as products are (see ``joined.py``).

``for A[i,k]`` names a sparse operand whose values are not read: the terms are there for its entries. And a sparse
operand's name as the first index of a tensor is the number of the entry: ``E[A,h]`` has a row for each entry of A::

    C[i,j] max= B[k,j] for A[i,k]                       the neighbours' maximum, of a graph
    S[A,h] += Q[i,h,d] * K[k,h,d] for A[i,k]            attention scores, h an edge
    P[i,j] argmax= B[k,j] for A[i,k]                    the number of the entry that C[i,j] comes from
    G[k,j] += D[i,j] if P[i,j] == A else 0 for A[i,k]   and so the gradient of that maximum
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tensorwise.errors import InputError
from tensorwise.moved import forward_names, renamed
from tensorwise.program.ops import COMBINE, MONOIDS, Monoid


@dataclass(frozen=True)
class Access:
    """``tensor[indices]``."""

    tensor: str
    indices: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.tensor}[{','.join(self.indices)}]"


@dataclass(frozen=True)
class Constant:
    """A number."""

    value: float

    def __str__(self) -> str:
        short = f"{self.value:g}"
        return short if float(short) == self.value else repr(self.value)


@dataclass(frozen=True)
class Apply:
    """A combine operator applied to its arguments."""

    operator: str
    arguments: "tuple[Expression, ...]"

    def __str__(self) -> str:
        if self.operator == "where":
            condition, chosen, other = self.arguments
            return f"({chosen} if {condition} else {other})"
        symbol = {"add": "+", "sub": "-", "mul": "*", "div": "/"}.get(self.operator)
        if self.operator in _COMPARED:
            return f" {_COMPARED[self.operator]} ".join(map(str, self.arguments))
        if symbol:
            return f" {symbol} ".join(
                f"({a})" if isinstance(a, Apply) and _binds_weaker(a, self, place) else str(a)
                for place, a in enumerate(self.arguments)
            )
        if self.operator == "neg":
            return f"-({self.arguments[0]})"
        return f"{self.operator}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True)
class Index:
    """An index as a number: the coordinate, or the number of the entry where the index is a sparse operand."""

    name: str

    def __str__(self) -> str:
        return self.name


Expression = Access | Constant | Apply | Index

_COMPARED = {"lt": "<", "le": "<=", "eq": "=="}
_STRENGTH = {"add": 1, "sub": 1, "mul": 2, "div": 2}


def _binds_weaker(inner: Apply, outer: Apply, place: int) -> bool:
    inside, outside = _STRENGTH.get(inner.operator, 3), _STRENGTH[outer.operator]
    return inside < outside or (inside == outside and place > 0)


@dataclass(frozen=True)
class Assignment:
    """``output monoid= expression for pattern``; without a monoid no index may be reduced."""

    output: Access
    reduction: str | None
    expression: Expression
    pattern: Access | None = None
    """A sparse operand of which only the coordinates are read."""

    def __str__(self) -> str:
        sign = {None: "=", "sum": "+="}.get(self.reduction, f"{self.reduction}=")
        read_for = "" if self.pattern is None else f" for {self.pattern}"
        return f"{self.output} {sign} {self.expression}{read_for}"

    @property
    def monoid(self) -> Monoid:
        """The reduction; a plain ``=`` reduces nothing and behaves as ``sum``."""
        return MONOIDS[self.reduction or "sum"]

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """Accesses of the operands whose values are read, in order of appearance."""
        return tuple(_accesses(self.expression))

    @cached_property
    def _all(self) -> tuple[Access, ...]:
        """Accesses of all operands."""
        return self.accesses if self.pattern is None else (*self.accesses, self.pattern)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands in order of first appearance."""
        return tuple(dict.fromkeys(access.tensor for access in self._all))

    @cached_property
    def numbered(self) -> frozenset[str]:
        """Sparse operands the numbers of whose entries are used: as an index, or in a comparison."""
        used = {access.indices[0] for access in (self.output, *self.accesses)}
        used |= {name for _, name in self.chosen.items()}
        return frozenset(used & set(self.operands))

    @cached_property
    def chosen(self) -> dict[str, str]:
        """Operands that hold integers -> the index that they are compared with."""
        return dict(_chosen(self.expression))

    named = renamed("selector")

    @cached_property
    def selector(self) -> Access | None:
        """The access of the operand whose elements number the only entry that contributes to each output element.

        It is P of ``C[k,j] += D[i,j] if P[i,j] == A else 0 for A[i,k]``; None where any entry may contribute.
        """
        match self.expression:
            case Apply("where", (Apply("eq", (Access() as holds, Index(name))), _, Constant(0.0))):
                rows = () if name not in self.operands else self.access(name).indices[:1]
                return holds if self.reduction == "sum" and set(rows) & set(holds.indices) else None
        return None

    kept = renamed("free_indices")

    @cached_property
    def free_indices(self) -> tuple[str, ...]:
        """The indices that are not reduced: the output's, with an operand that is an index replaced by its own indices."""
        return tuple(dict.fromkeys(self.spread(self.output)))

    @cached_property
    def indices(self) -> tuple[str, ...]:
        """All indices: the free ones first, then the reduced ones in order of appearance."""
        reduced = [index for access in self._all for index in self.spread(access)]
        return tuple(dict.fromkeys([*self.free_indices, *reduced]))

    def spread(self, access: Access) -> tuple[str, ...]:
        """Indices that decide what is accessed: a sparse operand's in place of the number of its entry."""
        first, *others = access.indices
        return (*(self.access(first).indices if first in self.numbered else (first,)), *others)

    @cached_property
    def argument(self) -> str | None:
        """What an argmax or argmin gives: the coordinate of this index, or the number of this operand's entry."""
        if self.reduction not in ("argmax", "argmin"):
            return None
        if self.pattern is not None and set(self.reduced) <= set(self.pattern.indices):
            return self.pattern.tensor
        return self.reduced[0]

    @cached_property
    def factors(self) -> tuple[Expression, ...]:
        """What the right-hand side multiplies; itself where it is no product."""
        return tuple(_factors(self.expression))

    @property
    def reduced(self) -> tuple[str, ...]:
        """Indices that are reduced, i.e. not free."""
        return tuple(index for index in self.indices if index not in self.free_indices)

    def access(self, tensor: str) -> Access:
        """Return the access of operand or output ``tensor``."""
        for access in (self.output, *self._all):
            if access.tensor == tensor:
                return access
        raise InputError(
            f"{self} has no tensor {tensor!r}; it has {', '.join((self.output.tensor, *self.operands))}"
        )

    def indices_of(self, tensors: Iterable[str]) -> frozenset[str]:
        """Return the indices of all ``tensors``."""
        return frozenset(index for tensor in tensors for index in self.access(tensor).indices)

    def column_major(self, tensor: str, sparse: Iterable[str]) -> bool:
        """Whether kernels for these ``sparse`` operands expect a dense ``tensor`` with its first index contiguous.

        So is a matrix whose first index is reduced over densely while its second is not (D[k,j] of
        SDDMM): a kernel reads it along k.
        """
        indices, stored = self.access(tensor).indices, self.indices_of(sparse)
        known = stored | self.numbered
        return len(indices) == 2 and indices[0] not in known and indices[1] in stored

    @cached_property
    def counted(self) -> frozenset[str]:
        """Sparse operands the numbers of whose entries a kernel has to know."""
        return self.numbered | ({self.argument} & set(self.operands) if self.argument else frozenset())

    keeps = renamed("has_pattern_of")

    def has_pattern_of(self, tensor: str) -> bool:
        """Whether the output has an element, or several side by side, for each entry of the sparse ``tensor``."""
        output = self.output.indices
        return output == self.access(tensor).indices or output[0] == tensor

    def fills(self, tensor: str) -> bool:
        """Whether an entry of the sparse ``tensor`` contributes to every output element stored for it.

        Not in ``C[A,i] = D[i] for A[i,k]``, which has an element for each i, while an entry has one i.
        """
        first, *beside = self.output.indices
        return first != tensor or not set(beside) & set(self.access(tensor).indices)

    def annihilated_by(self, tensor: str) -> bool:
        """Whether a zero of ``tensor`` makes the term the identity of the reduction, given finite others.

        True for the factors of a sum of products. Then padding may be multiplied along, and only a
        NaN in the output asks for the masked program.
        """
        return self.monoid.combine == "add" and _zero_if_zero(self.expression, tensor)


@dataclass(frozen=True)
class Einsum:
    """A cascade of assignments; most have one.

    >>> einsum = Einsum.parse("C[i,j] += A[i,k] * B[k,j]")
    >>> einsum.single.reduced
    ('k',)
    >>> print(Einsum.parse("T[i] max= A[i,k]*B[k]; C[i] = T[i] / 2"))
    T[i] max= A[i,k] * B[k]; C[i] = T[i] / 2
    """

    assignments: tuple[Assignment, ...]

    @classmethod
    def parse(cls, text: str) -> "Einsum":
        """Parse ``text``; raise InputError with the offending part when it is not in the grammar."""
        einsum = cls(tuple(_parse_assignment(part) for part in text.split(";") if part.strip()))
        if not einsum.assignments:
            raise InputError(
                f"einsum {_shown(text)} has no assignment; write for instance 'C[i] += A[i,k] * B[k]'"
            )
        einsum._check()
        return einsum

    def __str__(self) -> str:
        return "; ".join(map(str, self.assignments))

    @property
    def single(self) -> Assignment:
        """The only assignment; InputError when this is a cascade."""
        if len(self.assignments) != 1:
            raise InputError(
                f"expected a single assignment, got a cascade of {len(self.assignments)}: {self}"
            )
        return self.assignments[0]

    @property
    def temporaries(self) -> tuple[str, ...]:
        """Tensors that an assignment defines and a later one reads."""
        return tuple(a.output.tensor for a in self.assignments[:-1])

    @property
    def operands(self) -> tuple[str, ...]:
        """Tensors that must be given, in order of first appearance."""
        names = [name for assignment in self.assignments for name in assignment.operands]
        return tuple(name for name in dict.fromkeys(names) if name not in self.temporaries)

    def _check(self) -> None:
        shapes: dict[str, int] = {}
        defined: set[str] = set()
        for assignment in self.assignments:
            for access in (assignment.output, *assignment._all):
                known = shapes.setdefault(access.tensor, len(access.indices))
                if known != len(access.indices):
                    raise InputError(
                        f"{access.tensor} has {known} indices in one place "
                        f"and {len(access.indices)} in {access}"
                    )
                if not access.tensor.isascii() or not all(_INDEX.fullmatch(i) for i in access.indices):
                    raise InputError(
                        f"cannot use the names of {access}: indices are letters (k1 and k0 are the parts of a "
                        "split k), tensors begin with a letter and go on with letters, digits and _"
                    )
                if len(set(access.indices)) != len(access.indices):
                    raise InputError(
                        f"{access} repeats an index; take the diagonal before, and name each index once"
                    )
                if access in assignment._all and access.tensor in access.indices:
                    raise InputError(
                        f"{access}: {access.tensor} names both an operand and an index; call one of them differently"
                    )
                late = [index for index in access.indices[1:] if index in assignment.operands]
                if late:
                    raise InputError(
                        f"{access}: {late[0]} is an operand, and the number of one of its entries is the first index of a "
                        "tensor; put it first, or call the index differently"
                    )
            output = assignment.output
            if output.tensor in assignment.operands or output.tensor in defined:
                raise InputError(
                    f"{output.tensor} is assigned twice or read by its own assignment in '{assignment}'"
                )
            read = {index for access in assignment._all for index in assignment.spread(access)}
            missing = [index for index in assignment.free_indices if index not in read]
            if missing:
                raise InputError(f"index {missing[0]!r} of {output} appears in no operand of '{assignment}'")
            if assignment.pattern is not None and assignment.pattern in assignment.accesses:
                raise InputError(
                    f"'{assignment}' reads the values of {assignment.pattern.tensor}, so that its entries are the terms "
                    f"anyhow; leave out 'for {assignment.pattern}'"
                )
            unknown = [
                n for n in assignment.chosen.values() if n not in (*assignment.indices, *assignment.operands)
            ]
            if unknown:
                raise InputError(f"'{assignment}' compares with {unknown[0]!r}, which is no index of it")
            both = [a.tensor for a in _valued(assignment.expression) if a.tensor in assignment.chosen]
            if both:
                raise InputError(
                    f"{both[0]} holds coordinates to compare with; '{assignment}' also computes with them"
                )
            if assignment.reduction is None and assignment.reduced:
                raise InputError(
                    f"'{assignment}' reduces {assignment.reduced[0]!r} without saying how; "
                    "write '+=' or 'max='"
                )
            if assignment.reduction in ("argmax", "argmin") and len(assignment.reduced) != 1:
                pattern = () if assignment.pattern is None else assignment.pattern.indices
                if not assignment.reduced or not set(assignment.reduced) <= set(pattern):
                    raise InputError(
                        f"{assignment.reduction} reduces exactly one index, got {assignment.reduced}"
                    )
            defined.add(output.tensor)


_ASSIGNMENT = re.compile(r"^\s*([A-Za-z]\w*\s*\[[^\]]*\])\s*(\+|[a-z]+)?\s*=(?!=)(.*)$", re.DOTALL)
LONGEST_SHOWN = 200
MOST_NESTED = 200
"""What reads expressions calls itself for their arguments."""
_INDEX = re.compile(r"[A-Za-z]+")
_ELEMENT_FUNCTIONS = ("max", "min", "abs", "exp")
_ORDERED = {ast.Lt: "lt", ast.LtE: "le"}
_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}


def _parse_assignment(text: str) -> Assignment:
    match = _ASSIGNMENT.match(text)
    if match is None:
        raise InputError(f"cannot read {_shown(text)}; expected 'OUTPUT[i,...] += expression'")
    reduction = {"+": "sum"}.get(match[2], match[2])
    if reduction is not None and reduction not in MONOIDS:
        raise InputError(f"unknown reduction {match[2]!r} in {_shown(text)}; known: +, {', '.join(MONOIDS)}")
    output = _convert(_python(match[1], text), text)
    assert isinstance(output, Access)  # NAME[...] is nothing else
    expression, *read_for = re.split(r"\bfor\b", match[3], maxsplit=1)
    try:
        pattern = _convert(_python(read_for[0], text), text) if read_for else None
        if pattern is not None and not isinstance(pattern, Access):
            raise InputError(
                f"cannot read 'for {_shown(read_for[0])[1:-1]}' in einsum {_shown(text)}; expected 'for A[i,k]'"
            )
        converted = _convert(_python(expression, text), text)
        if _depth(converted) > MOST_NESTED:
            raise RecursionError
        return Assignment(output, reduction, converted, pattern)
    except RecursionError:
        raise InputError(
            f"the expression of '{output} = ...' is nested too deeply to be read: more than {MOST_NESTED} operations, of "
            "which each takes the result of the one before; split it into several assignments"
        ) from None


def _depth(expression: Expression) -> int:
    """Operations of which each takes the result of the one before, at most."""
    deepest, left = 0, [(expression, 1)]
    while left:
        one, depth = left.pop()
        deepest = max(deepest, depth)
        left += [(argument, depth + 1) for argument in (one.arguments if isinstance(one, Apply) else ())]
    return deepest


def _shown(text: str) -> str:
    """A piece of an einsum for a message: quoted, and not endless."""
    text = text.strip()
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}...")


def _python(source: str, text: str) -> ast.expr:
    try:
        return ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"cannot read {_shown(source)} in einsum {_shown(text)}: {error}") from None


def _convert(node: ast.expr, text: str) -> Expression:
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Name(id=index)):
            return Access(name, (index,))
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=elements)) if elements:
            if all(isinstance(e, ast.Name) for e in elements):
                return Access(name, tuple(e.id for e in elements if isinstance(e, ast.Name)))
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            if not abs(value) < 2**1023:
                raise InputError(f"a number in einsum {_shown(text)} is too large for float64")
            return Constant(float(value))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
            return Apply(_BINARY[type(operator)], (_convert(left, text), _convert(right, text)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Apply("neg", (_convert(operand, text),))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _ELEMENT_FUNCTIONS:
            if len(arguments) == COMBINE[name].arity:
                return Apply(name, tuple(_convert(a, text) for a in arguments))
        case ast.IfExp(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Name(id=index)])):
            compared = _convert(left, text)
            if isinstance(compared, Access):
                return _choice(Apply("eq", (compared, Index(index))), node, text)
        case ast.IfExp(test=ast.Compare(left=left, ops=[operator], comparators=[right])) if (
            type(operator) in _ORDERED
        ):
            condition = Apply(_ORDERED[type(operator)], (_convert(left, text), _convert(right, text)))
            return _choice(condition, node, text)
    raise InputError(
        f"cannot read {_shown(ast.unparse(node))} in einsum {_shown(text)}; expected tensors with named indices, "
        "numbers, + - * /, max(a, b), min(a, b), abs(a), exp(a), a if x < y else b, a if P[i] == k else b"
    )


def _choice(condition: Expression, node: ast.IfExp, text: str) -> Apply:
    return Apply("where", (condition, _convert(node.body, text), _convert(node.orelse, text)))


def _accesses(expression: Expression) -> Iterator[Access]:
    """Accesses in the order in which they are written."""
    match expression:
        case Access():
            yield expression
        case Apply(operator="where", arguments=(condition, chosen, other)):
            for argument in (chosen, condition, other):
                yield from _accesses(argument)
        case Apply(arguments=arguments):
            for argument in arguments:
                yield from _accesses(argument)


def _valued(expression: Expression) -> Iterator[Access]:
    """Accesses that are computed with."""
    match expression:
        case Access():
            yield expression
        case Apply(operator=operator, arguments=arguments) if operator != "eq":
            for argument in arguments:
                yield from _valued(argument)


def _chosen(expression: Expression) -> Iterator[tuple[str, str]]:
    """Operands compared with an index, and the index."""
    match expression:
        case Apply(operator="eq", arguments=(Access(tensor=name), Index(name=index))):
            yield name, index
        case Apply(arguments=arguments):
            for argument in arguments:
                yield from _chosen(argument)


def product_of(factors: Sequence[Expression]) -> Expression:
    """Return the product of ``factors``, one at least, from left to right."""
    product, *others = factors
    for factor in others:
        product = Apply("mul", (product, factor))
    return product


def _factors(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Apply) and expression.operator == "mul":
        for argument in expression.arguments:
            yield from _factors(argument)
    else:
        yield expression


def _zero_if_zero(expression: Expression, tensor: str) -> bool:
    match expression:
        case Access(tensor=name):
            return name == tensor
        case Apply(operator="mul", arguments=arguments):
            return any(_zero_if_zero(a, tensor) for a in arguments)
        case Apply(operator="neg" | "abs" | "div", arguments=arguments):
            return _zero_if_zero(arguments[0], tensor)
        case Apply(operator="add" | "sub" | "max" | "min", arguments=arguments):
            return all(_zero_if_zero(a, tensor) for a in arguments)
    return False


__getattr__ = forward_names(__name__, {"Call": f"{__name__}:Apply"})
