"""Versions on a GPU, mostly by torch: operands are moved there and results back, which is part of a call."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

from selections.laid_out import LaidOut
from selections.products_gpu import add_naive, add_tiles, dense
from tensorwise.errors import MeasurementError, MissingExtraError
from tensorwise.plan import Link, measured_link
from tensorwise.selection import Selection
from tensorwise.toolchain.gpu import find_gpu

CUDA: Final = "cuda"
TILE: Final = 1024
"""Bodies whose distances from all others, or edges whose ends' neighbours, are in memory at a time."""
MOST_DENSE: Final = 8192
"""Nodes of a graph that is kept as a dense matrix: 256 MB."""


def torch_for(device: str) -> Any | None:
    """Return torch, if it is installed and finds the device; ``cpu`` is for tests."""
    try:
        import torch
    except ImportError:
        return None
    return torch if device != CUDA or torch.cuda.is_available() else None


def _there(torch: Any, array: np.ndarray | sp.csr_array, device: str) -> Any:
    if isinstance(array, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)
    parts = (torch.from_numpy(part).to(device) for part in (array.indptr, array.indices, array.data))
    return torch.sparse_csr_tensor(*parts, size=array.shape, check_invariants=False)


def _wait(torch: Any, device: str) -> None:
    if device == CUDA:
        torch.cuda.synchronize()


def _back(result: Any) -> np.ndarray:
    array: np.ndarray = result.cpu().numpy()
    return array


def links(device: str = CUDA) -> list[Link] | None:
    """Return the links between ``cpu`` and ``gpu``, both ways, as they are measured; None where there is no GPU."""
    torch = torch_for(device)
    if torch is None:
        return None

    def there(array: np.ndarray) -> Any:
        moved = _there(torch, array, device)
        _wait(torch, device)
        return moved

    def made(size: int) -> np.ndarray:
        return np.zeros(size, np.uint8)

    return [
        measured_link("cpu", "gpu", there, made),
        measured_link("gpu", "cpu", lambda tensor: tensor.cpu(), lambda size: there(made(size))),
    ]


def add_products(made: Selection, device: str = CUDA) -> None:
    """Register products of laid-out matrices where there is a GPU: ``gpu blas`` and ``gpu sparse``, and kernels of our own
    where what they take is installed: ``gpu naive`` (CuPy) and ``gpu triton``."""
    torch = torch_for(device)
    if torch is None:
        return

    def there(array: np.ndarray) -> Any:
        return _there(torch, array, device)

    def bring(sparse: bool, one: LaidOut) -> tuple[Any, ...]:
        a, _, b, relu = one.operands
        return _there(torch, a if sparse else dense(one)[0], device), there(b), relu

    def product(left: Any, right: Any, relu: bool) -> Any:
        out = left @ right
        out = out.relu_() if relu else out
        _wait(torch, device)
        return out

    for name in ("gpu blas", "gpu sparse"):
        made.version(
            product, name=name, device="gpu", bring=partial(bring, name == "gpu sparse"), fetch=_back
        )
    if device == CUDA:
        with contextlib.suppress(MissingExtraError, MeasurementError):
            add_naive(made, find_gpu())
        with contextlib.suppress(ImportError):
            add_tiles(made, there, _back)


def add_ranks(made: Selection, damping: float, tolerance: float, device: str = CUDA) -> None:
    """Register the PageRank of laid-out graphs where there is a GPU: ``gpu`` by products with a vector, ``gpu edges`` by
    sums over edges, which no long row holds up."""
    torch = torch_for(device)
    if torch is None:
        return

    def bring(one: LaidOut) -> tuple[Any, ...]:
        (scaled,) = one.operands
        return (_there(torch, scaled, device),)

    def bring_edges(one: LaidOut) -> tuple[Any, ...]:
        (scaled,) = one.operands
        edges = scaled.tocoo()
        ends = (_there(torch, end.astype(np.int64), device) for end in (edges.row, edges.col))
        return (*ends, _there(torch, edges.data, device), scaled.shape[0])

    def settled(nodes: int, pulled: Callable[[Any], Any]) -> Any:
        base, left = (1 - damping) / nodes, 1.0
        x = torch.full((nodes,), base, device=device)
        while left > tolerance:
            following = base + damping * pulled(x)
            left = float((following - x).abs().sum())  # waits
            x = following
        x = x / x.sum()
        _wait(torch, device)
        return x

    def ranks(matrix: Any) -> Any:
        return settled(matrix.shape[0], lambda x: (matrix @ x[:, None])[:, 0])

    def over_edges(targets: Any, sources: Any, shares: Any, nodes: int) -> Any:
        return settled(nodes, lambda x: torch.zeros_like(x).index_add_(0, targets, shares * x[sources]))

    made.version(ranks, name="gpu", device="gpu", bring=bring, fetch=_back)
    made.version(over_edges, name="gpu edges", device="gpu", bring=bring_edges, fetch=_back)


def add_simulation(made: Selection, gravity: float, softening: float, device: str = CUDA) -> None:
    """Register the simulation of laid-out bodies by all pairs, tile by tile: ``gpu``, where there is a GPU."""
    torch = torch_for(device)
    if torch is None:
        return

    def bring(one: LaidOut) -> tuple[Any, ...]:
        state, dt, steps = one.operands
        return _there(torch, state, device), dt, steps

    def simulated(state: Any, dt: float, steps: int) -> Any:
        x, v, m = state[:3].T.contiguous(), state[3:6].T.contiguous(), gravity * state[6]
        firsts: list[Any] = []
        for _ in range(steps):
            pulls = []
            for some in x.split(TILE):
                apart = x[None] - some[:, None]
                near = torch.rsqrt(apart.square().sum(-1) + softening**2)
                pulls.append(torch.einsum("ij,ijk->ik", m * near**3, apart))
            a = torch.cat(pulls)
            firsts = firsts or [a]
            v = v + dt * a
            x = x + dt * v
        result = torch.cat([x.T, firsts[0].T])
        _wait(torch, device)
        return result

    made.version(simulated, name="gpu", device="gpu", bring=bring, fetch=_back)


def add_counts(made: Selection, induced: Callable[..., list[int]], device: str = CUDA) -> None:
    """Register the counting of motifs in laid-out graphs by dense products: ``gpu``, where there is a GPU.

    Args:
        induced: what makes counts of motifs of those that `motifs.algebra` counts, too.
    """
    torch = torch_for(device)
    if torch is None:
        return

    def bring(one: LaidOut) -> tuple[Any, ...]:
        a, k, known = one.operands
        if a.shape[0] > MOST_DENSE:
            raise MemoryError("the graph has no dense form")
        return _there(torch, a.toarray().astype(np.float32), device), k, known

    def counted(a: Any, k: int, known: tuple[int, int, int]) -> Any:
        square = a @ a  # numbers of ways, exact up to 2**24
        t = (square * a).double()
        sums = [t.sum() / 6]
        if k == 4:
            degrees = a.sum(0).double()
            ways, both = square.triu(1).double(), a.triu(1).nonzero()
            sums += [
                (t * (degrees[:, None] + degrees - 4)).sum() / 4,
                (t * (t - 1)).sum() / 4,
                (ways * (ways - 1)).sum() / 4,
            ]
            ends = (a[some[:, 0]] * a[some[:, 1]] for some in both.split(TILE))
            sums.append(sum(((near @ a) * near).sum(dtype=torch.float64) for near in ends) / 12)
        counts = torch.zeros(5, dtype=torch.float64, device=device)
        counts[: len(sums)] = torch.stack([torch.as_tensor(one, device=device) for one in sums])
        _wait(torch, device)
        return counts, k, known

    def fetch(result: Any) -> np.ndarray:
        counts, k, known = result
        found = induced(_back(counts).round().astype(np.int64), *known)
        return np.array(found[:2] if k == 3 else found[2:], np.int64)

    made.version(counted, name="gpu", device="gpu", bring=bring, fetch=fetch)
