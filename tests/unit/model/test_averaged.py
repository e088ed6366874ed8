"""Means of a training's weights."""

import pytest

torch = pytest.importorskip("torch")

from tensorwise.model.averaged import FIRST, Averaged  # noqa: E402


def test_late_steps_weigh_most_and_first_weights_are_forgotten() -> None:
    weight = torch.nn.Parameter(torch.tensor([100.0]))
    mean = Averaged({"weight": weight}, 0.5)
    expected = 100.0
    for step in range(1, 30):
        with torch.no_grad():
            weight.fill_(float(step))
        mean.step()
        kept = min(0.5, step / (step + FIRST))
        expected = kept * expected + (1 - kept) * step
        assert float(mean.values["weight"]) == pytest.approx(expected, rel=1e-5)
    assert float(mean.values["weight"]) == pytest.approx(
        28, abs=0.1
    )  # the one before the last, where half is kept


def test_what_does_not_change_is_its_own_mean() -> None:
    weight = torch.nn.Parameter(torch.tensor([3.0, -1.0]))
    mean = Averaged({"weight": weight}, 0.999)
    for _ in range(5):
        mean.step()
    assert mean.values["weight"].tolist() == [3.0, -1.0]
    assert not mean.values["weight"].requires_grad
