"""Why an interval is wider than a latency model's own, and by how much."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tensorwise.device.hardware import described
from tensorwise.plan.doubts import UNKNOWN, UNSEEN, UNSEEN_KIND, doubts
from tensorwise.tasks.cutting import Node, TaskGraph

GRAPH = TaskGraph("net", 1, (Node("a", "dense", (), 64),), dtypes=("bool", "float32", "int64"))
CPU = replace(described()["EPYC-7452"], name="known", cores=1, vector_bytes=32)
COUNTED, UNCOUNTED = SimpleNamespace(compiled=True), SimpleNamespace(compiled=False)
MODEL = SimpleNamespace(devices={"known": CPU}, reads_code=True, card={})


def found(
    graph: Any = GRAPH, programs: Any = (COUNTED,), model: Any = MODEL, hardware: Any = CPU
) -> dict[str, float]:
    return doubts(graph, programs, model, hardware)


def test_what_is_known_is_not_doubted() -> None:
    assert found() == {}
    assert found(programs=[UNCOUNTED], model=SimpleNamespace(**{**vars(MODEL), "reads_code": False})) == {}
    card = {"batches": {"cpu": [1, 4], "gpu": [8]}}
    batched = SimpleNamespace(**{**vars(MODEL), "card": card})
    assert found(replace(GRAPH, batch=4), model=batched) == {}
    assert found(replace(GRAPH, batch=8), model=batched) == {
        "the model has learned from no network with a batch of 8 on a cpu": UNSEEN
    }


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        ({"programs": [COUNTED, UNCOUNTED]}, {"the code of 1 of 2 programs was not counted": UNKNOWN}),
        ({"hardware": described()["V100"]}, {"nor from any other gpu": UNSEEN_KIND}),
        ({"hardware": replace(CPU, name="other")}, {"not learned from other": UNSEEN}),
        (
            {"hardware": replace(CPU, name="other", cores=8, vector_bytes=64)},
            {"not learned from other": UNSEEN, "vectors of 64 bytes": UNSEEN, "on 8 threads": UNSEEN},
        ),
        (
            {"graph": replace(GRAPH, dtypes=("float16", "float32", "int8"))},
            {"float16": UNSEEN, "int8": UNSEEN},
        ),
        ({"graph": replace(GRAPH, batch=2)}, {"a batch of 2": UNSEEN}),
        ({"graph": replace(GRAPH, unlowered=None, dtypes=None)}, {"cut by an earlier release": UNKNOWN}),
    ],
)
def test_what_is_not_known_is_named(given: dict[str, Any], reasons: dict[str, float]) -> None:
    said = found(**given)
    assert list(said.values()) == list(reasons.values())
    assert all(reason in text for reason, text in zip(reasons, said, strict=True))
