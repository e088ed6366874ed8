"""`SparseLinear`: a linear layer whose weight is a sparse matrix with a fixed pattern and trainable values."""

import math
import warnings
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from tensorwise.errors import InputError
from tensorwise.front.graph_cache import consists_of
from tensorwise.front.spelling import TIMES_COLUMNS, TIMES_VECTOR
from tensorwise.front.torch import TorchGraph, graph_einsum
from tensorwise.nn.csr import CsrTensors
from tensorwise.nn.operands import converted_operands
from tensorwise.nn.weights import read_weight
from tensorwise.tuning.result import TuneResult

_STATE: Final = ("crow_indices", "col_indices", "values")
"""What a state dict has of the weight."""
DENSE_FROM: Final = 0.5
"""Density (stored entries over all, 0 to 1) above which a dense product is usually faster, so that a warning is due.

At this density the generated SpMM is slower than BLAS on 62 % of 1,705 products of `experiments/mlcd/results/gemm.parquet`
(AMD EPYC, float32, two threads), at a density of 0.4 on 47 %. Values and columns of 32 bits also take more memory than the
dense weight from here on.
"""


@final
class SparseLinear(nn.Module):
    """``y = x @ weight.T + bias`` with a sparse weight: the sparse counterpart of ``torch.nn.Linear``.

    The pattern is fixed; the values are a parameter. Products read both where they lie, so an optimizer's steps need no
    conversion. A state dict holds pattern and values; loading one with another pattern of the same shape replaces the
    pattern, after a check. The pattern stays in main memory when the layer is moved to a GPU.

    Attributes:
        values: (nnz,) parameter: the stored entries of the weight, row by row.
        bias: (out_features,) parameter, or None.
        crow_indices: (out_features + 1,) buffer of integers: where the entries of each row begin.
        col_indices: (nnz,) buffer of integers: the column of each entry.
        in_features: number of columns of the weight.
        out_features: number of rows of the weight.
    """

    crow_indices: Tensor
    col_indices: Tensor
    values: nn.Parameter
    bias: nn.Parameter | None
    _kept: tuple[TorchGraph, tuple[int, ...]] | None

    def __init__(self, weight: Any, bias: Tensor | bool | None = None, *, mask: Any = None) -> None:
        """Make the layer of a weight; its values are copied.

        Args:
            weight: (out_features, in_features), one of

                - an ``nn.Linear``: the entries that ``torch.nn.utils.prune`` keeps, else those that are not 0, and its bias;
                - a dense tensor or array of floating-point numbers: its entries that are not 0;
                - a dense tensor or array of bool, a mask alone: values are drawn as `reset_parameters` says;
                - a sparse tensor of torch (CSR, CSC, COO, BSR) or a SciPy sparse array: its stored entries, zeros included;
                - a 2:4 tensor (``torch.sparse.SparseSemiStructuredTensor``): its entries that are not 0.
            bias: (out_features,) its values; True: drawn as `reset_parameters` says; False: none. None: that of an
                ``nn.Linear``, else none.
            mask: (out_features, in_features) dense, for a dense weight or an ``nn.Linear``: entries where it is not 0 are
                kept, zeros too.

        Raises:
            InputError: the weight is none of these, or shapes and dtypes do not fit.

        Warns:
            UserWarning: once a process, where the given values have a density above 0.5, as of an ``nn.Linear`` that was not
                pruned: a dense product is usually faster.
        """
        super().__init__()
        given = read_weight(weight, mask)
        self.out_features, self.in_features = given.csr.shape
        if given.has_values and _density(given.csr) > DENSE_FROM:
            _warn_of_dense(_density(given.csr), given.csr.shape)
        graph = TorchGraph.from_pointers(given.csr.crow_indices, given.csr.col_indices, self.in_features)
        self.register_buffer("crow_indices", graph.pointers)
        self.register_buffer("col_indices", graph.sources)
        self.values = nn.Parameter(given.csr.values.detach().clone(), requires_grad=given.is_trained)
        self._use_pattern(graph)
        self._set_bias(given.bias if bias is None else bias)
        if not given.has_values:
            self._draw_values()
        if bias is True:
            self._draw_bias()

    def _set_bias(self, bias: Tensor | bool | None) -> None:
        if bias is None or bias is False:
            self.register_parameter("bias", None)
            return
        if bias is True:
            bias = self.values.new_zeros(self.out_features)
        if not isinstance(bias, Tensor) or bias.shape != (self.out_features,):
            got = tuple(bias.shape) if isinstance(bias, Tensor) else type(bias).__name__
            raise InputError(
                f"SparseLinear: expected a bias of shape ({self.out_features},), True or False; got {got}"
            )
        trained = bias.requires_grad if isinstance(bias, nn.Parameter) else True
        self.bias = nn.Parameter(bias.detach().clone(), requires_grad=trained)

    def reset_parameters(self) -> None:
        """Draw values and bias uniformly between -b and b, with b = 1 / sqrt(entries of the row).

        This is the initialization of ``nn.Linear`` with the inputs that a row reads instead of ``in_features``.
        """
        self._draw_values()
        self._draw_bias()

    def _draw_values(self) -> None:
        counts = self.crow_indices.diff().to(self.values.device)
        self.values.data.uniform_(-1, 1).mul_(torch.repeat_interleave(self._bounds(), counts))

    def _draw_bias(self) -> None:
        if self.bias is not None:
            self.bias.data.uniform_(-1, 1).mul_(self._bounds())

    def _bounds(self) -> Tensor:
        counts = self.crow_indices.diff().clamp(min=1).to(self.values.device)
        return counts.to(torch.float64).rsqrt().to(self.values.dtype)

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.values.numel())

    @property
    def weight(self) -> Tensor:
        """(out_features, in_features) a torch tensor of layout sparse_csr over the layer's own values, with gradients."""
        return self.csr_tensors().to_tensor(self.values)

    def csr_tensors(self) -> CsrTensors:
        """Return pattern and values, not copied."""
        return CsrTensors(
            self.crow_indices, self.col_indices, self.values, (self.out_features, self.in_features)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias``.

        Args:
            x: (..., in_features) of the dtype of the values; under ``torch.autocast`` both are converted to its dtype.
                Feature-major inputs, whose transpose is contiguous, are not transposed, and give feature-major results.

        Returns:
            (..., out_features), contiguous unless the input is feature-major.

        Raises:
            InputError: shape, dtype or device do not fit.
        """
        values, x = converted_operands(self.values, x)
        if not x.ndim or x.shape[-1] != self.in_features:
            raise InputError(
                f"SparseLinear: expected an input of shape (..., {self.in_features}), got {tuple(x.shape)}"
            )
        rows = x.reshape(-1, self.in_features)
        if rows.shape[0] == 1:
            y = self.evaluate(TIMES_VECTOR, values, rows[0])[None]
        else:
            # A kernel vectorizes over the batch, which is the last dimension of its operands.
            by_feature = rows.t()
            feature_major = by_feature.is_contiguous() and not rows.is_contiguous()
            y = self.evaluate(TIMES_COLUMNS, values, by_feature.contiguous()).t()
            y = y if feature_major else y.contiguous()
        if self.bias is not None:
            y = y + self.bias.to(y.dtype)
        return y.reshape(*x.shape[:-1], self.out_features)

    def evaluate(self, text: str, *operands: Tensor) -> Tensor:
        """Evaluate an assignment of the einsum language ``for A[i,k]`` over the pattern of the weight.

        Args:
            text: such as ``C[i,f] += E[A] * B[k,f] for A[i,k]``: i are outputs, k inputs, ``E[A]`` has a row an entry.
            operands: the dense operands in order of appearance.
        """
        if torch.compiler.is_compiling() or type(self.crow_indices) is not Tensor:
            pattern = self.crow_indices, self.col_indices  # a compiled program has them as inputs
            made: Tensor = graph_einsum(*pattern, None, self.in_features, text, list(operands))
            return made
        return self._graph().einsum(text, *operands)

    def tune(self, budget_s: float | None = None, **given: Any) -> list[TuneResult]:
        """Search faster kernels for the products that this layer has computed, forward and backward.

        Run the layer once before, with the batch size and the dtype that matter. Arguments and results are those of
        ``tensorwise.front.torch.Graph.tune``.
        """
        return self._graph().tune(budget_s, **given)

    # -- the pattern -------------------------------------------------------------------------------------

    def _graph(self) -> TorchGraph:
        """The pattern with its kernels; made again if somebody has written another one to the buffers."""
        if self._kept is not None:
            graph, state = self._kept
            if state == self._state_of_pattern():
                return graph
            if consists_of(graph.graph, self.crow_indices.numpy(), self.col_indices.numpy()):
                self._kept = graph, self._state_of_pattern()
                return graph
        graph = TorchGraph.from_pointers(self.crow_indices, self.col_indices, self.in_features)
        self._use_pattern(graph)
        return graph

    def _use_pattern(self, graph: TorchGraph) -> None:
        """Use this pattern. The buffers become the graph's tensors, by which compiled programs find its kernels."""
        self.crow_indices, self.col_indices = graph.pointers, graph.sources
        self._kept = graph, self._state_of_pattern()

    def _state_of_pattern(self) -> tuple[int, ...]:
        """Changes when a buffer is replaced or written to; tensors of inference mode do not count their changes."""
        buffers = self.crow_indices, self.col_indices
        versions = (-1 if one.is_inference() else one._version for one in buffers)
        return (*map(id, buffers), *versions)

    def _apply(self, fn: Any, recurse: bool = True) -> "SparseLinear":
        """Convert and move the parameters only: kernels are chosen and compiled by the pattern in main memory."""
        pattern = self.crow_indices, self.col_indices
        super()._apply(fn, recurse)
        self.crow_indices, self.col_indices = pattern
        return self

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Check a pattern before it replaces the own one: kernels trust it."""
        loaded = [state_dict.get(prefix + name) for name in _STATE]
        graph = None
        if all(isinstance(one, Tensor) for one in loaded):
            pointers, columns, values = loaded
            try:
                if len(pointers) != self.out_features + 1 or values.shape != columns.shape:
                    raise InputError(
                        f"a pattern of {len(pointers) - 1} rows with {tuple(columns.shape)} columns and "
                        f"{tuple(values.shape)} values; expected {self.out_features} rows, and a value for each column"
                    )
                graph = TorchGraph.from_pointers(pointers, columns, self.in_features)
            except InputError as error:
                error_msgs.append(f"SparseLinear '{prefix.rstrip('.')}': {error}")
                return
            self._resize(graph)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if graph is not None:
            self._use_pattern(graph)

    def _resize(self, graph: TorchGraph) -> None:
        """Make room for another number of entries; the parameter stays the object that an optimizer has."""
        if graph.graph.edges != self.nnz:
            self.values.data = self.values.data.new_empty(graph.graph.edges)
            self.values.grad = None
        self.crow_indices, self.col_indices = graph.pointers.clone(), graph.sources.clone()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}

    def extra_repr(self) -> str:
        """Describe the layer in the text of a model."""
        share = _density(self.csr_tensors())
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, nnz={self.nnz}, "
            f"density={share:.3g}, bias={self.bias is not None}"
        )


def _density(csr: CsrTensors) -> float:
    """Stored entries over all; NaN of a weight without any, of which no comparison holds."""
    return csr.values.numel() / math.prod(csr.shape) if math.prod(csr.shape) else math.nan


_warned: Final[list[tuple[int, int]]] = []
"""The shape of the weight that this process warned of, if it did."""


def _warn_of_dense(density: float, shape: tuple[int, int]) -> None:
    if _warned:
        return
    _warned.append(shape)
    warnings.warn(
        f"SparseLinear: the weight of shape {shape} has density {density:.3g}; above {DENSE_FROM:g} a dense product is "
        "usually faster. Prune the layer first (torch.nn.utils.prune), or keep nn.Linear. This warning is given once",
        stacklevel=3,
    )
