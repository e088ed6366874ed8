"""Which operands programs of GPUs take; what they may do with them, directives say."""

from tensorwise.errors import ScheduleError
from tensorwise.lower.plan import Plan


def check_operands(plan: Plan) -> None:
    """Raise ScheduleError where operands are stored as no program of a GPU reads them."""
    if plan.padded:
        padded = next(str(format) for format in plan.formats.values() if format.padded)
        raise ScheduleError(f"programs for GPUs run over formats without padding, got {padded}")
    if plan.halves:
        raise ScheduleError(
            f"programs for GPUs do not keep operands in 16 bits, got {', '.join(plan.halves)}"
        )
