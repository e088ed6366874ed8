"""Trained models in experiments, and matrices of the corpus whose families they have not learned from."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus import Item, items
from benchmarks.splits import splits
from tensorwise.errors import InputError
from tensorwise.model.model import describe


@dataclass(frozen=True)
class Learned:
    """A trained model, as its card describes it.

    Attributes:
        folder: where it is kept.
        id: the beginning of its checksum.
        op: the operation.
        families: those that it has learned from, or that chose its best epoch; empty where it does not say.
        einsum: what it was made for; empty where it does not say.
    """

    folder: Path
    id: str
    op: str
    families: frozenset[str]
    einsum: str


def learned_of(folder: Path) -> Learned:
    """Return what the card of the model in ``folder`` says.

    Raises:
        InputError: there is no model, or it has no card.
    """
    described = describe(folder)
    card = described["card"]
    if "op" not in card:
        raise InputError(f"the model in {folder} has no card; take one that `tensorwise train` made")
    split = card.get("split", {})
    families = frozenset(name for part in ("training", "validation") for name in split.get(part, ()))
    return Learned(folder, str(described["sha256"])[:16], card["op"], families, str(card.get("einsum", "")))


def matrices(
    op: str,
    learned: Collection[str],
    n: int | None,
    sizes: Mapping[str, Any],
    only: Collection[str] = (),
) -> list[Item]:
    """Return matrices, or tensors of order 3, of families that were not learned from, smallest first.

    A family is an origin (``experiments/splits.toml``): of a graph that was learned from no tensor is taken.

    Args:
        learned: groups of the corpus's manifest; where there are none, the families of the part ``test`` are taken.
        n: extent of the dense-only index.
        sizes: ``least`` nonzeros, ``most_terms`` (nonzeros times n), and how many are taken ``per_family``, of all sizes.
        only: names; those and no others are taken, of whatever family and size.
    """
    order = 3 if op == "mttkrp" else 2
    known = [item for item in items(order) if item.order == order]
    if only:
        splits().refuse(only)
        return [item for item in known if item.name in only]
    families: defaultdict[str, list[Item]] = defaultdict(list)
    met, tested = splits().met(learned), splits().patterns["test"]
    for item in known:
        family = splits().family(item.name, item.family)
        new = not met & {family, item.family} if learned else family in tested
        if new and sizes["least"] <= item.nonzeros <= sizes["most_terms"] // (n or 1):
            families[item.family].append(item)
    found = [item for some in families.values() for item in spread(some, sizes["per_family"])]
    return sorted(found, key=lambda item: (item.nonzeros, item.name))


def spread(some: Sequence[Item], count: int | None) -> list[Item]:
    """Return so many of ``some``, at equal distances; None: all."""
    count = len(some) if count is None else count
    step = max(1.0, len(some) / count)
    return [some[int((place + 0.5) * step)] for place in range(min(count, len(some)))]
