"""The report is valid, self-contained HTML for any input, and no text of the input becomes markup."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.front.draw_pattern import spy_of
from tensorwise.front.report import render, verdict
from tensorwise.front.report_data import Candidate, ReportData

HOSTILE = "</title></style><script>alert('x')</script><img src=\"http://evil.example/x\" onerror=1>&amp;\x00"
VOID = {"meta"}
URL_ATTRIBUTES = {"src", "href", "xlink:href", "action", "data", "poster", "srcset", "background"}


class Checker(HTMLParser):
    """Checks nesting, quotes and attributes; collects tags and visible text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"{tag} repeats an attribute: {names}"
        assert not URL_ATTRIBUTES & set(names), f"{tag} refers to something outside: {attrs}"
        assert not any(name.startswith("on") for name in names)
        assert not any("nan" in (value or "").split() for _, value in attrs), f"{tag} has nan: {attrs}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"closing {tag} closes nothing"
        assert self.open.pop() == tag, f"closing {tag} out of order"

    def handle_data(self, data: str) -> None:
        self.text += data


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert not checker.open, f"never closed: {checker.open}"
    assert page.startswith("<!DOCTYPE html>")
    for ids in re.findall(r"(?:https?:)?//[\w.]+", page):
        raise AssertionError(f"the page names an address: {ids}")
    assert "@import" not in page
    assert "url(" not in page
    assert not re.search(r'="[^"]*\b(nan|inf)\b[^"]*"', page)
    return checker


def data(shape: tuple[int, int] = (12, 9), nnz: int = 30, **changes: object) -> ReportData:
    rng = np.random.default_rng(3)
    cells = rng.choice(max(shape[0] * shape[1], 1), size=nnz, replace=False)
    rows, cols = cells // max(shape[1], 1), cells % max(shape[1], 1)
    base = ReportData(
        title="a tuning",
        matrix="m",
        shape=shape,
        nnz=nnz,
        dtype="float32",
        row_lengths=np.bincount(rows, minlength=shape[0])[: shape[0]],
        spy=spy_of(rows, cols, shape, (2, 3)),
        op="spmm",
        n=8,
        threads=2,
        flops=2.0 * nnz * 8,
        candidates=(
            Candidate("scipy", 3e-5, 2e-6, baseline=True, moved_bytes=4000),
            Candidate("tensorwise 0", 1e-5, 1e-6, "(i,k) -> U(i) C(k)", "parallel(i)", moved_bytes=3000),
            Candidate("tensorwise 1", math.inf, status="crash", format="(i,k) -> C(k) C(i)"),
        ),
        best="tensorwise 0",
        best_generated="tensorwise 0",
        fibertree="i U 12",
        loops="parallel i:",
        source="int f(void) { return 1 < 2 && 3 > 2; }",
        stored_positions=41,
        costs={"conversion_s": 1e-4, "break_even_calls": 812.3, "held_bytes": 4096, "odd_thing": 3},
        peak_flop_per_s=1e11,
        bandwidth_bytes_per_s=2e10,
        environment={"cpu": "some"},
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_whole_report_is_valid_and_complete() -> None:
    checker = check(render(data()))
    assert checker.tags.count("svg") == 5
    for part in ("3.00 times as fast", "scipy", "813", "4.10 kB", "100 µs", "2 × 3 blocks", "crash"):
        assert part in checker.text, part


def test_hostile_text_is_escaped_everywhere() -> None:
    bad = Candidate(HOSTILE, 1e-5, 1e-6, format=HOSTILE, schedule=HOSTILE, status="ok", moved_bytes=10)
    page = render(
        data(
            title=HOSTILE,
            matrix=HOSTILE,
            dtype=HOSTILE,
            op=HOSTILE,
            candidates=(bad, Candidate(HOSTILE + "2", 2e-5, baseline=True, status="ok", moved_bytes=10)),
            best=HOSTILE,
            best_generated=HOSTILE,
            fibertree=HOSTILE,
            loops=HOSTILE,
            source=HOSTILE,
            costs={HOSTILE: 1.0},
            environment={HOSTILE: HOSTILE},
            notes=(HOSTILE,),
        )
    )
    assert "evil.example" in page
    checker = check(page.replace("http://evil.example", "evil"))
    assert "script" not in checker.tags
    assert "img" not in checker.tags
    assert "\x00" not in page


@pytest.mark.parametrize(
    ("shape", "nnz"),
    [((0, 0), 0), ((0, 5), 0), ((5, 0), 0), ((1, 1), 1), ((1, 1000), 7), ((900, 1), 3), ((40, 40), 0)],
)
def test_degenerate_matrices(shape: tuple[int, int], nnz: int) -> None:
    check(render(data(shape, nnz)))


def test_one_candidate_only() -> None:
    only = Candidate("scipy", 1e-3, baseline=True)
    result = data(candidates=(only,), best="scipy", best_generated=None, loops="", fibertree="", source="")
    assert verdict(result) == "Call scipy: 1.00 ms, and no generated kernel was faster."
    check(render(result))


def test_no_valid_candidate() -> None:
    failed = Candidate("tensorwise 0", math.inf, status="timeout")
    result = data(candidates=(failed,), best="", best_generated=None)
    assert verdict(result) == "No kernel could be measured."
    check(render(result))
    check(render(data(candidates=(), best="", best_generated=None)))


def test_generated_without_library() -> None:
    result = data(
        candidates=(Candidate("g", 1e-5, format="(i,k) -> U(i) C(k)"),), best="g", best_generated="g"
    )
    assert "No library" in verdict(result)
    check(render(result))


def test_in_round_ratio_is_preferred_to_the_quotient_of_medians() -> None:
    pair = (Candidate("mkl", 2e-5, baseline=True), Candidate("g", 1e-5, ratio=0.8))
    assert "1.25 times" in verdict(data(candidates=pair, best="g", best_generated="g"))


@pytest.mark.parametrize("peak", [None, 1e11])
@pytest.mark.parametrize("bandwidth", [None, 2e10])
def test_roofline_without_peaks(peak: float | None, bandwidth: float | None) -> None:
    page = render(data(peak_flop_per_s=peak, bandwidth_bytes_per_s=bandwidth))
    check(page)
    assert ('class="roof"' in page) == bool(peak or bandwidth)


def test_a_censored_time_is_shown_as_a_bound_and_not_drawn() -> None:
    pair = (Candidate("scipy", 1e-3, baseline=True), Candidate("g", 0.5, status="censored"))
    result = data(candidates=pair, best="scipy", best_generated=None)
    assert [c.name for c in result.measured] == ["scipy"]
    assert "> 500 ms" in check(render(result)).text


def test_never_breaking_even_is_said() -> None:
    assert "never" in check(render(data(costs={"break_even_calls": math.inf}))).text


def test_names_must_be_unique() -> None:
    with pytest.raises(InputError, match="'a' is there twice"):
        data(candidates=(Candidate("a", 1.0), Candidate("a", 2.0)))


def test_a_large_matrix_stays_a_light_page() -> None:
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, 200_000, (2, 300_000))
    spy = spy_of(rows, cols, (200_000, 200_000))
    lengths = np.bincount(rows, minlength=200_000)
    page = render(data(spy=spy, row_lengths=lengths, shape=(200_000, 200_000), nnz=300_000))
    assert len(page) < 500_000
    check(page)


def test_spy_counts_every_entry_and_window_holds_the_densest_corner() -> None:
    dense_r, dense_c = np.divmod(np.arange(400), 20)
    rows = np.concatenate([dense_r + 480, [0, 999]])
    cols = np.concatenate([dense_c + 960, [0, 1999]])
    spy = spy_of(rows, cols, (1000, 2000), (4, 4))
    assert spy.counts.shape == (128, 128)
    assert spy.counts.sum() == 402
    assert spy.window == (480, 960, 48, 48)
    assert len(spy.window_rows) == 400


@pytest.mark.parametrize("block", [(3, 5), (64, 1), (1, 4096), (32, 32)])
def test_windows_align_to_any_block(block: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    rows, cols = rng.integers(0, 300, (2, 500))
    spy = spy_of(rows, cols, (300, 300), block)
    assert all(start % (b if b <= 32 else 1) == 0 for start, b in zip(spy.window[:2], block, strict=True))
    check(render(data(spy=spy, shape=(300, 300), nnz=500)))
