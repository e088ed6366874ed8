"""``tensorwise train``, ``evaluate`` and ``model``: cost models from records, and how well they rank."""

import datetime
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensorwise.errors import InputError
from tensorwise.front.cli_collect import check_dtype
from tensorwise.front.terminal import INTERRUPTED, command, emit, fail, finite, progress_bar, warn
from tensorwise.version import __version__

if TYPE_CHECKING:
    from tensorwise.collect.workloads import Workloads
    from tensorwise.model import RankingModel
    from tensorwise.model.evaluation import JobEvaluation
    from tensorwise.model.samples import Epoch
    from tensorwise.program.workload import Workload
    from tensorwise.search import ConfigGraph
    from tensorwise.store.record import Record

README = "README.md"
"""Beside a model's own files, its card for people."""
KINDS = ("ranking", "transfer")
HEADS = 5
"""Heads of a model whose network is fast."""
DRAWN_FOR = 16
"""Workloads, each of another family while there are some, for which the configs of a graph are drawn."""

Folder = Annotated[Path, typer.Argument(metavar="MODEL", help="The model's folder.")]
Sources = Annotated[
    list[Path],
    typer.Argument(metavar="SOURCE...", help="Where the patterns are, as for `tensorwise collect`."),
]
Records = Annotated[
    list[Path] | None,
    typer.Option("--records", help="A store or a .parquet file; may be repeated; default: the user's store."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the division of families, weights and batches.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]


@command
def train(
    model: Folder,
    sources: Sources,
    op: Annotated[str, typer.Option("--op", help="The operation: spmv, spmm, sddmm, mttkrp, ...")],
    records: Records = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, max=1024, help="Threads of a call; default: all.")
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="The records' dtype, as of `tensorwise collect --dtype`.")
    ] = "float32",
    net: Annotated[
        str,
        typer.Option(
            "--net", help="statistics; numbers, of the shape only; or a network of another package."
        ),
    ] = "statistics",
    kind: Annotated[
        str,
        typer.Option(
            "--kind", help="ranking, for tuning; or transfer, COGNATE's, which moves to other devices."
        ),
    ] = "ranking",
    heads: Annotated[
        int | None, typer.Option("--heads", min=1, help="Predictors whose spread says how sure they are.")
    ] = None,
    members: Annotated[
        int,
        typer.Option(
            "--members", min=1, help="Networks trained one after the other, whose mean is the answer."
        ),
    ] = 1,
    averaged: Annotated[
        float,
        typer.Option(
            "--averaged",
            help="The mean of the weights of all steps counts, each so many times the next; 0.999, or 0: the last.",
        ),
    ] = 0.0,
    validation: Annotated[
        float,
        typer.Option(
            "--validation",
            help="Share of the families not tested that choose the best epoch; 0: the last epoch is taken.",
        ),
    ] = 0.2,
    loss: Annotated[
        str,
        typer.Option(
            "--loss", help="ratio: scores are log2 of the time over the default's; or hinge, as WACO."
        ),
    ] = "ratio",
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the workloads, at most.")] = 80,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", help="Adam's; 1e-3 for statistics, else 1e-4, as WACO.")
    ] = None,
    test: Annotated[float, typer.Option("--test", help="Share of the families kept for testing.")] = 0.2,
    tested_as: Annotated[
        Path | None,
        typer.Option("--tested-as", help="A model: the families that it was tested on are kept for testing."),
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option(
            "--split",
            help="A TOML file with families by origin and their parts: those of its parts train and validation are "
            "learned from, and --validation divides these.",
        ),
    ] = None,
    graph: Annotated[
        int, typer.Option("--graph", min=0, help="Configs in a graph that tuning walks; 0: it breeds them.")
    ] = 0,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train a model to rank formats and schedules on patterns it has not seen, and test it. Needs the extra `train`.

    Whole families, never single records, go to training, validation (which chooses the best epoch) or test. Can be
    interrupted: the same command resumes from MODEL.training.
    """
    import numpy as np

    from tensorwise.collect.corpus import patterns
    from tensorwise.collect.workloads import Workloads
    from tensorwise.model import RankingModel, TransferModel
    from tensorwise.model.samples import Training
    from tensorwise.program.einsum import Einsum
    from tensorwise.search.graph import GRAPH
    from tensorwise.space.cpu import cpu_space
    from tensorwise.store.origins import Origins
    from tensorwise.store.split import split_families
    from tensorwise.toolchain.threads import available_threads

    check_dtype(dtype)
    if not 0 < test < 1:
        raise InputError(f"--test must be a share between 0 and 1, got {test}")
    if split is not None and tested_as is not None:
        raise typer.BadParameter(
            "a split and a model both say what is tested; give one", param_hint="'--split'"
        )
    if kind not in KINDS:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(KINDS)}", param_hint="'--kind'")
    if graph and kind != "ranking":
        raise typer.BadParameter("only a ranking model's configs can be linked", param_hint="'--graph'")
    if members > 1 and kind != "ranking":
        raise typer.BadParameter("only a ranking model has members", param_hint="'--members'")
    workloads = Workloads(patterns(sources))
    given = _load_records(records, workloads, op, threads or available_threads(), dtype)
    if split is not None:
        given = (origins := Origins.load(split)).relabelled(given)
    einsum = str(given[0].workload["einsum"])
    firsts = {record.workload_id: record for record in given}
    if split is not None:
        ones = {_family(record): _original(record) for record in given}
        parts = {family: origins.part(family, name) for family, name in sorted(ones.items())}
        part_of = {family: "test" if part == "test" else "train" for family, part in parts.items()}
        if validation and (named := [family for family, part in parts.items() if part == "validation"]):
            warn(
                f"the validation families of {split} ({', '.join(named)}) are learned from like those of train: "
                f"--validation {validation:g} draws the families that choose the best epoch"
            )
    elif tested_as is None:
        part_of = split_families(
            map(_family, firsts.values()), np.random.default_rng(seed), {"train": 1 - test, "test": test}
        )
    else:
        part_of = _divided_as(tested_as, {*map(_family, firsts.values())})
    if len(part_of) < 2:
        raise InputError(
            f"all records are of the family {min(part_of)!r} (of a file: its group in a manifest, else the name of its "
            "folder, when it was collected): none is left to test with; collect more families, or divide these patterns by "
            "their names with --split FILE"
        )
    known = [record for record in given if part_of[_family(record)] == "train"]
    held_back = [record for record in given if part_of[_family(record)] == "test"]
    rate = learning_rate or (1e-3 if net == "statistics" else 1e-4)
    settings = Training(
        epochs=epochs, learning_rate=rate, loss=loss, seed=seed, averaged=averaged, validation=validation,  # type: ignore[arg-type]
    )  # fmt: skip
    seen: set[str] = set()
    with progress_bar("training") as progress:

        def observe(epoch: "Epoch") -> None:
            if json:
                emit({"event": "epoch", **asdict(epoch)})
            progress(str(epoch), epoch.number / epochs)

        def workload(workload_id: str) -> "Workload":
            if workload_id not in seen:
                progress(f"{len(seen) + 1} patterns are read", 0.0)
            seen.add(workload_id)
            return workloads.of(firsts[workload_id])

        space = cpu_space(Einsum.parse(einsum).single)
        more: dict[str, Any] = {"members": members} if kind == "ranking" else {}
        made: Any = (RankingModel if kind == "ranking" else TransferModel)(
            space, workload, **more, net=net, heads=heads or (HEADS if net == "statistics" else 1), training=settings,
            checkpoint=model.with_name(f"{model.name}.training"), progress=observe,
        )  # fmt: skip
        try:
            made.fit(known)
        except KeyboardInterrupt:
            fail(
                "interrupted; the same command goes on, and with fewer --epochs it ends with what there is",
                INTERRUPTED,
            )
    judged = _judge(made, held_back, workloads)
    about = {
        "net": net, "heads": made.heads, "training": asdict(settings), "epochs": len(made.history),
    }  # fmt: skip
    made.card = _card(kind, about, made.families, given, judged)
    made.card["learned"] = sorted({_original(record) for record in known})
    for file in GRAPH.files:  # one that is there is of another model
        (model / file).unlink(missing_ok=True)
    made.save(model)
    write_page(model, made.card)
    if graph:
        _graph(made, known, workloads, graph, seed).save(model)
    _show(made.card["metrics"], json, {"event": "result", "model": str(model), "epochs": about["epochs"]})
    if not json:
        if about["epochs"] < epochs:
            print(f"stopped after {about['epochs']} of {epochs} epochs: validation became no better")
        print(f"in {model}")


@command
def evaluate(
    model: Folder,
    sources: Sources,
    records: Records = None,
    every: Annotated[
        bool, typer.Option("--all-families", help="Also those that it has learned from.")
    ] = False,
    drawn: Annotated[
        str | None, typer.Option("--drawn", help="Only configs drawn so: random, known, mutated or default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Write the figures of each job, and each config's prediction and time, as JSON."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write a page with pictures: predictions over measured times."),
    ] = None,
    json: Json = False,
) -> None:
    """Evaluate how well a model ranks configs on held-out matrix families."""
    from tensorwise.collect.corpus import patterns
    from tensorwise.collect.workloads import Workloads
    from tensorwise.front.model_card import figures
    from tensorwise.front.model_report import evaluation_report
    from tensorwise.front.reporting import check_writable
    from tensorwise.model import load_model
    from tensorwise.model.evaluation import MIN_TIMED_CONFIGS, jobs_of

    for path in (out, report):
        if path is not None:
            check_writable(path)
    loaded = load_model(model)
    if not loaded.card:
        raise InputError(
            f"the model in {model} has no card; only models that `tensorwise train` made can be evaluated"
        )
    workloads = Workloads(patterns(sources))
    card = loaded.card
    dtype = card.get("dtype", "float32")
    given = _load_records(records, workloads, card["op"], card["threads"], dtype, card["einsum"])
    unseen = given if every else _unseen(card, given)
    chosen = [record for record in unseen if drawn in (None, record.provenance.get("drawn"))]
    if not chosen:
        raise InputError(
            "the model has learned from all families of these records, or none was drawn so; give --all-families or others"
        )
    judged = _judge(loaded, chosen, workloads)
    jobs_given = len(jobs_of(chosen))
    if few := jobs_given - len(judged):
        warn(
            f"{few} of {jobs_given} jobs are left out: they have fewer than {MIN_TIMED_CONFIGS} timed configs"
        )
    metrics = _metrics(judged)
    if report is not None:
        evaluation_report(model, card, judged, metrics).save(report)
    if out is not None:
        import json as text

        jobs = [
            {
                "workload": one.workload_id,
                "pattern": one.pattern,
                "family": one.family,
                **figures([one]),
                "configs": [{**asdict(c), "config": c.config.text} for c in one.configs],
            }
            for one in judged
        ]
        out.write_text(text.dumps(finite({**metrics, "jobs": jobs}), indent=1, allow_nan=False))
    _show(metrics, json, {"event": "result", "model": str(model), "out": str(out) if out else None})


@command
def model_info(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER]",
            help="A model's folder, or a folder of several; default: all models of this user and all bundled ones.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Print the card of a model, or a table of models: cost models, which rank configs, and latency models."""
    from tensorwise.front.model_card import latency_page, page
    from tensorwise.front.model_list import facts, inside, installed, table
    from tensorwise.model.finding import NOT_INSTALLED, bundled_folders
    from tensorwise.model.latency import LatencyModel

    found = installed() if folder is None else inside(folder)
    if not found and folder is None:
        why = "no models are bundled" if bundled_folders() else NOT_INSTALLED
        raise InputError(f"{why}; none was calibrated here; make one with: tensorwise train")
    if not found:
        raise InputError(
            f"there is no model in {folder}, nor in a folder below it; make one with: tensorwise train"
        )
    models = [facts(path) for path in found]
    single = models[0] if folder is not None and found[0].parent == folder else None
    if json:
        for one in models:
            emit(one)
    elif single is not None and single["card"]:
        latency = single["kind"] == "latency"
        print(latency_page(LatencyModel.load(found[0].parent)) if latency else page(single["card"]))
    else:
        print(table(models))


def _load_records(
    paths: Sequence[Path] | None,
    workloads: "Workloads",
    op: str,
    threads: int,
    dtype: str,
    einsum: str = "",
) -> "list[Record]":
    """Return the records of ``op``, ``threads`` and ``dtype`` whose patterns are here, from stores and Parquet files.

    Of an operation with several einsums (mttkrp: one for each order and mode), the records of ``einsum``, else of the first.
    """
    from tensorwise.store.parts import is_part_store
    from tensorwise.store.reading import records_of
    from tensorwise.store.store import default_path

    found: list[Record] = []
    elsewhere: set[str] = set()
    others: Counter[str] = Counter()
    for path in paths or [default_path()]:
        if not (path.is_file() or is_part_store(path)):
            raise InputError(f"{path}: there are no records; make some with: tensorwise collect")
        with progress_bar("reading records") as progress:
            for record in records_of([path]):
                about, count = str(record.workload.get("einsum")), record.provenance.get("threads")
                elements = str(record.workload.get("dtype", "float32"))
                if (record.op, count, elements) != (op, threads, dtype) or about != (einsum or about):
                    others[f"{record.op} ({about}) in {elements} with {count} threads"] += 1
                elif workloads.has(record):
                    found.append(record)
                    einsum = about
                else:
                    elsewhere.add(str(record.provenance.get("pattern")))
                if len(found) % 1000 == 0:
                    progress(f"{len(found)} records", 0.0)
    if elsewhere:
        warn(
            f"{len(elsewhere)} patterns, such as {min(elsewhere)}, are in none of the sources; their records are left out"
        )
    if not found:
        there = ", ".join(f"{count} of {name}" for name, count in others.most_common(5)) or "none at all"
        raise InputError(
            f"there is no record of {op} in {dtype} with {threads} threads on these patterns; there are {there}; give "
            "--op, --dtype and --threads of the records"
        )
    return found


def _graph(
    model: "RankingModel", records: "list[Record]", workloads: "Workloads", configs: int, seed: int
) -> "ConfigGraph":
    """Draw and link configs for workloads that were learned from, of as many families as there are."""
    import numpy as np

    from tensorwise.space.cpu import cpu_space_of
    from tensorwise.tuning.graphs import graph_of

    firsts = list({record.workload_id: record for record in reversed(records)}.values())
    ones = {_family(record): record for record in firsts}
    chosen = list({record.workload_id: record for record in [*ones.values(), *firsts]}.values())[:DRAWN_FOR]
    with progress_bar("linking configs") as progress:
        works = []
        for record in chosen:
            works.append(workloads.of(record))
            progress(f"{len(works)} of {len(chosen)} patterns are read", 0.5 * len(works) / len(chosen))
        space = cpu_space_of(works[0])
        return graph_of(model, space, works, configs, np.random.default_rng(seed))


def _family(record: "Record") -> str:
    return str(record.provenance.get("family") or record.workload_id)


def _original(record: "Record") -> str:
    """Return the name of the pattern of a record, or of that from which it was made."""
    return str(record.provenance.get("pattern", record.workload_id)).partition("~")[0]


def _unseen(card: Any, records: "list[Record]") -> "list[Record]":
    """Return the records of patterns that a model has not learned from, by family and by name; say what is left out."""
    families = {*card["split"]["training"], *card["split"]["validation"]}
    names = set(card.get("learned", ()))
    unseen = [one for one in records if _family(one) not in families and _original(one) not in names]
    if left_out := {*map(_original, records)} - {*map(_original, unseen)}:
        warn(
            f"{len(left_out)} patterns are left out: the model has learned from them, or from their families "
            "(--all-families evaluates on all)"
        )
    if unseen and not names:
        there = ", ".join(sorted({*map(_family, unseen)}))
        warn(
            f"the model's card does not list the patterns that it has learned from, only their families; make sure that "
            f"the families of these records ({there}) are not the same under other names"
        )
    return unseen


def _judge(model: Any, records: "list[Record]", workloads: "Workloads") -> "list[JobEvaluation]":
    from tensorwise.model.evaluation import evaluate_ranking

    with progress_bar("testing") as progress:
        return evaluate_ranking(
            model, records, workloads.of,
            lambda done, total: progress(f"{done} of {total} jobs", done / total),
        )  # fmt: skip


def _metrics(judged: "list[JobEvaluation]") -> dict[str, Any]:
    from tensorwise.front.model_card import by_family, figures

    return {"all": figures(judged), "families": by_family(judged)}


def _card(
    kind: str,
    about: dict[str, Any],
    families: "dict[str, list[str]]",
    records: "list[Record]",
    judged: "list[JobEvaluation]",
) -> Any:
    """The card of a trained model, JSON-able."""
    from tensorwise.device.host import host

    learned = {name for part in families.values() for name in part}
    measured_here = any(record.provenance.get("host_id") == host().id for record in records)
    facts = {
        "op": records[0].op,
        "einsum": records[0].workload["einsum"],
        "dtype": records[0].workload["dtype"],
        "threads": records[0].provenance["threads"],
        "machine": host().facts if measured_here else None,
        "kind": kind,
        **about,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": __version__,
        "data": data_facts(records),
        "split": {**families, "test": sorted({*map(_family, records)} - learned)},
        "metrics": _metrics(judged),
    }
    return finite(facts)


def _divided_as(folder: Path, families: set[str]) -> dict[str, str]:
    """Divide families so that what the model in ``folder`` was tested on stays unseen: figures of both can be compared."""
    from tensorwise.model.model import describe

    card = describe(folder)["card"]
    if not isinstance(card, dict) or not isinstance(card.get("split"), dict):
        raise InputError(f"the model in {folder} does not say what it was tested on: it has no card")
    tested = set(card["split"]["test"])
    found = {family: "test" if family in tested else "train" for family in families}
    if len(set(found.values())) < 2:
        raise InputError(
            f"--tested-as {folder}: its families for testing ({', '.join(sorted(tested))}) are all or none of "
            f"those in the records ({', '.join(sorted(families))})"
        )
    return found


def data_facts(records: "list[Record]") -> dict[str, Any]:
    """What a card says of the records."""
    when = sorted(str(record.provenance.get("when", ""))[:10] for record in records)
    hosts = Counter(
        str(record.provenance.get("host", record.provenance.get("cpu", "not noted"))) for record in records
    )
    return {
        "records": len(records),
        "workloads": len({record.workload_id for record in records}),
        "patterns": len({record.provenance.get("pattern") for record in records}),
        "first": when[0],
        "last": when[-1],
        "hosts": [name for name, _ in hosts.most_common()],
        "host_ids": sorted({str(record.provenance.get("host_id", "")) for record in records} - {""}),
        "devices": sorted({record.device_id for record in records}),
        "statuses": dict(Counter(record.status for record in records).most_common()),
    }


def _show(metrics: Any, json: bool, facts: dict[str, Any]) -> None:
    from tensorwise.front.model_card import EXPLAINED, rows, text_table

    if json:
        emit({**facts, **metrics})
    else:
        print(text_table(rows(metrics["families"], metrics["all"])))
        print(f"\n{EXPLAINED}")


def write_page(folder: Path, card: Any) -> None:
    from tensorwise.front.model_card import page
    from tensorwise.writing import replacing

    with replacing(folder / README) as file:
        file.write(page(card).encode())
