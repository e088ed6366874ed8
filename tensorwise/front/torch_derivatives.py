"""Derivatives of the graph operator for PyTorch: reverse and forward mode, and batches of operands (``vmap``).

A derivative of an assignment is an assignment again (see :mod:`tensorwise.program.gradient`), and so is the assignment with
a batch: each rule here evaluates another text on the same graph, by way of ``graph.einsum``, which has derivatives in turn.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, Protocol, final

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from tensorwise.front import spelling

HALVES: Final = (torch.float16, torch.bfloat16)


class Evaluates(Protocol):
    """A graph, or the tensors that it consists of, as the rules use it."""

    @property
    def pointers(self) -> Tensor:
        """(destinations + 1,): where the edges of each begin."""

    @property
    def sources(self) -> Tensor:
        """(edges,)."""

    def einsum(self, text: str, *operands: Tensor) -> Tensor:
        """Evaluate an assignment, with derivatives."""

    def evaluate(self, text: str, operands: Sequence[Tensor]) -> Tensor:
        """Evaluate an assignment without derivatives."""


def transformed() -> bool:
    """Whether a transform of ``torch.func`` is active: grad, jvp, vmap and what is made of them."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def has_tangents() -> bool:
    """Whether operands may have tangents: inside forward mode, or inside any transform of torch; compiled code enters one
    by itself."""
    return (forward_ad._current_level >= 0 or transformed()) and torch._C._is_fwd_grad_enabled()


def function_mode() -> bool:
    """Whether a function mode is active that may see operators: another than that of a default device."""
    return any(
        type(torch._C._get_function_stack_at(at)).__name__ != "DeviceContext"
        for at in range(torch._C._len_torch_function_stack())
    )


def untraced(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let Dynamo trace nothing of an operator's inside; it is imported by those who compile only."""
    kept: list[Callable[..., Tensor]] = []

    @wraps(function)
    def run(*given: Any) -> Tensor:
        if not kept and "torch._dynamo" in sys.modules:
            kept.append(torch.compiler.disable(function))
        return kept[0](*given) if kept else function(*given)

    return run


def full_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of totals and counts of values of ``dtype``: float32 for halves, which overflow or stop counting."""
    return torch.float32 if dtype in HALVES else dtype


@final
@dataclass(frozen=True)
class _Like:
    """What is known of an operand whose values no gradient reads."""

    shape: torch.Size
    dtype: torch.dtype


class Recorded(torch.autograd.Function):
    """The operator with its derivatives, at one level of transforms."""

    @staticmethod
    def forward(ctx: Any, graph: Evaluates, text: str, *operands: Tensor) -> Tensor:
        ctx.graph, ctx.text = graph, text
        out, numbers = _evaluated(graph, text, operands)
        kept: Sequence[Tensor | None] = operands
        if forward_ad._current_level >= 0 or transformed():
            ctx.save_for_forward(numbers, *operands)
        else:  # what no gradient reads may be changed in place, and freed
            reads = spelling.read_by_gradients(text, tuple(ctx.needs_input_grad[2:]))
            kept = [one if read else None for one, read in zip(operands, reads, strict=True)]
        ctx.likes = [_Like(one.shape, one.dtype) for one in operands]
        ctx.save_for_backward(numbers, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        return _gradients(ctx, given)

    @staticmethod
    def jvp(ctx: Any, _graph: None, _text: None, *tangents: Tensor | None) -> Tensor:
        return _tangent(ctx, tangents)


def recorded(graph: Evaluates, text: str, operands: Sequence[Tensor]) -> Tensor:
    """Apply `Recorded` at the level of the innermost transform, whose dispatch has led here, or where there is none."""
    made: Tensor
    if transformed():
        with enable_single_level_autograd_function():
            made = super(torch.autograd.Function, Recorded).apply(graph, text, *operands)
    else:
        made = Recorded.apply(graph, text, *operands)
    return made


@contextmanager
def below() -> Iterator[None]:
    """Dispatch below the derivatives of this level; `Recorded` has switched off what outer levels still need."""
    with ExitStack() as stack:
        if transformed():
            stack.enter_context(torch.enable_grad())
            stack.enter_context(forward_ad._set_fwd_grad_enabled(True))
        stack.enter_context(torch._C._AutoDispatchBelowAutograd())
        yield


def batched(text: str, operands: Sequence[Tensor], dims: Sequence[int | None]) -> tuple[str, list[Tensor]]:
    """Return the assignment and the operands where some have a batch, in ``dims``; that of the result is dimension 1."""
    widened = spelling.batched_text(text, tuple(dim is not None for dim in dims))
    return widened, [one if dim is None else one.movedim(dim, 1) for one, dim in zip(operands, dims)]


def _evaluated(graph: Evaluates, text: str, operands: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """The result, and the numbers of the edges that it comes from, for a maximum or minimum."""
    if spelling.chooses(text):
        out, numbers = spelling.by_edges(text, operands, graph.evaluate)
        return out, numbers
    return graph.evaluate(text, operands), None


def _einsum(graph: Evaluates) -> Callable[[str, Sequence[Tensor]], Tensor]:
    return lambda text, operands: graph.einsum(text, *operands)


def _gradients(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
    graph, (numbers, *kept) = ctx.graph, ctx.saved_tensors
    given = given.contiguous()  # once, for all gradients: each kernel would copy it
    operands = [like if one is None else one for one, like in zip(kept, ctx.likes, strict=True)]

    def shares() -> Tensor:
        degrees: Tensor = graph.pointers[1:] - graph.pointers[:-1]
        kind = full_dtype(given.dtype)
        return degrees.clamp(min=1).to(device=given.device, dtype=kind).reciprocal()

    found = spelling.backward(
        ctx.text, given, operands, ctx.needs_input_grad[2:], _einsum(graph), shares, given.new_ones, numbers
    )
    return None, None, *(g if g is None else g.to(operand.dtype) for g, operand in zip(found, operands))


def _tangent(ctx: Any, tangents: Sequence[Tensor | None]) -> Tensor | None:
    graph, (numbers, *operands) = ctx.graph, ctx.saved_tensors
    given = next(one for one in tangents if one is not None)
    found: Tensor | None = spelling.forward(
        ctx.text, operands, tangents, _einsum(graph), given.new_ones, numbers
    )
    return found
