"""The latent encoder: as many numbers for the choices of one device as for those of any other (COGNATE, section 3.3)."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorwise.model.torch_extra import torch

if TYPE_CHECKING:
    from tensorwise.model.reader import Layers

RATE: Final = 1e-3
"""Adam's (COGNATE, table 4)."""
BATCH: Final = 32
STEPS: Final = 1500
"""Batches that are learned from. COGNATE learns 1000 epochs; choices are few, and are known by then."""


def autoencoder(own: np.ndarray, width: int, seed: int = 0, noise: float = 0.0) -> "Layers":
    """Return the encoder of an autoencoder of ``own``, two layers, trained to minimise the mean squared error.

    The numbers that it returns have mean 0 and deviation 1 over ``own``, as far as they vary.

    Args:
        own: configs without repeats, one a row, as ``Reader.own`` encodes them: float32, (n, choices).
        width: length of the code.
        seed: draws weights and batches.
        noise: standard deviation of what is added to the numbers in training; a variational encoder has some.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        linear, relu = torch.nn.Linear, torch.nn.ReLU
        encoder = torch.nn.Sequential(linear(own.shape[1], width), relu(), linear(width, width))
        decoder = torch.nn.Sequential(linear(width, width), relu(), linear(width, own.shape[1]))
        adam = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=RATE)
        given = torch.from_numpy(own)
        for _ in range(STEPS):
            batch = given[torch.randint(len(given), (min(BATCH, len(given)),))]
            seen = encoder(batch)
            loss = torch.nn.functional.mse_loss(decoder(seen + noise * torch.randn_like(seen)), batch)
            if noise:
                loss = loss + noise**2 * (seen**2).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
    first, last = ((_array(layer.weight).T, _array(layer.bias)) for layer in (encoder[0], encoder[2]))
    return standardising((first, last), own)


def standardising(layers: "Layers", own: np.ndarray) -> "Layers":
    """Return ``layers`` with a last one whose numbers have mean 0 and deviation 1 over ``own``, as far as they vary."""
    seen = own
    for place, (weight, bias) in enumerate(layers):
        seen = (seen.clip(min=0) if place else seen) @ weight + bias
    mean, deviation = seen.mean(axis=0), seen.std(axis=0)
    scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0)
    *before, (weight, bias) = layers
    last = ((weight * scale).astype(np.float32), ((bias - mean) * scale).astype(np.float32))
    return (*before, last)


def _array(tensor: Any) -> np.ndarray:
    array: np.ndarray = tensor.detach().numpy().copy()
    return array
