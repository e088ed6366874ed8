"""What others have for the same operations, on a GPU: cuSPARSE by hand and by torch, torch's own, PyG, and a Triton kernel.

A peer gets the workload and its dense operands in the GPU's memory, and returns a call; None where it has nothing for it.
What a peer converts once is no part of its time.
"""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from tensorwise.device.libraries.cusparse import CusparseKernel
from tensorwise.device.libraries.cusparse_calls import find_cusparse
from tensorwise.program.workload import Workload
from tensorwise.toolchain.gpu import Gpu

Call: TypeAlias = Callable[[], Any]
Peer: TypeAlias = Callable[[str, Workload, Sequence[np.ndarray], Gpu], Call | None]


def _csr(workload: Workload, torch: Any, values: bool) -> Any:
    entries = workload.entries
    kept = entries.values if values else np.ones(entries.nnz, np.float32)
    parts = (entries.row_pointers().astype(np.int64), entries.coordinates[1].astype(np.int64), kept)
    return torch.sparse_csr_tensor(
        *(torch.from_numpy(np.ascontiguousarray(p)).cuda() for p in parts), entries.shape
    )


def _dense(operands: Sequence[np.ndarray], torch: Any) -> list[Any]:
    return [torch.from_numpy(np.ascontiguousarray(operand)).cuda() for operand in operands]


def cusparse(name: str, workload: Workload, operands: Sequence[np.ndarray], gpu: Gpu) -> Call | None:
    """cuSPARSE by hand, the fastest of its algorithms and layouts."""
    library = find_cusparse()
    if name == "u_dot_v" and library is not None:
        entries = workload.entries
        parts = entries.row_pointers().astype(np.int32), entries.coordinates[1].astype(np.int32)
        pattern = [*map(gpu.upload, parts), gpu.empty(entries.nnz, workload.dtype)]
        right, left = (gpu.upload(operand).reshape(operand.shape) for operand in operands)
        return library.sddmm(pattern, (entries.shape[0], entries.shape[1]), left, right)
    if CusparseKernel.why_not(workload) is not None:
        return None
    bound = CusparseKernel(gpu).bind(workload)
    call = bound.ready(operands, np.empty(workload.output_shape, workload.output_dtype))

    def run() -> Any:
        call()
        return bound.result

    return run


def torch_csr(name: str, workload: Workload, operands: Sequence[np.ndarray], gpu: Gpu) -> Call | None:
    """torch's products of CSR matrices, which call cuSPARSE."""
    import torch

    dense = _dense(operands, torch)
    if name in ("u_mul_e sum", "copy_u sum"):
        matrix = _csr(workload, torch, name == "u_mul_e sum")
        return lambda: matrix @ dense[0]
    if name == "u_dot_v":
        pattern, sources, destinations = _csr(workload, torch, False), dense[0].T, dense[1]
        return lambda: torch.sparse.sampled_addmm(pattern, destinations, sources, beta=0.0).values()
    return None


def torch_coo(name: str, workload: Workload, operands: Sequence[np.ndarray], gpu: Gpu) -> Call | None:
    """torch's products of COO matrices."""
    import torch

    if name not in ("u_mul_e sum", "copy_u sum"):
        return None
    matrix, dense = (
        _csr(workload, torch, name == "u_mul_e sum").to_sparse_coo().coalesce(),
        _dense(operands, torch),
    )
    return lambda: torch.sparse.mm(matrix, dense[0])


def pyg(name: str, workload: Workload, operands: Sequence[np.ndarray], gpu: Gpu) -> Call | None:
    """PyTorch Geometric as its layers do it without sparse matrices: gather, message, scatter."""
    import torch
    from torch_geometric.utils import scatter

    dense = _dense(operands, torch)
    i, k = (torch.from_numpy(c.astype(np.int64)).cuda() for c in workload.entries.coordinates)
    weights, rows = _dense([workload.entries.values], torch)[0][:, None], workload.entries.shape[0]
    calls: dict[str, Call] = {
        "u_mul_e sum": lambda: scatter(dense[0][k] * weights, i, 0, rows, "sum"),
        "copy_u sum": lambda: scatter(dense[0][k], i, 0, rows, "sum"),
        "copy_u max": lambda: scatter(dense[0][k], i, 0, rows, "max"),
        "u_add_v": lambda: dense[0][k] + dense[1][i],
        "u_dot_v": lambda: (dense[0][k] * dense[1][i]).sum(-1),
    }
    return calls.get(name)


def triton(name: str, workload: Workload, operands: Sequence[np.ndarray], gpu: Gpu) -> Call | None:
    """A row of the output a program, as one writes it by hand in Triton."""
    import torch

    from gsparse.by_triton import row_sums

    if name not in ("u_mul_e sum", "copy_u sum"):
        return None
    entries, (dense,) = workload.entries, _dense(operands, torch)
    pointers, columns = (
        torch.from_numpy(np.ascontiguousarray(a).astype(np.int32)).cuda()
        for a in (entries.row_pointers(), entries.coordinates[1])
    )
    values = _dense([entries.values], torch)[0] if name == "u_mul_e sum" else None
    return lambda: row_sums(pointers, columns, values, dense)


PEERS: Final[dict[str, Peer]] = {
    "cuSPARSE": cusparse, "torch CSR": torch_csr, "torch COO": torch_coo, "PyG": pyg, "Triton": triton,
}  # fmt: skip
NEEDS: Final = {
    "cuSPARSE": "cupy",
    "torch CSR": "torch",
    "torch COO": "torch",
    "PyG": "torch_geometric",
    "Triton": "triton",
}


def installed() -> list[str]:
    """Names of the peers whose package is there."""
    return [name for name, package in NEEDS.items() if importlib.util.find_spec(package) is not None]
