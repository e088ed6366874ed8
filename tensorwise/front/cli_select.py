"""``tensorwise select`` and ``tensorwise plan``: which version of a function, and where the steps of an application run."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tensorwise.errors import InputError
from tensorwise.front.terminal import command, emit, pairs, progress_bar
from tensorwise.reading import members, printable, read_json

if TYPE_CHECKING:
    from tensorwise.plan import Network, StepGraph
    from tensorwise.selection import Selection
    from tensorwise.store.record import Record

select_app = typer.Typer(
    help="Choose among versions of a function, by a decision tree over features of its input.",
    no_args_is_help=True,
)

DEFAULT_DEPTH = 4
"""Questions that `explain` shows unless told otherwise."""

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The model's folder.")]
Records = Annotated[
    list[Path] | None,
    typer.Option("--records", help="A store or a .parquet file; may be repeated; default: the user's store."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of what is drawn.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]


@select_app.command()
@command
def train(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.py", help="Python that registers versions and a generator of inputs. It is run."
        ),
    ],
    model: Model,
    function: Annotated[
        str | None, typer.Option("--function", help="Its name, where the file registers several.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, help="Inputs to know in all, earlier ones included.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", help="Seconds for measuring; 60 without --samples.")
    ] = None,
    guided_after: Annotated[
        int | None,
        typer.Option(
            "--guided-after",
            min=1,
            help="Inputs that are taken as they come; then a random forest says which are worth measuring.",
        ),
    ] = None,
    store: Annotated[Path | None, typer.Option("--store", help="Where measurements are remembered.")] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Measure the versions of a function on inputs of its generator, and train a model that chooses one for each input.

    Can be interrupted: the same command resumes from the store. Needs the extra `select`.
    """
    from tensorwise.store.store import Store

    selection = _selection(file, function)
    with progress_bar(f"training {selection.op}") as progress:
        made = selection.train(
            samples=samples, budget_s=budget, guided_after=guided_after, seed=seed, progress=progress,
            store=True if store is None else Store(store),
        )  # fmt: skip
    selection.save(model)
    if json:
        emit({"event": "result", "model": str(model), **made.card})
        return
    assert made.choice is not None
    print(
        f"{selection.op}: {made.card['inputs']} inputs, a tree with {made.choice.leaves} leaves, in {model}"
    )
    for note in made.card["notes"]:
        print(note)


@select_app.command()
@command
def evaluate(
    function: Annotated[str, typer.Argument(metavar="FUNCTION", help="Name of the function.")],
    records: Records = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", help="Judge this model, on records that it has not learned from."),
    ] = None,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Without a model: parts of the inputs.")] = 10,
    device: Annotated[str | None, typer.Option("--device", help="Content id, if there are several.")] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Evaluate the choice on inputs that the tree has not seen: by cross-validation, or of a given model.

    Inputs that the generator marks with the same cell are never divided between training and test.
    """
    import numpy as np

    from tensorwise.model.cases import Cases
    from tensorwise.model.choosing import TreeModel, cross_validated

    cases = Cases.of(_records(records, function, device))
    if model is None:
        with progress_bar("cross-validation"):
            chosen = cross_validated(cases, folds, np.random.default_rng(seed))
    else:
        loaded = TreeModel.load(model)
        if (loaded.fields, set(loaded.configs)) != (cases.fields, set(cases.configs)):
            raise InputError(f"the model in {model} is about other features or versions than the records")
        place = [cases.configs.index(config) for config in loaded.configs]
        chosen = np.array(place)[loaded.choose(cases.features)]
    found = cases.quality(chosen).to_json()
    if json:
        emit({"event": "result", "function": function, "folds": None if model else folds, **found})
        return
    pairs(
        [
            ("inputs", found["inputs"]),
            ("the choice failed on", found["failed"]),
            ("percentage of ideal speed", f"{100 * found['pois']:.2f} %"),
            ("average penalty", f"{100 * found['ppp']:.2f} %"),
            ("fastest was chosen", f"{100 * found['accuracy']:.1f} %"),
            (f"speed-up over always {found['constant']}", f"{found['speedup']:.2f}"),
            *((f"{name} is fastest", f"{100 * share:.1f} %") for name, share in found["fastest"].items()),
        ]
    )


@select_app.command()
@command
def explain(
    model: Model,
    levels: Annotated[
        int | None,
        typer.Option(
            "--levels", min=0, help=f"Questions to show, one below the other; default {DEFAULT_DEPTH}."
        ),
    ] = DEFAULT_DEPTH,
    every: Annotated[bool, typer.Option("--all", help="Show the whole tree.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Draw the regions into an SVG file.")] = None,
    axes: Annotated[
        str | None,
        typer.Option("--axes", help="Two or three features, such as m,n,k: across, up, one panel a value."),
    ] = None,
    json: Json = False,
) -> None:
    """Print the decision tree of a model, and draw what it chooses where."""
    from tensorwise.front.draw_regions import draw_regions, most_asked
    from tensorwise.model.cases import config_name
    from tensorwise.model.choosing import TreeModel

    loaded = TreeModel.load(model)
    tree = loaded.choice
    assert tree is not None
    units = loaded.card.get("units", {})
    named = axes.split(",") if axes else most_asked(loaded)[:3]
    if unknown := [name for name in named if name not in loaded.fields]:
        raise InputError(f"there is no feature {unknown[0]!r}; there are {', '.join(loaded.fields)}")
    if out is not None:
        if len(set(named)) != len(named) or not 2 <= len(named) <= 3:
            raise InputError(f"a picture needs two or three different features, got {', '.join(named)}")
        out.write_text(
            draw_regions(loaded, named, [str(units.get(name, "")) for name in named]), encoding="utf-8"
        )
    versions = [config_name(config) for config in loaded.configs]
    if json:
        about = {
            "leaves": tree.leaves,
            "depth": tree.depth,
            "fields": list(loaded.fields),
            "versions": versions,
        }
        emit(
            {
                "event": "result",
                "model": str(model),
                **about,
                "tree": tree.to_json(),
                "out": str(out) if out else None,
            }
        )
        return
    print(f"{loaded.card.get('op', 'a function')}: {tree.leaves} leaves, at most {tree.depth} questions")
    pairs([(name, units.get(name, "")) for name in loaded.fields])
    print(tree.text(loaded.fields, lambda place: versions[int(place)], None if every else levels))
    if out is not None:
        print(f"regions by {', '.join(named)} in {out}")


@command
def plan(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.json", help="Devices, links and steps; see the documentation.")
    ],
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write the timeline for chrome://tracing or Perfetto.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Draw the timeline into an SVG file.")] = None,
    json: Json = False,
) -> None:
    """Place the steps of an application on devices so that all of it, transfers included, takes least."""
    from tensorwise.front.draw_plan import draw_timeline
    from tensorwise.plan import PlacementPlan, chrome_trace
    from tensorwise.plan.place import total_s
    from tensorwise.units import time_text

    graph, network = _read_graph(file)
    best = PlacementPlan.best(graph, network)
    events = best.timeline()
    if trace is not None:
        trace.write_text(chrome_trace(events), encoding="utf-8")
    if out is not None:
        out.write_text(draw_timeline(events, network.devices), encoding="utf-8")
    cost, move = graph.costs(network)
    every = (total_s(graph, cost, move, [k] * len(graph.steps)) for k in range(len(network.devices)))
    alone = {
        device: seconds
        for device, seconds in zip(network.devices, every, strict=True)
        if math.isfinite(seconds)
    }
    found = best.placement
    placed = dict(zip((step.name for step in graph.steps), found.devices, strict=True))
    if json:
        answer = {"seconds": found.seconds, "bound_s": found.bound_s, "gap": found.gap}
        emit({"event": "result", **answer, "placed": placed, "single_device_s": alone})
        return
    pairs([(name, device) for name, device in placed.items()])
    how = (
        "the least possible"
        if found.gap < 1e-9
        else f"at most {100 * found.gap:.1f} % above the least possible"
    )
    print(f"{time_text(found.seconds)}, {how}")
    for device, seconds in alone.items():
        print(f"all on {device}: {time_text(seconds)}")


def _selection(file: Path, function: str | None) -> "Selection":
    """Run a file of the user's and return what it registers."""
    import runpy

    from tensorwise.selection import Selection

    if not file.is_file():
        what = "is no regular file" if file.exists() else "there is no such file"
        raise InputError(f"{file}: {what}")
    made = {one.op: one for one in runpy.run_path(str(file)).values() if isinstance(one, Selection)}
    if function is None and len(made) == 1:
        return next(iter(made.values()))
    if function not in made:
        raise InputError(f"{file} registers {', '.join(made) or 'no function'}; name one with --function")
    return made[function]


def _records(paths: list[Path] | None, function: str, device: str | None) -> "list[Record]":
    """Return the records of a function's versions on one device."""
    from tensorwise.space.versions import space_name
    from tensorwise.store.reading import records_of
    from tensorwise.store.store import default_path

    found: list[Record] = []
    spaces: set[str] = set()
    for path in paths or [default_path()]:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is no regular file; expected a store or a .parquet file")
        if not path.is_file():
            raise InputError(f"{path}: there are no records; make some with: tensorwise select train")
        for record in records_of([path]):
            spaces.add(record.space)
            if record.space == space_name(function) and device in (None, record.device_id):
                found.append(record)
    if not found:
        known = sorted(
            name.removeprefix(space_name("")) for name in spaces if name.startswith(space_name(""))
        )
        raise InputError(
            f"there is no record of {function!r}; there are some of {', '.join(known) or 'nothing'}"
        )
    if len(devices := sorted({record.device_id for record in found})) > 1:
        raise InputError(f"the records are of {len(devices)} devices; choose --device: {', '.join(devices)}")
    return found


_PLAN: Final = {"devices": tuple[str, ...], "links": list[Any], "steps": list[Any]}
_LINK: Final = {"from": str, "to": str, "latency_s": float, "bytes_per_s": float}
_STEP: Final = {
    "name": str, "seconds": Mapping[str, float], "result_bytes": float, "after": tuple[str, ...], "given_bytes": float,
}  # fmt: skip
"""What a plan is made of, as it is written in JSON, and the types."""


def _read_graph(file: Path) -> "tuple[StepGraph, Network]":
    """Read what `tensorwise plan` takes; raises InputError where it is malformed."""
    from tensorwise.plan import Link, Network, Step, StepGraph

    what = f"{printable(str(file))} does not describe devices, links and steps"
    data = members(read_json(file, "does not describe devices, links and steps"), _PLAN, _PLAN, what)
    found = (
        members(one, _LINK, ("from", "to"), f"{what}: links[{k}]") for k, one in enumerate(data["links"])
    )
    links = tuple(Link(one.pop("from"), one.pop("to"), **one) for one in found)
    network = Network(data["devices"], links)
    steps = (
        members(one, _STEP, ("name", "seconds"), f"{what}: steps[{k}]") for k, one in enumerate(data["steps"])
    )
    return StepGraph(tuple(Step(**one) for one in steps)), network
