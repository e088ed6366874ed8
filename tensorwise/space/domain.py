"""Domain: the values that one Param may take, given what was chosen before it.

A domain is never empty. One that holds only None means: this Param does not apply here.
"""

import abc
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.space.config import Value, same, show

MAX_ITEMS = 16
"""Longest permutation: counting its orders visits up to 2**16 subsets (about a second, once)."""


class Domain(abc.ABC):
    """A finite, non-empty set of values that can be counted, listed and drawn from uniformly."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number of values, at least 1."""

    @abc.abstractmethod
    def __contains__(self, value: Value) -> bool: ...

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Value]: ...

    @abc.abstractmethod
    def sample(self, rng: np.random.Generator) -> Value:
        """Draw one value; all are equally likely."""

    @abc.abstractmethod
    def refuse(self, value: Value) -> str:
        """Return in a few words why ``value`` is not in this domain and what is."""


@final
@dataclass(frozen=True)
class Listed(Domain):
    """A domain given by its values, in order.

    >>> 4 in Listed((1, 2, 4)), True in Listed((1, 2, 4))
    (True, False)
    """

    values: tuple[Value, ...]

    @cached_property
    def _typed(self) -> frozenset[tuple[type, Value]]:
        """Values with their types, because ``True == 1``."""
        return frozenset((type(value), value) for value in self.values)

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def active(self) -> bool:
        """Whether the Param applies at all."""
        return self.values != (None,)

    def __contains__(self, value: Value) -> bool:
        return (type(value), value) in self._typed

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values)

    def sample(self, rng: np.random.Generator) -> Value:
        return self.values[int(rng.integers(len(self.values)))]

    def refuse(self, value: Value) -> str:
        if not self.active:
            return f"it does not apply here (inactive), so {show(value)} must be left out (None)"
        shown = [show(known) for known in self.values]
        if len(shown) > 12:
            shown = [*shown[:6], "...", *shown[-3:]]
        odd = not any(type(value) is type(known) for known in self.values)
        given = f"{value!r} ({type(value).__name__})" if odd else show(value)
        return f"{given} is not allowed here; choose one of {', '.join(shown)}"


INACTIVE = Listed((None,))


@final
class Later(Domain):
    """A domain of which one value is known; the others are computed when they are first asked for.

    For domains that take longer to compute than a call of a small kernel. A default config takes the known value at once.

    Args:
        sure: the value that is known.
        find: returns the whole domain; called once, if at all.

    >>> domain = Later("none", lambda: Listed(("none", "rows")))
    >>> "none" in domain, list(domain)
    (True, ['none', 'rows'])
    """

    def __init__(self, sure: Value, find: Callable[[], Domain]) -> None:
        self.sure, self._find = sure, find

    @cached_property
    def whole(self) -> Domain:
        """The whole domain."""
        return self._find()

    @property
    def size(self) -> int:
        return self.whole.size

    def __contains__(self, value: Value) -> bool:
        return same(value, self.sure) or value in self.whole

    def __iter__(self) -> Iterator[Value]:
        return iter(self.whole)

    def sample(self, rng: np.random.Generator) -> Value:
        return self.whole.sample(rng)

    def refuse(self, value: Value) -> str:
        return self.whole.refuse(value)


@final
@dataclass(frozen=True)
class Orders(Domain):
    """All orders of ``items`` in which ``a`` stands before ``b`` for each pair (a, b) of ``before``.

    Pairs that name an absent item are ignored. Orders are built front to back from the items whose
    predecessors are all placed, so that no order is ever drawn and thrown away.

    >>> domain = Orders(("i1", "i0", "k"), before=(("i1", "i0"),))
    >>> domain.size, list(domain)[0]
    (3, ('i1', 'i0', 'k'))
    >>> ("i0", "i1", "k") in domain
    False
    """

    items: tuple[str, ...]
    before: tuple[tuple[str, str], ...] = field(default=())

    def __post_init__(self) -> None:
        if len(set(self.items)) != len(self.items) or not self.items:
            raise InputError(f"the items of an order must be distinct and at least one, got {self.items}")
        if len(self.items) > MAX_ITEMS:
            raise InputError(
                f"an order may have at most {MAX_ITEMS} items, got {len(self.items)}: {self.items}"
            )
        if self._ways(0) == 0:
            raise InputError(f"no order of {self.items} satisfies {self.before}: the pairs form a cycle")

    @cached_property
    def _needs(self) -> tuple[int, ...]:
        """For each item the bit set of items that must stand before it."""
        place = {item: k for k, item in enumerate(self.items)}
        needs = [0] * len(self.items)
        for a, b in self.before:
            if a in place and b in place:
                needs[place[b]] |= 1 << place[a]
        return tuple(needs)

    def _ways(self, placed: int) -> int:
        """Number of ways to place the items that are not in the bit set ``placed``."""
        return _ways_to_finish(self._needs)[placed]

    def _next(self, placed: int) -> Iterator[int]:
        """Positions in ``items`` that may follow the items in ``placed``."""
        for k, need in enumerate(self._needs):
            if not placed >> k & 1 and need & ~placed == 0:
                yield k

    @property
    def size(self) -> int:
        return self._ways(0)

    def __contains__(self, value: Value) -> bool:
        if not isinstance(value, tuple) or len(value) != len(self.items) or set(value) != set(self.items):
            return False
        return self.broken(value) is None

    def broken(self, value: tuple[str, ...]) -> tuple[str, str] | None:
        """Return the first pair of ``before`` that ``value`` breaks."""
        place = {item: k for k, item in enumerate(value)}
        for a, b in self.before:
            if a in place and b in place and place[a] > place[b]:
                return a, b
        return None

    def __iter__(self) -> Iterator[Value]:
        def extend(head: tuple[str, ...], placed: int) -> Iterator[Value]:
            if len(head) == len(self.items):
                yield head
            for k in self._next(placed):
                yield from extend((*head, self.items[k]), placed | 1 << k)

        return extend((), 0)

    def sample(self, rng: np.random.Generator) -> Value:
        rank, placed = int(rng.integers(self.size)), 0
        order: list[str] = []
        while len(order) < len(self.items):
            for k in self._next(placed):
                ways = self._ways(placed | 1 << k)
                if rank < ways:
                    break
                rank -= ways
            placed |= 1 << k
            order.append(self.items[k])
        return tuple(order)

    def nearest(self, rank: Mapping[str, float]) -> tuple[str, ...]:
        """Return the order that places, at each step, the allowed item of lowest ``rank``.

        If the order given by ``rank`` is allowed, it is returned unchanged.
        """
        placed = 0
        order: list[str] = []
        while len(order) < len(self.items):
            k = min(self._next(placed), key=lambda k: (rank.get(self.items[k], float("inf")), k))
            placed |= 1 << k
            order.append(self.items[k])
        return tuple(order)

    def refuse(self, value: Value) -> str:
        if not isinstance(value, tuple) or sorted(value) != sorted(self.items):
            return f"{show(value)} is not an order of exactly {', '.join(self.items)}"
        pair = self.broken(value)
        return (
            f"{show(value)} is not allowed here; {pair[0]} must stand before {pair[1]}"
            if pair
            else "it is allowed"
        )


@functools.lru_cache(maxsize=1024)
def orders(items: tuple[str, ...], before: tuple[tuple[str, str], ...] = ()) -> Orders:
    """Return ``Orders(items, before)``, the same object each time: a walk asks for few, often."""
    return Orders(items, before)


@functools.lru_cache(maxsize=256)
def _ways_to_finish(needs: tuple[int, ...]) -> dict[int, int]:
    """For every reachable set of placed items (as bits): in how many ways the rest can be placed."""
    everything = (1 << len(needs)) - 1
    reached = [{0}]
    for _ in needs:
        reached.append(
            {
                placed | 1 << k
                for placed in reached[-1]
                for k, need in enumerate(needs)
                if not placed >> k & 1 and need & ~placed == 0
            }
        )
    ways = {0: 0, everything: 1}
    for placed in itertools.chain.from_iterable(reversed(reached[:-1])):
        ways[placed] = sum(
            ways[placed | 1 << k]
            for k, need in enumerate(needs)
            if not placed >> k & 1 and need & ~placed == 0
        )
    return ways


def closure(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return all pairs that follow: from a before b and b before c also a before c."""
    found = dict.fromkeys(pairs)
    grown = True
    while grown:
        new = [(a, d) for (a, b), (c, d) in itertools.product(found, found) if b == c and (a, d) not in found]
        grown = bool(new)
        found.update(dict.fromkeys(new))
    return tuple(found)
