"""Evaluate the bundled latency model on whole held-out networks, from the committed records; see README.md.

    python experiments/cdmpp-latency/bundled.py

Deterministic: nothing is trained or timed. The model's card names the held-out networks. For each of them and each device,
`experiments/records/networks-*.jsonl` has the measured seconds of the network with the fastest recorded schedule of each
task; the model predicts the seconds of the same programs.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[2]))

from latencies.judging import off, whole

from benchmarks.corpus import Results
from tensorwise.model.finding import bundled_model
from tensorwise.model.latency import LatencyModel, errors
from tensorwise.model.programs import Programs, network_name
from tensorwise.store.reading import records_of
from tensorwise.store.record import Record

HERE = Path(__file__).parent
RECORDS = HERE.parent / "records"


def main() -> None:
    """Predict, compare and write the result file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "bundled.json")
    out = parser.parse_args().out
    folder = bundled_model("latency")
    model = LatencyModel.load(folder)
    held_out = model.card["held_out"]
    tasks, networks = sorted(RECORDS.glob("tasks*.parquet")), sorted(RECORDS.glob("networks-*.jsonl"))
    held = held_programs(tasks, held_out)
    lines = [json.loads(line) for path in networks for line in path.read_text().splitlines() if line.strip()]
    predicted = model.of(held).seconds
    found = whole([one for one in lines if one["network"] in held_out], held, predicted)
    inputs = [*tasks, *networks, folder / "latency.json", folder / "latency.safetensors"]
    results = Results(out, __doc__ or "", {"held_out": held_out}, True, inputs=inputs)
    results.add("programs", errors(predicted, held))
    results.add("whole", {"networks": found, "devices": by_device(found)})
    results.write([], None)
    for device, about in by_device(found).items():
        print(f"{device}: {about['networks']} networks, {about['mape']:.1%}")


def held_programs(paths: list[Path], networks: list[str]) -> Programs:
    """Return the programs of all tasks that occur in ``networks``; trees of other tasks are not read, which takes long."""
    records = list(records_of(paths))
    tasks = {
        record.workload_id
        for record in records
        if any(network_name(str(name)) in networks for name in names_of(record))
    }
    return Programs.of(record for record in records if record.workload_id in tasks)


def names_of(record: Record) -> Sequence[object]:
    """Return the names of the networks in which the task of a record occurs."""
    return cast(Sequence[object], record.provenance.get("networks", ()))


def by_device(found: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return, by device, the number of networks and the mean absolute percentage error of their predicted seconds."""
    groups: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for name, seconds in found.items():
        groups[name.split(" ", 1)[1]][name] = seconds
    return {
        device: {"networks": len(some), "mape": off(some, "predicted")}
        for device, some in sorted(groups.items())
    }


if __name__ == "__main__":
    main()
