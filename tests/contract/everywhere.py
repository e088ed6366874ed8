"""Prints a digest of what must be the same on every host: ``python -m tests.contract.everywhere``.

Patterns are full of ties: equal degrees, equal lengths, equal signatures. A sort that breaks them by the instructions of the
processor, a set that is walked in the order of its hashes, or a sum that steers a choice shows here.
"""

import hashlib
import json
from collections.abc import Iterator

import numpy as np

from tensorwise.analysis.footprint import Footprints
from tensorwise.analysis.graph import GraphPattern
from tensorwise.analysis.matrix import MatrixPattern
from tensorwise.analysis.nest import ProgramNest, WorkloadNest
from tensorwise.analysis.tensor import TensorPattern
from tensorwise.collect.augment import Augmentation
from tensorwise.device.spade import SPADES, SpadeDevice
from tensorwise.program.workload import workload
from tensorwise.search.nearest import far_apart, linked
from tensorwise.space.cpu import cpu_space_of
from tensorwise.space.portfolio import portfolio
from tensorwise.store.split import split_families
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format
from tensorwise.tensor.orders import ORDERS, permutation
from tensorwise.tensor.pack import pack

SPADE_CONFIGS = 24
FORMATS = (
    "(i:rcm,k) -> U(i) C(k)",
    "(i:cluster,k) -> C(i) C(k)",
    "(i:degree,k) -> U(i) C(k)",
    "(i,k:rcm) -> U(i) C(k)",
    "(i:length,k) -> U(i) C(k)",
)


def patterns() -> dict[str, Entries]:
    """Return patterns in which many rows and columns are alike."""
    side = 24
    node = np.arange(side * side).reshape(side, side)
    here = np.concatenate([node[:, :-1].ravel(), node[:-1].ravel()])
    there = np.concatenate([node[:, 1:].ravel(), node[1:].ravel()])
    rng = np.random.default_rng(5)
    rows, columns = np.repeat(np.arange(700), 3), rng.integers(0, 500, 2100)
    hub = np.concatenate([np.arange(300), np.zeros(300, np.int64)])
    return {
        "grid": entries_from(((576, 576), (np.append(here, there), np.append(there, here)), None)),
        "equal rows": entries_from(((700, 500), (rows, columns), None)),
        "star": entries_from(((300, 300), (hub, hub[::-1].copy()), None)),
        "diagonal": entries_from(((400, 400), (np.arange(400), np.arange(400)), None)),
    }


def facts() -> Iterator[tuple[str, object]]:
    """Yield what is computed, by name."""
    for name, entries in patterns().items():
        for order in ORDERS:
            for mode in (0, 1):
                yield f"order {order}, {name}, mode {mode}", permutation(entries, mode, order)
        for text in FORMATS:
            packed = pack(entries, Format.parse(text))
            yield (
                f"packed {text}, {name}",
                [a for level in packed.arrays for a in level.values()] + [packed.values],
            )
        yield f"features of {name}", MatrixPattern().features(entries)
        if entries.shape[0] == entries.shape[1]:
            yield f"graph features of {name}", GraphPattern().features(entries)
        for op in ("spmm", "sddmm"):
            yield from _on_spade(name, op, entries)
        work = workload("spmm", entries, n=32)
        space, rng = cpu_space_of(work), np.random.default_rng(7)
        configs = [*portfolio(space, work), *(space.sample(work, rng) for _ in range(20))]
        yield f"configs of {name}", [str(config) for config in configs]
        nests = [WorkloadNest.of(space.program(work, config), work) for config in configs[:8]]
        yield f"program features of {name}", [ProgramNest().features(nest) for nest in nests]
        drawn = [
            Augmentation.draw(entries.shape, entries.nnz, rng, 10**5, fibres=n % 2 == 1) for n in range(8)
        ]
        yield f"augmentations of {name}", [str(one) for one in drawn]
        made = [one.apply(entries) for one in drawn]
        yield f"augmented {name}", [one.pattern_id for one in made]
        yield f"tensors of {name}", [TensorPattern().features(one) for one in made if one.order == 3]
    points = np.random.default_rng(0).integers(-1, 2, (150, 3)).astype(np.float32)
    points = np.concatenate([points, -points])  # around zero: all distances are exact, and many are equal
    yield "links", list(linked(points, 6))
    yield "far apart", far_apart(points, 12)
    yield (
        "families",
        sorted(split_families([f"f{n % 17}" for n in range(90)], np.random.default_rng(1)).items()),
    )


def _on_spade(name: str, op: str, entries: Entries) -> Iterator[tuple[str, object]]:
    work = workload(op, entries, n=64)
    for machine in SPADES:
        device = SpadeDevice(machine)
        configs = list(device.space(work).enumerate(work))
        some = [configs[int(place)] for place in np.linspace(0, len(configs) - 1, SPADE_CONFIGS)]
        some += [one for one in configs if one["reorder"]][:4]
        yield f"seconds of {op}, {name}, {machine}", [one.seconds for one in device.measure(work, some)]
    mapper = device.space(work).mapper(work)
    footprints = Footprints(entries, mapper.processors)
    strips = [mapper.strips(work, config) for config in some]
    yield f"footprints of {op}, {name}", [footprints.of(one, 64) for one in strips]


def digest(fact: object) -> str:
    """Return a digest of bytes: of arrays, numbers or texts, or a list of them."""
    state = hashlib.sha256()
    for one in fact if isinstance(fact, list) else [fact]:
        state.update(
            one.tobytes() + str(one.dtype).encode() if isinstance(one, np.ndarray) else repr(one).encode()
        )
        state.update(b"|")
    return state.hexdigest()[:16]


if __name__ == "__main__":
    print(json.dumps({name: digest(fact) for name, fact in facts()}))
