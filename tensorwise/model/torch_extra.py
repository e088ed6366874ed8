"""torch, for the modules that train: import it from here, so that its absence names the extra.

Nothing that ``import tensorwise`` loads may import this module.
"""

from tensorwise.errors import MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError(
        "torch", "torch", "looking at patterns and training with neural networks"
    ) from error

__all__ = ["torch"]
