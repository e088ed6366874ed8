"""Modules that have moved to another room: the old name works for one more release, and says the new one."""

import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, cast

from tensorwise.moved import forward_names

ROOMS: Final[Mapping[str, Mapping[str, str]]] = {
    "tensorwise.codegen": {
        **dict.fromkeys(
            (
                "bounds",
                "c",
                "cuda",
                "hoist",
                "inequalities",
                "interpret",
                "ir",
                "loops",
                "polynomials",
                "together",
            ),
            "tensorwise.lower",
        ),
        "*": "tensorwise.analysis",
    },
    "tensorwise.data": {
        **dict.fromkeys(
            (
                "augment",
                "cluster",
                "corpus",
                "dask",
                "executors",
                "job",
                "measuring",
                "ray",
                "serve",
                "spool",
                "staged_job",
                "task_job",
                "workloads",
            ),
            "tensorwise.collect",
        ),
        "*": "tensorwise.store",
    },
    "tensorwise.features": {"*": "tensorwise.analysis"},
    "tensorwise.program": {
        **dict.fromkeys(
            (
                "arrays",
                "gpu",
                "launch",
                "lower",
                "merge_path",
                "nest",
                "pieces",
                "plan",
                "program",
                "target",
                "teams",
            ),
            "tensorwise.lower",
        ),
        **dict.fromkeys(
            ("call", "generated", "interpreted", "kernel", "launched", "loads", "packed", "work"),
            "tensorwise.runtime",
        ),
    },
}
"""Old package -> name of a module that was in it ("*": of any other) -> the package that has it now."""
RENAMED: Final[Mapping[str, str]] = {
    "tensorwise.adapt.elsewhere": "tensorwise.adapt.cross_device",
    "tensorwise.data.collect": "tensorwise.collect.driver",
    "tensorwise.model.judging": "tensorwise.model.evaluation",
    "tensorwise.model.looking": "tensorwise.model.neural",
}
"""Old name -> new name of modules that were also renamed."""
NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "tensorwise.features": {
        "PATTERNS": "tensorwise.analysis.patterns",
        "Featurizer": "tensorwise.analysis.featurizer",
        "Field": "tensorwise.analysis.featurizer",
        "MatrixPattern": "tensorwise.analysis.matrix",
        "TensorPattern": "tensorwise.analysis.tensor",
    },
}
"""Old package -> public name that it had -> the module that has it now."""


def find_spec(name: str) -> ModuleSpec | None:
    """Return how a moved module, or a package of which only moved modules were left, is found; None for all others."""
    if name in ROOMS:
        return ModuleSpec(name, cast(Any, MovedModules()), is_package=True)
    return ModuleSpec(name, cast(Any, MovedModules())) if _new_name(name) else None


class MovedModules:
    """Loads a module by the name that it had: the module itself, with a DeprecationWarning."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module that a moved name stands for now; None, for a new one, where it stands for a package."""
        new = _new_name(spec.name)
        if new is None:
            return None
        warnings.warn(f"{spec.name} has moved to {new}", DeprecationWarning, stacklevel=2)
        try:
            module = import_module(new)
        except ModuleNotFoundError as error:
            if error.name != new:
                raise
            raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name) from error
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give a module back the specification of its own name; let a package find its names."""
        spec = module.__spec__
        if spec is not None and spec.loader_state is not None:
            module.__spec__ = spec.loader_state
        else:
            module.__dict__["__getattr__"] = forward_names(module.__name__, NAMES.get(module.__name__, {}))


def _new_name(old: str) -> str | None:
    if old in RENAMED:
        return RENAMED[old]
    package, _, name = old.rpartition(".")
    rooms = ROOMS.get(package, {})
    room = rooms.get(name, rooms.get("*"))
    return f"{room}.{name}" if room else None
