"""The kinds of parameters: Choice, Flag, PowerOfTwo and Permutation."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.space.config import Value, same, show
from tensorwise.space.domain import MAX_ITEMS, Domain, Listed, Orders, closure, orders
from tensorwise.space.param import Binds, ListedParam, Param, powers

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

__all__ = ["Binds", "Choice", "Flag", "Param", "Permutation", "PowerOfTwo", "powers"]


def _others(value: Value, domain: Domain) -> list[Value]:
    return [other for other in domain if not same(other, value)]


@final
@dataclass(frozen=True)
class Choice(ListedParam):
    """One of a few named values without an order; encoded one-hot.

    >>> param = Choice("parallel", ("i", "k"), binds="call", doc="Index shared out among threads.")
    >>> param.encoding_names
    ('parallel=i', 'parallel=k', 'parallel?')
    """

    values: tuple[Value, ...]

    @cached_property
    def range(self) -> Listed:
        return Listed(self.values)

    def nearest(self, value: Value, domain: Domain) -> Value:
        """The allowed value that is listed next to ``value``, the earlier one of two: like stands beside like."""
        if value in domain:
            return value
        known = [other for other in domain if other in self.values]
        if value not in self.values or not known:
            return next(iter(domain))
        place = self.values.index(value)
        return min(known, key=lambda other: abs(self.values.index(other) - place))

    def neighbours(self, value: Value, domain: Domain) -> list[Value]:
        return _others(value, domain)

    def mutate(self, value: Value, domain: Domain, rng: np.random.Generator) -> Value:
        others = _others(value, domain)
        return others[int(rng.integers(len(others)))] if others else value

    @property
    def encoding_names(self) -> tuple[str, ...]:
        return (*(f"{self.name}={show(value)}" for value in self.values), f"{self.name}?")

    def encode(self, value: Value, workload: "Workload") -> list[float]:
        return [*(float(same(value, known)) for known in self.values), float(value is not None)]

    def _check(self) -> None:
        distinct = {(type(value), value) for value in self.values}
        if not self.values or len(distinct) < len(self.values) or None in self.values:
            raise InputError(
                f"parameter {self.name!r}: values must be distinct and not None, got {self.values!r}"
            )

    def _foreign(self, value: Value) -> bool:
        return value not in self.range


@final
@dataclass(frozen=True)
class Flag(ListedParam):
    """Yes or no. The first value, taken by default, is no."""

    @cached_property
    def range(self) -> Listed:
        return Listed((False, True))

    def nearest(self, value: Value, domain: Domain) -> Value:
        return value if value in domain else next(iter(domain))

    def neighbours(self, value: Value, domain: Domain) -> list[Value]:
        return _others(value, domain)

    def mutate(self, value: Value, domain: Domain, rng: np.random.Generator) -> Value:
        return next(iter(_others(value, domain)), value)

    @property
    def encoding_names(self) -> tuple[str, ...]:
        return (self.name, f"{self.name}?")

    def encode(self, value: Value, workload: "Workload") -> list[float]:
        return [float(value is True), float(value is not None)]

    def _check(self) -> None:
        """Nothing can be wrong."""

    def _foreign(self, value: Value) -> bool:
        return value not in self.range


@final
@dataclass(frozen=True)
class PowerOfTwo(ListedParam):
    """A power of two from ``lo`` to ``hi``, both included; encoded by its logarithm.

    Attributes:
        extent: the index (a key of ``workload.sizes``), or a function of the workload, whose extent the
            value divides; the value is then also encoded as its share of that extent, in logarithms.
            It does not narrow: ``narrow`` does, and what it returns is intersected with the range.

    >>> param = PowerOfTwo("split", 1, 16, binds="pack", doc="Rows a block; past 16 nothing is reused.")
    >>> param.cardinality, param.encoding_names
    (5, ('split.log2', 'split.share', 'split?'))
    """

    lo: int
    hi: int
    extent: "str | Callable[[Workload], int] | None" = field(default=None, kw_only=True)

    @cached_property
    def range(self) -> Listed:
        return Listed(powers(self.lo, self.hi))

    def nearest(self, value: Value, domain: Domain) -> Value:
        if value is None or not isinstance(value, int):
            return next(iter(domain))
        return min(domain, key=lambda known: _steps(known, value))

    def neighbours(self, value: Value, domain: Domain) -> list[Value]:
        others = _others(value, domain)
        below = [other for other in others if _log2(other) < _log2(value)]
        above = [other for other in others if _log2(other) > _log2(value)]
        return below[-1:] + above[:1]

    def mutate(self, value: Value, domain: Domain, rng: np.random.Generator) -> Value:
        """Step up or down; a step of k places is half as likely as one of k - 1."""
        others = sorted(_others(value, domain), key=lambda other: _steps(other, value))
        if not others:
            return value
        weights = np.exp2([-_steps(other, value) for other in others])
        return others[int(rng.choice(len(others), p=weights / weights.sum()))]

    @property
    def encoding_names(self) -> tuple[str, ...]:
        return (f"{self.name}.log2", f"{self.name}.share", f"{self.name}?")

    def encode(self, value: Value, workload: "Workload") -> list[float]:
        """Return log2(value) / log2(hi), log2(value) / log2(extent) (0 without extent), mask bit."""
        if value is None:
            return [0.0, 0.0, 0.0]
        bits = _log2(value)
        if self.extent is None:
            share = 0.0
        else:
            extent = workload.sizes[self.extent] if isinstance(self.extent, str) else self.extent(workload)
            share = bits / max(math.log2(max(extent, 1)), 1.0)
        return [bits / max(_log2(self.hi), 1.0), share, 1.0]

    def _check(self) -> None:
        for bound in (self.lo, self.hi):
            if not _is_power(bound):
                raise InputError(f"parameter {self.name!r}: lo and hi must be powers of two, got {bound!r}")
        if self.lo > self.hi:
            raise InputError(f"parameter {self.name!r}: lo must not exceed hi, got {self.lo} and {self.hi}")

    def _foreign(self, value: Value) -> bool:
        return not _is_power(value)


def _is_power(value: object) -> bool:
    return type(value) is int and value > 0 and value & (value - 1) == 0


def _log2(value: Value) -> float:
    return math.log2(value) if isinstance(value, int) and value > 0 else 0.0


def _steps(a: Value, b: Value) -> float:
    return abs(_log2(a) - _log2(b))


@final
@dataclass(frozen=True)
class Permutation(Param):
    """An order of items, of which the domain may leave some out; encoded as a matrix item x place.

    ``narrow`` returns the items that are there (the pairs of ``before`` go on holding), or an ``Orders``
    whose pairs hold in addition.

    Attributes:
        items: all items; their order here is the default one.
        before: pairs (a, b): a must stand before b. Pairs that follow from two others hold as well.
        beside: item -> the item it stands right behind in the encoding while it is left out, such as
            an inner loop behind its outer one; without one its row is zero.

    >>> param = Permutation("loops", ("i1", "i0", "k"), before=(("i1", "i0"),), beside={"i0": "i1"},
    ...                     binds="compile", doc="Loop order; an inner loop needs its outer one first.")
    >>> param.cardinality
    3
    >>> param.tokens(("k", "i1")), param.tokens(("k", "i1", "i0"))
    ([2, 0, 1], [2, 3, 1])
    """

    items: tuple[str, ...]
    before: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    beside: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)

    @cached_property
    def _all(self) -> Orders:
        return Orders(self.items, closure(self.before))

    @property
    def cardinality(self) -> int:
        return self._all.size

    def misfit(self, value: Value) -> str | None:
        if value is None:
            return None
        if not isinstance(value, tuple):
            return f"{show(value)} is not a tuple of {', '.join(self.items)}"
        if unknown := [item for item in value if item not in self.items]:
            return f"{show(value)} names {', '.join(unknown)}; known are {', '.join(self.items)}"
        if len(set(value)) < len(value):
            return f"{show(value)} names an item twice"
        return None

    def nearest(self, value: Value, domain: Domain) -> Value:
        """Keep the order of ``value`` as far as the pairs allow; new items go behind their ``beside``."""
        if not isinstance(domain, Orders):
            return next(iter(domain))
        return domain.nearest(self._ranks(value))

    def neighbours(self, value: Value, domain: Domain) -> list[Value]:
        """Exchange two adjacent items: such steps lead from any order to any other."""
        order = value if isinstance(value, tuple) else ()
        swaps: list[Value] = [
            (*order[:k], order[k + 1], order[k], *order[k + 2 :]) for k in range(len(order) - 1)
        ]
        return [swap for swap in swaps if swap in domain]

    def mutate(self, value: Value, domain: Domain, rng: np.random.Generator) -> Value:
        """Move one item to another place."""
        order = value if isinstance(value, tuple) else ()
        moved: dict[Value, None] = {}
        for source, item in enumerate(order):
            rest = order[:source] + order[source + 1 :]
            for target in range(len(order)):
                moved[(*rest[:target], item, *rest[target:])] = None
        others = [other for other in moved if other != value and other in domain]
        return others[int(rng.integers(len(others)))] if others else value

    def cross(self, a: Value, b: Value, domain: Domain, rng: np.random.Generator) -> Value:
        """Fill each place with the first unused item of one parent: ``b`` between two cuts, else ``a``.

        A pair that holds in both parents holds in the child (precedence-preserving order crossover).
        """
        parents = [
            self.nearest(parent, domain) for parent in (a if a is not None else b, b if b is not None else a)
        ]
        first, second = ([*parent] if isinstance(parent, tuple) else [] for parent in parents)
        if not first:
            return None
        lo, hi = sorted(int(cut) for cut in rng.integers(len(first) + 1, size=2))
        child: list[str] = []
        for place in range(len(first)):
            source = second if lo <= place < hi else first
            child.append(next(item for item in source if item not in child))
        return tuple(child)

    @property
    def encoding_names(self) -> tuple[str, ...]:
        cells = (f"{self.name}[{item}]@{place}" for item in self.items for place in range(len(self.items)))
        return (*cells, f"{self.name}?")

    def encode(self, value: Value, workload: "Workload") -> list[float]:
        shown = self._shown(value)
        cells = [
            float(item in shown and shown.index(item) == k)
            for item in self.items
            for k in range(len(self.items))
        ]
        return [*cells, float(value is not None)]

    @property
    def token_sizes(self) -> tuple[int, ...]:
        return (1 + len(self.items),) * len(self.items)

    def tokens(self, value: Value) -> list[int]:
        """Return for each item 1 + its place, 0 when left out."""
        order = value if isinstance(value, tuple) else ()
        return [1 + order.index(item) if item in order else 0 for item in self.items]

    def _ranks(self, value: Value) -> dict[str, float]:
        order = value if isinstance(value, tuple) else self.items
        ranks = {item: float(k) for k, item in enumerate(order)}
        for item, neighbour in self.beside.items():
            if item not in ranks and neighbour in ranks:
                ranks[item] = ranks[neighbour] + 0.5
        return ranks

    def _shown(self, value: Value) -> Sequence[str]:
        """``value`` with left-out items put behind the item they stand beside."""
        if not isinstance(value, tuple):
            return ()
        ranks = self._ranks(value)
        return sorted(ranks, key=lambda item: ranks[item])

    def _check(self) -> None:
        if len(self.items) > MAX_ITEMS:
            raise InputError(f"parameter {self.name!r}: at most {MAX_ITEMS} items, got {len(self.items)}")
        for pair in (*self.before, *self.beside.items()):
            if len(pair) != 2 or not set(pair) <= set(self.items):
                raise InputError(
                    f"parameter {self.name!r}: {pair!r} must be a pair of its items {self.items}"
                )
        _ = self._all  # refuses repeated items and cyclic pairs

    def _restrict(self, allowed: Iterable[Value] | Domain | None) -> Domain:
        if allowed is None:
            return self._all
        items, extra = (
            (allowed.items, allowed.before) if isinstance(allowed, Orders) else (tuple(allowed), ())
        )
        if not items or len(set(items)) < len(items) or not set(items) <= set(self.items):
            raise InputError(
                f"narrow of parameter {self.name!r} gave {items!r}; expected some of its items {self.items}, "
                "or None where it does not apply"
            )
        kept = tuple(item for item in self.items if item in items)
        return orders(kept, tuple(dict.fromkeys((*self._all.before, *extra))))
