"""Networks that look at patterns: one interface, and what each can and cannot see."""

import numpy as np
import pytest

from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries

torch = pytest.importorskip("torch")

from paper_models.nets import image  # noqa: E402  (needs torch; adds networks)

from tensorwise.model.nets import NETS, PatternNet, new_net  # noqa: E402
from tensorwise.model.scoring import BLIND, EMBEDDING, look  # noqa: E402

pytestmark = [pytest.mark.usefixtures("one_torch_thread"), pytest.mark.parametrize("name", NETS)]


def pattern(shape: tuple[int, ...], nnz: int, seed: int = 0) -> Entries:
    rng = np.random.default_rng(seed)
    return entries_from((shape, [rng.integers(0, size, nnz) for size in shape], None))


def embedded(net: PatternNet, *patterns: Entries) -> np.ndarray:
    numbers = torch.zeros((len(patterns), 4))
    with torch.no_grad():
        result: np.ndarray = net(net.prepare(patterns), numbers).numpy()
    return result


@pytest.mark.parametrize("shape", [(40, 1000), (1, 1), (9, 30, 5), (2**33, 7, 2**40)])
def test_embeddings_of_any_pattern(name: str, shape: tuple[int, ...]) -> None:
    net = new_net(name, len(shape), 4, seed=0)
    patterns = [pattern(shape, 60), pattern(shape, 0), pattern(shape, 1)]
    together = embedded(net, *patterns)
    assert together.shape == (3, EMBEDDING)
    assert together.dtype == np.float32
    assert np.isfinite(together).all()
    for one, expected in zip(patterns, together, strict=True):
        np.testing.assert_allclose(embedded(net, one)[0], expected, rtol=1e-4, atol=1e-6)


def test_all_but_the_numbers_see_the_pattern(name: str) -> None:
    net = new_net(name, 2, 4, seed=0)
    spread, dense = pattern((64, 64), 300), entries_from(np.ones((64, 5), np.float32))
    diagonal = entries_from(((64, 64), [np.arange(64)] * 2, None))
    different = [not np.allclose(embedded(net, diagonal), embedded(net, one)) for one in (spread, dense)]
    assert different == [net.looks] * 2


def test_every_weight_learns(name: str) -> None:
    net = new_net(name, 2, 4, seed=0)
    patterns = [pattern((500, 300), 2000), pattern((500, 300), 100, 1)]
    net(net.prepare(patterns), torch.randn(2, 4)).square().sum().backward()
    still = [key for key, weight in net.named_parameters() if not weight.grad.abs().sum() > 0]
    assert still == []


def test_weights_follow_the_seed_and_leave_torchs_generator_alone(name: str) -> None:
    state = torch.random.get_rng_state()
    nets = [new_net(name, 2, 4, seed) for seed in (1, 1, 2)]
    assert torch.equal(torch.random.get_rng_state(), state)
    one = pattern((20, 20), 50)
    first, again, other = (embedded(net, one) for net in nets)
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_prepared_says_its_bytes(name: str) -> None:
    net = new_net(name, 2, 4, seed=0)
    prepared = net.prepare([pattern((50, 50), 200)])
    net(prepared, torch.zeros(1, 4))
    assert prepared.nbytes > 0 or not net.looks


def test_blind_ones_are_read_by_numpy(name: str) -> None:
    net = new_net(name, 2, 9, seed=0)
    assert net.looks == (name not in BLIND)
    if not net.looks:
        numbers = np.random.default_rng(0).standard_normal(9).astype(np.float32)
        with torch.no_grad():
            expected = net(torch.empty((1, 0)), torch.from_numpy(numbers[None]))[0].numpy()
        weights = {key: weight.numpy() for key, weight in net.state_dict().items()}
        np.testing.assert_allclose(look(weights, numbers), expected, rtol=1e-4, atol=1e-6)


def test_an_image_counts(name: str) -> None:
    if name != "dense":
        pytest.skip("sees no image")
    entries = entries_from(np.eye(10, dtype=np.float32))
    np.testing.assert_allclose(image(entries, 16)[:10, :10], np.log1p(np.eye(10)), rtol=1e-6)
    np.testing.assert_allclose(np.expm1(image(entries, 4)).sum(), 10, rtol=1e-6)
    assert image(entries, 4).shape == (4, 4)


FAR = {"waco": (100, 3000), "resnet": (24, 34), "cognate": (8, 34)}
"""Two distances of two entries, further apart than the same kernels reach without strides or pooling."""


@pytest.mark.parametrize("order", [2, 3])
def test_strides_and_pooling_bring_distant_entries_together(name: str, order: int) -> None:
    """Two entries meet in a layer that depends on their distance; without strides each would be alone in all layers."""
    if name not in FAR:
        pytest.skip("its kernels do not follow entries")
    net = new_net(name, order, 4, seed=0)
    shape = (5000,) * order
    pairs = [entries_from((shape, [np.array([0, far])] * order, None)) for far in FAR[name]]
    with torch.no_grad():
        near, distant = net.pool(net.prepare(pairs))
    assert (near - distant).abs().max() > 1e-3 * near.abs().max() > 0


def test_wacos_embedding_pools_every_layer(name: str) -> None:
    """Each layer has its own part of what is pooled, which the layers after it do not change (WACO, figure 4-4)."""
    if name != "waco":
        pytest.skip("pools its last layer only")
    net, one = new_net(name, 2, 4, seed=0), pattern((300, 200), 400)
    layers = list(net.layers)  # type: ignore[arg-type]
    with torch.no_grad():
        prepared = net.prepare([one])
        before = net.pool(prepared).view(len(layers), -1)
        layers[7].weight *= 2
        after = net.pool(prepared).view(len(layers), -1)
    changed = [not torch.equal(was, now) for was, now in zip(before, after, strict=True)]
    assert changed == [False] * 7 + [True] * (len(layers) - 7)
    assert (before.abs().sum(dim=1) > 0).all()
