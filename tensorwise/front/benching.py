"""``tensorwise bench``: the default kernel against the libraries, without a search."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from tensorwise.device.cpu import CpuDevice
from tensorwise.device.device import Rounds
from tensorwise.device.library import available
from tensorwise.errors import MeasurementError
from tensorwise.lower.program import Program
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.space.cpu import cpu_space_of
from tensorwise.tensor.entries import Entries
from tensorwise.toolchain.threads import granted_threads
from tensorwise.units import time_text

OURS = GeneratedKernel.name


@final
@dataclass(frozen=True)
class Benched:
    """Times of the default kernel and of the libraries in the same rounds."""

    workload: Workload
    threads: int
    program: Program
    rounds: Rounds

    @property
    def seconds(self) -> dict[str, float]:
        """Kernel -> median seconds of a call, fastest first."""
        table = self.rounds.table
        names = [name for name in table.names if name not in self.rounds.failed] if table else []
        return dict(sorted(((n, table.median(n)) for n in names if table), key=lambda item: item[1]))

    @property
    def ratio(self) -> float | None:
        """Time of ours over that of the best library, median of in-round ratios."""
        library = next((name for name in self.seconds if name != OURS), None)
        if library is None or OURS not in self.seconds or self.rounds.table is None:
            return None
        return self.rounds.table.ratio(OURS, library).median

    def to_json(self) -> dict[str, Any]:
        """Return what ``bench --json`` prints; the keys are documented and stable."""
        table, work = self.rounds.table, self.workload
        return {
            "op": work.op,
            "threads": self.threads,
            "sizes": dict(work.sizes),
            "nnz": work.entries.nnz,
            "dtype": work.dtype_text,
            "format": self.program.format_text,
            "schedule": self.program.schedule_text,
            "seconds": self.seconds,
            "spread_s": {name: table.spread(name) for name in self.seconds} if table else {},
            "conversion_s": self._facts("conversion_s"),
            "bytes_held": self._facts("bytes_held"),
            "ratio_to_best_library": self.ratio,
            "rounds": len(table.rounds) if table else 0,
            "failed": dict(self.rounds.failed),
            "notes": [table.note] if table and table.note else [],
        }

    def text(self) -> str:
        """Return the same for people."""
        work = self.workload
        lines = [
            f"{work.op} on {' x '.join(map(str, work.entries.shape))}, {work.entries.nnz} entries, "
            f"{work.dtype_text}, threads: {self.threads}; {self.program.name}"
        ]
        best = min(self.seconds.values())
        spread, conversion = self.to_json()["spread_s"], self._facts("conversion_s")
        lines.append(f"{'kernel':<12} {'time':>10} {'spread':>10} {'x best':>7} {'conversion':>11}")
        for name, seconds in self.seconds.items():
            lines.append(
                f"{name:<12} {time_text(seconds):>10} {time_text(spread[name]):>10} {seconds / best:>6.2f}x "
                f"{time_text(conversion.get(name, 0.0)):>11}"
            )
        lines += [f"note: {name} dropped out: {why}" for name, why in self.rounds.failed.items()]
        lines += [f"note: {note}" for note in self.to_json()["notes"]]
        return "\n".join(lines)

    def _facts(self, key: str) -> dict[str, float]:
        facts: Mapping[str, Mapping[str, float]] = self.rounds.facts
        return {name: facts[name][key] for name in self.seconds if name in facts}


def bench(
    entries: Entries,
    op: str,
    *,
    n: int | None = None,
    mode: int = 0,
    threads: int | None = None,
    budget_s: float = 5.0,
    seed: int = 0,
) -> Benched:
    """Time the space's default program and every library that has the routine.

    Raises:
        InputError: the operand does not fit the operation, or dense operands and output not into memory.
        MeasurementError: nothing could be timed.
    """
    work = workload(op, entries, n=n, mode=mode)
    work.check_memory(*work.dense, work.assignment.output.tensor)
    space = cpu_space_of(work)
    program = space.program(work, space.default(work))
    count = granted_threads(threads)
    kernels: dict[str, Program | str] = {OURS: program}
    kernels |= {kernel.name: kernel.name for kernel in available(work)}
    with CpuDevice(count, seed=seed) as device:
        rounds = device.rounds(work, kernels, budget_s=budget_s, max_rounds=30)
    if rounds.table is None or not rounds.table.seconds:
        why = "; ".join(f"{name}: {note}" for name, note in rounds.failed.items())
        raise MeasurementError(f"nothing could be timed ({why or 'no kernel answered'})")
    return Benched(work, count, program, rounds)
