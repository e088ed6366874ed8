"""Terms: the right-hand side of an einsum as an expression of the loop IR, at a point where all that it reads is known."""

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.env import Env
from tensorwise.lower.ir import Const, Expr
from tensorwise.lower.iteration_space import IterationSpace
from tensorwise.lower.operands import Operands
from tensorwise.program.einsum import Access, Apply, Constant, Expression, Index


def evaluate(expression: Expression, env: Env, space: IterationSpace, operands: Operands) -> Expr:
    """Return the value of ``expression`` at this point.

    Raises ScheduleError where no loop has led to the entries of an operand.
    """
    match expression:
        case Constant(value=number):
            return Const(number, operands.elem)
        case Access(tensor=name):
            if name not in space.plan.formats:
                return operands.values[name][operands.index_of(expression, env.coordinates)]
            state = env.states[name]
            if state.value is None:
                format = space.plan.formats[name]
                raise ScheduleError(
                    f"no loop of {space.schedule} reaches {format.levels[state.levels]} of {name} ({format})"
                )
            return state.value
        case Index(name=name):
            return env.coordinates[name]
        case Apply(operator="where", arguments=(condition, chosen, other)):
            assert isinstance(condition, Apply)
            if space.named and expression == space.assignment.expression:
                return evaluate(chosen, env, space, operands)  # it is the entry that counts
            left, right = (evaluate(argument, env, space, operands) for argument in condition.arguments)
            return ir.select(
                ir.compare(condition.operator, left, right, operands.index_elem),
                evaluate(chosen, env, space, operands),
                evaluate(other, env, space, operands),
            )
        case Apply(operator=operator, arguments=arguments):
            values = (evaluate(argument, env, space, operands) for argument in arguments)
            return ir.compute(operator, *values)
    raise TypeError(expression)
