"""Orders, packed tensors, simulated seconds, features and what is drawn are the same with and without vector instructions.

NumPy chooses its sorts and loops by the processor, and sets of texts are walked in the order of their hashes. Two child
processes compute everything: one with all that NumPy finds here, one without, and with other hashes and another BLAS.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PLAIN = {"PYTHONHASHSEED": "1", "OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "1"}
UNSTABLE = {
    "argpartition",
    "reverse_cuthill_mckee",
    "maximum_bipartite_matching",
    "min_weight_full_bipartite_matching",
}
"""Functions of NumPy and SciPy that choose among equals as the processor's sort does."""


def facts(changed: Mapping[str, str]) -> dict[str, str]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.contract.everywhere"]
    where = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        **changed,
    }
    found = subprocess.run(
        command, cwd=ROOT, env=where, capture_output=True, text=True, timeout=300, check=False
    )
    assert found.returncode == 0, found.stderr
    result: dict[str, str] = json.loads(found.stdout)
    return result


def dispatched() -> str:
    """What NumPy decides at run time, of what this processor has."""
    from numpy._core import _multiarray_umath as core

    return ",".join(name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name))


def test_results_do_not_depend_on_the_host() -> None:
    with_all = facts({"PYTHONHASHSEED": "0"})
    without = facts(PLAIN | {"NPY_DISABLE_CPU_FEATURES": dispatched()})
    assert len(with_all) > 100
    assert [name for name in with_all if with_all[name] != without.get(name)] == []


def calls() -> Iterator[tuple[str, ast.Call]]:
    for folder in ("tensorwise", "benchmarks", "experiments"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def is_unstable(call: ast.Call) -> bool:
    """Whether a call sorts places, and not values, without saying that equal ones stay in their order."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in UNSTABLE:
        return "tensorwise" not in ast.unparse(call.func)
    given = {word.arg: ast.unparse(word.value) for word in call.keywords}
    return name == "argsort" and given.get("kind") != "'stable'" and given.get("stable") != "True"


def test_sorts_of_places_are_stable() -> None:
    assert [place for place, call in calls() if is_unstable(call)] == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("np.argsort(x)", True), ("x.argsort()", True), ("np.argsort(x, kind='stable')", False),
        ("torch.argsort(x, stable=True)", False), ("np.argpartition(x, 3)", True), ("order_of(m)", False),
        ("csgraph.reverse_cuthill_mckee(m)", True), ("np.sort(x)", False),
    ],
)  # fmt: skip
def test_the_search_for_unstable_sorts_finds_them(text: str, wanted: bool) -> None:
    assert (
        is_unstable(next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))) == wanted
    )


def test_imports_bring_no_unstable_sort() -> None:
    """Also under another name."""
    for folder in ("tensorwise", "benchmarks", "experiments"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("tensorwise"):
                    assert not UNSTABLE & {alias.name for alias in node.names}, path


def test_equal_distances_are_taken_by_number() -> None:
    from tensorwise.search.nearest import nearest

    corners = np.array([[x, y] for x in (-1, 1) for y in (-1, 1)] * 2, np.float32)
    assert nearest(corners, 3).tolist()[0] == [4, 1, 2]
