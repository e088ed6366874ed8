"""The Python examples of the documentation run, and the files and classes that its pages name exist.

Each page is one session, in a folder of its own. A block after a line ``<!-- skip -->`` is not run. A block with ``>>>`` is
a doctest. A page that says ``<!-- needs: PACKAGE, ... -->`` is skipped where one of these packages is not installed.
"""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^(?P<skip><!-- skip -->\n)?```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
NEEDS = re.compile(r"^<!-- needs: (.+) -->$", re.MULTILINE)
"""The optional packages that the examples of a page import."""
DEFINED = re.compile(r"^class ([A-Z]\w*)\b", re.MULTILINE)
"""Public classes in the text of a module."""
PACKAGES = (ROOT / "tensorwise", ROOT / "experiments" / "paper-models")
"""Where classes of the vocabulary are defined."""
SOURCES = ("tensorwise", "tests", "docs", "examples", "experiments", "benchmarks", "models")
"""Folders whose files pages name."""
OTHERS = ("NAME", "FILE", "spmv.py")
"""How the names of files begin that are the reader's own; their folder exists."""
MAX_WORDS = 1_500
"""Words of a page that is read from its beginning to its end, code and tables included."""
REFERENCE = {"claims.md", "command-line.md", "features.md", "vocabulary.md", "decisions/index.md"}
"""Pages of ``docs`` in which one looks something up."""
FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|cuh|c|h|toml))`")
"""A file in the text of a page."""


def blocks(page: Path) -> list[tuple[int, str]]:
    """Return (line of the first statement, code) of each block that is to be run."""
    text = page.read_text(encoding="utf-8")
    found = [match for match in BLOCK.finditer(text) if not match["skip"]]
    return [(text.count("\n", 0, match.start("code")) + 1, match["code"]) for match in found]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for names in NEEDS.findall(page.read_text(encoding="utf-8")):
        for name in names.split(", "):
            pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    session: dict[str, object] = {"__name__": "__main__"}
    for line, code in blocks(page):
        if ">>> " in code:
            test = doctest.DocTestParser().get_doctest(code, session, page.name, str(page), line - 1)
            result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
            session = test.globs
            assert not result.failed, f"{page.name}, line {line}: the example prints something else"
        else:  # empty lines before it give tracebacks the page's line numbers
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), session)


def test_every_block_is_found() -> None:
    """A fence that the pattern misses, say an indented one, would silently not run."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(BLOCK.findall(text)) == text.count("```python"), (
            f"{page}: a python block is indented or unclosed"
        )


def vocabulary() -> list[tuple[str, list[str]]]:
    """Return (word, files of its home) of each row of the vocabulary that has a home."""
    rows = []
    for line in (ROOT / "docs" / "vocabulary.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and len(cells) == 3 and (homes := re.findall(r"`([^`]+)`", cells[2])):
            rows += [(word, homes) for word in cells[0].split(", ") if "`" not in word]
    return rows


def test_words_live_where_the_vocabulary_says() -> None:
    """The files of a home exist; a word that is the name of a class is defined in one of them."""
    rows = vocabulary()
    assert len(rows) > 70, "the table of the vocabulary is not read"
    texts = [path.read_text(encoding="utf-8") for folder in PACKAGES for path in folder.rglob("*.py")]
    classes = {name for text in texts for name in DEFINED.findall(text)}
    for word, homes in rows:
        places = [root / home for home in homes for root in (ROOT, PACKAGES[0]) if (root / home).exists()]
        assert len(places) == len(homes), f"{word}: one of {homes} does not exist"
        is_class = word in classes or re.fullmatch(r"[A-Z][a-z]+([A-Z][a-z]+)+", word)
        defined = {
            name
            for place in places
            if place.is_file()
            for name in DEFINED.findall(place.read_text(encoding="utf-8"))
        }
        assert not is_class or word in defined, f"{word} is a class, which none of {homes} defines"


def test_files_that_pages_name_exist() -> None:
    """A page may leave out the folder that it speaks of. Decisions name files as they were called on their day."""
    known = [f"/{path.as_posix()}" for folder in SOURCES for path in (ROOT / folder).rglob("*")]
    for page in (*PAGES, ROOT / "CONTRIBUTING.md"):
        if page.parent.name == "decisions":
            continue
        for name in FILE.findall(page.read_text(encoding="utf-8")):
            folder, _, file = name.rpartition("/")
            wanted = folder if file.startswith(OTHERS) else name
            exists = (ROOT / wanted).exists() or any(path.endswith(f"/{wanted}") for path in known)
            assert exists, f"{page.name} names {name}, but there is no {wanted}"


def test_a_page_can_be_read_in_one_sitting() -> None:
    long = {}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").as_posix()
        words = len(re.findall(r"\S*\w\S*", page.read_text(encoding="utf-8")))
        if words > MAX_WORDS and name not in REFERENCE:
            long[name] = words
    assert not long, f"more than {MAX_WORDS} words: divide the page, or leave something out"
