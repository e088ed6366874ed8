"""The featurizers of sparsity patterns, a row each."""

from typing import Final

from tensorwise.analysis.featurizer import Featurizer
from tensorwise.analysis.matrix import MatrixPattern
from tensorwise.analysis.tensor import TensorPattern
from tensorwise.tensor.entries import Entries

PATTERNS: Final[dict[str, type[Featurizer[Entries]]]] = {
    MatrixPattern.name: MatrixPattern,
    TensorPattern.name: TensorPattern,
}
"""Featurizers of sparsity patterns by name. Models of matrices read `MatrixPattern`, those of tensors `TensorPattern`."""
