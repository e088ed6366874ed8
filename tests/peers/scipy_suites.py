"""Run SciPy's installed tests of its sparse solvers with our operator in place of the matrix.

    python tests/peers/scipy_suites.py            all suites, some minutes; writes scipy_suites.json beside this file
    python tests/peers/scipy_suites.py --quick    some of them, seconds; writes nothing

Each suite runs three times: with the matrix itself, with SciPy's ``aslinearoperator(matrix)`` and with our operator.
Exit status 1 says that a test failed with ours that passes with ``aslinearoperator``. What was run is kept, and not
run again, while versions and our sources stay the same (``--fresh`` forgets it).
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
RESULT: Final = HERE / "scipy_suites.json"
RUNS: Final = ("matrix", "linear", "operator")
SUITES: Final = {
    "isolve": ("_isolve/tests",),
    "arpack": ("_eigen/arpack/tests",),
    "lobpcg": ("_eigen/lobpcg/tests",),
    "svds": ("_eigen/tests",),
    "functions": (
        "tests/test_expm_multiply.py",
        "tests/test_onenormest.py",
        "tests/test_funm_multiply_krylov.py",
    ),
}
QUICK: Final = {
    "isolve": ("_isolve/tests/test_lsmr.py", "_isolve/tests/test_gcrotmk.py", "_isolve/tests/test_minres.py")
}
LIMIT_S: Final = 1500
"""Seconds that a run of one suite may take."""


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    import numpy
    import scipy

    import tensorwise
    from benchmarks.corpus import digest_of

    return {
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "tensorwise": tensorwise.__version__,
        "sources": digest_of(Path(tensorwise.__file__).parent),
    }


def run(files: Iterable[str], in_place: str) -> dict[str, Any]:
    """Run tests of SciPy; return the outcome of each, the matrices replaced and the seconds."""
    import scipy.sparse.linalg

    home = Path(scipy.sparse.linalg.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(home), "-p", "tests.peers.scipy_plugin",
            "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest", "--timeout", "120",
            f"--junitxml={report}", *(str(home / file) for file in files),
        ]  # fmt: skip
        path = os.pathsep.join([str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        start = time.monotonic()
        done = subprocess.run(
            command, env={**os.environ, **threads, "PYTHONPATH": path, "TENSORWISE_IN_PLACE": in_place},
            cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        if done.returncode not in (0, 1) or not report.exists():  # 2: some tests could not be collected
            raise SystemExit(f"pytest did not run all tests: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        outcomes = {}
        for case in ET.parse(report).getroot().iter("testcase"):
            kinds = {child.tag for child in case}
            name = f"{case.get('classname')}::{case.get('name')}".removeprefix("scipy.sparse.linalg.")
            failed = kinds & {"failure", "error"}
            outcomes[name] = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
        replaced = re.search(r"^(\d+) matrices replaced$", done.stdout, re.MULTILINE)
        return {
            "outcomes": outcomes,
            "replaced": int(replaced[1]) if replaced else 0,
            "seconds": round(time.monotonic() - start),
        }


def failures(found: dict[str, Any]) -> set[str]:
    """Return the names of the tests that failed."""
    return {name for name, outcome in found["outcomes"].items() if outcome == "failed"}


def summary(suites: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Count outcomes, and name the tests that fail in place of the matrix."""
    counts = {}
    for in_place in RUNS:
        outcomes = [o for runs in suites.values() for o in runs[in_place]["outcomes"].values()]
        counts[in_place] = {kind: outcomes.count(kind) for kind in ("passed", "failed", "skipped")}
        counts[in_place]["replaced"] = sum(runs[in_place]["replaced"] for runs in suites.values())
    only = {
        name for runs in suites.values() for name in failures(runs["operator"]) - failures(runs["linear"])
    }
    linear = {name for runs in suites.values() for name in failures(runs["linear"])}
    return {
        "counts": counts,
        "fail_with_our_operator_and_not_with_linear_operator": sorted(only),
        "fail_with_linear_operator": sorted(linear),
    }


def main() -> int:
    """Run what is left, write the result and tell it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="run some suites, and write nothing")
    parser.add_argument("--fresh", action="store_true", help="forget what was run before")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE.parents[1]))
    kept = Path(tempfile.gettempdir()) / f"tensorwise-scipy-suites-{os.getuid()}.json"
    known = {"versions": versions(), "suites": {}}
    if kept.exists() and not options.fresh and not options.quick:
        before = json.loads(kept.read_text())
        known = before if before["versions"] == known["versions"] else known
    suites: dict[str, dict[str, Any]] = known["suites"]
    for suite, files in (QUICK if options.quick else SUITES).items():
        for in_place in RUNS:
            if in_place in suites.get(suite, {}):
                continue
            found = suites.setdefault(suite, {})[in_place] = run(files, in_place)
            print(
                f"{suite}, {in_place}: {len(found['outcomes'])} tests, {len(failures(found))} failed, {found['seconds']} s",
                flush=True,
            )
            if not options.quick:
                kept.write_text(json.dumps(known))
    told = summary(suites)
    if not options.quick:
        described = {
            "command": "python tests/peers/scipy_suites.py",
            "date": time.strftime("%Y-%m-%d"),
            "versions": known["versions"],
            "seconds": {
                suite: {run: found["seconds"] for run, found in runs.items()}
                for suite, runs in suites.items()
            },
            **told,
        }
        RESULT.write_text(json.dumps(described, indent=1) + "\n")
        kept.unlink()
    print(json.dumps(told, indent=1))
    return 1 if told["fail_with_our_operator_and_not_with_linear_operator"] else 0


if __name__ == "__main__":
    sys.exit(main())
