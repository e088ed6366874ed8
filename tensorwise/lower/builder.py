"""The builder of a kernel: it gives variables names of their own and collects statements into blocks."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from tensorwise.lower import ir
from tensorwise.lower.ir import Const, Expr, Let, Stmt, Type, Var, as_expr

_C_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile "
    "while asm typeof linux unix NULL alignas alignof bool constexpr false nullptr thread_local true typeof_unqual "
    "static_assert"
)
_CUDA_WORDS = (
    "and and_eq bitand bitor catch char8_t class compl concept const_cast consteval constinit decltype delete "
    "dynamic_cast explicit export friend mutable namespace new noexcept not not_eq operator or or_eq private protected "
    "public reinterpret_cast requires static_cast template this throw try typeid typename using virtual wchar_t xor "
    "xor_eq threadIdx blockIdx blockDim gridDim warpSize abs fabs fabsf exp expf max min atomicAdd atomicCAS"
)
_OWN_WORDS = (
    "buffers sizes lane thread threads parts out work cuts carries pieces cut e t merged raised_ flag_"
)
RESERVED: Final = frozenset(f"{_C_WORDS} {_CUDA_WORDS} {_OWN_WORDS}".split())
"""What an index may be called, but no variable of a kernel: words of C and CUDA C++, and names that kernels use already."""


class Builder:
    """Statements of one kernel under construction, as LLVM's ``IRBuilder`` holds an insertion point.

    Attributes:
        block: the statements at the insertion point.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        """Start an empty kernel; no variable gets one of the names ``taken``, which buffers and sizes have."""
        self.block: list[Stmt] = []
        self._taken = frozenset(taken)
        self._numbers: dict[str, int] = {}

    def append(self, *statements: Stmt) -> None:
        """Add statements at the insertion point."""
        self.block.extend(statements)

    @contextmanager
    def scope(self, wrap: Callable[[ir.Block], Stmt]) -> Iterator[None]:
        """Collect statements into the body of the statement that ``wrap`` makes; an empty body makes none."""
        outer, self.block = self.block, []
        yield
        body, self.block = tuple(self.block), outer
        if body:
            self.block.append(wrap(body))

    @contextmanager
    def separate(self) -> Iterator[list[Stmt]]:
        """Collect statements into a list that is no part of the block at the insertion point."""
        outer, self.block = self.block, []
        try:
            yield self.block
        finally:
            self.block = outer

    def fresh(self, stem: str, type: Type = ir.I64) -> Var:
        """Return a variable with a name of its own."""
        stem = re.sub(r"\W", "_", stem)
        number = self._numbers.get(stem, int(stem in RESERVED))
        while (name := f"{stem}_{number}" if number else stem) in self._taken:
            number += 1
        self._numbers[stem] = number + 1
        return Var(name, type)

    def let(self, stem: str, value: Expr | int) -> Expr:
        """Name a scalar value, unless it is a name or a number already; levels may give plain numbers."""
        value = as_expr(value)
        if isinstance(value, Const | Var) or value.type.lanes > 1:
            return value
        var = self.fresh(stem, value.type)
        self.block.append(Let(var, value))
        return var
