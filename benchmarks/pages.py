"""What the pages of results share: tables, cards, and a self-contained document in the report's style."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import tensorwise.front
from tensorwise.front.svg import element, escape


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain cells that scrolls where it is too wide."""
    top = element("tr", "".join(element("th", escape(cell)) for cell in head))
    body = "".join(element("tr", "".join(element("td", escape(cell)) for cell in row)) for row in rows)
    return element("div", element("table", top + body), class_="scroll")


def paragraphs(texts: Iterable[str]) -> str:
    """Return a paragraph for each plain text that is not empty."""
    return "".join(element("p", escape(text)) for text in texts if text)


def card(title: str, content: str) -> str:
    """Return a section; ``content`` is markup."""
    return element(
        "section", element("h2", escape(title)) + content, class_="card wide", style="margin-top:20px"
    )


def document(title: str, content: str, style: str = "") -> str:
    """Return a whole page of ``content``, which is markup, with ``style`` beside the report's."""
    known = (Path(tensorwise.front.__path__[0]) / "report.css").read_text()
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head += element("title", escape(title)) + f"<style>{known}{style}</style>"
    return (
        f'<!doctype html><html lang="en"><head>{head}</head>'
        + element("body", element("main", content))
        + "</html>\n"
    )
