"""Every error that Tensorwise raises on purpose.

A message says what was given, what was expected and how to mend it. Anything else that
escapes is a bug.
"""


class TensorwiseError(Exception):
    """Base of all errors raised on purpose.

    Messages quote foreign texts: halves of surrogate pairs, which no file or terminal takes, are written as escapes.
    """

    def __init__(self, *args: object) -> None:
        whole = (
            one.encode("utf-8", "backslashreplace").decode() if isinstance(one, str) else one for one in args
        )
        super().__init__(*whole)


class InputError(TensorwiseError, ValueError):
    """An operand, file or argument is malformed; the message names the entry."""


class FormatError(InputError):
    """A storage format is malformed, or would store far more than the entries it is given."""


class ScheduleError(InputError):
    """A schedule does not fit its einsum and formats, or its work is out of all proportion."""


class UnprovenError(ScheduleError):
    """Generated code is not certain to stay inside its arrays; report the format and the schedule."""


class CompilerError(TensorwiseError):
    """The C compiler is missing, refused a kernel or ran out of time."""


class MeasurementError(TensorwiseError):
    """A kernel crashed, hung, gave wrong numbers or an impossible time."""


class OutOfTimeError(MeasurementError):
    """The budget of wall time was spent before something was done."""


class StoreError(TensorwiseError):
    """The store of records cannot be read or written."""


class MissingExtraError(TensorwiseError, ImportError):
    """An optional dependency is needed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed; "
            f"install it with: pip install 'tensorwise[{extra}]'"
        )
