"""The program that a config of the CPU's space stands for as far as it is chosen: directives say what may follow."""

import math
from collections import ChainMap
from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from tensorwise.lower.plan import Plan
from tensorwise.lower.program import Program
from tensorwise.program.einsum import Access, Assignment
from tensorwise.program.schedule import (
    CONSTANT_SPLIT,
    Bound,
    Directive,
    Factor,
    Locate,
    Parallel,
    Prefetch,
    Reorder,
    Schedule,
    Split,
    Tile,
    Unroll,
)
from tensorwise.program.workload import Workload
from tensorwise.space.config import Value
from tensorwise.space.param import Earlier
from tensorwise.space.readings import (
    block_loops,
    innermost_stored,
    loop_axes,
    loops_of,
    made_choices,
    number,
    operand,
    prefetched,
    separate_sum,
    splits,
    stored_format,
    strings,
)

_Nests: TypeAlias = "dict[tuple[Value, ...], Plan]"
_NESTS: Final[WeakKeyDictionary[Workload, _Nests]] = WeakKeyDictionary()
_MOST_NESTS: Final = 4096
"""Nests that are remembered for workloads of a kind; they are made again where a search asks for more."""
CHOICES: Final = (
    "parallel", "policy", "chunk", "parts", "reduction", "tile", "vectors", "vector_bytes", "bound", "factor",
    "unroll_blocks", "unroll", "prefetch",
)  # fmt: skip
"""The Params of `running` in their order."""
SIZES: Final = ("chunk", "parts", "reduction", "vectors", "vector_bytes")
"""Those of which any value is legal: what comes later does not depend on them."""
_BEFORE: Final = {
    name: [one for one in CHOICES[: place + 1] if one not in SIZES] for place, name in enumerate(CHOICES)
}
_STORED: Final = ("layout", "order", "rows", "levels_follow_loops", "levels", "short")


def nest_so_far(config: Earlier, workload: Workload) -> Plan:
    """Return the plan once it is chosen how the operand is stored and which loops there are, without other directives."""
    known = _NESTS.get(workload)
    if known is None:
        known = _NESTS[workload] = _nests_like(workload)
    choices = tuple([config[name] for name in _stored_names(workload.assignment, operand(workload))])
    nest = known.get(choices)  # asked for many domains, and again for the program
    if nest is None:
        if len(known) >= _MOST_NESTS:
            known.clear()
        access = operand(workload)
        order = Reorder(tuple(axis.name for axis in loop_axes(config, access.indices).values()))
        located = [Locate(access.tensor)] if config["layout"] == "numbers" else []
        schedule = Schedule((*(Split(mode, size) for mode, size in splits(config).items()), order, *located))
        formats = {access.tensor: stored_format(config, access.indices)}
        program = Program(workload.assignment, formats, schedule)
        nest = known[choices] = program.plan(workload.elem, sizes=workload.sizes, halves=workload.halves)
    return nest


def _nests_like(workload: Workload) -> _Nests:
    """Return the nests of all workloads that differ in their entries, and in sizes that no plan distinguishes."""
    multiples = tuple(math.gcd(size, CONSTANT_SPLIT) for size in workload.sizes.values())
    empty = tuple(size == 0 for size in workload.sizes.values())
    halves = tuple(sorted(workload.halves.items()))
    return _shared_nests(
        workload.assignment, operand(workload).tensor, workload.elem, halves, multiples, empty
    )


@lru_cache(maxsize=64)
def _shared_nests(*_kind: Hashable) -> _Nests:
    """Return the nests of workloads of a kind, at first none: matrices of one operation agree on what is legal."""
    return {}


@lru_cache(maxsize=256)
def _stored_names(assignment: Assignment, stored: Access) -> tuple[str, ...]:
    """Return the Params that `nest_so_far` asks for."""
    splits = [f"split_{index}" for index in assignment.indices]
    return (*_STORED, *splits, *(f"kind_{loop}" for loop in loops_of(stored.indices)))


def directives_so_far(
    config: Earlier, workload: Workload, nest: Plan, names: Iterable[str] = CHOICES
) -> Iterator[Directive]:
    """Yield how the loops of ``nest`` run, by the choices of these names; other sizes are such as are legal."""
    loops = dict(zip(strings(config["order"]), nest.schedule.order or (), strict=True))
    chosen = made_choices(config, names)
    if "parallel" in chosen:
        policy, reduction = str(chosen.get("policy", "dynamic")), str(chosen.get("reduction", "atomic"))
        chunk = number(chosen.get("chunk" if policy == "dynamic" else "parts", 1))
        yield Parallel(loops[str(chosen["parallel"])], policy, chunk, reduction)
    tile = str(chosen.get("tile", ""))
    if tile:
        lanes = number(chosen.get("vector_bytes", 2 * workload.dtype.itemsize)) // workload.dtype.itemsize
        yield Tile(loops[tile], number(chosen.get("vectors", 1)), lanes)
    if "bound" in chosen:
        yield Bound(tile[:-1], workload.sizes[tile[:-1]])
    if "factor" in chosen:
        yield Factor(loops[str(separate_sum(config, workload))])
    if "unroll_blocks" in chosen:
        yield from (Unroll(loops[loop]) for loop in block_loops(config))
    if "unroll" in chosen and chosen["unroll"] != 1:
        yield Unroll(loops[innermost_stored(config)], number(chosen["unroll"]))
    if "prefetch" in chosen:
        yield Prefetch(str(prefetched(config, workload)), number(chosen["prefetch"]))


def allows(earlier: Earlier, workload: Workload, name: str, value: Value) -> bool:
    """Whether directives allow a choice after the earlier ones. Of these no other is looked at."""
    nest = nest_so_far(earlier, workload)
    config = ChainMap({name: value}, earlier)  # type: ignore[arg-type]
    return nest.allows(*directives_so_far(config, workload, nest, _BEFORE[name]))
