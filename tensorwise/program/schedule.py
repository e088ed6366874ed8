"""How a program runs: a tuple of directives over the loops of an einsum.

A loop is named after its axis: ``i`` for a whole index, ``i1`` and ``i0`` for the outer and inner
part of a split one, ``k#`` and ``k-i`` for the slots and diagonals of a format. A schedule parses from and prints as text::

    split(k,1024) reorder(k1,i,j,k0) parallel(i,dynamic,32) tile(j,8x8) unroll(k0,4) prefetch(B,16) bound(j,256)
    bind(i,block,8) tile(j,2x32) bind(j,thread,32) stage(k,32) visit(i,length) locate(A)
"""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from tensorwise.errors import ScheduleError
from tensorwise.moved import forward_names, renamed
from tensorwise.program.directives import (
    CONSTANT_SPLIT,
    Bound,
    Factor,
    Locate,
    Parallel,
    Prefetch,
    Reorder,
    Split,
    Tile,
    Unroll,
    Visit,
)
from tensorwise.program.legality import Axes, Directive, LoopPass, misfit_of_directive
from tensorwise.registry import Registry
from tensorwise.tensor.remap import Axis

if TYPE_CHECKING:
    from tensorwise.program.gpu_directives import Bind, Stage

__all__ = [
    "CONSTANT_SPLIT", "DIRECTIVES", "WARP", "Bound", "Directive", "Factor", "Locate", "LoopPass", "Parallel", "Prefetch",
    "Reorder", "Schedule", "Split", "Tile", "Unroll", "Visit",
]  # fmt: skip

WARP: Final = 32
"""Threads that a GPU runs side by side, and that can shuffle."""

__getattr__ = forward_names(__name__, dict.fromkeys(("Bind", "Stage"), "tensorwise.program.gpu_directives"))


def whole(text: str) -> int:
    """Return the whole number that a text is; raise ScheduleError where it is none."""
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise ScheduleError(f"expected a whole number, got {text!r}")
    return int(text)


def _tile(loop: str, shape: str) -> Tile:
    vectors, _, lanes = shape.partition("x")
    if not vectors or not lanes:
        raise ScheduleError(
            f"expected tile(LOOP,VECTORSxLANES), as tile({loop},2x8), strips of 2 vectors of 8 lanes; got {shape!r}"
        )
    return Tile(loop, whole(vectors), whole(lanes))


DIRECTIVES: Final[Registry[Callable[..., Directive]]] = Registry(
    "directive",
    "directives",
    {
        "split": lambda index, size: Split(index, whole(size)),
        "reorder": lambda *loops: Reorder(loops),
        "parallel": lambda loop, policy="dynamic", chunk="32", reduction="atomic": Parallel(
            loop, policy, whole(chunk), reduction
        ),
        "unroll": lambda loop, factor="0": Unroll(loop, whole(factor)),
        "tile": _tile,
        "prefetch": lambda tensor, distance: Prefetch(tensor, whole(distance)),
        "bound": lambda index, size: Bound(index, whole(size)),
        "factor": Factor,
        "bind": "tensorwise.program.gpu_directives:parse_bind",
        "stage": "tensorwise.program.gpu_directives:parse_stage",
        "visit": Visit,
        "locate": Locate,
    },
    misfit_of_directive,
    crosses=True,
)
"""Name of a directive -> what makes it of its arguments, which are texts. Other packages add `LoopPass` directives."""


def _directive(word: str, inside: str, text: str) -> Directive:
    """Return the directive that a text is; raise ScheduleError where its arguments do not fit."""
    make = DIRECTIVES[word]
    arguments = [argument.strip() for argument in inside.split(",")] if inside.strip() else []
    try:
        made = make(*arguments)
    except ScheduleError as error:
        raise ScheduleError(f"{text}: {error}") from None
    except TypeError as error:
        takes = inspect.signature(make)
        try:
            takes.bind(*arguments)
        except TypeError:
            count = f"{len(arguments)} argument{'s'[: len(arguments) != 1]}"
            form = f"{word}({','.join(takes.parameters)})"
            raise ScheduleError(f"{word} does not take {count}: {text!r}; expected {form}") from None
        raise ScheduleError(f"{text}: {error}") from error
    if isinstance(made, LoopPass):  # by a function, into which nobody has looked
        if problem := misfit_of_directive(word, type(made)):
            raise ScheduleError(f"{text}: {type(made).__name__} {problem}")
        if not re.fullmatch(rf"{word}\([^()]*\)", str(made)):
            raise ScheduleError(f"{text}: __str__ returns {str(made)!r}, which does not parse as {text} does")
    return made


@dataclass(frozen=True)
class Schedule:
    """Directives, in any order; at most one reorder and one parallel.

    >>> print(Schedule.parse("reorder(i, j, k) parallel(i) tile(j, 4x8)"))
    reorder(i,j,k) parallel(i,dynamic,32) tile(j,4x8)
    """

    directives: tuple[Directive, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Parse ``text``; raise ScheduleError naming the directive that cannot be read."""
        directives: list[Directive] = []
        rest = text.strip()
        while rest:
            match = re.match(r"([a-z]+)\s*\(([^()]*)\)\s*", rest)
            if match is None or match[1] not in DIRECTIVES:
                raise ScheduleError(
                    f"cannot read schedule at {rest[:40]!r}; known directives: {', '.join(DIRECTIVES)}"
                )
            directives.append(_directive(match[1], match[2], match[0].strip()))
            rest = rest[match.end() :]
        return cls(tuple(directives))

    def __str__(self) -> str:
        return " ".join(map(str, self.directives))

    @cached_property
    def splits(self) -> dict[str, int]:
        """Index -> inner extent."""
        return {d.index: d.size for d in self.directives if isinstance(d, Split)}

    @cached_property
    def bounds(self) -> dict[str, int]:
        """Index -> extent that is compiled in."""
        return {d.index: d.size for d in self.directives if isinstance(d, Bound)}

    @cached_property
    def order(self) -> tuple[str, ...] | None:
        """The loops as reordered, or None."""
        return next((d.loops for d in self.directives if isinstance(d, Reorder)), None)

    @cached_property
    def parallel(self) -> Parallel | None:
        """The parallel directive, or None; on a GPU what it is there: the loop whose iterations are dealt to blocks."""
        given = next((d for d in self.directives if isinstance(d, Parallel)), None)
        dealt = self.grid_bind
        return Parallel(dealt.loop, "dynamic", 1) if given is None and dealt is not None else given

    @cached_property
    def tile(self) -> Tile | None:
        """The register tile, or None."""
        return next((d for d in self.directives if isinstance(d, Tile)), None)

    @cached_property
    def unrolls(self) -> dict[str, int]:
        """Loop -> factor (0 = completely)."""
        return {d.loop: d.factor for d in self.directives if isinstance(d, Unroll)}

    @cached_property
    def factor(self) -> Factor | None:
        """The factor directive, or None."""
        return next((d for d in self.directives if isinstance(d, Factor)), None)

    @cached_property
    def binds(self) -> "tuple[Bind, ...]":
        """All bind directives."""
        return tuple(cast("Bind", d) for d in self.directives if d.word == "bind")

    dealt = renamed("grid_bind")

    @cached_property
    def grid_bind(self) -> "Bind | None":
        """What deals the iterations of a loop to the blocks of a GPU, or None: the program runs on a CPU."""
        strips = self.tile.loop if self.tile else None
        return next((b for b in self.binds if b.to in ("block", "warp") and b.loop != strips), None)

    @cached_property
    def threads(self) -> int:
        """Threads of a team."""
        return next((b.count for b in self.binds if b.to in ("thread", "lane")), 1)

    @cached_property
    def teams(self) -> int:
        """Teams of a block."""
        dealt = self.grid_bind
        if dealt is None:
            return 1
        return dealt.count if dealt.to == "block" else dealt.count * max(1, WARP // self.threads)

    @cached_property
    def stages(self) -> "dict[str, Stage]":
        """Loop -> what is staged there."""
        return {d.loop: d for d in (cast("Stage", d) for d in self.directives if d.word == "stage")}

    @cached_property
    def visits(self) -> dict[str, str]:
        """Loop -> the order in which its coordinates are visited."""
        return {d.loop: d.order for d in self.directives if isinstance(d, Visit)}

    @cached_property
    def located(self) -> str | None:
        """The operand whose entries are found by their numbers, or None."""
        return next((d.tensor for d in self.directives if isinstance(d, Locate)), None)

    @cached_property
    def prefetches(self) -> tuple[Prefetch, ...]:
        """All prefetch directives."""
        return tuple(d for d in self.directives if isinstance(d, Prefetch))

    def loops(self, indices: Sequence[str]) -> tuple[Axis, ...]:
        """Return the loops over ``indices``, outermost first.

        Raises:
            ScheduleError: a directive names an unknown loop, or the reorder is not a permutation.
        """
        splits = self.splits
        # Slots and diagonals are loops of formats: where the order names one, it stands for its index.
        given = [axis for axis in map(Axis.from_name, self.order or ()) if axis is not None]
        stands = {axis.mode: axis for axis in given if axis.part in ("slot", "diagonal")}
        axes = {
            axis.name: axis
            for index in indices
            for axis in (
                [Axis(index, "outer"), Axis(index, "inner")]
                if index in splits
                else [stands.get(index, Axis(index))]
            )
        }
        self.check_loops(axes)
        return tuple(axes.values()) if self.order is None else tuple(axes[name] for name in self.order)

    def check_loops(self, axes: Axes) -> None:
        """Raise ScheduleError where a directive does not fit the loops, or is one too many."""
        seen = set[str]()
        for directive in self.directives:
            only = directive.only
            if only in seen:
                raise ScheduleError(f"at most one {only}, got: {self}")
            if only is not None:
                seen.add(only)
        for directive in self.directives:
            directive.check_loops(self, axes)
