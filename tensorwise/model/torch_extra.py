"""torch, for the modules that train: import it from here, so that its absence names the extra.

Nothing that ``import tensorwise`` loads may import this module.
"""

from tensorwise.errors import InputError, MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError(
        "torch", "torch", "looking at patterns and training with neural networks"
    ) from error

__all__ = ["check_device", "torch"]


def check_device(name: str) -> None:
    """Raise InputError where torch cannot compute on a device of this name."""
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without it
        raise InputError(f"torch cannot compute on {name!r}: {str(error).splitlines()[0]}") from error
