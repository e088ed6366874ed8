"""Information, no claim: 30 quick ratios of Tensorwise's time to SciPy's, kept for each commit and machine.

    python benchmarks/quick/run.py [--check] [--rounds 15] [--threads 2] [--only SpMV] [--history FILE]

Four minutes at most on two processors. Both ways of a case run in the same interleaved rounds; a ratio is the median of the
ratios within rounds, with its 95 % interval, and below 1 ours is faster. Results are compared with a product in float64
before. Matrices come with pyamg, scikit-learn and networkx: nothing is downloaded. A case whose package is missing is left
out, and said so.

A line with date, commit, machine, versions and ratios is added to ``history.jsonl``, where it replaces a line of the same
commit and machine; then the page ``docs/benchmark-history.md`` and its picture are drawn. ``--check`` writes nothing. Both
say which ratios are above those of the last line of this machine, beyond both intervals. The exit status is 0 even then; it
is 1 where a result is wrong.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.corpus import ROOT, geometric_mean, machine
from benchmarks.quick import draw
from benchmarks.quick.cases import OURS, SCIPY, Pair, cases
from benchmarks.quick.history import HISTORY, last, machine_of, read, versions_changed, worse, write
from tensorwise.device.timing import interleave, measuring_slot, time_calls

SETTLE_S: Final = 0.05
"""Seconds of calls before the rounds, in which the numbers of threads are tried that a product may use."""


def commit() -> str:
    """Return the commit that is checked out, with ``+`` where files of the package differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    return git("rev-parse", "HEAD")[:12] + "+" * bool(
        git("status", "--porcelain", "--", "tensorwise", "models")
    )


def measure(pair: Pair, rounds: int) -> tuple[list[float], str]:
    """Return the ratio with its interval, and what weakens it.

    Raises:
        ArithmeticError: a result is wrong.
    """
    if wrong := pair.wrong():
        raise ArithmeticError(f"wrong results of {', '.join(wrong)}")
    calls = {OURS: pair.ours, SCIPY: pair.scipy}
    with measuring_slot() as slot:
        for call in calls.values():
            time_calls(call, SETTLE_S)
        table = interleave(calls, rounds, pair.budget_s, np.random.default_rng(0))
    if wrong := pair.wrong():  # tuning may have changed what computes
        raise ArithmeticError(f"wrong results of {', '.join(wrong)} after the rounds")
    ratio = table.ratio(OURS, SCIPY)
    note = "; ".join(filter(None, (slot.note, table.note)))
    return [float(f"{value:.4g}") for value in (ratio.median, ratio.low, ratio.high)], note


def line_of(
    todo: Mapping[str, Callable[[], Pair]], rounds: int, threads: int
) -> tuple[dict[str, Any], list[str]]:
    """Measure the cases; return the line of the history, and the cases whose results were wrong."""
    ratios, notes, left_out, failed = (
        dict[str, list[float]](),
        dict[str, str](),
        dict[str, str](),
        list[str](),
    )
    for place, (name, prepare) in enumerate(todo.items(), 1):
        begin = time.perf_counter()
        print(f"[{place}/{len(todo)}] {name}: ", end="", flush=True)
        try:
            ratios[name], note = measure(prepare(), rounds)
        except ImportError as error:
            left_out[name] = f"needs {error.name}"
        except ArithmeticError as error:
            failed.append(f"{name}: {error}")
        else:
            notes |= {name: note} if note else {}
        text = (
            "{:.2f} [{:.2f}, {:.2f}]".format(*ratios[name]) if name in ratios else left_out.get(name, "wrong")
        )
        print(f"{text} ({time.perf_counter() - begin:.1f} s) {notes.get(name, '')}".rstrip(), flush=True)
    line = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(),
        "machine": {**machine(), "threads": threads},
        "rounds": rounds,
        "ratios": ratios,
        "notes": notes,
        "left_out": left_out,
    }
    return line, failed


def compare(line: Mapping[str, Any], path: Path) -> list[str]:
    """Return lines about this measurement beside the last one of the same machine."""
    before = last(read(path), machine_of(line), besides=line["commit"])
    if before is None:
        return ["no other commit of this machine is in the history: nothing to compare with"]
    found = worse(line, before)
    about = f"commit {before['commit']} of {before['date']}"
    return [
        f"{len(found)} of {len(line['ratios'])} ratios are worse than at {about}, beyond both intervals",
        *(f"  worse: {text}" for text in found),
        *(f"  changed: {text}" for text in versions_changed(line, before)),
    ]


def main() -> None:
    """Measure, compare, and add the line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", help="the cases whose name contains this; nothing is written")
    parser.add_argument("--history", type=Path, default=HISTORY, help="another history; no page is drawn")
    options = parser.parse_args()
    os.environ["TENSORWISE_AUTOTUNE"] = "background"
    import tensorwise.sparse
    from tensorwise.sparse.kernels import FAMILIES
    from tensorwise.sparse.library import library

    tensorwise.sparse.limit_threads(options.threads)
    if any(library(True, family) is None for family in FAMILIES.values()):
        raise SystemExit("the kernels cannot be compiled: python -m tensorwise.sparse.prepare says why")
    todo = {name: made for name, made in cases(options.threads).items() if (options.only or "") in name}
    line, failed = line_of(todo, options.rounds, options.threads)
    if line["ratios"]:
        mean = geometric_mean(median for median, _, _ in line["ratios"].values())
        print(f"{len(line['ratios'])} ratios, {mean:.2f} in geometric mean; {len(line['left_out'])} left out")
        print("\n".join(compare(line, options.history)))
    if failed:
        raise SystemExit("\n".join(["nothing is written:", *failed]))
    if not (options.check or options.only):
        write(options.history, line)
        print(options.history)
        if options.history == HISTORY:
            draw.write()


if __name__ == "__main__":
    main()
