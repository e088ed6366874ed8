"""GraphSAGE's forward pass on a GPU: means over neighbours by our programs or cuSPARSE, the rest by cuBLAS."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from tensorwise.lower.program import program_for
from tensorwise.program.workload import Workload
from tensorwise.runtime.launched import LaunchedKernel
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.toolchain.gpu import Gpu

OPERATION: Final = "u_mul_e sum"
"""A sum of neighbours, each over how many there are: their mean."""
Forward: TypeAlias = Callable[[], Any]
"""Runs all layers; returns the last one's features in the GPU's memory."""


def averaging(graph: Entries) -> Entries:
    """Return a graph whose entries are one over the entries of their row."""
    row, column = graph.coordinates
    counts = np.bincount(row, minlength=graph.shape[0])
    return entries_from((graph.shape, (row, column), (1 / counts[row]).astype(np.float32)))


def drawn(nodes: int, widths: Sequence[int], rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray]]:
    """Draw features (nodes, widths[0]), and for each layer the weights of a node beside those of its neighbours' mean."""
    features = rng.standard_normal((nodes, widths[0]), np.float32)
    weights = [
        rng.standard_normal((2 * before, after), np.float32) / np.float32(np.sqrt(2 * before))
        for before, after in pairwise(widths)
    ]
    return features, weights


def expected(graph: Entries, features: np.ndarray, weights: Sequence[np.ndarray]) -> np.ndarray:
    """Return what all must compute, in float64 on the CPU."""
    mean, x = graph.to_scipy().astype(np.float64), features.astype(np.float64)
    for place, weight in enumerate(weights):
        x = np.concatenate([x, mean @ x], axis=1) @ weight
        x = x if place == len(weights) - 1 else np.maximum(x, 0)
    return np.asarray(x)


def by_tensorwise(
    works: Sequence[Workload],
    programs: Sequence[tuple[str, str]],
    features: Any,
    weights: Sequence[Any],
    gpu: Gpu,
) -> Forward:
    """Our programs, given by format and schedule, on workloads whose widths are those of the layers."""
    bound = [
        LaunchedKernel(program_for(work, *texts), gpu).bind(work)
        for work, texts in zip(works, programs, strict=True)
    ]
    return _layers([kernel.compute for kernel in bound], features, weights)


def by_cusparse(graph: Entries, features: Any, weights: Sequence[Any]) -> Forward:
    """cuSPARSE through CuPy, which wants dense matrices by columns: a layer's are copied so, as a user's would be."""
    import cupy
    import cupyx.scipy.sparse as sparse

    parts = (graph.values, graph.coordinates[1].astype(np.int32), graph.row_pointers().astype(np.int32))
    matrix = sparse.csr_matrix(tuple(map(cupy.asarray, parts)), shape=graph.shape)
    return _layers([matrix.__matmul__] * len(weights), features, weights)


def by_torch(graph: Entries, features: np.ndarray, weights: Sequence[np.ndarray]) -> Forward:
    """torch's products with a CSR matrix, which call cuSPARSE, and its own cuBLAS."""
    import torch

    parts = (graph.row_pointers().astype(np.int64), graph.coordinates[1].astype(np.int64), graph.values)
    matrix = torch.sparse_csr_tensor(*(torch.from_numpy(part).cuda() for part in parts), graph.shape)
    held, *layers = (torch.from_numpy(array).cuda() for array in (features, *weights))

    def forward() -> Any:
        x = held
        for place, weight in enumerate(layers):
            half = x.shape[1]
            x = x @ weight[:half] + (matrix @ x) @ weight[half:]
            x = x if place == len(layers) - 1 else torch.relu_(x)
        return x

    return forward


PEERS: Final[Mapping[str, str]] = {"cusparse (CuPy)": "cupy", "torch CSR": "torch"}
"""Who else runs it, and the package that takes."""


def peers() -> list[str]:
    """Names of the peers whose package is there; torch counts where it sees a GPU."""
    found = [name for name, package in PEERS.items() if importlib.util.find_spec(package) is not None]
    if "torch CSR" in found:
        import torch

        if not torch.cuda.is_available():
            found.remove("torch CSR")
    return found


def _layers(means: Sequence[Callable[[Any], Any]], features: Any, weights: Sequence[Any]) -> Forward:
    def forward() -> Any:
        x = features
        for place, (mean, weight) in enumerate(zip(means, weights, strict=True)):
            half = x.shape[1]
            x = x @ weight[:half] + mean(x) @ weight[half:]
            if place < len(weights) - 1:
                x = x.clip(0, None, out=x)
        return x

    return forward
