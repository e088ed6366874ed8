"""The Sweep: what tuning all modes returns - an operator for each mode, on tensors that they may share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final, overload

from tensorwise.arrangement import NEAR, Arrangement, Stored, Way
from tensorwise.device.library import LIBRARY
from tensorwise.errors import TensorwiseError
from tensorwise.operator import Operator, bind
from tensorwise.program.generated import BoundProgram, GeneratedKernel
from tensorwise.program.workload import Workload
from tensorwise.tensor.fibertree import Tensor
from tensorwise.units import time_text


@final
@dataclass
class SweepResult:
    """What a tuning of all modes found, and its price.

    Attributes:
        workloads: one a mode.
        best: what the operators are, one of the alternatives.
        why: why this one, in words.
        alternatives: arrangements that no other one beats in both memory and time, from the smallest to the fastest.
        apart: the fastest kernel of each mode, each with a tensor of its own: what tuning the modes one by one gives.
        baseline: the fastest library kernel of each mode; None where no library has all of them.
        memory_bytes: the limit; None for none.
        candidates: how many candidates were tried.
        tuning_s: wall seconds of the whole tuning, compilation included; compile_s: of compilation.
        verified: the numbers of all modes were right, before and after timing.
        notes: what a reader should know.
    """

    workloads: Sequence[Workload]
    threads: int
    best: Arrangement
    why: str
    alternatives: Sequence[Arrangement]
    apart: Arrangement
    baseline: Arrangement | None
    memory_bytes: int | None
    candidates: int
    tuning_s: float
    compile_s: float
    verified: bool
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON: seconds and bytes, None for what was not measured."""
        work = self.workloads[0]
        return {
            "op": work.op,
            "threads": self.threads,
            "shape": list(work.entries.shape),
            "rank": work.sizes["r"],
            "nnz": work.entries.nnz,
            "dtype": work.dtype_text,
            "best": _json(self.best),
            "why": self.why,
            "alternatives": [_json(one) for one in self.alternatives],
            "apart": {**_json(self.apart), "bytes_held": self.apart.bytes_apart},
            "baseline": None if self.baseline is None else _json(self.baseline),
            "memory_bytes": self.memory_bytes,
            "candidates": self.candidates,
            "compile_s": self.compile_s,
            "tuning_s": self.tuning_s,
            "verified": self.verified,
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Return the answer for people: the operators, and what other arrangements take in time and memory."""
        work, best = self.workloads[0], self.best
        lines = [
            f"{work.op} in every mode of {' x '.join(map(str, work.entries.shape))}, {work.entries.nnz} entries, "
            f"{work.dtype_text}, rank {work.sizes['r']}, {self.threads} thread{'s'[: self.threads > 1]}",
            f"{'mode':<5} {'time':>10} {'spread':>9}  format; schedule",
        ]
        for mode, way in enumerate(best.ways):
            what = f"{way.stored.name}; {way.schedule}" if way.schedule else way.name
            lines.append(f"{mode:<5} {time_text(way.seconds):>10} {time_text(way.spread_s):>9}  {what}")
        lines.append(f"{'sweep':>10} {'x best':>7} {'MB held':>9}  arrangement")
        rows = [(one, one.bytes_held, _tensors(one)) for one in self._shown()]
        rows.append((self.apart, self.apart.bytes_apart, "each mode tuned by itself, nothing shared"))
        if self.baseline is not None:
            rows.append((self.baseline, self.baseline.bytes_held, "the fastest libraries"))
        for one, nbytes, what in rows:
            marker = "*" if one is best else " "
            lines.append(
                f"{time_text(one.seconds):>10}{marker}{_times(one, best):>7} {nbytes / 1e6:>9.4g}  {what}"
            )
        lines.append(
            f"chosen: {self.why}; {self.candidates} candidates tried; tuning {self.tuning_s:.1f} s "
            f"(compiling {self.compile_s:.1f} s), conversion {time_text(best.conversion_s)}"
        )
        lines.extend(f"note: {note}" for note in self.notes)
        return "\n".join(lines)

    def _shown(self) -> list[Arrangement]:
        """The best arrangement, and the alternatives that are clearly faster than the smaller ones listed before."""
        shown: list[Arrangement] = []
        for one in self.alternatives:
            if one is self.best or not shown or one.seconds < (1 - NEAR) * shown[-1].seconds:
                shown.append(one)
        return shown


@final
class Sweep(Sequence[Operator]):
    """Tuned operators for all modes of one tensor: ``sweep[mode](*factors)``.

    The factors are those of the other modes, in the order of the modes: (extent, rank) each; the result is
    (extent of ``mode``, rank).

    Attributes:
        operators: one a mode. Operators that read the same format read the same arrays.
        result: what the tuning measured.
    """

    def __init__(self, operators: Sequence[Operator], result: SweepResult) -> None:
        self.operators, self.result = tuple(operators), result

    @overload
    def __getitem__(self, mode: int) -> Operator: ...
    @overload
    def __getitem__(self, mode: slice) -> Sequence[Operator]: ...
    def __getitem__(self, mode: int | slice) -> Operator | Sequence[Operator]:
        """Return the operator of a mode."""
        return self.operators[mode]

    def __len__(self) -> int:
        return len(self.operators)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The packed tensors, each once."""
        return tuple({id(t): t for operator in self.operators for t in operator.tensors.values()}.values())

    @property
    def bytes_held(self) -> int:
        """Bytes of the packed tensors, each counted once, and of workspaces."""
        return bytes_held(self.operators)

    def report(self) -> str:
        """Return what the tuning found as text: kernels, times, memory, and the other arrangements."""
        return self.result.text()

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.operators[0].shape))
        kept = len(self.result.best.stored)
        return (
            f"<Sweep {self.operators[0].workload.op} {shape}: {len(self)} modes, {kept} stored tensor{'s'[: kept > 1]}, "
            f"{self.bytes_held / 1e6:.2f} MB>"
        )


def bind_all(
    works: Sequence[Workload], chosen: Arrangement, threads: int, notes: dict[str, None]
) -> list[Operator]:
    """Bind each mode as chosen; modes that read the same tensor are given the same arrays.

    Where that fails in this process the mode is computed by SciPy, and ``notes`` say so.
    """
    packed: dict[Stored, BoundProgram] = {}

    def bound(work: Workload, way: Way) -> Operator:
        if isinstance(way.kernel, str):
            return bind(LIBRARY[way.kernel](), work, threads)
        kernel, first = GeneratedKernel(way.kernel), packed.get(way.stored)
        work.check_memory(work.assignment.output.tensor)
        made = kernel.bind(work, threads) if first is None else first.sharing(way.kernel, work)
        packed.setdefault(way.stored, made)
        return Operator(made, work, threads, kernel)

    operators: list[Operator] = []
    for work, way in zip(works, chosen.ways, strict=True):
        try:
            operators.append(bound(work, way))
        except (TensorwiseError, MemoryError) as error:
            notes[f"{way.name} cannot be bound here ({error}); this is SciPy"] = None
            operators.append(bind(LIBRARY["scipy"](), work, threads))
    return operators


def bytes_held(operators: Sequence[Operator]) -> int:
    """Return the bytes that operators hold together, tensors that they share counted once."""
    held = {id(t): t.nbytes for operator in operators for t in operator.tensors.values()}
    alone = (o.bytes_held - sum(t.nbytes for t in o.tensors.values()) for o in operators)
    return sum(held.values()) + sum(alone)


def _tensors(found: Arrangement) -> str:
    """What is kept, and for which modes."""
    shown = [
        f"{one.name} for {'modes' if len(modes) > 1 else 'mode'} {', '.join(map(str, modes))}"
        for one in found.stored
        for modes in [found.readers(one)]
    ]
    return f"{len(shown)} tensor{'s'[: len(shown) > 1]}: {'; '.join(shown)}"


def _times(one: Arrangement, best: Arrangement) -> str:
    ratio = one.seconds / best.seconds if math.isfinite(one.seconds) and best.seconds else math.nan
    return f"{ratio:.2f}x" if math.isfinite(ratio) else "–"


def _json(found: Arrangement) -> dict[str, Any]:
    def number(seconds: float) -> float | None:
        return seconds if math.isfinite(seconds) else None

    return {
        "seconds": number(found.seconds),
        "bytes_held": found.bytes_held,
        "conversion_s": found.conversion_s,
        "tensors": [
            {"format": one.name, "bytes": one.nbytes, "modes": list(found.readers(one))}
            for one in found.stored
        ],
        "modes": [
            {
                "name": way.kernel if isinstance(way.kernel, str) else "tensorwise",
                "format": "" if isinstance(way.kernel, str) else way.stored.name,
                "schedule": way.schedule,
                "seconds": number(way.seconds),
                "workspace_bytes": way.workspace_bytes,
            }
            for way in found.ways
        ],
    }
