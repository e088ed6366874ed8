"""Where a planner puts the kernels of networks, by what GEMM's tree says of them, and how good that is."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final, final

import numpy as np

from benchmarks.corpus import geometric_mean
from selections.gemm import GPU
from selections.networks import Kernel
from tensorwise.model.cases import config_name, features_of
from tensorwise.model.choosing import TreeModel
from tensorwise.plan.graph import Link, Network, Step, StepGraph
from tensorwise.plan.place import place, total_s
from tensorwise.store.record import Record

ONE_THREAD: Final = ("naive", "rows", "own sparse, one thread")


@final
class Measured:
    """What products took, operands in place, and what a model says that they would.

    Args:
        records: of `kernels_of_networks`; of repeated measurements the fastest counts.
        model: learned from GEMM, and not from these.
        gpu: figures of a GPU that takes the place of one that was not measured; see values.toml.
    """

    def __init__(self, records: Iterable[Record], model: TreeModel, gpu: Mapping[str, float]) -> None:
        self.took: dict[str, dict[str, float]] = {}
        self._said: dict[str, dict[str, float]] = {}
        choice: dict[str, str] = {}
        known = {config_name(config): config for config in model.configs}
        for record in records:
            if not record.ok:
                continue
            key = json.dumps(json.loads(str(record.provenance["input"])), sort_keys=True)
            moving_s = float(record.provenance.get("moving_s", 0.0))  # type: ignore[arg-type]
            version = config_name(record.config)
            took = self.took.setdefault(key, {})
            took[version] = min(record.seconds - moving_s, took.get(version, math.inf))
            said = self._said.setdefault(key, {})
            numbers = features_of(record.workload)
            point = np.array([[numbers[field] for field in model.fields]])
            if key not in choice:
                choice[key] = config_name(model.configs[int(model.choose(point)[0])])
            if version in known:
                said[version] = float(model.latency(known[version], point)[0])
            elif version in GPU:
                said[version] = took[version]
            if "gpu" not in said:
                work = 2 * numbers["stored"]
                said["gpu"] = gpu["launch_s"] + min(
                    work / gpu["sparse_flops"], 2 * numbers["terms"] / gpu["dense_flops"]
                )
        for key, said in self._said.items():
            if choice[key] in said:  # what the tree says is the fastest takes less than is said of any other
                said[choice[key]] = math.nextafter(min(said[name] for name in said if name in known), 0.0)
        self.has_gpu = all(any(name in GPU for name in took) for took in self.took.values())
        for key, took in self.took.items():
            if self.has_gpu:
                del self._said[key]["gpu"]
            else:
                took["gpu"] = self._said[key]["gpu"]

    def chosen(self, key: str, versions: Sequence[str]) -> tuple[float, float, float]:
        """Return of the version that the model takes for the fastest what it says and what it took, and the least taken.

        The tree chooses; where its choice is not among ``versions``, what is said of their seconds does.
        """
        took, said = self.took[key], self._said[key]
        able = [name for name in versions if name in took and name in said]
        best = min(able, key=said.__getitem__)
        return said[best], took[best], min(took[name] for name in able)

    def versions(self, gpu: bool) -> list[str]:
        """Return the names of all versions that were measured, on GPUs or elsewhere."""
        names = dict.fromkeys(name for took in self.took.values() for name in took)
        return [name for name in names if (name in GPU or name == "gpu") == gpu]


def planned(
    kernels: Sequence[Kernel], measured: Measured, devices: Mapping[str, Sequence[str]], network: Network
) -> dict[str, Any]:
    """Place a network by what a model says, and judge the placement by what was measured.

    Args:
        kernels: of the network.
        measured: knows all of them.
        devices: name -> versions that run there.
        network: the devices and their links.

    Returns:
        ``planned_s``, ``ideal_s`` (the best placement of the fastest versions), ``alone_s`` by device, and ``moves``:
        names of the kernels that read something which was moved, after the first.
    """
    of = {
        (kernel.key, device): measured.chosen(kernel.key, names)
        for kernel in kernels
        for device, names in devices.items()
    }

    def graph_by(which: int) -> StepGraph:
        steps = (
            Step(
                kernel.name, {device: of[kernel.key, device][which] for device in devices}, kernel.result_bytes,
                kernel.after, kernel.given_bytes,
            )
            for kernel in kernels
        )  # fmt: skip
        return StepGraph(tuple(steps))

    said, true = graph_by(0), graph_by(1)
    placed = place(said, network).devices
    costs = true.costs(network)
    numbers = [network.devices.index(device) for device in placed]
    alone = {
        device: total_s(true, *costs, [network.devices.index(device)] * len(kernels)) for device in devices
    }
    moves = [
        kernel.name
        for kernel, device in zip(kernels, placed, strict=True)
        if any(placed[said.number[earlier]] != device for earlier in kernel.after)
    ]
    return {
        "planned_s": total_s(true, *costs, numbers),
        "ideal_s": place(graph_by(2), network).seconds,
        "alone_s": alone,
        "moves": moves,
    }


def judged(
    networks: Mapping[str, Sequence[Kernel]], measured: Measured, links: Sequence[Link], swept: Iterable[str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Place networks on one thread and all threads, and on the CPU and a GPU.

    Args:
        networks: name, which begins with a kind, -> kernels, all measured.
        measured: what they took.
        links: between ``cpu`` and ``gpu``, both ways.
        swept: names of the networks of Figure 7.

    Returns:
        ``threads`` and ``gpu`` -> kind of network -> measures: PoIS, speed-up over each device alone, and ``first moves``:
        before which layer data is moved for the first time, in how many networks; ``figure 7``: the same of those that
        are swept, and ``figure 7 networks``: how many they are.
    """
    cpu = measured.versions(gpu=False)
    threads = {
        "all threads": [name for name in cpu if name not in ONE_THREAD],
        "one thread": [name for name in cpu if name in ONE_THREAD],
    }
    one, other = threads
    settings: dict[str, tuple[Mapping[str, Sequence[str]], Sequence[Link]]] = {
        "threads": (threads, (Link(one, other), Link(other, one))),
        "gpu": ({"cpu": cpu, "gpu": measured.versions(gpu=True)}, links),
    }
    figure = set(swept)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for setting, (devices, between) in settings.items():
        ways = Network(tuple(devices), tuple(between))
        kinds: dict[str, dict[str, dict[str, Any]]] = {}
        for name, kernels in networks.items():
            kinds.setdefault(name.split()[0], {})[name] = planned(kernels, measured, devices, ways)
        found[setting] = {kind: _summary(some, figure) for kind, some in kinds.items()}
    return found


def _first_moves(some: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return dict(sorted(Counter(one["moves"][0].split()[-1] for one in some if one["moves"]).items()))


def _summary(by_name: Mapping[str, Mapping[str, Any]], swept: Set[str]) -> dict[str, Any]:
    some = list(by_name.values())
    drawn = [one for name, one in by_name.items() if name in swept]
    return {
        "networks": len(some),
        "pois": sum(one["ideal_s"] for one in some) / sum(one["planned_s"] for one in some),
        "least": min(one["ideal_s"] / one["planned_s"] for one in some),
        "speedup": {
            device: geometric_mean(one["alone_s"][device] / one["planned_s"] for one in some)
            for device in some[0]["alone_s"]
        },
        "first moves": _first_moves(some),
        "figure 7": _first_moves(drawn),
        "figure 7 networks": len(drawn),
    }
