"""The best placement of a graph: chains by Algorithm 2, others by eliminating step after step, with a bound."""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.plan.chain import place_chain
from tensorwise.plan.graph import Network, StepGraph

MOST_ENTRIES: Final = 2**16
"""Entries of the largest table: 10 steps together on 3 devices, or 16 on 2. Graphs of smaller width are solved exactly
where ``MOST_TABLES`` suffices."""
MOST_TABLES: Final = 2**25
"""Numbers in all tables of one graph, 256 MiB: beyond it, further tables have two steps."""
MOST_ENTANGLED: Final = 2**16
"""Steps and results read of a graph that is no chain: more would take many minutes."""
SWEEPS: Final = 20
"""Passes over all steps in which each is moved to where it is best, given the others."""

Factor: TypeAlias = tuple[tuple[int, ...], np.ndarray]
"""Steps, in order, and what they cost together: one axis a step, one entry a device."""


@final
@dataclass(frozen=True)
class Placement:
    """Where each step runs.

    Attributes:
        devices: one a step, in the graph's order.
        seconds: of all steps one at a time, with every transfer; a result is moved to each device at most once.
        bound_s: lower bound of the seconds of any placement.
    """

    devices: tuple[str, ...]
    seconds: float
    bound_s: float

    @property
    def gap(self) -> float:
        """By what share of the bound it may be off the best; 0: it is the best."""
        return self.seconds / self.bound_s - 1 if self.bound_s else 0.0


def place(graph: StepGraph, network: Network, *, most_entries: int = MOST_ENTRIES) -> Placement:
    """Return the fastest placement; for a graph too wide to solve exactly, a good one with a lower bound of the best.

    Args:
        graph: what to place.
        network: where.
        most_entries: largest size of a dynamic-programming table; smaller ones are faster and give a larger gap.

    Raises:
        InputError: some step can run nowhere, its operands cannot be brought there, or the graph is too large.
    """
    size = len(graph.steps) + sum(len(step.after) for step in graph.steps)
    if size > MOST_ENTANGLED and not graph.is_chain:
        raise InputError(
            f"{len(graph.steps)} steps that read {size - len(graph.steps)} results, and are no chain, are too many to "
            f"place; expected at most {MOST_ENTANGLED} of both together: place parts of the application one after the other"
        )
    cost, move = graph.costs(network)
    if graph.is_chain:
        placed, bound_s = place_chain(cost, move[:-1])
    else:
        placed, bound_s = _eliminate(graph, cost, move, most_entries)
    total = total_s(graph, cost, move, placed) if np.isfinite(bound_s) else np.inf
    if not np.isfinite(total):
        raise InputError(
            "no placement was found: some step can run nowhere that its operands can be brought to"
        )
    return Placement(tuple(network.devices[k] for k in placed), total, min(bound_s, total))


def total_s(
    graph: StepGraph, cost: np.ndarray, move: np.ndarray, placed: Sequence[int] | np.ndarray
) -> float:
    """Return the seconds of a placement; cost and move as from ``StepGraph.costs``."""
    total = float(cost[range(len(cost)), placed].sum())
    for step, readers in enumerate(graph.readers):
        total += sum(float(move[step, placed[step], device]) for device in {int(placed[r]) for r in readers})
    return total


def _eliminate(
    graph: StepGraph, cost: np.ndarray, move: np.ndarray, most_entries: int
) -> tuple[np.ndarray, float]:
    """Place by bucket elimination (Dechter, Bucket elimination, 1999), which the chain's recurrence is a case of.

    Eliminating a step minimises the sum of its factors over its devices, for every choice of the other steps. Where that
    table would be too large, the factors are split into mini-buckets (Dechter and Rish, JACM 2003), each minimised by
    itself; their sum is a lower bound.
    """
    devices, count = cost.shape[1], len(graph.steps)
    live: list[dict[int, Factor]] = [{} for _ in range(count)]
    met: list[Counter[int]] = [Counter() for _ in range(count)]  # how many factors a step shares with another
    for factor in _factors(graph, cost, move, most_entries):
        _enter(factor, live, met)
    queue = [(len(met[step]), step) for step in range(count)]
    heapq.heapify(queue)
    left, order, bound_s, room = set(range(count)), list[tuple[int, list[Factor]]](), 0.0, MOST_TABLES
    while queue:
        known, step = heapq.heappop(queue)
        if step not in left or known != len(met[step]):
            continue
        left.remove(step)
        parts = _parts(list(live[step].values()), devices, most_entries if room > 0 else devices**2)
        room -= sum(table.size for _, table in parts)
        order.append((step, parts))
        others = met[step].keys() - {step}
        for factor in list(live[step].values()):
            _leave(factor, live, met)
        for scope, table in parts:
            made = tuple(other for other in scope if other != step), table.min(axis=scope.index(step))
            if not made[0]:
                bound_s += float(made[1])
            _enter(made, live, met)
        for other in others:
            heapq.heappush(queue, (len(met[other]), other))
    placed = np.zeros(len(live), int)
    for step, parts in reversed(order):
        placed[step] = int(np.argmin(sum(_row(factor, step, placed) for factor in parts)))
    _improve(graph, cost, move, placed)
    return placed, bound_s


def _enter(factor: Factor, live: list[dict[int, Factor]], met: list[Counter[int]]) -> None:
    for step in factor[0]:
        live[step][id(factor)] = factor
        met[step].update(factor[0])


def _leave(factor: Factor, live: list[dict[int, Factor]], met: list[Counter[int]]) -> None:
    for step in factor[0]:
        del live[step][id(factor)]
        for other in factor[0]:
            met[step][other] -= 1
            if not met[step][other]:
                del met[step][other]


def _factors(graph: StepGraph, cost: np.ndarray, move: np.ndarray, most_entries: int) -> list[Factor]:
    """Return the cost factors of single steps and of transfers between steps.

    Where too many steps read one result for a table, the transfer's cost is bounded below by the mean of its readers'
    separate transfers.
    """
    devices = cost.shape[1]
    factors: list[Factor] = [((step,), row) for step, row in enumerate(cost)]
    room = MOST_TABLES
    for step, readers in enumerate(graph.readers):
        size = max(devices, 2) ** (len(readers) + 1)
        if size <= (most_entries if room > 0 else devices**2):
            room -= size
            factors += [((step, *readers), _moved(move[step], len(readers)))] if readers else []
        else:
            factors += [((step, reader), move[step] / len(readers)) for reader in readers]
    return factors


def _moved(move: np.ndarray, readers: int) -> np.ndarray:
    """Return what moving a result costs, by the device that has it and those of its readers, each paid for once."""
    devices = len(move)
    where = np.indices((devices,) * readers)
    table = np.zeros((devices,) * (readers + 1))
    for target in range(devices):
        needed = (where == target).any(axis=0)
        table += np.where(needed, move[:, target].reshape(-1, *(1,) * readers), 0.0)
    return table


def _parts(factors: Sequence[Factor], devices: int, most_entries: int) -> list[Factor]:
    """Add up factors in as few tables as their size allows."""
    groups: list[tuple[set[int], list[Factor]]] = []
    for factor in sorted(factors, key=lambda one: -len(one[0])):
        for scope, members in groups:
            if max(devices, 2) ** len(scope.union(factor[0])) <= most_entries:
                scope.update(factor[0])
                members.append(factor)
                break
        else:
            groups.append((set(factor[0]), [factor]))
    return [_added(tuple(sorted(scope)), members) for scope, members in groups]


def _added(scope: tuple[int, ...], factors: Sequence[Factor]) -> Factor:
    devices = factors[0][1].shape[0]
    table = np.zeros((devices,) * len(scope))
    for steps, values in factors:
        table += values.reshape([devices if step in steps else 1 for step in scope])
    return scope, table


def _row(factor: Factor, step: int, placed: np.ndarray) -> np.ndarray:
    """What a factor says of each device of ``step``, the others being placed: (devices,)."""
    scope, table = factor
    row: np.ndarray = table[tuple(slice(None) if other == step else placed[other] for other in scope)]
    return row


def _improve(graph: StepGraph, cost: np.ndarray, move: np.ndarray, placed: np.ndarray) -> None:
    """Move one step at a time to where it is best, given the others, until none gains."""

    there = np.zeros(cost.shape, int)  # how many readers of each step run on each device
    for step, readers in enumerate(graph.readers):
        np.add.at(there[step], placed[list(readers)], 1)
    for _ in range(SWEEPS):
        before = placed.copy()
        for number, one in enumerate(graph.steps):
            read = {graph.number[name] for name in one.after}
            takes = cost[number] + move[number][:, there[number] > 0].sum(axis=1)
            for earlier in read:
                there[earlier, placed[number]] -= 1
                row, paid = move[earlier, placed[earlier]], there[earlier] > 0
                takes = takes + row[paid].sum() + np.where(paid, 0.0, row)
            best = int(np.argmin(takes))
            if takes[best] < takes[placed[number]]:
                placed[number] = best
            for earlier in read:
                there[earlier, placed[number]] += 1
        if (placed == before).all():
            return
