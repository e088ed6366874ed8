"""The network of CDMPP (section 5.1) as functions of weights, written once for NumPy and torch, as in ``scoring.py``.

The leaves of a program pass a Transformer encoder; a linear layer, one for each number of leaves, makes one embedding of
them; a small network embeds the device; a decoder predicts the time from the sum of both embeddings. Programs of one batch
have equally many leaves.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self, final, get_args

import numpy as np

from tensorwise.analysis.ast import LEAVES, positional_encoding
from tensorwise.analysis.code import CODE
from tensorwise.analysis.hardware import HARDWARE
from tensorwise.errors import InputError
from tensorwise.model.labels import UNIT_S, Labels

Joining = Literal["counts", "sum"]
_LEAF: Final = {field.name: place for place, field in enumerate(LEAVES.fields)}
_DEVICE: Final = {field.name: place for place, field in enumerate(HARDWARE.fields)}
_FLOAT: Final = [place for name, place in _LEAF.items() if name.startswith("operations.float")]
_TOUCHED, _EXECUTIONS = _LEAF["memory.touched"], _LEAF["loops.executions"]
_DEALT: Final = [_LEAF[name] for name in ("parallel.product", "gpu.block")]
_FLOPS, _BANDWIDTH = _DEVICE["flops"], _DEVICE["bandwidth"]
_CLOCK, _CORES, _GPU = _DEVICE["clock_hz"], _DEVICE["cores"], _DEVICE["kind.gpu"]
_CYCLES: Final = [field.name for field in CODE.fields].index("all.cycles") - len(CODE.fields)
"""Where in a row of a device the cycles of compiled code are: the code's numbers end it."""
CLOCK_HZ: Final = 3e9
"""Of a CPU whose clock is not known."""


@final
@dataclass(frozen=True)
class Shape:
    """How large the network is, and which variant. The defaults train on two cores in an hour or two.

    Attributes:
        leaf, device: length of the vector of a leaf, and of that of a device (with operands and compiled code).
        width: of the encoder; heads: of its attention; layers: of the encoder; inner: width within a layer.
        embedding: length of the embedding of a program, and of a device.
        leaf_bins, bins: bins into which each number of a leaf, and of a device, is encoded, see ``encode_rows``; 0: none,
            the number itself is read.
        context: width of the layers that read the device's numbers: one layer and ``deep`` residual ones.
        decoder: widths of the decoder's layers.
        joining: ``counts``, as in the paper: a linear layer for each number of leaves in ``counts``; for other numbers, the
            mean and the maximum over leaves. ``sum``: the decoder predicts each leaf alone, as a factor over its time at the
            device's best rates, and the seconds are added, so that it also works for programs with more leaves than any in
            the training data.
        counts: numbers of leaves that have a layer.
        positions: whether a leaf's position in the tree is an input.
    """

    leaf: int
    device: int
    width: int = 96
    heads: int = 4
    layers: int = 2
    inner: int = 192
    embedding: int = 96
    leaf_bins: int = 4
    bins: int = 8
    context: int = 192
    deep: int = 2
    decoder: tuple[int, ...] = (128, 128)
    joining: Joining = "counts"
    counts: tuple[int, ...] = ()
    positions: bool = True

    def __post_init__(self) -> None:
        sizes = (
            *(self.leaf, self.device, self.width, self.heads, self.layers, self.inner),
            *(self.embedding, self.leaf_bins + 1, self.bins + 1, self.context, self.deep + 1),
        )
        if not all(0 < size <= 4096 for size in (*sizes, *self.decoder)) or self.width % self.heads:
            raise InputError(f"a network needs positive sizes, and a width that heads divide, got {self}")
        if self.joining not in get_args(Joining) or not all(0 < count <= 1024 for count in self.counts):
            raise InputError(f"a network joins leaves by {' or '.join(get_args(Joining))}, got {self}")

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {**asdict(self), "decoder": list(self.decoder), "counts": list(self.counts)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read back what ``to_json`` returned; raise InputError or TypeError for something else."""
        return cls(**{**data, "decoder": tuple(data["decoder"]), "counts": tuple(data["counts"])})


PAPER: Final = {
    "width": 164, "heads": 4, "layers": 11, "inner": 2048, "embedding": 716, "leaf_bins": 0, "bins": 0,
    "context": 716, "deep": 0, "decoder": (985, 985, 985, 69, 930, 930, 930),
}  # fmt: skip
"""The paper's sizes (Table 6), 13.8 million parameters: for a GPU."""


def shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight by name."""
    linear = {"leaf": ((1 + shape.leaf_bins) * shape.leaf, shape.width)}
    found: dict[str, tuple[int, ...]] = {}
    for k in range(shape.layers):
        linear |= {
            f"{k}.attend": (shape.width, 3 * shape.width), f"{k}.attended": (shape.width, shape.width),
            f"{k}.inner": (shape.width, shape.inner), f"{k}.outer": (shape.inner, shape.width),
        }  # fmt: skip
    for norm in [f"{k}.norm{m}" for k in range(shape.layers) for m in (0, 1)] + ["norm"]:
        found |= {f"{norm}.scale": (shape.width,), f"{norm}.shift": (shape.width,)}
    if shape.joining == "sum":
        linear["each"] = (shape.width, shape.embedding)
    else:
        linear["any"] = (2 * shape.width, shape.embedding)
        linear |= {f"count{n}": (n * shape.width, shape.embedding) for n in shape.counts}
    linear |= {
        "context": ((1 + shape.bins) * shape.device, shape.context),
        "device": (shape.context, shape.embedding),
    }
    linear |= {f"context{k}": (shape.context, shape.context) for k in range(shape.deep)}
    widths = (shape.embedding, *shape.decoder, 1)
    linear |= {f"decoder{k}": (widths[k], widths[k + 1]) for k in range(len(widths) - 1)}
    for name, (wide, narrow) in linear.items():
        found |= {f"{name}.weight": (wide, narrow), f"{name}.bias": (narrow,)}
    return found


def initial(shape: Shape, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw float32 weights: linear layers uniform in 1 / sqrt(inputs), norms as they leave their input."""
    drawn, inputs = {}, 1
    for name, size in shapes(shape).items():
        if ".norm" in f".{name}":
            array = np.full(size, float(name.endswith("scale")))
        else:
            inputs = (
                size[0] if name.endswith("weight") else inputs
            )  # a bias stands behind its layer's weights
            array = rng.uniform(-1, 1, size) / math.sqrt(inputs)
        drawn[name] = array.astype(np.float32)
    return drawn


def embed(
    shape: Shape, weights: Mapping[str, Any], leaves: Any, places: Any, device: Any, library: Any
) -> Any:
    """Return the embeddings of programs on devices: (n, embedding), or (n, leaves, embedding) where leaves are summed.

    Args:
        weights: by name, as ``shapes`` lists them; all of NumPy or all of torch.
        leaves: (n, leaves, fields and bins), what ``told`` returns; places: (n, leaves, width), what ``encoded`` returns.
        device: (n, fields and bins), what ``told`` returns.
        library: numpy or torch.
    """
    hidden = _linear(weights, "leaf", leaves)
    if shape.positions:
        hidden = hidden + places
    for k in range(shape.layers):
        hidden = hidden + _attention(shape, weights, k, _norm(weights, f"{k}.norm0", hidden), library)
        inner = _linear(weights, f"{k}.inner", _norm(weights, f"{k}.norm1", hidden)).clip(min=0)
        hidden = hidden + _linear(weights, f"{k}.outer", inner)
    hidden = _norm(weights, "norm", hidden)
    known = _linear(weights, "context", device).clip(min=0)
    for k in range(shape.deep):
        known = known + _linear(weights, f"context{k}", known).clip(min=0)
    known = _linear(weights, "device", known)
    if shape.joining == "sum":
        return _linear(weights, "each", hidden) + known[:, None]
    n, count, _ = hidden.shape
    if count in shape.counts:
        return _linear(weights, f"count{count}", hidden.reshape(n, -1)) + known
    both = library.concatenate((hidden.mean(1), library.amax(hidden, 1)), 1)
    return _linear(weights, "any", both) + known


def decode(shape: Shape, weights: Mapping[str, Any], embedded: Any, work: Any, library: Any) -> Any:
    """Return the prediction for n embeddings, (n,): a label, or the log of microseconds where leaves are summed.

    Args:
        work: (n, leaves), see `estimate_leaf_times`: where leaves are summed, the network predicts factors over these times.
    """
    for k in range(len(shape.decoder)):
        embedded = _linear(weights, f"decoder{k}", embedded).clip(min=0)
    said = _linear(weights, f"decoder{len(shape.decoder)}", embedded)[..., 0]
    if shape.joining == "counts":
        return said
    return _added(said + work, library)


def encoded(shape: Shape, order: np.ndarray) -> np.ndarray:
    """Return the encoding of places of leaves: (..., width) float32."""
    return positional_encoding(order, shape.width)


def estimate_leaf_times(leaves: np.ndarray, devices: np.ndarray) -> np.ndarray:
    """Return the log of the microseconds that leaves would take at a device's best rates: (n, leaves) float32.

    The times of operations, of bytes, and of loop iterations (ten billion a second) are added: a scale, not a bound. A rate
    that is not known is left out. If the program was compiled, the cycles of its code, divided among the leaves, are used
    instead. They are divided by the cores that the leaf's parallel loops can keep busy, where some may be idle in the last
    round. Cycles of GPU code already are those of the whole GPU.

    Args:
        leaves: (n, leaves, fields), devices: (n, fields), not standardised.
    """
    counts, rates = (np.exp2(numbers.astype(float).clip(0, 100)) - 1 for numbers in (leaves, devices))
    flops, bandwidth = (
        1e9 * np.where(rate > 0, rate, np.inf)[:, None] for rate in (rates[:, _FLOPS], rates[:, _BANDWIDTH])
    )
    seconds = counts[..., _FLOAT].sum(-1) / flops + counts[..., _TOUCHED] / bandwidth
    found: np.ndarray = np.log((seconds + counts[..., _EXECUTIONS] / 1e10 + 1e-9) / UNIT_S)
    cycles, clock, cores = rates[:, _CYCLES], 1e6 * rates[:, _CLOCK], np.maximum(rates[:, _CORES], 1)
    clock = np.where(clock > 0, clock, CLOCK_HZ)
    asked = cycles > 0
    cores = np.where(asked & (devices[:, _GPU] > 0), 1, cores)
    whole = np.log(np.where(asked, cycles, 1) / (clock * cores) / UNIT_S)
    found += np.where(asked, whole - _added(found, np), 0.0)[:, None]
    dealt, each = np.maximum(counts[..., _DEALT], 1).prod(-1), cores[:, None]
    found += np.log(np.ceil(dealt / each - 1e-3) * each / dealt)  # nothing where there is one core
    return found.astype(np.float32)


def compare_with_leaf_times(seconds: np.ndarray, work: Any, library: Any) -> Any:
    """Return the log of how much longer programs took than the sum of their leaves as `estimate_leaf_times` has it: (n,)."""
    return library.log(seconds / UNIT_S) - _added(work, library)


def convert_output(shape: Shape, labels: Labels, said: Any, library: Any) -> tuple[Any, Any]:
    """Return labels and logarithms of seconds of what ``decode`` said."""
    if shape.joining == "counts":
        return said, labels.log_seconds(said, library)
    logs = said + math.log(UNIT_S)
    return labels.of(library.exp(logs), library), logs


def scales_of(
    leaves: np.ndarray, devices: np.ndarray, leaf_bins: int = Shape.leaf_bins, bins: int = Shape.bins
) -> dict[str, np.ndarray]:
    """Return means and deviations of (n, fields) leaves and (m, fields) devices; what never varies keeps its scale.

    ``leaf.knots`` and ``device.knots``, (bins + 1, fields), are quantiles of each number: the ends of bins with equally many
    rows.
    """
    found: dict[str, np.ndarray] = {}
    for name, rows, count in (("leaf", leaves, leaf_bins), ("device", devices, bins)):
        std = rows.std(0)
        found |= {f"{name}.mean": rows.mean(0), f"{name}.std": np.where(std > 1e-3, std, 1.0)}
        found[f"{name}.knots"] = np.quantile(rows, np.linspace(0, 1, count + 1), axis=0)
    return {name: array.astype(np.float32) for name, array in found.items()}


def standardised(rows: np.ndarray, scales: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return (..., fields) rows of ``leaf`` or ``device`` on those scales, at most ten deviations away: float32."""
    found: np.ndarray = (rows - scales[f"{name}.mean"]) / scales[f"{name}.std"]
    return found.clip(-10, 10).astype(np.float32)


def encode_rows(rows: np.ndarray, scales: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return (..., fields) rows of ``leaf`` or ``device`` as networks read them: standardised, then their places in bins.

    The value for a bin is 0 if the number is below it, 1 if above, and in between the share of the bin that lies below the
    number. With them a linear layer can represent any function that is linear within bins, instead of a linear function
    only (Gorishniy et al., On Embeddings for Numerical Features in Tabular Deep Learning, 2022, section 3.1).

    Returns:
        (..., (1 + bins) * fields) float32.
    """
    low, high = scales[f"{name}.knots"][:-1], scales[f"{name}.knots"][1:]
    wide = np.where(high - low > 1e-3, high - low, np.inf)  # an empty bin tells nothing
    places = ((rows[..., None, :] - low) / wide).clip(0, 1).astype(np.float32)
    return np.concatenate((standardised(rows, scales, name), places.reshape(*rows.shape[:-1], low.size)), -1)


def _added(logs: Any, library: Any) -> Any:
    """The log of the sum of what (n, leaves) logarithms are of: (n,)."""
    most = library.amax(logs, -1)
    return most + library.log(library.exp(logs - most[:, None]).sum(-1))


def _linear(weights: Mapping[str, Any], name: str, given: Any) -> Any:
    return given @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _norm(weights: Mapping[str, Any], name: str, given: Any) -> Any:
    away = given - given.mean(-1)[..., None]
    return (
        away / ((away * away).mean(-1)[..., None] + 1e-5) ** 0.5 * weights[f"{name}.scale"]
        + weights[f"{name}.shift"]
    )


def _attention(shape: Shape, weights: Mapping[str, Any], layer: int, given: Any, library: Any) -> Any:
    n, count, width = given.shape
    each = width // shape.heads
    parts = _linear(weights, f"{layer}.attend", given).reshape(n, count, 3, shape.heads, each)
    query, key, value = (parts[:, :, k].swapaxes(1, 2) for k in range(3))  # (n, heads, count, each)
    scores = query @ key.swapaxes(2, 3) / math.sqrt(each)
    shares = library.exp(scores - library.amax(scores, -1)[..., None])
    shares = shares / shares.sum(-1)[..., None]
    return _linear(weights, f"{layer}.attended", (shares @ value).swapaxes(1, 2).reshape(n, count, width))
