"""Algorithm 1: what is asked for lies near borders, and borders need few measurements."""

import numpy as np
import pytest

from tensorwise.adapt.active import MARGIN, ActiveSampling, losses, margins
from tensorwise.errors import InputError

pytest.importorskip("sklearn")

Point = tuple[float, float]


def draw(rng: np.random.Generator) -> Point:
    x, y = rng.uniform(0, 1, 2)
    return float(x), float(y)


def costs(points: np.ndarray) -> np.ndarray:
    """Penalties of two answers, with a border at x = 0.3."""
    second = points[:, 0] > 0.3
    return np.column_stack([np.where(second, 1.0, 0.0), np.where(second, 0.0, 1.0)])


def sampling(rng: np.random.Generator, **options: object) -> ActiveSampling[Point]:
    return ActiveSampling(draw, list, repr, rng, **options)  # type: ignore[arg-type]


def test_at_first_inputs_are_taken_as_they_come() -> None:
    asked = sampling(np.random.default_rng(0), initial=50).ask(30)
    rng = np.random.default_rng(0)
    assert asked == [draw(rng) for _ in range(30)]


@pytest.mark.parametrize("margin", [None, MARGIN])
def test_then_those_near_the_border(margin: float | None) -> None:
    sampler = sampling(np.random.default_rng(0), initial=100, margin=margin)
    known = np.array(sampler.ask(100))
    sampler.tell(known, costs(known))
    near = np.array(sampler.ask(50))
    assert len(near) == 50
    assert np.abs(near[:, 0] - 0.3).mean() < np.abs(known[:, 0] - 0.3).mean() / 2


def test_where_little_can_be_lost_little_is_asked() -> None:
    """One border of two matters a hundred times less, and counts so; the paper's guide looks at both alike."""

    def near_the_cheap_one(margin: float | None) -> float:
        sampler = sampling(np.random.default_rng(0), initial=200, margin=margin)
        known = np.array(sampler.ask(200))
        penalty = np.where(known[:, 0] < 0.5, 0.01, 1.0)
        second = np.where(known[:, 0] < 0.5, known[:, 0] > 0.25, known[:, 0] > 0.75)
        sampler.tell(known, np.column_stack([second * penalty, ~second * penalty]))
        return float(np.mean(np.array(sampler.ask(50))[:, 0] < 0.5))

    assert near_the_cheap_one(None) < 0.45 < near_the_cheap_one(MARGIN)


def test_losses_are_what_a_tree_would_have_saved() -> None:
    agreed = np.array([[[0.0, 1.0], [0.4, 0.0]], [[0.0, 1.0], [0.0, 0.2]]])
    np.testing.assert_allclose(losses(agreed), [0.0, 0.1])


def test_without_a_guide_all_are_taken() -> None:
    sampler = sampling(np.random.default_rng(0))
    known = np.array(sampler.ask(100))
    sampler.tell(known, costs(known))
    assert np.array(sampler.ask(100))[:, 0].max() > 0.9


def test_one_answer_says_nothing_about_borders() -> None:
    sampler = sampling(np.random.default_rng(0), initial=10)
    known = np.array(sampler.ask(20))
    sampler.tell(known, np.tile([0.0, 1.0], (20, 1)))
    assert len(sampler.ask(20)) == 20


@pytest.mark.parametrize("margin", [None, MARGIN])
def test_where_all_is_certain_it_ends(margin: float | None) -> None:
    sampler = ActiveSampling(
        lambda rng: (float(rng.integers(0, 2) + rng.uniform(0, 0.1)), 0.0), list, repr,
        np.random.default_rng(0), initial=10, margin=margin,
    )  # fmt: skip
    known = np.array(sampler.ask(60))
    sampler.tell(known, costs(known))
    assert sampler.ask(10) == []


def test_nothing_is_taken_twice_and_a_list_ends() -> None:
    listed = iter([(0.0, 0.0), (1.0, 0.0), (0.0, 0.0), (2.0, 0.0), (3.0, 0.0)])
    sampler: ActiveSampling[Point] = ActiveSampling(
        lambda rng: next(listed, None), list, repr, np.random.default_rng(0)
    )
    sampler.skip([repr((3.0, 0.0))])
    assert sampler.ask(9) == [(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)]
    assert sampler.ask(9) == []


def test_a_generator_that_repeats_itself_ends() -> None:
    sampler: ActiveSampling[Point] = ActiveSampling(
        lambda rng: (float(rng.integers(3)), 0.0), list, repr, np.random.default_rng(0)
    )
    assert sorted(sampler.ask(9)) == [(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)]


def test_margins_of_the_two_likeliest() -> None:
    """The paper's example, section III-A3: 0.5, 0.4 and 0.1 give 0.1."""
    assert margins(np.array([[0.5, 0.4, 0.1]]))[0] == pytest.approx(0.1)
    with pytest.raises(InputError, match="margin"):
        sampling(np.random.default_rng(0), margin=0.0)
