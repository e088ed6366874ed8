"""Accumulators start with their first term where it is certain to come first: 0 + x costs an addition."""

from collections.abc import Iterable

from tensorwise.lower import ir
from tensorwise.lower.ir import Const, Reg, Set, Stmt, Type, Var


def start_with_first_terms(block: list[Stmt], registers: Iterable[Var], identity: float) -> None:
    """Rewrite the declarations of ``registers``, which begin with ``identity``, in ``block``::

        var acc = 0;  ...;  acc := acc + x;  ...   ->   ...;  var acc = x;  ...

    What reads the accumulator before, or adds to it in a loop or under a condition first, keeps it as it is.
    """
    for register in registers:
        declared = block.index(declaration(register, identity))
        for place in range(declared + 1, len(block)):
            statement = block[place]
            if isinstance(statement, Set) and statement.var == register:
                match statement.value:
                    case ir.Op(args=(before, term)) if before == register:
                        block[place] = Reg(register, term)
                        del block[declared]
                break
            if any(register in ir.variables(e) for s in ir.walk((statement,)) for e in ir.expressions(s)):
                break


def declaration(register: Var, identity: float) -> Reg:
    """Return the declaration of an accumulator that starts with the identity."""
    return Reg(register, ir.widen(Const(identity, Type(register.type.elem)), register.type.lanes))
