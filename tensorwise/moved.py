"""Names that have moved to another module: the old place works for one more release, and says the new one."""

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def forward_names(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module from which names have moved.

    It warns with a DeprecationWarning. The new module is imported by name when it is asked for, so that the old one does
    not depend on it.

    Args:
        module: that the names were in.
        homes: name -> module that defines it now.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} has moved to {homes[name]}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(homes[name]), name)

    return find
