"""What measuring a candidate is worth, against drawn times."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwise.tuning.worth import Prospect, cheapest, saving_s, total_s, worth_s

seconds = st.floats(1e-6, 1.0)
calls_of = st.floats(1.0, 1e6)


@pytest.mark.parametrize("spread", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.6])
@pytest.mark.parametrize("conversion_s", [0.0, 0.02])
def test_the_mean_of_drawn_savings(spread: float, ratio: float, conversion_s: float) -> None:
    best, calls = Prospect(1e-3, conversion_s=0.01), 100.0
    candidate = Prospect(ratio * 1e-3, spread, conversion_s)
    rng = np.random.default_rng(0)
    drawn = candidate.seconds * np.exp(spread * rng.standard_normal(400_000))
    saved = np.maximum(0.0, total_s(best, calls) - conversion_s - calls * drawn)
    error = saved.std() / math.sqrt(len(saved))
    assert saving_s(candidate, best, calls) == pytest.approx(saved.mean(), abs=5 * error + 1e-12)


@given(seconds, seconds, st.floats(0, 2), calls_of)
def test_never_negative_and_at_least_the_plain_difference(
    candidate: float, best: float, spread: float, calls: float
) -> None:
    """Not having to take a candidate is worth something: no less than taking it by its median."""
    plain = saving_s(Prospect(candidate), Prospect(best), calls)
    assert plain == pytest.approx(max(0.0, calls * (best - candidate)))
    found = saving_s(Prospect(candidate, spread), Prospect(best), calls)
    assert found >= 0
    mean = candidate * math.exp(spread**2 / 2)
    assert found >= calls * (best - mean) - 1e-9 * calls * (best + mean)


@given(seconds, seconds, st.floats(0, 1), st.floats(0, 1), calls_of)
def test_dear_conversions_save_less(
    candidate: float, best: float, spread: float, conversion_s: float, calls: float
) -> None:
    free = saving_s(Prospect(candidate, spread), Prospect(best), calls)
    dear = saving_s(Prospect(candidate, spread, conversion_s), Prospect(best), calls)
    assert dear <= free * (1 + 1e-9) + 1e-12


def test_what_cannot_save_more_than_all_of_it_is_not_worth_its_price() -> None:
    best = Prospect(1e-3)
    assert worth_s(Prospect(1e-9, price_s=0.5), best, calls=100) < 0
    assert worth_s(Prospect(1e-9, price_s=0.5), best, calls=1000) > 0
    assert (
        saving_s(Prospect(1e-9, conversion_s=10.0), best, calls=100) == 0.0
    )  # converting takes longer than all calls


def test_few_calls_are_best_served_by_what_is_there() -> None:
    there, faster = Prospect(1e-3), Prospect(0.5e-3, conversion_s=0.01, price_s=0.2)
    known = {"faster": faster, "there": there}
    assert cheapest(known, calls=10) == "there"
    assert cheapest(known, calls=10_000) == "faster"
