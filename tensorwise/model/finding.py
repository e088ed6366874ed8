"""Find models when none is named: those that other packages bring, and those that were calibrated on this machine.

Each has a folder named ``OP`` or ``OP-ANYTHING``. A calibrated model is preferred to a bundled one. Neither is
opened by ``import tensorwise``.
"""

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tensorwise.device.host import host
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.model.model import DESCRIPTION, describe
from tensorwise.registry import Registry, needs_instance
from tensorwise.toolchain.places import cache_dir, distrusted

_log = logging.getLogger(__name__)

MODEL_FOLDERS: Final[Registry[Path]] = Registry("folder of models", "model_folders", {}, needs_instance(Path))
"""Folders of bundled models by name: entry points of other packages, such as ``tensorwise-models``."""
NOT_INSTALLED: Final = "bundled models are missing: pip install tensorwise-models, or ./models of a checkout"
"""What is said where a bundled model is wanted and there is none."""


def bundled_folders() -> tuple[Path, ...]:
    """Return the folders of bundled models, which installed packages bring; of a broken one a warning is given."""
    return tuple(MODEL_FOLDERS.sound().values())


def bundled_model(name: str) -> Path:
    """Return the folder of the bundled model ``name``, such as ``spmm`` or ``latency``.

    Raises:
        InputError: no installed package brings it; the message says what to install.
    """
    folders = bundled_folders()
    for folder in folders:
        if (folder / name).is_dir():
            return folder / name
    if not folders:
        raise InputError(NOT_INSTALLED)
    raise InputError(f"no bundled model is called {name!r}; looked in {', '.join(map(str, folders))}")


def calibrated() -> Path:
    """Return the folder of the models calibrated on this machine; it need not exist yet.

    Another machine that shares the user's files has another one.
    """
    return cache_dir() / "models" / host().id


def calibrated_for(op: str, einsum: str, threads: int) -> Path:
    """Return the folder of the model calibrated on this machine for an operation; it need not exist yet."""
    return calibrated() / f"{op}-{content_id([einsum, str(threads)], 8)}"


def roots() -> tuple[Path, ...]:
    """Return the folders that hold models, the preferred one first.

    Calibrated models that another user may have put there are left out, with a warning.
    """
    bundled = bundled_folders()
    try:
        if fault := distrusted(calibrated()):
            _log.warning("models calibrated on this machine are not used: %s", fault)
            return bundled
    except OSError:  # there are none
        return bundled
    return calibrated(), *bundled


def find_models() -> list[Path]:
    """Return the folders of all models that are here, calibrated ones first."""
    bundled = bundled_folders()
    return [
        path.parent
        for root in roots()
        for path in sorted(root.glob(f"*/{DESCRIPTION}"))
        if root in bundled or distrusted(path) is None  # part of a package, or this user's alone
    ]


def find_models_for(op: str, einsum: str, threads: int) -> list[Path]:
    """Return the folders of the models of an operation, the most suitable first: trained for the nearest number of threads.

    Args:
        op: name of the operation.
        einsum: its text; operations on tensors stand for several.
        threads: of a call.
    """
    ranked: list[tuple[float, Path]] = []
    for folder in find_models():
        if folder.name.partition("-")[0] != op:
            continue
        try:
            card: Mapping[str, Any] = describe(folder)["card"]
            fits, octaves = card.get("einsum", einsum) == einsum, _octaves(card, threads)
        except (InputError, AttributeError, KeyError, TypeError, ValueError):
            fits, octaves = True, math.inf  # opening it raises the reason
        if fits:
            ranked.append((octaves, folder))
    return [folder for _, folder in sorted(ranked, key=lambda one: one[0])]


def _octaves(card: Mapping[str, Any], threads: int) -> float:
    """How far a model's number of threads is from ``threads``."""
    return abs(math.log2(max(1, int(card.get("threads", threads))) / threads))
