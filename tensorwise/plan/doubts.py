"""What makes a prediction less sure than a latency model's calibration: what it has learned nothing like."""

from collections.abc import Mapping, Sequence
from typing import Final

from tensorwise.analysis.ast import CompactAst
from tensorwise.device.hardware import Hardware
from tensorwise.model.latency import LatencyModel
from tensorwise.tasks.cutting import TaskGraph

UNSEEN_KIND: Final = 4.0
UNSEEN: Final = 2.0
UNKNOWN: Final = 1.5
"""Factors by which an interval gets wider, on a logarithmic scale: on a CPU of another maker the model was 1.6 times as far
off as on held-out networks of known CPUs (22 % and 13.8 %), and was not tried on a kind of device that it does not know."""
MOST: Final = 8.0
"""All of them together widen an interval by no more: it says by then that nothing is known."""
USUAL_DTYPES: Final = ("float32", "int64", "int32", "bool")
"""dtypes of the networks that come with the package, of which models learn."""
USUAL_BATCHES: Final = (1,)
"""Batches that a model has learned from whose card does not list them."""


def doubts(
    graph: TaskGraph, programs: Sequence[CompactAst], model: LatencyModel, hardware: Hardware
) -> dict[str, float]:
    """Return the reasons to widen a model's interval for these programs, each with the factor by which it is widened.

    Args:
        programs: those that run.
    """
    found = _of_device(model, hardware)
    uncounted = sum(not one.compiled for one in programs) if model.reads_code else 0
    if uncounted:
        found[f"the code of {uncounted} of {len(programs)} programs was not counted"] = UNKNOWN
    if graph.unlowered is None or graph.dtypes is None:
        found["the network was cut by an earlier release, which did not look at its operators and dtypes"] = (
            UNKNOWN
        )
    for dtype in sorted({*(graph.dtypes or ())} - {*USUAL_DTYPES}):
        found[f"the model has learned from no network with {dtype}"] = UNSEEN
    batches = model.card.get("batches")
    seen = batches.get(hardware.kind) if isinstance(batches, Mapping) else None
    if graph.batch not in (seen or USUAL_BATCHES):
        found[f"the model has learned from no network with a batch of {graph.batch} on a {hardware.kind}"] = (
            UNSEEN
        )
    return found


def _of_device(model: LatencyModel, hardware: Hardware) -> dict[str, float]:
    if hardware.name in model.devices:
        return {}
    alike = [one for one in model.devices.values() if one.kind == hardware.kind]
    if not alike:
        return {
            f"the model has not learned from {hardware.name}, nor from any other {hardware.kind}": UNSEEN_KIND
        }
    found = {f"the model has not learned from {hardware.name}": UNSEEN}
    if hardware.kind == "cpu":
        if hardware.vector_bytes not in {one.vector_bytes for one in alike}:
            found[f"nor from any CPU with vectors of {hardware.vector_bytes} bytes"] = UNSEEN
        if hardware.cores not in {one.cores for one in alike}:
            found[f"nor from any CPU on {hardware.cores} threads"] = UNSEEN
    return found
