"""Listed, Orders and Later: counting, listing and drawing agree."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.errors import InputError
from tensorwise.space.domain import INACTIVE, Later, Listed, Orders, closure
from tensorwise.space.params import Choice

ITEMS = "abcde"


@st.composite
def orders(draw: st.DrawFn) -> Orders:
    """Orders of up to five items under random pairs without cycles."""
    items = tuple(draw(st.permutations(ITEMS[: draw(st.integers(1, 5))])))
    pairs = [pair for pair in itertools.combinations(items, 2) if draw(st.booleans())]
    shuffled = tuple(draw(st.permutations(items)))
    return Orders(shuffled, tuple(pairs))


@given(orders())
@settings(max_examples=60, deadline=None)
def test_listing_counting_and_membership_agree_with_brute_force(domain: Orders) -> None:
    brute = [
        order
        for order in itertools.permutations(domain.items)
        if all(order.index(a) < order.index(b) for a, b in domain.before)
    ]
    assert sorted(domain) == sorted(brute)
    assert domain.size == len(brute)
    assert all((order in domain) == (order in brute) for order in itertools.permutations(domain.items))


@given(orders(), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_samples_and_nearest_are_members(domain: Orders, seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = domain.sample(rng)
    assert order in domain
    assert isinstance(order, tuple)
    assert domain.nearest({item: float(k) for k, item in enumerate(order)}) == order
    assert domain.nearest({item: float(rng.random()) for item in domain.items}) in domain
    assert domain.nearest({}) in domain


def test_orders_are_drawn_uniformly() -> None:
    domain = Orders(("a", "b", "c", "d"), (("a", "b"), ("a", "c")))
    rng = np.random.default_rng(0)
    counts = Counter(domain.sample(rng) for _ in range(8000))
    assert len(counts) == domain.size == 8
    assert max(abs(count - 1000) for count in counts.values()) < 150  # five standard deviations


def test_many_items_are_counted_quickly() -> None:
    modes = "iklmnr"
    pairs = tuple((f"{mode}1", f"{mode}0") for mode in modes)
    domain = Orders(tuple(loop for pair in pairs for loop in pair), pairs)
    assert domain.size == math.factorial(12) // 2**6


def test_pairs_of_absent_items_are_ignored_and_cycles_refused() -> None:
    assert Orders(("a", "b"), (("a", "z"), ("z", "b"))).size == 2
    with pytest.raises(InputError, match="cycle"):
        Orders(("a", "b"), (("a", "b"), ("b", "a")))
    with pytest.raises(InputError, match="distinct"):
        Orders(("a", "a"))
    with pytest.raises(InputError, match="at most"):
        Orders(tuple(str(k) for k in range(17)))


def test_closure() -> None:
    assert set(closure((("a", "b"), ("b", "c"), ("c", "d")))) == {
        pair for pair in itertools.combinations("abcd", 2)
    }


def test_refusals_are_readable() -> None:
    assert "k1 must stand before k0" in Orders(("k1", "k0"), (("k1", "k0"),)).refuse(("k0", "k1"))
    assert "exactly k1, k0" in Orders(("k1", "k0")).refuse(("k1",))
    assert "3 is not allowed here; choose one of 1, 2" in Listed((1, 2)).refuse(3)
    assert "'1' (str)" in Listed((1, 2)).refuse("1")
    assert "does not apply" in INACTIVE.refuse(4)
    assert len(Listed(tuple(range(1000))).refuse(-1)) < 120


def test_the_rest_of_a_domain_is_found_when_somebody_asks() -> None:
    asked: list[int] = []

    def find() -> Listed:
        asked.append(1)
        return Listed(("none", "rows"))

    domain = Later("none", find)
    assert "none" in domain
    assert asked == []
    assert "columns" not in domain
    assert "rows" in domain
    assert domain.size == 2
    assert list(domain) == ["none", "rows"]
    assert {domain.sample(np.random.default_rng(seed)) for seed in range(20)} == {"none", "rows"}
    assert domain.refuse("columns") == find().refuse("columns")
    assert len(asked) == 2  # once by the domain, once here


def test_a_default_that_is_certain_is_taken_without_finding_the_rest() -> None:
    def never() -> Listed:
        raise AssertionError("found")

    param = Choice(
        "apart", ("none", "rows"), binds="pack", doc="What is kept apart, somewhere else.", prefer="none",
        narrow=lambda earlier, w: Later("none", never if w == "small" else lambda: Listed(("none", "moon"))),
    )  # fmt: skip
    assert param.default(param.domain({}, "small"), {}, "small") == "none"  # type: ignore[arg-type]
    with pytest.raises(InputError, match="gave 'moon'"):
        list(param.domain({}, "large"))  # type: ignore[arg-type]
