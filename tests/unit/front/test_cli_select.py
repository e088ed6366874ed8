"""``tensorwise select`` and ``tensorwise plan`` as a person or a script meets them."""

import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tensorwise.front.cli import app
from tensorwise.front.draw_regions import most_asked
from tensorwise.model import TreeModel

FILE = """
import numpy as np
import tensorwise as tw

def draw(rng):
    n, skip = int(10 ** rng.uniform(0, 4)), float(rng.uniform())
    return {"n": n, "skip": skip, "cell": str(n.bit_length())}

total = tw.versions(
    "total", features=lambda x, skip: (len(x), skip), units={"n": "numbers", "skip": "share of them"},
    inputs=draw, make=lambda n, skip: (np.arange(float(n)), skip),
)

@total.version
def python(x, skip):
    return float(sum(x.tolist()))

total.version(lambda x, skip: float(np.sum(x)), name="numpy")
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that registers versions, some measurements of them, and a model."""
    pytest.importorskip("sklearn")
    root = tmp_path_factory.mktemp("select")
    (root / "total.py").write_text(FILE)
    out = run(
        "select",
        "train",
        root / "total.py",
        root / "model",
        "--samples",
        60,
        "--store",
        root / "s.sqlite",
        "--json",
    )
    assert out.exit_code == 0, out.output
    assert json.loads(out.stdout)["inputs"] == 60
    return root


def test_training_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    more = run(
        "select",
        "train",
        folder / "total.py",
        tmp_path / "m",
        "--samples",
        70,
        "--store",
        folder / "s.sqlite",
    )
    assert more.exit_code == 0, more.output
    assert re.match(r"total: 70 inputs, a tree with \d+ leaves, in ", more.stdout)


def test_evaluation_by_folds_and_of_a_model(folder: Path) -> None:
    told = run("select", "evaluate", "total", "--records", folder / "s.sqlite", "--folds", 4, "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert 0 < found["pois"] <= 1
    assert found["ppp"] >= 0
    assert sum(found["fastest"].values()) == pytest.approx(1)
    assert set(found["fastest"]) == {"python", "numpy"}
    of_model = run(
        "select", "evaluate", "total", "--records", folder / "s.sqlite", "--model", folder / "model"
    )
    assert of_model.exit_code == 0, of_model.output
    assert "percentage of ideal speed" in of_model.stdout
    nothing = run("select", "evaluate", "gemm", "--records", folder / "s.sqlite")
    assert nothing.exit_code == 1
    assert "there is no record of 'gemm'; there are some of total" in nothing.stderr


def test_a_tree_is_explained_and_drawn(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "regions.svg"
    told = run("select", "explain", folder / "model", "--out", picture)
    assert told.exit_code == 0, told.output
    assert re.match(
        r"total: \d+ leaves, at most \d+ questions\nn     numbers\nskip  share of them\n", told.stdout
    )
    drawn = ElementTree.fromstring(picture.read_bytes())
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"python", "numpy"} <= set(texts)
    assert any("numbers" in str(one) for one in texts)
    tree = json.loads(run("select", "explain", folder / "model", "--json").stdout)["tree"]
    assert (
        tree["feature"].count(-1)
        == json.loads(run("select", "explain", folder / "model", "--json").stdout)["leaves"]
    )
    wrong = run("select", "explain", folder / "model", "--axes", "n,k")
    assert wrong.exit_code == 1
    assert "there is no feature 'k'; there are n, skip" in wrong.stderr
    twice = run("select", "explain", folder / "model", "--axes", "n,n", "--out", picture)
    assert "two or three different features" in twice.stderr


def test_the_feature_that_decides_is_drawn_first() -> None:
    from tensorwise.model.tree import Tree
    from tensorwise.space.config import Config

    model = TreeModel()
    model.fields, model.configs = ("m", "n", "k"), (Config({"version": "a"}), Config({"version": "b"}))
    model.ranges = np.array([[1.0, 0.0, 5.0], [10, 1, 5], [20, 2, 5], [30, 3, 5], [1000, 4, 5]])
    model.choice = Tree.checked([1, -1, 0, -1, -1], [2, 0, 50, 0, 0], [2, 0, 4, 0, 0], [0, 0, 0, 1, 0], 3)
    assert most_asked(model) == ["n", "m", "k"]
    from tensorwise.front.draw_regions import draw_regions

    drawn = ElementTree.fromstring(draw_regions(model, ["n", "m", "k"], ["", "rows", ""]).encode())
    panels = [one for one in drawn.iter("{http://www.w3.org/2000/svg}rect") if one.get("class") == "frame"]
    assert len(panels) == 3
    fills = {one.get("fill") for one in drawn.iter("{http://www.w3.org/2000/svg}rect")} - {None}
    assert len(fills) == 2


def test_a_file_that_registers_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    for path, words in (
        (tmp_path / "empty.py", "registers no function"),
        (tmp_path / "none.py", "no such file"),
    ):
        out = run("select", "train", path, tmp_path / "model")
        assert out.exit_code == 1
        assert words in out.stderr


PLAN: dict[str, Any] = {
    "devices": ["cpu", "gpu"],
    "links": [
        {"from": "cpu", "to": "gpu", "latency_s": 1e-5, "bytes_per_s": 1e10},
        {"from": "gpu", "to": "cpu", "latency_s": 1e-5, "bytes_per_s": 1e10},
    ],
    "steps": [
        {"name": "gemm", "seconds": {"cpu": 1e-2, "gpu": 1e-4}, "result_bytes": 4e6, "given_bytes": 8e6},
        {"name": "relu", "seconds": {"cpu": 1e-3, "gpu": 1e-5}, "result_bytes": 4e6, "after": ["gemm"]},
        {"name": "write", "seconds": {"cpu": 1e-3}, "after": ["relu"]},
    ],
}


def test_an_application_is_placed_and_drawn(tmp_path: Path) -> None:
    (tmp_path / "app.json").write_text(json.dumps(PLAN))
    paths = {"--trace": tmp_path / "trace.json", "--out": tmp_path / "plan.svg"}
    told = run("plan", tmp_path / "app.json", *(part for pair in paths.items() for part in pair))
    assert told.exit_code == 0, told.output
    assert told.stdout.splitlines() == [
        "gemm   gpu", "relu   gpu", "write  cpu", "2.33 ms, the least possible", "all on cpu: 12.0 ms",
    ]  # fmt: skip
    events = json.loads(paths["--trace"].read_text())["traceEvents"]
    assert [one["name"] for one in events if one["ph"] == "X"] == [
        "for gemm",
        "gemm",
        "relu",
        "relu",
        "write",
    ]
    drawn = ElementTree.fromstring(paths["--out"].read_bytes())
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"cpu", "gpu", "cpu to gpu", "gpu to cpu"} <= set(texts)
    found = json.loads(run("plan", tmp_path / "app.json", "--json").stdout)
    assert found["seconds"] == pytest.approx(1e-5 + 8e-4 + 1e-4 + 1e-5 + 1e-5 + 4e-4 + 1e-3)
    assert found["gap"] == 0
    assert found["placed"] == {"gemm": "gpu", "relu": "gpu", "write": "cpu"}


CPU = json.dumps({"devices": ["cpu"], "links": [], "steps": [{"name": "a", "seconds": {"cpu": 1}}]})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"links": []', '"links": [{"from": "cpu"}]', "links[0]: to: missing"),
        ('"links": []', '"links": [{"from": "cpu", "to": 1}]', "links[0]: to: expected str, got 1"),
        ('"seconds": {"cpu": 1}', '"after": []', "steps[0]: seconds: missing"),
        ('"seconds"', '"secs": 3, "seconds"', "secs: missing, or unknown; expected name, seconds"),
        ('"seconds"', '"calls": {"cpu": 1}, "seconds"', "calls: missing, or unknown"),
        ('"seconds"', '"after": "a", "seconds"', "after: expected a list of str, got 'a'"),
        ('"seconds"', '"result_bytes": "9", "seconds"', "result_bytes: expected float, got '9'"),
        ('"steps": [', '"steps": 1, "x": [', "x: missing, or unknown"),
        ('["cpu"]', "null", "devices: expected a list of str, got None"),
        ('["cpu"]', '"cpu"', "devices: expected a list of str, got 'cpu'"),
        ('["cpu"]', '[["cpu"]]', "devices[0]: expected str, got ['cpu']"),
        ('"a"', "5", "name: expected str, got 5"),
        ('"a"', '["a"]', "name: expected str, got ['a']"),
        ('"a"', '"\\ud800"', "half of a surrogate pair"),
        ("1}", "true}", "seconds.cpu: expected float, got True"),
        ("1}", '"1"}', "seconds.cpu: expected float, got '1'"),
        ("1}", "NaN}", "NaN is no number of JSON"),
        ("1}", "9" * 5000 + "}", "an integer of more than 4300 digits"),
        ("1}", '1, "cpu": 9}', "an object has the name 'cpu' twice"),
        ("1}", "-1}", "no negative or infinite number, got -1.0"),
        ("1}", '1, "gpu": 1}', "runs on 'gpu', which is no device; they are cpu"),
        (CPU, "[" * 200_000, "nested too deeply"),
        (CPU, "[]", "expected an object with the fields devices, links, steps, got []"),
        (CPU, "null", "expected an object"),
        (CPU, "", "its JSON cannot be used"),
        (CPU, "\0\1", "its JSON cannot be used"),
    ],
)
def test_a_malformed_description_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in CPU
    (tmp_path / "app.json").write_text(CPU.replace(old, new))
    out = run("plan", tmp_path / "app.json")
    assert out.exit_code == 1
    assert isinstance(out.exception, SystemExit)
    assert len(out.stderr.strip().splitlines()) == 1
    assert message in out.stderr


def test_a_description_is_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in (
        (tmp_path / "pipe", "a pipe"),
        (Path("/dev/zero"), "a device"),
        (tmp_path, "a folder"),
    ):
        out = run("plan", path)
        assert out.exit_code == 1
        assert f"it is {kind}; expected a regular file" in out.stderr


def test_a_device_from_which_nothing_comes_home_is_no_way_to_run_all(tmp_path: Path) -> None:
    given = {**PLAN, "links": PLAN["links"][:1], "steps": PLAN["steps"][:1]}
    (tmp_path / "app.json").write_text(json.dumps(given))
    found = json.loads(run("plan", tmp_path / "app.json", "--json").stdout)
    assert found["placed"] == {"gemm": "cpu"}
    assert found["single_device_s"] == {"cpu": pytest.approx(1e-2)}


def test_a_description_that_is_too_large_is_refused_before_it_is_placed(tmp_path: Path) -> None:
    devices = [f"d{k}" for k in range(500)]
    steps = [
        {"name": f"s{k}", "seconds": {"d0": 1}, "after": [f"s{k - 1}"] if k else []} for k in range(2000)
    ]
    for count, message in (
        (500, "500 devices and 0 links are too many to place steps on; expected at most 128 devices"),
        (128, "(steps + results read) x devices^2 is 65519616, expected at most 8388608"),
    ):
        plan = {"devices": devices[:count], "links": [], "steps": steps}
        (tmp_path / "app.json").write_text(json.dumps(plan))
        out = run("plan", tmp_path / "app.json")
        assert out.exit_code == 1
        assert message in out.stderr
