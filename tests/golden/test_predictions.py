"""What the models that come along say of fixed programs, as they said when somebody last looked.

A change of features, of a network's arithmetic or of what a saved model is read as shows here, be it never so plausible.
``pytest tests/golden --update-golden`` writes the predictions anew, as new models need; the diff is for a person to read.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tensorwise.device.null import NullDevice
from tensorwise.model import load_model
from tensorwise.model.finding import bundled_model
from tensorwise.model.latency import LatencyModel
from tensorwise.model.programs import Programs
from tensorwise.model.ranking import RankingModel
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space_of
from tensorwise.space.portfolio import portfolio
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tests.unit.model.latencies import records

FILE = Path(__file__).parent / "predictions.json"
PINNED = json.loads(FILE.read_text()) if FILE.exists() else {}
OPS: dict[str, dict[str, int]] = {"spmv": {}, "spmm": {"n": 32}, "sddmm": {"n": 32}, "mttkrp": {"n": 16}}
CONFIGS = 24
TOLERANCE = 1e-3
"""Of a score, log2 of a ratio, and of a logarithm of seconds: processors sum float32 in several orders."""


def patterns(order: int) -> dict[str, Entries]:
    """A band, rows of very different lengths, and blocks."""
    rng = np.random.default_rng(0)
    rows = np.arange(300)
    band = np.stack(
        [np.repeat(rows, 5), np.clip(np.repeat(rows, 5) + np.tile(np.arange(-2, 3), 300), 0, 299)]
    )
    lengths = (300 / (1 + rows)).astype(int) + 1
    skewed = np.stack([np.repeat(rows, lengths), rng.integers(0, 300, lengths.sum())])
    corner = rng.integers(0, 37, (40, 2)) * 8
    inner = np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(-1, 2)
    blocks = (corner[:, None] + inner[None]).reshape(-1, 2).T
    found = {}
    for name, coordinates in {"band": band, "skewed": skewed, "blocks": blocks}.items():
        kept = np.unique(coordinates, axis=1)
        if order == 3:
            kept = np.concatenate([kept, rng.integers(0, 20, (1, kept.shape[1]))])
        shape = (300, 300, 20)[:order]
        found[name] = entries_from((shape, list(kept), None))
    return found


def works(op: str) -> dict[str, Workload]:
    """The operation on each pattern."""
    order = 3 if op == "mttkrp" else 2
    return {name: workload(op, entries, **OPS[op]) for name, entries in patterns(order).items()}


def drawn(work: Workload) -> list[str]:
    """Configs that any processor of the last ten years can run: known good ones, and random ones."""
    space, rng = cpu_space_of(work), np.random.default_rng(0)
    some = [*portfolio(space, work), *(space.sample(work, rng) for _ in range(6 * CONFIGS))]
    able = [config.text for config in some if "vector_bytes=64" not in config.text]
    return [*able[: CONFIGS // 2], *able[-CONFIGS // 2 :]]


def ranking(op: str) -> RankingModel:
    """The model of an operation that comes along."""
    model = load_model(bundled_model(op))
    assert isinstance(model, RankingModel)
    return model


def rankings(op: str) -> dict[str, object]:
    """Configs, and what a model says of them with and without the workload's loops."""
    model, found = ranking(op), {}
    for name, work in works(op).items():
        texts = PINNED.get(op, {}).get(name, {}).get("configs") or drawn(work)
        configs = [Config.parse(text) for text in texts]
        estimate, deviation = model.estimate(work, configs, NullDevice())
        found[name] = {
            "configs": texts,
            "estimate": [round(float(one), 5) for one in estimate],
            "deviation": [round(float(one), 5) for one in deviation],
            "score": [
                round(float(one), 5)
                for one in model.score(model.embed_pattern(work), model.embed_configs(configs))
            ],
        }
    return dict(found)


def latencies(_: str) -> dict[str, object]:
    """Natural logarithms of seconds, and of the intervals' ends."""
    programs = Programs.of(records())
    some = [row for place, row in enumerate(programs) if place % 7 == 0]
    model = LatencyModel.load(bundled_model("latency"))
    found = model.latencies([row.ast for row in some], [row.hardware for row in some])
    told = {"seconds": found.seconds, "low": found.low, "high": found.high}
    return {name: [round(float(one), 5) for one in np.log(array)] for name, array in told.items()}


def networks(_: str) -> dict[str, object]:
    """How the embeddings of two patterns differ, by every network that looks at them."""
    torch = pytest.importorskip("torch")
    import paper_models.nets  # adds networks

    from tensorwise.model.nets import NETS, new_net

    assert {"waco", "cognate"} <= {*NETS}, paper_models.nets

    found: dict[str, object] = {}
    for name, order in [*((name, 2) for name in NETS), ("waco", 3), ("cognate", 3)]:
        net = new_net(name, order, 4, seed=0)
        with torch.no_grad():
            for number, weight in enumerate(net.parameters()):
                inputs = weight[0].numel() if weight.ndim > 1 else 1e4  # biases would drown what is seen
                weights = np.random.default_rng(number).standard_normal(tuple(weight.shape))
                weight.copy_(torch.from_numpy(weights * math.sqrt(2 / inputs)))
            two = [patterns(order)[pattern] for pattern in ("skewed", "blocks")]
            numbers = torch.linspace(-1, 1, 8).reshape(2, 4)
            embedded = net(net.prepare(two), numbers[:1].expand(2, -1) if net.looks else numbers)
        apart = (embedded[0] - embedded[1]).double().numpy()
        scale = float(np.abs(apart).max())
        assert scale > 1e-6, name
        found[f"{name}, order {order}"] = [
            round(math.log(scale), 5), *(round(float(one), 5) for one in (apart / scale)[::5])
        ]  # fmt: skip
    return found


SAID: dict[str, Callable[[str], dict[str, object]]] = {
    **dict.fromkeys(OPS, rankings),
    "latency": latencies,
    "networks": networks,
}


@pytest.mark.parametrize("name", SAID)
def test_predictions_are_those_that_were_looked_at(name: str, pytestconfig: pytest.Config) -> None:
    said = SAID[name](name)
    if pytestconfig.getoption("--update-golden"):
        PINNED[name] = said
        FILE.write_text(json.dumps(PINNED, indent=1) + "\n")
    assert _close(said, PINNED[name]), f"{name}: predictions changed; see --update-golden"


def _close(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, float) and isinstance(other, float | int):
        return abs(one - other) <= TOLERANCE * max(1.0, abs(other))
    return one == other
