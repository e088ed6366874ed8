"""Neural networks cut into tasks: which there are, how often, and whose results each reads."""

import json
import os
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.reading import made, read_json
from tensorwise.tasks.shapes import Shapes, input_shapes
from tensorwise.tasks.task import MOST_BYTES, Task, operands
from tensorwise.writing import replacing

FREE: Final = ("shape_of", "tensor_to_shape", "shape_to_tensor", "null_value")
"""Operators of Relax that compute nothing worth a task."""
_PACKED: Final = (
    "relax.call_packed",
    "relax.call_pure_packed",
    "relax.call_dps_packed",
    "relax.call_inplace_packed",
)


@final
@dataclass(frozen=True)
class Node:
    """One run of a task in a network.

    Attributes:
        task: its id; name: what it computes.
        after: places of the nodes whose results it reads.
        result_bytes: size of its result.
    """

    task: str
    name: str
    after: tuple[int, ...]
    result_bytes: int


@final
@dataclass(frozen=True)
class TaskGraph:
    """A network as runs of tasks, in an order in which they can run.

    Attributes:
        name: of the architecture or file; batch: inputs at a time.
        nodes: the runs.
        source: id of the file's bytes, and of the shapes that were given; empty of an architecture.
        unlowered: operators that are no tasks, so that what they take is not known, once for each run; None where a release
            cut the network that did not look for them. dtypes: of operands and results; None as well.
    """

    name: str
    batch: int
    nodes: tuple[Node, ...]
    source: str = ""
    unlowered: tuple[str, ...] | None = ()
    dtypes: tuple[str, ...] | None = ()

    @property
    def left_out(self) -> str:
        """The operators that are no tasks, as text: ``sort, topk (3 times)``; empty where there are none."""
        counted = sorted(Counter(self.unlowered or ()).items())
        return ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in counted)

    @property
    def multiplicity(self) -> Counter[str]:
        """How often each task runs, by id."""
        return Counter(node.task for node in self.nodes)

    def save(self, folder: Path) -> Path:
        """Write the graph into ``folder`` (made if absent) and return the file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}-b{self.batch}.json"
        with replacing(path) as file:
            file.write(json.dumps(asdict(self)).encode())
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read back what ``save`` wrote.

        Raises:
            InputError: the file cannot be read, or is something else.
        """
        what = f"{os.fspath(path)} holds no task graph"
        data = read_json(path, "holds no task graph", MOST_BYTES)
        found = made(cls, data, what)
        if not data.keys() >= {"unlowered", "dtypes"}:
            found = replace(found, unlowered=None, dtypes=None)
        if any(not 0 <= before < place for place, node in enumerate(found.nodes) for before in node.after):
            raise InputError(f"{what}: a node reads one that is not before it; cut the network again")
        return found


@final
@dataclass(frozen=True)
class Found:
    """A task of a folder.

    Attributes:
        name: what it computes; path: its file; networks: those with the task, and their batch: ``resnet50-b1``.
    """

    name: str
    path: Path
    networks: tuple[str, ...]


def tasks_of(folder: Path, only: Collection[str] = ()) -> dict[str, Found]:
    """Return the tasks in ``folder`` by id, in its order.

    Args:
        folder: with ``networks`` and ``tasks`` in it, as ``tensorwise tasks cut`` writes them.
        only: the tasks of these networks, names whatever the batch; default: all.

    Raises:
        InputError: there are no networks, or one that is named is not among them.
    """
    networks: dict[str, set[str]] = {}
    names: dict[str, str] = {}
    inside: dict[str, set[str]] = {}
    for path in sorted((folder / "networks").glob("*.json")):
        graph = TaskGraph.load(path)
        for node in graph.nodes:
            networks.setdefault(node.task, set()).add(f"{graph.name}-b{graph.batch}")
            names[node.task] = node.name
            inside.setdefault(graph.name, set()).add(node.task)
    if not networks:
        raise InputError(
            f"{folder} has no networks; cut some first: tensorwise tasks cut NETWORK --folder {folder}"
        )
    if absent := set(only) - inside.keys():
        raise InputError(
            f"{folder} has no network {', '.join(sorted(absent))}; it has {', '.join(sorted(inside))}"
        )
    tasks = sorted(set().union(*(inside[name] for name in only)) if only else networks)
    return {
        task: Found(names[task], folder / "tasks" / f"{task}.json", tuple(sorted(networks[task])))
        for task in tasks
    }


def of_torch(module: Any, inputs: tuple[Any, ...]) -> Any:
    """Return a ``torch.nn.Module`` in evaluation mode as TVM's Relax, weights as constants.

    Raises:
        InputError: torch cannot export it, or TVM lacks one of its operators.
    """
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    try:
        with torch.no_grad():
            exported = torch.export.export(_scaled(module.eval()), inputs)
            return from_exported_program(exported, keep_params_as_input=False)
    except Exception as error:  # both have exceptions of many kinds
        raise InputError(f"the network cannot be imported: {_line(error)}") from error


def _scaled(module: Any) -> Any:
    """Replace batch norms, whose numbers do not change any more, by the factor and the summand that they amount to.

    TVM comes to the same, by compiling and running a dozen functions for each of them.
    """
    import torch

    class Scale(torch.nn.Module):
        def __init__(self, norm: Any) -> None:
            super().__init__()
            factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            shape = (1, -1) + (1,) * {torch.nn.BatchNorm1d: 0, torch.nn.BatchNorm2d: 2}[type(norm)]
            self.register_buffer("factor", factor.detach().reshape(shape))
            self.register_buffer("summand", (norm.bias - norm.running_mean * factor).detach().reshape(shape))

        def forward(self, x: Any) -> Any:
            return x * self.factor + self.summand

    for name, child in module.named_children():
        if type(child) in (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d):
            setattr(module, name, Scale(child))
        else:
            _scaled(child)
    return module


def of_onnx(path: str | os.PathLike[str], batch: int, given: Shapes | None = None) -> Any:
    """Return the network in an ONNX file as TVM's Relax.

    Args:
        given: shapes of inputs whose dimensions are open; without, an open batch is ``batch`` (see `input_shapes`).

    Raises:
        InputError: the file cannot be read, its inputs are of another batch or shape, or TVM lacks one of its operators.
    """
    try:
        import onnx
        from tvm.relax.frontend.onnx import from_onnx

        model = onnx.load(os.fspath(path))
        known = {weight.name for weight in model.graph.initializer}
        inputs = {
            one.name: [side.dim_value or side.dim_param for side in one.type.tensor_type.shape.dim]
            for one in model.graph.input
            if one.name not in known
        }
        shapes = {name: list(shape) for name, shape in input_shapes(inputs, batch, given).items()}
        return from_onnx(model, shape_dict=shapes, keep_params_in_input=False)
    except InputError as error:
        raise InputError(f"{os.fspath(path)} cannot be cut for a batch of {batch}: {error}") from None
    except Exception as error:  # of many kinds
        raise InputError(f"{os.fspath(path)} cannot be imported: {_line(error)}") from error


def lowered(module: Any) -> Any:
    """Return a network as calls of functions of TIR: constants folded, operators fused, as TVM does by default."""
    from tensorwise.tasks.tvm_extra import relax

    module = relax.transform.DecomposeOpsForInference()(module)
    return relax.get_pipeline("zero")(module)


def cut(name: str, batch: int, module: Any, source: str = "") -> tuple[TaskGraph, dict[str, Task]]:
    """Return a lowered network as a graph, and its tasks by id.

    Args:
        source: see ``TaskGraph``.

    Raises:
        InputError: it has control flow, or shapes that are not constant.
    """
    tasks: dict[str, Task] = {}
    by_name: dict[str, Task] = {}
    opaque: dict[str, list[str]] = {}
    for variable, function in module.functions.items():
        if type(function).__name__ == "PrimFunc":
            task = Task.of(variable.name_hint, function)
            opaque[variable.name_hint] = _calls_of(function.script(show_meta=False))
            by_name[variable.name_hint] = tasks.setdefault(task.id, task)
    nodes: list[Node] = []
    unlowered: list[str] = []
    dtypes: set[str] = set()
    made: dict[int, frozenset[int]] = {}
    """Variable -> the nodes that its value comes from."""

    def sources(expr: Any) -> frozenset[int]:
        match type(expr).__name__:
            case "Var" | "DataflowVar":
                return made.get(hash(expr), frozenset())
            case "Tuple":
                return frozenset().union(*map(sources, expr.fields))
            case "TupleGetItem":
                return sources(expr.tuple_value)
            case "Call":
                return frozenset().union(*map(sources, expr.args))
            case "If":
                raise InputError(f"{name} has control flow; only networks without it are cut")
        return frozenset()

    blocks = module["main"].body.blocks
    for binding in (binding for block in blocks for binding in block.bindings):
        value = binding.value
        read = sources(value)
        if type(value).__name__ == "Call" and str(getattr(value.op, "name", "")).startswith("relax.call_tir"):
            task = by_name[value.args[0].name_hint]
            nodes.append(Node(task.id, task.name, tuple(sorted(read)), _bytes(value.ty_args, task.name)))
            unlowered += opaque[value.args[0].name_hint]
            read = frozenset((len(nodes) - 1,))
        elif type(value).__name__ == "Call" and (operator := _operator(value)) not in FREE:
            unlowered.append(operator)
        made[hash(binding.var)] = read
    for task in tasks.values():
        dtypes |= {str(elem) for _, elem in operands(task.module)}
    graph = TaskGraph(name, batch, tuple(nodes), source, tuple(unlowered), tuple(sorted(dtypes)))
    if not nodes:
        raise InputError(
            f"{name} has no operator that is cut into a task, but {graph.left_out}; what these take is not known"
            if unlowered
            else f"{name} computes nothing"
        )
    return graph, tasks


def _operator(call: Any) -> str:
    """What a call of Relax is of that is no function of TIR: ``topk``; ``nonzero``, of a function of TVM's runtime."""
    name = str(getattr(call.op, "name", getattr(call.op, "name_hint", type(call.op).__name__)))
    if name in _PACKED and call.args:
        name = str(getattr(call.args[0], "global_symbol", name))
    return name.rpartition(".")[2]


def _calls_of(text: str) -> list[str]:
    """Functions of TVM's runtime that a function of TIR calls, by its script: their loops are not known."""
    return [
        name.rpartition(".")[2] for name in re.findall(r"T\.call_c?packed(?:_lowered)?\(\"([^\"]+)\"", text)
    ]


def _bytes(types: Any, name: str) -> int:
    total = 0
    for one in types:
        if hasattr(one, "fields"):
            total += _bytes(one.fields, name)
        else:
            try:
                extents = [int(extent) for extent in one.shape.values]
            except (AttributeError, TypeError):  # no number, or no shape
                raise InputError(
                    f"the result of {name} has a shape that only a run tells; such networks are not cut"
                ) from None
            total += int(np.prod(extents)) * np.dtype(str(one.dtype)).itemsize
    return total


def _line(error: Exception) -> str:
    """The last line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:200] if lines else ''}"
