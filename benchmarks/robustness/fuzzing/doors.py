"""The doors: where foreign bytes and objects enter, with valid inputs of each. A row of DOORS is a door."""

import importlib.util
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fuzzing import files, objects, texts

Run = Callable[[random.Random, Path], object]


@dataclass(frozen=True)
class Door:
    """A door.

    Attributes:
        name: of the door.
        run: change a valid input at random and let it in, in a folder for files.
        weight: its share of the cases: what takes longer has fewer.
        needs: an optional package that makes the inputs.
    """

    name: str
    run: Run
    weight: float = 1.0
    needs: str = ""

    @property
    def works(self) -> bool:
        """Whether the optional package that its inputs are made with is installed."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None

    def prepare(self, folder: Path) -> None:
        """Make what all cases share, before forks: an unchanged run imports what is imported late."""
        place = folder / "prepare"
        place.mkdir(exist_ok=True)
        for number in range(20):
            try:
                self.run(random.Random(number), place)
            except BaseException as error:  # the campaign says what is wrong
                if isinstance(error, KeyboardInterrupt):
                    raise


_RUNS: Final[dict[str, tuple[Run, float]]] = {
    "mtx": (files.mtx, 2),
    "mtx.gz": (files.mtx_gz, 1),
    "tns": (files.tns, 2),
    "tns.gz": (files.tns_gz, 1),
    "npz": (files.npz, 1),
    "binsparse": (files.binsparse, 0.05),
    "operator": (files.operator, 1),
    "model": (files.model, 0.5),
    "graph": (files.graph, 0.5),
    "store": (files.store, 0.15),
    "spool": (files.spool, 0.7),
    "parquet": (files.parquet, 0.15),
    "machine": (files.machine, 1),
    "task": (files.task, 1),
    "plan": (files.plan, 1),
    "tenset": (files.tenset, 1),
    "manifest": (files.manifest, 0.5),
    "npy": (files.npy, 0.5),
    "figures": (files.figures, 1),
    "format": (texts.format_text, 2),
    "schedule": (texts.schedule, 2),
    "einsum": (texts.einsum, 2),
    "program": (texts.program, 0.7),
    "tvmscript": (texts.tvmscript, 0.7),
    "record": (texts.record, 2),
    "row": (texts.row, 1),
    "config": (texts.config, 1),
    "job": (texts.job, 2),
    "answer": (texts.answer, 1),
    "measurement": (texts.measurement, 1),
    "loop tree": (texts.loop_tree, 1),
    "small texts": (texts.small, 1),
    "dtype": (texts.dtype, 1),
    "json": (texts.plain_json, 2),
    "environment": (texts.environment, 1),
    "arguments": (texts.arguments, 0.1),
    "scipy": (objects.scipy_matrix, 2),
    "numpy": (objects.numpy_array, 1),
    "tuple": (objects.triple, 2),
    "torch": (objects.torch_tensor, 1),
    "edges": (objects.edges, 0.7),
    "operands": (objects.operands, 1),
    "sizes": (objects.sizes, 1),
}
_NEEDS: Final = {"parquet": "pyarrow", "torch": "torch", "binsparse": "h5py"}
DOORS: Final = {name: Door(name, run, weight, _NEEDS.get(name, "")) for name, (run, weight) in _RUNS.items()}
