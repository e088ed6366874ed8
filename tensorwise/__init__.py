"""Tensorwise: sparse tensor programs made fast by choosing format, schedule, code version and device."""

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from tensorwise.version import __version__ as __version__

if TYPE_CHECKING:
    from tensorwise.errors import TensorwiseError as TensorwiseError
    from tensorwise.front.api import compile as compile
    from tensorwise.front.api import tune as tune
    from tensorwise.front.interpreting import interpret as interpret
    from tensorwise.selection import select as select
    from tensorwise.selection import versions as versions
    from tensorwise.sparse.arrays import asarray as asarray
    from tensorwise.sparse.patching import patch_scipy as patch_scipy
    from tensorwise.sparse.patching import unpatch_scipy as unpatch_scipy
    from tensorwise.tensor.convert import entries_from as entries_from
    from tensorwise.tensor.entries import Entries as Entries
    from tensorwise.tensor.files import read as read
    from tensorwise.tensor.files import write as write
    from tensorwise.tensor.format import Format as Format
    from tensorwise.tuning.modes import tune_modes as tune_modes
    from tensorwise.tuning.operator import Operator as Operator
    from tensorwise.tuning.saving import load as load


_REQUIRED = ("numpy", "scipy", "platformdirs", "rich", "safetensors", "typer")
if _missing := " ".join(name for name in _REQUIRED if not importlib.util.find_spec(name)):
    raise ImportError(f"tensorwise needs packages that are not installed; run: pip install {_missing}")


class _OldNames:
    """Finder of modules by the names that they had, asked after all others: what moved is read when a name is not found."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("tensorwise."):
            return None
        return importlib.import_module("tensorwise.old_rooms").find_spec(name)


if not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
    sys.meta_path.append(_OldNames())

_HOMES = {
    "Entries": "tensorwise.tensor.entries",
    "Format": "tensorwise.tensor.format",
    "Operator": "tensorwise.tuning.operator",
    "TensorwiseError": "tensorwise.errors",
    "asarray": "tensorwise.sparse.arrays",
    "compile": "tensorwise.front.api",
    "entries_from": "tensorwise.tensor.convert",
    "interpret": "tensorwise.front.interpreting",
    "load": "tensorwise.tuning.saving",
    "patch_scipy": "tensorwise.sparse.patching",
    "read": "tensorwise.tensor.files",
    "select": "tensorwise.selection",
    "tune": "tensorwise.front.api",
    "tune_modes": "tensorwise.tuning.modes",
    "unpatch_scipy": "tensorwise.sparse.patching",
    "versions": "tensorwise.selection",
    "write": "tensorwise.tensor.files",
}
"""Public name -> module. They are imported when first used, so that ``import tensorwise`` is quick."""

_MODULES = ("jax", "nn", "sparse")
"""Public modules; they are imported when first used, and some need an extra."""

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'tensorwise' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
