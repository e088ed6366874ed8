"""What a layer of PyG computes, proved from its class and its code: `fuse` replaces only what is proved.

A proof has three parts. The files of PyG that implement message passing are known versions, by their digests
(`KNOWN_FILES`). The methods of the class that propagate, aggregate and update are those of these files. And the code of
``message`` is one of three known expressions: the sources' features, or these times ``edge_weight``. `Proof.objection`
and `reduction` compare at each call what a program may change between calls: functions, and the code within them.
"""

import dis
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from textwrap import dedent
from typing import Any, Final, final

import torch
import torch_geometric
from torch_geometric.nn import GATConv, MessagePassing
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, SumAggregation
from torch_geometric.nn.aggr import base as aggregating
from torch_geometric.nn.conv import gat_conv as attending

from tensorwise.front.torch_derivatives import function_mode

KNOWN_FILES: Final = {
    "inspector.py": ("f4ceb54fdaee", "9ca8b9a38327"),
    "nn/conv/message_passing.py": ("3ede583d7ae3", "66e4ef4afa1d"),
    "nn/conv/propagate.jinja": ("b0c6eb39a67b",),
    "nn/conv/collect.jinja": ("7a42629d53c3",),
    "nn/conv/edge_updater.jinja": ("b0201032bf3c",),
    "nn/aggr/base.py": ("b5d19547ca38", "bdc5872654b9"),
    "nn/aggr/basic.py": ("e42457a66d15", "7f99393eba4f"),
    "utils/_scatter.py": ("c966b2aa448f", "14fb794f8d70"),
    "utils/_spmm.py": ("b91ab6d670a0", "d9f05c965a3e"),
    "utils/_softmax.py": ("e9d4d56d65f4", "057d3ac17c52"),
    "nn/conv/gat_conv.py": ("a7b235300339", "e7e0808977b0"),
}
"""Files of PyG, and the first 12 digits of the SHA-256 of the versions that were read: those of PyG 2.6.0 to 2.8.1."""
KNOWN_PRODUCTS: Final = frozenset(
    {
        "e4763290e17e", "9197b6cc2584", "9e7ce5bb16e7", "d088a48e3aaa", "98b7a7096703", "16a9ee0b08da", "850cf33d6e40"
    }
)  # fmt: skip
"""SHA-256 of each ``message_and_aggregate`` of PyG's that multiplies a sparse matrix, with its values, with the features."""
REDUCTIONS: Final = {
    SumAggregation: "sum",
    MeanAggregation: "mean",
    MaxAggregation: "max",
    MinAggregation: "min",
}
"""Aggregations that our operators compute -> the name of the reduction."""
_NAMES: Final = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max", "min": "min"}
"""PyG's ``aggr`` -> ours."""
_MESSAGES: Final[dict[str, Callable[..., Any]]] = {
    "never": lambda self, x_j: x_j,
    "given": lambda self, x_j, edge_weight: x_j if edge_weight is None else edge_weight.view(-1, 1) * x_j,
    "always": lambda self, x_j, edge_weight: edge_weight.view(-1, 1) * x_j,
}
"""Whether a message is weighted -> what it computes then."""
_SAME: Final = ("aggregate", "update", "_check_input", "_collect", "_lift", "_set_size", "_index_select",
                "_index_select_safe", "explain_message", "__call__")  # fmt: skip
"""Methods that have to be those of `MessagePassing`."""
_ATTENTION: Final = ("forward", "message", "edge_update")
_WRITTEN: Final = {
    "propagate": "propagate",
    "collect": "propagate",
    "edge_updater": "edge_updater",
    "edge_collect": "edge_updater",
}
"""Methods that PyG writes for each class of layers -> the template that they come from."""
_PATCHED: Final = frozenset({*_SAME, *_ATTENTION, *_WRITTEN, "message_and_aggregate"})
"""Names that are looked up on the class, unless a program sets them on a layer."""
_HOOKS: Final = tuple(
    f"_{method}_forward_{when}hooks"
    for method in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_", "")
)
_UNPATCHED: Final = ("forward", "reduce", "__call__", "_call_impl")
_MODULE_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@final
@dataclass(frozen=True, eq=False)
class _Watch:
    """Functions that are attributes of a class or a module, with the code within them, as they were."""

    names: tuple[str, ...]
    read: Callable[[Any], Any]
    values: tuple[object, ...]

    @classmethod
    def of(cls, owner: Any, names: Sequence[str]) -> "_Watch":
        """Watch those of the functions that the owner has; of messages the defaults too, which they compute with."""
        known = [name for name in names if hasattr(owner, name)]
        known += [f"{name}.__code__" for name in known if hasattr(getattr(owner, name), "__code__")]
        if "message" in known:
            known += ["message.__defaults__", "message.__kwdefaults__"]
        read = attrgetter("__class__", "__class__", *known)  # of two or more names it reads a tuple
        return cls(tuple(known), read, read(owner))

    def holds(self, owner: Any) -> bool:
        """Whether all are what they were: `changed` in a fraction of its time, for code that is not compiled."""
        try:
            return bool(self.read(owner) == self.values)
        except AttributeError:
            return False

    def changed(self, owner: Any) -> str | None:
        """Return the first function that is another now; None: all are what they were."""
        for name, value in zip(self.names, self.values[2:], strict=True):
            found, *inside = name.split(".")
            now = getattr(owner, found, None)
            if (getattr(now, inside[0], None) if inside else now) is not value:
                return found
        return None


_LOOPS: Final = ("propagate", "edge_updater")
"""Methods that call the others: those that ours replace."""
_ORIGINAL: Final = _Watch.of(MessagePassing, _LOOPS)
_AGGREGATES: Final = {kind: _Watch.of(kind, _UNPATCHED) for kind in REDUCTIONS}
_FUNCTIONS: Final = tuple(
    (owner, _Watch.of(owner, names))
    for owner, names in (
        (aggregating, ("scatter", "segment")),
        (attending, ("softmax",)),
        (torch.nn.Module, ("__call__", "_call_impl")),
    )
)
"""What aggregations and attention of PyG's call."""


@final
@dataclass(frozen=True, eq=False)
class Proof:
    """What a class of layers computes.

    Attributes:
        kind: the class.
        weighs: whether messages are weighted: ``never``, where ``given`` a weight, ``always``, or by ``attention``.
        multiplies: whether a sparse matrix is multiplied with the features by ``message_and_aggregate``.
        base: the class, or the one that it is derived from which has nothing of ours.
        steps: the methods of the class that this rests on.
        whole: the methods of the base that this rests on, and that ours replace.
        written: at most one: the methods that PyG had written for the class when it was looked at last.
    """

    kind: type
    weighs: str
    multiplies: bool
    base: type
    steps: _Watch
    whole: _Watch
    written: list[tuple[_Watch, _Watch]] = field(default_factory=list)

    def objection(self, layer: Any) -> str | None:
        """Return what has changed since, on the class or on the layer; None: nothing."""
        if not torch.compiler.is_compiling() and self._holds(layer):
            return None
        if any(name in _PATCHED for name in layer.__dict__):
            return f"{sorted(_PATCHED & layer.__dict__.keys())[0]} is set on the layer itself"
        kind = type(layer)
        changed = self.steps.changed(kind) or self.whole.changed(self.base) or self._rewritten(kind)
        if changed:
            return f"{changed} of the class was replaced"
        for owner, functions in _FUNCTIONS:
            if changed := functions.changed(owner):
                return f"{changed} of {owner.__name__} was replaced"
        return None

    def _holds(self, layer: Any) -> bool:
        kind = type(layer)
        return (
            _PATCHED.isdisjoint(layer.__dict__)
            and self.steps.holds(kind)
            and self.whole.holds(self.base)
            and any(on_base.holds(self.base) and on_kind.holds(kind) for on_base, on_kind in self.written)
            and all(functions.holds(owner) for owner, functions in _FUNCTIONS)
        )

    def _rewritten(self, kind: type) -> str | None:
        """Which of the methods that PyG writes is neither that nor `MessagePassing`'s."""
        for on_base, on_kind in self.written:
            if on_base.changed(self.base) is None and on_kind.changed(kind) is None:
                return None
        for name in _WRITTEN:
            method = getattr(self.base if name in _LOOPS else kind, name, None)
            if method is not None and not _is_generated(method, name) and not _is_original(method, name):
                return name
        self.written[:] = [(_Watch.of(self.base, _LOOPS), _Watch.of(kind, ("collect", "edge_collect")))]
        return None


def prove(kind: Any, mixins: tuple[type, ...] = ()) -> Proof | str:
    """Return what the layers of a class compute, or why that is not known; ``mixins`` replace ``propagate`` rightly."""
    if not issubclass(kind, MessagePassing):
        return f"{kind.__name__} is no MessagePassing"
    if unknown := _unknown_file():
        return f"torch_geometric {torch_geometric.__version__} has another {unknown} than the versions that are known"
    if problem := _other_method(kind) or _other_propagate(kind, mixins):
        return problem
    attends = issubclass(kind, GATConv) and all(
        _below(kind, name, mixins) is getattr(GATConv, name) for name in _ATTENTION
    )
    weighs = "attention" if attends else _weighs(kind)
    if weighs is None:
        return "message is not the sources' features, nor these times edge_weight"
    product = kind.message_and_aggregate
    multiplies = product is not MessagePassing.message_and_aggregate
    if multiplies and not _is_known_product(product):
        return "message_and_aggregate is none that is known"
    base = next(
        one for one in kind.__mro__ if issubclass(one, MessagePassing) and not issubclass(one, mixins)
    )
    steps = _Watch.of(
        kind, ("message", "message_and_aggregate", *_SAME, *(("edge_update",) if attends else ()))
    )
    whole = _Watch.of(base, ("forward",) if attends else ())
    return Proof(kind, weighs, multiplies, base, steps, whole)


def reduction(layer: Any) -> str | None:
    """Return how a layer reduces messages, or None: by what is none of our reductions, or was changed, or has hooks."""
    module = layer.aggr_module
    kind = type(module)
    found = REDUCTIONS.get(kind)
    if found is None or not isinstance(layer.aggr, str) or _NAMES.get(layer.aggr) != found:
        return None
    if any(getattr(module, name) for name in _MODULE_HOOKS) or any(
        name in module.__dict__ for name in _UNPATCHED
    ):
        return None
    watch = _AGGREGATES[kind]
    same = not watch.changed(kind) if torch.compiler.is_compiling() else watch.holds(kind)
    return found if same else None


def other_aggregation(layer: Any) -> str:
    """Return why a layer has no `reduction`."""
    return (
        f"messages are aggregated by {type(layer.aggr_module).__name__}, which is none of ours or was changed"
    )


def observer(layer: Any) -> str | None:
    """Return who is to see the steps of ``propagate``, which our operators do not take; None: nobody."""
    if layer.explain:
        return "the layer is explained"
    if layer.decomposed_layers != 1:
        return "the layer is decomposed"
    if any(getattr(layer, name) for name in _HOOKS):
        return "a step of propagate has a hook"
    if (
        torch.compiler.is_compiling()
    ):  # of a layer that was given a Graph, which is to be in the compiled code
        return None
    if torch.nn.modules.module._has_any_global_hook():
        return "there is a hook for all modules"
    return tracer()


def tracer() -> str | None:
    """Return what traces, transforms or intercepts operators now; None: nothing."""
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace is running"
    if torch._C._len_torch_dispatch_stack():
        return "a dispatch mode is active (make_fx, torch.export, fake tensors)"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func is running"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation is running"
    return "a function mode is active" if function_mode() else None


@cache
def _unknown_file() -> str | None:
    """The first file of PyG's that is none of those that are known."""
    home = Path(torch_geometric.__file__).parent
    for name, known in KNOWN_FILES.items():
        path = home / name
        if not path.is_file() or sha256(path.read_bytes()).hexdigest()[:12] not in known:
            return name
    return None


def _other_method(kind: type) -> str | None:
    """Which method of the class is another than `MessagePassing`'s, or not of the files that are known."""
    for name in _SAME:
        method = getattr(kind, name, None)
        if method is not getattr(MessagePassing, name, None):
            return f"{name} is overridden"
        if method is not None and not _is_of_pyg(method) and name != "__call__":
            return f"MessagePassing.{name} was replaced"
    if getattr(kind, "__getattribute__", None) is not object.__getattribute__:
        return "__getattribute__ is overridden"
    for aggregation, watch in _AGGREGATES.items():
        if not (_is_of_pyg(aggregation.forward) and _is_of_pyg(aggregation.reduce)) or watch.changed(
            aggregation
        ):
            return f"{aggregation.__name__} was replaced"
    return None


def _other_propagate(kind: type, mixins: tuple[type, ...]) -> str | None:
    """Which of the two methods that call the others is neither `MessagePassing`'s, nor written by PyG, nor ours."""
    for name in _LOOPS:
        for base in kind.__mro__:
            method = vars(base).get(name)
            if method is None or issubclass(base, mixins) or _is_generated(method, name):
                continue
            if base is not MessagePassing:
                return f"{name} is overridden"
            if not _is_of_pyg(method):
                return f"MessagePassing.{name} was replaced"
    return None


def _below(kind: Any, name: str, mixins: tuple[type, ...]) -> object:
    """What a class has under a name, leaving out what ours put before it."""
    for base in kind.__mro__:
        ours = issubclass(base, mixins) and (not issubclass(base, MessagePassing) or "_kind" in vars(base))
        if name in vars(base) and not ours:
            return vars(base)[name]
    return None


def _is_generated(method: Any, name: str) -> bool:
    """Whether PyG wrote it from its template, for a class of layers."""
    code = getattr(method, "__code__", None)
    module = str(getattr(method, "__module__", None))
    made = getattr(sys.modules.get(module), "__dict__", {})
    return bool(
        made.get(name) is method
        and "CollectArgs" in made
        and module.endswith(f"_{_WRITTEN[name]}")
        and code is not None
        and code.co_filename == made.get("__file__")
    )


def _is_original(method: Any, name: str) -> bool:
    """Whether it is the method of `MessagePassing`, as it was when this module was imported."""
    known: dict[str, Any] = dict(zip(_ORIGINAL.names, _ORIGINAL.values[2:], strict=True))
    return method is known.get(name) and getattr(method, "__code__", None) is known[f"{name}.__code__"]


def _is_of_pyg(method: Any) -> bool:
    """Whether a function's code comes from PyG's files, under its own name."""
    code = getattr(method, "__code__", None)
    home = Path(torch_geometric.__file__).parent
    return (
        code is not None
        and not hasattr(method, "__wrapped__")
        and Path(code.co_filename).is_relative_to(home)
        and code.co_name == method.__name__
    )


def _weighs(kind: type) -> str | None:
    """Whether messages are weighted, read from the instructions of ``message``."""
    message: Any = kind.message  # type: ignore[attr-defined]
    code = getattr(message, "__code__", None)
    if code is None or message.__closure__ or hasattr(message, "__wrapped__"):
        return None
    if any(one is not None for one in (message.__defaults__ or ())) or message.__kwdefaults__:
        return None  # a weight by default
    for weighs, known in _MESSAGES.items():
        if _arguments(code) == _arguments(known.__code__) and list(_steps(code)) == list(
            _steps(known.__code__)
        ):
            return weighs
    return None


def _arguments(code: Any) -> tuple[object, ...]:
    named = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return named, code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR)


def _steps(code: Any) -> Iterator[tuple[str, object]]:
    self = code.co_varnames[0] if code.co_argcount else None
    for step in dis.get_instructions(code):
        yield step.opname, None if step.argval == self else step.argval


def _is_known_product(method: Any) -> bool:
    if not _is_of_pyg(method):
        return False
    try:
        text = inspect.getsource(method.__code__)
    except OSError:
        return False
    # As it stands in its class, without the indentation that it has there.
    return sha256(dedent(text).rstrip().encode()).hexdigest()[:12] in KNOWN_PRODUCTS
