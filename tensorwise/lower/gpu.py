"""GPUs as a target: what a schedule may ask of them, how its loops are lowered, and their text."""

from typing import Final

from tensorwise.lower import ir
from tensorwise.lower.cuda import print_cuda
from tensorwise.lower.launch import check_operands
from tensorwise.lower.lower import emit_kernel
from tensorwise.lower.pieces import GpuLowering
from tensorwise.lower.plan import Plan
from tensorwise.lower.target import Target


def lower_to_launches(plan: Plan) -> ir.LoweredFunction:
    """Return the loop IR of a program for GPUs: each outermost statement is a launch."""
    return emit_kernel(plan, GpuLowering)


TARGET: Final = Target(check_operands, lower_to_launches, lambda kernel: print_cuda(kernel)[0])
