"""Our own kernels on sparse matrices as programs: loops as they are on a pattern, beside what is counted of both.

That are the pattern's statistics, how often the loops run on it and how they are cut up (``ProgramNest``), and what caches
fetch in the order of their strips (``Footprints``): which rows are gathered again soon is in the pattern, not in the loops.
And the choices of the config: how tasks are handed out, what is prefetched or how wide an index is stored no loop tells.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from benchmarks.corpus import UnfinishedError
from benchmarks.splits import family_of
from tensorwise.analysis.ast import LEAVES, CompactAst
from tensorwise.analysis.footprint import FIELDS, Footprints
from tensorwise.analysis.matrix import MatrixPattern
from tensorwise.analysis.measured_tree import program_tree
from tensorwise.analysis.nest import ProgramNest
from tensorwise.collect.workloads import Workloads
from tensorwise.device.hardware import Hardware
from tensorwise.errors import InputError, TensorwiseError
from tensorwise.ids import content_id
from tensorwise.model.programs import SPREAD, Measured, Programs
from tensorwise.model.ranking import counted
from tensorwise.model.reader import Reader
from tensorwise.model.samples import Times, shape_numbers
from tensorwise.model.table import Table
from tensorwise.program.einsum import Einsum
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space, cpu_space_of
from tensorwise.space.strips import USUAL, cpu, modes
from tensorwise.store.record import Record
from tensorwise.writing import replacing

PATTERN: Final = MatrixPattern()
NEST: Final = ProgramNest()
BESIDE: Final = (LEAVES.id, NEST.id, content_id([field.doc for field in FIELDS]), PATTERN.id)
"""What is read of a program; other versions read other numbers."""
Arrays = Mapping[str, np.ndarray]


def chosen(records: Iterable[Record], op: str, values: Mapping[str, Any]) -> dict[str, list[Record]]:
    """Return a record of each of some configs of each job: those that ended well on matrices that are not too large.

    Its seconds are what all records of the config say, by their ratio to the default config where there is one (see
    ``Times``). A config that is far slower than the best of its job is left out, since it was not timed to its end.
    """
    jobs: dict[str, dict[Config, list[Record]]] = {}
    for record in records:
        sound = record.ok and record.spread_s <= SPREAD * record.seconds
        asked = record.op == op and record.provenance.get("threads") == values["hardware"]["cores"]
        if sound and asked and int(str(record.workload["nnz"])) <= values["most_entries"]:
            jobs.setdefault(record.workload_id, {}).setdefault(record.config, []).append(record)
    found = {}
    for job, configs in sorted(jobs.items()):
        seconds = Times.of(configs).seconds
        timed = (
            replace(some[0], seconds=float(time))
            for some, time in zip(configs.values(), seconds, strict=True)
        )
        near = sorted(
            (one for one in timed if one.seconds <= values["far"] * seconds.min()),
            key=lambda one: one.config.text,
        )
        rng = np.random.default_rng([values["seed"], int(content_id([job]), 16) % 2**32])
        places = np.sort(rng.permutation(len(near))[: values["configs"]])
        found[job] = [near[int(place)] for place in places]
    return found


def programs_of(
    jobs: Mapping[str, list[Record]],
    works: Workloads,
    hardware: Hardware,
    folder: Path,
    left: Callable[[], bool],
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Programs:
    """Return the programs of records; what each job's are read as is kept in ``folder``.

    Args:
        works: finds patterns.
        left: whether there is time for another job.
        told: of how many jobs are read.

    Raises:
        UnfinishedError: there was none.
        InputError: a pattern is not there.
    """
    rows: list[Measured] = []
    for number, (job, records) in enumerate(jobs.items()):
        path = folder / f"{content_id([job, *BESIDE, *(one.config.text for one in records)])}.safetensors"
        arrays = _kept(path)
        if arrays is None:
            if not left():
                raise UnfinishedError(f"{number} of {len(jobs)} matrices are read; the same command goes on")
            arrays = _read(works.of(records[0]), records)
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(save(dict(arrays)))
        told(number + 1, len(jobs))
        rows += _rows(records, arrays, hardware)
    return Programs(tuple(rows))


def _read(work: Workload, records: list[Record]) -> Arrays:
    """Leaves of all records' programs below each other, how many each has (0: it cannot be made), and its operands."""
    space, mapper, footprints = cpu_space_of(work), cpu(work), Footprints(work.entries, USUAL)
    pattern = np.concatenate([PATTERN.features(work.entries), shape_numbers(records[0].workload)])
    dense = work.sizes[modes(work)[2]]
    leaves, order, counts, operands = [], [], [], []
    for record in records:
        rng = np.random.default_rng(int(content_id([record.config.text]), 16) % 2**32)
        try:
            program = space.program(work, record.config)
            tree = program_tree(program, work, rng)
        except TensorwiseError:  # a choice that this release does not have any more
            counts.append(0)
            continue
        ast = CompactAst.of(tree)
        leaves.append(ast.leaves)
        order.append(ast.order)
        counts.append(len(ast.leaves))
        footprint = footprints.of(mapper.strips(work, record.config), dense)
        nest = counted(work, [record.config])[0]
        operands.append(np.concatenate([nest, np.log2(1 + footprint), pattern]))
    width = len(NEST.fields) + len(FIELDS) + len(pattern)
    return {
        "leaves": np.concatenate([*leaves, np.zeros((0, len(LEAVES.fields)), np.float32)]),
        "order": np.concatenate([*order, np.zeros(0, np.int32)]),
        "counts": np.array(counts, np.int64),
        "operands": np.array(operands, np.float32).reshape(-1, width),
    }


def _rows(records: list[Record], arrays: Arrays, hardware: Hardware) -> Iterable[Measured]:
    ends = np.cumsum(arrays["counts"])
    made = [record.config for record, count in zip(records, arrays["counts"], strict=True) if count]
    choices = _reader(str(records[0].workload["einsum"])).own(made)
    operands = iter(np.hstack([choices, arrays["operands"]]))
    for record, end, count in zip(records, ends, arrays["counts"], strict=True):
        if count:
            part = slice(int(end - count), int(end))
            ast = CompactAst(arrays["leaves"][part], arrays["order"][part], next(operands))
            terms = float(record.workload["nnz"]) * float(2 ** ast.operands[-1] - 1)  # type: ignore[arg-type]
            yield Measured(
                record.workload_id, frozenset({family_of(record)}), hardware.name, hardware, "", ast,
                record.config.text, 2 * terms, 4 * terms, record.seconds, (record.seconds,),
            )  # fmt: skip


@lru_cache(maxsize=8)
def _reader(einsum: str) -> Reader:
    """What reads the configs of an operation as numbers."""
    return Reader(Table.of(cpu_space(Einsum.parse(einsum).single)), mapper=None)


def _kept(path: Path) -> Arrays | None:
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError):
        return None


def without_patterns(programs: Programs) -> Programs:
    """Return the same programs, of whose operands nothing is known but what their loops say."""
    return Programs(tuple(replace(row, ast=CompactAst(row.ast.leaves, row.ast.order)) for row in programs))


def folds(programs: Programs, count: int, seed: int) -> list[list[str]]:
    """Divide families into ``count`` parts with about as many tasks each: the largest first, into the smallest part."""
    tasks: dict[str, set[str]] = {}
    for row in programs:
        for family in row.networks:
            tasks.setdefault(family, set()).add(row.task)
    if len(tasks) < count:
        raise InputError(f"{count} parts need as many families of matrices, got {len(tasks)}")
    order = np.random.default_rng(seed).permutation(sorted(tasks)).tolist()
    parts: list[list[str]] = [[] for _ in range(count)]
    for family in sorted(order, key=lambda one: -len(tasks[one])):
        min(parts, key=lambda part: sum(len(tasks[one]) for one in part)).append(family)
    return parts
