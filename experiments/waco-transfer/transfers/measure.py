"""What is measured under a setting, in a process that has it: a search, or programs that were chosen elsewhere."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.baselines.fixed_csr import FixedCsr
from benchmarks.corpus import entries_of
from benchmarks.kernels.measure import Contest, explore_seeds, fastest, short
from tensorwise.device.cpu import CpuDevice
from tensorwise.device.timing import measuring_slot
from tensorwise.errors import InputError
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.toolchain.processor import vector_bytes
from tensorwise.tuning.tune import FINALISTS

WIDTHS = {16: "128-bit code", 32: "AVX2", 64: "AVX-512"}
"""Names of the widths of vectors."""


@dataclass(frozen=True)
class Settings:
    """What the figures depend on; ``values.toml`` explains each."""

    columns: int
    trials: int
    seeds: Sequence[int]
    search_s: float
    top: int
    choosing_rounds: int
    choosing_s: float
    reporting_rounds: int
    reporting_s: float

    def n(self, op: str) -> int | None:
        """Return the extent of the dense-only index."""
        return None if op == "spmv" else self.columns


@dataclass(frozen=True)
class Setting:
    """A setting of this machine: bytes of a vector and threads of a call."""

    vector_bytes: int
    threads: int

    @property
    def name(self) -> str:
        """For people: ``AVX2, 1 thread``."""
        return f"{WIDTHS[self.vector_bytes]}, {self.threads} thread{'s'[: self.threads > 1]}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of a process that has it."""
        return {"TENSORWISE_VECTOR_BYTES": str(self.vector_bytes)}


def two_settings() -> tuple[Setting, Setting]:
    """Return narrower vectors and one thread, and the widest that this processor has and two threads.

    Raises:
        InputError: there is one width only.
    """
    widest = vector_bytes()
    if widest == min(WIDTHS):
        raise InputError("this processor has vectors of one width only: there is no second setting")
    return Setting(widest // 2, 1), Setting(widest, 2)


@functools.cache
def _device(setting: Setting) -> CpuDevice:
    """The device of this process, which has the setting."""
    if vector_bytes() != setting.vector_bytes:
        raise InputError(f"this process has vectors of {vector_bytes()} bytes, not {setting.vector_bytes}")
    return CpuDevice(setting.threads)


def _work(path: Path, op: str, settings: Settings) -> Workload:
    return workload(op, entries_of(path), n=settings.n(op))


def searched(path: Path, op: str, setting: Setting, settings: Settings) -> dict[str, Any]:
    """Search, and return the fastest few configs by what one measurement says, and the best by rounds."""
    work, device = _work(path, op, settings), _device(setting)
    found = explore_seeds(work, device, settings.trials, settings.search_s, settings.seeds)
    best = fastest(work, device, found.fastest(FINALISTS), settings.choosing_rounds, settings.choosing_s)
    program = cpu_space(work.assignment, "A").program(work, best)
    return {
        "tried": found.tried,
        "seconds": short(found.seconds),
        "best": best.text,
        "program": program.name,
        "named": [config.text for config in found.fastest(settings.top)],
    }


def compared(
    path: Path, op: str, setting: Setting, chosen: Mapping[str, Mapping[str, Any]], settings: Settings
) -> dict[str, Any]:
    """Time what was chosen under each setting, and Fixed CSR, in fresh rounds under this one.

    Args:
        chosen: name of a setting -> what ``searched`` returned there. Of each, ``as it is`` is the best program;
            ``measured here`` is the fastest here of the few that were named there.

    Returns:
        ``speedup``: for each choice its speed-up over Fixed CSR: median of ratios within a round, and the bounds of its
        95 % interval. A choice that this setting does not allow moves to the nearest that it does.
    """
    work, device = _work(path, op, settings), _device(setting)
    space = cpu_space(work.assignment, "A")
    configs = {"default": space.default(work)}
    for name, there in chosen.items():
        configs[f"{name}: as it is"] = space.complete(Config.parse(there["best"]), work)
        if name == setting.name:
            continue
        few = list(dict.fromkeys(space.complete(Config.parse(text), work) for text in there["named"]))
        measured = list(device.measure(work, few))
        places = sorted((one.seconds, place) for place, one in enumerate(measured) if one.ok)
        timed = [few[place] for _, place in places[:FINALISTS]]
        best = fastest(work, device, timed, settings.choosing_rounds, settings.choosing_s)
        configs[f"{name}: measured here"] = best
    programs = {name: space.program(work, config) for name, config in configs.items()}
    first: dict[str, str] = {}  # of names for the same program one is timed
    for name, program in programs.items():
        first.setdefault(program.name, name)
    with measuring_slot() as slot:
        contest = Contest(work, setting.threads, settings.seeds[0])
        contest.enter("fixed_csr", FixedCsr())
        contest.enter("again", FixedCsr())
        for name in first.values():
            contest.enter(name, GeneratedKernel(programs[name]))
        table = contest.time(list(contest.bound), settings.reporting_rounds, settings.reporting_s)
        contest.check()
        contest.close()
    if "fixed_csr" in contest.failed:
        raise InputError(f"Fixed CSR: {contest.failed['fixed_csr']}")
    timed_as = {name: first[program.name] for name, program in programs.items()} | {"again": "again"}
    right = {name: one for name, one in timed_as.items() if one not in contest.failed}
    ratios = {name: table.ratio("fixed_csr", one) for name, one in right.items()}
    return {
        "speedup": {name: [short(x) for x in (r.median, r.low, r.high)] for name, r in ratios.items()},
        "programs": {name: program.name for name, program in programs.items()},
        "failed": {name: contest.failed[one] for name, one in timed_as.items() if one in contest.failed},
        "rounds": len(table.rounds),
        "note": "; ".join(filter(None, (slot.note, table.note))),
    }
