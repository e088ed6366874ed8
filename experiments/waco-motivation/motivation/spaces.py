"""Tuning spaces that are parts of the CPU's space, and configs moved between matrices or towards the default.

*Format-only* varies what binds when the operand is packed, *schedule-only* what binds at compile or call time; the
rest stays as in the default config. One Param is both: the order of the loops. Its stored loops stand in the
order of the levels, so their order belongs to the format; where the dense loops stand belongs to the schedule.
Thus format-only keeps WACO's definition: the iteration order of the baseline, concordant with the format.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise, product
from typing import Final

import numpy as np

from tensorwise.program.workload import Workload
from tensorwise.space.config import Config, Value
from tensorwise.space.cpu import CpuSpace, cpu_space
from tensorwise.space.param import Param
from tensorwise.space.params import Choice, Permutation, PowerOfTwo

FACTORS: Final[Mapping[str, tuple[str, ...]]] = {
    "layout": ("layout", "short"),
    "hybrid": ("apart",),
    "row order": ("rows",),
    "blocks": ("split_",),
    "level kinds": ("kind_",),
    "order": ("order", "levels"),
    "load balance": ("parallel", "policy", "chunk", "parts", "reduction"),
    "vector code": ("tile", "vector", "bound"),
    "unrolling": ("unroll",),
    "factored sums": ("factor",),
    "prefetch": ("prefetch",),
    "dense strips": (),
}
"""Source of a speed-up -> beginnings of the names of its Params; splits of dense indices are dense strips."""


def joint(work: Workload) -> CpuSpace:
    """Return the whole space."""
    return cpu_space(work.assignment, "A")


def format_only(work: Workload) -> CpuSpace:
    """Return the space of formats under the default schedule."""
    space = joint(work)
    stored = work.assignment.access("A").indices
    order = _order(space.default(work))
    kept = {(outer, loop) for outer, loop in pairwise(order) if loop[:-1] not in stored}
    frozen = [param for param in space.params if param.binds != "pack"]
    return _restricted(space, work, frozen, lambda order: kept <= set(pairwise(order)))


def schedule_only(work: Workload) -> CpuSpace:
    """Return the space of schedules for the default format, CSR."""
    space = joint(work)
    stored = work.assignment.access("A").indices

    def levels(order: Iterable[str]) -> list[str]:
        return [loop for loop in order if loop[:-1] in stored]

    csr = levels(_order(space.default(work)))
    frozen = [param for param in space.params if param.binds == "pack"]
    return _restricted(space, work, frozen, lambda order: levels(order) == csr)


SPACES: Final[Mapping[str, Callable[[Workload], CpuSpace]]] = {
    "format": format_only,
    "schedule": schedule_only,
    "joint": joint,
}
"""The tuning spaces of Table 2.1."""


def _order(config: Mapping[str, Value]) -> tuple[str, ...]:
    order = config["order"]
    assert isinstance(order, tuple)
    return order


def _restricted(
    space: CpuSpace, work: Workload, frozen: Iterable[Param], keeps: Callable[[tuple[str, ...]], bool]
) -> CpuSpace:
    """Freeze Params to the default config, and let only orders that ``keeps`` accepts."""
    default, names = space.default(work), {param.name for param in frozen} - {"order"}
    params = [_frozen(param, default[param.name]) if param.name in names else param for param in space.params]
    params = [_listed(param, space, work, keeps) if param.name == "order" else param for param in params]
    return replace(space, params=tuple(params))


def _frozen(param: Param, value: Value) -> Param:
    """Allow the default config's value only, or the Param's own default where that value is not allowed."""

    def narrow(earlier: Mapping[str, Value], work: Workload) -> tuple[Value, ...] | None:
        domain = param.domain(earlier, work)
        if None in domain:
            return None
        return (value if value in domain else param.default(domain, earlier, work),)

    return replace(param, narrow=narrow)


def _listed(param: Param, space: CpuSpace, work: Workload, keeps: Callable[[tuple[str, ...]], bool]) -> Param:
    """Return the orders that ``keeps`` accepts as a Choice, since a Permutation allows all that nest rightly."""

    def allowed(earlier: Mapping[str, Value]) -> list[Value]:
        return [order for order in param.domain(earlier, work) if isinstance(order, tuple) and keeps(order)]

    splits = [one.name for one in space.params if one.name.startswith("split_")]
    coordinates: dict[str, Value] = {"layout": "coordinates"}  # which any order goes with
    cases = [
        coordinates | dict(zip(splits, sizes, strict=True)) for sizes in product((1, 2), repeat=len(splits))
    ]
    every = dict.fromkeys(order for case in cases for order in allowed(case))
    return Choice(
        param.name, tuple(every), binds=param.binds, doc=param.doc, prefer=param.prefer,
        narrow=lambda earlier, w: allowed(earlier),
    )  # fmt: skip


# -- configs elsewhere ---------------------------------------------------------------------------------


def moved(config: Config, work: Workload, back: Iterable[str] = ()) -> tuple[Config, list[str]]:
    """Return ``config`` as ``work`` allows it, the Params named ``back`` at their defaults, and the others that changed.

    A number or an order that is not allowed here moves to the nearest one, anything else to its default. (Other than
    ``complete`` nothing is drawn at random where a rule refuses the outcome.)

    Raises:
        InputError: a rule refuses it.
    """
    space, turned = joint(work), set(back)
    here: dict[str, Value] = {}
    for param in space.params:
        value, domain = config[param.name], param.domain(here, work)
        given = value is not None and param.name not in turned
        if given and (value in domain or isinstance(param, PowerOfTwo | Permutation)):
            here[param.name] = param.nearest(value, domain)
        else:
            here[param.name] = param.default(domain, here, work)
    space.check(here, work)
    changed = [name for name, value in here.items() if config[name] != value and name not in turned]
    return Config(here), changed


def factors(work: Workload) -> dict[str, list[str]]:
    """Return the Params behind each source of a speed-up."""
    found: dict[str, list[str]] = {factor: [] for factor in FACTORS}
    for param in joint(work).params:
        factor = next(factor for factor, starts in FACTORS.items() if any(map(param.name.startswith, starts)))
        strips = factor == "blocks" and param.binds != "pack"
        found["dense strips" if strips else factor].append(param.name)
    return found


def class_of(factor: str, config: Config, work: Workload) -> str:
    """Return the row of Table 5.3 that a source belongs to; where it has none, the source itself."""
    stored = work.assignment.access("A").indices
    if factor == "load balance":
        column = str(config["parallel"])[:-1] == stored[-1] and work.keeps_pattern
        return "Parallelize over column" if column else "Load balance (OpenMP chunk size)"
    if factor != "blocks":
        return factor[0].upper() + factor[1:]
    if config["layout"] != "coordinates":
        return "Slices of rows"
    inner = [loop for loop in _order(config) if loop[-1] == "0" and loop[:-1] in stored]
    if any(config[f"kind_{loop}"] != "U" for loop in inner):
        return "Sparse block"
    return "Dense block > 50 % filled" if block_fill(config, work) > 0.5 else "Dense block < 50 % filled"


def block_fill(config: Config, work: Workload) -> float:
    """Return the share of the positions of nonempty blocks that hold an entry."""
    stored = work.assignment.access("A").indices
    sizes = [size if isinstance(size := config[f"split_{index}"], int) else 1 for index in stored]
    blocks = np.stack([c // size for c, size in zip(work.entries.coordinates, sizes, strict=True)])
    return work.entries.nnz / (int(np.unique(blocks, axis=1).shape[1]) * math.prod(sizes))
