"""Made-up programs whose seconds follow a formula that is known: loops over arrays, on devices that differ by a factor."""

import json

import numpy as np

from tensorwise.analysis.loop_tree import BufferAccess, Leaf, Loop, LoopTree
from tensorwise.analysis.machine_code import MACHINE_CODE_NAMES, MachineCode
from tensorwise.device.device import Measurement
from tensorwise.device.hardware import Hardware, described
from tensorwise.space.config import Config
from tensorwise.store.record import Record

DEVICES = {"slow": 4e-9, "fast": 1e-9}
"""Seconds of an iteration."""


def hardware(name: str) -> Hardware:
    one = described()["EPYC-7452"].to_json()
    return Hardware.from_json({**one, "name": name, "cores": 1, "flops": 1.0 / DEVICES[name]})


def tree(extents: list[int]) -> LoopTree:
    """A loop of each extent, one after the other, each with one leaf."""
    loops = []
    for place, extent in enumerate(extents):
        access = BufferAccess(f"b{place}", "update", 4, extent, (1.0,), (1.0,))
        loops.append(Loop("serial", extent, (Leaf({"float_mul": 1}, (access,)),)))
    return LoopTree(tuple(loops))


def code(cycles: float) -> MachineCode:
    """Code that takes so many cycles."""
    return MachineCode(
        {**dict.fromkeys(MACHINE_CODE_NAMES, 0.0), "all.cycles": cycles, "all.instructions": 5 * cycles}
    )


def records(
    tasks: int = 40,
    samples: int = 4,
    seed: int = 0,
    devices: tuple[str, ...] = ("slow", "fast"),
    *,
    compiled: bool = False,
) -> list[Record]:
    """Of each task several programs; ``net0-b1`` has the first ten tasks, ``net1-b1`` ten from the eighth on, and so on.

    Args:
        compiled: of half of the programs the compiler made code that takes eight times as long: only the code says so.
    """
    rng = np.random.default_rng(seed)
    found = []
    for task in range(tasks):
        networks = [f"net{k}-b1" for k in range(tasks // 8 + 1) if 8 * k <= task < 8 * k + 10]
        for sample in range(samples):
            extents = [int(x) for x in 2 ** rng.uniform(4, 16, rng.integers(1, 4))]
            bad = 8 ** int(rng.integers(2)) if compiled else 1
            for device in devices:
                seconds = bad * (200 + sum(extents)) * DEVICES[device] * np.exp(0.02 * rng.standard_normal())
                about = {
                    "device": device, "tree": tree(extents).text, "networks": networks,
                    "hardware": hardware(device).to_json(),
                }  # fmt: skip
                if compiled:
                    about["code"] = code(bad * (200.0 + sum(extents))).to_json()
                config = Config({"design": 0, "decisions": json.dumps([[0, sample]])})
                facts = {
                    "op": "loops",
                    "flops": 2 * sum(extents),
                    "bytes": 4 * sum(extents),
                    "leaves": len(extents),
                }
                measured = Measurement.of([seconds])
                found.append(
                    Record(
                        f"task{task:03}", facts, device, "tvm", config, measured.seconds, 0.0, "ok", "", about
                    )
                )
    return found
