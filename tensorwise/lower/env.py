"""What is known at a point of the loop nest: plain data, which grows from the outermost loop to the leaf."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from tensorwise.lower.ir import Buffer, Const, Expr
from tensorwise.program.einsum import Expression
from tensorwise.tensor.remap import Axis

if TYPE_CHECKING:
    from tensorwise.lower.accumulators import Accumulators

_ROOT: Final = Const(0)

Keys: TypeAlias = tuple[tuple[object, ...], ...]
"""What tells accumulators separate: a key for each loop that is unrolled or in lanes."""


@dataclass(frozen=True)
class State:
    """How far a sparse operand is resolved: levels done, position there, value when all are."""

    levels: int = 0
    position: Expr = _ROOT
    value: Expr | None = None


@dataclass(frozen=True)
class Lanes:
    """The innermost pseudo-loop of a strip: ``vectors`` x ``lanes`` elements from ``base``.

    ``leader`` is the operand whose compressed level the strip runs along; base is a position there.
    """

    axis: Axis
    base: Expr
    vectors: int
    lanes: int
    leader: str | None = None
    end: Expr | None = None
    """On a GPU: coordinates from here on do not exist, which each thread checks for itself; None: all exist."""
    last: Expr | None = None
    """Where the last vector begins, if it overlaps the one before; None: behind it."""


Loop: TypeAlias = Axis | Lanes


def axis_of(loop: Loop) -> Axis:
    """Return the axis that a loop, or a strip, runs over."""
    return loop.axis if isinstance(loop, Lanes) else loop


@dataclass(frozen=True)
class Piece:
    """The positions of the level below that a merge-path part, or a team of a GPU, has of the current outer iteration.

    ``part`` is the part that continues, from ``begin`` on, an iteration that an earlier part has started; None: the part
    has started the iteration itself. On a GPU, a team has a piece of an iteration; ``whole`` says whether it is all of
    it, or other teams add to the same outputs.
    """

    end: Expr
    begin: Expr | None = None
    part: Expr | None = None
    whole: Expr | None = None


@dataclass(frozen=True)
class Env:
    """What is known at a point of the nest."""

    coordinates: Mapping[str, Expr]
    states: Mapping[str, State]
    accumulators: "Accumulators | None" = None
    slot: Keys = ()
    replica: Keys = ()
    skips_output: bool = False
    reduced_outside: bool = False
    shared_output: bool = False
    inside: frozenset[str] = frozenset()
    """Diagonals along which lanes are known to stay inside the matrix, by name."""
    piece: Piece | None = None
    """Where threads share outer iterations; None: each is one thread's alone."""
    staged: tuple[Expr, Mapping[Buffer, Buffer]] | None = None
    """The first position that the team has fetched, and what of: buffer -> the buffer that keeps it."""
    term: Expression | None = None
    """What is summed here, where other factors are multiplied later; None: the whole right-hand side."""
