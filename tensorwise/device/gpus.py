"""Descriptions of GPUs, a file each in ``machines/gpu``: what a block may have, what memory and arithmetic can give."""

import tomllib
from functools import cache
from pathlib import Path

from tensorwise.errors import InputError
from tensorwise.space.cuda import ANY, Gpu

FOLDER = Path(__file__).parent / "machines" / "gpu"


@cache
def described() -> dict[str, Gpu]:
    """The GPUs that are described, by name.

    >>> sorted(described())
    ['A100', 'H100', 'H200', 'V100']
    """
    found = [Gpu(**tomllib.loads(path.read_text())) for path in sorted(FOLDER.glob("*.toml"))]
    return {gpu.name: gpu for gpu in found}


def gpu_named(name: str) -> Gpu:
    """Return the description of a GPU from a name such as ``NVIDIA H100 80GB HBM3``; what every GPU has for others."""
    return next((gpu for key, gpu in described().items() if key in name), ANY)


def gpu_called(name: str) -> Gpu:
    """Return the description that is called exactly ``name``.

    Raises InputError when there is none.
    """
    if name not in described():
        raise InputError(f"no GPU {name!r} is described; there are {', '.join(described())}")
    return described()[name]
