"""Edge softmax and attention for PyTorch: a few steps on a graph, and gradients of their own.

These gradients need less memory and time than those of the steps. Forward mode and transforms differentiate the steps.
"""

from typing import Any, Final

import torch
from torch import Tensor

from tensorwise.front import spelling
from tensorwise.front.torch_derivatives import Evaluates, full_dtype, has_tangents

_COMPILES_OWN_GRADIENTS: Final = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
"""Whether compiled code calls the gradients below: PyTorch 2.13 does, and 2.11 made them 0, since it took operators within
an autograd.Function for constants; 2.12 was not tried."""
_ATTENTION: Final = spelling.attention_texts(spelling.SLOPE)
_WEIGHED: Final = spelling.weighed_texts(spelling.SLOPE)


def _stepwise() -> bool:
    """Whether steps are differentiated, not the operator as a whole: in forward mode, transforms and old compilers."""
    if torch.compiler.is_compiling():
        return not _COMPILES_OWN_GRADIENTS
    return has_tangents()


def _softmax(graph: Evaluates, scores: Tensor) -> Tensor:
    """The steps of `edge_softmax`. The largest score is a constant: it changes neither the result nor a derivative."""
    full = full_dtype(scores.dtype)
    largest = graph.einsum(spelling.SOFTMAX[0], scores.detach()).to(full)
    total = graph.einsum(spelling.SOFTMAX[1], scores, largest)
    return graph.einsum(spelling.SOFTMAX[2], scores, largest, total).to(scores.dtype)


def softmax(graph: Evaluates, scores: Tensor) -> Tensor:
    """Softmax of (edges, features) over the edges that end in the same destination."""
    made: Tensor = _softmax(graph, scores) if _stepwise() else _Softmax.apply(graph, scores)
    return made


class _Softmax(torch.autograd.Function):
    """By the gradient of its own, which needs the result only and makes nothing else that has a row an edge."""

    @staticmethod
    def forward(ctx: Any, graph: Evaluates, scores: Tensor) -> Tensor:
        out = _softmax(graph, scores)
        ctx.graph = graph
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[None, Tensor]:
        (out,) = ctx.saved_tensors
        whole = out.to(full_dtype(out.dtype))
        mean = ctx.graph.einsum("T[i,f] += C[A,f] * D[A,f] for A[i,k]", whole, given)
        found = ctx.graph.einsum("S[A,f] = C[A,f] * (D[A,f] - T[i,f]) for A[i,k]", out, given, mean)
        return None, found.to(out.dtype)


def _attention(
    graph: Evaluates, slope: float, values: Tensor, sources: Tensor, destinations: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The steps of `attention`: the result, the largest scores, the totals, and the weights where they are kept."""
    scores, sums, weighed, *_ = _attention_texts(slope)
    full = full_dtype(sources.dtype)
    largest = graph.einsum(scores, sources.detach(), destinations.detach().to(full))
    total = graph.einsum(sums, sources, destinations, largest)
    nodes = sources, destinations, largest, total
    weights = None
    if spelling.keeps_weights(graph.sources.shape[0], sources.shape[1], values.dtype):
        text, weighed, *_ = _weighed_texts(slope)
        weights = graph.einsum(text, *nodes)
        out = graph.einsum(weighed, weights, values)
    else:
        out = graph.einsum(weighed, *nodes, values)
    same = values.dtype == sources.dtype == destinations.dtype
    return out.to(values.dtype) if same else out, largest, total, weights


def attention(
    graph: Evaluates, slope: float, values: Tensor, sources: Tensor, destinations: Tensor
) -> Tensor:
    """The inside of a GAT layer; arguments as of `tensorwise.front.gnn.attention`."""
    made: Tensor
    if _stepwise():
        made, *_ = _attention(graph, slope, values, sources, destinations)
    else:
        made = _Attention.apply(graph, slope, values, sources, destinations)
    return made


class _Attention(torch.autograd.Function):
    """By gradients of its own: the total of a destination enters them through the result, which is known."""

    @staticmethod
    def forward(
        ctx: Any, graph: Evaluates, slope: float, values: Tensor, sources: Tensor, destinations: Tensor
    ) -> Tensor:
        out, largest, total, weights = _attention(graph, slope, values, sources, destinations)
        ctx.graph, ctx.slope = graph, slope
        ctx.save_for_backward(values, sources, destinations, largest, total, out, weights)
        return out

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        values, sources, destinations, largest, total, out, weights = ctx.saved_tensors
        _, sums, _, *texts = _attention_texts(ctx.slope)
        nodes, parts = (sources, destinations, largest), (values, sources, destinations)
        whole = given.to(full_dtype(given.dtype))
        taken = (whole * out).sum(-1)  # before there are gradients: what it takes is free again by then
        width = out.shape[-1]
        shares = taken.new_full((width,), 1 / max(1, width))
        needs = ctx.needs_input_grad[2:]
        operands: tuple[tuple[Tensor | None, ...], ...]
        if weights is not None and not torch.is_grad_enabled():
            _, _, of_values, of_scores, *texts = _weighed_texts(ctx.slope)
            dot = (weights, sources, destinations, given, values, shares, taken)
            turned = ctx.graph.einsum(of_scores, *dot) if any(needs[1:]) else None
            operands = (weights, given), (turned,), (turned,)
            texts = [of_values, *texts]
        else:
            if torch.is_grad_enabled():  # of gradients of gradients it is a part
                total = ctx.graph.einsum(sums, *nodes)
            scores = total, given, values, shares, taken
            operands = (*nodes, total, given), (*nodes, *scores), (*nodes, *scores)
        return (
            None,
            None,
            *(
                ctx.graph.einsum(text, *taken).to(part.dtype) if needed else None
                for text, taken, part, needed in zip(texts, operands, parts, needs, strict=True)
            ),
        )


def _attention_texts(slope: float) -> tuple[str, ...]:
    # A number that the compiler takes for a variable can be compared, but not written into a text.
    return _ATTENTION if slope == spelling.SLOPE else spelling.attention_texts(slope)


def _weighed_texts(slope: float) -> tuple[str, ...]:
    return _WEIGHED if slope == spelling.SLOPE else spelling.weighed_texts(slope)
