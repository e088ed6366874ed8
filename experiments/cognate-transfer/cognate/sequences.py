"""Other predictors in the place of COGNATE's (figure 8): an LSTM, a GRU and a Transformer over what is known, as a sequence.

The sequence of a config has three items: the workload's numbers, the strips, and the latent numbers. They learn by the loss,
the rate and the epochs of the network that they are compared with.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tensorwise.model.checkpoints import array_of
from tensorwise.model.samples import Group, Training, falling, moments, standardised
from tensorwise.model.torch_extra import torch
from tensorwise.model.training import losses

WIDTH: Final = 96
"""Numbers of an item and of a state: about as many weights as the network has that they are compared with."""
HEADS: Final = 4
Arrays = Mapping[str, np.ndarray]


class Sequences(torch.nn.Module):
    """Scores of configs, lower is better.

    Args:
        kind: ``LSTM``, ``GRU`` or ``Transformer``.
        widths: of a workload's numbers, of the strips and of the latent numbers.
    """

    def __init__(self, kind: str, widths: Sequence[int]) -> None:
        super().__init__()
        self.items = torch.nn.ModuleList([torch.nn.Linear(width, WIDTH) for width in widths])
        self.recurrent = kind != "Transformer"
        if self.recurrent:
            self.inner: Any = getattr(torch.nn, kind)(WIDTH, WIDTH, batch_first=True)
        else:
            self.places = torch.nn.Parameter(torch.zeros(len(widths), WIDTH))
            layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True)
            self.inner = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)
        )

    def forward(self, numbers: Any, strips: Any, latent: Any) -> Any:
        """Return (1, configs) scores of configs on one workload: numbers (n,), strips and latent a row a config."""
        about = numbers[None].expand(len(strips), -1)
        items = [of(part) for of, part in zip(self.items, (about, strips, latent), strict=True)]
        row = torch.stack(items, dim=1)
        seen = self.inner(row)[0][:, -1] if self.recurrent else self.inner(row + self.places).mean(dim=1)
        return self.out(seen).T


def trained(
    kind: str, groups: Sequence[Group], start: Arrays | None, settings: Training
) -> dict[str, np.ndarray]:
    """Learn from groups, from scratch or going on from ``start``; return weights, and moments of the numbers, by name."""
    known = moments(np.array([group.numbers for group in groups]))
    if start is not None:
        known = {key: start[f"numbers.{key}"] for key in known}
    net = _made(kind, groups[0], start, settings.seed)
    adam = torch.optim.AdamW(net.parameters(), settings.learning_rate, weight_decay=settings.weight_decay)
    for epoch in range(settings.epochs):
        order = np.random.default_rng([settings.seed, 2, epoch]).permutation(len(groups))
        for step, place in enumerate(order):
            group, rng = groups[place], np.random.default_rng([settings.seed, 2, epoch, step])
            if len(group) > settings.batch:
                group = group.take(rng.choice(len(group), settings.batch, replace=False))
            loss = losses(settings, group, net(*_tensors(group, known))).mean()
            for part in adam.param_groups:
                part["lr"] = settings.learning_rate * falling((epoch + step / len(order)) / settings.epochs)
            adam.zero_grad()
            loss.backward()
            adam.step()
    weights = {f"net.{name}": array_of(weight) for name, weight in net.named_parameters()}
    return weights | {f"numbers.{key}": array for key, array in known.items()}


def scores(kind: str, arrays: Arrays, group: Group) -> np.ndarray:
    """Return what is predicted for a group: float64, (n,)."""
    known = {
        key.removeprefix("numbers."): array for key, array in arrays.items() if key.startswith("numbers.")
    }
    with torch.no_grad():
        found = _made(kind, group, arrays, 0)(*_tensors(group, known))
    said: np.ndarray = array_of(found)[0].astype(np.float64)
    return said


def _made(kind: str, group: Group, start: Arrays | None, seed: int) -> Sequences:
    widths = [len(group.numbers), *(order.shape[1] for order in group.configs.orders)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Sequences(kind, widths)
    if start is not None:
        with torch.no_grad():
            for name, weight in net.named_parameters():
                weight.copy_(torch.from_numpy(start[f"net.{name}"]))
    return net


def _tensors(group: Group, known: Arrays) -> tuple[Any, ...]:
    numbers = standardised(group.numbers, known).astype(np.float32)
    return tuple(torch.from_numpy(array) for array in (numbers, *group.configs.orders))
