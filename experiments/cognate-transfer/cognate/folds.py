"""Which families are tested on what was learned from the others, and which matrices of those are learned from."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensorwise.adapt.sampling import select_informative
from tensorwise.model.reader import Reader
from tensorwise.model.samples import Group


@dataclass(frozen=True)
class Fold:
    """Some families to test on, and what may be learned from.

    Attributes:
        number: from 0.
        tests: by name, the target's matrices of the families to test on.
        learn: by name, the target's other matrices.
        source: workloads of the source, none of a tested family.
    """

    number: int
    tests: Mapping[str, Group]
    learn: Mapping[str, Group]
    source: Sequence[Group]

    def rng(self, draw: int) -> np.random.Generator:
        """Return the generator of a draw: the same matrices for all ways."""
        return np.random.default_rng([self.number, draw])

    def some(self, count: int, draw: int) -> list[Group]:
        """Draw ``count`` matrices to learn from."""
        return [self.learn[name] for name in drawn(list(self.learn), count, self.rng(draw))]


def folds(target: Mapping[str, Group], source: Sequence[Group], count: int) -> list[Fold]:
    """Return the folds: whole families, folds of about one size, each pattern tested in one of them."""
    sizes = Counter(group.family for group in target.values())
    fold_of: dict[str, int] = {}
    held = [0] * count
    for family, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        fold_of[family] = held.index(min(held))
        held[fold_of[family]] += size
    found = []
    for number in range(count):
        tests = {name: group for name, group in target.items() if fold_of[group.family] == number}
        learn = {name: group for name, group in target.items() if name not in tests}
        families = {group.family for group in tests.values()}
        found.append(Fold(number, tests, learn, [one for one in source if one.family not in families]))
    return found


def drawn(names: list[str], count: int, rng: np.random.Generator) -> list[str]:
    """Draw some patterns."""
    return [names[int(place)] for place in rng.permutation(len(names))[:count]]


def chosen(groups: Mapping[str, Group], count: int) -> list[str]:
    """Choose the patterns that tell most, by what configs make the device do with them."""
    names = list(groups)
    return [
        names[place]
        for place in select_informative([Reader.counts(one.configs) for one in groups.values()], count)
    ]


def informative(terms: np.ndarray, count: int, first: int = 0) -> list[int]:
    """Choose rows of ``terms``, (things, terms), of which a linear fit to those before knows least; ``first`` comes first.

    What is not known of a row, its variance given the others, does not depend on what they turn out to be: all can be chosen
    before any is measured. It is what a pivoted Cholesky decomposition of the products of rows leaves of its diagonal. Only
    differences from the mean row count. Fewer rows are returned where the others are known by then.

    >>> informative(np.array([[0.0, 0.0], [1.0, 0.0], [1.1, 0.0], [0.0, 1.0], [0.0, 0.9]]), 3)
    [0, 3]
    """
    rows = terms - terms.mean(axis=0)
    left = np.einsum("ij,ij->i", rows, rows)
    least = 1e-9 * max(float(left.max(initial=0.0)), 1e-30)
    factors = np.zeros((min(count, len(rows)), len(rows)))
    chosen: list[int] = []
    while len(chosen) < len(factors):
        place = int(left.argmax()) if chosen else first
        if chosen and left[place] <= least:
            break
        known = factors[: len(chosen)]
        factor = rows @ rows[place] - known.T @ known[:, place]
        factors[len(chosen)] = factor / np.sqrt(max(left[place], least))
        left = np.maximum(left - factors[len(chosen)] ** 2, 0.0)
        chosen.append(place)
        left[chosen] = 0.0
    return chosen
