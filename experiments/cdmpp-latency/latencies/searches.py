"""Figure 14 b: what a network takes with the schedules that searches found, guided by our model, by TVM's and by chance."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.pages import card, document, paragraphs, table
from latencies.draw import curves
from tensorwise.analysis.ast import CompactAst
from tensorwise.analysis.loop_tree import LoopTree
from tensorwise.analysis.machine_code import MachineCode
from tensorwise.errors import InputError
from tensorwise.front.svg import element
from tensorwise.model.latency import LatencyModel
from tensorwise.tasks.cutting import TaskGraph
from tensorwise.tasks.task import Task

GUIDES: Final = {"cdmpp": "our model", "xgb": "TVM's model", "random": "at random"}
"""Guide of a search -> what it is called on the page."""
METHOD: Final = """Each task of the network is searched by TVM's meta-schedule with the same number of trials and the same
genetic search; what differs is who says which programs are worth measuring. Our model has learned before, from tasks of
other networks, and learns nothing meanwhile; of each generation it has some compiled, and reads their code. TVM's learns
from the trials. In the end the best programs of all searches are timed together, in the same rounds, and the network takes
the sum over its tasks."""


def steps(
    graph: TaskGraph,
    folder: Path,
    model: LatencyModel,
    device: Any,
    values: Mapping[str, Any],
    cache: Path,
) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return the steps by key: ``search TASK GUIDE``, and ``compare TASK`` behind those of a task.

    Args:
        folder: where tasks are; cache: where TVM's databases are kept.
    """
    found: dict[str, Callable[[], dict[str, Any]]] = {}
    for name in sorted(graph.multiplicity):
        task = Task.load(folder / "tasks" / f"{name}.json")
        where = {guide: cache / device.name / name / guide for guide in GUIDES}
        for guide, place in where.items():
            found[f"search {name} {guide}"] = partial(
                _searched, task, device, place, _reading(model, device) if guide == "cdmpp" else guide, values
            )
        found[f"compare {name}"] = partial(_compared, task, device, where)
    return found


def _reading(
    model: LatencyModel, device: Any
) -> Callable[[Sequence[LoopTree], Sequence[MachineCode | None]], np.ndarray]:
    def said(trees: Sequence[LoopTree], codes: Sequence[MachineCode | None]) -> np.ndarray:
        asts = [CompactAst.of(tree, compiled=code) for tree, code in zip(trees, codes, strict=True)]
        return model.latencies(asts, device.hardware).seconds

    return said


def _searched(task: Task, device: Any, folder: Path, guide: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    from tensorwise.tasks.searching import search_schedules

    settings = {key: values[key] for key in ("batch", "population", "generations", "compiled", "seed")}
    found = search_schedules(task, device, folder, values["trials"], guide, **settings)
    if not np.isfinite(found.curve[-1:]).any():
        raise InputError(f"no program of {task.name} ran")
    curve = [s if np.isfinite(s) else None for s in found.curve]
    return {"name": task.name, "curve": curve, "search_s": found.seconds, "guide_s": found.guide_s}


def _compared(task: Task, device: Any, where: Mapping[str, Path]) -> dict[str, Any]:
    from tensorwise.tasks.searching import found_in

    modules = {guide: found_in(place)(task, device) for guide, place in where.items()}
    if lost := [guide for guide, module in modules.items() if module is None]:
        raise InputError(f"TVM's database has no program of {', '.join(lost)}")
    measured = device.time(device.build(list(modules.values())), task)
    if lost := [f"{guide}: {one.note}" for guide, one in zip(modules, measured, strict=True) if not one.ok]:
        raise InputError("; ".join(lost))
    return {"seconds": {guide: one.seconds for guide, one in zip(modules, measured, strict=True)}}


def network_curves(
    runs: Mapping[str, Mapping[str, Any]], runs_of: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Return what the network takes, in seconds, after each number of trials a task, by guide; of tasks that all searched.

    Args:
        runs_of: task -> how often the network runs it.
    """
    done = [
        task for task in runs_of if all("curve" in runs.get(f"search {task} {guide}", {}) for guide in GUIDES)
    ]
    if not done:
        return {}
    found = {}
    most = max(len(runs[f"search {task} {guide}"]["curve"]) for task in done for guide in GUIDES)
    for guide in GUIDES:
        total = np.zeros(most)
        for task in done:
            curve = np.array(runs[f"search {task} {guide}"]["curve"], float)
            total += runs_of[task] * np.append(curve, np.full(most - len(curve), curve[-1]))
        found[guide] = total
    return found


def together(runs: Mapping[str, Mapping[str, Any]], runs_of: Mapping[str, int]) -> dict[str, float]:
    """Return what the network takes with the best programs of each guide, timed together: seconds, by guide."""
    compared = {task: runs.get(f"compare {task}", {}).get("seconds") for task in runs_of}
    return {
        guide: sum(runs_of[task] * seconds[guide] for task, seconds in compared.items() if seconds)
        for guide in GUIDES
        if any(compared.values())
    }


def summary(
    runs: Mapping[str, Mapping[str, Any]], runs_of: Mapping[str, int]
) -> tuple[list[str], bool | None]:
    """Return the lines that answer the claim, that our model finds programs at least as fast, and whether it holds."""
    took, missing = (
        together(runs, runs_of),
        [task for task in runs_of if "seconds" not in runs.get(f"compare {task}", {})],
    )
    lines = [f"{len(missing)} of {len(runs_of)} tasks are not compared yet"] if missing else []
    if not took:
        return lines, None
    spent = {
        guide: sum(
            run["search_s"] for key, run in runs.items() if key.endswith(f" {guide}") and "curve" in run
        )
        for guide in GUIDES
    }
    for guide, called in GUIDES.items():
        lines.append(
            f"{called}: {1e3 * took[guide]:.3f} ms, {took['xgb'] / took[guide]:.3f}x TVM's; searching took "
            f"{spent[guide] / 60:.1f} min, {spent[guide] / spent['xgb']:.2f}x TVM's"
        )
    return lines, None if missing else took["cdmpp"] <= took["xgb"]


def page(results: Mapping[str, Any], runs_of: Mapping[str, int]) -> str:
    """Return the page of a result file."""
    runs = {key: run for key, run in results["runs"].items() if "error" not in run}
    facts = ", ".join(
        f"{name} {value}" for name, value in {**results["settings"], **results["machine"]}.items()
    )
    parts = [element("h1", "Searching for schedules"), paragraphs([METHOD, *results["summary"], facts])]
    found = network_curves(runs, runs_of)
    if found:
        lines = {
            GUIDES[guide]: [(n + 1, float(s)) for n, s in enumerate(total) if np.isfinite(s)]
            for guide, total in found.items()
        }
        drawn = curves(
            lines, "milliseconds of the network", "trials of each task", lambda s: f"{1e3 * s:.3g}"
        )
        parts.append(card("The fastest that was found (Figure 14 b)", element("div", drawn, class_="plots")))
    rows = []
    for task, times in runs_of.items():
        seconds = runs.get(f"compare {task}", {}).get("seconds")
        if seconds:
            name = runs[f"search {task} cdmpp"]["name"]
            rows.append([name, str(times), *(f"{1e6 * seconds[guide]:.1f}" for guide in GUIDES)])
    head = ("task", "runs", *(f"{called}, us" for called in GUIDES.values()))
    parts.append(card("Tasks, timed together", table(head, rows)))
    return document("Searching for schedules", "\n".join(parts), ".plots svg { max-width: 560px; }")
