"""Neural networks cut into tasks: which there are, how often, and whose results each reads."""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np

from tensorwise.errors import InputError, MissingExtraError
from tensorwise.reading import open_regular, parse_dataclass, read_json
from tensorwise.tasks.shapes import Extent, Shapes, input_shapes, said_batch
from tensorwise.tasks.task import MOST_BYTES, Task, operands, plain_name
from tensorwise.writing import replacing

FREE: Final = ("shape_of", "tensor_to_shape", "shape_to_tensor", "null_value")
"""Operators of Relax that compute nothing worth a task."""
_PACKED: Final = (
    "relax.call_packed",
    "relax.call_pure_packed",
    "relax.call_dps_packed",
    "relax.call_inplace_packed",
)
_NO_TASK: Final = (InputError, RuntimeError, ValueError, TypeError)
"""Errors of functions of which no task is made; the last three are TVM's."""
_NO_TENSORS: Final = ("sequence_type", "map_type", "optional_type")
_OTHER_VALUES: Final = frozenset({
    "SequenceConstruct", "SequenceEmpty", "SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", "SequenceMap",
    "SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "ZipMap", "CastMap",
    "DictVectorizer",
})  # fmt: skip
"""Operators of ONNX whose operands or results are no tensors."""
_DTYPE: Final = re.compile(r'"((?:b?float|u?int|bool)\w*)"')
"""A dtype in the script of a function of TIR: of a buffer, or a cast. That of a buffer of float32 is not written."""


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
        unlowered: operators that are no tasks, one for each run, so that their time is not known. None if an old release,
            which did not look for them, cut the network. dtypes: of operands, results and intermediate values; None
            likewise.
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
        found = parse_dataclass(cls, data, what)
        if not data.keys() >= {"unlowered", "dtypes"}:
            found = replace(found, unlowered=None, dtypes=None)
        if any(not 0 <= before < place for place, node in enumerate(found.nodes) for before in node.after):
            raise InputError(f"{what}: a node reads a node that does not precede it; cut the network again")
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

    class ChannelScale(torch.nn.Module):
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
            setattr(module, name, ChannelScale(child))
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
        from tvm.relax.frontend.onnx import from_onnx

        model = _onnx_model(path)
        shapes = {name: list(shape) for name, shape in input_shapes(_inputs(model), batch, given).items()}
        if sequences := sorted(_on_sequences(model)):
            raise InputError(
                f"operators on sequences are not supported: {', '.join(sequences)}; export the network with "
                "tensors only (Split and Concat)"
            )
        return from_onnx(model, shape_dict=shapes, keep_params_in_input=False)
    except InputError as error:
        raise InputError(f"{os.fspath(path)} cannot be cut for a batch of {batch}: {error}") from None
    except Exception as error:  # of many kinds
        raise InputError(f"{os.fspath(path)} cannot be imported: {_line(error)}") from error


def onnx_batch(path: str | os.PathLike[str], given: Shapes | None = None) -> int:
    """Return the batch of an ONNX file where nobody names one: what its inputs say (see `said_batch`).

    Raises:
        InputError: the file cannot be read, or its inputs do not say it.
        MissingExtraError: there is no reader of ONNX files.
    """
    try:
        return said_batch(_inputs(_onnx_model(path, weights=False)), given)
    except ImportError as error:
        raise MissingExtraError("onnx", "tvm", "reading ONNX files") from error
    except InputError as error:
        raise InputError(f"{os.fspath(path)} cannot be cut: {error}") from None
    except Exception as error:  # of many kinds
        raise InputError(f"{os.fspath(path)} cannot be imported: {_line(error)}") from error


def _onnx_model(path: str | os.PathLike[str], *, weights: bool = True) -> Any:
    import onnx

    open_regular(path).close()  # a pipe would be waited for
    return onnx.load(os.fspath(path), load_external_data=weights)


def _inputs(model: Any) -> dict[str, list[Extent] | None]:
    """What an ONNX file says of its inputs; old exporters write 0 or -1 for an extent that is open.

    Raises:
        InputError: one is no tensor.
    """
    graph = model.graph
    known = {weight.name for weight in graph.initializer} | {
        one.values.name for one in graph.sparse_initializer
    }
    found: dict[str, list[Extent] | None] = {}
    for one in graph.input:
        if one.name in known:
            continue
        if (kind := one.type.WhichOneof("value")) != "tensor_type":
            what = (kind or "value without a type").removesuffix("_type").replace("_", " ")
            raise InputError(f"the input {one.name} is a {what}; expected tensors as inputs")
        tensor = one.type.tensor_type
        if not tensor.elem_type:
            raise InputError(f"the input {one.name} has no dtype; export the network with it")
        sides = [side.dim_value if side.dim_value > 0 else side.dim_param for side in tensor.shape.dim]
        found[one.name] = sides if tensor.HasField("shape") else None
    return found


def _on_sequences(model: Any) -> set[str]:
    """Operators of an ONNX file that take or make sequences, maps or optional values, in inner graphs and functions, too.

    TVM's importer takes an expression for a list of them, and never comes to its end.
    """
    found: set[str] = set()
    bodies = [(model.graph.node, model.graph), *((one.node, None) for one in model.functions)]
    while bodies:
        nodes, graph = bodies.pop()
        if graph is not None:
            values = (*graph.input, *graph.value_info, *graph.output)
            others = {one.name for one in values if one.type.WhichOneof("value") in _NO_TENSORS}
            found |= {node.op_type for node in nodes if others.intersection((*node.input, *node.output))}
        for node in nodes:
            if node.op_type in _OTHER_VALUES:
                found.add(node.op_type)
            inner = [one for part in node.attribute for one in (part.g, *part.graphs)]
            bodies += [(one.node, one) for one in inner if one.node]
    return found


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
        InputError: it has control flow, or no task at all.
    """
    tasks: dict[str, Task] = {}
    by_name: dict[str, Task] = {}
    opaque: dict[str, list[str]] = {}
    inside: dict[str, set[str]] = {}
    """Task -> dtypes of its operands and of all that is computed in it."""
    for variable, function in module.functions.items():
        if type(function).__name__ == "PrimFunc":
            try:
                task = Task.of(variable.name_hint, function)
            except _NO_TASK:  # its loops or extents depend on data
                continue
            script = function.script(show_meta=False)
            opaque[variable.name_hint] = _calls_of(script)
            by_name[variable.name_hint] = tasks.setdefault(task.id, task)
            inside[task.id] = {*_DTYPE.findall(script), *(elem for _, elem in operands(task.module))}
    nodes: list[Node] = []
    unlowered: list[str] = []
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
            called = value.args[0].name_hint
            known, size = by_name.get(called), _bytes(value.ty_args)
            if known is None or size is None:
                unlowered.append(plain_name(called))
            else:
                nodes.append(Node(known.id, known.name, tuple(sorted(read)), size))
                unlowered += opaque[called]
                read = frozenset((len(nodes) - 1,))
        elif type(value).__name__ == "Call" and (operator := _operator(value)) not in FREE:
            unlowered.append(operator)
        made[hash(binding.var)] = read
    tasks = {node.task: tasks[node.task] for node in nodes}
    dtypes = set().union(*(inside[task] for task in tasks))
    graph = TaskGraph(name, batch, tuple(nodes), source, tuple(unlowered), tuple(sorted(dtypes)))
    if not nodes:
        raise InputError(
            f"{name} has no operator that can be cut into a task, only {graph.left_out}, whose run time cannot be predicted"
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


def _bytes(types: Any) -> int | None:
    """Bytes of a result; None where only a run tells its shape."""
    total = 0
    for one in types:
        if hasattr(one, "fields"):
            size = _bytes(one.fields)
        else:
            try:
                extents = [int(extent) for extent in one.shape.values]
            except (AttributeError, TypeError):  # no number, or no shape
                return None
            size = math.prod(extents) * np.dtype(str(one.dtype)).itemsize
        if size is None:
            return None
        total += size
    return total


def _line(error: Exception) -> str:
    """The last line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:200] if lines else ''}"
