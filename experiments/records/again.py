"""Time the programs of records once more, on the machine that they are of: for when times have become better.

    python experiments/records/again.py RECORDS... --folder networks --store again.sqlite [--network resnet50]

It needs the extra tvm, in the release that records were made with, and folders of `tensorwise tasks cut` with their tasks.
Programs of other machines, and those that the store has already, are left out: after a kill the same command goes on.
Of all times of a program on a device the least counts (`Programs.of`), whatever they were before: programs are to be chosen
by what they are, never by how well a model predicts them.
"""

import sys
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from recount import parser_of, schedules_of

from benchmarks.corpus import resumable
from tensorwise.collect.task_job import PROGRAMS_PER_BATCH
from tensorwise.model.programs import network_name
from tensorwise.store.parquet import read_records
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tensorwise.tasks.cpu import TvmCpu, full_name

KEPT = ("job", "networks", "tree", "code")
"""What is known of a program already."""


def main() -> None:
    """Time what is left."""
    parser = parser_of(__doc__ or "")
    option = parser.add_argument
    option("--store", type=Path, required=True, help="file of the new records")
    option("--network", action="append", help="only tasks of this network; may be given several times")
    option("--threads", type=int, help="only programs of so many threads")
    options = parser.parse_args()
    records = {
        _key(one): one
        for path in options.records
        for one in read_records(path)
        if _wanted(one, options.network, options.threads)
    }
    with Store(options.store) as store:
        done = {_key(one) for one in store.records()}
        left = [
            (key, one) for key, one in sorted(records.items(), key=lambda item: item[0]) if key not in done
        ]
        timed = 0
        for (task, isa, threads), of in groupby(left, lambda one: one[0][:3]):
            device, schedules = TvmCpu(isa, threads), schedules_of(task, tuple(options.folder))
            each = [one for _, one in of]
            for first in range(0, len(each), PROGRAMS_PER_BATCH):
                batch = each[first : first + PROGRAMS_PER_BATCH]
                built = device.build([schedules.module(one.config) for one in batch])
                times = device.time(built, schedules.task)
                store.append(
                    Record.of(found, schedules.task, device, one.space, one.config, {
                        **device.provenance, **{name: one.provenance[name] for name in KEPT},
                        "hardware": device.hardware.to_json(),
                    })
                    for one, found in zip(batch, times, strict=True)
                )  # fmt: skip
            timed += len(each)
            print(f"\r{timed} of {len(left)}", end="", file=sys.stderr)


def _key(record: Record) -> tuple[str, str, int, str]:
    about = record.provenance
    return record.workload_id, str(about["isa"]), int(str(about["threads"])), record.config.text


def _wanted(record: Record, networks: list[str] | None, threads: int | None) -> bool:
    about = record.provenance
    if not record.ok or "code" not in about or threads not in (None, about["threads"]):
        return False
    if about["device"] != full_name("tvm-{isa}-{threads}t".format(**about)):
        return False
    names = {network_name(name) for name in about["networks"]}  # type: ignore[attr-defined]
    return networks is None or not names.isdisjoint(networks)


if __name__ == "__main__":
    resumable(main)
