"""Results say what they follow from, and only that continues them; pages say of which results they are."""

import ast
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks import corpus
from benchmarks.corpus import (
    Results,
    bytes_digest,
    code_digest,
    continued,
    digest_of,
    digests,
    drawn_of,
    same_machine,
    toml_digest,
)

ROOT = Path(__file__).parents[3]
PAGE = "<html><body><main><h1>x</h1></main></body></html>\n"
HERE = {"processor": "one", "processors": 2, "numpy": "2"}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "machine", lambda: dict(HERE))


def elsewhere(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    monkeypatch.setattr(corpus, "machine", lambda: {**HERE, **changed})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "records.parquet"
    path.write_bytes(b"records")
    return path


def made(path: Path, *inputs: Path, **options: Any) -> Results:
    return Results(path, "a claim", {"seed": 0}, inputs=inputs, **options)


@pytest.fixture
def whole(tmp_path: Path, data: Path) -> Path:
    path = tmp_path / "results.json"
    results = made(path, data)
    results.add("one", {"seconds": 1.0})
    results.write(["one run"], True)
    return path


def test_results_have_their_inputs_and_machine(whole: Path, data: Path) -> None:
    held = json.loads(whole.read_text())
    assert held["machine"] == HERE
    assert held["inputs"] == {"records.parquet": bytes_digest(b"records")}
    again = made(whole, data)
    again.add("two", {})
    assert json.loads(whole.read_text())["runs"].keys() == {"one", "two"}


def test_drawing_twice_changes_nothing(whole: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on another machine, nor with other inputs, settings, or another judgement."""
    before = whole.read_bytes()
    data.write_bytes(b"others")
    elsewhere(monkeypatch, processor="another")
    pages = []
    for _ in range(2):
        results = Results(whole, "another claim", {"seed": 1}, inputs=[data], drawing=True)
        results.write(["another line"], False)
        assert results.settings == {"seed": 0}
        pages.append(results.draw(PAGE).read_bytes())
        assert whole.read_bytes() == before
    assert pages[0] == pages[1]
    assert f"results.json {bytes_digest(before)}, one, 2 processors" in pages[0].decode()
    with pytest.raises(SystemExit, match=r"drawing adds no run|another machine"):
        results.add("two", {})
    assert whole.read_bytes() == before
    with pytest.raises(SystemExit, match="nothing to draw"):
        Results(whole.with_name("none.json"), "", {}, drawing=True)


def test_a_page_of_other_results_is_told_from_it(whole: Path) -> None:
    first = drawn_of(PAGE, whole)
    whole.write_text(whole.read_text().replace("one run", "two runs"))
    assert drawn_of(PAGE, whole) != first
    assert first.index("Drawn of") < first.index("</main>")


@pytest.mark.parametrize("changed", [{"processor": "another"}, {"processors": 4}, {"numpy": "3"}])
def test_another_machine_adds_nothing(
    whole: Path, data: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    elsewhere(monkeypatch, **changed)
    before = whole.read_bytes()
    results = made(whole, data)
    attempts = (
        lambda: results.add("two", {}),
        lambda: results.work({"two": dict}),
        lambda: list(results.left(["two"])),
    )
    for attempt in attempts:
        with pytest.raises(SystemExit, match="another machine"):
            attempt()
    results.work({"one": dict})  # nothing is left
    assert whole.read_bytes() == before
    results.write(["judged anew"], True)
    held = json.loads(whole.read_text())
    assert (held["machine"], held["summary"]) == (HERE, ["judged anew"])
    made(whole, data, fresh=True).add("two", {})
    assert json.loads(whole.read_text())["machine"] == {**HERE, **changed}


def test_what_older_files_do_not_say_of_their_machine_is_not_compared(
    whole: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(monkeypatch, model="6-1-1")
    made(whole, data).add("two", {})
    same_machine(whole, {})
    with pytest.raises(SystemExit, match="processor 'x', here 'one'"):
        same_machine(whole, {"machine": {"processor": "x"}})


def test_other_inputs_are_noticed(whole: Path, data: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.parquet"
    more.write_bytes(b"more")
    for inputs in ((), (data, more), (more,)):
        with pytest.raises(SystemExit, match=r"made of other inputs: .*parquet"):
            made(whole, *inputs)
    data.write_bytes(b"changed")
    with pytest.raises(SystemExit, match=r"other inputs: records\.parquet changed since"):
        made(whole, data)
    made(whole, data, fresh=True).add("one", {})
    with pytest.raises(SystemExit, match="was made with"):
        Results(whole, "", {"seed": 1}, inputs=[data])


def test_files_that_are_no_results_are_continued_alike(whole: Path, data: Path) -> None:
    assert continued(whole, digests([data]))["runs"] == {"one": {"seconds": 1.0}}
    assert continued(whole, {}, fresh=True) == continued(whole.with_name("none.json"), {}) == {}
    with pytest.raises(SystemExit, match="other inputs"):
        continued(whole, {})


def test_digests_are_of_what_files_say(tmp_path: Path) -> None:
    code = 'def f(x: int) -> int:\n    """Say one."""\n    return x + 1  # one\n'
    other = 'def f(x: int) -> int:\n    """Say it otherwise."""\n\n    return x + 1\n'
    assert (
        code_digest({"a.py": code})
        == code_digest({"a.py": other})
        != code_digest({"a.py": code.replace("1", "2", 1)})
    )
    assert code_digest({"a.py": code.replace("+ 1", "+ 2")}) != code_digest({"a.py": code})
    assert code_digest({"b.py": code}) != code_digest({"a.py": code})
    wrapped = code.replace("(x: int)", "(\n    x: int,\n)")
    assert code_digest({"a.py": wrapped}) == code_digest({"a.py": code})
    inside, outside = ("for i in x:\n    a()\n    b()\n", "for i in x:\n    a()\nb()\n")
    assert code_digest({"a.py": inside}) != code_digest({"a.py": outside})
    # with every version of Python the same
    assert code_digest({"a.py": f"{code}y = f'{{x:3}} {{{{}}}}'\n"}) == "f1b076d0fb8e7ab5"
    assert (
        toml_digest("a = 1 # one\nb = 2")
        == toml_digest("b = 2\na = 1\n[last]\nx = 3")
        != toml_digest("a = 2\nb = 2")
    )
    folder = tmp_path / "steps"
    folder.mkdir()
    (folder / "steps.py").write_text(code)
    before = digest_of(folder)
    (folder / "page.py").write_text("drawn = 1\n")
    assert digest_of(folder) == before
    (folder / "more.py").write_text("learned = 1\n")
    assert digest_of(folder) != before


# -- what scripts do -----------------------------------------------------------------------------------------


def scripts() -> list[tuple[Path, ast.Module]]:
    paths = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(paths)]


def calls(tree: ast.Module, name: str) -> list[dict[str, str]]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == name]
    return [{word.arg or "": ast.unparse(word.value) for word in node.keywords} for node in found]


def test_all_scripts_record_their_inputs_and_draw_without_writing() -> None:
    made = {path: calls(tree, "Results") for path, tree in scripts()}
    assert sum(map(len, made.values())) > 20
    for path, _ in scripts():
        assert all("inputs" in one for one in made[path]), path
        text = path.read_text(encoding="utf-8")
        if '"--page"' in text:
            drawing = [one for one in made[path] if one.get("drawing") == "options.page"]
            assert drawing or "if not options.page:\n        measure(" in text, path
        if path.name not in ("corpus.py", "summary.py"):
            assert "write_text(page(" not in text, f"{path}: use results.draw or drawn_of"


# -- what is committed -------------------------------------------------------------------------------------


def committed() -> list[Path]:
    benchmarks = [ROOT / "benchmarks" / "results", ROOT / "benchmarks" / "everyday" / "results"]
    found = [path for folder in (*benchmarks, ROOT / "experiments") for path in folder.rglob("*.json")]
    return sorted(path for path in found if path.name not in ("expected.json", "model.json"))


def test_committed_results_name_no_path_of_a_machine() -> None:
    """A message of a failed run may name the file that it was about."""
    pattern = re.compile(r"""(?<![\w.~-])/(?:home|mnt|root|tmp|Users|var|work)/\w""")
    assert not [path for path in committed() if pattern.search(path.read_text(encoding="utf-8"))]


def changed_inputs(held: dict[str, Any]) -> list[str]:
    """Inputs in this repository that are not what they were; all of them where none were recorded."""
    if not (known := held.get("inputs", {})):
        return ["none"]
    there = {name: ROOT / name for name in known if "/" in name}
    return [name for name, path in there.items() if not path.exists() or digest_of(path) != known[name]]


def test_committed_results_are_of_committed_inputs_or_listed_as_stale() -> None:
    listed = tomllib.loads((ROOT / "experiments" / "stale.toml").read_text(encoding="utf-8"))["stale"]
    assert all(len(reason) > 10 for reason in listed.values())
    found = {
        path.relative_to(ROOT).as_posix(): changed
        for path in committed()
        if (changed := changed_inputs(json.loads(path.read_text(encoding="utf-8"))))
    }
    assert found.keys() - listed.keys() == set(), (
        "run these again, or list them in stale.toml with the reason"
    )
    assert listed.keys() - found.keys() == set(), "these are fresh: take them out of stale.toml"


def test_committed_pages_are_of_the_results_beside_them() -> None:
    pages = [*(ROOT / "benchmarks" / "results").glob("*.html"), *(ROOT / "experiments").rglob("*.html")]
    assert len(pages) > 15
    for page in pages:
        footer = page.read_text(encoding="utf-8").rpartition('class="drawn-of"')[2]
        told = re.findall(r"([\w.-]+\.json) ([0-9a-f]{16})", footer)
        assert told, f"{page}: draw it again"
        for name, digest in told:
            assert bytes_digest((page.parent / name).read_bytes()) == digest, (
                f"{page} is not of {name}: draw it again"
            )
