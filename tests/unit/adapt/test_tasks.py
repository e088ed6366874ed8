"""Tasks that stand for all others: one of each kind, before any kind twice."""

from dataclasses import replace

import numpy as np
import pytest

from tensorwise.adapt.tasks import clustered_tasks, random_tasks, summaries
from tensorwise.analysis.ast import CompactAst
from tensorwise.errors import InputError
from tensorwise.model.programs import Programs
from tests.unit.model.latencies import records, tree

PROGRAMS = Programs.of(records(tasks=24))


def of_kinds() -> tuple[Programs, dict[str, int]]:
    """Programs of 24 tasks, of which each is one of three very different kinds; the first has most.

    Within a kind loops differ by whole vectors and lines: the rest would make kinds of its own.
    """
    sizes = [[6400, 6400, 6400], [640_000], [64_000_000, 3200]]
    kind = {task: 0 if place < 14 else 1 if place < 20 else 2 for place, task in enumerate(PROGRAMS.tasks)}
    rows = tuple(
        replace(row, ast=CompactAst.of(tree([extent + 64 * (place % 5) for extent in sizes[kind[row.task]]])))
        for place, row in enumerate(PROGRAMS.rows)
    )
    return Programs(rows), kind


def test_each_kind_of_program_has_a_task() -> None:
    programs, kind = of_kinds()
    for seed in range(5):
        chosen = clustered_tasks(programs.by_task, 3, np.random.default_rng(seed))
        assert sorted(kind[task] for task in chosen) == [0, 1, 2]


@pytest.mark.parametrize("choose", [clustered_tasks, random_tasks])
def test_tasks_are_chosen_once(choose: object) -> None:
    for count in (1, 7, len(PROGRAMS.tasks)):
        chosen = choose(PROGRAMS.by_task, count, np.random.default_rng(0))  # type: ignore[operator]
        assert len(set(chosen)) == count
        assert set(chosen) <= set(PROGRAMS.tasks)
    for count in (0, len(PROGRAMS.tasks) + 1):
        with pytest.raises(InputError, match="are wanted of"):
            choose(PROGRAMS.by_task, count, np.random.default_rng(0))  # type: ignore[operator]


def test_summaries_have_one_length() -> None:
    rows = summaries([row.ast for row in PROGRAMS])
    assert rows.shape == (len(PROGRAMS), 2 * PROGRAMS.rows[0].ast.leaves.shape[1])
    assert np.isfinite(rows).all()
