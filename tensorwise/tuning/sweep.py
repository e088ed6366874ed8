"""The Sweep: what tuning all modes returns - an operator for each mode, on tensors that they may share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, final, overload

import numpy as np

from tensorwise.device.library import LIBRARY
from tensorwise.device.rounds import RoundTable
from tensorwise.device.timing import interleave, measuring_slot
from tensorwise.errors import TensorwiseError
from tensorwise.moved import renamed
from tensorwise.program.workload import Workload
from tensorwise.runtime.generated import BoundProgram, GeneratedKernel
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tuning.arrangement import Arrangement, Stored, Way
from tensorwise.tuning.operator import Operator, bind, operator_of
from tensorwise.units import time_text

LISTED: Final = 0.05
"""Share by which an alternative is faster than the smaller one before it in the report."""
ROUNDS: Final = 25
"""Undisturbed rounds of sweeps that are wanted."""


@final
@dataclass
class SweepResult:
    """Result and cost of a tuning of all modes.

    Attributes:
        workloads: one a mode.
        best: what the operators are, one of the alternatives.
        why: why this one, in words.
        alternatives: arrangements that no other one beats in both memory and time, from the smallest to the fastest.
        unshared: the fastest kernel of each mode, each with its own stored tensor: every mode tuned by itself.
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
    unshared: Arrangement
    baseline: Arrangement | None
    memory_bytes: int | None
    candidates: int
    tuning_s: float
    compile_s: float
    verified: bool
    notes: list[str] = field(default_factory=list)

    apart = renamed("unshared")

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
            "unshared": {**_json(self.unshared), "bytes_held": self.unshared.bytes_unshared},
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
        lines.append(f"{'sum':>10} {'sweep':>10} {'x best':>7} {'MB held':>9}  arrangement")
        rows = [(one, one.bytes_held, _tensors(one)) for one in self._shown()]
        rows.append(
            (self.unshared, self.unshared.bytes_unshared, "each mode tuned by itself, nothing shared")
        )
        if self.baseline is not None:
            rows.append((self.baseline, self.baseline.bytes_held, "the fastest libraries"))
        for one, nbytes, what in rows:
            swept = "–" if one.sweep_s is None else time_text(one.sweep_s)
            lines.append(
                f"{time_text(one.seconds):>10} {swept:>10}{'*' if one is best else ' '}{_times(one, best):>7} "
                f"{nbytes / 1e6:>9.4g}  {what}"
            )
        lines.append(
            f"chosen: {self.why}; {self.candidates} candidates tried; tuning {self.tuning_s:.1f} s "
            f"(compiling {self.compile_s:.1f} s), conversion {time_text(best.conversion_s)}"
        )
        lines.extend(f"note: {note}" for note in self.notes)
        return "\n".join(lines)

    def _shown(self) -> list[Arrangement]:
        """What was timed in sweeps, and alternatives that are clearly faster than the smaller one listed before."""
        shown: list[Arrangement] = []
        for one in self.alternatives:
            timed = one.sweep_s is not None
            if timed or not shown or one.seconds < (1 - LISTED) * shown[-1].seconds:
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
    works: Sequence[Workload],
    chosen: Arrangement,
    threads: int,
    notes: dict[str, None],
    packed: dict[Stored, BoundProgram],
) -> list[Operator]:
    """Bind each mode as chosen; modes that read the same tensor are given the same arrays.

    ``packed`` are programs whose tensors can be used, and is added to. Where binding fails in this process the mode is
    computed by SciPy, and ``notes`` say so.
    """

    read: set[Stored] = set()

    def bound(work: Workload, way: Way) -> Operator:
        if isinstance(way.kernel, str):
            return bind(LIBRARY[way.kernel](), work, threads)
        kernel, first = GeneratedKernel(way.kernel), packed.get(way.stored)
        work.check_memory(work.assignment.output.tensor)
        made = kernel.bind(work, threads) if first is None else first.sharing(way.kernel, work)
        if way.stored not in read:  # the first mode that reads a tensor bears its conversion
            made.conversion_s = packed.setdefault(way.stored, made).conversion_s
            read.add(way.stored)
        return operator_of(made, work, threads, kernel)

    operators: list[Operator] = []
    for work, way in zip(works, chosen.ways, strict=True):
        try:
            operators.append(bound(work, way))
        except (TensorwiseError, MemoryError) as error:
            notes[f"{way.name} cannot be bound here ({error}); this is SciPy"] = None
            operators.append(bind(LIBRARY["scipy"](), work, threads))
    return operators


def time_sweeps(
    works: Sequence[Workload], bound: Sequence[Sequence[Operator]], budget_s: float, seed: int
) -> RoundTable:
    """Time sweeps over all modes of several arrangements against each other; variants are named 0, 1, ...

    They run in this process, on random factors: what is called here has given right numbers in the worker.
    """
    rng, rank = np.random.default_rng(seed), works[0].sizes["r"]
    kind = works[0].dtype_of(works[0].dense[0])
    factors = [rng.random((extent, rank)).astype(kind) for extent in works[0].entries.shape]
    others = [[*factors[:mode], *factors[mode + 1 :]] for mode in range(len(factors))]
    results = [np.empty(work.output_shape, work.output_dtype) for work in works]

    def sweep(operators: Sequence[Operator]) -> None:
        for operator, given, out in zip(operators, others, results, strict=True):
            operator(*given, out=out)

    calls = {str(place): partial(sweep, operators) for place, operators in enumerate(bound)}
    with measuring_slot():
        return interleave(calls, ROUNDS, budget_s, rng)


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
    """Time over that of the best: of sweeps where both were timed, else of single calls."""
    if one.sweep_s is not None and best.sweep_s is not None:
        return f"{one.sweep_s / best.sweep_s:.2f}x"
    known = math.isfinite(one.seconds) and 0 < best.seconds < math.inf
    return f"{one.seconds / best.seconds:.2f}x" if known else "–"


def _json(found: Arrangement) -> dict[str, Any]:
    def number(seconds: float) -> float | None:
        return seconds if math.isfinite(seconds) else None

    return {
        "seconds": number(found.seconds),
        "sweep_s": found.sweep_s,
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
