"""Report pages: one self-contained HTML file each, of cards with pictures and tables, and the reports that become one.

A page fetches nothing. Its script links the pictures: elements with the same ``data-c`` are one candidate, and pointing at
one highlights all. Without the script the page has the same content.
"""

import os
from collections.abc import Callable, Collection, Sequence
from importlib.resources import files
from typing import Any, final

from tensorwise.errors import InputError
from tensorwise.front.svg import element, escape
from tensorwise.reading import user_path
from tensorwise.writing import replacing

MAX_LINES = 400
"""Lines that a page shows of a program's text."""


@final
class Report(str):
    """A report: a text for people, and a page with pictures.

    It prints as its text, and notebooks show its page. The page is made when it is asked for.

    >>> report = Report("all is well", lambda: page("A report", "", ["All is well."]))
    >>> print(report)
    all is well
    >>> report.html()[:15]
    '<!DOCTYPE html>'
    """

    _page: Callable[[], str]

    def __new__(cls, text: str, page: Callable[[], str]) -> "Report":
        """Make a report.

        Args:
            text: what it prints.
            page: returns the page; may raise InputError where there is none.
        """
        made = super().__new__(cls, text)
        made._page = page
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)  # the page needs the operator or the array

    def html(self) -> str:
        """Return the page as text.

        Raises:
            InputError: nothing was measured that a page could show.
        """
        return self._page()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page; the file appears whole or not at all.

        Args:
            path: of the file, such as ``tuned.html``; an existing one is replaced.

        Raises:
            InputError: there is no page, or the file cannot be written.
        """
        made = self.html()
        try:
            with replacing(user_path(path)) as file:
                file.write(made.encode("utf-8", errors="replace"))
        except OSError as error:
            raise InputError(f"{path}: the report cannot be written ({error.strerror or error})") from error

    def _repr_html_(self) -> str:
        """Show the page in a notebook: in a frame, so that its styles stay its own; the text where there is no page."""
        try:
            made = self.html()
        except InputError:
            return element("pre", escape(self))
        return element(
            "iframe", srcdoc=made, sandbox="allow-scripts", title="Report of Tensorwise",
            style="width:100%;height:640px;border:1px solid #8886;border-radius:6px",
        )  # fmt: skip


def page(title: str, subtitle: str, summary: Sequence[str], *parts: str, linked: bool = False) -> str:
    """Return a whole page.

    Args:
        title: heading.
        subtitle: one line below it.
        summary: sentences, a paragraph each, the finding first.
        parts: markup of the rest, from the functions of this module.
        linked: whether pictures and tables share candidates, so that the script is added.
    """
    style, script = (
        files("tensorwise.front").joinpath(f"report.{kind}").read_text(encoding="utf-8")
        for kind in ("css", "js")
    )
    body = (
        element("h1", escape(title))
        + (element("p", escape(subtitle), class_="soft") if subtitle else "")
        + element("div", "".join(element("p", escape(one)) for one in summary), class_="verdict")
    )
    hint = "Point at a candidate in a picture or a table: all of them highlight it. A click keeps it, Escape ends that."
    if linked:
        body += element("p", hint, class_="soft hint", hidden="hidden")
        parts = (*parts, element("aside", "", id="picked", role="status", hidden="hidden"))
    foot = element("footer", "Written by Tensorwise. Lower times are better.", class_="soft")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        + element("title", escape(title))
        + f"<style>\n{style}</style>"
    )
    end = f"<script>\n{script}</script>" if linked else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>'
        f"<main>{body}{''.join(parts)}{foot}</main>{end}</body></html>\n"
    )


def tiles(figures: Sequence[tuple[str, str]]) -> str:
    """Return large figures, each with the words below it; nothing for none."""
    inner = "".join(
        element("div", element("b", escape(big)) + element("span", escape(small)), class_="card tile")
        for big, small in figures
    )
    return element("div", inner, class_="tiles") if inner else ""


def cards(*parts: str) -> str:
    """Return cards in two columns, on a narrow screen in one."""
    return element("div", "".join(parts), class_="grid")


def card(title: str, content: str, text: str = "", wide: bool = False) -> str:
    """Return a card: a heading, a sentence and markup."""
    intro = element("p", escape(text)) if text else ""
    return element(
        "section", element("h2", escape(title)) + intro + content, class_="card wide" if wide else "card"
    )


def notes(lines: Sequence[str]) -> str:
    """Return a card with sentences that nobody should miss; nothing for none."""
    inner = "".join(element("p", escape(line)) for line in lines)
    return element("div", element("h2", "Please note") + inner, class_="card notes") if inner else ""


def figure(drawing: str, caption: str, after: str = "") -> str:
    """Return a picture with the sentences that say how to read it, and markup between the two."""
    return element("figure", drawing + after + element("figcaption", escape(caption)))


def paragraph(text: str) -> str:
    """Return one paragraph of text."""
    return element("p", escape(text))


def key(classes: Sequence[tuple[str, str]]) -> str:
    """Return what the colours of marks mean: a class and its words each."""
    items = "".join(element("li", element("i", "", class_=kind) + escape(words)) for kind, words in classes)
    return element("ul", items, class_="key")


def preformatted(text: str) -> str:
    """Return a program's text, its first lines where it is long."""
    if not text:
        return element("p", "Nothing to show: a library's routine computes it.")
    lines = text.rstrip().splitlines()
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"… {len(lines) - MAX_LINES} more lines"]
    return element("pre", escape("\n".join(lines)))


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numeric: Collection[int] = (),
    code: Collection[int] = (),
    strong: int | None = None,
    candidates: Sequence[int] = (),
) -> str:
    """Return a table.

    Args:
        head: of the columns; none are shown where all are empty.
        rows: texts of the cells.
        numeric, code: numbers of the columns of figures and of program text.
        strong: number of the row that is emphasised.
        candidates: number of the candidate of each row, for the links to the pictures.
    """

    def cell(tag: str, n: int, text: str) -> str:
        inner = escape(text)
        if n in code and text:
            inner = element("code", inner)
        scope = "col" if tag == "th" else None
        return element(tag, inner, class_="num" if n in numeric else None, scope=scope)

    top = ""
    if any(head):
        top = element("thead", element("tr", "".join(cell("th", n, text) for n, text in enumerate(head))))
    body = ""
    for place, row in enumerate(rows):
        link = candidates[place] if candidates else None
        body += element(
            "tr", "".join(cell("td", n, text) for n, text in enumerate(row)),
            class_="best" if place == strong else None,
            id=None if link is None else f"c{link}", data_c=link,
        )  # fmt: skip
    return element("div", element("table", top + element("tbody", body)), class_="scroll")
