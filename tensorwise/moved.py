"""Names that moved to another module or were renamed: the old name works for one more release and warns."""

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
        homes: old name -> module that defines it now, or ``module:name`` where the name changed, too.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = homes[name].partition(":")
        if home == module:
            warnings.warn(f"{module}.{name} is now called {new}", DeprecationWarning, stacklevel=2)
        else:
            warnings.warn(f"{module}.{name} has moved to {home}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(home), new or name)

    return find


def renamed(new: str) -> property:
    """Return a property for the old name of an attribute or method, which is called ``new`` now; it warns."""

    def get(self: object) -> Any:
        warnings.warn(f"it is now called {type(self).__name__}.{new}", DeprecationWarning, stacklevel=2)
        return getattr(self, new)

    return property(get)
