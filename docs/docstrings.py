"""Makes our docstrings Markdown for the reference pages: doctests, literal blocks and roles become code.

A griffe extension, named in ``mkdocs.yml``. The source keeps the plain forms that ``help()`` shows well.
"""

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*|\n(?P=indent) +\S.*)*", re.MULTILINE)
_ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")
_LITERAL = re.compile(r"::(?=\n\n {4})")


def markdown(text: str) -> str:
    """Return a docstring's text as Markdown."""
    text = _ROLE.sub(r"`\1`", _LITERAL.sub(":", text))

    def fence(match: re.Match[str]) -> str:
        indent = match["indent"]
        return f"{indent}```pycon\n{match[0]}\n{indent}```"

    return _DOCTEST.sub(fence, text)


class Docstrings(griffe.Extension):
    """Rewrites each docstring once, when griffe has read it."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every object of the package."""
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)
