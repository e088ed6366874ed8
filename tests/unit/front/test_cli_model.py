"""``tensorwise train``, ``evaluate`` and ``model`` as a person or a script meets them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tensorwise.front.cli import app
from tensorwise.front.networks import latency_model_folder
from tensorwise.model import RankingModel, load_model
from tensorwise.model.finding import bundled_model
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write

pytest.importorskip("torch")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("one_torch_thread")

FAMILIES = ("chem", "fem", "graph", "mesh", "web")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of five families, and a store with what a formula says of it."""
    root = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    for family in FAMILIES:
        (root / "corpus" / family).mkdir(parents=True)
        for k in range(2):
            pattern = entries_from((rng.random((20 + k, 30)) < rng.uniform(0.05, 0.3)).astype(float))
            write(root / "corpus" / family / f"{family}{k}.mtx", pattern)
    collected = run(
        "collect", root / "corpus", "--op", "spmm", "--n", 8, "--samples", 30, "--augment", 1, "--threads", 1,
        "--device", "null", "--store", root / "store.sqlite",
    )  # fmt: skip
    assert collected.exit_code == 0, collected.output
    return root


@pytest.fixture
def store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENSORWISE_STORE", str(folder / "store.sqlite"))
    return folder / "store.sqlite"


@pytest.fixture(scope="module")
def trained(folder: Path) -> dict[str, Any]:
    out = run(*training(folder, folder / "models" / "spmm"), "--records", folder / "store.sqlite", "--json")
    assert out.exit_code == 0, out.output
    lines = [json.loads(line) for line in out.stdout.splitlines()]
    assert [line["event"] for line in lines] == ["epoch"] * 4 + ["result"]
    result: dict[str, Any] = lines[-1]
    return result


def training(folder: Path, model: Path) -> list[object]:
    return [
        "train",
        model,
        folder / "corpus",
        "--op",
        "spmm",
        "--threads",
        1,
        "--epochs",
        4,
        "--learning-rate",
        1e-3,
    ]


def test_a_model_is_trained_tested_and_described(folder: Path, trained: dict[str, Any]) -> None:
    where = folder / "models" / "spmm"
    model = load_model(where)
    assert isinstance(model, RankingModel)
    split = model.card["split"]
    assert sorted(name for part in split.values() for name in part) == sorted(FAMILIES)
    assert len(split["validation"]) == len(split["test"]) == 1
    assert set(trained["families"]) == set(split["test"])
    assert model.card["metrics"] == {key: trained[key] for key in ("all", "families")}
    assert model.card["data"]["patterns"] == 20
    assert model.card["machine"] is None  # a formula took the times
    assert model.card["dtype"] == "float32"
    page = (where / "README.md").read_text()
    assert split["test"][0] in page
    assert run("model", where).stdout.strip() == page.strip()
    assert json.loads(run("model", where, "--json").stdout)["card"] == model.card
    heading, *rows = run("model", folder / "models").stdout.splitlines()
    assert heading.split() == ["model", "kind", "operations", "devices", "trained", "size", "file"]
    (row,) = rows
    assert row.split()[:3] == ["spmm", "ranking", "spmm"]
    assert "1 threads" in row
    assert row.endswith(str(where / "model.json"))
    assert "no model" in run("model", folder / "corpus").stderr


def test_latency_models_are_listed_beside_cost_models(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A user's own latency model comes before the bundled one, and both are described."""
    monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(tmp_path))
    bundled, own = bundled_model("latency"), latency_model_folder()
    shutil.copytree(bundled, own)
    (own / "notes.txt").write_text("x" * 10)
    listed = [json.loads(line) for line in run("model", "--json").stdout.splitlines()]
    latency = [one for one in listed if one["kind"] == "latency"]
    assert [one["model"] for one in latency] == [str(own), str(bundled)]
    assert {"H100", "H200", "tvm-avx2-1t-84cc"} <= set(latency[1]["devices"])
    assert latency[1]["returns"] == "seconds"
    assert latency[0]["size_bytes"] == latency[1]["size_bytes"] + 10
    rows = run("model").stdout.splitlines()
    assert len(rows) == 1 + len(listed)
    assert "H100; H200; 22 CPU settings" in rows[-1]
    assert run("model", bundled).stdout.startswith("# ")
    (own / "latency.json").write_text('{"kind": "latency"}')
    assert "does not describe a model" in run("model").stderr


def test_what_a_model_was_tested_on_can_stay_unseen(folder: Path, trained: dict[str, Any]) -> None:
    """With another seed other families would be kept, but for --tested-as."""
    tested, kept = load_model(folder / "models" / "spmm").card["split"]["test"], set()
    for seed in (1, 2, 3):
        where = folder / f"like-{seed}"
        records = ["--records", folder / "store.sqlite", "--seed", seed, "--epochs", 1]
        out = run(*training(folder, where), *records, "--tested-as", folder / "models" / "spmm")
        assert out.exit_code == 0, out.output
        assert load_model(where).card["split"]["test"] == tested
        out = run(*training(folder, folder / "other"), *records)
        kept |= {*load_model(folder / "other").card["split"]["test"]}
    assert kept != {*tested}
    given = [*training(folder, folder / "x"), "--records", folder / "store.sqlite", "--tested-as"]
    assert "there is no" in run(*given, folder / "none").stderr
    description = folder / "elsewhere" / "model.json"
    description.parent.mkdir()
    text = json.loads((folder / "models" / "spmm" / "model.json").read_text())
    for split, problem in ({"split": {"test": ["moon"]}}, "all or none"), ({}, "it has no card"):
        description.write_text(json.dumps({**text, "card": split}))
        assert problem in run(*given, description.parent).stderr


def test_families_are_divided_by_origin_where_a_split_says_so(folder: Path, tmp_path: Path) -> None:
    """Patterns of two groups that are one origin are on one side, augmented ones too; a sealed one is refused."""
    text = """
patterns = { train = ["chem", "pictures", "web"], validation = [], test = ["shapes"] }
families.shapes.members = ["fem*", "mesh0"]
families.pictures.members = ["graph*", "mesh*"]
"""
    split, where = tmp_path / "split.toml", folder / "by-origin"
    split.write_text(text)
    given = [*training(folder, where), "--records", folder / "store.sqlite", "--epochs", 1, "--split", split]
    out = run(*given)
    assert out.exit_code == 0, out.output
    card = load_model(where).card["split"]
    assert card["test"] == ["shapes"]
    assert {*card["training"], *card["validation"]} == {"chem", "pictures", "web"}
    evaluated = run("evaluate", where, folder / "corpus", "--records", folder / "store.sqlite", "--json")
    families = json.loads(evaluated.stdout)["families"]
    assert set(families) == {"fem", "mesh"}, "by their names, whatever the records call their families"
    assert "7 patterns are left out: the model has learned from them" in evaluated.stderr
    split.write_text(text.replace('"web"], validation = []', '], validation = ["web"]'))
    assert "the validation families of" in run(*given).stderr
    assert run(*given, "--validation", 0).stderr.count("validation families") == 0
    split.write_text(text + "[last.first]\nmade = { web1 = [] }\n")
    assert "web1" in run(*given).stderr
    split.write_text(text.replace('"web"', '"fem"'))
    assert "'web' is in no part (its pattern web" in run(*given).stderr
    split.write_text(text.replace('"web"', '"web", "shapes"'))
    assert "shapes: in two parts" in run(*given).stderr
    split.write_text("[patterns]")
    assert "does not divide families" in run(*given).stderr
    assert run(*given, "--tested-as", where).exit_code == 2


def test_a_graph_is_made_for_it(folder: Path, store: Path, trained: dict[str, Any]) -> None:
    """From what the training left; trained again without one, it is gone."""
    from tensorwise.tuning.advice import Advisor

    where = folder / "models" / "spmm"
    out = run(*training(folder, where), "--graph", 200)
    assert out.exit_code == 0, out.output
    graph = Advisor.load(where).graph
    assert graph is not None
    assert 100 < len(graph) <= 200
    assert run(*training(folder, where)).exit_code == 0
    assert Advisor.load(where).graph is None


def test_it_is_evaluated_on_what_it_has_not_seen(folder: Path, store: Path, trained: dict[str, Any]) -> None:
    where = folder / "models" / "spmm"
    out = run("evaluate", where, folder / "corpus", "--json", "--out", folder / "figures.json")
    assert out.exit_code == 0, out.output
    again = json.loads(out.stdout)
    assert again["all"] == trained["all"]
    written = json.loads((folder / "figures.json").read_text())
    assert len(written["jobs"]) == again["all"]["jobs"] == 4
    configs = written["jobs"][0]["configs"]
    assert len(configs) > 20
    assert {"default", "random", "known"} <= {one["drawn"] for one in configs}
    scores, seconds = np.array(
        [(one["predicted"], one["seconds"]) for one in configs if one["exact"]], float
    ).T
    from tensorwise.model.metrics import spearman

    assert spearman(seconds, scores) == pytest.approx(written["jobs"][0]["spearman"], abs=1e-6)
    every = run("evaluate", where, folder / "corpus", "--all-families")
    assert all(family in every.stdout for family in (*FAMILIES, "all jobs", "Spearman"))
    fewer = json.loads(run("evaluate", where, folder / "corpus", "--drawn", "random", "--json").stdout)
    assert fewer["all"]["configs"] < again["all"]["configs"]
    assert "learned from all" in run("evaluate", where, folder / "corpus", "--drawn", "by hand").stderr


def test_an_evaluation_says_what_it_leaves_out_and_draws_the_rest(
    folder: Path, store: Path, trained: dict[str, Any], tmp_path: Path
) -> None:
    where, page = folder / "models" / "spmm", tmp_path / "evaluation.html"
    out = run("evaluate", where, folder / "corpus", "--report", page)
    assert out.exit_code == 0, out.output
    assert "8 patterns are left out" in out.stderr
    text = page.read_text()
    assert text.count("<svg") == 4
    assert "Predicted and measured times" in text
    assert (
        "in 404"
        in run("evaluate", where, folder / "corpus", "--report", tmp_path / "in 404" / "x.html").stderr
    )
    few = run("evaluate", where, folder / "corpus", "--all-families", "--drawn", "default").stderr
    assert "8 timed configs" in few

    # A card of an older release lists families only: the same ones under other names are not recognised.
    older = tmp_path / "older"
    shutil.copytree(where, older)
    description = json.loads((older / "model.json").read_text())
    del description["card"]["learned"]
    (older / "model.json").write_text(json.dumps(description))
    old = run("evaluate", older, folder / "corpus")
    assert "does not list the patterns that it has learned from" in old.stderr


def test_predicting_imports_no_torch(folder: Path, trained: dict[str, Any]) -> None:
    code = f"""
import sys
sys.modules["torch"] = None
import numpy as np
from tensorwise.device.null import NullDevice
from tensorwise.model import load_model
from tensorwise.program.workload import workload
from tensorwise.space.cpu import cpu_space
from tensorwise.tensor.convert import entries_from
model = load_model({str(folder / "models" / "spmm")!r})
w = workload("spmm", entries_from(np.eye(50)), n=16)
space = cpu_space(w.assignment)
configs = [space.sample(w, np.random.default_rng(k)) for k in range(20)]
scores = model.predict(w, configs, NullDevice())
assert np.isfinite(scores).all() and len(set(scores)) > 1
assert (model.estimate(w, configs, NullDevice())[1] > 0).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("records", ["records.parquet", "records.parts"])
def test_other_stores_do_as_well_and_the_same_seed_gives_the_same_model(
    folder: Path, store: Path, trained: dict[str, Any], records: str
) -> None:
    made = folder / f"from-{records}"
    assert run("store", "export", folder / "records.parquet").exit_code == 0
    if records.endswith(".parts"):
        assert run("store", "--store", folder / records, "import", folder / "records.parquet").exit_code == 0
    out = run(*training(folder, made), "--records", folder / records)
    assert out.exit_code == 0, out.output
    first, again = (load_model(path).state()[1] for path in (folder / "models" / "spmm", made))
    for name, array in first.items():
        np.testing.assert_array_equal(again[name], array)


def test_a_finished_training_is_not_repeated(folder: Path, store: Path, trained: dict[str, Any]) -> None:
    out = run(*training(folder, folder / "models" / "spmm"), "--json")
    assert [json.loads(line)["event"] for line in out.stdout.splitlines()] == ["result"]


def test_ctrl_c_keeps_what_was_learned(folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorwise.model.training import Trainer

    whole, left = Trainer._learn, 20

    def learn(self: Trainer, group: Any) -> float:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return whole(self, group)

    monkeypatch.setattr(Trainer, "_learn", learn)
    out = run(*training(folder, folder / "interrupted"))
    assert out.exit_code == 130
    assert "the same command goes on" in out.stderr
    again = run(*training(folder, folder / "interrupted"), "--json")
    assert again.exit_code == 0, again.output
    assert 1 <= sum(json.loads(line)["event"] == "epoch" for line in again.stdout.splitlines()) < 4


def test_what_is_missing_is_named(folder: Path, store: Path) -> None:
    corpus = folder / "corpus"
    assert (
        "no record of spmv in float32 with 1 threads"
        in run("train", folder / "x", corpus, "--op", "spmv", "--threads", 1).stderr
    )
    assert (
        "in float32 with 1 threads; give --op"
        in run("train", folder / "x", corpus, "--op", "spmm", "--threads", 1, "--dtype", "float64").stderr
    )
    assert (
        "there are 660 of spmm" in run("train", folder / "x", corpus, "--op", "spmm", "--threads", 7).stderr
    )
    assert "--test must be" in run(*training(folder, folder / "x"), "--test", 1.5).stderr
    assert "no network" in run(*training(folder, folder / "x"), "--net", "vgg").stderr
    assert "there are no records" in run(*training(folder, folder / "x"), "--records", folder / "none").stderr
    part = run(
        *training(folder, folder / "part")[:2],
        corpus / "fem",
        corpus / "web",
        "--op",
        "spmm",
        "--threads",
        1,
        "--epochs",
        1,
    )
    assert part.exit_code == 0, part.output
    assert "12 patterns, such as chem0, are in none of the sources" in part.stderr
    assert "no model" in run("evaluate", corpus, corpus).stderr
