"""The best placement of a chain (MLCD, Algorithm 2), for any number of devices: in C, in plain Python, and as a path."""

import ctypes
import heapq
from typing import Final

import numpy as np

from tensorwise.errors import CompilerError
from tensorwise.toolchain.cache import LoadedKernel, default_cache

SOURCE: Final = """
/* cost: n x DEVICES; move: (n - 1) x DEVICES x DEVICES; least: 1, the answer; from: n x DEVICES, scratch; placed: n. */
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    const double *restrict cost = buffers[0], *restrict move = buffers[1];
    int32_t *restrict from = buffers[3], *restrict placed = buffers[4];
    const int64_t n = sizes[0];
    double least[DEVICES], next[DEVICES];
    for (int b = 0; b < DEVICES; b++) least[b] = cost[b];
    for (int64_t i = 1; i < n; i++, move += DEVICES * DEVICES) {
        for (int b = 0; b < DEVICES; b++) {
            double best = least[0] + move[b];
            int32_t at = 0;
            for (int a = 1; a < DEVICES; a++) {
                const double here = least[a] + move[a * DEVICES + b];
                at = here < best ? a : at;
                best = here < best ? here : best;
            }
            next[b] = best + cost[i * DEVICES + b];
            from[i * DEVICES + b] = at;
        }
        for (int b = 0; b < DEVICES; b++) least[b] = next[b];
    }
    int32_t at = 0;
    for (int32_t b = 1; b < DEVICES; b++)
        if (least[b] < least[at]) at = b;
    *(double *)buffers[2] = least[at];
    for (int64_t i = n - 1; i >= 0; i--) {
        placed[i] = at;
        if (i) at = from[i * DEVICES + at];
    }
    return 0;
}
"""
"""The number of devices is compiled in: without it the loops over devices take longer than what they do."""


def place_chain(cost: np.ndarray, move: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the devices, (steps,) int32, and the seconds of the best placement of a chain, in O(steps x devices^2).

    Args:
        cost: (steps, devices) float64: seconds of each step on each device; infinite where it cannot run. Moving operands
            to the first step and the result home from the last one is included.
        move: (steps - 1, devices, devices) float64: seconds to move a step's result from one device to another.

    Compiled, or in plain Python where there is no compiler.
    """
    cost, move = np.ascontiguousarray(cost, float), np.ascontiguousarray(move, float)
    steps, devices = cost.shape
    if move.shape != (steps - 1, devices, devices):
        raise ValueError(f"expected moves of shape {(steps - 1, devices, devices)}, got {move.shape}")
    try:
        function = _kernel(devices).function
    except CompilerError:
        placed, total = place_chain_plain(cost, move)
        return np.array(placed, np.int32), total
    least, scratch, out = (
        np.empty(2 * devices),
        np.empty(steps * devices, np.int32),
        np.empty(steps, np.int32),
    )
    addresses = (array.ctypes.data for array in (cost, move, least, scratch, out))
    function((ctypes.c_void_p * 5)(*addresses), (ctypes.c_int64 * 2)(steps, devices))
    return out, float(least[0])


def _kernel(devices: int) -> LoadedKernel:
    return default_cache().get([SOURCE.replace("DEVICES", str(devices))])[0]


def place_chain_plain(cost: np.ndarray, move: np.ndarray) -> tuple[list[int], float]:
    """Do what ``place_chain`` does, in plain Python: the oracle of the compiled one."""
    devices = range(cost.shape[1])
    least, froms = cost[0].tolist(), list[list[int]]()
    for own, onward in zip(cost[1:].tolist(), move.tolist(), strict=True):
        ways = [[least[a] + onward[a][b] for a in devices] for b in devices]
        froms.append([way.index(min(way)) for way in ways])
        least = [min(way) + own[b] for b, way in enumerate(ways)]
    placed = [least.index(min(least))]
    for places in reversed(froms):
        placed.append(places[placed[-1]])
    return placed[::-1], min(least)


def shortest_path(cost: np.ndarray, move: np.ndarray) -> tuple[list[int], float]:
    """Return what ``place_chain`` does, as Dijkstra's shortest path (MLCD, section III-B2): a cross-check.

    A node is a step on a device; an edge costs moving its result, and the step that it leads to.
    """
    steps, devices = cost.shape
    heap = [(float(cost[0, b]), 0, b, -1) for b in range(devices)]
    heapq.heapify(heap)
    came: dict[tuple[int, int], int] = {}
    while heap:
        total, step, device, before = heapq.heappop(heap)
        if (step, device) in came:
            continue
        came[step, device] = before
        if step == steps - 1:
            placed = [device]
            for later in range(step, 0, -1):
                placed.append(came[later, placed[-1]])
            return placed[::-1], total
        for b in range(devices):
            if (step + 1, b) not in came:
                heapq.heappush(
                    heap, (total + float(move[step, device, b] + cost[step + 1, b]), step + 1, b, device)
                )
    raise ValueError("a chain needs a step and a device")
