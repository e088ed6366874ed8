"""Groups of each machine's records, with what configs do on their patterns as it was counted. What was counted is kept."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.splits import family_of
from tensorwise.collect.corpus import Pattern
from tensorwise.collect.workloads import Workloads
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.model import RankingModel
from tensorwise.model.samples import Group, Training, groups_of
from tensorwise.program.einsum import Einsum
from tensorwise.program.workload import Workload
from tensorwise.space.cpu import cpu_space
from tensorwise.space.space import Space
from tensorwise.store.reading import records_of
from tensorwise.store.record import Record


@dataclass(frozen=True)
class Machines:
    """What is known of one operation on several machines.

    Attributes:
        space: whose configs were measured.
        groups: machine -> a group for each of its jobs.
        works: finds workloads by id; read once, and kept.
    """

    space: Space
    groups: Mapping[str, list[Group]]
    works: "Works"

    def model(self, training: Training, heads: int) -> RankingModel:
        """Return a model that has learned nothing yet."""
        return RankingModel(self.space, self.works, net="statistics", training=training, heads=heads)


@dataclass(frozen=True)
class Works:
    """Workload id -> the workload, read when it is asked for the first time."""

    workloads: Workloads
    firsts: Mapping[str, Record]
    _held: dict[str, Workload] = field(default_factory=dict)

    def __call__(self, workload_id: str) -> Workload:
        """Return the workload of an id."""
        if workload_id not in self._held:
            self._held[workload_id] = self.workloads.of(self.firsts[workload_id])
        return self._held[workload_id]


def machine_groups(
    files: Mapping[str, tuple[Path, int]], op: str, patterns: list[Pattern], cache: Path
) -> Machines:
    """Read the records of one operation, of its most frequent einsum.

    Args:
        files: machine -> its records, and on how many threads those were measured that count; machines without records of
            the operation are left out.

    Raises:
        InputError: no two machines have any.
    """
    workloads = Workloads(patterns)
    jobs: dict[str, defaultdict[tuple[str, object], list[Record]]] = {}
    einsums: defaultdict[str, int] = defaultdict(int)
    for name, (path, threads) in files.items():
        found = defaultdict[tuple[str, object], list[Record]](list)
        for record in records_of([path]):
            if record.op == op and record.provenance.get("threads") == threads and workloads.has(record):
                found[record.workload_id, record.provenance.get("job")].append(record)
                einsums[str(record.workload["einsum"])] += 1
        if found:
            jobs[name] = found
    if len(jobs) < 2:
        raise InputError(
            f"only {', '.join(jobs) or 'nothing'} has records of {op} of patterns of this corpus"
        )
    einsum = max(einsums, key=lambda name: einsums[name])
    kept = {
        name: [some for some in found.values() if some[0].workload["einsum"] == einsum]
        for name, found in jobs.items()
    }
    firsts = {some[0].workload_id: some[0] for of_one in kept.values() for some in of_one}
    space, works = cpu_space(Einsum.parse(einsum).single), Works(workloads, firsts)
    reader = RankingModel(space, works)
    return Machines(
        space,
        {name: [g for some in of_one for g in _groups(reader, some, cache)] for name, of_one in kept.items()},
        works,
    )


def _groups(reader: RankingModel, records: list[Record], cache: Path) -> list[Group]:
    """The group of a job, none where nothing in it can be compared. What loops do is read back where it was counted."""
    about = content_id([reader.form.id, *(record.to_json() for record in records)])
    path = cache / f"{about}.npy"
    try:
        (group,) = groups_of(records, reader.table.space, reader.table)
        if not path.exists():
            (whole,) = reader.groups(records)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.asarray(whole.configs.nests), allow_pickle=False)
    except InputError:
        return []
    nests = np.load(path, allow_pickle=False)
    return [replace(group, family=family_of(records[0]), configs=replace(group.configs, nests=nests))]
