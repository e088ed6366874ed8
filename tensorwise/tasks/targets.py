"""What TVM compiles for: its targets for instruction sets of CPUs and for GPUs."""

from typing import Any, Final

from tensorwise.program.gpu_directives import MOST_SHARED_BYTES
from tensorwise.program.schedule import WARP
from tensorwise.space.cuda import GpuSpec

ISAS: Final = {"sse": "x86-64", "avx2": "x86-64-v3", "avx512": "x86-64-v4"}
"""Instruction set -> what LLVM calls a processor that has it and nothing more."""


def cpu_target(isa: str, cores: int = 1) -> Any:
    """Return TVM's target for an instruction set, a name of ISAS.

    Args:
        cores: decide into how many iterations a search fuses parallel loops; for compiling they do not matter.
    """
    from tensorwise.tasks.tvm_extra import tvm

    return tvm.target.Target({"kind": "llvm", "mcpu": ISAS[isa], "num-cores": cores})


def gpu_target(gpu: GpuSpec) -> Any:
    """Return TVM's target for a GPU."""
    from tensorwise.tasks.tvm_extra import tvm

    return tvm.target.Target(
        {
            "kind": "cuda", "arch": gpu.arch, "max_threads_per_block": gpu.threads, "max_num_threads": gpu.threads,
            "max_shared_memory_per_block": MOST_SHARED_BYTES, "thread_warp_size": WARP,
        },
        host={"kind": "llvm"},
    )  # fmt: skip
