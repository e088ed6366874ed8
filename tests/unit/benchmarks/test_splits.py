"""One division for all experiments: families are on one side, with what is made of their matrices; last sets are sealed."""

import ast
import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import splits as module
from benchmarks.splits import LOG, PARTS, SealedError, Splits, splits
from tensorwise.collect.augment import Augmentation
from tensorwise.errors import InputError
from tensorwise.tasks.architectures import ARCHITECTURES
from tensorwise.tensor.convert import entries_from

ROOT = Path(__file__).parents[3]
EXPERIMENTS = ROOT / "experiments"
LEARNS_NOTHING = {
    "spade-calibration": "simulates published runs",
    "spade-space": "simulates all configs of listed matrices",
    "waco-motivation": "searches on single matrices",
    "waco-transfer": "runs programs of single matrices under another setting",
    "waco-search": "asks a model for configs, and judges the search, not the model",
    "cognate-gpus": "spaces that others measured, a task each",
    "mlcd-ginkgo": "choices by matrices that others measured, by folds of their own",
    "gnn-training": "the published splits of Cora and Citeseer",
    "records": "collects",
    "last": "makes the last sets",
}
"""Experiments that divide no families of ours, and why."""


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_every_experiment_reads_the_division_or_says_why_not() -> None:
    folders = sorted(path.name for path in EXPERIMENTS.iterdir() if path.is_dir() and any(path.glob("*.py")))
    reads = {
        name: any(
            {"benchmarks.splits", "benchmarks.held_out"} & set(imported(path))
            for path in (EXPERIMENTS / name).rglob("*.py")
        )
        for name in folders
    }
    assert [name for name in folders if reads[name] == (name in LEARNS_NOTHING)] == ["last"]  # it opens them
    for path in EXPERIMENTS.rglob("*.toml"):
        assert "held_out" not in path.read_text(encoding="utf-8") or path.name == "splits.toml", path


def test_no_family_is_on_two_sides(tmp_path: Path) -> None:
    text = module.PATH.read_text(encoding="utf-8")
    broken = tmp_path / "splits.toml"
    broken.write_text(text.replace('validation = ["circuit"', 'validation = ["cfd", "circuit"'))
    with pytest.raises(InputError, match="cfd: in two parts"):
        Splits.load(broken)
    for parts in (splits().patterns, splits().networks):
        every = [family for part in PARTS for family in parts[part]]
        assert len(every) == len(set(every))
    assert set().union(*splits().networks.values()) == {one.family for one in ARCHITECTURES.values()}
    assert set(splits().judged) <= set(splits().networks_of("test"))
    assert splits().networks_of("test")[: len(splits().judged)] == splits().judged


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("kg_WN18_graph", "knowledge-graph"), ("kg_WN18", "tensor")),
        (("lp_pilot87", "lp-mip"), ("aat_lp_pilot87", "normal-eq")),
        (("qp_BOYD1_P", "qp"), ("kkt_BOYD1", "kkt")),
        (("knn_mnist_t10k_10NN", "knn"), ("mnist_t10k", "tensor")),
        (("deb_depends", "dependency"), ("deb_pkg_rel_pkg", "tensor")),
        (("gnn_cora_adj", "citation"), ("gnn_cora_feat", "doc-term")),
        (("polblogs", "web"), ("gnn_polblogs_adj", "web")),
        (("ca-CondMat", "graph-misc"), ("snap_ca-condmat-cc1", "citation")),
        (("clique_ispd98_ibm14", "netlist"), ("ispd98_ibm14", "netlist")),
        (("icews14s", "tensor"), ("icews14s_sot", "tensor")),
    ],
)
def test_what_is_made_from_a_matrix_is_of_its_family(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Also where the corpus lists it in another group; and augmented patterns and tensors of fibres of both."""
    families = {splits().family(*one), splits().family(*other)}
    assert len(families) == 1
    pattern = entries_from(np.eye(40, dtype=np.float32))
    for seed, fibres in enumerate((False, True)):
        change = Augmentation.draw(pattern.shape, pattern.nnz, np.random.default_rng(seed), fibres=fibres)
        families |= {splits().family(f"{name}~{change}", group) for name, group in (one, other)}
        families |= {
            splits().family(f"{name}~{change}") for name, group in (one, other) if splits().family(name)
        }
    assert len(families) == 1
    assert splits().part(*one) == splits().part(*other)


def test_what_a_model_may_have_met_crosses_groups() -> None:
    met = splits().met({"knowledge-graph", "fem"})
    assert {"knowledge-graphs", "fem", "knowledge-graph"} <= met
    assert not {"temporal-graphs", "debian", "cfd"} & met
    assert "temporal-graphs" in splits().met({"tensor"})


def recorded_names() -> Iterator[tuple[str, str, str]]:
    """Yield (file, pattern or network, group) of all committed records and tables."""
    pytest.importorskip("pyarrow")
    from pyarrow.parquet import ParquetFile, read_table

    for path in sorted(EXPERIMENTS.rglob("*.parquet")):
        held = set(ParquetFile(path).schema_arrow.names)
        if "provenance.networks" in held:
            texts = set(read_table(path, columns=["provenance.networks"]).column(0).to_pylist())
            yield from ((path.name, name, "") for text in texts for name in json.loads(text))
        for name, group in (("provenance.pattern", "provenance.family"), ("pattern", "family")):
            if {name, group} <= held:
                table = read_table(path, columns=[name, group])
                pairs = set(zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))
                for pattern, family in pairs:
                    quoted = name.startswith("provenance") and pattern
                    yield (
                        path.name,
                        *(map(json.loads, (pattern, family)) if quoted else (pattern or "", family or "")),
                    )


def test_no_record_has_a_name_of_a_last_set_and_all_are_in_a_part() -> None:
    found = list(recorded_names())
    assert len(found) > 2000
    sealed = set(splits().sealed())
    assert len(sealed) > 20
    for _, name, group in found:
        splits().refuse([name])  # whatever is done to it
        if group:
            assert splits().part(name, group) in PARTS
    for path in [
        *EXPERIMENTS.rglob("*.json"),
        *EXPERIMENTS.rglob("*.jsonl"),
        *(ROOT / "benchmarks" / "results").glob("*.json"),
    ]:
        text = path.read_text(encoding="utf-8")
        assert not [name for name in sealed if f'"{name}' in text], path
    assert not sealed & set(ARCHITECTURES)


def test_last_sets_are_refused_until_they_are_opened_and_opened_once(tmp_path: Path) -> None:
    shared, log = splits(), tmp_path / "last-sets.log"
    name = next(iter(shared.last["first"]["made"]))
    for text in (name, f"{name}~1x1-5x5-0", "swiftformer-xs-b4"):
        with pytest.raises(SealedError, match="set 'first'"):
            shared.refuse([text])
        shared.refuse([text], opened="first")
    with pytest.raises(SealedError):
        shared.family(name, "fem")
    for odd in (("third", "x"), ("first", " "), ("first", "a\nb")):
        with pytest.raises(InputError, match="expected one of"):
            shared.open(*odd, log=log)
    assert shared.open("first", "figures of today", log) == shared.last["first"]
    assert shared.open("first", "figures of today", log) == shared.last["first"]  # it goes on
    assert log.read_text().count("\n") == 1
    with pytest.raises(SealedError, match="no test any more"):
        shared.open("first", "again", log)
    shared.open("second", "others", log)
    assert [line.split("\t")[1:] for line in log.read_text().splitlines()] == [
        ["first", "figures of today"], ["second", "others"],
    ]  # fmt: skip


def test_the_committed_log_has_each_set_once() -> None:
    opened = [line.split("\t")[1] for line in LOG.read_text().splitlines()] if LOG.exists() else []
    assert len(opened) == len(set(opened)) <= len(splits().last)


# -- how the last sets are made: on toys, never on their own files ------------------------------------------


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.syspath_prepend(str(EXPERIMENTS / "last"))
    return runpy.run_path(str(EXPERIMENTS / "last" / "making.py"))


def dense(entries: object) -> list[list[int]]:
    return entries.to_scipy().toarray().astype(int).tolist()  # type: ignore[attr-defined, no-any-return]


def test_ways_of_making_patterns(making: dict[str, object]) -> None:
    ways: dict[str, object] = making["WAYS"]  # type: ignore[assignment]

    def of(way: str, *texts: str) -> object:
        return ways[way]({f"{n}.py": text.encode() for n, text in enumerate(texts)})  # type: ignore[operator]

    reaction = '<reaction id="r"><speciesReference species="a"/><speciesReference species="b"/></reaction>'
    assert dense(of("stoichiometry", reaction + reaction.replace("b", "c"))) == [[1, 1], [1, 0], [0, 1]]
    atom = "    1ALA      N    1{:8.3f}{:8.3f}{:8.3f}"
    atoms = "\n".join(["t", "3", *(atom.format(x, 0.0, 0.0) for x in (0.0, 0.4, 0.8)), "box"])
    assert dense(of("contacts", atoms)) == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    assert dense(of("words", "ab cd ab", "cd ef")) == [[1, 1, 0], [0, 1, 1]]
    trigrams = of("trigrams", "ab cd ab cd ab", "ef ef")
    assert [one.tolist() for one in trigrams.coordinates] == [[0, 1], [1, 0], [0, 1]]  # type: ignore[attr-defined]
    code = "def f():\n    g()\n    print()\ndef g():\n    x.f()\n"
    assert dense(of("calls", code)) == [[0, 1], [1, 0]]
    assert of("calls-by-file", code, "def h():\n    g()\n").shape == (3, 3, 2)  # type: ignore[attr-defined]
    ring = making["spins"](3)  # type: ignore[operator]
    full = np.array(dense(ring))
    assert (full == full.T).all()
    assert full.sum(axis=1).tolist() == [1, 3, 3, 3, 3, 3, 3, 1]


def test_the_command_wants_a_purpose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXPERIMENTS / "last"))
    monkeypatch.setattr(sys, "argv", ["run.py", str(tmp_path), str(tmp_path), "--open", "first"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(EXPERIMENTS / "last" / "run.py"), run_name="__main__")
    assert not LOG.exists() or "\tfirst\t" not in LOG.read_text() or list(tmp_path.iterdir()) == []
