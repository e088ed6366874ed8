"""Sparse convolution in plain torch: submanifold where the stride is 1, else strided, as WACONet uses both.

WACO, section 4.1.1; submanifold convolution: Graham and van der Maaten, 2017. A convolution gathers the rows that meet at
an offset of the kernel, multiplies them with that offset's weights, and adds the products to the rows of the output.
"""

import math
from typing import Any, final

from paper_models.sites import Pairs, Sites, offsets
from tensorwise.model.torch_extra import torch

MOST_ROWS = 2**18
"""Rows gathered at a time: tens of megabytes for 32 channels, however many entries a pattern has."""


@final
class SparseConvolution(torch.nn.Module):
    """Convolves features at sites; output sites are those of the input, at a stride the blocks that hold one.

    The same numbers as torch's dense convolution with padding ``size // 2`` gives at these sites, sites that are not
    there counting as zeros.

    Args:
        order: number of modes, 2 or 3 (any works).
        channels_in, channels_out: features of a site before and after.
        size: odd width of the kernel.
        stride: 1 keeps the sites (submanifold); above 1 they get fewer, and far ones get near.

    Attributes:
        weight: (size ** order, channels_in, channels_out), in the order of ``offsets``.
        bias: (channels_out,).
    """

    def __init__(
        self, order: int, channels_in: int, channels_out: int, size: int = 3, stride: int = 1
    ) -> None:
        super().__init__()
        self.size, self.stride = size, stride
        places = len(offsets(order, size))
        self.weight = torch.nn.Parameter(torch.empty(places, channels_in, channels_out))
        self.bias = torch.nn.Parameter(torch.zeros(channels_out))
        # Kaiming for ReLU over the fan out, as WACO's code initialises.
        torch.nn.init.normal_(self.weight, std=math.sqrt(2 / (channels_out * places)))

    def forward(self, sites: Sites, features: Any) -> tuple[Sites, Any]:
        """Return the output's sites and features.

        Args:
            sites: n sites.
            features: (n, channels_in).

        Returns:
            m sites, and features (m, channels_out).
        """
        target = sites.coarser(self.stride)
        pairs = sites.pairs(self.size, self.stride)
        return target, convolve(features, self.weight, pairs, len(target)) + self.bias


def convolve(features: Any, weight: Any, pairs: Pairs, count: int) -> Any:
    """Return the sum over offsets k and pairs (a, b) of k: row b gets ``features[a] @ weight[k]``.

    Args:
        features: (n, channels_in), floating.
        weight: (offsets, channels_in, channels_out).
        pairs: as ``Sites.pairs`` returns them: no row twice within an offset.
        count: rows of the result.

    Returns:
        (count, channels_out). Differentiable once in features and weight; what was gathered is not kept for that,
        but gathered again.
    """
    return _Convolve.apply(features, weight, pairs, count)


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Any, weight: Any, pairs: Pairs, count: int) -> Any:
        ctx.save_for_backward(features, weight)
        ctx.pairs = pairs
        result = features.new_zeros((count, weight.shape[2]))
        for k, (sources, targets) in enumerate(pairs):
            for part in _parts(len(sources)):
                product = features.index_select(0, sources[part]) @ weight[k]
                _add_rows(result, targets[part], product)
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Any) -> tuple[Any, Any, None, None]:
        features, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        grad_features = torch.zeros_like(features) if wanted[0] else None
        grad_weight = torch.zeros_like(weight) if wanted[1] else None
        for k, (sources, targets) in enumerate(ctx.pairs):
            for part in _parts(len(sources)):
                arrived = grad.index_select(0, targets[part])
                if grad_features is not None:
                    _add_rows(grad_features, sources[part], arrived @ weight[k].T)
                if grad_weight is not None:
                    grad_weight[k] += features.index_select(0, sources[part]).T @ arrived
        return grad_features, grad_weight, None, None


def _add_rows(result: Any, rows: Any, added: Any) -> None:
    """As ``index_add_``, three times as fast: torch shares the rows of an expanded index out among threads."""
    result.scatter_add_(0, rows.long()[:, None].expand(-1, added.shape[1]), added)


def _parts(count: int) -> list[slice]:
    return [slice(start, start + MOST_ROWS) for start in range(0, count, MOST_ROWS)]


def mean_by_pattern(sites: Sites, features: Any) -> Any:
    """Return the mean of the features (n, channels) over each pattern's sites: (patterns, channels); 0 without sites."""
    counts = sites.counts.clamp(min=1).to(features.dtype)[:, None]
    if sites.patterns == 1:
        return features.sum(dim=0, keepdim=True) / counts
    sums = features.new_zeros((sites.patterns, features.shape[1]))
    return sums.index_add(0, sites.places[:, 0], features) / counts


def largest_in_blocks(sites: Sites, features: Any, stride: int = 2) -> tuple[Sites, Any]:
    """Max pooling: return the coarser sites, and for each the largest features (n, channels) of those in its block."""
    coarser = sites.coarser(stride)
    blocks = sites.blocks(stride)[:, None].expand(-1, features.shape[1])
    pooled = features.new_zeros((len(coarser), features.shape[1]))
    return coarser, pooled.scatter_reduce(0, blocks, features, "amax", include_self=False)
