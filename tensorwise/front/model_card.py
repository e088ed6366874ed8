"""The card of a model as people read it: a page of Markdown, and a table of how well it ranks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tensorwise.model.evaluation import JobEvaluation
from tensorwise.model.latency import COVERED, LatencyModel
from tensorwise.model.metrics import Quality, mean_quality

EXPLAINED = """\
Means over jobs. Rank correlations (Spearman) of predicted scores with measured times: over all configs (one that was given
up counts with its bound, those that failed come last), over those within ten times the best, and over the fastest quarter.
Best of top k: the best time of all over the best among the k best predicted; 0 if none of these has a time. The last
column is the share of configs that take more than ten times as long as the best, or have no time. "Measured again" is what
another measurement would reach if its times were off as much as a job's times of its default config are: the noise that no
model can see through."""

MEANING = {
    "ratio": "a score estimates log2 of the time over that of the default config, so that -1 is twice as fast",
    "hinge": "a lower score is a shorter time, and scores of different patterns cannot be compared",
}
"""What scores say, by the loss that was learned from."""

COLUMNS = (
    ("Spearman", "spearman"),
    ("within 10x", "near_spearman"),
    ("fastest quarter", "fastest_spearman"),
    ("best of top 1", "top1"),
    ("of top 10", "top10"),
    ("slower than 10x", "slower_than_10x"),
)
"""Heading of each figure of a ranking, and its key in ``figures``."""


def figures(judged: Sequence[JobEvaluation]) -> dict[str, Any]:
    """Return the means over jobs as a JSON object, and under ``again`` those that measuring again would reach."""
    known = [one.again for one in judged if one.again is not None]
    return {
        "jobs": len(judged),
        **_facts(mean_quality(one.quality for one in judged)),
        "again": _facts(mean_quality(known)) if known else None,
    }


def by_family(judged: Iterable[JobEvaluation]) -> dict[str, dict[str, Any]]:
    """Return the figures of each family, the worst ranked first."""
    families: dict[str, list[JobEvaluation]] = {}
    for one in judged:
        families.setdefault(one.family, []).append(one)
    found = {name: figures(of) for name, of in families.items()}
    return dict(sorted(found.items(), key=lambda item: item[1]["spearman"]))


def _facts(quality: Quality) -> dict[str, Any]:
    return {
        "configs": quality.configs,
        "spearman": quality.spearman,
        "near_spearman": quality.near_spearman,
        "fastest_spearman": quality.fastest_spearman,
        "kendall": quality.kendall,
        **{f"top{count}": share for count, share in quality.best_of_top.items()},
        "slower_than_10x": quality.slower_than_10x,
    }


def rows(found: Mapping[str, Mapping[str, Any]], total: Mapping[str, Any]) -> list[list[str]]:
    """Return a table: a heading, a row a family, the mean over all jobs, and what measuring again would reach."""
    table = [["family", "jobs", *(heading for heading, _ in COLUMNS)]]
    lines = [*found.items(), ("all jobs", total)]
    if total.get("again"):
        lines.append(("measured again", {"jobs": "", **total["again"]}))
    for name, one in lines:
        table.append([name, str(one["jobs"]), *(_number(one[key]) for _, key in COLUMNS)])
    return table


def calibration_table(calibration: Mapping[str, Any]) -> list[list[str]]:
    """Return a table of how well held-out workloads are ranked before and after a calibration."""
    table = [["held-out workloads", "jobs", *(heading for heading, _ in COLUMNS)]]
    for name in ("before", "after"):
        one = calibration[name]
        table.append([name, str(one["jobs"]), *(_number(one[key]) for _, key in COLUMNS)])
    return table


def _number(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.3f}"


def text_table(table: Sequence[Sequence[str]]) -> str:
    """Return a table for a terminal: columns aligned, the first one to the left."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths))
        )
        for row in table
    )


def _machine(facts: Mapping[str, Any]) -> str:
    """Return the machine that a model was trained for."""
    caches = ", ".join(f"{facts[name] >> 10}" for name in ("l1d_bytes", "l2_bytes", "l3_bytes"))
    what = (
        f"{facts['physical_cores']} cores, vectors of {facts['vector_bytes']} bytes, caches of {caches} KiB"
    )
    return f"{facts['cpu']} ({what})"


def _markdown(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return [f"| {' | '.join(row)} |" for row in [table[0], ["---"] * len(table[0]), *table[1:]]]


def _calibrated(calibration: Mapping[str, Any]) -> list[str]:
    """Return the section about a calibration."""
    data, trained = calibration["data"], calibration["trained"]
    return [
        "",
        "## Calibration",
        "",
        f"On {calibration['date']} the last layers were fitted by `tensorwise calibrate` to {data['records']} records of "
        f"{data['workloads']} workloads, measured on: {', '.join(data['hosts'])}. Before it was a model for "
        f"{trained['threads']} threads. Each workload was held out once, and ranked by a model fitted to the others:",
        "",
        *_markdown(calibration_table(calibration)),
    ]


GAINS = (
    ("default", "speedup1", "of the config predicted best, over the default one"),
    ("optimum", "optimum", "of the fastest measured config"),
    ("top-1", "top1", "what the config predicted best is of the optimum"),
    ("top-5", "top5", "what the fastest of the five predicted best is of it"),
    ("pairs", "ordered", "share of pairs predicted in order"),
    ("Kendall", "kendall", "tau-b"),
)
"""Heading of each figure of a choice, its key in ``mean_gain``, and what it is."""


def gains_table(transfer: Mapping[str, Any]) -> list[list[str]]:
    """Return a table of what choosing on each measured matrix gains by a model that has learned from the other ones."""
    table = [["matrix held out", "configs", *(heading for heading, _, _ in GAINS)]]
    for name, one in transfer["matrices"].items():
        found = one["gain"] or {}
        table.append([name, str(one["configs"]), *(_number(found.get(key)) for _, key, _ in GAINS)])
    mean = transfer["expected"]
    return [*table, ["mean", "", *(_number(mean.get(key)) for _, key, _ in GAINS)]]


def transfer_page(card: Mapping[str, Any]) -> str:
    """Return the card of a model that `tensorwise transfer` made as Markdown."""
    data, start = card["data"], card["from"]
    columns = "; ".join(f"{heading}: {what}" for heading, _, what in GAINS)
    lines = [
        f"# A model of {card['op']} on {card['device']}",
        "",
        f"Ranks what can be chosen for `{card['einsum']}` on the device {card['device']}: a score estimates log2 of the "
        "time up to a constant of the matrix.",
        "",
        f"- kind `{card['kind']}`, {_begun(start)}",
        f"- made on {card['date']} with Tensorwise {card['version']} by `tensorwise transfer`",
        f"- {data['records']} measurements of {data['workloads']} matrices, from {data['first']} to {data['last']} (UTC)",
        "",
        "## What to expect",
        "",
        "Each matrix was held out once, and its measured configs were ranked by a model of the other ones. "
        f"Speed-ups are geometric means in the last row. {columns}. On matrices unlike these it may be worse.",
        "",
        *_markdown(gains_table(card)),
    ]
    return "\n".join([*lines, ""])


def _begun(start: Mapping[str, Any] | None) -> str:
    if start is None:
        return "learned from these matrices alone"
    if not start:
        return "goes on from a model without a card"
    return f"goes on from a model of {start['op']} with {start['threads']} threads, made on {start['date']}"


def latency_page(model: LatencyModel) -> str:
    """Return the card of a latency model as Markdown."""
    card = model.card
    data, held = card["data"], card["judged"]
    left_out = ", ".join(card["held_out"]) or "none"
    lines = [
        "# A latency model",
        "",
        "Predicts the run time in seconds of a program of dense tensor computations on a device, with an interval that is "
        f"meant to contain the run times of {COVERED:.0%} of such programs.",
        "",
        f"- ensemble: {len(model.members)} neural networks, whose predictions are averaged; the leaves of a program are "
        f"joined by `{model.shape.joining}`",
        *_devices(model, data["hosts"]),
        f"- trained on {card['date']} with Tensorwise {card['version']} by `tensorwise tasks train`",
        "",
        *_adapted(card.get("adapted")),
        "## Data and split",
        "",
        f"{data['records']} records of {data['workloads']} tasks, measured from {data['first']} to {data['last']} (UTC). A "
        "task is an operation of neural networks with its sizes; a program is a task with a schedule.",
        "",
        "The split is by network:",
        "",
        f"- training and validation: {card['programs']} programs of {card['tasks']} tasks. Each member of the ensemble has "
        "other validation networks, which choose its epoch.",
        "- calibration of the intervals: whole other networks.",
        f"- test: all tasks of these networks: {left_out}. No program of these tasks was trained on. Networks of the same "
        "families may have been.",
        "",
        "On a processor that is not listed the model extrapolates: adapt it there with `tensorwise tasks adapt`.",
    ]
    if held is not None:
        rows = [
            ["device", "MAPE"],
            *([name, f"{error:.1%}"] for name, error in held["devices"].items()),
        ]
        rows.append(["all", f"{held['mape']:.1%}"])
        lines += [
            "",
            "## Accuracy",
            "",
            f"Mean absolute percentage error (MAPE) of the predicted seconds on the test networks ({left_out}): "
            f"{held['programs']} programs of {held['tasks']} tasks, on the devices below.",
            "",
        ]
        lines += [*_markdown(rows), "", f"The median absolute percentage error is {held['median']:.1%}."]
        if "covered" in held:
            lines.append(
                f"Intervals contain {held['covered']:.0%} of these programs; upper end {held['width']:.1f} x the lower."
            )
        if summed := held.get("together"):
            lines.append(
                f"Sums of a network's programs, one of each task, have a MAPE of {summed['mape']:.1%}."
            )
            if "covered" in summed:
                lines.append(
                    f"Their intervals contain {summed['covered']:.0%}; upper end {summed['width']:.1f} x the lower."
                )
    return "\n".join([*lines, ""])


def _devices(model: LatencyModel, hosts: Sequence[str]) -> list[str]:
    """Return the lines about the devices that a latency model was trained on."""
    settings = sorted(name for name in model.devices if name.startswith("tvm-"))
    others = sorted(name for name in model.devices if name not in settings)
    lines = [f"- devices: {', '.join(f'`{name}`' for name in others)}"] if others else []
    if settings:
        lines.append(
            "- settings of CPUs (`tvm-`, the instruction set, the number of threads, the processor's id): "
            + ", ".join(f"`{name}`" for name in settings)
        )
    return [*lines, f"- measured on: {', '.join(hosts)}"]


def _adapted(found: Mapping[str, Any] | None) -> list[str]:
    """What a latency model's card says of its adaptation."""
    if found is None:
        return []
    before, after = found["before"], found["after"]
    names = ", ".join(f"`{name}`" for name in found["devices"])
    rows = [["device", "before", "after"]]
    rows += [
        [name, f"{before['devices'][name]:.1%}", f"{error:.1%}"] for name, error in after["devices"].items()
    ]
    rows.append(["all", f"{before['mape']:.1%}", f"{after['mape']:.1%}"])
    return [
        "## Adapted",
        "",
        f"On {found['date']}, with Tensorwise {found['version']} by `tensorwise tasks adapt`, to {names} "
        f"({', '.join(found['data']['hosts'])}), with {found['programs']} programs of {found['tasks']} tasks.",
        "",
        "Mean absolute percentage error on these programs by cross-validation. Each program is predicted by the network "
        "that was not trained on its task; the task was in that network's validation set and calibrated the intervals:",
        "",
        *_markdown(rows),
        "",
        "The sections below describe the model before it was adapted.",
        "",
    ]


def page(card: Mapping[str, Any]) -> str:
    """Return the card as Markdown."""
    if "matrices" in card:
        return transfer_page(card)
    data, split, metrics = card["data"], card["split"], card["metrics"]
    training = card["training"]
    how = (
        f"network `{card['net']}`, {card['heads']} heads, loss `{training['loss']}`, {card['epochs']} epochs"
    )
    lines = [
        f"# A model of {card['op']} with {card['threads']} threads",
        "",
        f"Ranks formats and schedules of `{card['einsum']}` on patterns it has not seen: {MEANING[training['loss']]}.",
        "",
        f"- {how}",
        *([f"- trained for {_machine(card['machine'])}"] if card.get("machine") else []),
        f"- made on {card['date']} with Tensorwise {card['version']} by `tensorwise train`",
        "",
        "## Data",
        "",
        f"{data['records']} records of {data['workloads']} workloads on {data['patterns']} patterns, from {data['first']} "
        f"to {data['last']} (UTC). Measured on: {', '.join(data['hosts'])}. On another processor the order of configs "
        "differs; measure more there.",
        "",
        "Divided by family, never by record:",
        "",
        *(f"- {part}: {', '.join(families) or 'none'}" for part, families in split.items()),
        "",
        "Training families set the weights, validation families chose the best epoch, test families did neither."
        if split.get("validation")
        else "Training families set the weights, test families did not.",
        "",
        "## How well it ranks",
        "",
    ]
    lines += [*_markdown(rows(metrics["families"], metrics["all"])), "", EXPLAINED]
    if (calibration := card.get("calibration")) is not None:
        lines += _calibrated(calibration)
    return "\n".join([*lines, ""])
