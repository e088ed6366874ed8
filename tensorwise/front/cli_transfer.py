"""``tensorwise transfer``: a model of another device, from a few measurements there."""

import datetime
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensorwise.errors import InputError, TensorwiseError
from tensorwise.front.cli_collect import DeviceName, MostTerms, StorePath
from tensorwise.front.cli_model import Json, Seed, data_facts, write_page
from tensorwise.front.terminal import INTERRUPTED, command, emit, fail, finite, progress_bar, warn
from tensorwise.version import __version__

if TYPE_CHECKING:
    from tensorwise.adapt.transfer import Transferred
    from tensorwise.collect.job import Job
    from tensorwise.model import TransferModel
    from tensorwise.program.workload import Workload

_KEPT = "op", "threads", "date", "data"
"""What a card says of the model that was gone on from."""


@command
def transfer(
    matrices: Annotated[
        list[Path],
        typer.Option("--matrices", help="File, folder or manifest, as for `collect`; may be repeated."),
    ],
    budget: Annotated[
        int,
        typer.Option("--budget", min=1, help="Most measurements, those that the store has included."),
    ],
    out: Annotated[Path, typer.Option("--out", help="The new model's folder.")],
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A model to start from, made by `tensorwise train --kind transfer`; default: none.",
        ),
    ] = None,
    device: DeviceName = "spade-small",
    op: Annotated[
        str | None, typer.Option("--op", help="The operation: spmm or sddmm; default: that of --from.")
    ] = None,
    n: Annotated[int | None, typer.Option("--n", min=1, help="Dense extent (64).")] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, max=1024, help="Threads of a call; default: all.")
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=8, help="Least configs measured on a matrix; fewer matrices then.")
    ] = 100,
    most_terms: MostTerms = None,
    store: StorePath = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train a model for a device, or fine-tune one, with measurements of a few matrices, and test it on held-out matrices.

    If there are more matrices than the budget allows, the most informative ones are measured. Can be interrupted: the same
    command resumes and measures nothing twice.
    """
    from tensorwise.adapt.transfer import transfer as move
    from tensorwise.store.store import Store

    old, name = _start(start, op)
    jobs, works = _matrices(matrices, name, n, device, threads, samples, seed, most_terms)
    first, work = next(iter(jobs.values())), next(iter(works.values()))
    facts = {key: {"family": job.family, "threads": job.threads} for key, job in jobs.items()}
    with (
        Store(store) as home,
        first.open() as opened,
        progress_bar("transfer") as bar,
    ):
        try:
            found = move(
                old, opened, opened.space(work), works, budget=budget, samples=samples, store=home, facts=facts,
                seed=seed, progress=bar,
            )  # fmt: skip
        except KeyboardInterrupt:
            fail("interrupted; what was measured is kept, and the same command goes on", INTERRUPTED)
    found.model.card = _card(found, old, name, device)
    found.model.save(out)
    write_page(out, found.model.card)
    if json:
        keys = ("device", "data", "expected", "matrices")
        card = {key: found.model.card[key] for key in keys}
        emit({"event": "result", "model": str(out), "measured": found.fresh, **card})
    else:
        print(_text(found, out))


def _start(folder: Path | None, op: str | None) -> "tuple[TransferModel | None, str]":
    """Return the model to start from, and the operation."""
    from tensorwise.model import TransferModel, load_model

    if folder is None:
        if op is None:
            raise InputError("there is no model to start from that says which operation it is of; give --op")
        return None, op
    old = load_model(folder)
    if not isinstance(old, TransferModel):
        raise InputError(
            f"{folder} holds a model of kind {old.kind!r}, which knows one device only; make one that moves: "
            "tensorwise train --kind transfer"
        )
    known = old.card.get("op")
    if known is None and op is None:
        raise InputError(f"the model in {folder} does not say which operation it is of; give --op")
    if None not in (op, known) and op != known:
        raise InputError(f"the model in {folder} is of {known}, not of {op}; start from one of {op}")
    return old, str(op or known)


def _matrices(
    sources: list[Path],
    op: str,
    n: int | None,
    device: str,
    threads: int | None,
    samples: int,
    seed: int,
    most_terms: int | None,
) -> "tuple[dict[str, Job], dict[str, Workload]]":
    """Read the matrices; those that cannot be read are named and left out."""
    from tensorwise.collect.corpus import patterns
    from tensorwise.collect.job import MOST_TERMS, plan
    from tensorwise.toolchain.threads import available_threads

    planned = plan(
        patterns(sources), [op], n=() if n is None else (n,), threads=(threads or available_threads(),), seed=seed,
        most_terms=most_terms or MOST_TERMS, device=device, samples=samples,
    )  # fmt: skip
    jobs, works = dict[str, "Job"](), dict[str, "Workload"]()
    for job in sorted(planned, key=lambda job: job.name):
        try:
            works[job.name] = job.load()[1]
            jobs[job.name] = job
        except TensorwiseError as error:
            warn(str(error))
    if not works:
        raise InputError(f"none of {len(planned)} matrices can be read; see above")
    return jobs, works


def _card(found: "Transferred", old: "TransferModel | None", op: str, device: str) -> dict[str, Any]:
    """The card of the new model, JSON-able."""
    from tensorwise.model.gains import mean_gain

    records = [record for some in found.records.values() for record in some]
    families = sorted({str(record.provenance.get("family")) for record in records})
    matrices = {
        name: {
            "entries": some[0].workload["nnz"],
            "configs": len({record.config for record in some}),
            "gain": asdict(found.expected[name]) | _shares(found, name) if name in found.expected else None,
        }
        for name, some in found.records.items()
    }
    facts = {
        "op": op,
        "einsum": records[0].workload["einsum"],
        "dtype": records[0].workload["dtype"],
        "threads": records[0].provenance["threads"],
        "kind": found.model.kind,
        "device": device,
        "space": records[0].space,
        "from": None if old is None else {key: old.card[key] for key in _KEPT if key in old.card},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": __version__,
        "data": data_facts(records),
        "split": {"training": families, "validation": []},
        "expected": mean_gain(found.expected.values()) if found.expected else {},
        "matrices": matrices,
    }
    card: dict[str, Any] = finite(facts)
    return card


def _shares(found: "Transferred", name: str) -> dict[str, float]:
    """What the choice on one matrix is of the optimum."""
    from tensorwise.model.gains import mean_gain

    mean = mean_gain([found.expected[name]])
    return {key: mean[key] for key in ("top1", "top5")}


def _text(found: "Transferred", out: Path) -> str:
    from tensorwise.front.model_card import GAINS, gains_table, text_table

    card = found.model.card
    total = card["data"]["records"]
    explained = "\n".join(f"{heading}: {what}" for heading, _, what in GAINS)
    what = f"{len(found.records)} matrices, {total} measurements, {found.fresh} of them new"
    return (
        f"{card['op']} on {card['device']}: {what}\n\n"
        f"{text_table(gains_table(card))}\n\n"
        f"Each matrix was ranked by a model of the other ones.\n{explained}\n\nin {out}"
    )
