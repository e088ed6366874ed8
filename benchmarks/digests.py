"""Digests of what results depend on: files, and what Python code says. Needs the standard library only."""

import hashlib
import re
import tokenize
from collections.abc import Mapping
from typing import Final


def bytes_digest(data: bytes) -> str:
    """Return the beginning of a checksum."""
    return hashlib.sha256(data).hexdigest()[:16]


def code_digest(files: Mapping[str, str]) -> str:
    """Return a digest of what code says: of its statements and their indentation, without comments, docstrings and layout.

    The same with every version of Python: syntax trees are printed differently by each.
    """
    told = [f"{name}\n{_statements(text)}" for name, text in sorted(files.items())]
    return bytes_digest("\n".join(told).encode())


_TRAILING: Final = re.compile(r",(?=[)}\]])")


def _statements(text: str) -> str:
    lines, ends = text.splitlines(keepends=True), [0]
    for line in lines:
        ends.append(ends[-1] + len(line))
    found, depth, begin, comments, kinds = list[str](), 0, -1, list[tuple[int, int]](), list[int]()
    for token in tokenize.generate_tokens(iter(lines).__next__):
        here, there = (ends[row - 1] + column for row, column in (token.start, token.end))
        if token.type in (tokenize.INDENT, tokenize.DEDENT):
            depth += 1 if token.type == tokenize.INDENT else -1
        elif token.type == tokenize.COMMENT:
            comments.append((here, there))
        elif token.type == tokenize.NEWLINE:
            if kinds != [tokenize.STRING]:  # no docstring
                kept = "".join(
                    text[at] for at in range(begin, here) if not any(a <= at < b for a, b in comments)
                )
                found.append(f"{depth} {_TRAILING.sub('', ''.join(kept.split()))}")
            begin, kinds, comments = -1, [], []
        elif token.type not in (tokenize.NL, tokenize.ENDMARKER):
            begin = here if begin < 0 else begin
            kinds.append(token.type)
    return "\n".join(found)
