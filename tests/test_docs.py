"""The Python examples of the documentation run: each page is one session, in a folder of its own.

A block after a line ``<!-- skip -->`` is not run. A block with ``>>>`` is a doctest.
"""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^(?P<skip><!-- skip -->\n)?```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[int, str]]:
    """Return (line of the first statement, code) of each block that is to be run."""
    text = page.read_text(encoding="utf-8")
    found = [match for match in BLOCK.finditer(text) if not match["skip"]]
    return [(text.count("\n", 0, match.start("code")) + 1, match["code"]) for match in found]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
