"""Param: what every kind of parameter can do. The kinds themselves are in :mod:`tensorwise.space.params`.

A kind carries behaviour - how to draw, change, cross and encode a value - so that search, models and
devices see kinds and never names. A Param is one row of a Space's table::

    PowerOfTwo("chunk", 1, 256, binds="call", doc="Rows a thread takes at a time; past 256 no ...",
               narrow=lambda earlier, w: powers(1, w.sizes["i"]) if earlier["parallel"] else None)

``narrow`` returns the allowed values, given the choices made before and the workload, or None where the
parameter does not apply. What it leaves out is never proposed, so no rule has to reject it later.
"""

import abc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from tensorwise.errors import InputError
from tensorwise.space.config import Value, same
from tensorwise.space.domain import INACTIVE, Domain, Later, Listed, Orders

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

Binds = Literal["call", "pack", "compile"]
Earlier: TypeAlias = Mapping[str, Value]
Narrow: TypeAlias = "Callable[[Earlier, Workload], Iterable[Value] | Orders | Later | None]"
Prefer: TypeAlias = "Value | Callable[[Earlier, Workload], Value]"


def powers(lo: int, hi: int) -> tuple[int, ...]:
    """Return the powers of two from ``lo`` to ``hi``, both included; ``hi`` counts as at least ``lo``.

    >>> powers(1, 10)
    (1, 2, 4, 8)
    """
    first = max(lo - 1, 0).bit_length()
    return tuple(1 << k for k in range(first, max(hi.bit_length(), first + 1)))


@dataclass(frozen=True)
class Param(abc.ABC):
    """One choice.

    Attributes:
        name: its name in a Config.
        binds: when the choice takes effect - at each ``call``, when the operand is ``pack``-ed or when
            the kernel is ``compile``-d. Configs that differ in call-bound choices share a kernel.
        doc: what it does, its unit, and the reason for its range.
        narrow: (earlier choices, workload) -> allowed values, or None where it does not apply. It must depend on nothing
            else, since a Space caches its results by the choices that it read (``domains.py``). It may return ``Later``
            where computing the values takes long and one of them is known.
        prefer: the value that a default config takes where it is allowed (else the nearest one); may be
            a function of (earlier choices, workload). None: the kind's own first value.
    """

    name: str
    binds: Binds = field(kw_only=True)
    doc: str = field(kw_only=True)
    narrow: "Narrow | None" = field(default=None, kw_only=True, repr=False)
    prefer: "Prefer" = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise InputError(f"a parameter needs a name, got {self.name!r}")
        if self.binds not in get_args(Binds):
            raise InputError(
                f"parameter {self.name!r}: binds must be call, pack or compile, got {self.binds!r}"
            )
        if len(self.doc.split()) < 3:
            raise InputError(f"parameter {self.name!r} needs a sentence with the reason for its range")
        self._check()
        if not callable(self.prefer):
            self._preferable(self.prefer)

    def domain(self, earlier: Earlier, workload: "Workload") -> Domain:
        """Return what may be chosen here after ``earlier`` (every param before this one, by name).

        Raises:
            InputError: ``narrow`` returned nothing, or a value outside the parameter's range.
        """
        if self.narrow is None:
            return self._restrict(None)
        allowed = self.narrow(earlier, workload)
        if isinstance(allowed, Later):
            return Later(allowed.sure, lambda: self._restrict(allowed.whole))
        return INACTIVE if allowed is None else self._restrict(allowed)

    def default(self, domain: Domain, earlier: Earlier, workload: "Workload") -> Value:
        """Return the preferred value, or the allowed one nearest to it.

        Raises:
            InputError: the parameter could never take the preferred value.
        """
        prefer = self._preferable(self.prefer(earlier, workload)) if callable(self.prefer) else self.prefer
        return self.nearest(prefer, domain)

    def _preferable(self, value: Value) -> Value:
        if value is not None and (problem := self.misfit(value)):
            raise InputError(f"parameter {self.name!r}: preferred value: {problem}")
        return value

    def sample(self, rng: np.random.Generator, domain: Domain) -> Value:
        """Draw a value of ``domain``; all are equally likely."""
        return domain.sample(rng)

    @property
    @abc.abstractmethod
    def cardinality(self) -> int:
        """Number of values when nothing narrows them: no domain is larger."""

    @abc.abstractmethod
    def misfit(self, value: Value) -> str | None:
        """Return what is wrong with a value that this parameter could never take; None if it could."""

    @abc.abstractmethod
    def nearest(self, value: Value, domain: Domain) -> Value:
        """Return the value of ``domain`` nearest to ``value``; for None the kind's first value."""

    @abc.abstractmethod
    def neighbours(self, value: Value, domain: Domain) -> list[Value]:
        """Return the values of ``domain`` one step away from ``value``, itself not among them."""

    @abc.abstractmethod
    def mutate(self, value: Value, domain: Domain, rng: np.random.Generator) -> Value:
        """Draw another value of ``domain``; ``value`` itself only where there is no other."""

    @abc.abstractmethod
    def cross(self, a: Value, b: Value, domain: Domain, rng: np.random.Generator) -> Value:
        """Draw a child of two values, in ``domain``; either may be None or outside of it."""

    @property
    @abc.abstractmethod
    def encoding_names(self) -> tuple[str, ...]:
        """One name for each number that ``encode`` returns."""

    @abc.abstractmethod
    def encode(self, value: Value, workload: "Workload") -> list[float]:
        """Return ``value`` as numbers between about 0 and 1; inactive is all zeros.

        The last number is the mask bit: 1 where the parameter applies.
        """

    @property
    @abc.abstractmethod
    def token_sizes(self) -> tuple[int, ...]:
        """For each token the number of values it can take: the rows of an embedding table."""

    @abc.abstractmethod
    def tokens(self, value: Value) -> list[int]:
        """Return ``value`` as small integers for embedding tables; 0 stands for inactive."""

    @abc.abstractmethod
    def _check(self) -> None:
        """Raise InputError if the parameter's own range is malformed."""

    @abc.abstractmethod
    def _restrict(self, allowed: "Iterable[Value] | Domain | None") -> Domain:
        """Return the domain of the ``allowed`` values (None: all), which must lie in the range."""


class ListedParam(Param):
    """A parameter whose values are few enough to be listed: all kinds but Permutation."""

    @property
    @abc.abstractmethod
    def range(self) -> Listed:
        """All values, in order."""

    @property
    def cardinality(self) -> int:
        return self.range.size

    def misfit(self, value: Value) -> str | None:
        return None if value is None or value in self.range else self.range.refuse(value)

    def cross(self, a: Value, b: Value, domain: Domain, rng: np.random.Generator) -> Value:
        parents = (a, b) if rng.random() < 0.5 else (b, a)
        for parent in parents:
            if parent in domain:
                return parent
        return self.nearest(parents[0], domain)

    @property
    def token_sizes(self) -> tuple[int, ...]:
        return (1 + self.range.size,)

    def tokens(self, value: Value) -> list[int]:
        return [0 if value is None else 1 + self._place(value)]

    def _restrict(self, allowed: Iterable[Value] | Domain | None) -> Domain:
        if allowed is None:
            return self.range
        wanted = tuple(allowed)
        if wanted not in self._narrowed:
            self._narrowed[wanted] = self._intersect_range(Listed(wanted))
        return self._narrowed[wanted]

    @cached_property
    def _narrowed(self) -> dict[tuple[Value, ...], Listed]:
        """Domains met so far, by what ``narrow`` gave: a walk meets few different ones, often."""
        return {}

    def _intersect_range(self, wanted: Listed) -> Listed:
        for value in wanted:
            if self._foreign(value):
                raise InputError(f"narrow of parameter {self.name!r} gave {value!r}, which it can never take")
        kept = tuple(value for value in self.range if value in wanted)
        if not kept:
            raise InputError(
                f"narrow of parameter {self.name!r} left no value (gave {wanted.values}); "
                "return None where it does not apply"
            )
        return Listed(kept)

    @abc.abstractmethod
    def _foreign(self, value: Value) -> bool:
        """Whether ``narrow`` may not return ``value``; the rest is intersected with the range."""

    def _place(self, value: Value) -> int:
        return next(k for k, known in enumerate(self.range) if same(known, value))
