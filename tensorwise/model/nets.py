"""Networks that describe a sparsity pattern for a ranking. Those here see numbers only; others its entries, or an image.

WACO's and COGNATE's are in ``experiments/paper-models``, a package that adds them by entry points.
"""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from tensorwise.model.scoring import BLIND, EMBEDDING
from tensorwise.model.torch_extra import torch
from tensorwise.registry import Registry, needs_subclass

if TYPE_CHECKING:
    from tensorwise.tensor.entries import Entries

CHANNELS: Final = 32
"""Features of a site: few, so that matrices with ten million entries fit into memory (WACO, section 4.1.1)."""


class PatternNet(torch.nn.Module, abc.ABC):
    """Turns patterns into embeddings. A subclass implements ``prepare`` (once for each pattern) and ``pool``.

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


NETS: Final[Registry[type[PatternNet]]] = Registry(
    "network", "nets", {net.name: net for net in (StatisticsNet, NumbersNet)}, needs_subclass(PatternNet)
)
"""All networks by name: a new one is a class here and a row, or an entry point of another package."""


def new_net(name: str, order: int, numbers: int, seed: int) -> PatternNet:
    """Return a network with weights drawn from ``seed``; torch's own generator is left as it was.

    Raises:
        InputError: there is no network of this name.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETS[name](order, numbers)  # type: ignore[call-arg]  # a leaf's width is its own
