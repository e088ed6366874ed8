"""The report is valid, self-contained HTML for any input, and no text of the input becomes markup."""

import copy
import html
import math
import pickle
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
from tensorwise.device.rounds import RoundTable
from tensorwise.errors import InputError
from tensorwise.front import page as pages
from tensorwise.front.array_report import render as render_array
from tensorwise.front.draw_axes import Mark
from tensorwise.front.draw_pattern import spy_of
from tensorwise.front.draw_search import progress_chart
from tensorwise.front.draw_speed import roofline_chart
from tensorwise.front.page import Report
from tensorwise.front.report import MAX_LISTED, price, render, verdict
from tensorwise.front.report_data import Attempt, Candidate, ReportData
from tensorwise.sparse.summary import ProductTuning, Tuning

HOSTILE = "</title></style><script>alert('x')</script><img src=\"http://evil.example/x\" onerror=1>&amp;\x00"
VOID = {"meta"}
URL_ATTRIBUTES = {"src", "href", "xlink:href", "action", "data", "poster", "srcset", "background"}


class Checker(HTMLParser):
    """Checks nesting, quotes and attributes; collects tags and visible text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[tuple[str, str]] = []  # tag and candidate
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"{tag} repeats an attribute: {names}"
        assert not URL_ATTRIBUTES & set(names), f"{tag} refers to something outside: {attrs}"
        assert not any(name.startswith("on") for name in names)
        assert not any("nan" in (value or "").split() for _, value in attrs), f"{tag} has nan: {attrs}"
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [(tag, given["data-c"] or "")] if "data-c" in given else []
        if tag == "svg":
            assert given["role"] == "img"
            assert given["aria-label"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"closing {tag} closes nothing"
        assert self.open.pop() == tag, f"closing {tag} out of order"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert not checker.open, f"never closed: {checker.open}"
    assert page.startswith("<!DOCTYPE html>")
    assert len(set(checker.ids)) == len(checker.ids)
    rows = {c for tag, c in checker.links if tag == "tr"}
    assert {c for _, c in checker.links} == rows, "a mark has no row in a table"
    assert {f"c{c}" for c in rows} <= set(checker.ids)
    for named in re.findall(r'getElementById\("(\w+)"\)', page):
        assert named in checker.ids, f"the script asks for {named}"
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
            Candidate(
                "tensorwise 0",
                1e-5,
                1e-6,
                "(i,k) -> U(i) C(k)",
                "parallel(i)",
                moved_bytes=3000,
                attempt=Attempt(3, 1.1e-5, "ok", 1.5, -3.0),
            ),
            Candidate(
                "tensorwise 1",
                math.inf,
                status="crash",
                format="(i,k) -> C(k) C(i)",
                attempt=Attempt(1, math.inf, "crash", 0.5, -2.0),
            ),
            Candidate(
                "tensorwise 2",
                2e-5,
                format="(i,k) -> U(k) C(i)",
                in_rounds=False,
                attempt=Attempt(2, 2e-5, "ok", 1.0, -2.5),
            ),
            Candidate(
                "tensorwise 3",
                4e-5,
                status="censored",
                format="(i,k) -> N(i) S(k)",
                attempt=Attempt(4, 4e-5, "censored", 1.8),
            ),
            Candidate(
                "tensorwise 4", 3e-5, format="x", in_rounds=False, attempt=Attempt(5, 3e-5, "ok", 2.0, -2.6)
            ),
        ),
        best="tensorwise 0",
        best_generated="tensorwise 0",
        fibertree="i U 12",
        loops="parallel i:",
        source="int f(void) { return 1 < 2 && 3 > 2; }",
        stored_positions=41,
        costs={
            "conversion_s": 1e-4,
            "tuning_s": 2.5,
            "break_even_calls": 812.3,
            "held_bytes": 4096,
            "odd_thing": 3,
        },
        peak_flop_per_s=1e11,
        bandwidth_bytes_per_s=2e10,
        environment={"cpu": "some"},
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_whole_report_is_valid_and_complete() -> None:
    checker = check(render(data()))
    assert checker.tags.count("svg") == 7
    assert checker.tags.count("figcaption") == 7
    assert checker.tags.count("script") == 1
    for part in ("3.00 times as fast", "scipy", "813", "4.10 kB", "100 µs", "block of 2 × 3", "crash"):
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
    checker = check(page.replace("http://evi", "evi"))
    assert checker.tags.count("script") == 1  # the page's own
    assert "evil" not in page[page.index("<script>") :]
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
    assert verdict(result) == "Call scipy: it takes 1.00 ms a call, and no generated kernel was faster."
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
    assert "no library" in verdict(result)
    check(render(result))


def test_in_round_ratio_is_preferred_to_the_quotient_of_medians() -> None:
    pair = (Candidate("mkl", 2e-5, baseline=True), Candidate("g", 1e-5, ratio=ratio_of(0.79, 0.8, 0.8, 0.81)))
    assert "1.25 times" in verdict(data(candidates=pair, best="g", best_generated="g"))


def ratio_of(*ratios: float):
    """The ratio of two kernels, in as many rounds."""
    return RoundTable(
        ("g", "mkl"), tuple({"g": r, "mkl": 1.0} for r in ratios), (False,) * len(ratios)
    ).ratio("g", "mkl")


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
    assert spy.counts.shape == (200, 200)
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


def test_uncertainty_is_said_and_few_rounds_are_no_interval() -> None:
    def said(*ratios: float) -> str:
        pair = (Candidate("mkl", 2e-5, baseline=True), Candidate("g", 1e-5, ratio=ratio_of(*ratios)))
        return verdict(data(candidates=pair, best="g", best_generated="g"))

    assert "95 % interval 1.25 to 2.00, 6 rounds" in said(0.5, 0.5, 0.6, 0.7, 0.8, 0.8)
    assert "1.25 to 2.00 in 3 rounds" in said(0.5, 0.7, 0.8)
    assert "rounds" not in said(0.5)
    assert "which of the two is faster" in said(0.8, 0.9, 1.1)
    assert "which of the two is faster" not in said(0.8, 0.9, 0.99)


def test_the_price_is_said_with_its_range() -> None:
    assert "paid for after 813 calls, compared with SciPy." in price(data())
    assert "(the measured times allow 700 to 1,001)" in price(data(break_even=(699.2, 1000.5)))
    assert "700 to never" in price(data(break_even=(699.2, math.inf)))
    assert "not paid for" in price(data(costs={"break_even_calls": math.inf, "tuning_s": 2.0}))
    assert price(data(costs={})) == ""


def test_a_candidate_is_the_same_in_all_pictures_and_the_table() -> None:
    links = check(render(data())).links
    tags = [tag for tag, c in links if c == "1"]  # the answer
    assert tags == ["rect", "circle", "circle", "circle", "tr"]  # bars, over time, predicted, roofline, table
    assert [tag for tag, c in links if c == "2"] == ["path", "tr"]  # failed: a cross


def test_what_the_model_predicted_is_ranked() -> None:
    def card(**changes: object) -> str:
        return check(render(data(**changes))).text

    assert (
        "Rank correlation (Spearman) 0.50 over 3 candidates." in card()
    )  # measured 1.1, 2, 3; predicted -3, -2.5, -2.6
    without = [replace(c, attempt=c.attempt and replace(c.attempt, score=None)) for c in data().candidates]
    assert "No cost model guided this search." in card(candidates=without)
    assert "too few to compare" in card(candidates=data().candidates[:4])
    alike = [replace(c, attempt=c.attempt and replace(c.attempt, score=1.0)) for c in data().candidates]
    assert "no order to compare" in card(candidates=alike)
    no_search = card(candidates=data().candidates[:1], best="scipy", best_generated=None)
    assert "There was no search" in no_search


def test_without_times_of_candidates_their_numbers_are_the_axis() -> None:
    untimed = [replace(c, attempt=c.attempt and replace(c.attempt, at_s=math.nan)) for c in data().candidates]
    assert "number of the candidate" in check(render(data(candidates=untimed))).text


def test_many_candidates_stay_a_light_page() -> None:
    rng = np.random.default_rng(0)
    many = [
        Candidate(
            f"candidate {n}", s, format="(i,k) -> " + "U(i1) " * 12, schedule="split(i) " * 30, in_rounds=False,
            moved_bytes=100, attempt=Attempt(n, s, "ok", float(n), s),
        )
        for n, s in enumerate(rng.random(3000) + 0.1)
    ]  # fmt: skip
    rows, cols = rng.integers(0, 200_000, (2, 300_000))
    text = render(
        data(candidates=many, best="candidate 7", best_generated=None, spy=spy_of(rows, cols, (200_000,) * 2))
    )
    assert len(text) < 1_000_000
    checker = check(text)
    assert f"of {len(many)}, the fastest first" in checker.text
    assert [tag for tag, _ in checker.links].count("tr") in (MAX_LISTED, MAX_LISTED + 1)


def test_a_report_prints_saves_and_shows_itself(tmp_path: Path) -> None:
    made: list[int] = []

    def page() -> str:
        made.append(1)
        return pages.page("<t>", "", ["a & b"])

    report = Report("the text", page)
    assert (f"{report}", report + "!", made) == (
        "the text",
        "the text!",
        [],
    )  # the page is made when it is wanted
    report.save(tmp_path / "r.html")
    assert "a & b" in check((tmp_path / "r.html").read_text()).text
    shown = report._repr_html_()
    assert shown.startswith("<iframe ")
    (framed,) = re.findall(r'srcdoc="([^"]*)"', shown)
    assert html.unescape(framed) == report.html()
    assert type(pickle.loads(pickle.dumps(report))) is str  # noqa: S301
    assert copy.copy(report) == report
    with pytest.raises(InputError, match="cannot be written"):
        report.save(tmp_path / "no" / "r.html")


def test_a_report_without_a_page_is_its_text(tmp_path: Path) -> None:
    made = tw.compile("C[i] += A[i,k] * B[k]", A=sp.eye_array(4, format="csr"))
    report = made.report()
    assert report == repr(made)
    assert report._repr_html_() == f"<pre>{html.escape(repr(made))}</pre>"
    with pytest.raises(InputError, match="not tuned here"):
        report.save(tmp_path / "r.html")


ARRAYS = {
    "csr": sp.random_array((300, 200), density=0.05, format="csr", rng=np.random.default_rng(0)),
    "csc": sp.random_array((300, 200), density=0.05, format="csc", rng=np.random.default_rng(0)),
    "bsr": sp.bsr_array(np.kron(np.eye(20), np.ones((2, 2)))),
    "empty": sp.csr_array((3, 4)),
    "nothing": sp.csr_array((0, 0)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_the_report_of_an_array(name: str, tmp_path: Path) -> None:
    array = tw.asarray(ARRAYS[name])
    for _ in range(3):
        array @ np.ones(array.shape[1])
    tuning = array.tuning
    report = tuning.report()
    assert str(report) == str(tuning)
    report.save(tmp_path / "array.html")
    text = check((tmp_path / "array.html").read_text()).text
    assert "What was spent" in text
    assert ("Where the entries are" in text) == (array.nnz > 0)
    height, width = array.shape
    assert f"{height:,} × {width:,}" in text
    assert tuning.table is not None
    assert check(tuning._repr_html_()[:0] + "<!DOCTYPE html>" + tuning._repr_html_())


def test_the_pattern_of_an_array_is_not_its_transpose() -> None:
    matrix = sp.csr_array(([1.0] * 5, ([0] * 5, range(5))), shape=(100, 100))  # all in the first row
    for array in (tw.asarray(matrix), tw.asarray(matrix.tocsc()), tw.asarray(matrix.T.tocsr()).T):
        assert 'd="M0 0h5"' in render_array(array.tuning)


def test_the_ways_of_a_product_are_linked_and_escaped() -> None:
    tried = {"in place, 1 thread": 2e-6, HOSTILE: 1e-6, "not tried": None}
    tuning = Tuning(
        (ProductTuning("A @ x", HOSTILE, 0.5, tried), ProductTuning("A.T @ x", "a", 0, {"a": None})), 0.1, 8
    )
    page = tuning.report().html()
    checker = check(page.replace("http://evi", "evi"))
    assert checker.tags.count("svg") == 1
    assert [tag for tag, c in checker.links if c == "1"] == ["rect", "tr"]
    assert "2.00 times as long" in checker.text
    assert "No trial yet" in checker.text
    assert "img" not in checker.tags
    short = tuning._repr_html_()
    assert "<script" not in short
    assert "1.00 µs" in short


def test_a_tuning_compares_by_what_it_says() -> None:
    array = tw.asarray(ARRAYS["csr"])
    assert array.tuning == array.tuning
    assert "ProductTable" not in repr(array.tuning)


def test_no_label_lies_on_another_or_on_a_point() -> None:
    """The meaning of a line stands above the plot; names of kernels keep a distance, and stay in the plot."""
    libraries = [
        Mark(n, f"library {n}", "lib", 1e-3, flop_per_byte=5.0, flop_per_s=1e8 * (1 + n / 99))
        for n in range(8)
    ]
    best = Mark(9, "tensorwise", "best", 1e-4, flop_per_byte=5.0, flop_per_s=1e9)
    roof = roofline_chart([*libraries, best], 2e11, 2e10, "memory")
    names = sorted(y for y, text in _labels(roof) if text.startswith(("library", "tensorwise")))
    assert len(names) == 9
    assert min(np.diff(names)) >= 13
    assert names[-1] < 282  # the axis
    assert (13.0, "memory 20 GB/s, peak 200 Gflop/s") in _labels(roof)
    tried = [Mark(n, f"c{n}", "gen", 1e-4 * (1 + n / 40), at_s=float(n)) for n in range(40)]
    progress = progress_chart(tried, 45.0, ("mkl", 2e-4))
    assert (13.0, "mkl, the fastest library") in _labels(progress)
    assert min(map(float, re.findall(r' cy="([\d.]+)"', progress))) > 20


def _labels(svg: str) -> list[tuple[float, str]]:
    found = re.findall(r'<text x="[\d.]+" y="([\d.]+)"[^>]*>([^<]*)</text>', svg)
    return [(float(y), text) for y, text in found]
