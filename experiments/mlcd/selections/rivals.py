"""How products that our tree chooses compare with those that a tuning compiler found (MLCD, section V-A3)."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from benchmarks.corpus import geometric_mean
from selections.gemm import gemm
from tensorwise.model.cases import Cases
from tensorwise.model.choosing import TreeModel
from tensorwise.selection import Selection

SPARSE: Final = 0.95
"""From here on the paper calls a matrix one of high sparsity."""


def shapes(given: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """Return shapes (m, n, k) of the paper's Table V, those with the fewest products first.

    Args:
        given: ``rows`` (m), ``others`` (n and k) and ``most_terms``; see values.toml.
    """
    every = product(given["rows"], given["others"], given["others"])
    kept = [(m, n, k) for m, n, k in every if m * n * k <= given["most_terms"]]
    return sorted(kept, key=lambda shape: (shape[0] * shape[1] * shape[2], shape))


def chooser(ranges: Mapping[str, Any], cases: Cases, unseen: Sequence[tuple[int, int, int]]) -> Selection:
    """Return GEMM with a tree that has learned from no input of the shapes ``unseen``.

    What was measured of versions that are not installed here is left out.
    """
    function = gemm("gemm", ranges["gemm"])
    cells = {" ".join(map(str, shape)) for shape in unseen}
    there = [place for place, config in enumerate(cases.configs) if config in function.space.configs]
    seconds = cases.seconds[:, there]
    ran = np.isfinite(seconds).any(axis=1)
    kept = np.flatnonzero([group not in cells for group in cases.groups] & ran)
    configs, groups = tuple(cases.configs[place] for place in there), tuple(cases.groups[row] for row in kept)
    model = TreeModel()
    model.fit_cases(Cases(cases.fields, configs, cases.features[kept], seconds[kept], groups))
    function.use(model)
    return function


def compared(
    runs: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each shape that was tuned and compared, with what was found at both."""
    for key, run in runs.items():
        kind, _, shape = key.partition(" ")
        before = runs.get(f"tune {shape}", {})
        if kind == "compare" and "cases" in run and "search_s" in before:
            yield shape, before, run


def figures(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the paper's figures: all are ratios of TVM's seconds to ours.

    Returns:
        ``speedup``, the mean over shapes and sparsities, ``geometric``, their geometric mean, ``sparse``, the mean from
        ``SPARSE`` on; ``faster``: share of them in which ours takes less; ``seen`` and ``unseen``: medians over
        shapes of the seconds to look a program up, or to search it, over those of our choice; ``untuned``: geometric
        mean over shapes, TVM without a schedule over the best that it found; ``search_s``: median of a shape.
    """
    known = list(compared(runs))
    cases = [case for _, _, run in known for case in run["cases"]]
    ratios = np.array([case["ratio"] for case in cases])
    return {
        "shapes": len(known),
        "speedup": float(ratios.mean()),
        "geometric": geometric_mean(ratios),
        "sparse": float(np.mean([case["ratio"] for case in cases if case["sparsity"] >= SPARSE])),
        "faster": float((ratios > 1).mean()),
        "seen": float(np.median([run["lookup_s"] / run["select_s"] for _, _, run in known])),
        "unseen": float(np.median([before["search_s"] / run["select_s"] for _, before, run in known])),
        "untuned": geometric_mean(run["untuned_s"] / run["cases"][0]["tvm_s"] for _, _, run in known),
        "search_s": float(np.median([before["search_s"] for _, before, _ in known])),
    }


def summary(
    runs: Mapping[str, Mapping[str, Any]], expected: Mapping[str, Any]
) -> tuple[list[str], bool | None]:
    """Return which claims hold, in words, and whether all do; None where nothing was compared yet."""
    if next(compared(runs), None) is None:
        return [], None
    found, claims = figures(runs), expected["claims"]["tvm"]
    told, holds = list[str](), True
    for name, words in CLAIMS.items():
        held = found[name] >= claims[name] * (1 - expected["allowed"])
        told.append(f"{'holds' if held else 'does not hold'}: {words.format(found[name], claims[name])}")
        holds &= held
    return told, holds


CLAIMS: Final = {
    "speedup": "products take {:.2f} times as long in TVM, mean over shapes and sparsities, claimed at least {:g}",
    "faster": "ours is the faster one in {:.1%} of the cases, claimed at least {:.0%}",
    "seen": "looking up a shape that was tuned takes {:,.0f} times as long as our choice, claimed at least {:,}",
    "unseen": "searching one that was not takes {:.1e} times as long, claimed at least {:.0e}",
}
"""Of `figures`, each with words for it and for what is claimed."""
