"""Sparse convolution against torch's dense one, at the sites that there are."""

import itertools

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries

torch = pytest.importorskip("torch")

from paper_models import sparse_convolution  # noqa: E402  (needs torch)
from paper_models.sites import Sites, offsets  # noqa: E402
from paper_models.sparse_convolution import (  # noqa: E402
    SparseConvolution,
    convolve,
    largest_in_blocks,
    mean_by_pattern,
)

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def pattern(shape: tuple[int, ...], nnz: int, seed: int = 0) -> Entries:
    rng = np.random.default_rng(seed)
    return entries_from((shape, [rng.integers(0, size, nnz) for size in shape], None))


def dense(features, sites: Sites):  # type: ignore[no-untyped-def]
    """Features on the whole grid: (patterns, channels, *extents)."""
    grid = torch.zeros((sites.patterns, *sites.extents, features.shape[1]), dtype=features.dtype)
    grid[tuple(sites.places.T)] = features
    return grid.movedim(-1, 1)


@pytest.mark.parametrize(
    ("shapes", "nnz"),
    [
        ([(17, 23)], 80),
        ([(1, 1)], 1),
        ([(16, 8), (9, 31), (5, 5)], 40),
        ([(7, 6, 9)], 60),
        ([(4, 5, 6), (8, 3, 2)], 25),
        ([(6, 6)], 0),
        ([(6, 6), (7, 3)], 0),
    ],
)
@pytest.mark.parametrize(("size", "stride"), [(1, 1), (3, 1), (5, 1), (1, 2), (3, 2), (3, 3), (5, 4)])
def test_like_the_dense_convolution(
    shapes: list[tuple[int, ...]], nnz: int, size: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_convolution, "MOST_ROWS", 7)  # several pieces even here
    torch.manual_seed(0)
    order = len(shapes[0])
    patterns = [pattern(shape, nnz if k else max(nnz, 0), k) for k, shape in enumerate(shapes)]
    sites = Sites.of(patterns)
    layer = SparseConvolution(order, 2, 3, size, stride).double()
    torch.nn.init.normal_(layer.bias)
    features = torch.randn(len(sites), 2, dtype=torch.float64)
    target, result = layer(sites, features)
    assert result.shape == (len(target), 3)
    assert target is sites if stride == 1 else len(target) <= len(sites)
    kernel = layer.weight.movedim(2, 0).movedim(2, 1).reshape(3, 2, *(size,) * order)
    function = torch.nn.functional.conv2d if order == 2 else torch.nn.functional.conv3d
    expected = function(dense(features, sites), kernel, layer.bias, stride, size // 2)
    at_sites = expected.movedim(1, -1)[tuple(target.places.T)]
    torch.testing.assert_close(result, at_sites)
    # The output's sites are the blocks that hold a site, each once, in order.
    blocks = {(p, *(c // stride for c in place)) for p, *place in sites.places.tolist()}
    assert [tuple(place) for place in target.places.tolist()] == sorted(blocks)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(5, 6), (3, 4, 3)])
def test_gradients(shape: tuple[int, ...], stride: int) -> None:
    torch.manual_seed(1)
    sites = Sites.of([pattern(shape, 9), pattern(shape, 5, 1)])
    pairs, count = sites.pairs(3, stride), len(sites.coarser(stride))
    features = torch.randn(len(sites), 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3 ** len(shape), 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: convolve(x, w, pairs, count), (features, weight))


def test_gradients_of_an_empty_pattern() -> None:
    sites = Sites.of([pattern((5, 5), 0)])
    layer = SparseConvolution(2, 1, 2, 3, 2)
    target, result = layer(sites, torch.ones(0, 1))
    pooled = mean_by_pattern(target, result)
    assert pooled.tolist() == [[0.0, 0.0]]
    pooled.sum().backward()
    assert layer.weight.grad.abs().sum() == 0


def test_means_are_by_pattern() -> None:
    sites = Sites.of([pattern((4, 4), 1), pattern((4, 4), 0), pattern((4, 4), 200)])
    assert sites.counts.tolist() == [1, 0, 16]
    features = torch.arange(17.0)[:, None]
    assert mean_by_pattern(sites, features).tolist() == [[0.0], [0.0], [8.5]]
    one = Sites.of([pattern((4, 4), 200)])
    assert mean_by_pattern(one, torch.arange(16.0)[:, None]).tolist() == [[7.5]]


@pytest.mark.parametrize(
    "shape",
    [
        (2**31 + 9, 2**31 + 9),  # above 2**31, and their product close to 2**63
        (2**40, 2**40),  # the product needs two groups of columns
        (2**21, 2**21, 2**22),
        (3_000_000, 2_200_000, 26_000_000),  # like FROSTT's nell-1
        (2**55, 3, 2**55),
    ],
)
def test_places_beyond_63_bits(shape: tuple[int, ...]) -> None:
    """Clusters far apart: what meets what is compared with sets of tuples."""
    rng = np.random.default_rng(0)
    corners = [[int(rng.integers(0, max(1, size - 6))) for size in shape] for _ in range(4)]
    corners += [[0] * len(shape), [max(0, size - 6) for size in shape]]
    places = {
        tuple(min(size - 1, at + int(rng.integers(0, 6))) for at, size in zip(corner, shape, strict=True))
        for corner in corners
        for _ in range(30)
    }
    listed = sorted(places)
    sites = Sites.of([entries_from((shape, np.array(listed).T, None))])
    for size, stride in ((3, 1), (5, 1), (3, 2)):
        targets = sites.coarser(stride)
        blocks = sorted({tuple(c // stride for c in place) for place in listed})
        assert [tuple(place[1:]) for place in targets.places.tolist()] == blocks
        pairs = sites.pairs(size, stride)
        for offset, (sources, hit) in zip(offsets(len(shape), size), pairs, strict=True):
            meeting = [tuple(q * stride + d for q, d in zip(block, offset, strict=True)) for block in blocks]
            expected = {(listed.index(p), row) for row, p in enumerate(meeting) if p in places}
            assert set(zip(sources.tolist(), hit.tolist(), strict=True)) == expected


def test_an_extent_that_no_key_can_hold_is_refused() -> None:
    places = torch.zeros((2**10, 3), dtype=torch.int64)
    with pytest.raises(InputError, match="too large"):
        Sites(places, 1, (2**40, 2**60))


def test_a_pattern_in_company_is_as_it_is_alone() -> None:
    torch.manual_seed(0)
    patterns = [pattern((30, 20), 90), pattern((8, 50), 33, 1)]
    layer = SparseConvolution(2, 1, 4, 3, 2)
    together = layer(Sites.of(patterns), torch.ones(sum(one.nnz for one in patterns), 1))[1]
    alone = [layer(Sites.of([one]), torch.ones(one.nnz, 1))[1] for one in patterns]
    torch.testing.assert_close(together, torch.cat(alone))


def test_what_is_derived_is_kept_and_counted() -> None:
    sites = Sites.of([pattern((64, 64), 500)])
    before = sites.nbytes
    assert sites.pairs(3, 2) is sites.pairs(3, 2)
    assert sites.coarser(2) is sites.coarser(2)
    assert sites.nbytes > before > 0
    assert all(a.dtype == b.dtype == torch.int32 for a, b in sites.pairs(5, 1))


def test_kernels_have_a_centre_and_batches_an_order() -> None:
    for size in (0, 2, -1):
        with pytest.raises(InputError, match="odd"):
            offsets(2, size)
    assert offsets(1, 3) == [(-1,), (0,), (1,)]
    assert list(itertools.chain(offsets(3, 1))) == [(0, 0, 0)]
    with pytest.raises(InputError, match="one order"):
        Sites.of([pattern((3, 3), 2), pattern((3, 3, 3), 2)])


@pytest.mark.parametrize("shapes", [[(17, 23)], [(16, 8), (9, 31), (5, 5)], [(7, 6, 9)], [(6, 6), (7, 3)]])
@pytest.mark.parametrize("stride", [2, 3])
def test_max_pooling_is_that_of_the_sites_that_are_there(shapes: list[tuple[int, ...]], stride: int) -> None:
    torch.manual_seed(0)
    sites = Sites.of([pattern(shape, 40, k) for k, shape in enumerate(shapes)])
    features = torch.randn(len(sites), 3, requires_grad=True)
    coarser, pooled = largest_in_blocks(sites, features, stride)
    by_block: dict[tuple[int, ...], list[int]] = {}
    for row, place in enumerate(sites.places.tolist()):
        by_block.setdefault((place[0], *(one // stride for one in place[1:])), []).append(row)
    assert [tuple(place) for place in coarser.places.tolist()] == sorted(by_block)
    expected = [features[by_block[place]].max(dim=0).values for place in sorted(by_block)]
    assert torch.equal(pooled, torch.stack(expected))
    pooled.sum().backward()
    assert features.grad.sum() == pooled.numel()
    assert sites.blocks(stride) is sites.blocks(stride)


def test_max_pooling_of_nothing_is_nothing() -> None:
    sites = Sites.of([pattern((6, 6), 0)])
    coarser, pooled = largest_in_blocks(sites, torch.zeros(0, 5))
    assert (len(coarser), pooled.shape) == (0, (0, 5))
