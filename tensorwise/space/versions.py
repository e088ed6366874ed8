"""Versions: the Space of several implementations of one function, with the numbers that the choice depends on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, TypeAlias, final

from tensorwise.errors import InputError
from tensorwise.runtime.call import Call
from tensorwise.space.config import Config
from tensorwise.space.params import Choice
from tensorwise.space.space import Space

Function: TypeAlias = Callable[..., Any]
Features: TypeAlias = Callable[..., Sequence[float]]
"""(a call's arguments) -> its numbers, in the order of the fields."""

VERSION = "version"
"""Name of the one Param."""


@final
@dataclass(frozen=True)
class Version:
    """One implementation of a function, on one device.

    Attributes:
        name: unique among the versions of a function.
        function: any callable: a Python function, an Operator, a library routine. It returns when its result is
            there (a GPU routine waits), and leaves its arguments as they are.
        device: where it runs, for people and for plans: ``cpu``, ``gpu``.
        bring: (arguments) -> the tuple of them on that device; None where they need not be moved.
        fetch: (result) -> the result where the arguments came from; None where it need not be moved.
    """

    name: str
    function: Function
    device: str = "cpu"
    bring: Callable[..., tuple[Any, ...]] | None = None
    fetch: Function | None = None

    def __post_init__(self) -> None:
        for what, given in (("function", self.function), ("bring", self.bring), ("fetch", self.fetch)):
            if given is not None and not callable(given):
                raise InputError(
                    f"{what} of version {self.name!r} must be callable, got {type(given).__name__}"
                )

    @property
    def moves(self) -> bool:
        """Whether a call of it moves anything."""
        return self.bring is not None or self.fetch is not None

    @cached_property
    def whole(self) -> Function:
        """What a call of it is: arguments moved there, the function, and its result moved back."""
        if not self.moves:
            return self.function
        bring, function, fetch = self.bring or _as_they_are, self.function, self.fetch or _as_it_is

        def moved(*arguments: Any) -> Any:
            return fetch(function(*bring(*arguments)))

        return moved


def _as_they_are(*arguments: Any) -> tuple[Any, ...]:
    return arguments


def _as_it_is(result: Any) -> Any:
    return result


@final
@dataclass(frozen=True)
class Versions(Space[Version]):
    """A Space with one Choice; a config stands for a version.

    Attributes:
        versions: the implementations; the first one is the default, and what others must agree with.
        features: what is read of a call's arguments: numbers, in the order of ``units``. Its time is part of each call.
        units: field -> its unit, in words: ``rows of A``.

    >>> space = Versions.of("add", [Version("plus", lambda a, b: a + b)], lambda a, b: (a, b), {"a": "1", "b": "1"})
    >>> call = space.call(2.0, 3.0)
    >>> space.program(call, space.configs[0]).whole(*call.arguments)
    5.0
    """

    versions: tuple[Version, ...] = ()
    features: Features = field(default=lambda *arguments: (), repr=False)
    units: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, op: str, versions: Iterable[Version], features: Features, units: Mapping[str, str]) -> Self:
        """Return the space of some versions of the function ``op``.

        Raises:
            InputError: there is no version or no field, or two versions share a name.
        """
        listed = tuple(versions)
        if not listed or not units:
            raise InputError(f"{op!r} needs a version and a feature, got {len(listed)} and {len(units)}")
        choice = Choice(
            VERSION,
            tuple(version.name for version in listed),
            binds="call",
            doc="Which implementation is called: those that were registered.",
        )
        return cls(space_name(op), (choice,), (), listed, features, dict(units))

    @property
    def op(self) -> str:
        """Name of the function."""
        return self.name.removeprefix(space_name(""))

    @cached_property
    def by_config(self) -> Mapping[Config, Version]:
        """The versions by the config that stands for each, in order."""
        return {Config({VERSION: version.name}): version for version in self.versions}

    @property
    def configs(self) -> tuple[Config, ...]:
        """All points of the space, the default first."""
        return tuple(self.by_config)

    def program(self, workload: object, config: Config) -> Version:
        """Return the version that ``config`` names; the workload does not matter.

        Raises:
            InputError: there is none of that name.
        """
        if config not in self.by_config:
            known = ", ".join(version.name for version in self.versions)
            raise InputError(f"{self.op!r} has no version {config.get(VERSION)!r}; it has {known}")
        return self.by_config[config]

    def call(self, *arguments: Any) -> Call:
        """Return the workload of calling the function with ``arguments``.

        Raises:
            InputError: the features are not as many as there are fields, or not numbers.
        """
        return Call(self.op, self.numbers(self.features(*arguments)), arguments)

    def numbers(self, given: Sequence[float]) -> dict[str, float]:
        """Return features by field; raises InputError where they are not as many, or not numbers."""
        try:
            values = [float(value) for value in given]
        except (TypeError, ValueError) as error:
            raise InputError(f"features of {self.op!r} must be numbers: {error}") from error
        if len(values) != len(self.units):
            raise InputError(
                f"{self.op!r} has the features {', '.join(self.units)}, but was given {len(values)} numbers"
            )
        return dict(zip(self.units, values, strict=True))


def space_name(op: str) -> str:
    """Name of the space of versions of a function; records carry it."""
    return f"versions:{op}"
