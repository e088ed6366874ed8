"""Integer polynomials over numbered unknowns, in which indices and lengths of arrays are compared."""

from collections.abc import Mapping
from math import gcd
from typing import Final, final

Monomial = tuple[int, ...]
"""The unknowns of a product, ascending; an unknown stands as often as its power says."""


@final
class Poly:
    """A sum of products of unknowns with integer factors.

    >>> i, n = Poly.unknown(0), Poly.unknown(1)
    >>> (i + 1) * n - n == i * n
    True
    >>> (2 * i * n + 3).split(0) == (2 * n, Poly.constant(3))
    True
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: Final = terms
        self._hash: int | None = None

    @staticmethod
    def constant(value: int) -> "Poly":
        """Return the polynomial that is ``value`` everywhere."""
        return Poly({(): value} if value else {})

    @staticmethod
    def unknown(number: int) -> "Poly":
        """Return the polynomial that is the unknown ``number``."""
        return Poly({(number,): 1})

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __add__(self, other: "Poly | int") -> "Poly":
        given = other.terms if isinstance(other, Poly) else {(): other}
        terms = dict(self.terms)
        for monomial, factor in given.items():
            total = terms.get(monomial, 0) + factor
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
        return Poly(terms)

    def __neg__(self) -> "Poly":
        return Poly({monomial: -factor for monomial, factor in self.terms.items()})

    def __sub__(self, other: "Poly | int") -> "Poly":
        return self + -other

    def __mul__(self, other: "Poly | int") -> "Poly":
        if isinstance(other, int):
            return Poly(
                {monomial: factor * other for monomial, factor in self.terms.items()} if other else {}
            )
        terms: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                both = tuple(sorted(left + right)) if left and right else left or right
                terms[both] = terms.get(both, 0) + a * b
        return Poly({monomial: factor for monomial, factor in terms.items() if factor})

    __rmul__ = __mul__

    @property
    def value(self) -> int | None:
        """The value of a constant; None where unknowns remain."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def last(self) -> int:
        """The unknown with the highest number; -1 where there is none."""
        return max((monomial[-1] for monomial in self.terms if monomial), default=-1)

    def is_simple(self, most_terms: int) -> bool:
        """Whether it has no products of unknowns, and besides a constant at most so many terms."""
        return len(self.terms) - (() in self.terms) <= most_terms and all(
            len(monomial) <= 1 for monomial in self.terms
        )

    def split(self, unknown: int) -> "tuple[Poly, Poly]":
        """Return factor and rest: the polynomial is ``factor * unknown + rest``, and rest does not have the unknown."""
        factor: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, number in self.terms.items():
            if unknown in monomial:
                place = monomial.index(unknown)
                factor[monomial[:place] + monomial[place + 1 :]] = number
            else:
                rest[monomial] = number
        return Poly(factor), Poly(rest)

    def divided(self, divisor: "Poly") -> "Poly | None":
        """Return the quotient by a product such as ``4 * n``; None where something would remain.

        >>> n = Poly.unknown(0)
        >>> (4 * n + 8 * n * n).divided(4 * n) == 1 + 2 * n
        True
        """
        quotient, rest = self.parted(divisor)
        return None if rest.terms else quotient

    def parted(self, divisor: "Poly") -> "tuple[Poly, Poly]":
        """Return quotient and rest, term by term: the polynomial is ``quotient * divisor + rest``."""
        if len(divisor.terms) != 1:
            return Poly({}), self
        ((wanted, number),) = divisor.terms.items()
        quotient: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, factor in self.terms.items():
            left = list(monomial)
            for unknown in wanted:
                if unknown not in left:
                    break
                left.remove(unknown)
            else:
                if factor % number == 0:
                    quotient[tuple(left)] = factor // number
                    continue
            rest[monomial] = factor
        return Poly(quotient), Poly(rest)

    def __radd__(self, other: int) -> "Poly":
        return self + other

    @property
    def tightened(self) -> "Poly":
        """A polynomial that is not negative exactly where this one is, with the smallest factors.

        >>> i = Poly.unknown(0)
        >>> (7 - 4 * i).tightened == 1 - i  # 4 i <= 7 says i <= 1
        True
        """
        common = gcd(*(factor for monomial, factor in self.terms.items() if monomial))
        if common <= 1:
            return self
        # rounds the constant down
        return Poly({m: factor // common for m, factor in self.terms.items() if factor // common})

    def __rsub__(self, other: int) -> "Poly":
        return -self + other
