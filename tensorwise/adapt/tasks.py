"""Which tasks to measure on a new device: those nearest the centres of clusters of programs (CDMPP, Algorithm 1)."""

from collections.abc import Mapping, Sequence

import numpy as np

from tensorwise.analysis.ast import CompactAst
from tensorwise.errors import InputError


def clustered_tasks(
    programs: Mapping[str, Sequence[CompactAst]], count: int, rng: np.random.Generator
) -> list[str]:
    """Return ids of ``count`` representative tasks: of each cluster of programs the task that is nearest to its centre.

    The largest clusters come first. The distance of a task is the mean distance of its programs; no task is taken twice.

    Args:
        programs: of each task, by its id.

    Raises:
        InputError: there are not so many tasks.
    """
    from scipy.cluster.vq import kmeans2

    tasks = _enough(programs, count)
    rows = summaries([ast for task in tasks for ast in programs[task]])
    std = rows.std(0)
    rows = (rows - rows.mean(0)) / np.where(std > 1e-6, std, 1.0)
    # as many clusters as tasks are wanted; of one that stays empty the last tasks take the place
    centres, labels = kmeans2(rows, count, minit="++", seed=rng, missing="warn")
    sizes = np.bincount(labels, minlength=count)
    times = np.array([len(programs[task]) for task in tasks])
    of = np.repeat(np.arange(len(tasks)), times)
    chosen: list[int] = []
    for cluster in np.argsort(-sizes, kind="stable"):
        away = np.sqrt(((rows - centres[cluster]) ** 2).sum(1))
        mean = np.bincount(of, away) / times
        mean[chosen] = np.inf
        chosen.append(int(np.argmin(mean)))
    return [tasks[place] for place in chosen]


def random_tasks(
    programs: Mapping[str, Sequence[CompactAst]], count: int, rng: np.random.Generator
) -> list[str]:
    """Return ids of ``count`` tasks at random: what clusters have to beat."""
    tasks = _enough(programs, count)
    return [tasks[place] for place in rng.permutation(len(tasks))[:count]]


def _enough(programs: Mapping[str, Sequence[CompactAst]], count: int) -> list[str]:
    if not 0 < count <= len(programs):
        raise InputError(f"{count} tasks are wanted of {len(programs)}")
    return sorted(programs)


def summaries(asts: Sequence[CompactAst]) -> np.ndarray:
    """Return programs as rows of equal length: (n, 2 * fields) means and maxima over their leaves."""
    known: dict[int, np.ndarray] = {}
    for ast in asts:
        if id(ast) not in known:
            known[id(ast)] = np.concatenate([ast.leaves.mean(0), ast.leaves.max(0)])
    return np.array([known[id(ast)] for ast in asts])
