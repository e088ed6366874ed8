"""Run tests of SciPy, pyamg, scikit-learn, networkx and anndata with our sparse classes, and with SciPy's under the patch.

    python tests/peers/sparse_suites.py          all suites of installed packages; writes sparse_suites.json
    python tests/peers/sparse_suites.py pyamg    this suite only; its result is replaced in the file

Each suite runs as it is, then with our classes in place of SciPy's (SciPy's tests only) and under ``patch_scipy()``. Exit
status 1 says that a test which passes without us failed with ours, and again when it ran alone, or was skipped. What was run
is kept, and not run again, while versions and sources stay the same (``--fresh`` forgets it).
"""

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, final

HERE: Final = Path(__file__).resolve().parent
RESULT: Final = HERE / "sparse_suites.json"
LIMIT_S: Final = 5400
"""Seconds that a run of one suite may take."""
TEST_LIMIT_S: Final = 600
"""Seconds that one test may take."""
MEMORY_MB: Final = 8000
"""Megabytes that SciPy's tests are told are free: those that need more are skipped in every run, not in one by chance."""


@final
@dataclass(frozen=True)
class Suite:
    """Tests of a package.

    Attributes:
        package: that is installed.
        paths: in the package's folder.
        select: of pytest's ``-k``; all where it is empty.
        runs: what is in place: ``scipy`` (as it is), ``classes``, ``patch``.
        marks: of pytest's ``-m``; all where it is empty.
        in_sdist: the tests are not installed with the package: ``paths`` are in its sdist, which pip downloads.
    """

    package: str
    paths: tuple[str, ...]
    select: str = ""
    runs: tuple[str, ...] = ("scipy", "patch")
    marks: str = ""
    in_sdist: bool = False


ALL: Final = ("scipy", "classes", "patch")
KNOWN: Final = (
    (
        ("classes",),
        r"test_pydata_sparse::test_(eq|ne|ge|gt)\[COO-",
        "pydata/sparse recognises SciPy's arrays by the name of their class's module, which for ours is ours",
    ),
    (
        ("classes", "patch"),
        r"test_pydata_sparse::test_lsqr\[COO\]",
        "twelve steps of LSQR amplify rounding: with SciPy's products in random orders of summation 77 of 200 runs fail",
    ),
)
"""In which runs, pattern of the names of tests that fail, and why."""
FAULTS: Final = ("fail_with_ours_alone", "pass_without_us_and_do_not_run_with_ours")
"""What a result must not name."""
LINEAR: Final = (
    "_isolve/tests",
    "_eigen/arpack/tests",
    "_eigen/lobpcg/tests",
    "_eigen/tests",
    "_dsolve/tests",
    "tests",
)
ANNDATA: Final = (
    "backed_sparse",
    "base",
    "concatenate",
    "dask",
    "helpers",
    "inplace_subset",
    "transpose",
    "x",
)
"""Test modules of anndata that use sparse matrices, without those that take minutes to read and write files.

anndata multiplies sparse matrices by sparse ones only. Our kernels compute nothing in its tests: they check that such
products, transposes and all else of the patched classes are as SciPy's.
"""
SUITES: Final = {
    "scipy.sparse": Suite("scipy", ("sparse/tests",), runs=ALL),
    "scipy.sparse.linalg": Suite("scipy", tuple(f"sparse/linalg/{name}" for name in LINEAR), runs=ALL),
    "scipy.sparse.csgraph": Suite("scipy", ("sparse/csgraph/tests",), runs=ALL),
    "pyamg": Suite("pyamg", (".",)),
    "networkx": Suite(
        "networkx",
        ("algorithms/link_analysis", "algorithms/centrality", "linalg", "tests/test_convert_scipy.py"),
    ),
    "sklearn, sparse": Suite("sklearn", (".",), "sparse or csr or csc"),
    "sklearn": Suite("sklearn", ("linear_model", "decomposition", "cluster", "manifold")),
    "anndata": Suite(
        "anndata",
        tuple(f"tests/test_{name}.py" for name in ANNDATA),
        "sparse or csr or csc",
        marks="not gpu and not dask_distributed",  # the second needs pytest-xdist
        in_sdist=True,
    ),
}
# Not test_lsqr.py, whose unseeded problem makes a test fail now and then, whoever multiplies.
QUICK: Final = {
    "products": Suite(
        "scipy",
        ("sparse/tests/test_base.py",),
        "TestCSR and (mul or dot or slicing or pickle or transpose)",
        ALL,
    ),
    "solvers": Suite(
        "scipy",
        ("sparse/linalg/_isolve/tests/test_gcrotmk.py", "sparse/linalg/_isolve/tests/test_lgmres.py"),
        runs=ALL,
    ),
    "pyamg": Suite("pyamg", ("classical/tests/test_classical.py",)),
}


def compile_kernels() -> None:
    """Compile our kernels where that was not done before: else SciPy computes meanwhile."""
    subprocess.run([sys.executable, "-m", "tensorwise.sparse.prepare"], check=True, stdout=subprocess.DEVNULL)


def home_of(suite: Suite) -> Path:
    """Return the folder that a suite's paths are in: the package's, or its unpacked sdist, downloaded once a version.

    Raises:
        subprocess.CalledProcessError: pip did not download the sdist; it has printed why.
    """
    if not suite.in_sdist:
        found = importlib.util.find_spec(suite.package)
        assert found is not None
        assert found.origin is not None
        return Path(found.origin).parent
    name = f"{suite.package}-{version(suite.package)}"
    folder = Path(tempfile.gettempdir()) / f"tensorwise-sdists-{os.getuid()}" / name
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as there:
            subprocess.run(
                [
                    sys.executable, "-m", "pip", "download", "--quiet", "--dest", there, "--no-deps",
                    "--no-binary", suite.package, f"{suite.package}=={version(suite.package)}",
                ],
                check=True,
            )  # fmt: skip
            shutil.unpack_archive(next(Path(there).iterdir()), there)
            (Path(there) / name).rename(folder)
    return folder


def run(suite: Suite, in_place: str, home: Path | None = None, tests: Sequence[str] = ()) -> dict[str, Any]:
    """Run tests; return the outcome of each, the products that our kernels computed and the seconds.

    Args:
        in_place: one of ``suite.runs``.
        home: folder that the paths are in; default: `home_of` the suite.
        tests: pytest's names of the tests to run; default: all of the suite.
    """
    home = home or home_of(suite)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(home),
            "-p", "tests.peers.sparse_plugin", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest",
            "-p", "no:randomly", "--timeout", str(TEST_LIMIT_S),
            f"--junitxml={report}", "-o", "junit_family=xunit1",
            *(["-k", suite.select] if suite.select else []), *(["-m", suite.marks] if suite.marks else []),
            *(tests or [str(home / path) for path in suite.paths]),
        ]  # fmt: skip
        path = os.pathsep.join([str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        quiet = {
            "MPLBACKEND": "agg",
            "SKLEARN_SKIP_NETWORK_TESTS": "1",
            "SCIPY_AVAILABLE_MEM": str(MEMORY_MB),
        }
        start = time.monotonic()
        done = subprocess.run(
            command, env={**os.environ, **threads, **quiet, "PYTHONPATH": path, "TENSORWISE_SPARSE": in_place},
            cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        if done.returncode not in (0, 1) or not report.exists():  # 2: some tests could not be collected
            raise SystemExit(f"pytest did not run all tests: {done.stdout[-4000:]}{done.stderr[-2000:]}")
        outcomes = {}
        for case in ET.parse(report).getroot().iter("testcase"):
            kinds = {child.tag for child in case}
            name = f"{case.get('file') or case.get('classname')}::{case.get('classname')}::{case.get('name')}"
            failed = kinds & {"failure", "error"}
            outcomes[name] = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
        products = re.search(r"^(\d+) products of ours$", done.stdout, re.MULTILINE)
        return {
            "outcomes": outcomes,
            "products": int(products[1]) if products else 0,
            "seconds": round(time.monotonic() - start),
            "failed": re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE),
        }


def failures(found: dict[str, Any]) -> set[str]:
    """Return the names of the tests that failed."""
    return {name for name, outcome in found["outcomes"].items() if outcome == "failed"}


def is_known(test: str, in_place: str) -> bool:
    """Whether it is known why a test fails with ours, and not for us to mend."""
    return any(in_place in places and re.search(pattern, test) for places, pattern, _ in KNOWN)


def new_failures(runs: dict[str, dict[str, Any]], of: Sequence[str] = ("classes", "patch")) -> set[str]:
    """Return the tests that fail with ours, in one of the runs ``of``, and pass without us; not those that are `KNOWN`."""
    with_ours = [
        {test for test in failures(runs[in_place]) if not is_known(test, in_place)}
        for in_place in of
        if in_place in runs
    ]
    return set().union(*with_ours) - failures(runs["scipy"])


def missing(runs: dict[str, dict[str, Any]]) -> set[str]:
    """Return the tests that passed without us and did not run with ours."""
    passed = {name for name, outcome in runs["scipy"]["outcomes"].items() if outcome == "passed"}
    return {
        name
        for in_place, found in runs.items()
        for name in passed
        if in_place != "scipy" and found["outcomes"].get(name, "skipped") == "skipped"
    }


def described(suites: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Count outcomes of suites, and name the tests that fail with ours alone."""
    made = {}
    for name, runs in suites.items():
        made[name] = {
            in_place: {
                **{
                    kind: [*found["outcomes"].values()].count(kind)
                    for kind in ("passed", "failed", "skipped")
                },
                "products_of_ours": found["products"],
                "seconds": found["seconds"],
            }
            for in_place, found in runs.items()
        }
        made[name]["fail_with_ours_alone"] = sorted(new_failures(runs))
        made[name]["known"] = sorted(
            f"{in_place}: {test}"
            for in_place, found in runs.items()
            for test in failures(found) - failures(runs["scipy"])
            if is_known(test, in_place)
        )
        made[name]["pass_without_us_and_do_not_run_with_ours"] = sorted(missing(runs))
    return made


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions that results depend on."""
    from tests.peers.scipy_suites import versions as common

    names = {"sklearn": "scikit-learn"}
    ours = b"".join((HERE / name).read_bytes() for name in ("sparse_plugin.py", "sparse_suites.py"))
    return {
        **common(),
        "tests": hashlib.sha256(ours).hexdigest()[:16],
        **{name: version(names.get(name, name)) for name in sorted(set(packages) - {"scipy"})},
    }


def main() -> int:
    """Run what is left, write the result and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "suites", nargs="*", help=f"of {'; '.join(SUITES)}; default: those of installed packages"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what was run before")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE.parents[1]))
    compile_kernels()
    chosen = {name: SUITES[name] for name in options.suites or SUITES}
    absent = [name for name, suite in chosen.items() if importlib.util.find_spec(suite.package) is None]
    for name in absent:
        print(f"{name}: the package {chosen.pop(name).package} is not installed", flush=True)
    for suite in chosen.values():
        home_of(suite)  # what cannot be downloaded is known before tests run for an hour
    kept = Path(tempfile.gettempdir()) / f"tensorwise-sparse-suites-{os.getuid()}.json"
    known: dict[str, Any] = {"versions": versions([suite.package for suite in chosen.values()]), "suites": {}}
    if kept.exists() and not options.fresh:
        before = json.loads(kept.read_text())
        known = before if before["versions"] == known["versions"] else known
    for name, suite in chosen.items():
        runs = known["suites"].setdefault(name, {})
        for in_place in suite.runs:
            if in_place in runs:
                continue
            found = runs[in_place] = run(suite, in_place)
            if in_place != "scipy" and (new := new_failures(runs, [in_place])):
                again = run(suite, in_place, tests=found["failed"])  # some fail by chance, or by load
                found["outcomes"].update((one, again["outcomes"].get(one, "failed")) for one in new)
            print(
                f"{name}, {in_place}: {len(found['outcomes'])} tests, {len(failures(found))} failed, {found['seconds']} s",
                flush=True,
            )
            kept.write_text(json.dumps(known))
    suites = described({name: known["suites"][name] for name in chosen})
    before = json.loads(RESULT.read_text())["suites"] if RESULT.exists() else {}
    run_of = {"date": time.strftime("%Y-%m-%d"), "versions": known["versions"]}
    suites = {name: {**run_of, **one} for name, one in suites.items()}
    result = {
        "command": "python tests/peers/sparse_suites.py",
        "suites": {name: {**before, **suites}[name] for name in SUITES if name in {**before, **suites}},
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(suites, indent=1))
    failed = [name for name, one in suites.items() if any(one[kind] for kind in FAULTS)]
    print(f"{len(suites)} suites, new failures in {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
