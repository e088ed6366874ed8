"""Registries: the one mechanism by which this package and others add devices, strategies and the like by name."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Generic, TypeVar, cast, final

from tensorwise.errors import InputError, TensorwiseError
from tensorwise.reading import reason, shown

GROUP_PREFIX: Final = "tensorwise."
"""Prefix of the entry-point groups: a registry of ``devices`` reads the group ``tensorwise.devices``."""

REFERENCE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""Where a value is imported from, as in entry points."""

Value = TypeVar("Value")


@final
class Registry(Mapping[str, Value], Generic[Value]):
    """Values of one kind by name: those of this package, those registered by ``register``, and installed entry points.

    A row is a value or, where importing it takes time, a reference ``module:attribute``, which is imported when it is first
    looked up. A text of any other form is a value. Another distribution adds rows without a changed line here, by an entry
    point in its ``pyproject.toml``::

        [project.entry-points."tensorwise.devices"]
        my-chip = "my_package.chip:open_chip"

    Names of this package cannot be replaced: an entry point with such a name is ignored.

    Args:
        kind: what a value is, such as ``device``.
        kinds: the plural; the entry-point group is ``tensorwise.`` and this.
        rows: name -> value or reference.
        accepts: whether an entry point's value is of this kind; None: any is.

    >>> letters = Registry("letter", "letters", {"a": 1})
    >>> letters.register("b")(2)
    2
    >>> sorted(letters), letters["b"]
    (['a', 'b'], 2)
    """

    def __init__(
        self,
        kind: str,
        kinds: str,
        rows: Mapping[str, Value | str],
        accepts: Callable[[object], bool] | None = None,
    ) -> None:
        self.kind, self.kinds, self._accepts = kind, kinds, accepts
        self._rows: dict[str, Value | str] = dict(rows)
        self._installed: dict[str, EntryPoint] | None = None

    def register(self, name: str) -> Callable[[Value], Value]:
        """Return a decorator that adds a value under ``name``.

        Raises:
            InputError: the name is taken by another value.
        """

        def add(value: Value) -> Value:
            if self._rows.get(name, value) is not value:
                raise InputError(f"{self.kind} {name!r} is registered already; choose another name")
            self._rows[name] = value
            return value

        return add

    def __getitem__(self, name: str) -> Value:
        """Return the value called ``name``.

        Raises:
            InputError: there is none, or it cannot be imported; the message lists those that there are.
        """
        row = self._rows.get(name) if isinstance(name, str) else None
        if row is None:
            point = self._entry_points().get(name) if isinstance(name, str) else None
            if point is None:
                raise InputError(f"unknown {self.kind} {shown(name)}; known: {', '.join(self)}")
            row = self._rows[name] = self._loaded(point)
        if isinstance(row, str) and REFERENCE.fullmatch(row):
            module, _, path = row.partition(":")
            found: Any = import_module(module)
            for attribute in path.split("."):
                found = getattr(found, attribute)
            row = self._rows[name] = cast(Value, found)
        return cast(Value, row)

    def __contains__(self, name: object) -> bool:
        return name in self._rows or name in self._entry_points()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._rows, *self._entry_points()]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def make(self, name: str, options: object, kind: type, verb: str) -> Any:
        """Return what the function called ``name`` makes of ``options``.

        Args:
            kind: class of what it makes.
            verb: what that is called in messages: a device is "opened", an executor "started".

        Raises:
            InputError: there is no such function, it fails in its own way, or it returns something else.
            TensorwiseError: as the function raises it.
        """
        function: Any = self[name]
        failed = f"{self.kind} {name!r} cannot be {verb}"
        try:
            found = function(options)
        except TensorwiseError:
            raise
        except Exception as error:  # whatever another distribution raises
            raise InputError(f"{failed}: {type(error).__name__}: {reason(error)}") from error
        if not isinstance(found, kind):
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            raise InputError(
                f"{failed}: {shown(function)} returns {shown(found)}, not {article} {kind.__name__}"
            )
        return found

    def sound(self) -> dict[str, Value]:
        """Return the values that can be loaded; of a broken entry point a warning is given, and nothing else stops.

        For code that goes through all values: what nobody has asked for by name must not end what somebody did.
        """
        found: dict[str, Value] = {}
        for name in self:
            try:
                found[name] = self[name]
            except InputError as error:
                warnings.warn(f"{error}; it is left out", RuntimeWarning, stacklevel=2)
        return found

    def _entry_points(self) -> Mapping[str, EntryPoint]:
        """The installed entry points, looked up once a process."""
        if self._installed is None:
            self._installed = {point.name: point for point in entry_points(group=GROUP_PREFIX + self.kinds)}
        return self._installed

    def _loaded(self, point: EntryPoint) -> Value:
        try:
            value = point.load()
        except Exception as error:  # whatever the other distribution raises
            raise InputError(
                f"{self.kind} {point.name!r} is installed as {point.value}, but cannot be loaded: {reason(error)}"
            ) from error
        if self._accepts is not None and not self._accepts(value):
            raise InputError(
                f"{self.kind} {point.name!r} is installed as {point.value}, which is {shown(value)}, not a {self.kind}"
            )
        return cast(Value, value)
