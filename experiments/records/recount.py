"""Compile the programs of records again, and count their code anew: for when counting has become better.

    python experiments/records/recount.py RECORDS... --folder networks [--kept counts.jsonl]

The files are replaced, when nothing is left to count; nothing is timed. It needs the extra tvm, in the release that records
were made with, the extra cuda for programs of GPUs, and folders of `tensorwise tasks cut` with their tasks. What is counted
is kept: after Ctrl-C or a kill the same command goes on, and several may run side by side with --part.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.corpus import resumable
from tensorwise.device.gpus import gpu_named
from tensorwise.space.config import Config
from tensorwise.space.cuda import GpuSpec
from tensorwise.store.parquet import read_records, write_records
from tensorwise.store.record import Record
from tensorwise.tasks.cpu import codes_of
from tensorwise.tasks.schedules import Schedules
from tensorwise.tasks.staging import codes_on
from tensorwise.tasks.targets import ISAS
from tensorwise.tasks.task import Task

TOGETHER = 8
"""Programs that are compiled before their counts are kept."""
Program = tuple[str, str, str]
"""A task, an instruction set or a GPU, and a config as text."""


def main() -> None:
    """Count what is left, then write the files."""
    parser = parser_of(__doc__ or "")
    option = parser.add_argument
    option("--kept", type=Path, default=Path("counts.jsonl"), help="what is counted already")
    option(
        "--part",
        default="1/1",
        help="count only one part of the tasks, and write no files: 1/2 and 2/2 side by side",
    )
    options = parser.parse_args()
    number, parts = map(int, options.part.split("/"))
    kept = dict(_kept(options.kept.parent.glob(f"{options.kept.stem}*{options.kept.suffix}")))
    programs = sorted(
        {_program(record) for path in options.records for record in read_records(path) if _counted(record)}
    )
    tasks = set(sorted({task for task, _, _ in programs})[number - 1 :: parts])
    left = [program for program in programs if program not in kept and program[0] in tasks]
    journal = options.kept if parts == 1 else options.kept.with_stem(f"{options.kept.stem}-{number}")
    with journal.open("a") as file:
        for done, (program, code) in enumerate(_counts(left, options.folder), 1):
            kept[program] = code
            print(json.dumps([program, code]), file=file, flush=True)
            print(f"\r{done} of {len(left)}", end="", file=sys.stderr)
    if parts == 1:
        for path in options.records:
            records = [
                replace(one, provenance={**one.provenance, "code": kept[_program(one)]})
                if _counted(one)
                else one
                for one in read_records(path)
            ]
            print(f"{path}: {write_records(path, records)} records")


def parser_of(doc: str) -> argparse.ArgumentParser:
    """Return a parser of what scripts take that go through records' programs: ``records``, and ``folder`` with tasks."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("records", nargs="+", type=Path, help="Parquet files of `tensorwise tasks collect`")
    parser.add_argument(
        "--folder", action="append", type=Path, required=True, help="with the tasks; may be given several times"
    )  # fmt: skip
    return parser


def _counted(record: Record) -> bool:
    return "code" in record.provenance


def _program(record: Record) -> Program:
    about = record.provenance
    return record.workload_id, str(about.get("isa", about["device"])), record.config.text


def _kept(files: Iterator[Path]) -> Iterator[tuple[Program, dict[str, float]]]:
    for path in files:
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # else it was cut off
                (task, isa, config), code = json.loads(line)
                yield (task, isa, config), code


def _counts(programs: list[Program], folders: list[Path]) -> Iterator[tuple[Program, dict[str, float]]]:
    for (task, made_for), of in groupby(programs, lambda one: one[:2]):
        gpu = None if made_for in ISAS else gpu_named(made_for)
        schedules, each = schedules_of(task, tuple(folders), gpu), list(of)
        for first in range(0, len(each), TOGETHER):
            batch = each[first : first + TOGETHER]
            modules = [schedules.module(Config.parse(config)) for _, _, config in batch]
            codes = codes_of(modules, made_for) if gpu is None else codes_on(modules, gpu)
            for program, code in zip(batch, codes, strict=True):
                if code is None:
                    raise SystemExit(f"TVM no longer compiles a program of {task}; it has another release")
                yield program, code.to_json()


@lru_cache(1)  # the instruction sets of a task follow each other
def schedules_of(task: str, folders: tuple[Path, ...], gpu: GpuSpec | None = None) -> Schedules:
    """Return the schedules of the task with this id, from the first folder that has it."""
    path = next(found for folder in folders if (found := folder / "tasks" / f"{task}.json").exists())
    return Schedules(Task.load(path), gpu)


if __name__ == "__main__":
    resumable(main)
