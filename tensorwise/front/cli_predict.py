"""``tensorwise predict``: the run time of a neural network on devices, without running it."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensorwise.errors import InputError
from tensorwise.front.cli_machine import Json
from tensorwise.front.terminal import command, emit, progress_bar, warn

if TYPE_CHECKING:
    from tensorwise.plan.predicted import NetworkLatency


def _finite(seconds: float) -> float | None:
    """A number for JSON, which has neither infinity nor NaN."""
    return seconds if math.isfinite(seconds) else None


def _format_time(one: "NetworkLatency") -> str:
    """Return the time with its interval and the interval's coverage, as text."""
    from tensorwise.units import time_text

    said = time_text(one.seconds)
    if one.left_out:
        return f"at least {said}"
    if math.isnan(one.low):
        return f"{said}, without an interval: the model is not calibrated"
    within = f"{said}, between {time_text(one.low)} and {time_text(one.high)}"
    if one.doubts:
        return f"{within} (not calibrated)"
    if one.covers is None:
        return f"{within} (the coverage of such intervals was not evaluated)"
    return f"{within} (such intervals contain {100 * one.covers:.0f} % of held-out networks)"


@command
def predict(
    network: Annotated[
        str, typer.Argument(metavar="NETWORK|FILE", help="A network's name, or an ONNX file.")
    ],
    others: Annotated[list[str] | None, typer.Argument(metavar="[DEVICE]...", help="For --compare.")] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", help="One that the model knows, a described one, or this CPU: tvm-avx2-1t."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Rank the devices named behind the network.")
    ] = False,
    price: Annotated[
        list[str] | None, typer.Option("--price", help="DEVICE=PRICE an hour: rank by cost; may be repeated.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch", min=1, help="Inputs at a time; default: what an ONNX file's shapes say, or 1."
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--folder", help="Where networks, tasks and programs are kept.")
    ] = Path("networks"),
    model: Annotated[Path | None, typer.Option("--model", help="Folder of the latency model.")] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1, help="Schedules of a task; the fastest runs.")
    ] = 8,
    engines: Annotated[
        int, typer.Option("--engines", min=1, max=1024, help="Tasks that a device runs concurrently.")
    ] = 1,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write the timeline for chrome://tracing or Perfetto.")
    ] = None,
    picture: Annotated[Path | None, typer.Option("--picture", help="Write the timeline as SVG.")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape", help="INPUT=EXTENT,EXTENT,... of an ONNX file with open dimensions; may be repeated."
        ),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Leave out operators of which nothing is known, instead of refusing."),
    ] = False,
    json: Json = False,
) -> None:
    """Predict the run time of a network on a device, with an interval; each task runs the schedule predicted to be fastest.

    A task whose line ends in * has a less certain prediction than the others; a warning says why.
    """
    from tensorwise.front.draw_plan import draw_timeline
    from tensorwise.front.networks import device_hardware, latency_model, predict_latency, prices
    from tensorwise.plan import chrome_trace
    from tensorwise.tasks.cpu import full_name
    from tensorwise.tasks.shapes import read_shapes

    devices = [full_name(name) for name in (*([device] if device else []), *(others or []))]
    if not devices or compare != (len(devices) > 1):
        raise InputError(
            "name one device with --device, or several behind the network: NETWORK --compare DEVICE DEVICE"
        )
    an_hour = {full_name(name): cost for name, cost in prices(price or ()).items()}
    if odd := sorted(an_hour.keys() - set(devices)):
        raise InputError(f"{', '.join(odd)}: a price, but not among the devices {', '.join(devices)}")
    models = [latency_model(model, name) for name in devices]
    learned = {name for known, name in zip(models, devices, strict=True) if name in known.devices}
    shapes = read_shapes(shape or ())
    for known, name in zip(models, devices, strict=True):
        device_hardware(known, name)  # before anything is cut
    with progress_bar("predicting") as bar:
        found = predict_latency(
            network, devices, batch=batch, folder=folder, model=models, samples=samples, engines=engines,
            shapes=shapes, partial=partial, progress=bar,
        )  # fmt: skip
    cost = {one.device: one.seconds / 3600 * an_hour[one.device] for one in found if one.device in an_hour}
    found.sort(key=lambda one: (cost.get(one.device, float("inf")), one.seconds))
    for one in found:
        facts: dict[str, Any] = {
            "network": one.network, "batch": one.batch, "device": one.device, "seconds": one.seconds,
            "low_s": _finite(one.low), "high_s": _finite(one.high), "programs": len(one.events),
            "trained_on_device": one.device in learned, "covered": one.covers, "doubts": list(one.doubts),
            "left_out": one.left_out,
        }  # fmt: skip
        if one.device in cost:
            facts["cost"] = cost[one.device]
        if json:
            emit(facts)
            continue
        paid = f", {1e6 * cost[one.device]:.3g} a million runs" if one.device in cost else ""
        mark = " *" if one.doubts or one.left_out else ""
        given = f" ({', '.join(shape)})" if shape else ""
        print(f"{one.network} batch {one.batch}{given} on {one.device}: {_format_time(one)}{paid}{mark}")
    for one in found:
        if one.left_out:
            warn(f"{one.device}: the time excludes {one.left_out}, whose run time is unknown")
        if one.doubts:
            warn(f"{one.device}: its interval is wider, and not calibrated: {'; '.join(one.doubts)}")
    if trace is not None:
        trace.write_text(chrome_trace(found[0].events), encoding="utf-8")
    if picture is not None:
        picture.write_text(
            draw_timeline(found[0].events, sorted({event.where for event in found[0].events})),
            encoding="utf-8",
        )
