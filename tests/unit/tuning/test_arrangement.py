"""Arrangements: the front of memory and time, and what is chosen of it."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.tuning.arrangement import (
    Arrangement,
    Stored,
    Way,
    arrangements,
    choose,
    finalists,
    promising,
    unbeaten,
    why,
)

STORED = [
    Stored(name, nbytes, nbytes / 100) for name, nbytes in (("a", 100), ("b", 130), ("c", 90), ("d", 250))
]


def random_ways(rng: np.random.Generator, modes: int) -> list[list[Way]]:
    """Two to five ways a mode, with workspaces now and then."""
    return [
        [
            Way(
                f"{mode}-{place}",
                STORED[int(rng.integers(len(STORED)))],
                float(rng.integers(1, 20)),
                workspace_bytes=int(rng.choice([0, 0, 40])),
            )
            for place in range(int(rng.integers(2, 6)))
        ]
        for mode in range(modes)
    ]


@pytest.mark.parametrize("calls", [None, 0.5, 10.0])
@pytest.mark.parametrize("modes", [1, 3, 4])
def test_the_front_is_that_of_all_combinations(modes: int, calls: float | None) -> None:
    rng = np.random.default_rng(modes)
    for _ in range(30):
        ways = random_ways(rng, modes)
        every = unbeaten(map(Arrangement, product(*ways)), calls)
        found = arrangements(ways, calls)
        assert [(one.bytes_held, one.cost(calls)) for one in found] == [
            (one.bytes_held, one.cost(calls)) for one in every
        ]


def test_a_shared_tensor_is_counted_once() -> None:
    a, b = STORED[:2]
    one = Arrangement((Way("x", a, 1.0, workspace_bytes=7), Way("y", b, 2.0), Way("z", a, 3.0)))
    assert one.stored == (a, b)
    assert one.bytes_held == 100 + 130 + 7
    assert one.bytes_unshared == 100 + 130 + 100 + 7
    assert one.conversion_s == a.conversion_s + b.conversion_s
    assert one.readers(a) == (0, 2)
    assert one.seconds == 6.0
    assert one.cost(2) == 6.0 + one.conversion_s / 2


def found() -> list[Arrangement]:
    """100 bytes in 4 s, 230 bytes in 3 s, 320 bytes in 2.99 s."""
    a, b, c, _ = STORED
    ways = [[Way("a", a, 1.0)], [Way("b", a, 3.0), Way("c", b, 2.0), Way("d", c, 3.5)]]
    last = Arrangement((Way("e", c, 1.0), Way("f", Stored("e", 230, 2.3), 1.99)))
    return [*arrangements(ways), last]


def test_the_fastest_that_fits_is_chosen() -> None:
    assert [one.bytes_held for one in found()] == [100, 230, 320]
    assert choose(found(), 200).bytes_held == 100
    assert choose(found(), 230).bytes_held == 230
    assert choose(found(), 1000).bytes_held == 230  # 320 bytes are not worth less than two percent
    assert choose(found()).bytes_held == 230
    assert choose(found(), calls=0.01).bytes_held == 100  # one conversion is cheaper than two


def test_what_was_not_measured_can_be_chosen() -> None:
    unknown = Arrangement((Way("x", STORED[0], float("inf")),))
    assert choose([unknown]) is unknown


def test_a_limit_below_the_smallest_is_an_error() -> None:
    with pytest.raises(InputError, match=r"memory_bytes=99 is less than .* 100 bytes; give at least that"):
        choose(found(), 99)


def test_what_may_be_part_of_an_answer() -> None:
    a, b, c, d = STORED
    ways = [
        Way("private", a, 1.0, workspace_bytes=40),
        Way("slower", a, 2.0, workspace_bytes=40),
        Way("atomic", a, 3.0),
        Way("own, large", d, 1.5),
        Way("own, larger", d, 1.6, workspace_bytes=1),
        Way("own, small", b, 1.7),
        Way("own, slow", d, 5.0),
        Way("shared, slow", c, 9.0),
    ]
    kept = [way.name for way in promising(ways, {"a", "c"})]
    assert kept == ["private", "own, large", "own, small", "atomic", "shared, slow"]


def test_the_choice_is_explained() -> None:
    small, middle, last = found()
    assert why(last, [small, last]) == "the fastest"
    assert why(middle, [small, middle, last], 1000) == "as fast as any within 0.001 MB to 2%, and smaller"
    assert why(small, [small, middle], 200) == (
        "the fastest within 0.0002 MB; 0.00023 MB would take 0.75 of the time"
    )
    assert why(small, [small], calls=2.0) == "the fastest, the conversion shared by 2 calls"
    assert "not every mode" in why(Arrangement((Way("x", STORED[0], float("inf")),)), [])


def test_small_arrangements_get_a_chance_in_sweeps() -> None:
    fastest, similar, small, slow, large = (
        Arrangement((Way(str(nbytes), Stored(str(nbytes), nbytes, 0.0), seconds),))
        for nbytes, seconds in ((1000, 1.0), (990, 1.1), (500, 1.5), (100, 5.0), (2000, 0.9))
    )
    found = [slow, small, similar, fastest, large]
    assert finalists(found, fastest, 1500, None) == [small, fastest]
    assert finalists(found, large, None, None) == [small, fastest, large]
    timed = replace(small, sweep_s=2.0), replace(fastest, sweep_s=2.1)
    assert choose(timed) is timed[0]  # by sweeps, whatever the sums say
    assert why(timed[0], [*timed, large], 1500) == (
        "the fastest within 0.0015 MB; 0.002 MB would take 0.60 of the time"
    )
