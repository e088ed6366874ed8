"""MetricsModel: G-Sparse's cost model (section III-D, Algorithm 4): few metrics of a schedule, shapes, a small network.

A log layer, a normalisation, three dense layers; what is learned is normalised performance, the best time of a workload over
the time, so that the slowest configs do not dominate. Training needs torch, predicting NumPy only.

What machine code says, registers and what was spilled, is seen where it is known: a model learns each record that tells it
twice, with and without, and so can choose among many configs first, and then among those that were compiled.

The metrics read what a space calls its sizes: those of GPUs as the paper has them, and of CPUs what answers to them. Spaces
that have neither are learned by the places of their values, which are read in any case.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, final

import numpy as np

from tensorwise.device.device import Device
from tensorwise.errors import InputError
from tensorwise.model import MODELS
from tensorwise.model.model import CostModel, Returns, check_learned
from tensorwise.model.samples import falling
from tensorwise.model.table import UNKNOWN_TOKEN, Table
from tensorwise.space.config import Config, Value
from tensorwise.space.space import Space
from tensorwise.store.record import Record
from tensorwise.toolchain.cubin import Resources
from tensorwise.units import SHORTEST_S

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload

METRICS: Final = ("mem_eff", "parall", "instr_parall", "reuse", "spill", "blck_size", "staged", "walk")
"""Memory efficiency, parallelism, instruction parallelism, reuse, registers that may spill, block size, what is staged;
and entries that a team, or a thread of a CPU, has to take one after the other at most."""
SHAPES: Final = ("rows", "columns", "entries", "features", "longest")
"""The last one are entries of the longest row: on a GPU everybody waits for it, unless it is cut."""
CODE: Final = Resources._fields
"""What machine code tells of a program that was compiled; all are 0 where it is not known."""
SECTOR_BYTES: Final = 32
"""Bytes of one memory transaction."""
FEW_THREADS: Final = 128
"""Blocks with fewer threads leave room unused: the paper's penalty of block sizes."""
SMALLEST: Final = 0.01
"""Added before logarithms are taken: metrics may be 0."""
WIDTH: Final = 64
EPOCHS: Final = 100
BATCH: Final = 256
LEARNING_RATE: Final = 3e-3


def metrics(workload: Mapping[str, Any], config: Mapping[str, Value]) -> list[float]:
    """Return METRICS of a config on a workload, which is described as in a Record; all are 0 or more."""
    if "teams" in config:
        threads, teams, vector = (_number(config.get(name)) for name in ("threads", "teams", "vector"))
        registers, unroll = _number(config.get("registers")), _number(config.get("unroll"))
        staged = _number(config["nnz_tile"]) * teams if config.get("nnz_tile") else 0
        block, cut = threads * teams, _number(config["piece"]) if config.get("piece") else math.inf
    elif "vector_bytes" in config:
        vector = _number(config["vector_bytes"]) // _item_bytes(workload) or 1
        threads, teams, block = 1, _number(config.get("chunk") or config.get("parts")), FEW_THREADS
        registers, unroll, staged = _number(config.get("vectors")), _number(config.get("unroll")), 0
        cut = math.inf
    else:
        return [0.0] * len(METRICS)
    rows, _, entries, features, longest = shapes(workload)
    together = min(1.0, threads * vector * _item_bytes(workload) / SECTOR_BYTES)
    useful = entries / (2 * rows * features + rows + 1 + entries)
    each = registers * vector
    return [
        together * useful,
        rows * features / max(1, each * teams),
        each * unroll,
        each,
        each * unroll * _item_bytes(workload) / 4,
        min(1.0, block / FEW_THREADS),
        staged,
        1 if config.get("layout") == "entries" else min(longest, cut),
    ]


def shapes(workload: Mapping[str, Any]) -> list[float]:
    """Return SHAPES of a described workload."""
    shape = [int(extent) for extent in workload["shape"]]
    stored = math.prod(shape)
    every = math.prod(int(extent) for extent in workload["sizes"].values())
    entries = int(workload["nnz"])
    longest = int(workload.get("longest", -(-entries // max(1, shape[0]))))  # not told by old records
    return [shape[0], stored / max(1, shape[0]), entries, every / max(1, stored), longest]


def performances(records: Sequence[Record]) -> np.ndarray:
    """Return the normalised performance of each record, in (0, 1]: the best time of its workload and device over its own."""
    best: dict[tuple[str, str], float] = defaultdict(lambda: math.inf)
    for record in records:
        key = record.workload_id, record.device_id
        best[key] = min(best[key], record.seconds)
    found = [best[r.workload_id, r.device_id] / max(r.seconds, SHORTEST_S) for r in records]
    return np.array(found, np.float64)


@MODELS.register("metrics")
@final
class MetricsModel(CostModel):
    """Predicts scores: minus the normalised performance of a config, so that less is better.

    Args:
        space: whose configs are read; its table is kept with the model.
        epochs: of training.
        seed: of the first weights and the order of samples.
    """

    reads_resources: ClassVar[bool] = True
    kind: ClassVar[str] = "metrics"
    returns: Returns = "score"
    table: Table

    def __init__(self, space: Space | Table, *, epochs: int = EPOCHS, seed: int = 0) -> None:
        self.table = Table.of(space)
        self.epochs, self.seed = epochs, seed
        self._arrays: dict[str, np.ndarray] = {}

    def inputs(
        self,
        workload: Mapping[str, Any],
        configs: Sequence[Mapping[str, Value]],
        taken: Sequence[Resources | None] | None = None,
    ) -> np.ndarray:
        """Return what the network sees: (configs, inputs) float64, metrics, shapes, CODE, places of values and of orders.

        The place of an unknown value is NaN. ``taken``: what machine code says of each config.
        """
        known = shapes(workload)
        encoded = self.table.encode(configs)
        tokens = self.table.tokens(encoded)
        values = np.where(tokens == UNKNOWN_TOKEN, np.nan, tokens)
        places = np.concatenate([values, *encoded.orders], axis=1).astype(np.float64)
        names = [param.name for param in self.table.params]
        own_choices = [{name: config.get(name) for name in names} for config in configs]
        told = [found or Resources(0, 0) for found in taken or [None] * len(configs)]
        own = np.array(
            [[*metrics(workload, c), *known, *found] for c, found in zip(own_choices, told, strict=True)],
            np.float64,
        )
        return np.concatenate([own.reshape(len(configs), -1), places], axis=1)

    def fit(self, records: Iterable[Record]) -> None:
        """Learn from the records that ended ok and whose configs the table has.

        Raises:
            InputError: there is none.
            MissingExtraError: torch is not installed.
        """
        known = [r for r in records if r.ok and self.table.fits(r.config)]
        if not known:
            raise InputError("there is no record with status ok and a config of this space to learn from")
        x, y = self._seen(known, [None] * len(known)), performances(known)
        taken = list(map(_taken, known))
        telling = [place for place, found in enumerate(taken) if found is not None]
        if telling:
            more = self._seen([known[place] for place in telling], [taken[place] for place in telling])
            x, y = np.concatenate([x, more]), np.concatenate([y, y[telling]])
        mean, spread = x.mean(axis=0), x.std(axis=0)
        spread[spread < 1e-9] = 1.0
        self._arrays = {
            "mean": mean,
            "spread": spread,
            **_trained((x - mean) / spread, y, self.epochs, self.seed),
        }

    def _seen(self, records: Sequence[Record], taken: Sequence[Resources | None]) -> np.ndarray:
        """The log layer's outputs for records."""
        each = [self.inputs(r.workload, [r.config], [found]) for r, found in zip(records, taken, strict=True)]
        return np.log(SMALLEST + np.concatenate(each))

    def predict_compiled(
        self,
        workload: "Workload",
        configs: Sequence[Config],
        device: Device,
        resources: Sequence[Resources | None],
    ) -> np.ndarray:
        """Predict as ``predict``, given what the machine code of each config says."""
        return self.predict(workload, configs, device, resources)

    def predict(
        self,
        workload: "Workload",
        configs: Sequence[Config],
        device: Device,
        taken: Sequence[Resources | None] | None = None,
    ) -> np.ndarray:
        """Return minus the predicted performances; see `CostModel`. ``taken``: what machine code says of each config."""
        check_learned(self._arrays)
        if not configs:
            return np.zeros(0)
        return -self._performance(np.log(SMALLEST + self.inputs(workload.describe(), configs, taken)))

    def pearson(self, records: Iterable[Record]) -> float:
        """Return Pearson's correlation of predicted and true performance over records that ended ok; NaN for one value."""
        check_learned(self._arrays)
        known = [r for r in records if r.ok and self.table.fits(r.config)]
        if len(known) < 2:
            return math.nan
        truth, predicted = performances(known), self._performance(self._seen(known, list(map(_taken, known))))
        if not (truth.std() and predicted.std()):
            return math.nan
        return float(np.corrcoef(truth, predicted)[0, 1])

    def _performance(self, seen: np.ndarray) -> np.ndarray:
        a = self._arrays
        held = np.where(
            np.isnan(seen), 0.0, (seen - a["mean"]) / a["spread"]
        )  # unknown values count as the mean
        for layer in range(2):
            held = np.maximum(0.0, held @ a[f"weight{layer}"].T + a[f"bias{layer}"])
        last = held @ a["weight2"].T + a["bias2"]
        return np.asarray(1 / (1 + np.exp(-np.clip(last[:, 0], -60, 60))))

    def state(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        described = {"table": self.table.to_json(), "space": self.table.space}
        return {**described, "epochs": self.epochs, "seed": self.seed}, dict(self._arrays)

    @classmethod
    def from_state(cls, values: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> Self:
        space = values.get("space")
        table = Table.from_json(values["table"], None if space is None else str(space))
        model = cls(table, epochs=int(str(values["epochs"])), seed=int(str(values["seed"])))
        wide = len(METRICS) + len(SHAPES) + len(CODE) + len(model.table.listed)
        wide += sum(len(param.items) ** 2 + 1 for param in model.table.permutations)
        expected = {
            "mean": (wide,), "spread": (wide,), "weight0": (WIDTH, wide), "bias0": (WIDTH,), "weight1": (WIDTH, WIDTH),
            "bias1": (WIDTH,), "weight2": (1, WIDTH), "bias2": (1,),
        }  # fmt: skip
        if arrays and (
            {n: a.shape for n, a in arrays.items()} != expected or not all(map(_finite, arrays.values()))
        ):
            raise InputError(f"expected finite arrays of the shapes {expected}")
        model._arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
        return model


def _trained(x: np.ndarray, y: np.ndarray, epochs: int, seed: int) -> dict[str, np.ndarray]:
    """Train the dense layers on normalised inputs; return their weights, float64."""
    from tensorwise.model.torch_extra import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [
            torch.nn.Linear(x.shape[1], WIDTH),
            torch.nn.Linear(WIDTH, WIDTH),
            torch.nn.Linear(WIDTH, 1),
        ]
    relu = torch.nn.ReLU()
    net = torch.nn.Sequential(layers[0], relu, layers[1], relu, layers[2], torch.nn.Sigmoid())
    inputs, wanted = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * falling(epoch / epochs)
        for rows in torch.randperm(len(inputs), generator=generator).split(BATCH):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(inputs[rows])[:, 0], wanted[rows])
            loss.backward()
            optimizer.step()
    return {
        f"{name}{place}": getattr(layer, name).detach().double().numpy()
        for place, layer in enumerate(layers)
        for name in ("weight", "bias")
    }


def _taken(record: Record) -> Resources | None:
    """What a record's machine code took, where it tells."""
    told = [record.provenance.get(name) for name in CODE]
    return Resources(*told) if all(isinstance(one, int) for one in told) else None  # type: ignore[arg-type]


def _number(value: Value) -> int:
    return value if isinstance(value, int) and value else 1


def _item_bytes(workload: Mapping[str, Any]) -> int:
    return 8 if "64" in str(workload["dtype"]) else 4


def _finite(array: np.ndarray) -> bool:
    return bool(np.isfinite(array).all())
