"""Lowering: a plan -> the loops of a nest -> passes over them.

::

    Plan -> Operands                                    where elements lie; the plan knows its loops (LoopNest)
         -> Nest                                        one recursion over the loops (nest.py); it asks
              Resolver                                    which coordinates and positions are known
              LoopMapping (CpuMapping, GpuMapping)        what a processor makes of a loop
              Accumulators, Results                       where terms are reduced, and where results go
         -> fill_output, privatize or round_once        what surrounds the nest
         -> passes of other packages (LoopPass)
         -> fold_together, hoist                        on CPUs
         -> ir.LoweredFunction, which c.py and cuda.py print
"""

from collections.abc import Callable
from dataclasses import replace

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir
from tensorwise.lower.builder import Builder
from tensorwise.lower.cpu import CpuMapping
from tensorwise.lower.hoist import hoist
from tensorwise.lower.ir import Const, Expr
from tensorwise.lower.mapping import LoopMapping
from tensorwise.lower.nest import Nest
from tensorwise.lower.operands import Operands
from tensorwise.lower.outputs import fill_output, privatize, round_once, rounds_partial_results
from tensorwise.lower.plan import Plan
from tensorwise.lower.resolve import Resolver
from tensorwise.lower.results import Results
from tensorwise.lower.target import target_of
from tensorwise.lower.together import fold_together
from tensorwise.program.schedule import LoopPass
from tensorwise.reading import shown


def lower(plan: Plan) -> ir.LoweredFunction:
    """Lower ``plan`` to the loop IR.

    Raises:
        ScheduleError: a directive does not fit the einsum and formats; the message says which.
    """
    target = target_of(plan.schedule)
    if target is not None:
        return target.lower(plan)
    kernel = emit_kernel(plan, CpuMapping)
    for directive in plan.schedule.directives:
        if isinstance(directive, LoopPass):
            kernel = directive.rewrite(kernel, plan)
            if not isinstance(kernel, ir.LoweredFunction):
                raise ScheduleError(f"{directive}: rewrite returned {shown(kernel)}, no LoweredFunction")
    return hoist(fold_together(kernel))


def emit_kernel(
    plan: Plan, map_loops: Callable[[Plan, Operands, Builder, Resolver], LoopMapping]
) -> ir.LoweredFunction:
    """Return the loops of ``plan``, before the passes that a target has for itself.

    Args:
        map_loops: makes the mapping of loops to the processor.

    Raises:
        ScheduleError: as ``lower``.
    """
    plan.check()
    operands = Operands(plan)
    builder = Builder(operands.names())
    resolver = Resolver(plan, operands, builder)
    mapping = map_loops(plan, operands, builder, resolver)
    results = Results(plan, operands, builder, mapping)
    Nest(plan, operands, builder, resolver, mapping, results).emit_all()
    mapping.emit_rest()
    size = operands.output_size()
    kernel = ir.LoweredFunction(
        operands.buffers(),
        operands.sizes(),
        (*mapping.clearing(), *builder.block),
        (str(plan.assignment),),
        mapping.scratch(),
        resolver.joined,
    )
    kernel = _surround(kernel, plan, size, results.initial, mapping.even_binding)
    return replace(
        kernel, buffers=(*kernel.buffers, *mapping.buffers()), sizes=(*kernel.sizes, *mapping.sizes())
    )


def _surround(
    kernel: ir.LoweredFunction, plan: Plan, size: Expr, initial: float | None, binding: ir.Binding
) -> ir.LoweredFunction:
    """Return the kernel with what its output needs before and behind the nest."""
    accumulate = plan.accumulate
    identity = Const(plan.monoid.components[0].identity, ir.Type(plan.elem))
    if plan.has_private_copies:
        return privatize(kernel, size, plan.monoid.combine, identity, accumulate, binding)
    if rounds_partial_results(kernel):
        return round_once(kernel, size, identity, binding)
    if initial is not None and not accumulate:
        return fill_output(kernel, size, initial, binding)
    return kernel
