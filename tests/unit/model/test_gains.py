"""What choosing by predictions gains."""

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.model.gains import Gain, gain, mean_gain


def test_of_one_workload() -> None:
    costs = np.array([4.0, 2.0, 1.0, 8.0, 8.0, 16.0, 3.0])
    found = gain(costs, np.array([1.0, 0.0, 9.0, 2.0, 3.0, 4.0, 5.0]), 4.0)
    assert (found.speedup1, found.speedup5, found.optimum) == (2.0, 2.0, 4.0)
    assert gain(costs, costs, 4.0) == Gain(4.0, 4.0, 4.0, 1.0, pytest.approx(1.0))  # type: ignore[arg-type]
    backwards = gain(costs, -costs, 4.0)
    assert (backwards.speedup1, backwards.ordered, backwards.kendall) == (0.25, 0.0, pytest.approx(-1.0))


def test_a_config_that_failed_is_replaced_by_the_default() -> None:
    costs = np.array([np.inf, 2.0, 1.0])
    found = gain(costs, np.array([0.0, 1.0, 2.0]), 2.0)
    assert (found.speedup1, found.optimum) == (1.0, 2.0)
    assert found.ordered == 0.0
    alike = gain(np.ones(3), np.zeros(3), 1.0)
    assert (alike.ordered, alike.kendall) == (1.0, 0.0)


def test_means_are_geometric() -> None:
    found = mean_gain([Gain(1.0, 2.0, 4.0, 0.5, 0.0), Gain(4.0, 8.0, 16.0, 1.0, 1.0)])
    assert found == pytest.approx(
        {
            "workloads": 2, "speedup1": 2.0, "speedup5": 4.0, "optimum": 8.0, "top1": 0.25, "top5": 0.5,
            "gained1": 1 / 7, "gained5": 3 / 7, "ordered": 0.75, "kendall": 0.5,
        }
    )  # fmt: skip
    assert mean_gain([Gain(1.0, 1.0, 1.0, 1.0, 0.0)])["gained1"] == 0.0


def test_what_cannot_be_judged() -> None:
    with pytest.raises(InputError, match="no workload"):
        mean_gain([])
    with pytest.raises(InputError, match="default config has no time"):
        gain(np.ones(2), np.ones(2), np.nan)


def test_what_is_predicted_alike_is_not_ordered() -> None:
    costs = np.array([1.0, 2.0, 3.0])
    assert gain(costs, np.zeros(3), 1.0).ordered == 0.0
    assert gain(costs, np.array([0.0, 0.0, 1.0]), 1.0).ordered == pytest.approx(2 / 3)
