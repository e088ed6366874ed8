"""Pages and pictures that are written from committed results are up to date."""

import runpy
import subprocess
import sys

import pytest

from benchmarks.corpus import ROOT
from benchmarks.everyday.bars import PAGE, RESULTS, over_scipy, written


def test_pages_follow_from_the_committed_results() -> None:
    """``benchmarks/README.md``, ``docs/claims.md``, the README's tables of speed and their picture."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "summary.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (
        f"run benchmarks/summary.py, docs/claims.py, benchmarks/everyday/bars.py\n{done.stderr}"
    )


@pytest.mark.parametrize("name", ["patched", "versions", "latency", "cost-model"])
def test_pictures_of_pages_follow_from_the_committed_results(name: str) -> None:
    """The other pictures of that script show examples that it computes."""
    pictures = runpy.run_path(str(ROOT / "docs" / "assets" / "draw.py"))["PICTURES"]
    drawn = (ROOT / "docs" / "assets" / f"{name}.svg").read_text(encoding="utf-8")
    assert pictures[name]() + "\n" == drawn, f"run docs/assets/draw.py {name}"


def test_a_changed_table_of_speed_is_noticed() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert written(readme, RESULTS) == readme
    changed = readme.replace("SpMV, float64 / SciPy | ", "SpMV, float64 / SciPy | 9")
    assert changed.count("| 9") == len(RESULTS), "a table for each maker"
    assert written(changed, RESULTS) == readme


def test_a_changed_figure_of_the_page_of_speed_is_noticed() -> None:
    """Of programs, of frozen arrays, and of what is extrapolated."""
    page = PAGE.read_text(encoding="utf-8")
    assert written(page, RESULTS, PAGE) == page
    for figure in ("% | 1.", "matrices are extrapolated: ", "| 1,000 products"):
        changed = page.replace(figure, f"9{figure}")
        assert changed != page
        assert written(changed, RESULTS, PAGE) == page, figure


def test_bars_are_geometric_means_of_ratios_to_scipy() -> None:
    def run(scipy: float, ours: float) -> dict[str, object]:
        lines = {
            name: " ".join(f"{s * n}" for n in (1, 2, 5, 10))
            for name, s in (("scipy", scipy), ("ours", ours))
        }
        return {
            "contestants": {
                n: {"seconds": [line], "import_s": [0], "load_s": [0]} for n, line in lines.items()
            }
        }

    runs = {"a 0 float64": run(1.0, 0.5), "b 0 float64": run(1.0, 2.0), "a 64 float64": run(1.0, 4.0)}
    assert over_scipy(runs, "SpMV, float64", "ours", 10) == 1.0
    assert over_scipy(runs, "SpMV, float64", "scipy", 10) == 1.0
