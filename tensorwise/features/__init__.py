"""Features: patterns, programs and devices as numbers for cost models."""

from tensorwise.moved import forward_names

__getattr__ = forward_names(
    __name__,
    {
        "PATTERNS": "tensorwise.features.patterns",
        "Featurizer": "tensorwise.features.featurizer",
        "Field": "tensorwise.features.featurizer",
        "MatrixPattern": "tensorwise.features.matrix",
        "TensorPattern": "tensorwise.features.tensor",
    },
)
