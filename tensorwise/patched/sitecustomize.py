"""Imported by Python as it starts, where ``python -m tensorwise.patch`` put this folder first: patches SciPy.

The ``sitecustomize`` that this one hides is run as well. No package: the folder is a place on ``sys.path``.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)


class _WhenImported(importlib.abc.MetaPathFinder):
    """Patches ``scipy.sparse`` as soon as it has been imported; a program without it pays nothing."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "scipy.sparse":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        loader, run = spec.loader, spec.loader.exec_module

        def exec_module(module):  # type: ignore[no-untyped-def]
            run(module)
            loader.exec_module = run  # type: ignore[method-assign]
            from tensorwise.sparse.patching import patch_scipy

            patch_scipy()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _run_hidden() -> None:
    """Run the ``sitecustomize`` that would have been imported without ours."""
    places = [path for path in sys.path if path != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("TENSORWISE_PATCH_SCIPY") == "1":
    sys.meta_path.insert(0, _WhenImported())
_run_hidden()
