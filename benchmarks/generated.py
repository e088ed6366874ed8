"""Parts of pages and pictures that follow from results: put into a page between two lines, written, or compared."""

from collections.abc import Mapping
from pathlib import Path


def with_part(page: str, part: str, name: object) -> str:
    """Return a page with what stands from the first line of ``part`` to its last line replaced by ``part``.

    Args:
        page: the page's text.
        part: begins and ends with a line of its own, such as a comment.
        name: of the page, for the error.

    Raises:
        SystemExit: the page has no such lines.
    """
    first, last = part.splitlines()[0], part.splitlines()[-1]
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise SystemExit(f"{name} has no lines {first!r} and {last!r}")
    return before + part + after


def write(texts: Mapping[Path, str]) -> None:
    """Write each file and print its path."""
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
        print(path)


def check(texts: Mapping[Path, str], source: Path, command: str) -> None:
    """Compare each file with its text.

    Raises:
        SystemExit: one is missing or differs; ``command`` writes it from ``source``.
    """
    for path, text in texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{path} is older than {source}; run {command}")
