"""Selection: a function with several versions, of which a call runs the one that suits its arguments (MLCD)."""

import datetime
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import cycle
from typing import Any, Final, TypeAlias, final

import numpy as np

from tensorwise.adapt.active import ActiveSampling
from tensorwise.device.device import Device
from tensorwise.device.host import host
from tensorwise.device.versions import Agree, VersionsDevice
from tensorwise.errors import InputError
from tensorwise.model.cases import Cases, config_name
from tensorwise.model.choosing import TreeModel
from tensorwise.runtime.call import Call
from tensorwise.space.versions import Features, Function, Version, Versions
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tensorwise.toolchain.threads import available_threads
from tensorwise.tuning.limits import Progress
from tensorwise.version import __version__

_log = logging.getLogger(__name__)

BUDGET_S: Final = 60.0
"""Seconds of a training that neither ``samples`` nor ``budget_s`` nor a list of inputs limits."""
DRAWS_PER_BATCH: Final = 100
"""Inputs that are measured before the guide learns from them, at least ..."""
GROWTH: Final = 20
"""... and one for so many that are known: a forest over many inputs takes a while, and a few more hardly change it."""
CELL: Final = "cell"
"""Name of a parameter of an input that is its group, and no argument."""

Parameters: TypeAlias = Mapping[str, Any]
"""What an input is made from, JSON-able; or the features themselves. ``cell``, if there is one, is the input's group."""
Input: TypeAlias = Parameters | tuple[Any, ...]
"""Parameters that ``make`` turns into arguments, or the arguments themselves."""


@final
class Selection:
    """A function with several versions. Made by `versions`; a call runs the version that a decision tree chooses.

    Until it is trained, or a trained model is loaded, calls run the first version, and the first of them says so in the log.

    Attributes:
        op: name of the function.
        features: (arguments) -> numbers, in the order of ``units``. It runs at every call, so it should read sizes
            rather than data.
        units: field -> its unit, in words.
        inputs, make, agree: as given to `versions`.
        model: what chooses; None before it is trained.
    """

    def __init__(
        self,
        op: str,
        features: Features,
        units: Mapping[str, str],
        *,
        inputs: Callable[[np.random.Generator], Parameters] | None = None,
        make: Callable[..., tuple[Any, ...]] | None = None,
        agree: Agree | None = None,
    ) -> None:
        """See `versions`."""
        self.op, self.features, self.units = op, features, dict(units)
        self.model: TreeModel | None = None
        self.inputs, self.make, self.agree = inputs, make, agree
        self._versions: dict[str, Version] = {}
        self._functions: list[Function] = []
        self._decide: Callable[..., int] = self._first

    def version(
        self,
        function: Function | None = None,
        /,
        *,
        name: str | None = None,
        device: str = "cpu",
        bring: Callable[..., tuple[Any, ...]] | None = None,
        fetch: Function | None = None,
    ) -> Any:
        """Register a version; also a decorator, with or without arguments. A name that is known is replaced.

        Args:
            function: see `Version`.
            name: default: the function's own.
            device: see `Version`, and so for the others.
            bring: takes arguments to the device.
            fetch: takes the result back.
        """
        if function is None:
            return lambda given: self.version(given, name=name, device=device, bring=bring, fetch=fetch)
        called = name or getattr(function, "__name__", "")
        if not called or called == "<lambda>":
            raise InputError(f"this version of {self.op!r} has no name of its own; give name=...")
        self._versions[called] = Version(called, function, device, bring, fetch)
        self.use(self.model)
        return function

    @property
    def space(self) -> Versions:
        """The versions registered so far, as a Space.

        Raises:
            InputError: there is none.
        """
        return Versions.of(self.op, self._versions.values(), self.features, self.units)

    def __call__(self, *arguments: Any) -> Any:
        """Call the version that suits the arguments, and return its result."""
        return self._functions[self._decide(*self.features(*arguments))](*arguments)

    def choose(self, *arguments: Any) -> Version:
        """Return the version that a call with these arguments would run."""
        place = self._decide(*self.features(*arguments))
        return next(v for v in self._versions.values() if v.whole is self._functions[place])

    def _first(self, *features: float) -> int:
        name = next(iter(self.space.versions)).name
        _log.warning(
            "%s is not trained: its first version, %s, is called; train it, or load a model", self.op, name
        )
        self._decide = lambda *features: 0
        return 0

    def use(self, model: TreeModel | None) -> None:
        """Choose by ``model`` from now on; None: call the first version.

        Raises:
            InputError: it is about other features, or about versions that are not registered.
        """
        versions = list(self._versions.values())
        decide: Callable[..., int] = self._first
        if model is not None:
            fields = list(self.units)
            if sorted(model.fields) != sorted(fields) or model.choice is None:
                raise InputError(
                    f"the model chooses by {', '.join(model.fields) or 'nothing'}, "
                    f"but {self.op!r} has the features {', '.join(fields)}"
                )
            space = self.space
            versions = [space.program(None, config) for config in model.configs]
            decide = model.choice.reading([fields.index(name) for name in model.fields]).deciding(len(fields))
        self._functions = [version.whole for version in versions]
        self._decide, self.model = decide, model

    def train(
        self,
        inputs: Iterable[Input] | None = None,
        *,
        samples: int | None = None,
        budget_s: float | None = None,
        guided_after: int | None = None,
        margin: float | None = None,
        batch: int = DRAWS_PER_BATCH,
        store: Store | bool = True,
        seed: int = 0,
        progress: Progress | None = None,
        device: Device[Call] | None = None,
    ) -> TreeModel:
        """Measure all versions on inputs, learn which one suits which, and choose by that from now on.

        What was measured is remembered input by input, so that a training that was ended in whatever way is gone on with by
        the same call; Ctrl-C ends it with what was learned so far.

        Args:
            inputs: what to measure on; default: drawn by the function's own generator until a limit is met.
            samples: inputs to know in all, those of earlier trainings included.
            budget_s: seconds for measuring (default 60 where there is no other limit).
            guided_after: so many inputs are taken as they come; after that a random forest says which are worth
                measuring. None: all are.
            margin: guides as in MLCD's Algorithm 1: an input is passed over if the forest's two likeliest answers differ by
                more. None: inputs are drawn in proportion to what is expected to be lost on them; see `ActiveSampling`.
            batch: inputs measured before the forest learns from them, at least.
            store: where measurements are remembered: a Store, True for the default one, False for nowhere.
            seed: of the drawn inputs and of the forest.
            progress: called with what is going on and the share done.
            device: that measures; default: this process (`VersionsDevice`).

        Returns:
            The model, which is in use already; its ``card`` says from what it was made.

        Raises:
            InputError: there is no generator of inputs and none are given; a limit is not positive; no version ended ok.
            MissingExtraError: scikit-learn is not installed.
        """
        for name, limit in (("samples", samples), ("budget_s", budget_s), ("batch", batch)):
            if limit is not None and not limit > 0:
                raise InputError(f"{name} must be positive, got {limit}")
        space = self.space
        runner = device or VersionsDevice(space, self.agree, seed=seed)
        home = store if isinstance(store, Store) else Store() if store else None  # an empty Store is false
        records = [] if home is None else home.query(device_id=runner.id, space=space.name)
        sampling = self._sampling(space, inputs, guided_after, margin, seed)
        known = {str(record.provenance.get("input")) for record in records}
        sampling.skip(known)
        unlimited = inputs is None and samples is None and budget_s is None
        allowed_s = BUDGET_S if unlimited else budget_s or float("inf")
        start, done, notes = time.monotonic(), len(known), list[str]()
        try:
            while samples is None or done < samples:
                if records and guided_after is not None and done >= guided_after:
                    cases = Cases.of(records)
                    sampling.tell(cases.features, cases.penalties)
                wanted = max(batch, done // GROWTH)
                wanted = wanted if samples is None else min(wanted, samples - done)
                asked = sampling.ask(wanted)
                for one in asked:
                    spent_s = time.monotonic() - start
                    if spent_s >= allowed_s:
                        break
                    if progress is not None:
                        progress(f"{done} inputs", max(done / (samples or np.inf), spent_s / allowed_s))
                    fresh = self._measured(space, runner, one)
                    if home is not None:
                        home.append(fresh)
                    records += fresh
                    done += 1
                if len(asked) < wanted or time.monotonic() - start >= allowed_s:
                    break
        except KeyboardInterrupt:
            notes.append("interrupted: learned from what was measured until then")
        model = TreeModel()
        model.fit(records)
        model.card = self._card(runner, records, done, time.monotonic() - start, notes)
        self.use(model)
        return model

    def _sampling(
        self,
        space: Versions,
        inputs: Iterable[Input] | None,
        guided_after: int | None,
        margin: float | None,
        seed: int,
    ) -> ActiveSampling[Input]:
        if inputs is None and self.inputs is None:
            raise InputError(
                f"{self.op!r} has no generator of inputs; give train(inputs), or versions(..., inputs=...)"
            )
        draw = self.inputs
        # what a guide passes over now may be worth it later
        listed = None if inputs is None else iter(inputs) if guided_after is None else cycle(inputs)

        def drawn(rng: np.random.Generator) -> Input | None:
            if listed is not None:
                return next(listed, None)
            assert draw is not None
            return draw(rng)

        fields = sorted(self.units)  # as in Cases

        def numbers(one: Input) -> list[float]:
            made = (
                isinstance(one, Mapping) and self.units.keys() <= one.keys()
            )  # then nothing need be made to judge it
            known: Mapping[str, Any] = one if made else self._call(space, one).features  # type: ignore[assignment]
            return [float(known[name]) for name in fields]

        def key(one: Input) -> str:
            return _text(one) if isinstance(one, Mapping) else self._call(space, one).id

        rng = np.random.default_rng(seed)
        return ActiveSampling(drawn, numbers, key, rng, initial=guided_after, margin=margin)

    def _call(self, space: Versions, one: Input) -> Call:
        """Make the arguments of an input, and read their features."""
        if not isinstance(one, Mapping):
            return space.call(*one)
        if self.make is None:
            raise InputError(
                f"{self.op!r} needs versions(..., make=...) to make arguments of {_text(one)[:80]}"
            )
        made = self.make(**{name: value for name, value in one.items() if name != CELL})
        if not isinstance(made, tuple):
            raise InputError(
                f"make of {self.op!r} must return a tuple of arguments, got {type(made).__name__}"
            )
        return space.call(*made)

    def _measured(self, space: Versions, device: Device[Call], one: Input) -> list[Record]:
        """Measure all versions on one input."""
        call = self._call(space, one)
        about = {"input": _text(one) if isinstance(one, Mapping) else call.id}
        if isinstance(one, Mapping) and CELL in one:
            about[CELL] = str(one[CELL])
        facts = {
            **about,
            "version": __version__,
            "cpu": host().cpu,
            "threads": available_threads(),
            "cache": "warm",
        }
        records = []
        for config, measured in zip(space.configs, device.measure(call, space.configs), strict=True):
            moved = {"moving_s": measured.conversion_s} if measured.conversion_s else {}
            records.append(Record.of(measured, call, device, space.name, config, {**facts, **moved}))
        return records

    def _card(
        self, device: Device[Call], records: list[Record], inputs: int, spent_s: float, notes: list[str]
    ) -> dict[str, Any]:
        wrong = {config_name(r.config): r.note for r in records if r.status == "wrong"}
        notes += [f"{name} was wrong at least once: {note}" for name, note in wrong.items()]
        for note in notes:
            _log.warning("%s: %s", self.op, note)
        return {
            "op": self.op,
            "units": dict(self.units),
            "inputs": inputs,
            "device_id": device.id,
            "cpu": host().cpu,
            "measuring_s": spent_s,
            "when": datetime.datetime.now(datetime.UTC).isoformat(),
            "version": __version__,
            "notes": notes,
        }

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the model into a folder.

        Raises:
            InputError: there is no model yet, or the folder cannot be written.
        """
        if self.model is None:
            raise InputError(f"{self.op!r} is not trained; call train first")
        self.model.save(directory)

    def load(self, directory: str | os.PathLike[str]) -> None:
        """Choose by the model in a folder; scikit-learn is not needed.

        Raises:
            InputError: there is none, it is damaged, of another function, or about versions that are not registered.
        """
        model = TreeModel.load(directory)
        if model.card.get("op", self.op) != self.op:
            raise InputError(f"{directory} holds a model of {model.card['op']!r}, not of {self.op!r}")
        self.use(model)

    def __repr__(self) -> str:
        state = "not trained" if self.model is None else f"trained on {self.model.card.get('inputs')} inputs"
        return f"<Selection {self.op}: {', '.join(self._versions) or 'no versions'}; {state}>"


def _text(one: Parameters) -> str:
    """Canonical JSON of an input's parameters; raises InputError where they are none."""
    try:
        return json.dumps(dict(one), sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"parameters of an input must be JSON-able, got {str(one)[:120]}: {error}"
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON-able")


_SELECTIONS: dict[str, Selection] = {}


def versions(
    op: str,
    *,
    features: Features,
    units: Mapping[str, str],
    inputs: Callable[[np.random.Generator], Parameters] | None = None,
    make: Callable[..., tuple[Any, ...]] | None = None,
    agree: Agree | None = None,
) -> Selection:
    """Begin a function of which several versions will be registered. The same name again begins it anew.

    Args:
        op: name of the function, for `select`, records and models.
        features: (arguments) -> what the choice depends on: numbers, in the order of ``units``. It runs at every call.
        units: field -> its unit, in words: ``{"m": "rows of A"}``.
        inputs: (generator) -> the parameters of an input, drawn at random, JSON-able. Where all fields are among them
            they count as the features, and nothing is made to judge an input. One named ``cell`` is the input's group:
            inputs of one group are never divided between training and test.
        make: (parameters by name) -> the tuple of arguments.
        agree: (result, expected result) -> None, or how they differ; default: equal up to rounding.

    >>> add = versions("add", features=lambda a, b: (len(a),), units={"n": "numbers"})
    >>> @add.version
    ... def loop(a, b):
    ...     return [x + y for x, y in zip(a, b)]
    >>> select("add")([1, 2], [3, 4])
    [4, 6]
    """
    _SELECTIONS[op] = made = Selection(op, features, units, inputs=inputs, make=make, agree=agree)
    return made


def select(op: str) -> Selection:
    """Return the function ``op``, whose call runs the version that suits its arguments.

    Raises:
        InputError: there is none of that name.
    """
    try:
        return _SELECTIONS[op]
    except KeyError:
        known = ", ".join(_SELECTIONS) or "nothing"
        raise InputError(
            f"there is no function {op!r}; registered with tensorwise.versions: {known}"
        ) from None
