"""Config: one point of a Space - immutable, hashable, with one canonical text."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.reading import parse_json, shown

Value = str | int | bool | tuple[str, ...] | None
"""What a Param may choose; None says that it does not apply (inactive)."""


def as_value(name: str, given: object) -> Value:
    """Return ``given`` as a plain Value: NumPy scalars become Python's, lists become tuples.

    Raises:
        InputError: ``given`` is no str, int, bool, sequence of str or None.
    """
    if given is None or type(given) in (str, int, bool):
        return given  # type: ignore[return-value]  # the test above is exact
    if isinstance(given, (bool, np.bool_)):
        return bool(given)
    if isinstance(given, (int, np.integer)):
        return int(given)
    if isinstance(given, str):
        return str(given)
    if isinstance(given, (tuple, list)) and all(isinstance(item, str) for item in given):
        return tuple(str(item) for item in given)
    raise InputError(
        f"value of {name!r} must be a str, int, bool, a tuple of str or None, "
        f"got {type(given).__name__} {shown(given)}"
    )


def same(a: Value, b: Value) -> bool:
    """Whether two values are equal and of one type: ``True`` is not ``1`` here."""
    return type(a) is type(b) and a == b


@final
@dataclass(frozen=True, eq=False, repr=False)
class Config(Mapping[str, Value]):
    """An immutable mapping from the name of a Param to the value chosen for it.

    Two configs are equal when their canonical texts are; the order of names does not count.

    >>> config = Config({"split": 4, "order": ["i", "k"], "chunk": None})
    >>> print(config)
    split=4 order=i,k
    >>> config.text
    '{"chunk":null,"order":["i","k"],"split":4}'
    >>> Config.parse(config.text) == config
    True
    """

    choices: Mapping[str, Value]

    def __post_init__(self) -> None:
        choices = {str(name): as_value(name, value) for name, value in self.choices.items()}
        object.__setattr__(self, "choices", choices)

    @classmethod
    def parse(cls, text: str) -> "Config":
        """Read a config back from its canonical text.

        Raises:
            InputError: the text is no JSON object of values.
        """
        choices = parse_json(text, "config must be a JSON object")
        if not isinstance(choices, dict):
            raise InputError(f"config must be a JSON object of names and values, got {shown(text)}")
        return cls(choices)

    @cached_property
    def text(self) -> str:
        """Canonical JSON: names sorted, no spaces, inactive choices as null."""
        return json.dumps(dict(self.choices), sort_keys=True, separators=(",", ":"))

    @cached_property
    def id(self) -> str:
        """Content id: 32 hexadecimal digits, the same on every machine."""
        return content_id([self.text])

    def __getitem__(self, name: str) -> Value:
        return self.choices[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.choices)

    def __len__(self) -> int:
        return len(self.choices)

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Config) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return " ".join(f"{name}={show(value)}" for name, value in self.items() if value is not None)

    def __repr__(self) -> str:
        return f"Config({dict(self.choices)!r})"


def show(value: Value) -> str:
    """Return a value as a person would write it: ``yes``, ``16``, ``i1,k1,i0``, ``inactive``."""
    if value is None:
        return "inactive"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(value) if isinstance(value, tuple) else str(value)
