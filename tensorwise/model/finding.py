"""Where models are that nobody names: those that come with Tensorwise, and those that were calibrated on this machine.

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
from tensorwise.toolchain.places import cache_dir, distrusted

_log = logging.getLogger(__name__)

PACKAGED: Final = Path(__file__).with_name("shipped")
"""The models that come with Tensorwise."""


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
    try:
        if fault := distrusted(calibrated()):
            _log.warning("models calibrated on this machine are not used: %s", fault)
            return (PACKAGED,)
    except OSError:  # there are none
        return (PACKAGED,)
    return calibrated(), PACKAGED


def shipped() -> list[Path]:
    """Return the folders of all models that are here, calibrated ones first."""
    return [
        path.parent for root in roots() for path in sorted(root.glob(f"*/{DESCRIPTION}")) if _ours(root, path)
    ]


def _ours(root: Path, path: Path) -> bool:
    """Whether a model's file is part of the package, or this user's alone."""
    return root == PACKAGED or distrusted(path) is None


def shipped_for(op: str, einsum: str, threads: int) -> list[Path]:
    """Return the folders of the models of an operation, the most suitable first: trained for the nearest number of threads.

    Args:
        op: name of the operation.
        einsum: its text; operations on tensors stand for several.
        threads: of a call.
    """
    ranked: list[tuple[float, Path]] = []
    for folder in shipped():
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
