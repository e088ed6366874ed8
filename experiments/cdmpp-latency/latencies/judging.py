"""How far predictions are off, and what is claimed of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tensorwise.model import latency
from tensorwise.model.programs import Programs, network_name
from tensorwise.plan.predicted import IN_A_NETWORK
from tensorwise.tasks.cpu import machine_of

DOTS: Final = 400
"""Predictions that a result keeps for its picture."""
_BESIDE: Final = {
    "network": "by the network alone",
    "random": "with random tasks",
    "unknown": "where no other machine ran them",
}
BASELINES: Final = ("trees", "lstm", "primitives", "roofline", "mean")


def errors(held: Programs, predicted: np.ndarray, networks: Collection[str], seed: int) -> dict[str, Any]:
    """Return the errors of predicted seconds, relative to what was measured.

    Args:
        networks: names; of each the error of its tasks' programs, and of their sum: of one program a task, drawn at random,
            as the paper's end-to-end runs have them, on each device.
    """
    off = np.abs(predicted / held.seconds - 1)
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = latency.errors(predicted, held)
    for network in networks:
        inside = [network in map(network_name, row.networks) for row in held]
        if any(inside):
            sums = list(_sums(held, predicted, np.flatnonzero(inside), rng))
            found.setdefault("networks", {})[network] = {
                "mape": float(off[inside].mean()), "sum": float(np.mean(np.abs(sums))),
            }  # fmt: skip
    return found


def dotted(held: Programs, predicted: np.ndarray, seed: int) -> list[list[float]]:
    """Return measured and predicted seconds of DOTS programs, for a picture."""
    drawn = np.random.default_rng(seed).permutation(len(held))[:DOTS]
    return [[float(held.seconds[k]), float(predicted[k])] for k in drawn]


def _sums(
    held: Programs, predicted: np.ndarray, places: np.ndarray, rng: np.random.Generator
) -> Iterable[float]:
    """Relative errors of the sum over tasks of one program each, on each device, drawn ten times."""
    by_device: dict[str, dict[str, list[int]]] = {}
    for place in places:
        row = held.rows[int(place)]
        by_device.setdefault(row.device, {}).setdefault(row.task, []).append(int(place))
    for tasks in by_device.values():
        for _ in range(10):
            drawn = [some[int(rng.integers(len(some)))] for some in tasks.values()]
            yield float(predicted[drawn].sum() / held.seconds[drawn].sum() - 1)


def whole(
    networks: Sequence[Mapping[str, Any]], held: Programs, predicted: np.ndarray
) -> dict[str, dict[str, float]]:
    """Return measured, replayed and predicted seconds of whole networks all of whose programs are held out.

    Replayed are the measured times of the programs, predicted the predicted ones; by ``network device``.
    """
    kinds = {row.device: row.hardware.kind for row in held}
    said = {
        (row.task, row.device, row.config): float(seconds)
        for row, seconds in zip(held, predicted, strict=True)
    }
    found = {}
    for one in networks:
        keys = [(task, one["device"], config) for task, config in one["configs"].items()]
        if one["seconds"] is not None and all(key in said for key in keys):
            alone = sum(one["runs"][key[0]] * said[key] for key in keys)
            total = IN_A_NETWORK[kinds[one["device"]]] * alone
            found[f"{one['network']} {one['device']}"] = {
                "measured": one["seconds"], "replayed": one["replayed"], "predicted": total,
            }  # fmt: skip
    return found


def off(found: Mapping[str, Mapping[str, float]], what: str) -> float:
    """Return the mean relative error of what is ``replayed`` or ``predicted`` of whole networks."""
    return float(np.mean([abs(one[what] / one["measured"] - 1) for one in found.values()]))


def best(runs: Mapping[str, Mapping[str, Any]], prefix: str) -> Mapping[str, Any] | None:
    """Return the variant of a method with the least error on validation: the held-out networks are not asked."""
    some = [
        run for key, run in runs.items() if (key == prefix or key.startswith(f"{prefix}|")) and "mape" in run
    ]
    return min(
        some, key=lambda run: run["validation"] if run.get("validation") is not None else np.inf, default=None
    )


def tuned(
    runs: Mapping[str, Mapping[str, Any]],
    machine: str,
    choose: str,
    count: int,
    kind: str = "alone",
    beside: str = "",
) -> dict[str, float]:
    """Return the means over seeds after fine-tuning with so many tasks: ``mape``, and ``whole`` of whole networks.

    Those that are known.

    Args:
        kind: ``alone``: nothing but these tasks is learned from; ``plain``: what other machines took is seen again, and
            ``cmd``: embeddings are drawn towards each other, too.
        beside: ``elsewhere``: of the tuned model that is told what programs took on other machines.
    """
    prefix = f"device|{machine}|{choose}|{count}|{kind}|"
    some = [run for key, run in runs.items() if key.startswith(prefix) and "mape" in run]
    if beside:
        some = [run[beside] for run in some if beside in run]
    found = {"mape": [run["mape"] for run in some]}
    found["whole"] = [off(run["whole"], "predicted") for run in some if run.get("whole")]
    return {name: float(np.mean(errors)) for name, errors in found.items() if errors}


def machines(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return those that were held out."""
    return sorted({key.split("|")[1] for key in runs if key.startswith("device|")})


def targets(runs: Mapping[str, Mapping[str, Any]], below: float) -> list[str]:
    """Return the machines that count as devices of their own: all settings rank programs unlike all of other machines, or
    run none that others run, as a GPU does.
    """
    found: dict[str, list[float | None]] = {}
    for one, others in runs.get("data", {}).get("ranks", {}).items():
        apart = [rank for other, rank in others.items() if machine_of(other) != machine_of(one)]
        found.setdefault(machine_of(one), []).extend(apart)
    return [
        machine for machine, ranks in found.items() if ranks and all(rank is None or rank < below for rank in ranks)
    ]  # fmt: skip


def judge(
    runs: Mapping[str, Mapping[str, Any]], expected: Mapping[str, Any]
) -> tuple[list[str], bool | None]:
    """Return what the runs say of each claim, and whether all of them hold; None: not all is known."""
    wanted, said = expected["wanted"], list[tuple[str, bool | None]]()
    ours = best(runs, "model|cdmpp")
    if ours is None:
        return ["CDMPP is not trained yet"], None
    settings = {device: error for device, error in ours["devices"].items() if machine_of(device) != device}
    worst = max((settings or ours["devices"]).values())
    others = [
        f", {ours['devices'][one]:.1%} on {one}"
        for one in ours["devices"]
        if settings and one not in settings
    ]
    text = (
        f"held-out networks: {ours['mape']:.1%}, {worst:.1%} on the worst setting of a CPU{''.join(others)}"
    )
    said.append((text, worst <= wanted["model"]))
    for name in BASELINES:
        other = best(runs, f"model|{name}")
        claim = None if other is None else ours["mape"] < other["mape"]
        said.append((f"{name}: {'not there yet' if other is None else format(other['mape'], '.1%')}", claim))
    if ours.get("whole"):
        error, replayed = off(ours["whole"], "predicted"), off(ours["whole"], "replayed")
        text = f"{len(ours['whole'])} whole networks, compiled and run: {error:.1%}, {replayed:.1%} from measured tasks"
        said.append((text, error <= wanted["network"]))
    else:
        said.append(("no whole network was measured", None))
    lstm = best(runs, "model|lstm")
    if lstm is not None:
        faster = ours["programs_per_s"] / lstm["programs_per_s"]
        said.append((f"trains {faster:.1f}x as fast as the LSTM", faster >= wanted["faster"]))
    if ours.get("covered") is not None:
        low, high = wanted["covered"]
        said.append((f"90 % intervals cover {ours['covered']:.1%}", low <= ours["covered"] <= high))
        said.append((f"median width {ours['width']:.2f}x", ours["width"] <= wanted["width"]))
    foreign, count = targets(runs, wanted["ranks"]), wanted["tasks"]
    for machine in machines(runs):
        # what is judged is the network put right by what the same programs took elsewhere, where that was done
        plain = {name: tuned(runs, machine, name, count) for name in ("kmeans", "random", "unknown")}
        right = {name: tuned(runs, machine, name, count, beside="elsewhere") or plain[name] for name in plain}
        if not (found := right["kmeans"]):
            continue
        beside = {name: right[name].get("mape") for name in ("random", "unknown")}
        beside["network"] = None if found == plain["kmeans"] else plain["kmeans"]["mape"]
        known = [f"{error:.1%} {_BESIDE[name]}" for name, error in beside.items() if error is not None]
        text = ", ".join([f"{machine} held out, {count} tasks of it measured: {found['mape']:.1%}", *known])
        claimed = machine in foreign
        said.append((text, found["mape"] <= wanted["device"] if claimed else None))
        if "whole" in found:
            text = f"{machine} held out, whole networks: {found['whole']:.1%}"
            said.append((text, found["whole"] <= wanted["device network"] if claimed else None))
    if not foreign:
        said.append(("no machine ranks programs unlike all others: none counts as another device", None))
    marks = {True: "holds", False: "does not hold", None: "no claim"}
    return [f"{text} ({marks[holds]})" for text, holds in said], _all([holds for _, holds in said])


def _all(holds: Sequence[bool | None]) -> bool | None:
    if False in holds:
        return False
    return None if None in holds else True
