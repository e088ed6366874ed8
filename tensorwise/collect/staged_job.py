"""StagedJob: a task's programs for a GPU, compiled elsewhere, to be timed here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, final

from tensorwise.analysis.machine_code import program_json
from tensorwise.device.device import Measurement
from tensorwise.errors import InputError
from tensorwise.ids import content_id, file_id
from tensorwise.reading import parse_dataclass
from tensorwise.space.config import Config
from tensorwise.store.record import Record
from tensorwise.tasks.staged import StagedTask
from tensorwise.tasks.task import space_name

if TYPE_CHECKING:
    from tensorwise.tasks.gpu import TaskGpu

SILENCE_S: Final = 120.0
"""Seconds after which a process that says nothing is ended: a task's programs take far less."""


@final
@dataclass(frozen=True)
class StagedJob:
    """The programs in one file.

    Attributes:
        staged: the file; content: id of what is in it.
        device: name of the GPU that they are for.
    """

    staged: str
    content: str
    device: str
    threads: int = 1

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the job of a file.

        Raises:
            InputError: it cannot be read, or is something else.
        """
        return cls(str(path), file_id(path), StagedTask.load(path).gpu)

    @cached_property
    def id(self) -> str:
        """Content id of all that decides what is measured."""
        return content_id(["staged job", self.content])

    @property
    def label(self) -> str:
        """For people: the file's name."""
        return Path(self.staged).stem

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "staged": self.staged,
            "content": self.content,
            "device": self.device,
            "threads": self.threads,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read back what ``to_json`` returned.

        Raises:
            InputError: a field is missing or unknown.
        """
        return parse_dataclass(cls, data, "job")

    def open(self) -> "TaskGpu":
        """Return the GPU of this machine."""
        return _gpu()

    def measured(self, beat: Callable[[], None] = lambda: None) -> list[Record]:
        """Time the programs.

        Each record's provenance has ``job``, ``networks``, ``hardware`` (what the device is made of), ``tree``, the text of
        the program's loop tree, ``code``, the numbers of its `MachineCode`, and what a thread takes, ``registers`` and
        ``frame_bytes``.

        Raises:
            InputError: the file cannot be read.
            MeasurementError: the GPU is another one than they are for, or a program has spoiled it.
        """
        task, gpu = StagedTask.load(self.staged), _gpu()
        records = []
        for program, found in zip(task.programs, gpu.time(task, task.programs), strict=True):
            more = {**program_json(program.tree, program.counted), "hardware": gpu.hardware.to_json()}
            records.append(self._record(task, gpu, program.config, found, more))
            beat()
        return records

    def _record(
        self, task: StagedTask, gpu: "TaskGpu", config: Config, found: Measurement, more: Mapping[str, object]
    ) -> Record:
        about = {**gpu.provenance, "tvm": task.tvm, "job": self.id, "networks": list(task.networks), **more}
        return Record.of(found, task.task, gpu, space_name(task.tvm, "cuda"), config, about)


@lru_cache(1)  # a process holds it as long as it lives
def _gpu() -> "TaskGpu":
    from tensorwise.tasks.gpu import TaskGpu

    return TaskGpu()


def staged_plan(folder: Path) -> list[StagedJob]:
    """Return the jobs of all files in ``folder``.

    Raises:
        InputError: there are none, or one is something else.
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise InputError(
            f"{folder} has no staged programs; make some: tensorwise tasks stage GPU --out {folder}"
        )
    return [StagedJob.of(path) for path in paths]
