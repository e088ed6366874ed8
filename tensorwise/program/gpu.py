"""GPUs as a target: what a schedule may ask of them, how its loops are lowered, and their text."""

from typing import Final

from tensorwise.codegen import ir
from tensorwise.codegen.cuda import print_cuda
from tensorwise.program.launch import check_launch
from tensorwise.program.lower import emit_kernel
from tensorwise.program.pieces import GpuLowering
from tensorwise.program.plan import Plan
from tensorwise.program.target import Target


def lower_to_launches(plan: Plan) -> ir.Kernel:
    """Return the loop IR of a program for GPUs: each outermost statement is a launch."""
    return emit_kernel(plan, GpuLowering)


TARGET: Final = Target(check_launch, lower_to_launches, lambda kernel: print_cuda(kernel)[0])
