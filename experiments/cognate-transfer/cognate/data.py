"""Groups of the target, from the table of simulated seconds, and of the source, from CPU records. What is read is kept.

A group's numbers are those of the workload's shape, and after them statistics of its pattern.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import UnfinishedError
from benchmarks.splits import family_of, splits
from tensorwise.collect.augment import Augmentation
from tensorwise.collect.corpus import Pattern, read_pattern
from tensorwise.collect.workloads import Workloads
from tensorwise.device.spade import SpadeDevice
from tensorwise.errors import InputError
from tensorwise.model.additive import AdditiveModel
from tensorwise.model.samples import Group, featurizer, shape_numbers
from tensorwise.model.table import Encoded
from tensorwise.program.workload import Workload, workload
from tensorwise.space.cpu import cpu_space_of
from tensorwise.store.record import Record

Left = Callable[[], bool]
"""Whether there is time for more."""
Reads = dict[str, Callable[[], Workload]]


def targets(
    table: Path,
    patterns: list[Pattern],
    op: str,
    device: SpadeDevice,
    cache: Path,
    left: Left,
    reads: Reads | None = None,
) -> dict[str, Group]:
    """Return a group of all configs for each pattern of the table whose configs take 128 different times, by name.

    Args:
        reads: gets, by workload id, what reads each workload.

    Raises:
        InputError: the table is of another machine.
        UnfinishedError: there is no time left.
    """
    from pyarrow.parquet import read_table

    found, files = read_table(table), {one.name: one for one in patterns}
    about = {key.decode(): value.decode() for key, value in found.schema.metadata.items()}
    if about["machine_id"] != device.id:
        raise InputError(
            f"{table} is of the machine {about['machine_id']}, not of {device.id}: simulate it again"
        )
    groups: dict[str, Group] = {}
    for row in found.to_pylist():
        seconds = np.array(row["seconds"])
        kept = cache / f"{device.id[:8]}-{row['workload_id']}.npz"
        if row["op"] != op or len(set(row["seconds"])) < 128:
            continue
        read = functools.partial(target_workload, op, files, row["pattern"], int(about["n"]))
        if reads is not None:
            reads[row["workload_id"]] = read
        if not kept.exists():
            _check(left, f"{len(groups)} matrices of the target")
            work = read()
            configs = list(device.space(work).enumerate(work))
            model = AdditiveModel(device.space(work), {work.id: work}.__getitem__)
            model.reader = model.make_reader(device.space(work), work)
            default = configs.index(device.space(work).default(work))
            _keep(
                kept,
                model.reader.encode(work, configs),
                shape_numbers(work.describe()),
                seconds,
                seconds > 0,
                seconds[default],
            )
        group = _kept(kept, row["workload_id"], splits().family(row["pattern"], row["family"]))
        groups[row["pattern"]] = _with_statistics(group, read, cache, left)
    return groups


def target_workload(op: str, files: Mapping[str, Pattern], pattern: str, n: int) -> Workload:
    """Return the workload of a pattern by name; behind ``~`` stands how it is enlarged (``Augmentation``)."""
    name, _, change = pattern.partition("~")
    return workload(op, read_pattern(files[name].path, Augmentation.parse(change) if change else None), n=n)


def sources(
    records: list[Record],
    patterns: list[Pattern],
    most: int,
    cache: Path,
    left: Left,
    reads: Reads | None = None,
) -> list[Group]:
    """Return the groups of CPU records of one operation, of patterns with up to ``most`` entries; ``reads`` as in `targets`.

    Raises:
        UnfinishedError: there is no time left.
    """
    workloads, jobs = Workloads(patterns), defaultdict[tuple[str, object], list[Record]](list)
    for record in records:
        if workloads.has(record) and int(record.workload["nnz"]) <= most:  # type: ignore[call-overload]
            jobs[record.workload_id, record.provenance.get("job")].append(record)
    groups: list[Group] = []
    for (workload_id, job), some in jobs.items():
        kept = cache / f"cpu-{workload_id}-{job}.npz"
        if not kept.exists():
            _check(left, f"{len(groups)} workloads of the source")
            work = workloads.of(some[0])
            model = AdditiveModel(cpu_space_of(work), {work.id: work}.__getitem__)
            try:
                (group,) = model.groups(some)
            except InputError:  # nothing in it can be compared
                continue
            _keep(kept, group.configs, group.numbers, group.seconds, group.exact, group.default_s)
        if reads is not None:
            reads[workload_id] = functools.partial(workloads.of, some[0])
        group = _kept(kept, workload_id, family_of(some[0]))
        groups.append(_with_statistics(group, functools.partial(workloads.of, some[0]), cache, left))
    return groups


def _check(left: Left, what: str) -> None:
    if not left():
        raise UnfinishedError(f"{what} are counted so far; the same command goes on")


def _with_statistics(group: Group, read: Callable[[], Workload], cache: Path, left: Left) -> Group:
    """The group with statistics of its pattern behind the numbers of its shape."""
    describer = featurizer(2)
    kept = cache / f"statistics-{describer.id[:8]}-{group.workload_id}.npy"
    if not kept.exists():
        _check(left, "some patterns")
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.save(kept, describer.features(read().entries), allow_pickle=False)
    return replace(group, numbers=np.append(group.numbers, np.load(kept, allow_pickle=False)))


def _keep(path: Path, configs: Encoded, numbers: Any, seconds: Any, exact: Any, default_s: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shared, own = configs.orders
    np.savez_compressed(
        path, shared=shared, own=own, nests=np.asarray(configs.nests), numbers=numbers, seconds=seconds, exact=exact,
        default_s=default_s,
    )  # fmt: skip


def _kept(path: Path, workload_id: str, family: str) -> Group:
    with np.load(path, allow_pickle=False) as held:
        configs = Encoded(
            np.zeros((len(held["nests"]), 0), np.int64), (held["shared"], held["own"]), held["nests"]
        )
        default_s = float(held["default_s"])
        return Group(
            workload_id,
            family,
            held["numbers"],
            configs,
            held["seconds"],
            held["exact"].astype(bool),
            default_s,
        )
