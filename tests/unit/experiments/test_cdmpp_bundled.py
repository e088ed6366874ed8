"""Errors of the bundled latency model on whole networks: the result file, and the figures that the docs quote from it."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUNS = json.loads((ROOT / "experiments" / "cdmpp-latency" / "bundled.json").read_text(encoding="utf-8"))[
    "runs"
]
NETWORKS = RUNS["whole"]["networks"]


def mape(ending: str) -> str:
    """Return the MAPE over the runs whose device ends so, as the docs write it; of ``cpu`` over all CPU settings."""
    errors = [
        abs(one["predicted"] / one["measured"] - 1)
        for name, one in NETWORKS.items()
        if (" tvm-" in name if ending == "cpu" else name.endswith(ending))
    ]
    assert len(errors) == {"cpu": 36, "84cc": 18, "b960": 18}.get(ending, 3)
    return f"{100 * sum(errors) / len(errors):.1f} %"


def test_the_result_file_is_of_the_bundled_model() -> None:
    card = json.loads((ROOT / "models" / "tensorwise_models" / "latency" / "latency.json").read_text())[
        "card"
    ]
    assert (RUNS["programs"]["programs"], RUNS["programs"]["tasks"]) == (
        card["judged"]["programs"],
        card["judged"]["tasks"],
    )
    assert {name.split(" ")[0] for name in NETWORKS} == set(card["held_out"])
    for device, error in card["judged"]["devices"].items():
        assert RUNS["programs"]["devices"][device] == pytest.approx(error, abs=0.002), device
    for device, about in RUNS["whole"]["devices"].items():
        assert f"{100 * about['mape']:.1f} %" == mape(device)


def test_the_docs_quote_the_result_file() -> None:
    def text(path: str) -> str:
        return " ".join((ROOT / path).read_text(encoding="utf-8").split())

    row = f"| the same | bundled | {mape('cpu')} | {mape('H100')} | {mape('H200')} | 12 % |"
    assert row in text("docs/latency.md")
    parts = f"Zen 4 ({mape('84cc')}) and an Emerald Rapids ({mape('b960')})"
    assert parts in text("docs/latency.md")
    assert parts in text("experiments/cdmpp-latency/README.md")
    for path in ("docs/howto/predict-network.md", "experiments/cdmpp-latency/README.md"):
        said = re.search(r"(\S+ %) on CPUs, (\S+ %) on the H100 and (\S+ %) on the H200", text(path))
        assert said is not None, path
        assert said.groups() == (mape("cpu"), mape("H100"), mape("H200")), path
