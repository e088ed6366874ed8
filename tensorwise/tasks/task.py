"""Task: a dense computation cut out of a neural network, to be scheduled; its content id is the same in every network."""

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

import numpy as np

from tensorwise.analysis.loop_tree import LoopTree
from tensorwise.analysis.tvmscript import read_tvmscript
from tensorwise.ids import content_id
from tensorwise.reading import conform, read_json, reading
from tensorwise.writing import replacing

RELATIVE = 1e-3
"""Difference from the first program's result, by its largest number, at which one is wrong: sums run in other orders."""
MOST_BYTES = 64 * 2**20
"""A larger file is not read as a task: ours are some ten kilobytes."""


@final
@dataclass(frozen=True, eq=False)
class Task:
    """One function of TVM's TIR, with constant shapes.

    Attributes:
        name: what it computes, as TVM calls it: ``fused_conv2d_add_relu``.
        id: content id of its structure: operations, shapes and dtypes, whatever things are called.
        text: the function, as TVM's JSON of a module that has it as ``main``.
        facts: what a Record says of it: ``op``, ``flops``, ``bytes`` (of operands and results), ``leaves``.
    """

    name: str
    id: str
    text: str = field(repr=False)
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, function: Any) -> Self:
        """Return the task of a ``tvm.tirx.PrimFunc`` called ``name``.

        Raises:
            InputError: a shape is not constant.
        """
        from tensorwise.tasks.tvm_extra import tvm, tvm_ffi

        for attribute in ("global_symbol", "op_pattern"):
            if function.attrs is not None and attribute in function.attrs:
                function = function.without_attr(attribute)
        digest = int(tvm_ffi.structural_hash(function)) % 2**64
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        plain = plain_name(name)
        tree = loop_tree(module)
        sizes = [math.prod(shape) * np.dtype(elem).itemsize for shape, elem in operands(module)]
        work = sum(
            math.prod(loop.extent for loop in loops)
            * sum(count for kind, count in leaf.operations.items() if kind.startswith("float"))
            for loops, leaf in tree.leaves()
        )
        facts = {"op": plain, "flops": work, "bytes": sum(sizes), "leaves": sum(1 for _ in tree.leaves())}
        text = tvm.ir.save_json(module)
        return cls(plain, content_id(["task", f"{digest:016x}"]), text, facts)

    @cached_property
    def module(self) -> Any:
        """The ``tvm.IRModule``."""
        from tensorwise.tasks.tvm_extra import tvm

        return tvm.ir.load_json(self.text)

    def describe(self) -> dict[str, object]:
        """Return what a Record keeps of the task, as JSON-able values."""
        return dict(self.facts)

    def save(self, folder: Path) -> Path:
        """Write the task into ``folder`` (made if absent) and return the file; one that is there already stays."""
        path = folder / f"{self.id}.json"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            described = {"name": self.name, "id": self.id, "facts": dict(self.facts), "tir": self.text}
            with replacing(path) as file:
                file.write(json.dumps(described).encode())
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read back what ``save`` wrote. What is in it is handed to TVM: read only files that you trust.

        Raises:
            InputError: the file cannot be read, or is something else.
        """
        what = f"{os.fspath(path)} holds no task"
        data = read_json(path, "holds no task", MOST_BYTES)
        with reading(what, "cut the network again"):
            name, own, text = (conform(data[key], str, f"{what}: {key}") for key in ("name", "id", "tir"))
            return cls(name, own, text, conform(data["facts"], dict, f"{what}: facts"))


def plain_name(name: str) -> str:
    """Return the name of a TVM function without the numbers that distinguish functions of one network."""
    return re.sub(r"(?<=[a-z_])\d+(?=_|$)", "", re.sub(r"(?<=2d)\d+", "", name))


def operands(module: Any) -> list[tuple[tuple[int, ...], str]]:
    """Return shape and dtype of each argument of a module's ``main``, results last."""
    from tensorwise.tasks.tvm_extra import meta_schedule

    infos = meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"])
    return [(tuple(int(extent) for extent in info.shape), str(info.dtype)) for info in infos]


def space_name(release: str, kind: str) -> str:
    """Return the name, for Records, of the schedules that a release of TVM has for ``cpu`` or ``cuda``."""
    return f"tvm-{release}-{kind}"


def drawn(shape: tuple[int, ...], elem: str, rng: np.random.Generator) -> np.ndarray:
    """An operand: floats from 0 to 1; of integers, which may be indices, 0 and 1, which every table has."""
    if "float" in elem:
        return rng.random(shape, np.float32).astype(elem, copy=False)
    return rng.integers(0, 2, shape).astype(elem)


def agreeing(found: np.ndarray, wanted: np.ndarray) -> None:
    """Raise ValueError where a program's result differs from the task's first program's by more than `RELATIVE`."""
    wanted = wanted.astype(float)
    if not np.allclose(
        found, wanted, rtol=0, atol=RELATIVE * (np.abs(wanted).max(initial=0) or 1.0), equal_nan=True
    ):
        raise ValueError("not what the task's first program computes")


def loop_tree(module: Any) -> LoopTree:
    """Return the loops of a module's ``main``, scheduled or not, buffers as large as they will be.

    Raises:
        InputError: a shape is not constant, or something in it is not known (see ``read_tvmscript``).
    """
    from tensorwise.tasks.tvm_extra import s_tir, tvm

    passes = s_tir.transform
    lowered = tvm.ir.transform.Sequential([
        passes.LowerInitBlock(),
        passes.PlanAndUpdateBufferAllocationLocation(),
        passes.ConvertBlocksToOpaque(),
        passes.CompactBufferAllocation(),
        passes.LowerMatchBuffer(),
        tvm.tirx.transform.StmtSimplify(),
    ])(module)  # fmt: skip
    # Always the same iterations are looked at: a program has one tree.
    return read_tvmscript(lowered["main"].script(show_meta=False), np.random.default_rng(0))
