"""Python, NumPy and C walk a tree alike."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.errors import CompilerError, InputError
from tensorwise.model import tree as module
from tensorwise.model.tree import LEAF, Tree
from tensorwise.toolchain.compiler import find_compiler


def compiler() -> bool:
    try:
        find_compiler()
    except CompilerError:
        return False
    return True


needs_compiler = pytest.mark.skipif(not compiler(), reason="no C compiler")


def random_tree(rng: np.random.Generator, fields: int, depth: int) -> Tree:
    """Down to ``depth`` questions; nodes below the third ask with probability 0.8. Leaves say 0 to 9."""
    feature: list[int] = []
    threshold: list[float] = []
    above: list[int] = []
    value: list[float] = []

    def grow(left: int) -> None:
        node = len(feature)
        feature.append(LEAF)
        threshold.append(0.0)
        above.append(0)
        value.append(float(rng.integers(10)))
        if left and (left > depth - 3 or rng.random() < 0.8):
            feature[node], threshold[node], value[node] = int(rng.integers(fields)), float(rng.normal()), 0.0
            grow(left - 1)
            above[node] = len(feature)
            grow(left - 1)

    grow(depth)
    return Tree.checked(feature, threshold, above, value, fields)


def inputs(rng: np.random.Generator, tree: Tree, fields: int) -> np.ndarray:
    """Random rows, rows on thresholds, and what is no number."""
    rows = rng.normal(size=(60, fields))
    rows[:20] = rng.choice(tree.threshold, (20, fields))
    rows[20], rows[21], rows[22], rows[23] = np.nan, np.inf, -np.inf, 0.0
    return rows


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_numpy_walks_as_python_does(seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 4, depth)
    rows = inputs(rng, tree, 4)
    np.testing.assert_array_equal(tree.values_at(rows), [tree.at(row) for row in rows.tolist()])
    assert tree.depth <= depth
    assert tree.leaves == (len(tree.feature) + 1) // 2


@given(st.integers(0, 2**32 - 1), st.integers(0, 8))
@settings(max_examples=50, deadline=None)
def test_questions_that_do_not_matter_are_left_out(seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 4, depth)
    tree = replace(tree, value=np.where(tree.feature == LEAF, tree.value % 2, 0))
    short, rows = tree.without_idle_questions(), inputs(rng, tree, 4)
    np.testing.assert_array_equal(short.values_at(rows), tree.values_at(rows))
    inner = np.flatnonzero(short.feature != LEAF)
    below, above = inner + 1, short.above[inner]
    alike = (
        (short.feature[below] == LEAF)
        & (short.feature[above] == LEAF)
        & (short.value[below] == short.value[above])
    )
    assert not alike.any()
    assert Tree.checked(short.feature, short.threshold, short.above, short.value, 4).leaves <= tree.leaves


@needs_compiler
@pytest.mark.parametrize(("seed", "fields", "depth"), [(0, 4, 0), (1, 4, 3), (2, 4, 12), (3, 1, 6)])
def test_c_walks_as_python_does(seed: int, fields: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, fields, depth)
    rows = inputs(rng, tree, fields)
    expected = [int(tree.at(row)) for row in rows.tolist()]
    compiled = tree.compiled(fields)
    assert compiled.values_at(rows).tolist() == expected
    assert [compiled.one(*row) for row in rows.tolist()] == expected
    assert [tree.deciding(fields)(*row) for row in rows.tolist()] == expected


def test_without_a_compiler_it_is_walked_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise CompilerError("none here")

    monkeypatch.setattr(module, "default_cache", none)
    tree = random_tree(np.random.default_rng(5), 2, 4)
    decide = tree.deciding(2)
    assert decide(0.1, 0.2) == tree.at([0.1, 0.2])


def test_json_keeps_every_number() -> None:
    tree = random_tree(np.random.default_rng(6), 3, 6)
    again = Tree.from_json(json.loads(json.dumps(tree.to_json())), 3)
    for name in ("feature", "threshold", "above", "value"):
        np.testing.assert_array_equal(getattr(again, name), getattr(tree, name))


def test_features_may_stand_in_another_order() -> None:
    rng = np.random.default_rng(7)
    tree, places = random_tree(rng, 4, 6), [2, 0, 3, 1]
    rows = inputs(rng, tree, 4)
    shuffled = np.empty_like(rows)
    shuffled[:, places] = rows
    np.testing.assert_array_equal(tree.reading(places).values_at(shuffled), tree.values_at(rows))


SOUND: dict[str, Any] = {
    "feature": [0, LEAF, LEAF], "threshold": [1.0, 0, 0], "above": [2, 0, 0], "value": [0, 1, 2],
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"above": [1, 0, 0]},
        {"above": [3, 0, 0]},
        {"above": [-1, 0, 0]},
        {"feature": [1, LEAF, LEAF]},
        {"feature": [-2, LEAF, LEAF]},
        {"feature": [0, LEAF, 0]},
        {"threshold": [float("nan"), 0, 0]},
        {"value": [0, 1]},
        {"feature": [], "threshold": [], "above": [], "value": []},
    ],
)
def test_what_is_no_tree_is_refused(change: dict[str, Any]) -> None:
    Tree.from_json(SOUND, 1)
    with pytest.raises(InputError):
        Tree.from_json({**SOUND, **change}, 1)


def test_a_deep_tree_is_shown_up_to_some_questions() -> None:
    tree = random_tree(np.random.default_rng(8), 2, 9)
    text = tree.text(["m", "n"], "{:.0f}".format, levels=2)
    assert "leaves:" in text
    assert max(len(line) - len(line.lstrip()) for line in text.splitlines()) <= 4
    whole = tree.text(["m", "n"], "{:.0f}".format)
    assert len(whole.splitlines()) == (len(tree.feature) - 1) + tree.leaves
