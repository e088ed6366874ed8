"""Terms: the right-hand side of an einsum as an expression of the loop IR, at a point where all that it reads is known."""

from tensorwise.lower import ir
from tensorwise.lower.env import Env
from tensorwise.lower.ir import Const, Expr
from tensorwise.lower.operands import Operands
from tensorwise.lower.plan import Plan
from tensorwise.program.einsum import Access, Apply, Constant, Expression, Index


def evaluate(expression: Expression, env: Env, plan: Plan, operands: Operands) -> Expr:
    """Return the value of ``expression`` at this point."""
    match expression:
        case Constant(value=number):
            return Const(number, operands.elem)
        case Access(tensor=name):
            if name not in plan.formats:
                return operands.values[name][operands.index_of(expression, env.coordinates)]
            state = env.states[name]
            assert state.value is not None  # as the loops reach all levels
            return state.value
        case Index(name=name):
            return env.coordinates[name]
        case Apply(operator="where", arguments=(condition, chosen, other)):
            assert isinstance(condition, Apply)
            if plan.selected and expression == plan.assignment.expression:
                return evaluate(chosen, env, plan, operands)  # it is the entry that counts
            left, right = (evaluate(argument, env, plan, operands) for argument in condition.arguments)
            return ir.select(
                ir.compare(condition.operator, left, right, operands.index_elem),
                evaluate(chosen, env, plan, operands),
                evaluate(other, env, plan, operands),
            )
        case Apply(operator=operator, arguments=arguments):
            values = (evaluate(argument, env, plan, operands) for argument in arguments)
            return ir.compute(operator, *values)
    raise TypeError(expression)
