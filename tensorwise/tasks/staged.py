"""Staged programs: compiled on one machine, with TVM, and timed on another one, which has the GPU.

A file a task: ``tensorwise tasks stage`` writes it, ``tensorwise tasks collect --staged`` times what is in it. The latter
needs CuPy, and no TVM.
"""

import base64
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, final

from tensorwise.analysis.machine_code import MachineCode
from tensorwise.errors import InputError
from tensorwise.reading import read_json, reading
from tensorwise.space.config import Config
from tensorwise.tasks.task import MOST_BYTES, Task
from tensorwise.writing import replacing


@final
@dataclass(frozen=True)
class StagedLaunch:
    """One launch of a kernel.

    Attributes:
        kernel: its name in the code.
        grid, block: blocks, and threads of a block, in up to two dimensions.
        arguments: places of buffers: the task's operands, results last, then the program's scratch space.
    """

    kernel: str
    grid: tuple[int, int]
    block: tuple[int, int]
    arguments: tuple[int, ...]


@final
@dataclass(frozen=True)
class StagedProgram:
    """One schedule of a task, compiled.

    Attributes:
        config: of the schedule; tree: text of the program's loop tree.
        launches: one after the other; scratch: bytes of each buffer that is neither operand nor result.
        code: a cubin; counted: what is in it.
    """

    config: Config
    tree: str = field(repr=False)
    launches: tuple[StagedLaunch, ...]
    scratch: tuple[int, ...]
    code: bytes = field(repr=False)
    counted: MachineCode = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        launches = [[one.kernel, one.grid, one.block, one.arguments] for one in self.launches]
        code = base64.b64encode(zlib.compress(self.code, 9)).decode()
        return {
            "config": self.config.text,
            "tree": self.tree,
            "launches": launches,
            "scratch": self.scratch,
            "code": code,
            "counted": self.counted.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read back what ``to_json`` returned; ValueError, KeyError or TypeError for something else."""
        launches = []
        for kernel, grid, block, arguments in data["launches"]:
            (across, down), (wide, high) = map(int, grid), map(int, block)
            launches.append(
                StagedLaunch(str(kernel), (across, down), (wide, high), tuple(map(int, arguments)))
            )
        code = _unpacked(base64.b64decode(data["code"], validate=True))
        scratch = tuple(map(int, data["scratch"]))
        counted = MachineCode.from_json(data["counted"])
        return cls(Config.parse(data["config"]), str(data["tree"]), tuple(launches), scratch, code, counted)


@final
@dataclass(frozen=True)
class StagedTask:
    """A task with programs for one GPU.

    Attributes:
        task: without its text; networks: those that it occurs in.
        gpu: name of the GPU, one that is described; arch: what its code is for, ``sm_90``.
        operands: shape and dtype of each, results last.
        tvm: release that made the programs.
        programs: those that could be compiled.
    """

    task: Task
    networks: tuple[str, ...]
    gpu: str
    arch: str
    operands: tuple[tuple[tuple[int, ...], str], ...]
    tvm: str
    programs: tuple[StagedProgram, ...]

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        described = {
            "task": self.task.id, "name": self.task.name, "facts": dict(self.task.facts), "networks": self.networks,
            "gpu": self.gpu, "arch": self.arch, "operands": self.operands, "tvm": self.tvm,
            "programs": [one.to_json() for one in self.programs],
        }  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(described).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read back what ``save`` wrote. Its programs are run as they are: take only files that you trust.

        Raises:
            InputError: the file cannot be read, or is something else.
        """
        data = read_json(path, "holds no staged programs", MOST_BYTES)
        with reading(f"{os.fspath(path)} holds no staged programs", "stage the task again"):
            task = Task(str(data["name"]), str(data["task"]), "", dict(data["facts"]))
            operands = tuple((tuple(map(int, shape)), str(elem)) for shape, elem in data["operands"])
            programs = tuple(StagedProgram.from_json(one) for one in data["programs"])
            found = cls(
                task, tuple(map(str, data["networks"])), str(data["gpu"]), str(data["arch"]), operands, str(data["tvm"]),
                programs,
            )  # fmt: skip
            for one in programs:
                buffers = len(operands) + len(one.scratch)
                if any(not 0 <= place < buffers for launch in one.launches for place in launch.arguments):
                    raise ValueError("a launch has an argument that is no buffer")
        return found


def _unpacked(data: bytes) -> bytes:
    """Decompress code, of which ours is some ten kilobytes; ValueError for what is damaged or expands to far more."""
    stream = zlib.decompressobj()
    try:
        code = stream.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"damaged code: {error}") from error
    if not stream.eof:
        raise ValueError(f"code is cut off, or longer than {MOST_BYTES} bytes")
    return code


def staged_programs(
    folder: Path, gpu: str, configs: Mapping[str, Config]
) -> dict[str, tuple[StagedTask, StagedProgram]]:
    """Return the staged program of each config of ``configs``, by task id.

    Raises:
        InputError: a file cannot be read, or a program is not there.
    """
    found = {}
    for path in sorted(folder.glob("*.json")):
        if path.stem.partition("-")[0] in configs:
            task = StagedTask.load(path)
            for program in task.programs:
                if task.gpu == gpu and configs.get(task.task.id) == program.config:
                    found[task.task.id] = (task, program)
    if missing := configs.keys() - found.keys():
        raise InputError(f"{folder} has no programs of {len(missing)} tasks for {gpu} that were recorded")
    return found
