"""Programs: what records say of programs on devices, as arrays; split so that nothing held out is known from elsewhere."""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, TypeAlias, final

import numpy as np

from tensorwise.analysis.ast import CompactAst
from tensorwise.analysis.code import CODE
from tensorwise.analysis.hardware import HARDWARE
from tensorwise.analysis.loop_tree import LoopTree
from tensorwise.analysis.machine_code import MachineCode
from tensorwise.device.hardware import Hardware
from tensorwise.errors import InputError
from tensorwise.store.record import Record

SPREAD: Final = 0.5
"""Records whose middle half of samples is spread over more than this share of their time are left out."""

ProgramKey: TypeAlias = tuple[str, str, str]
"""Task, kind of device, and schedule: one of a CPU may be called like one of a GPU."""


@final
@dataclass(frozen=True, eq=False)
class Measured:
    """One program on one device.

    Attributes:
        task: id of the computation; networks: names of the networks that contain it.
        device: name; hardware: what it is made of.
        text: of the program's loop tree; ast: made of it.
        config: of the schedule, as text.
        flops, bytes: of the task, whatever the schedule.
        seconds: its time; the least if it was timed several times, since other processes can only slow it down.
        again: all these times.
    """

    task: str
    networks: frozenset[str]
    device: str
    hardware: Hardware
    text: str
    ast: CompactAst
    config: str
    flops: float
    bytes: float
    seconds: float
    again: tuple[float, ...]

    @property
    def key(self) -> ProgramKey:
        """What is the same on every device where the same program runs."""
        return self.task, self.hardware.kind, self.config


@final
@dataclass(frozen=True, eq=False)
class Programs:
    """Measured programs, in a fixed order."""

    rows: tuple[Measured, ...]

    @classmethod
    def of(cls, records: Iterable[Record]) -> Self:
        """Return the programs of all records that ended well and know their program and their device.

        Raises:
            InputError: a tree, a device or what was counted in compiled code is malformed.
        """
        asts: dict[str, CompactAst] = {}
        machines: dict[str, Hardware] = {}
        kept: dict[tuple[str, str, str], list[Record]] = {}
        for record in records:
            known = record.provenance.keys() >= {"tree", "hardware", "device"}
            if record.ok and record.is_isolated and known and record.spread_s <= SPREAD * record.seconds:
                key = (record.workload_id, record.config.text, str(record.provenance["device"]))
                kept.setdefault(key, []).append(record)
        rows = []
        for (task, config, device), some in sorted(kept.items(), key=lambda one: one[0]):
            about, facts = some[0].provenance, some[0].workload
            text, networks = str(about["tree"]), about.get("networks", ())
            program = text + json.dumps(about.get("code"), sort_keys=True)
            if program not in asts:
                asts[program] = CompactAst.of(LoopTree.from_text(text), compiled=MachineCode.within(about))
            if device not in machines:  # measured anew on another day it is the same device
                machines[device] = Hardware.from_json(about["hardware"])  # type: ignore[arg-type]
            times = tuple(record.seconds for record in some)
            rows.append(
                Measured(
                    task, frozenset(map(str, networks)), device, machines[device], text, asts[program], config,  # type: ignore[call-overload]
                    float(facts.get("flops", 0)), float(facts.get("bytes", 0)), min(times), times,  # type: ignore[arg-type]
                )
            )  # fmt: skip
        return cls(tuple(rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Measured]:
        return iter(self.rows)

    def where(self, kept: Sequence[bool] | np.ndarray) -> "Programs":
        """Return those rows for which ``kept`` is true."""
        return Programs(tuple(row for row, keep in zip(self.rows, kept, strict=True) if keep))

    def uncompiled(self) -> "Programs":
        """Return them as programs that no compiler has seen."""
        return Programs(tuple(replace(row, ast=row.ast.uncompiled()) for row in self.rows))

    @property
    def compiled(self) -> np.ndarray:
        """(n,) bool: of which it is known what a compiler made of them."""
        return np.array([row.ast.compiled for row in self.rows], bool)

    def on(self, devices: Collection[str]) -> "Programs":
        """Return the programs on devices of these names."""
        return self.where([row.device in devices for row in self.rows])

    @property
    def devices(self) -> list[str]:
        """Names, sorted."""
        return sorted({row.device for row in self.rows})

    @property
    def batches(self) -> dict[str, list[int]]:
        """Batches of the networks with these tasks, by kind of device: of ``resnet50-b4`` 4."""
        found: dict[str, set[int]] = {}
        for row in self.rows:
            sizes = [name.rpartition("-b")[2] for name in row.networks]
            found.setdefault(row.hardware.kind, set()).update(int(size) for size in sizes if size.isdigit())
        return {kind: sorted(sizes) for kind, sizes in sorted(found.items())}

    @property
    def tasks(self) -> list[str]:
        """Ids, sorted."""
        return sorted({row.task for row in self.rows})

    @property
    def by_task(self) -> dict[str, list[CompactAst]]:
        """The programs of each task, by its id."""
        found: dict[str, list[CompactAst]] = {}
        for row in self.rows:
            found.setdefault(row.task, []).append(row.ast)
        return found

    @property
    def seconds(self) -> np.ndarray:
        """(n,) float64."""
        return np.array([row.seconds for row in self.rows], float)

    @property
    def context(self) -> np.ndarray:
        """See `context_of`."""
        return context_of([row.ast for row in self.rows], [row.hardware for row in self.rows])

    @property
    def noise(self) -> float:
        """Median ratio of two times of one program on one device, less 1; NaN where no program was timed twice."""
        ratios = [
            abs(np.log(b / a))
            for row in self.rows
            for place, a in enumerate(row.again)
            for b in row.again[:place]
        ]
        return float(np.expm1(np.median(ratios))) if ratios else float("nan")

    def without(self, networks: Collection[str]) -> tuple["Programs", "Programs"]:
        """Return (known, held out): all tasks that occur in one of ``networks`` are in the second, and in no other.

        Args:
            networks: names, whatever the batch: ``resnet50`` stands for ``resnet50-b1`` and ``resnet50-b8``.

        Raises:
            InputError: no program is of one of them, or none is left.
        """
        of = self._networks()
        inside = [not of[row.task].isdisjoint(networks) for row in self.rows]
        held, known = self.where(inside), self.where([not one for one in inside])
        if not len(held) or not len(known):
            raise InputError(f"no programs are {'left without' if len(held) else 'of'} {', '.join(networks)}")
        return known, held

    def divided(self, share: float, rng: np.random.Generator) -> tuple["Programs", "Programs"]:
        """Divide tasks in two: networks are drawn at random until the tasks that only they have are a ``share`` of all.

        These tasks are the second part, as unlike the first as those of a held-out network. A task of no network counts as a
        network of its own.
        """
        of = {task: networks or {task} for task, networks in self._networks().items()}
        names = sorted(set().union(*of.values())) if of else []
        drawn: set[str] = set()
        inside: set[str] = set()
        for place in rng.permutation(len(names)):
            if len(inside) >= share * len(of):
                break
            drawn.add(names[place])
            inside = {task for task, networks in of.items() if networks <= drawn}
        mask = [row.task in inside for row in self.rows]
        return self.where([not one for one in mask]), self.where(mask)

    def _networks(self) -> dict[str, set[str]]:
        """The names of the networks with each task, whatever the batch: different records may know of different ones."""
        found: dict[str, set[str]] = {}
        for row in self.rows:
            found.setdefault(row.task, set()).update(map(network_name, row.networks))
        return found

    def by_leaves(self) -> dict[int, np.ndarray]:
        """Return places of rows by their number of leaves, ascending."""
        counts = np.array([len(row.ast.leaves) for row in self.rows])
        return {int(count): np.flatnonzero(counts == count) for count in np.unique(counts)}

    def by_network(self) -> dict[tuple[str, str], list[int]]:
        """Return places of rows by network and device; a program is in each network that has its task."""
        found: dict[tuple[str, str], list[int]] = {}
        for place, row in enumerate(self.rows):
            for network in sorted(row.networks):
                found.setdefault((network, row.device), []).append(place)
        return found

    def ranks_apart(self, one: str, other: str, *, within_tasks: bool = False) -> float:
        """Return Spearman's correlation between the times of the programs that two devices have in common; NaN: too few.

        Args:
            within_tasks: divide times by the geometric mean of their task first. Large tasks take longer than small ones on
                any device; this shows whether the schedules of a task rank alike.
        """
        from tensorwise.model.metrics import spearman

        times: Mapping[str, dict[ProgramKey, float]] = {one: {}, other: {}}
        for row in self.rows:
            if row.device in times:
                times[row.device][row.key] = math.log(row.seconds)
        both = sorted(times[one].keys() & times[other].keys())
        if len(both) < 3:
            return float("nan")
        found = [np.array([times[device][key] for key in both]) for device in (one, other)]
        if within_tasks:
            _, of = np.unique([task for task, *_ in both], return_inverse=True)
            found = [logs - (np.bincount(of, logs) / np.bincount(of))[of] for logs in found]
            several = np.bincount(of)[of] > 1
            found = [logs[several] for logs in found]
        return spearman(*found)

    def counts(self, least: int, most: int) -> tuple[int, ...]:
        """Return the numbers of leaves, at most ``most``, that at least ``least`` programs have."""
        found = Counter(len(row.ast.leaves) for row in self.rows)
        return tuple(sorted(count for count, times in found.items() if times >= least and count <= most))


def context_of(asts: Sequence[CompactAst], hardware: Sequence[Hardware]) -> np.ndarray:
    """Return the numbers of each program's device, of its operands, and of its compiled code: (n, fields) float32.

    Raises:
        InputError: not all programs have as many numbers of operands.
    """
    known = {id(one): HARDWARE.features(one) for one in hardware}
    widths = {len(ast.operands) for ast in asts}
    if len(widths) > 1:
        raise InputError(
            f"programs with {' and '.join(map(str, sorted(widths)))} numbers of operands are not read together"
        )
    rows = [
        np.concatenate([known[id(one)], ast.operands, ast.code])
        for ast, one in zip(asts, hardware, strict=True)
    ]
    width = len(HARDWARE.fields) + max(widths, default=0) + len(CODE.fields)
    return np.array(rows, np.float32).reshape(len(asts), width)


def network_name(network: str) -> str:
    """Return a network's name whatever the batch: ``resnet50`` of ``resnet50-b1``."""
    name, dash, batch = network.rpartition("-b")
    return name if dash and batch.isdecimal() else network
