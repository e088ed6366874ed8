"""Tiramisu's way (Baghdadi et al., MLSys 2021): an LSTM reads what is in a loop, up the tree; batches have one shape."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch

from tensorwise.analysis.loop_tree import LOOP_KINDS, Loop, LoopTree
from tensorwise.model.averaged import Averaged
from tensorwise.model.labels import Labels
from tensorwise.model.latency_training import CLIP, LatencyTraining
from tensorwise.model.program_net import encode_rows, scales_of
from tensorwise.model.programs import Programs
from tensorwise.model.samples import falling

Structure = tuple[Any, ...]
"""A tree's shape: a leaf is (), a loop the tuple of what is in it behind "loop"."""
KEPT: Final = 100_000
"""Trees whose shape and loops are remembered."""


def structure(tree: LoopTree) -> tuple[Structure, np.ndarray]:
    """Return the shape of a tree, and a row for each of its loops in pre-order: extent, and which kind."""
    rows: list[list[float]] = []

    def walk(node: Any) -> Structure:
        if not isinstance(node, Loop):
            return ()
        rows.append([np.log2(1 + node.extent), *(float(node.kind == kind) for kind in LOOP_KINDS)])
        return ("loop", *(walk(child) for child in node.body))

    shape = ("root", *(walk(node) for node in tree.nodes))
    return shape, np.array(rows, np.float32).reshape(len(rows), 1 + len(LOOP_KINDS))


class TreeNet(torch.nn.Module):
    """Leaves and loops become embeddings; an LSTM reads what is in a loop, in order."""

    def __init__(self, leaf: int, device: int, width: int) -> None:
        super().__init__()
        linear, relu = torch.nn.Linear, torch.nn.ReLU
        self.leaf = torch.nn.Sequential(linear(leaf, width), relu(), linear(width, width), relu())
        self.inside = torch.nn.LSTM(width, width, batch_first=True)
        self.loop = torch.nn.Sequential(linear(width + 1 + len(LOOP_KINDS), width), relu())
        self.device = torch.nn.Sequential(linear(device, width), relu(), linear(width, width))
        self.say = torch.nn.Sequential(
            linear(width, width), relu(), linear(width, width), relu(), linear(width, 1)
        )

    def forward(self, shape: Structure, leaves: Any, loops: Any, device: Any) -> Any:
        embedded, number, loop = self.leaf(leaves), 0, 0

        def up(node: Structure) -> Any:
            nonlocal number, loop
            if not node:
                number += 1
                return embedded[:, number - 1]
            own = loop
            loop += node[0] == "loop"
            below = [up(child) for child in node[1:]] or [torch.zeros_like(embedded[:, 0])]
            _, (last, _) = self.inside(torch.stack(below, 1))
            return last[0] if node[0] == "root" else self.loop(torch.cat([last[0], loops[:, own]], 1))

        return self.say(up(shape) + self.device(device))[:, 0]


def train(
    training: Programs, chosen: Programs, settings: LatencyTraining, width: int, ends: float
) -> tuple[Callable[[Programs], np.ndarray], dict[str, float]]:
    """Train until the epochs or the time are over; return the predictor, and how fast it was trained.

    Args:
        chosen: decides which epoch's weights are kept.
        ends: value of ``time.monotonic`` at which no further epoch begins.
    """
    torch.manual_seed(settings.seed)
    labels = Labels.fitted("box-cox", training.seconds)
    leaves = np.concatenate([row.ast.leaves for row in training])
    scales = scales_of(leaves, training.context)
    leaf, device = (
        encode_rows(rows[:1], scales, name).shape[1]
        for name, rows in (("leaf", leaves), ("device", training.context))
    )
    net = TreeNet(leaf, device, width)
    adam = torch.optim.AdamW(net.parameters(), settings.learning_rate, weight_decay=settings.weight_decay)
    mean = Averaged(dict(net.named_parameters()), settings.averaged)
    known: dict[str, tuple[Structure, np.ndarray]] = {}
    groups = _grouped(training, scales, known)
    seconds = torch.from_numpy(training.seconds)
    rng, best, best_error = np.random.default_rng(settings.seed), dict(mean.values), np.inf
    took: list[float] = []

    def predict(programs: Programs, weights: Mapping[str, Any]) -> np.ndarray:
        found = np.zeros(len(programs))
        with torch.no_grad():
            for shape, (places, *arrays) in _grouped(programs, scales, known).items():
                said = torch.func.functional_call(net, weights, (shape, *arrays))
                found[places] = labels.log_seconds(said.double(), torch).numpy()
        return np.asarray(np.exp(np.clip(found, -40, 10)))

    for epoch in range(settings.epochs):
        if time.monotonic() > ends:
            break
        start = time.perf_counter()
        batches = []
        for shape, (places, *_) in groups.items():
            shuffled = rng.permutation(len(places))
            batches += [
                (shape, shuffled[k : k + settings.batch]) for k in range(0, len(places), settings.batch)
            ]
        for part in adam.param_groups:
            part["lr"] = settings.learning_rate * falling(epoch / settings.epochs)
        for place in rng.permutation(len(batches)):
            shape, which = batches[place]
            places, *arrays = groups[shape]
            said = net(shape, *(array[torch.from_numpy(which)] for array in arrays))
            times = seconds[torch.from_numpy(places[which])]
            off = (labels.log_seconds(said, torch) - torch.log(times)).clip(max=3.0)
            loss = ((said - labels.of(times, torch)) ** 2).mean() + settings.relative * torch.expm1(
                off
            ).abs().mean()
            adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            adam.step()
            mean.step()
        took.append(time.perf_counter() - start)
        found = predict(chosen, mean.values)
        error = float(np.abs(found / chosen.seconds - 1).mean()) if len(chosen) else 0.0
        if error <= best_error:
            best_error, best = error, {name: one.clone() for name, one in mean.values.items()}
    weights = float(sum(one.numel() for one in net.parameters()))
    rate = len(training) / float(np.median(took)) if took else float("nan")
    return lambda programs: predict(programs, best), {
        "programs_per_s": rate,
        "weights": weights,
        "epochs": float(len(took)),
    }


def _grouped(
    programs: Programs, scales: Any, known: dict[str, tuple[Structure, np.ndarray]]
) -> dict[Structure, Any]:
    """Shape of a tree -> places of its programs, their leaves, loops and devices."""
    by_shape: dict[Structure, list[int]] = {}
    loops = []
    for place, row in enumerate(programs):
        if row.text not in known and len(known) < KEPT:
            known[row.text] = structure(LoopTree.from_text(row.text))
        shape, rows = known.get(row.text) or structure(LoopTree.from_text(row.text))
        by_shape.setdefault(shape, []).append(place)
        loops.append(rows)
    device = encode_rows(programs.context, scales, "device")
    found: dict[Structure, Any] = {}
    for shape, places in by_shape.items():
        leaves = encode_rows(np.array([programs.rows[k].ast.leaves for k in places]), scales, "leaf")
        arrays = (leaves, np.array([loops[k] for k in places]), device[places])
        found[shape] = (np.array(places), *map(torch.from_numpy, arrays))
    return found
