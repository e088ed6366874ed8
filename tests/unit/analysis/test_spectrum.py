"""How long lines are, against the same taken from all lengths."""

import numpy as np
import pytest

from tensorwise.analysis.spectrum import Spectrum, line_fields, line_numbers

LENGTHS = [
    [0, 0, 0],
    [5],
    [2, 2, 2, 2],
    [0, 1, 0, 7, 3, 3, 0, 1, 1, 90],
    np.random.default_rng(1).geometric(0.1, 1000) - 1,
]


@pytest.mark.parametrize("lengths", LENGTHS)
def test_numbers_are_those_of_all_lengths(lengths: list[int]) -> None:
    given, lines = np.sort(lengths), Spectrum.of(np.array(lengths))
    total = given.sum()
    assert (lines.size, lines.empty, lines.entries) == (len(given), (given == 0).sum(), total)
    assert (lines.longest, lines.mean) == (given[-1], given.mean())
    assert lines.variation == pytest.approx(given.std() / given.mean() if total else 0, abs=1e-9)
    assert lines.share_above(2) == pytest.approx(given[given > 2].sum() / total if total else 0)
    shares = (0.01, 0.5, 0.9, 0.99, 1.0)
    assert lines.quantiles(shares).tolist() == [
        given[int(np.ceil(share * len(given))) - 1] for share in shares
    ]
    for count in (1, 3, 10**6):
        assert lines.share_of_longest(count) == pytest.approx(
            given[::-1][:count].sum() / total if total else 0
        )
    heights = (1, 2, 4, 64)
    assert lines.slots(heights).tolist() == [given[::-1][::height].sum() * height for height in heights]
    differences = np.abs(given[:, None] - given).sum()
    assert lines.gini == pytest.approx(differences / (2 * len(given) * total) if total else 0, abs=1e-9)


def test_lines_may_be_given_without_the_empty_ones() -> None:
    few, all_of_them = Spectrum.of(np.array([3, 1]), 5), Spectrum.of(np.array([0, 3, 0, 1, 0]))
    assert line_numbers(few) == line_numbers(all_of_them)


def test_values_in_the_order_of_their_fields() -> None:
    lines = Spectrum.of(np.array([0, 1, 1, 6]))
    names = [field.name for field in line_fields("rows", "row", "rows")]
    assert dict(zip(names, line_numbers(lines), strict=True)) == {
        "rows.mean": pytest.approx(np.log2(3)),
        "rows.variation": pytest.approx(np.log2(1 + np.std([0, 1, 1, 6]) / 2)),
        "rows.longest": pytest.approx(np.log2(7)),
        "rows.p50": 1,
        "rows.p90": pytest.approx(np.log2(7)),
        "rows.p99": pytest.approx(np.log2(7)),
        "rows.empty": 0.25,
        "rows.longest_1pct": 0.75,
        "rows.gini": pytest.approx(36 / 64),
    }
