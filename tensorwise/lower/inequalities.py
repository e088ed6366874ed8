"""What is known of the integers of a kernel, and whether it makes a polynomial of them non-negative.

Unknowns are numbered in the order in which they come up, and bounds of an unknown have earlier ones only. A proof takes the
latest unknown of a polynomial and puts a bound in its place, until a constant is left::

    i < n,  j < m   |-   0 <= n * m - 1 - (i * m + j)
                         0 <= n * m - m - i * m         j <= m - 1
                         0 <= 0                         i <= n - 1, since m >= 0

Bounds have a factor, as in ``4 * q <= n`` for ``q = n // 4``. All polynomials are integers: what is multiplied by ``c`` to
use such a bound may be as low as ``1 - c`` without being negative.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, final

from tensorwise.lower.polynomials import Poly

MOST_STEPS: Final = 4000
MOST_DEPTH: Final = 80
"""Polynomials that are looked at, in all and one below the other, before a proof is given up: most take tens."""
MOST_CONSEQUENCES: Final = 24
MOST_TERMS: Final = 3
"""Inequalities derived from an assumption, and their length: what is of use says that extents are not 0."""

Bound = tuple[Poly, Poly]
"""Factor and bound: ``factor * unknown`` is not below (or not above) it. Factors are at least 1."""
Cases = tuple[Poly, ...]
"""Values of which an unknown has one."""


@dataclass
class _Known:
    """What is known of one unknown."""

    text: str | Callable[[], str]
    low: list[Bound] = field(default_factory=list)
    high: list[Bound] = field(default_factory=list)
    assumed_low: list[Bound] = field(default_factory=list)
    assumed_high: list[Bound] = field(default_factory=list)
    """Bounds that hold until the end of a scope."""
    late_low: list[Bound] = field(default_factory=list)
    late_high: list[Bound] = field(default_factory=list)
    """Such bounds that are tried when nothing else helps."""
    least: Cases = ()
    """It is one of these, where no single lower bound says as much."""
    most: Cases = ()
    natural: bool = False
    """Whether it is never negative, as far as its first bound tells."""
    pointer: Poly | None = None
    """Where it is ``pos[pointer]`` of ascending numbers that begin with 0."""


@final
class Inequalities:
    """Unknowns with their bounds; assumptions hold until the end of their ``scope``."""

    def __init__(self) -> None:
        self._known: list[_Known] = []
        self._assumed: list[list[list[Bound]]] = [[]]
        self._proved: list[set[Poly]] = [set()]
        self._failed: list[set[Poly]] = [set()]
        self._never = [False]
        """Of each scope, whether its assumptions contradict each other: it is never reached."""
        self._steps = self._depth = 0

    def unknown(
        self,
        text: str | Callable[[], str],
        low: Poly | None = None,
        high: Poly | None = None,
        least: Cases = (),
        most: Cases = (),
        pointer: Poly | None = None,
    ) -> Poly:
        """Return a new unknown, not below ``low`` and not above ``high``."""
        one = Poly.constant(1)
        natural = low is not None and self._natural(low)
        known = _Known(text, least=least, most=most, natural=natural, pointer=pointer)
        known.low.extend([(one, low)] if low is not None else [])
        known.high.extend([(one, high)] if high is not None else [])
        self._known.append(known)
        return Poly.unknown(len(self._known) - 1)

    def bound(self, unknown: Poly, factor: Poly, low: Poly | None = None, high: Poly | None = None) -> None:
        """Assume that ``factor * unknown`` is not below ``low`` and not above ``high``."""
        known = self._known[unknown.last]
        known.low.extend([(factor, low)] if low is not None else [])
        known.high.extend([(factor, high)] if high is not None else [])
        known.natural |= low is not None and self._natural(low)

    def _natural(self, poly: Poly) -> bool:
        """Whether a polynomial is nonnegative because all of its factors and unknowns are."""
        return all(
            factor >= 0 and all(self._known[unknown].natural for unknown in monomial)
            for monomial, factor in poly.terms.items()
        )

    def text(self, poly: Poly) -> str:
        """Return a polynomial as text for people."""
        parts = []
        for monomial, factor in sorted(poly.terms.items(), key=lambda term: (-len(term[0]), term[0])):
            names = [self._name(unknown) for unknown in monomial]
            parts.append(" * ".join([*([str(factor)] if factor != 1 or not names else []), *names]))
        return " + ".join(parts) or "0"

    def _name(self, unknown: int) -> str:
        text = self._known[unknown].text
        return text if isinstance(text, str) else text()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget at the end what is assumed inside."""
        self._assumed.append([])
        self._never.append(False)
        self._proved.append(set())
        self._failed.append(set())
        yield
        self._never.pop()
        self._proved.pop()
        self._failed.pop()
        for bounds in self._assumed.pop():
            bounds.pop()

    def assume(self, poly: Poly) -> None:
        """Take it as given, to the end of the scope, that ``poly`` is not negative, and what follows from that."""
        left, seen = [poly], set[Poly]()
        while left and len(seen) < MOST_CONSEQUENCES:
            poly = left.pop(0).tightened
            if poly.value is not None and poly.value < 0:
                self._never[-1] = True
            if poly.value is not None or poly in seen:
                continue
            if seen and (not poly.is_simple(MOST_TERMS) or self.holds(poly)):  # of no use, or known
                continue
            seen.add(poly)
            last = poly.last
            factor, rest = poly.split(last)
            known = self._known[last]
            if self._at_least_one(factor):
                left += [factor * bound + by * rest for by, bound in (*known.high, *known.assumed_high)]
                left += self._only(known.most, factor, rest)
                self._add(known.assumed_low, (factor, -rest))
                if known.pointer is not None and self.holds(Poly.unknown(last) - 1):
                    left.append(known.pointer - 1)
            elif self._at_least_one(-factor):
                left += [by * rest + factor * bound for by, bound in (*known.low, *known.assumed_low)]
                left += self._only(known.least, factor, rest)
                self._add(known.assumed_high, (-factor, rest))
        self._failed[-1].clear()

    def assume_not_negative(self, made: Poly) -> None:
        """Take it as given, to the end of the scope, that one unknown is not negative, whatever follows from that."""
        low, bound = self._known[made.last].assumed_low, (Poly.constant(1), Poly.constant(0))
        if bound not in low:
            self._add(low, bound)
            self._failed[-1].clear()

    def order(self, more: Poly, less: Poly) -> None:
        """Take it as given, to the end of the scope, that one unknown is not below another; it is tried last."""
        one = Poly.constant(1)
        if more.last > less.last:
            self._add(self._known[more.last].late_low, (one, less))
        else:
            self._add(self._known[less.last].late_high, (one, more))
        self._failed[-1].clear()

    def _only(self, cases: Cases, factor: Poly, rest: Poly) -> Cases:
        """Return what follows from ``factor * unknown + rest`` where a single case of the unknown allows it."""
        able = [made for case in cases if not self.holds(-(made := factor * case + rest) - 1)]
        return tuple(able) if len(able) == 1 else ()

    def _add(self, bounds: list[Bound], bound: Bound) -> None:
        if bound not in bounds:
            bounds.append(bound)
            self._assumed[-1].append(bounds)

    def _at_least_one(self, poly: Poly) -> bool:
        return poly.value >= 1 if poly.value is not None else self.holds(poly - 1)

    def holds(self, poly: Poly) -> bool:
        """Whether ``poly`` is certainly not negative; anything is, where nothing gets."""
        self._steps = 0
        return any(self._never) or self._holds(poly)

    def _holds(self, poly: Poly) -> bool:
        if poly.value is not None:
            return poly.value >= 0
        if any(poly in proved for proved in self._proved):
            return True
        if poly in self._failed[-1]:
            return False
        if self._natural(poly):
            return True
        self._steps += 1
        if self._steps > MOST_STEPS or self._depth > MOST_DEPTH:
            return False
        self._depth += 1
        found = self._eliminated(poly)
        self._depth -= 1
        (self._proved if found else self._failed)[-1].add(poly)
        return found

    def _eliminated(self, poly: Poly) -> bool:
        """Whether ``poly`` is not negative with some bound of its latest unknown in place of that."""
        last = poly.last
        factor, rest = poly.split(last)
        known = self._known[last]
        if self._holds(factor):
            bounds, assumed, cases, sign = [*known.late_low, *known.low], known.assumed_low, known.least, 1
        elif self._holds(-factor):
            bounds, assumed, cases, sign = [*known.late_high, *known.high], known.assumed_high, known.most, -1
        else:
            return False
        found: dict[Poly, None] = {}
        for by, bound in reversed([*bounds, *assumed]):
            whole = factor if by.value == 1 else factor.divided(by)
            if whole is not None:
                found[whole * bound + rest] = None
            else:
                found[factor * bound + by * rest + (by - 1)] = None
        # What cancels most is likeliest to lead to the end.
        if any(self._holds(less) for less in sorted(found, key=lambda less: len(less.terms))):
            return True
        if cases and all(self._holds(factor * case + rest) for case in cases):
            return True
        return any(self._partly(poly, bound, sign) for bound in assumed)

    def _partly(self, poly: Poly, bound: Bound, sign: int) -> bool:
        """Whether a bound helps in one of several products, where it cancels a term::

            0 <= i + j - n  and  0 <= j   |-   0 <= (i + j - n) * m + j

        Args:
            poly: what is to be proved.
            bound: of its latest unknown: a lower bound where ``sign`` is 1, an upper bound where it is -1.
        """
        by, value = bound
        for monomial, number in value.terms.items():
            parts, _ = poly.parted(Poly({monomial: -number * sign})) if monomial else (Poly({}), poly)
            for product, factor in parts.terms.items():
                part = Poly({product: factor})
                less = poly + (part * value - part * by * Poly.unknown(poly.last)) * sign
                if (
                    factor > 0
                    and len(less.terms) <= len(poly.terms)
                    and self._holds(part)
                    and self._holds(less)
                ):
                    return True
        return False
