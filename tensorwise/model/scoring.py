"""From configs and an embedded pattern to scores: WACO's program embedder and runtime predictor (figures 4-1, 4-6).

It also computes the embedding of a pattern for networks that read nothing but numbers about it.

It is written once for NumPy and torch, with operators and methods that arrays and tensors share: so training has gradients,
and searching needs no torch.
"""

import itertools
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tensorwise.model.table import Encoded, Form

EMBEDDING: Final = 128
"""Length of the embedding of a pattern, and of a config's."""
WIDTH: Final = 32
"""Numbers that stand for one choice."""
BLIND: Final = ("numbers", "statistics")
"""Networks that see numbers about a pattern instead of its entries; they are read without torch."""
HEAD: Final = (2 * EMBEDDING, 128, 64, 1)
"""Widths of a predictor: both embeddings in, one score out."""


def shapes(form: Form, heads: int = 1) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight by name, for ``heads`` predictors that share the embeddings."""
    choices = len(form.rows) + len(form.orders)
    layers = {"program.0": (WIDTH * choices, EMBEDDING), "program.1": (EMBEDDING, EMBEDDING)}
    for k, width in enumerate(form.orders):
        layers[f"order.{k}"] = (width, WIDTH)
    found: dict[str, tuple[int, ...]] = {"values": (form.lookups, WIDTH)}
    for name, (wide, narrow) in layers.items():
        found |= {f"{name}.weight": (wide, narrow), f"{name}.bias": (narrow,)}
    for k, (wide, narrow) in enumerate(itertools.pairwise(HEAD)):
        found |= {f"head.{k}.weight": (heads, wide, narrow), f"head.{k}.bias": (heads, 1, narrow)}
        if not k:
            found["head.0.nest"] = (heads, form.nest, narrow)
    return found


def initial(form: Form, rng: np.random.Generator, heads: int = 1) -> dict[str, np.ndarray]:
    """Draw float32 weights as torch's layers do: lookups normal, linear layers uniform in 1 / sqrt(inputs)."""
    drawn = {}
    inputs = 1
    for name, shape in shapes(form, heads).items():
        if name == "values":
            array = rng.standard_normal(shape)
        else:
            # A bias, and what nests weigh, stand behind the weights of their layer.
            inputs = shape[-2] if name.endswith("weight") else inputs
            array = rng.uniform(-1, 1, shape) / math.sqrt(inputs)
        drawn[name] = array.astype(np.float32)
    return drawn


def with_unknown_rows(weights: Mapping[str, np.ndarray], form: Form) -> dict[str, np.ndarray]:
    """Return the weights with one more row of the lookup table for each listed param, for its unknown values.

    That row is the mean of the rows of the known values. It is computed and not learned, so older models have it, too.
    """
    values, first, means = weights["values"], 0, []
    for rows in form.rows:
        means.append(values[first + 1 : first + rows].mean(axis=0, dtype=np.float64, keepdims=True))
        first += rows
    return {**weights, "values": np.concatenate([values, *means]).astype(values.dtype)}


def embed(weights: Mapping[str, Any], configs: Encoded) -> Any:
    """Return the embeddings of n configs: (n, EMBEDDING).

    Args:
        weights: by name, as ``shapes`` lists them, the lookup table also `with_unknown_rows`; all of NumPy or all of torch.
        configs: arrays of the same library.
    """
    first = weights["program.0.weight"]
    looked_up = configs.values.shape[1] * WIDTH
    # Each choice's numbers times their part of the first layer: the concatenation is never made.
    values = weights["values"][configs.values].reshape(len(configs), looked_up)
    hidden = values @ first[:looked_up] + weights["program.0.bias"]
    for k, order in enumerate(configs.orders):
        start = looked_up + k * WIDTH
        numbers = order @ weights[f"order.{k}.weight"] + weights[f"order.{k}.bias"]
        hidden = hidden + numbers @ first[start : start + WIDTH]
    return hidden.clip(min=0) @ weights["program.1.weight"] + weights["program.1.bias"]


def seen_last(weights: Mapping[str, Any], pattern: Any, configs: Any, nests: Any = None) -> Any:
    """Return the inputs of the last layer of each predictor for n configs on one pattern: (heads, n, HEAD[2]).

    Args:
        weights: as for ``embed``.
        pattern: embedding of the pattern, (EMBEDDING,).
        configs: embeddings of the configs, (n, EMBEDDING).
        nests: as ``Encoded`` has them, (n, form.nest); None where they are not known.
    """
    first = weights["head.0.weight"]
    about = (pattern @ first[:, :EMBEDDING])[:, None] + weights["head.0.bias"]
    hidden = configs @ first[:, EMBEDDING:] + about
    if nests is not None:
        hidden = hidden + nests @ weights["head.0.nest"]
    hidden = hidden.clip(min=0) @ weights["head.1.weight"] + weights["head.1.bias"]
    return hidden.clip(min=0)


def score(weights: Mapping[str, Any], pattern: Any, configs: Any, nests: Any = None) -> Any:
    """Return the scores that each predictor gives n configs on one pattern: (heads, n), lower is better.

    Args: as for ``seen_last``.
    """
    seen = seen_last(weights, pattern, configs, nests)
    return (seen @ weights["head.2.weight"] + weights["head.2.bias"])[:, :, 0]


def look(weights: Mapping[str, Any], numbers: Any) -> Any:
    """Return the embedding of a workload by one of the networks in BLIND, which read numbers only: (EMBEDDING,).

    Args:
        weights: the network's state by name, as torch names it.
        numbers: standardised, (numbers,).
    """
    for name in ("shape", "joined"):
        hidden = (numbers @ weights[f"{name}.0.weight"].T + weights[f"{name}.0.bias"]).clip(min=0)
        numbers = hidden @ weights[f"{name}.2.weight"].T + weights[f"{name}.2.bias"]
    return numbers
