"""Networks that look at a sparsity pattern: WACO's, those it is compared with (section 5.3.2), and COGNATE's.

Importing this module adds them to `tensorwise.model.nets.NETS`; where this package is installed, its entry points do.
"""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np

from paper_models.sites import Sites
from paper_models.sparse_convolution import SparseConvolution, largest_in_blocks, mean_by_pattern
from tensorwise.model.nets import CHANNELS, NETS, PatternNet
from tensorwise.model.torch_extra import torch

if TYPE_CHECKING:
    from tensorwise.tensor.entries import Entries

LAYERS: Final = 14
"""Convolutions of WACONet; the thirteen strided ones connect sites at a distance of 8192."""
COGNATE_BLOCKS: Final = ((32, 32, 64), (64, 64, 128), (128, 128, 256), (256, 256, 256))
"""Channels of CognateNet's convolutions, block by block."""
SIDES: Final = {2: 256, 3: 32}
"""Cells of an image in each mode, by order; 256 as in WACO's DenseConv, as many bytes for tensors of order 3."""


@NETS.register("waco")
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


@NETS.register("cognate")
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


@NETS.register("dense")
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


@NETS.register("resnet")
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
