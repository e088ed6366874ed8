"""Registries: the one mechanism by which this package and others add devices, strategies and the like by name."""

import functools
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, final

from tensorwise.errors import InputError, TensorwiseError
from tensorwise.reading import reason, shown

GROUP_PREFIX: Final = "tensorwise."
"""Prefix of the entry-point groups: a registry of ``devices`` reads the group ``tensorwise.devices``."""

REFERENCE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""Where a value is imported from, as in entry points."""

EXTENSIONS: Final = "TENSORWISE_EXTENSIONS"
"""Environment variable with the names of modules, separated by commas, that register something when they are imported."""
SCRIPT: Final = "__main__"
"""The module of a script or a notebook, which no other process can import."""

Value = TypeVar("Value")
Misfit: TypeAlias = Callable[[str, object], str | None]
"""Says what keeps a value from being registered under a name, as the end of a sentence about it; None: nothing."""

_registered: Final[dict[tuple[str, str], str]] = {}
"""Kind and name of what this process has registered -> the module that did it."""


def count_registrations() -> int:
    """Return how many values this process has registered: what was computed of registries before is stale when it grows."""
    return len(_registered)


def extension_modules() -> tuple[str, ...]:
    """Return the modules that a process has to import to know what is registered in this one, installed packages aside."""
    named = [name.strip() for name in os.environ.get(EXTENSIONS, "").split(",")]
    return tuple(dict.fromkeys(name for name in (*named, *_registered.values()) if name and name != SCRIPT))


def child_environment() -> dict[str, str]:
    """Return the environment of a process that finds the modules of this one, and knows what they have registered."""
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    return {**found, EXTENSIONS: ",".join(extension_modules())}


@functools.cache
def _import_extensions() -> None:
    """Import the modules that the environment names; of one that fails a warning is given."""
    for name in extension_modules():
        try:
            import_module(name)
        except Exception as error:  # whatever somebody's module raises
            warnings.warn(
                f"{EXTENSIONS} names {name!r}, which cannot be imported: {reason(error)}",
                RuntimeWarning,
                stacklevel=2,
            )


def needs_instance(kind: type) -> Misfit:
    """Return the check that a value is an instance of ``kind``."""
    return lambda _, value: None if isinstance(value, kind) else f"is no {kind.__name__}"


def needs_subclass(base: type) -> Misfit:
    """Return the check that a value is a class derived from ``base`` of which objects can be made."""

    def misfit(_: str, value: object) -> str | None:
        if not isinstance(value, type) or not issubclass(value, base):
            return f"is no class derived from {base.__name__}"
        if inspect.isabstract(value):
            return f"does not define {', '.join(sorted(getattr(value, '__abstractmethods__', ())))}"
        return None

    return misfit


def needs_function(_: str, value: object) -> str | None:
    """Check that a value can be called."""
    return None if callable(value) else "cannot be called"


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
        misfit: what is wrong with a value of another package; None: nothing ever is.
        crosses: the processes that measure look its values up, too. What a script registers is theirs to know only if they
            can import it.

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
        misfit: Misfit | None = None,
        *,
        crosses: bool = False,
    ) -> None:
        self.kind, self.kinds, self._misfit, self._crosses = kind, kinds, misfit, crosses
        self._rows: dict[str, Value | str] = dict(rows)
        self._local: set[str] = set()
        self._installed: dict[str, EntryPoint] | None = None

    def register(self, name: str) -> Callable[[Value], Value]:
        """Return a decorator that adds a value under ``name``.

        Processes that this one starts to measure import the module that calls it, so that they know the value as well. They
        cannot import a script or a notebook: a value that they have to know is registered there with a warning.

        Raises:
            InputError: the name is no text or taken by another value, or the value is not of this kind.
        """
        module = str(sys._getframe(1).f_globals.get("__name__", SCRIPT))

        def add(value: Value) -> Value:
            if not isinstance(name, str) or not name:
                raise InputError(f"a {self.kind} is registered under a name, got {shown(name)}")
            if self._rows.get(name, value) is not value:
                raise InputError(f"{self.kind} {name!r} is registered already; choose another name")
            if problem := self._misfit and self._misfit(name, value):
                raise InputError(f"{self.kind} {name!r}: {shown(value)} {problem}")
            if module == SCRIPT and self._crosses:
                self._local.add(name)
                warnings.warn(
                    f"{self.kind} {name!r} is registered in a script or a notebook, which the process that measures cannot "
                    "import: tunings do without it. Move it into a module, and import that",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._rows[name] = value
            _registered[self.kinds, name] = module
            return value

        return add

    def __getitem__(self, name: str) -> Value:
        """Return the value called ``name``.

        Raises:
            InputError: there is none, or it cannot be imported; the message lists those that there are.
        """
        row = self._rows.get(name) if isinstance(name, str) else None
        if row is None and isinstance(name, str):
            _import_extensions()
            row = self._rows.get(name)
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
        _import_extensions()
        return name in self._rows or name in self._entry_points()

    def __iter__(self) -> Iterator[str]:
        _import_extensions()
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

    def sound(self, *, crossing: bool = False) -> dict[str, Value]:
        """Return the values that can be loaded; of a broken entry point a warning is given, and nothing else stops.

        For code that goes through all values: what nobody has asked for by name must not end what somebody did.

        Args:
            crossing: leave out what the processes that measure cannot know (see ``register``).
        """
        found: dict[str, Value] = {}
        for name in self:
            if crossing and name in self._local:
                continue
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
        if problem := self._misfit and self._misfit(point.name, value):
            raise InputError(
                f"{self.kind} {point.name!r} is installed as {point.value}, but {shown(value)} {problem}"
            )
        return cast(Value, value)
