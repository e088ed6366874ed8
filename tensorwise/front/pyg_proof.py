"""What a layer of PyG computes, proved from its class and its code: `fuse` replaces only what is proved.

A proof has three parts. The files of PyG that message passing rests on are ones that were read when this was written
(`KNOWN_FILES`). The methods of the class that propagate, aggregate and update are those of these files. And the code of
``message`` is one of three known expressions: the sources' features, or these times ``edge_weight``. `Proof.holds` repeats
at each call the parts that a program may change between calls.
"""

import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from textwrap import dedent
from typing import Any, Final, final

import torch
import torch_geometric
from torch_geometric.nn import GATConv, MessagePassing
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, SumAggregation

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
_PATCHED: Final = frozenset(
    {*_SAME, *_ATTENTION, "message_and_aggregate", "propagate", "edge_updater", "collect", "edge_collect"}
)
"""Names that are looked up on the class, unless a program sets them on a layer."""
_HOOKS: Final = tuple(
    f"_{method}_forward_{when}hooks"
    for method in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_", "")
)
_UNPATCHED: Final = frozenset({"forward", "reduce", "__call__"})
_MODULE_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@final
@dataclass(frozen=True, eq=False)
class Proof:
    """What a class of layers computes.

    Attributes:
        kind: the class.
        weighs: whether messages are weighted: ``never``, where ``given`` a weight, ``always``, or by ``attention``.
        multiplies: whether a sparse matrix is multiplied with the features by ``message_and_aggregate``.
        found: the attributes of the class that this rests on, as they were.
        mixins: classes of ours, which have a ``propagate`` of their own.
    """

    kind: type
    weighs: str
    multiplies: bool
    found: tuple[tuple[str, object], ...]
    mixins: tuple[type, ...]

    def objection(self, layer: Any) -> str | None:
        """Return what has changed since, on the class or on the layer; None: nothing."""
        if any(name in layer.__dict__ for name in _PATCHED):
            return f"{sorted(_PATCHED & layer.__dict__.keys())[0]} is set on the layer itself"
        for name, method in self.found:
            if getattr(self.kind if name == "forward" else type(layer), name, None) is not method:
                return f"{name} of the class was replaced"
        propagate: Any = self.kind.propagate  # type: ignore[attr-defined]
        if (
            propagate is MessagePassing.propagate
            or issubclass(self.kind, self.mixins)
            or _is_generated(propagate)
        ):
            return None
        return "propagate of the class was replaced"


def prove(kind: Any, mixins: tuple[type, ...] = ()) -> Proof | str:
    """Return what the layers of a class compute, or why that is not known; ``mixins`` replace ``propagate`` rightly."""
    if not issubclass(kind, MessagePassing):
        return f"{kind.__name__} is no MessagePassing"
    if unknown := _unknown_file():
        return f"torch_geometric {torch_geometric.__version__} has another {unknown} than the versions that are known"
    if problem := _other_method(kind) or _other_propagate(kind, mixins):
        return problem
    attends = issubclass(kind, GATConv) and all(getattr(kind, m) is getattr(GATConv, m) for m in _ATTENTION)
    weighs = "attention" if attends else _weighs(kind)
    if weighs is None:
        return "message is not the sources' features, nor these times edge_weight"
    product = kind.message_and_aggregate
    multiplies = product is not MessagePassing.message_and_aggregate
    if multiplies and not _is_known_product(product):
        return "message_and_aggregate is none that is known"
    names = ("message", "message_and_aggregate", *_SAME, *(_ATTENTION if attends else ()))
    return Proof(kind, weighs, multiplies, tuple((name, getattr(kind, name, None)) for name in names), mixins)


def reduction(layer: Any) -> str | None:
    """Return how a layer reduces messages, or None: by what is none of our reductions, or by a module with hooks."""
    module = layer.aggr_module
    found = REDUCTIONS.get(type(module))
    if found is None or not isinstance(layer.aggr, str) or _NAMES.get(layer.aggr) != found:
        return None
    if any(getattr(module, name) for name in _MODULE_HOOKS) or any(
        name in module.__dict__ for name in _UNPATCHED
    ):
        return None
    return found


def observer(layer: Any) -> str | None:
    """Return who is to see the steps of ``propagate``, which our operators do not take; None: nobody."""
    if layer.explain:
        return "the layer is explained"
    if layer.decomposed_layers != 1:
        return "the layer is decomposed"
    if any(getattr(layer, name) for name in _HOOKS):
        return "a step of propagate has a hook"
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
    depth = torch._C._len_torch_function_stack()
    if depth and any(
        type(torch._C._get_function_stack_at(at)).__name__ != "DeviceContext" for at in range(depth)
    ):
        return "a function mode is active"
    return None


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
    for aggregation in REDUCTIONS:
        if not (_is_of_pyg(aggregation.forward) and _is_of_pyg(aggregation.reduce)):
            return f"{aggregation.__name__} was replaced"
    return None


def _other_propagate(kind: type, mixins: tuple[type, ...]) -> str | None:
    """Which of the two methods that call the others is neither `MessagePassing`'s, nor written by PyG, nor ours."""
    for name in ("propagate", "edge_updater"):
        for base in kind.__mro__:
            method = vars(base).get(name)
            if method is None or issubclass(base, mixins) or _is_generated(method):
                continue
            if base is not MessagePassing:
                return f"{name} is overridden"
            if not _is_of_pyg(method):
                return f"MessagePassing.{name} was replaced"
    return None


def _is_generated(method: Any) -> bool:
    """Whether PyG wrote it from its template, for a class of layers."""
    name, module = method.__name__, str(getattr(method, "__module__", None))
    made = getattr(sys.modules.get(module), "__dict__", {})
    return made.get(name) is method and "CollectArgs" in made and module.endswith(f"_{name}")


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
