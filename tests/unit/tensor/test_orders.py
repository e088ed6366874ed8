"""Orders depend on the pattern alone: reverse Cuthill-McKee against a textbook version of its own."""

from collections import deque

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.orders import ORDERING, permutation, reverse_cuthill_mckee_plain


def pattern(rows: int, columns: int, density: float, kind: str, rng: np.random.Generator) -> Entries:
    matrix = (rng.random((rows, columns)) < density).astype(np.float32)
    if kind == "symmetric":
        matrix = np.maximum(matrix, matrix.T)
    return entries_from(matrix)


def textbook(entries: Entries) -> tuple[list[int], list[int]]:
    """Orders of rows and columns: the queue of Cuthill and McKee, every tie by index, turned round at the end."""
    dense = entries.to_scipy().toarray() != 0
    rows, columns = entries.shape
    alone = rows == columns and (dense == dense.T).all()
    links = (
        dense
        if alone
        else np.block([[np.zeros((rows, rows)), dense], [dense.T, np.zeros((columns, columns))]])
    )
    near = [[v for v in np.flatnonzero(links[u]).tolist() if v != u] for u in range(len(links))]
    by_degree = sorted(range(len(near)), key=lambda v: (len(near[v]), v))
    found: dict[int, None] = {}
    for root in by_degree:
        queue = deque([root] if root not in found else [])
        found[root] = None
        while queue:
            for v in sorted(near[queue.popleft()], key=lambda v: (len(near[v]), v)):
                if v not in found:
                    found[v] = None
                    queue.append(v)
    order = list(found)[::-1]
    if alone:
        return order, order
    return [v for v in order if v < rows], [v - rows for v in order if v >= rows]


@pytest.mark.parametrize("kind", ["symmetric", "square", "any"])
@pytest.mark.parametrize("density", [0.02, 0.1, 0.5])
def test_compiled_and_plain_are_the_textbook_order(kind: str, density: float) -> None:
    assert ORDERING.works
    rng = np.random.default_rng(3)
    for _ in range(12):
        rows, columns = rng.integers(1, 40, 2).tolist()
        entries = pattern(rows, rows if kind != "any" else columns, density, kind, rng)
        if not entries.nnz:
            continue
        wanted = textbook(entries)
        assert [permutation(entries, mode, "rcm").tolist() for mode in (0, 1)] == list(wanted)
        vertices, order = reverse_cuthill_mckee_plain(entries)
        symmetric = vertices == entries.shape[0]
        assert symmetric == (wanted[0] is wanted[1])
        assert order[order < entries.shape[0]].tolist() == wanted[0]


def test_without_a_compiler_the_order_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = pattern(90, 70, 0.05, "any", np.random.default_rng(0))
    compiled = [permutation(entries, mode, "rcm") for mode in (0, 1)]
    monkeypatch.setattr(ORDERING, "works", False)
    for mode, order in enumerate(compiled):
        assert np.array_equal(permutation(entries, mode, "rcm"), order)


def test_equal_columns_of_entries_do_not_make_a_pattern_symmetric() -> None:
    """Both triangles list the columns 0, 1 one after the other, yet rows 0 and 1 hold them apart or together."""
    together = entries_from(((2, 2), (np.array([0, 0]), np.array([0, 1])), None))
    assert reverse_cuthill_mckee_plain(together)[0] == 4
    assert [permutation(together, mode, "rcm").tolist() for mode in (0, 1)] == list(textbook(together))


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (3, 5)])
def test_patterns_without_entries_or_with_one_keep_every_coordinate(shape: tuple[int, int]) -> None:
    empty = entries_from((shape, (np.array([], np.int64), np.array([], np.int64)), None))
    one = entries_from((shape, (np.array([shape[0] - 1]), np.array([0])), None))
    for entries in (empty, one):
        for mode in (0, 1):
            assert sorted(permutation(entries, mode, "rcm").tolist()) == list(range(shape[mode]))


def test_a_shuffled_band_comes_back() -> None:
    size = 400
    band = sp.diags_array([1.0] * 5, offsets=range(-2, 3), shape=(size, size)).tocsr()
    shuffled = np.random.default_rng(1).permutation(size)
    entries = entries_from(band[shuffled][:, shuffled])
    places = np.argsort(permutation(entries, 0, "rcm"), kind="stable")
    rows, columns = entries.coordinates
    assert np.abs(places[rows] - places[columns]).max() <= 4


def test_hubs_do_not_take_quadratic_time_or_stack() -> None:
    leaves = np.arange(1, 300_000)
    hub = np.zeros_like(leaves)
    star = entries_from(((300_000, 300_000), (np.append(hub, leaves), np.append(leaves, hub)), None))
    order = permutation(star, 0, "rcm")
    # the first leaf, then the hub, then the others; reversed
    assert order[-3:].tolist() == [2, 0, 1]
    assert order[0] == 299_999
