"""COGNATE's network and its rivals: one network, one loss, one training; what differs is how configs are read.

The network is `TransferModel`'s, put together from its parts, since everything was counted before. Its featurizer sees
statistics of the pattern where COGNATE has twelve sparse convolutions, which would take days on a CPU; the two are compared
on one fold, and learn from small patterns there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tensorwise.ids import content_id
from tensorwise.model.reader import LATENT, SHARED, Layers, Reader
from tensorwise.model.samples import Epoch, Group, Training, standardised
from tensorwise.model.scoring import BLIND, embed, look, score
from tensorwise.model.table import Encoded, Form, Table
from tensorwise.program.workload import Workload

SHAPE: Final = 4
"""Of a workload's numbers those that say its shape; the others are statistics of its pattern."""
KEPT_BACK: Final = 0.2
"""Share of the source's families that a training is judged by while it learns, for its curve only."""
Arrays = Mapping[str, np.ndarray]
Workloads = Callable[[str], Workload]


@dataclass(frozen=True)
class Reading:
    """How configs, and patterns, are read.

    Attributes:
        name: of the way.
        encoder: what becomes of choices that are a device's own: ``latent``, by its autoencoder, ``variational``, by one
            that learns with noise, ``pca``, by their principal components; ``apart``: they have places of their own,
            which are zero on the other device; ``none``; ``mapped`` (WACO+FM): they take the places of the source's own
            choices, as they are; ``augmented`` (WACO+FA): all choices are apart, the mapped ones among them.
        mapper: whether strips are seen.
        featurizer: whether anything but the pattern's shape is.
        footprints: whether what strips touch of the pattern is: ours, the paper has nothing like it.
        predictor: ``MLP``, or one of `sequences`.
        net: the featurizer, a name in `nets.NETS`.
    """

    name: str
    encoder: str = "latent"
    mapper: bool = True
    featurizer: bool = True
    footprints: bool = False
    predictor: str = "MLP"
    net: str = "statistics"


COGNATE: Final = Reading("COGNATE")
FEATURIZERS: Final = (
    COGNATE,
    Reading("COGNATE, sparse convolutions", net="cognate"),
    Reading("COGNATE, shape", featurizer=False),
)
"""What is seen of a pattern: statistics, its entries, or its shape only."""
READINGS: Final = (
    COGNATE,
    Reading("without featurizer", featurizer=False),
    Reading("without mapper", mapper=False),
    Reading("without encoder", encoder="none"),
    Reading("WACO+FA", encoder="augmented"),
    Reading("WACO+FM", encoder="mapped"),
    Reading("COGNATE with footprints", footprints=True),
    Reading("variational encoder", encoder="variational"),
    Reading("PCA", encoder="pca"),
    Reading("augmented choices", encoder="apart"),
    Reading("LSTM", predictor="LSTM"),
    Reading("GRU", predictor="GRU"),
    Reading("Transformer", predictor="Transformer"),
)
"""The network's variants (figures 4, and 7 to 9)."""
NOISE: Final = 0.3
"""Of a variational encoder's numbers, in training."""


@dataclass(frozen=True)
class Networks:
    """Reads groups of both devices in one way, and trains on them.

    Attributes:
        encoders: of the source's own choices, and of the target's.
        widths: how many own choices each of them has.
        values: the table ``networks`` of values.toml.
        workloads: workload id -> the workload, for a network that looks at patterns.
    """

    reading: Reading
    encoders: tuple[Layers, Layers]
    widths: tuple[int, int]
    values: Mapping[str, Any]
    workloads: Workloads

    @classmethod
    def of(
        cls,
        reading: Reading,
        source: Sequence[Group],
        target: Sequence[Group],
        values: Mapping[str, Any],
        workloads: "Workloads | None" = None,
    ) -> "Networks":
        """Train the encoders on all own choices that groups of either device have."""
        own = [
            np.unique(np.concatenate([one.configs.orders[1] for one in of]), axis=0)
            for of in (source, target)
        ]
        first, second = (encoder(reading.encoder, one) for one in own)
        widths = own[0].shape[1], own[1].shape[1]
        return cls(reading, (first, second), widths, values, workloads or _no_patterns)

    def read(self, group: Group, side: int) -> Group:
        """Return a group of the source (side 0) or of the target (1) as the network sees it."""
        shared, own = group.configs.orders
        if not self.reading.mapper:
            shared = np.zeros_like(shared)
        if self.encoders[side]:
            orders = (shared, Reader(Table(()), None, self.encoders[side]).latent(own))
        elif self.reading.encoder == "none":
            orders = (shared, np.zeros((len(own), LATENT), np.float32))
        elif self.reading.encoder == "mapped":
            orders = (shared, np.pad(own, ((0, 0), (0, max(self.widths) - own.shape[1]))))
        elif self.reading.encoder == "apart":
            blank = [np.zeros((len(own), width), np.float32) for width in self.widths]
            blank[side] = own
            orders = (shared, np.concatenate(blank, axis=1))
        else:
            blank = [np.zeros((len(own), SHARED + width), np.float32) for width in self.widths]
            blank[side] = np.concatenate([shared, own], axis=1)
            orders = (blank[0], blank[1])
        nests = np.asarray(group.configs.nests)
        configs = Encoded(
            group.configs.values, orders, nests if self.reading.footprints else np.zeros_like(nests)
        )
        counted = self.reading.featurizer and self.reading.net == "statistics"
        numbers = group.numbers if counted else group.numbers[:SHAPE]
        return replace(group, configs=configs, numbers=numbers)

    def pretrained(self, source: Sequence[Group]) -> Arrays:
        """Learn from groups of the source."""
        return self._trained([self.read(group, 0) for group in source], None, self.values["pretrain_epochs"])

    def tuned(self, target: Sequence[Group], start: Arrays | None) -> Arrays:
        """Learn from groups of the target, from scratch or going on from ``start``."""
        epochs = max(1, min(self.values["tune_epochs"], self.values["tune_steps"] // len(target)))
        return self._trained([self.read(group, 1) for group in target], start, epochs)

    def curve(self, source: Sequence[Group]) -> list[Epoch]:
        """Return the epochs of learning from the source with a share of its families kept back (figure 6)."""
        epochs = list[Epoch]()
        self._trained(
            [self.read(group, 0) for group in source],
            None,
            self.values["pretrain_epochs"],
            epochs.append,
            KEPT_BACK,
        )
        return epochs

    def _trained(
        self,
        groups: Sequence[Group],
        start: Arrays | None,
        epochs: int,
        told: Callable[[Epoch], None] = lambda epoch: None,
        validation: float = 0.0,
    ) -> Arrays:
        rate = self.values["learning_rate"]
        settings = Training(epochs=epochs, learning_rate=rate, batch=64, loss="ratio", validation=validation)
        if self.reading.predictor != "MLP":
            from cognate.sequences import trained

            return trained(self.reading.predictor, groups, start, settings)
        from tensorwise.model.training import Trainer

        settings = replace(settings, patience=epochs)  # the whole curve
        first = groups[0]
        widths = tuple(order.shape[1] for order in first.configs.orders)
        nests = np.asarray(first.configs.nests).shape[1]
        form = Form(content_id([self.reading.name, str(widths)]), (), widths, nests)
        return Trainer(
            self.reading.net, 2, form, groups, self.workloads, settings, None, told, "cpu", 1, start, 0.0
        ).run()  # fmt: skip

    def scores(self, arrays: Arrays, group: Group) -> np.ndarray:
        """Return what is predicted for a group of the target: float64, (n,)."""
        seen = self.read(group, 1)
        if self.reading.predictor != "MLP":
            from cognate.sequences import scores

            return scores(self.reading.predictor, arrays, seen)
        parts = {
            part: {name.removeprefix(part): array for name, array in arrays.items() if name.startswith(part)}
            for part in ("net.", "scoring.", "numbers.")
        }
        weights = {name: array.astype(np.float64) for name, array in parts["scoring."].items()}
        numbers = standardised(seen.numbers, parts["numbers."])
        looks = self.reading.net not in BLIND
        pattern = self._looked(parts["net."], numbers, group) if looks else look(parts["net."], numbers)
        pattern = pattern.astype(np.float64)
        found: np.ndarray = score(weights, pattern, embed(weights, seen.configs), seen.configs.nests).mean(
            axis=0
        )
        return found

    def _looked(self, arrays: Arrays, numbers: np.ndarray, group: Group) -> np.ndarray:
        """What a network that looks at entries makes of a group's pattern."""
        import paper_models.nets  # adds `cognate`  # noqa: F401

        from tensorwise.model.nets import new_net
        from tensorwise.model.torch_extra import torch

        net = new_net(self.reading.net, 2, len(numbers), 0)
        net.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        with torch.no_grad():
            prepared = net.prepare([self.workloads(group.workload_id).entries])
            embedded: np.ndarray = net(prepared, torch.from_numpy(numbers[None]))[0].numpy()
        return embedded


def encoder(kind: str, own: np.ndarray) -> Layers:
    """Return what makes LATENT numbers of own choices, (n, choices) different ones; nothing where they stay as they are."""
    if kind == "pca":
        middle = own.mean(axis=0)
        directions = np.linalg.svd(own - middle, full_matrices=False)[2][:LATENT]
        weight = np.zeros((own.shape[1], LATENT), np.float32)
        weight[:, : len(directions)] = directions.T
        from tensorwise.model.latent import standardising

        return standardising(((weight, (-middle @ weight).astype(np.float32)),), own)
    if kind in ("latent", "variational"):
        from tensorwise.model.latent import autoencoder

        return autoencoder(own, LATENT, noise=NOISE if kind == "variational" else 0.0)
    return ()


def _no_patterns(workload_id: str) -> Any:
    raise AssertionError(f"the network looks at no pattern, but asked for {workload_id}")
