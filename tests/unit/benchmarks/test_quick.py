"""Quick ratios: the history, what became worse, the drawing, and a case measured in few rounds."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.quick import draw, history, run
from benchmarks.quick.cases import MATRICES, Pair, cases, importing, matrix_of

NAMES = ("SpMV, a", "SpMM 8, a")


def line(commit: str, *medians: float, processor: str = "Zen", **given: Any) -> dict[str, Any]:
    ratios = {
        name: [median, 0.9 * median, 1.1 * median] for name, median in zip(NAMES, medians, strict=False)
    }
    machine = {"processor": processor, "model": "1-1-1", "processors": 4, "threads": 2, "scipy": "1.17"}
    return {"date": "2026-01-01", "commit": commit, "machine": machine, "ratios": ratios, **given}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A history of two commits on two machines."""
    made = tmp_path / "history.jsonl"
    for one in (line("c1", 0.5, 0.2), line("c1", 0.9, processor="Xeon"), line("c2", 0.7, 0.2)):
        history.write(made, one)
    return made


# -- the history ---------------------------------------------------------------------------------------------


def test_a_line_is_added_or_replaces_that_of_its_commit_and_machine(path: Path) -> None:
    history.write(path, line("c1", 0.6))
    lines = history.read(path)
    assert [(one["commit"], one["machine"]["processor"]) for one in lines] == [
        ("c1", "Xeon"),
        ("c2", "Zen"),
        ("c1", "Zen"),
    ]
    assert lines[-1]["ratios"] == line("c1", 0.6)["ratios"]
    assert len(path.read_text().splitlines()) == 3


def test_an_empty_history_is_read_and_drawn(tmp_path: Path) -> None:
    empty = tmp_path / "history.jsonl"
    assert history.read(empty) == []
    empty.touch()
    assert history.read(empty) == []
    assert draw.NONE in draw.picture_of(empty)
    assert draw.NONE in draw.table(empty)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", json.dumps(line("c1", -1.0)), json.dumps({**line("c1"), "ratios": {"a": [1, 2]}})],
)
def test_a_line_that_cannot_be_read_is_named(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text + "\n")
    with pytest.raises(SystemExit, match="line 4 cannot be read"):
        history.read(path)


# -- what became worse ---------------------------------------------------------------------------------------


def test_worse_is_beyond_both_intervals() -> None:
    before = line("c1", 0.5, 0.2)
    assert history.worse(line("c2", 0.6, 0.2), before) == [], "the intervals overlap"
    (text,) = history.worse(line("c2", 0.7, 0.1), before)
    assert text == "SpMV, a: 0.70 [0.63, 0.77], was 0.50 [0.45, 0.55]"
    assert history.worse(line("c2", 9.0, 9.0), line("c1")) == [], "cases that are new are not compared"


def test_the_last_line_of_the_same_machine_and_another_commit_counts(path: Path) -> None:
    found = "\n".join(run.compare(line("c2", 0.9, 0.2), path))
    assert "1 of 2 ratios are worse than at commit c1 of 2026-01-01" in found
    assert "worse: SpMV, a: 0.90" in found
    assert "0 of 2 ratios are worse than at commit c2" in "\n".join(run.compare(line("c3", 0.7, 0.2), path))
    assert "nothing to compare with" in run.compare(line("c2", 0.9, processor="M1"), path)[0]
    other = line("c3", 0.7)
    other["machine"]["scipy"] = "2.0"
    assert "  changed: scipy 2.0, was 1.17" in run.compare(other, path)


# -- the picture and the page --------------------------------------------------------------------------------


def test_the_picture_and_the_page_follow_from_the_history() -> None:
    for file, text in draw.texts().items():
        assert file.read_text(encoding="utf-8") == text, "run python benchmarks/quick/draw.py"


def test_each_case_has_a_panel_and_each_machine_a_colour(path: Path) -> None:
    text = draw.picture_of(path)
    assert draw.series(history.read(path), NAMES[0], "Zen (1-1-1), 4 processors, 2 threads") == [
        (0, [0.5, 0.45, 0.55]),
        (1, [0.7, pytest.approx(0.63), pytest.approx(0.77)]),
    ]
    root = ElementTree.fromstring(text)
    circles = [one for one in root.iter() if one.tag.endswith("circle")]
    assert len(circles) == 5
    assert len({one.get("fill") for one in circles}) == 2
    history.write(path, line("c3", 0.7, 0.2))
    assert draw.picture_of(path) != text


def test_a_changed_table_is_noticed(path: Path) -> None:
    page = draw.written(f"before\n{draw.BEGIN}\n{draw.END}\nafter\n", path)
    assert "| SpMV, a | 0.70 [0.63, 0.77] | 0.90 [0.81, 0.99] |" in page
    assert "| SpMM 8, a | 0.20 [0.18, 0.22] | not run |" in page
    assert draw.written(page.replace("0.70", "0.10"), path) == page
    with pytest.raises(SystemExit, match="has no lines"):
        draw.written("before", path)


# -- measuring -----------------------------------------------------------------------------------------------


def test_there_are_thirty_cases() -> None:
    assert len(cases(1)) == 30


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> Any:
    """All matrices are small ones: a band of 30 rows in blocks of three."""
    band = sp.kron(sp.diags_array([1.0, 2.0, 3.0], offsets=[-1, 0, 1], shape=(10, 10)), np.ones((3, 3)))
    for name in MATRICES:
        monkeypatch.setitem(MATRICES, name, lambda: sp.csr_array(band))
    monkeypatch.setattr("benchmarks.quick.cases.TUNE_S", 0.2)
    matrix_of.cache_clear()
    yield
    matrix_of.cache_clear()


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize("name", cases(1))
def test_results_of_a_case_are_right(name: str) -> None:
    if "SparseLinear" in name:
        pytest.importorskip("torch")
    pair = cases(1)[name]()
    assert pair.wrong() == []
    if pair.matrix is None and "import" not in name:
        pair.ours(), pair.scipy()


@pytest.mark.usefixtures("_tiny")
def test_a_line_has_ratios_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Pair:
        raise ImportError("no such package", name="networkx")

    def wrong() -> Pair:
        matrix, x = matrix_of("bar", "float64"), np.ones(30)
        return Pair(lambda: 2 * (matrix @ x), lambda: matrix @ x, matrix, x)

    monkeypatch.setattr(run, "SETTLE_S", 0.0)
    todo = {"a": cases(1)["SpMV, digits"], "b": missing, "c": wrong}
    found, failed = run.line_of(todo, 3, 1)
    assert list(found["ratios"]) == ["a"]
    median, low, high = found["ratios"]["a"]
    assert 0 < low <= median <= high
    assert found["left_out"] == {"b": "needs networkx"}
    assert failed == ["c: wrong results of ours"]
    assert re.fullmatch(r"[0-9a-f]{12}\+?", found["commit"])
    assert json.loads(json.dumps(found)) == found


def test_importing_pairs_are_processes() -> None:
    pair = importing()
    assert pair.wrong() == []
    pair.ours()
