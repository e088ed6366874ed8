"""One stored tensor read by several operations: storage worth trying, and the choices that it leaves to each."""

import contextlib
from dataclasses import replace
from itertools import pairwise, product
from typing import Final

from tensorwise.errors import InputError
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config, Value
from tensorwise.space.cpu import CpuSpace
from tensorwise.space.domain import orders
from tensorwise.space.param import Narrow, Param
from tensorwise.space.params import Permutation
from tensorwise.space.readings import operand, present, stored_loops, strings

SHORT: Final = 2**16
"""Extents up to this have coordinates of 16 bits."""


def keeping(space: CpuSpace, config: Config) -> CpuSpace:
    """Return the choices of ``space`` that are left once the operand is stored as ``config`` stores it.

    ``config`` may belong to another operation on the same operand, if both call its indices the same. The operand's
    loops follow its levels, so that no coordinate is searched for; where dense loops stand among them, what
    threads share and what runs in registers is still open.
    """
    stored = stored_loops(config)
    fixed: dict[str, Value] = {
        param.name: config[param.name] for param in space.params if param.binds == "pack"
    }
    fixed |= {"levels_follow_loops": True, "levels": None}
    pairs = tuple(pairwise(stored))

    def fix_domain(param: Param) -> Param:
        if param.name == "order" and isinstance(param, Permutation):
            items = param.items
            return replace(param, narrow=lambda earlier, w: orders(present(items, earlier), pairs))
        return replace(param, narrow=_only(fixed[param.name])) if param.name in fixed else param

    return replace(space, params=tuple(fix_domain(param) for param in space.params))


def _only(value: Value) -> Narrow:
    return lambda earlier, w: None if value is None else (value,)


def common(space: CpuSpace, work: Workload) -> list[Config]:
    """Return configs whose storage suits operations along any mode: fibres below each mode, and a list of entries.

    Below the root the short modes come first, as in SPLATT (Smith and Karypis, "Tensor-matrix products with a
    compressed sparse tensor", 2015): then most entries share their upper coordinates. The longest root leads.
    """
    modes = sorted(operand(work).indices, key=lambda mode: work.sizes[mode])
    free = [index for index in work.assignment.indices if index not in modes]
    found: list[Config] = []
    for root in reversed(modes):
        below = [mode for mode in modes if mode != root]
        kinds: dict[str, Value] = {
            f"kind_{mode}1": "C16" if work.sizes[mode] <= SHORT else "C" for mode in below
        }
        if work.sizes[root] > work.entries.nnz:
            kinds[f"kind_{root}1"] = "C"  # most rows are empty
        order = tuple(f"{index}1" for index in (root, *below, *free))
        found.append(space.complete({"order": order, **kinds}, work))
    entries = tuple(f"{index}1" for index in (*operand(work).indices, *free))
    return [*found, space.complete({"layout": "list", "order": entries}, work)]


def starts(space: CpuSpace, work: Workload) -> list[Config]:
    """Return the configs to try first for an operand whose storage is given.

    They differ in the loops that keep partial results or products in registers, and in how threads add to shared outputs:
    for each loop nest, first private copies of the output, then one thread (no copies), then atomic additions.
    """
    begin = space.default(work)
    stored = stored_loops(begin)
    free = [loop for loop in strings(begin["order"]) if loop not in stored]
    count = len(stored)
    places = dict.fromkeys((1, count - 1, *range(2, count + 1)))
    nests = [(*stored[:place], *free, *stored[place:]) for place in places]
    copies, alone, atomic = (
        {"parallel": stored[0]},
        {"parallel": "none"},
        {"parallel": stored[0], "reduction": "atomic"},
    )
    found: dict[Config, None] = {}
    for nest, shared in (*product(nests, (copies, alone)), *product(nests, (atomic,))):
        partial: dict[str, Value] = {"order": nest, **shared}
        with contextlib.suppress(InputError):
            config = space.complete(partial, work)
            if all(config[name] == value for name, value in partial.items()):
                found[config] = None
    return list(found)
