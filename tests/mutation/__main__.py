"""Do tests notice when the code is wrong? ``python -m tests.mutation`` returns the share of mutants that a test kills.

Tests run once under coverage, to tell which of them execute which line; a mutant meets the quickest of those that execute
its line. Every verdict is written down as it is found, and a run that was interrupted is continued by the same command,
while the code and its tests are the same: else what was found before is of other lines, and is found again.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.mutation.mutants import Mutant, mutants

ROOT: Final = Path(__file__).parent.parent.parent
PACKAGES: Final = ("model", "search", "analysis", "program", "lower", "runtime", "plan")
TESTS: Final = (
    *(f"tests/unit/{name}" for name in PACKAGES),
    *(f"tests/contract/test_{name}.py" for name in ("models", "strategies", "spaces")),
    "tests/golden",
    "tests/test_tiny.py",
)
"""What is run under coverage: the packages' own tests, and the short ones that cross them."""
MOST_TESTS: Final = 40
"""Tests a mutant meets, quickest first."""
MOST_S: Final = 120.0
"""Seconds a mutant has; one that takes longer, most likely an endless loop, counts as killed."""


def main() -> None:
    """Judge a sample of mutants and print the score, by package, and what survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=300, help="mutants to judge")
    parser.add_argument("--seed", type=int, default=0, help="draws the sample")
    parser.add_argument("--packages", nargs="*", default=PACKAGES, help="packages whose files are mutated")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutation", help="where progress is kept")
    parser.add_argument(
        "--floor", type=float, default=0.0, help="least share killed; below it the exit status is 1"
    )
    parser.add_argument("--again", action="store_true", help="judge only what survived before, anew")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    forget_other_code(options.folder)
    reached = map_of_tests(options.folder)
    drawn = draw(options.packages, options.sample, options.seed)
    book = options.folder / f"verdicts-{options.seed}.jsonl"
    verdicts = read(book)
    if options.again:
        verdicts = {key: verdict for key, verdict in verdicts.items() if verdict == "killed"}
    for place, mutant in enumerate(drawn, 1):
        if mutant.id in verdicts:
            continue
        verdicts[mutant.id] = verdict = judge(mutant, reached.get(mutant.path, {}).get(str(mutant.line), []))
        with book.open("a") as file:
            file.write(json.dumps({"id": mutant.id, "old": mutant.old, "verdict": verdict}) + "\n")
        print(
            f"{place}/{len(drawn)} {verdict}: {mutant.path}:{mutant.line} {mutant.old!r} -> {mutant.new!r}",
            flush=True,
        )
    if report(drawn, verdicts) < options.floor:
        raise SystemExit(f"fewer than {options.floor:.0%} of the mutants are killed")


def forget_other_code(folder: Path) -> None:
    """Remove what a folder keeps of other code or other tests than these."""
    files = sorted(path for root in ("tensorwise", "tests") for path in (ROOT / root).rglob("*.py"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    kept = folder / "code"
    if kept.exists() and kept.read_text() == digest.hexdigest():
        return
    for path in (folder / "reached.json", *folder.glob("verdicts-*.jsonl")):
        path.unlink(missing_ok=True)
    kept.write_text(digest.hexdigest())


def draw(packages: Iterable[str], count: int, seed: int) -> list[Mutant]:
    """Return ``count`` mutants, drawn evenly from all of the packages' files."""
    files = [path for name in packages for path in sorted((ROOT / "tensorwise" / name).rglob("*.py"))]
    every = [one for path in files for one in mutants(ROOT, path)]
    return random.Random(seed).sample(every, min(count, len(every)))


def read(book: Path) -> dict[str, str]:
    """Return the verdicts written down, the last of each mutant."""
    if not book.exists():
        return {}
    rows = [json.loads(line) for line in book.read_text().splitlines()]
    return {row["id"]: row["verdict"] for row in rows}


def map_of_tests(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Return file -> line -> tests that execute it, quickest first; found once, by running them under coverage."""
    kept = folder / "reached.json"
    if not kept.exists():
        data = folder / "coverage"
        settings = folder / "coverage.ini"
        settings.write_text(f"[run]\nsource = {ROOT / 'tensorwise'}\ndata_file = {data}\n")
        times = folder / "times.xml"
        watched = [f"--cov-config={settings}", "--cov", "--cov-context=test", "--cov-report="]
        timed = ["-o", "junit_duration_report=call", f"--junitxml={times}"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *watched, *timed, *TESTS]
        print("running the tests under coverage", flush=True)
        subprocess.run(command, cwd=ROOT, check=True, env=environment(ROOT))
        kept.write_text(json.dumps(_reached(data, _durations(times))))
    found: dict[str, dict[str, list[str]]] = json.loads(kept.read_text())
    return found


def _durations(times: Path) -> dict[str, float]:
    from xml.etree import ElementTree

    return {
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}": float(case.get("time", 0))
        for case in ElementTree.parse(times).iter("testcase")
    }


def _reached(data: Path, seconds: dict[str, float]) -> dict[str, dict[str, list[str]]]:
    import coverage

    found = coverage.CoverageData(basename=str(data))
    found.read()
    table: dict[str, dict[str, list[str]]] = {}
    for file in found.measured_files():
        lines: dict[str, list[str]] = {}
        tests = {
            line: {context.partition("|")[0] for context in contexts if "::" in context}
            for line, contexts in found.contexts_by_lineno(file).items()
        }
        anywhere = set().union(*tests.values())
        for (
            line,
            names,
        ) in tests.items():  # what a module executes as it is imported, all of its tests may notice
            able = names or anywhere
            lines[str(line)] = sorted(able, key=lambda test: (seconds.get(test, 0.0), test))[:MOST_TESTS]
        table[str(Path(file).relative_to(ROOT))] = lines
    return table


def environment(root: Path) -> dict[str, str]:
    """Return this environment with the package of ``root`` in front."""
    return {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}


def judge(mutant: Mutant, tests: Sequence[str]) -> str:
    """Return ``killed``, ``survived``, or ``unreached`` where no test executes the line."""
    if not tests:
        return "unreached"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "tensorwise", root / "tensorwise", ignore=skip)
        for name in ("tests", "benchmarks", "experiments", "examples", "docs", "pyproject.toml", "README.md"):
            (root / name).symlink_to(ROOT / name)
        (root / mutant.path).write_bytes(mutant.text(ROOT))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(root),
            *tests,
        ]
        child = subprocess.Popen(
            command, cwd=root, env=environment(root), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = child.wait(MOST_S)
        except subprocess.TimeoutExpired:
            status = 1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, 9)
            child.wait()
    return "survived" if status == 0 else "killed"


def report(drawn: Sequence[Mutant], verdicts: dict[str, str]) -> float:
    """Print the survivors and the score by package; return the share of all that is killed."""
    for one in drawn:
        if verdicts[one.id] != "killed":
            print(f"{verdicts[one.id]}: {one.path}:{one.line}  {one.old!r} -> {one.new!r}")
    for name in (*PACKAGES, ""):
        counts = Counter(verdicts[one.id] for one in drawn if one.path.startswith(f"tensorwise/{name}"))
        if total := counts.total():
            done = f"{counts['killed']} of {total} killed ({counts['killed'] / total:.1%})"
            rest = f"{counts['survived']} survived, {counts['unreached']} unreached"
            print(f"{name or 'all'}: {done}, {rest}")
    return sum(verdicts[one.id] == "killed" for one in drawn) / max(1, len(drawn))


if __name__ == "__main__":
    start = time.monotonic()
    main()
    print(f"{time.monotonic() - start:.0f} s")
