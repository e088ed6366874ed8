"""Space: the table of choices for a kind of device, and everything search needs to know about it.

A Space is a tuple of Params in the order in which they are chosen, a few Rules and one function
``program``. A config is built by one walk over the table: each Param's domain is computed from the
choices before it, then a value of that domain is taken. ``default``, ``sample``, ``mutate``, ``cross`` and repair are
this walk with different rules for which value is taken.
"""

import abc
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, final
from weakref import WeakKeyDictionary

import numpy as np

from tensorwise.errors import InputError
from tensorwise.space.config import Config, Value, as_value
from tensorwise.space.domain import Domain
from tensorwise.space.domains import Domains
from tensorwise.space.param import Param

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload
    from tensorwise.space.strips import Mapper

Choose: TypeAlias = Callable[[Param, Domain, Mapping[str, Value]], Value]
"""How a walk takes a value: (param, its domain, earlier choices) -> value in the domain."""

Made = TypeVar("Made", covariant=True)
"""What a config stands for: a `Program`, or a `Version` of a function."""

ATTEMPTS = 1000
"""Walks before giving up on rules; above one in a thousand a table's rules are found satisfiable."""

RELAXING = 50
"""Walks after which nothing is kept of the choices that led to a refusal."""


@final
@dataclass(frozen=True)
class Rule:
    """A constraint among several params that no domain can express; kept rare, since it rejects.

    Attributes:
        name: short and unique within a space.
        reason: why such a config must not be proposed; completes "refused, because ...".
        predicate: (config, workload) -> whether the config is allowed.
    """

    name: str
    reason: str
    predicate: "Callable[[Mapping[str, Value], Workload], bool]"


@dataclass(frozen=True)
class Space(abc.ABC, Generic[Made]):
    """A declarative table of choices. Leaves add only ``program``.

    Attributes:
        name: short and stable; Records carry it.
        params: the choices in order; the domain of each may depend on those before it.
        rules: constraints that domains cannot express.
    """

    name: str
    params: tuple[Param, ...]
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        for what, names in (
            ("params", [p.name for p in self.params]),
            ("rules", [r.name for r in self.rules]),
        ):
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise InputError(
                    f"space {self.name!r}: names of {what} must be unique, got {twice[0]!r} twice"
                )

    @abc.abstractmethod
    def program(self, workload: "Workload", config: Config) -> Made:
        """Return the program that ``config`` stands for.

        Raises:
            TensorwiseError: the config cannot be turned into a program for this workload.
        """

    def mapper(self, workload: "Workload") -> "Mapper | None":
        """Return how configs are read as strip-mined loops, which all devices have; None where the space has no loops."""
        return None

    @cached_property
    def by_name(self) -> Mapping[str, Param]:
        """The params by name."""
        return {param.name: param for param in self.params}

    # -- making configs ------------------------------------------------------------------------------

    def complete(
        self,
        partial: Mapping[str, object],
        workload: "Workload",
        rng: np.random.Generator | None = None,
        *,
        strict: bool = False,
    ) -> Config:
        """Return a valid config with the choices of ``partial``; the others are drawn, or defaults.

        A given value that is not allowed here is replaced by the nearest allowed one; None counts as not
        given. Where a rule refuses the outcome, given choices are dropped, few at first.

        Args:
            partial: values by name; any subset of the params.
            rng: draws what is not given; without it what is not given takes its default.
            strict: keep every given value, or raise.

        Raises:
            InputError: unknown name, value that its param can never take, strict and not allowed, or
                no config found that all rules allow.
        """
        given = {name: value for name, value in self._check_values(partial).items() if value is not None}
        choose = self._repairing(given, workload, rng, strict)
        return self._settle(choose, workload, rng, given if strict else {})

    def migrate(self, config: Mapping[str, Value], workload: "Workload") -> Config | None:
        """Return a config that an older or newer table of this space made as a config of this table.

        Choices that both tables have are kept. Params that ``config`` lacks take their defaults, and choices that this
        table does not have are left out.

        Returns:
            None if a kept choice is not allowed for ``workload``, or a rule refuses the outcome.
        """
        given = config if isinstance(config, Config) else Config(config)
        if given.keys() == self.by_name.keys():
            return given if self.allows(given, workload) else None
        kept = {name: value for name, value in given.items() if name in self.by_name}
        try:
            migrated = self._walk(self._repairing(kept, workload, None, True), workload)
        except InputError:
            return None
        return migrated if self._refusal(migrated, workload) is None else None

    def default(self, workload: "Workload") -> Config:
        """Return the config of preferred values: a sensible one to start from, the same every time."""
        return self.complete({}, workload)

    def sample(self, workload: "Workload", rng: np.random.Generator) -> Config:
        """Draw a valid config: each choice uniform in its domain (see ``log_probability``)."""
        return self.complete({}, workload, rng)

    def sample_with_log_probability(
        self, workload: "Workload", rng: np.random.Generator
    ) -> tuple[Config, float]:
        """Draw a config and return it with its ``log_probability``."""
        config = self.sample(workload, rng)
        return config, self.log_probability(config, workload)

    def log_probability(self, config: Mapping[str, object], workload: "Workload") -> float:
        """Return the natural logarithm of the probability that ``sample`` draws ``config``.

        Sampling is *not* uniform over configs: those behind wide domains are rarer. Weights
        proportional to exp(-log_probability) make a sample count as uniform. Configs that rules refuse
        are drawn again, which raises all probabilities by one common factor, left out here.

        Raises:
            InputError: ``config`` is not valid for ``workload``.
        """
        self.check(config, workload)
        chosen = self.parse(config)
        domains = self._domains(workload)
        return -sum(math.log(domains.of(param, chosen, workload).size) for param in self.params)

    def mutate(
        self, config: Config, workload: "Workload", rng: np.random.Generator, rate: float = 0.2
    ) -> Config:
        """Return a copy with one choice changed, and each other one with probability ``rate``; later choices are repaired.

        It returns ``config`` itself only if no choice has another value that the rules allow (or ten draws found none).
        """
        here = self.complete(self.parse(config), workload, rng)
        domains = self._domains(workload)
        alive = [param.name for param in self.params if domains.of(param, here, workload).size > 1]

        def once(certain: str) -> Config:
            def choose(param: Param, domain: Domain, earlier: Mapping[str, Value]) -> Value:
                drawn = param.name == certain or rng.random() < rate
                if here[param.name] is None:
                    return param.sample(rng, domain)
                value = param.nearest(here[param.name], domain)
                return param.mutate(value, domain, rng) if drawn else value

            return self._settle(choose, workload, rng, {})

        children = (once(alive[int(rng.integers(len(alive)))]) for _ in range(10 if alive else 0))
        return next((child for child in children if child != config), here)

    def cross(self, a: Config, b: Config, workload: "Workload", rng: np.random.Generator) -> Config:
        """Draw a child: each choice from either parent (permutations mix both), then repair."""
        mother, father = self.parse(a), self.parse(b)

        def choose(param: Param, domain: Domain, earlier: Mapping[str, Value]) -> Value:
            values = mother[param.name], father[param.name]
            return param.sample(rng, domain) if values == (None, None) else param.cross(*values, domain, rng)

        return self._settle(choose, workload, rng, {})

    def neighbours(
        self, config: Config, workload: "Workload", names: Collection[str] | None = None
    ) -> list[Config]:
        """Return the valid configs that differ by one step of one choice, and what must follow from it.

        Later choices that are no longer allowed move to the nearest allowed value. In table order,
        without repeats and without ``config``. ``names``: params that are stepped; None: all.
        """
        here = self.complete(self.parse(config), workload)
        domains = self._domains(workload)
        found: dict[Config, None] = {}
        for param in self.params if names is None else [self.by_name[name] for name in names]:
            for value in param.neighbours(here[param.name], domains.of(param, here, workload)):
                given = {name: kept for name, kept in here.items() if kept is not None} | {param.name: value}
                candidate = self._walk(self._repairing(given, workload, None, False), workload)
                if self._refusal(candidate, workload) is None:
                    found[candidate] = None
        found.pop(config, None)
        return list(found)

    def enumerate(self, workload: "Workload") -> Iterator[Config]:
        """Yield every valid config once, in table order. For small spaces: see ``size_bound``."""
        return (config for config in self._all(workload) if self._refusal(config, workload) is None)

    def size_bound(self, workload: "Workload", limit: int = 1000) -> int:
        """Return the number of valid configs, counted if the domains allow at most ``limit``.

        Otherwise an upper bound: the product of all params' cardinalities, which ignores domains and rules.
        """
        first = list(itertools.islice(self._all(workload), limit + 1))
        if len(first) > limit:
            return math.prod(param.cardinality for param in self.params)
        return sum(self._refusal(config, workload) is None for config in first)

    def _all(self, workload: "Workload") -> Iterator[Config]:
        """Yield every config that the domains allow, whatever the rules say."""

        domains = self._domains(workload)

        def extend(k: int, earlier: dict[str, Value]) -> Iterator[Config]:
            if k == len(self.params):
                yield Config(earlier)
                return
            for value in domains.of(self.params[k], earlier, workload):
                yield from extend(k + 1, {**earlier, self.params[k].name: value})

        return extend(0, {})

    # -- judging and reading configs -----------------------------------------------------------------

    def why_not(self, config: Mapping[str, object], workload: "Workload") -> str | None:
        """Return why ``config`` is not valid for ``workload``: param, value, allowed values and reason.

        Returns:
            None if it is valid. Never raises for a bad config.
        """
        try:
            known = self._check_values(config)
        except InputError as error:
            return str(error)
        if missing := [param.name for param in self.params if param.name not in known]:
            return f"{', '.join(missing)}: not chosen; space {self.name!r} completes a config with complete()"
        domains = self._domains(workload)
        for param in self.params:
            domain = domains.of(param, known, workload)
            if known[param.name] not in domain:
                return f"{param.name}: {domain.refuse(known[param.name])} ({param.doc})"
        rule = self._refusal(known, workload)
        return None if rule is None else f"{rule.name}: refused, because {rule.reason} (got {Config(known)})"

    def allows(self, config: Config, workload: "Workload") -> bool:
        """Whether ``config`` is valid for ``workload``: what ``why_not`` says, without a sentence."""
        choices, domains = config.choices, self._domains(workload)
        if choices.keys() != self.by_name.keys():
            return False
        unknown = []
        for param in self.params:  # most that are refused are refused by what is known already
            domain = domains.find(param, choices)
            if domain is None:
                unknown.append(param)
            elif choices[param.name] not in domain:
                return False
        return (
            all(choices[param.name] in domains.of(param, choices, workload) for param in unknown)
            and self._refusal(choices, workload) is None
        )

    def recognizes(self, config: Config) -> bool:
        """Whether ``config`` has exactly this table's params, each with a value that it can take for some workload."""
        choices, known = config.choices, self._recognized
        if choices.keys() != self.by_name.keys():
            return False
        for name, value in choices.items():
            if (name, type(value), value) not in known:
                if self.by_name[name].misfit(value):
                    return False
                known.add((name, type(value), value))
        return True

    @cached_property
    def _recognized(self) -> set[tuple[str, type, Value]]:
        """Values that were recognized so far: there are few different ones, met often."""
        return set()

    def check(self, config: Mapping[str, object], workload: "Workload") -> None:
        """Raise InputError with the text of ``why_not`` unless ``config`` is valid."""
        if problem := self.why_not(config, workload):
            raise InputError(problem)

    def parse(self, config: Mapping[str, object] | str) -> Config:
        """Return a config of this space, names in table order, from a mapping or canonical text.

        It need not be valid for any workload.

        Raises:
            InputError: unknown or missing names, or values that their params can never take.
        """
        known = self._check_values(Config.parse(config) if isinstance(config, str) else config)
        if missing := [name for name in self.by_name if name not in known]:
            raise InputError(f"config of space {self.name!r} lacks {', '.join(missing)}")
        return Config({name: known[name] for name in self.by_name})

    # -- numbers for models --------------------------------------------------------------------------

    @cached_property
    def encoding_names(self) -> tuple[str, ...]:
        """One name for each number of ``encode``."""
        return tuple(itertools.chain.from_iterable(param.encoding_names for param in self.params))

    def encode(self, config: Mapping[str, object], workload: "Workload") -> np.ndarray:
        """Return ``config`` as a float32 vector as long as ``encoding_names``, whatever the config.

        Choices become one-hot vectors, powers of two logarithms, orders matrices; a param that does not apply becomes
        zeros and a mask bit of zero. Numbers lie between about 0 and 1, so that the Euclidean
        distance of two encodings measures how different two configs are.

        Raises:
            InputError: unknown or missing names, or values that their params can never take.
        """
        known = self.parse(config)
        numbers = (param.encode(known[param.name], workload) for param in self.params)
        return np.fromiter(itertools.chain.from_iterable(numbers), np.float32, len(self.encoding_names))

    @cached_property
    def token_sizes(self) -> tuple[int, ...]:
        """For each token of ``tokens`` the number of values it can take."""
        return tuple(itertools.chain.from_iterable(param.token_sizes for param in self.params))

    def tokens(self, config: Mapping[str, object]) -> np.ndarray:
        """Return ``config`` as an int64 vector for embedding tables, as long as ``token_sizes``.

        A choice becomes 1 + its index among the values, an order 1 + the position of each item, an inactive param 0.

        Raises:
            InputError: as ``encode``.
        """
        known = self.parse(config)
        tokens = (param.tokens(known[param.name]) for param in self.params)
        return np.fromiter(itertools.chain.from_iterable(tokens), np.int64, len(self.token_sizes))

    # -- the walk ------------------------------------------------------------------------------------

    def _domains(self, workload: "Workload") -> Domains:
        known = self._known_domains.get(workload)
        if known is None:
            known = self._known_domains[workload] = Domains()
        return known

    @cached_property
    def _known_domains(self) -> "WeakKeyDictionary[Workload, Domains]":
        return WeakKeyDictionary()

    def _repairing(
        self, given: Mapping[str, Value], workload: "Workload", rng: np.random.Generator | None, strict: bool
    ) -> Choose:
        """Take what is given, or the allowed value nearest to it; draw the rest, or take defaults."""

        def choose(param: Param, domain: Domain, earlier: Mapping[str, Value]) -> Value:
            if param.name not in given:
                return param.sample(rng, domain) if rng else param.default(domain, earlier, workload)
            value = given[param.name]
            if strict and value not in domain:
                raise InputError(f"{param.name}: {domain.refuse(value)} ({param.doc})")
            return param.nearest(value, domain)

        return choose

    def _walk(self, choose: Choose, workload: "Workload") -> Config:
        domains = self._domains(workload)
        earlier: dict[str, Value] = {}
        for param in self.params:
            earlier[param.name] = choose(param, domains.of(param, earlier, workload), earlier)
        return Config(earlier)

    def _settle(
        self,
        choose: Choose,
        workload: "Workload",
        rng: np.random.Generator | None,
        fixed: Mapping[str, Value],
    ) -> Config:
        """Walk until all rules agree, keeping ever fewer of ``choose``'s values but the fixed ones."""
        config = self._walk(choose, workload)
        refused: Counter[str] = Counter()
        draw = rng if rng is not None else np.random.default_rng(0)
        for attempt in range(1, ATTEMPTS + 1):
            rule = self._refusal(config, workload)
            if rule is None:
                return config
            refused[rule.name] += 1
            keep = 1 - attempt / RELAXING

            def relaxed(
                param: Param, domain: Domain, earlier: Mapping[str, Value], keep: float = keep
            ) -> Value:
                kept = param.name in fixed or draw.random() < keep
                return choose(param, domain, earlier) if kept else param.sample(draw, domain)

            try:
                config = self._walk(relaxed, workload)
            except InputError:
                if not fixed:
                    raise
                # What was drawn does not go with what must be kept: draw again.
        tally = ", ".join(f"{name} ({count} times)" for name, count in refused.most_common())
        raise InputError(
            f"space {self.name!r}: no config found that all rules allow in {ATTEMPTS} walks"
            f"{' with ' + str(Config(fixed)) if fixed else ''}; refused by {tally}"
        )

    def _refusal(self, config: Mapping[str, Value], workload: "Workload") -> Rule | None:
        choices = config.choices if isinstance(config, Config) else config  # rules read most of a config
        return next((rule for rule in self.rules if not rule.predicate(choices, workload)), None)

    def _check_values(self, config: Mapping[str, object]) -> dict[str, Value]:
        """Return plain values by name; refuse unknown names and values no domain could hold."""
        known: dict[str, Value] = {}
        for name, raw in config.items():
            param = self.by_name.get(name)
            if param is None:
                raise InputError(
                    f"{name}: space {self.name!r} has no such parameter; it has {', '.join(self.by_name)}"
                )
            value = as_value(name, raw)
            if problem := param.misfit(value):
                raise InputError(f"{name}: {problem} ({param.doc})")
            known[name] = value
        return known
