"""The page about an evaluation of a model: how well it ranks, and pictures of its predictions over measured times."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tensorwise.front import page
from tensorwise.front.draw_axes import Mark
from tensorwise.front.draw_search import prediction_chart
from tensorwise.front.model_card import EXPLAINED, rows, text_table
from tensorwise.model.evaluation import JobEvaluation

MOST_JOBS: Final = 24
"""Jobs with a picture: the page stays below some megabytes."""
CAPTION: Final = (
    "Each point is a config. Further right the model predicted a longer time; further up it took longer. For a good model "
    "points rise from lower left to upper right; only the points at the bottom matter to a search."
)


def evaluation_report(
    model: Path, card: Mapping[str, Any], jobs: Sequence[JobEvaluation], metrics: Mapping[str, Any]
) -> page.Report:
    """Return a report on an evaluation: a table, and a picture of each job, those that are ranked worst first.

    Args:
        model: the model's folder.
        card: of the model.
        jobs: what was evaluated.
        metrics: means over all jobs (``all``) and by family (``families``).
    """
    table = rows(metrics["families"], metrics["all"])
    return page.Report(text_table(table), lambda: _page(model, card, jobs, table))


def _page(
    model: Path, card: Mapping[str, Any], jobs: Sequence[JobEvaluation], table: Sequence[Sequence[str]]
) -> str:
    drawn = sorted((job for job in jobs if _marks(job)), key=_rank)
    shown = drawn[:MOST_JOBS]
    summary = [f"{len(jobs)} jobs of {card['op']} on {card['threads']} threads."]
    if len(shown) < len(drawn):
        summary.append(f"Pictures of {len(shown)} of {len(drawn)} jobs, those that are ranked worst first.")
    body = page.table(table[0], table[1:], numeric=range(1, len(table[0])))
    cards = [
        page.card(
            f"{job.pattern} ({job.family})",
            page.figure(prediction_chart(_marks(job)), CAPTION),
            f"Rank correlation (Spearman) {job.quality.spearman:.2f}; among configs within ten times the best "
            f"{job.quality.near_spearman:.2f}.",
        )
        for job in shown
    ]
    return page.page(
        "Predicted and measured times",
        str(model),
        summary,
        page.card("Ranking", body, EXPLAINED, wide=True),
        page.cards(*cards),
    )


def _rank(job: JobEvaluation) -> float:
    return math.inf if math.isnan(job.quality.near_spearman) else job.quality.near_spearman


def _marks(job: JobEvaluation) -> list[Mark]:
    """Return a mark for each config with a time."""
    return [
        Mark(k, f"{one.config.text} ({one.drawn})", "gen", one.seconds, score=one.predicted)
        for k, one in enumerate(job.configs)
        if one.exact
    ]
