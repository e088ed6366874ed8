"""GPUs among the described devices: what a block may have, what memory and arithmetic can give."""

from functools import cache

from tensorwise.device.hardware import files
from tensorwise.errors import InputError
from tensorwise.space.cuda import ANY, GpuSpec


@cache
def described() -> dict[str, GpuSpec]:
    """Return the GPUs for which programs can be generated, by name.

    >>> sorted(described())
    ['A100', 'A100-40GB', 'H100', 'H200', 'P100', 'T4', 'V100']
    """
    return {
        name: GpuSpec(
            name=name, multiprocessors=one["cores"], **one["cuda"], bandwidth=one["bandwidth"], flops=one["flops"],
            l1_bytes=one["l1_bytes"], l2_bytes=one["l2_bytes"],
        )
        for name, one in files().items()
        if "cuda" in one
    }  # fmt: skip


def gpu_named(name: str) -> GpuSpec:
    """Return the description of a GPU from a name such as ``NVIDIA H100 80GB HBM3``; what every GPU has for others."""
    return next((gpu for key, gpu in described().items() if key in name), ANY)


def gpu_called(name: str) -> GpuSpec:
    """Return the description that is called exactly ``name``.

    Raises InputError when there is none.
    """
    if name not in described():
        raise InputError(f"no GPU {name!r} is described; there are {', '.join(described())}")
    return described()[name]
