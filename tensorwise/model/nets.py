"""Networks that look at a sparsity pattern: WACO's, those it is compared with (section 5.3.2), COGNATE's, and a fast one.

They share one interface and differ in what they see: numbers only, an image of the pattern, or its entries.
"""

import abc
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np

from tensorwise.model.scoring import BLIND, EMBEDDING
from tensorwise.model.sites import Sites
from tensorwise.model.sparse_convolution import SparseConvolution, largest_in_blocks, mean_by_pattern
from tensorwise.model.torch_extra import torch

if TYPE_CHECKING:
    from tensorwise.tensor.entries import Entries

CHANNELS: Final = 32
"""Features of a site: few, so that matrices with ten million entries fit into memory (WACO, section 4.1.1)."""
LAYERS: Final = 14
"""Convolutions of WACONet; the thirteen strided ones connect sites at a distance of 8192."""
COGNATE_BLOCKS: Final = ((32, 32, 64), (64, 64, 128), (128, 128, 256), (256, 256, 256))
"""Channels of CognateNet's convolutions, block by block."""
SIDES: Final = {2: 256, 3: 32}
"""Cells of an image in each mode, by order; 256 as in WACO's DenseConv, as many bytes for tensors of order 3."""


class PatternNet(torch.nn.Module, abc.ABC):
    """Turns patterns into embeddings. A leaf says what is prepared once a pattern and how it is pooled.

    Args:
        order: modes of the patterns, 2 or 3.
        numbers: how many standardised numbers describe a workload.
        width: features that ``pool`` returns for a pattern.

    Attributes:
        name: its name in ``NETS``.
        widths: of the layers that the numbers pass.
    """

    name: ClassVar[str]
    widths: ClassVar[tuple[int, int]] = (64, CHANNELS)

    def __init__(self, order: int, numbers: int, width: int) -> None:
        super().__init__()
        self.order = order
        relu, linear, (first, second) = torch.nn.ReLU, torch.nn.Linear, self.widths
        self.shape = torch.nn.Sequential(linear(numbers, first), relu(), linear(first, second))
        self.joined = torch.nn.Sequential(linear(width + second, 256), relu(), linear(256, EMBEDDING))

    @property
    def looks(self) -> bool:
        """Whether it looks at patterns, and not only at numbers about them."""
        return self.name not in BLIND

    @abc.abstractmethod
    def prepare(self, patterns: "Sequence[Entries]", device: str = "cpu") -> Any:
        """Return what ``forward`` needs of a batch of patterns, with the bytes it holds as ``nbytes``.

        It does not depend on weights, so it may be kept from one epoch to the next.
        """

    @abc.abstractmethod
    def pool(self, prepared: Any) -> Any:
        """Return the features of a prepared batch: float32, (patterns, width)."""

    def forward(self, prepared: Any, numbers: Any) -> Any:
        """Return the embeddings of a prepared batch.

        Args:
            prepared: what ``prepare`` returned for n patterns.
            numbers: standardised numbers about the workloads: float32, (n, numbers).

        Returns:
            float32, (n, EMBEDDING).
        """
        return self.joined(torch.cat([self.pool(prepared), self.shape(numbers)], dim=1))


@final
class WacoNet(PatternNet):
    """WACO's featurizer (section 4.1.1, figure 4-4): convolutions that see every entry, all of them pooled.

    The first has a kernel 5 wide, thirteen more one 3 wide and stride 2. No layer normalises: none does in WACO's code.
    """

    name: ClassVar[str] = "waco"

    def __init__(self, order: int, numbers: int) -> None:
        super().__init__(order, numbers, LAYERS * CHANNELS)
        layers = [SparseConvolution(order, 1, CHANNELS, size=5)]
        layers += [SparseConvolution(order, CHANNELS, CHANNELS, stride=2) for _ in range(LAYERS - 1)]
        self.layers = torch.nn.ModuleList(layers)

    def prepare(self, patterns: "Sequence[Entries]", device: str = "cpu") -> Sites:
        return Sites.of(patterns, device)

    def pool(self, prepared: Any) -> Any:
        sites, features = prepared, torch.ones((len(prepared), 1), device=prepared.places.device)
        pooled = []
        for layer in self.layers:
            sites, features = layer(sites, features)
            features = torch.relu(features)
            pooled.append(mean_by_pattern(sites, features))
        return torch.cat(pooled, dim=1)


@final
class CognateNet(PatternNet):
    """COGNATE's featurizer (table 5): twelve convolutions in four blocks, ever wider, with max pooling between the blocks.

    The first convolution is 5 wide, the others 3; none has a stride, the largest of each 2 x 2 sites goes on. The last is
    pooled.
    """

    name: ClassVar[str] = "cognate"

    def __init__(self, order: int, numbers: int) -> None:
        super().__init__(order, numbers, COGNATE_BLOCKS[-1][-1])
        self.blocks, before = torch.nn.ModuleList(), 1
        for channels in COGNATE_BLOCKS:
            pairs = itertools.pairwise((before, *channels))
            layers = [SparseConvolution(order, a, b, size=5 if a == 1 else 3) for a, b in pairs]
            self.blocks.append(torch.nn.ModuleList(layers))
            before = channels[-1]

    def prepare(self, patterns: "Sequence[Entries]", device: str = "cpu") -> Sites:
        return Sites.of(patterns, device)

    def pool(self, prepared: Any) -> Any:
        sites, features = prepared, torch.ones((len(prepared), 1), device=prepared.places.device)
        for number, block in enumerate(self.blocks):
            if number:
                sites, features = largest_in_blocks(sites, features)
            for layer in block:
                sites, features = layer(sites, features)
                features = torch.relu(features)
        return mean_by_pattern(sites, features)


class _Blind(PatternNet, abc.ABC):
    """Sees the numbers only; its name is in ``scoring.BLIND``."""

    def __init__(self, order: int, numbers: int) -> None:
        super().__init__(order, numbers, 0)

    def prepare(self, patterns: "Sequence[Entries]", device: str = "cpu") -> Any:
        return torch.empty((len(patterns), 0), device=device)

    def pool(self, prepared: Any) -> Any:
        return prepared


@final
class NumbersNet(_Blind):
    """Sees the numbers of ``samples.shape_numbers`` only: WACO's HumanFeature (rows, columns, entries)."""

    name: ClassVar[str] = "numbers"


@final
class StatisticsNet(_Blind):
    """Sees statistics of the pattern among its numbers (``samples.statistics``): fast, since they are counted by C."""

    name: ClassVar[str] = "statistics"
    widths: ClassVar[tuple[int, int]] = (256, 128)


@final
class DenseConvNet(PatternNet):
    """Sees an image of the pattern, whose cells count entries: WACO's DenseConv, after Zhao et al., 2018.

    A cell covers equally many coordinates of a mode, at least one; counts enter as log(1 + count). The last of some dense
    convolutions with stride 2 is pooled.
    """

    name: ClassVar[str] = "dense"

    def __init__(self, order: int, numbers: int) -> None:
        super().__init__(order, numbers, CHANNELS)
        convolution = torch.nn.Conv2d if order == 2 else torch.nn.Conv3d
        channels = [1] + [CHANNELS] * (int(math.log2(SIDES[order])) - 2)  # down to 4 cells a mode
        pairs = itertools.pairwise(channels)
        self.layers = torch.nn.ModuleList([convolution(a, b, 3, stride=2, padding=1) for a, b in pairs])

    def prepare(self, patterns: "Sequence[Entries]", device: str = "cpu") -> Any:
        images = np.stack([image(pattern, SIDES[self.order]) for pattern in patterns])
        return torch.from_numpy(images)[:, None].to(device)

    def pool(self, prepared: Any) -> Any:
        for layer in self.layers:
            prepared = torch.relu(layer(prepared))
        return prepared.flatten(2).mean(dim=2)


def image(pattern: "Entries", side: int) -> np.ndarray:
    """Return log(1 + entries) of each cell of a pattern: float32, ``side`` cells in each mode."""
    cells = np.zeros(pattern.nnz, np.int64)
    for coordinate, extent in zip(pattern.coordinates, pattern.shape, strict=True):
        cells = cells * side + coordinate // max(1, -(-extent // side))
    counts = np.bincount(cells, minlength=side ** len(pattern.shape))
    return np.log1p(counts, dtype=np.float32).reshape((side,) * len(pattern.shape))


@final
class ResNet(PatternNet):
    """Sees every entry through residual blocks, of which the last is pooled: like MinkowskiNet (Choy et al., 2019).

    A convolution 5 wide, then blocks of two convolutions, the first with stride 2. Fewer channels than MinkowskiNet's,
    as in WACO's comparison, and nothing normalised, since a batch is a single pattern.
    """

    name: ClassVar[str] = "resnet"

    def __init__(self, order: int, numbers: int) -> None:
        widths = [CHANNELS, CHANNELS, CHANNELS, 2 * CHANNELS, 2 * CHANNELS]
        super().__init__(order, numbers, widths[-1])
        self.first = SparseConvolution(order, 1, widths[0], size=5)
        pairs = itertools.pairwise(widths)
        self.blocks = torch.nn.ModuleList([_Block(order, a, b) for a, b in pairs])

    def prepare(self, patterns: "Sequence[Entries]", device: str = "cpu") -> Sites:
        return Sites.of(patterns, device)

    def pool(self, prepared: Any) -> Any:
        ones = torch.ones((len(prepared), 1), device=prepared.places.device)
        sites, features = self.first(prepared, ones)
        features = torch.relu(features)
        for block in self.blocks:
            sites, features = block(sites, features)
        return mean_by_pattern(sites, features)


@final
class _Block(torch.nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, order: int, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.first = SparseConvolution(order, channels_in, channels_out, stride=2)
        self.second = SparseConvolution(order, channels_out, channels_out)
        self.around = SparseConvolution(order, channels_in, channels_out, size=1, stride=2)

    def forward(self, sites: Sites, features: Any) -> tuple[Sites, Any]:
        coarser, inside = self.first(sites, features)
        _, inside = self.second(coarser, torch.relu(inside))
        return coarser, torch.relu(inside + self.around(sites, features)[1])


NETS: Final[dict[str, type[PatternNet]]] = {
    net.name: net for net in (WacoNet, StatisticsNet, NumbersNet, DenseConvNet, ResNet, CognateNet)
}
"""All networks by name: a new one is a class here and a row."""


def new_net(name: str, order: int, numbers: int, seed: int) -> PatternNet:
    """Return a network with weights drawn from ``seed``; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETS[name](order, numbers)  # type: ignore[call-arg]  # a leaf's width is its own
