"""Labels of seconds can be read back, whatever the transformation, in NumPy and in torch."""

from typing import get_args

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.model.labels import Kind, Labels

SECONDS = np.exp(np.random.default_rng(0).normal(-8, 2, 500))


@pytest.mark.parametrize("kind", get_args(Kind))
def test_seconds_come_back(kind: Kind) -> None:
    labels = Labels.from_json(Labels.fitted(kind, SECONDS).to_json())
    inside = np.sort(SECONDS)[5:-5]
    found = labels.of(inside, np)
    assert (np.diff(found) > 0).all()
    np.testing.assert_allclose(np.exp(labels.log_seconds(found, np)), inside, rtol=1e-6)
    all_labels = labels.of(SECONDS, np)
    assert abs(all_labels.mean()) < 1e-6
    assert all_labels.std() == pytest.approx(1)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_torch_says_the_same(kind: Kind) -> None:
    torch = pytest.importorskip("torch")
    labels = Labels.fitted(kind, SECONDS)
    given = torch.from_numpy(SECONDS)
    np.testing.assert_allclose(labels.of(given, torch).numpy(), labels.of(SECONDS, np), atol=1e-9)
    back = torch.linspace(-3, 3, 50, dtype=torch.float64)
    np.testing.assert_allclose(labels.log_seconds(back, torch).numpy(), labels.log_seconds(back.numpy(), np))


@pytest.mark.parametrize("kind", get_args(Kind))
def test_any_label_stands_for_some_time(kind: Kind) -> None:
    labels = Labels.fitted(kind, SECONDS)
    assert np.isfinite(labels.log_seconds(np.linspace(-50, 50, 101), np)).all()


def test_of_a_lognormal_box_cox_is_the_logarithm() -> None:
    assert abs(Labels.fitted("box-cox", SECONDS).power) < 0.05


def test_what_cannot_be_fitted_is_refused() -> None:
    for seconds in ([1.0], [1.0, 1.0], [1.0, 0.0]):
        with pytest.raises(InputError, match="two different times"):
            Labels.fitted("log", np.array(seconds))
    with pytest.raises(InputError, match="labels must be one of"):
        Labels.fitted("cube", SECONDS)  # type: ignore[arg-type]
    good = Labels.fitted("quantile", SECONDS).to_json()
    for bad in ({"kind": "cube"}, {"deviation": 0.0}, {"mean": float("nan")}, {"levels": []}):
        with pytest.raises(InputError):
            Labels.from_json({**good, **bad})
