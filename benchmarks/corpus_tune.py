"""Claim: `tensorwise tune` works on every matrix and tensor of the corpus within 10 seconds each: no wrong number,
crash or traceback, and at least 20 generated candidates are measured on at least 90 % of them.

    python benchmarks/corpus_tune.py [--rotate | --ops spmv,spmm,sddmm] [--core] [--limit N] [--budget 10]

Each run is a process of its own, as a user would start it: `tensorwise tune FILE --op OP --json --no-store`; tensors
run `--op mttkrp`. `--rotate` takes one operation a matrix, by turns (about 80 minutes); without it each
matrix runs all of --ops. The common structures are compiled before (`tensorwise cache warm`). A run that is
in the result file is not repeated. The file also answers how the best generated kernel compares with
the best library and with SciPy, by times of the same rounds.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corpus import RESULTS, Item, Results, items, resumable, speedups

COMMAND = [sys.executable, "-m", "tensorwise"]
WANTED, SHARE = 20, 0.9
PATIENCE_S = 180.0
"""A run that needs so much longer than its budget counts as a hang."""


def run(item: Item, op: str, options: argparse.Namespace) -> dict[str, Any]:
    """Tune once; return what came of it."""
    limits = [
        "--budget",
        str(options.budget),
        "--trials",
        str(options.trials),
        "--threads",
        str(options.threads),
    ]
    command = [*COMMAND, "tune", str(item.path), "--op", op, "--json", "--no-store", *limits]
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.budget + PATIENCE_S)
        status, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        status, out, err = -1, _text(late.stdout), f"hang: {_text(late.stderr)}"
    # Where the corpus lies is this machine's affair and no part of a result.
    out, err = (text.replace(str(item.path), item.path.name) for text in (out, err))
    found: dict[str, Any] = {
        "status": status,
        "seconds": round(time.perf_counter() - start, 2),
        "nonzeros": item.nonzeros,
        "stderr": err.strip()[-2000:],
    }
    try:
        lines = [json.loads(line) for line in out.splitlines()]
    except ValueError:
        return found | {"status": status or -2, "stderr": f"no JSON: {out[-500:]} {found['stderr']}"}
    candidates = [line for line in lines if line.get("event") == "candidate"]
    found["statuses"] = dict(Counter(line["status"] for line in candidates))
    bad = [line for line in candidates if line["status"] in ("wrong", "crash", "implausible", "timeout")]
    found["failures"] = [
        {key: line[key] for key in ("status", "format", "schedule", "note")} for line in bad[:5]
    ]
    if not lines or "best" not in lines[-1]:
        return found | {"status": status or -3}
    keys = (
        "best best_generated baselines ratio_to_best_library candidates_measured conversion_s compile_s tuning_s "
        "break_even_calls verified notes"
    )
    return found | {key: lines[-1].get(key) for key in keys.split()}


def _text(given: Any) -> str:
    return given.decode(errors="replace") if isinstance(given, bytes) else given or ""


def line_about(found: Mapping[str, Any]) -> str:
    """Return the progress line of a run."""
    if found["status"] != 0 or not found.get("baselines"):
        return f"FAILED with status {found['status']}: {found['stderr'][-150:]}"
    generated = found["best_generated"]
    library = min(found["baselines"].values())
    ratio = f"{library / generated['seconds']:.2f}x the best library" if generated else "nothing generated"
    return f"{found['seconds']:.1f} s, {found['candidates_measured']} measured, best {found['best']['name']}, {ratio}"


def summary(runs: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the lines that answer the claim, and whether it holds."""
    failed = [key for key, found in runs.items() if found["status"] != 0 or "Traceback" in found["stderr"]]
    wrong = [key for key, found in runs.items() if found.get("statuses", {}).get("wrong")]
    crashed = [key for key, found in runs.items() if found.get("statuses", {}).get("crash")]
    unverified = [key for key, found in runs.items() if found["status"] == 0 and not found.get("verified")]
    enough = [key for key, found in runs.items() if (found.get("candidates_measured") or 0) >= WANTED]
    share = len(enough) / max(1, len(runs))
    lines = [
        f"{len(runs)} runs; failed: {_listed(failed)}",
        f"wrong numbers: {_listed(wrong)}; not verified: {_listed(unverified)}; candidates that crashed: "
        f"{_listed(crashed)}",
        f"at least {WANTED} generated candidates measured: {100 * share:.1f} % of the runs",
    ]
    seconds = sorted(found["seconds"] for found in runs.values())
    if seconds:
        lines.append(f"seconds a run: median {seconds[len(seconds) // 2]:.1f}, longest {seconds[-1]:.1f}")
    for op in sorted({key.split(" ")[1] for key in runs}):
        against: dict[str, dict[str, float]] = {"the best library": {}, "scipy": {}}
        for key, found in runs.items():
            generated, baselines = found.get("best_generated"), found.get("baselines")
            if key.split(" ")[1] != op or not generated or not baselines:
                continue
            name, ours = key.split(" ")[0], generated["seconds"]
            against["the best library"][name] = min(baselines.values()) / ours
            if "scipy" in baselines:
                against["scipy"][name] = baselines["scipy"] / ours
        lines += [f"{op}: best generated against {what}: {speedups(r, 0.95)}" for what, r in against.items()]
    return lines, not failed and not wrong and not crashed and not unverified and share >= SHARE


def _listed(keys: list[str]) -> str:
    return f"{len(keys)} ({', '.join(keys[:5])}{', ...' if len(keys) > 5 else ''})" if keys else "none"


def main() -> None:
    """Run what is not in the result file yet, then print the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", default="spmv,spmm,sddmm")
    parser.add_argument("--rotate", action="store_true", help="one operation a matrix, by turns")
    parser.add_argument("--core", action="store_true", help="the core set only")
    parser.add_argument("--limit", type=int, help="the first so many matrices, and tensors")
    parser.add_argument("--budget", type=float, default=10.0)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-warm", action="store_true", help="do not compile the common structures before")
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=RESULTS / "corpus_tune.json")
    options = parser.parse_args()
    matrices, tensors = items(2, options.core)[: options.limit], items(3, options.core)[: options.limit]
    ops = options.ops.split(",")
    wanted: dict[str, tuple[Item, str]] = {}
    for place, item in enumerate(matrices):
        for op in [ops[place % len(ops)]] if options.rotate else ops:
            wanted[f"{item.name} {op}"] = item, op
    wanted |= {f"{item.name} mttkrp": (item, "mttkrp") for item in tensors}
    settings = {"budget_s": options.budget, "trials": options.trials, "threads": options.threads}
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=[Path(__file__)])
    if not options.no_warm and wanted.keys() - results.runs.keys():
        subprocess.run([*COMMAND, "cache", "warm"], check=True)
    for key in results.left(wanted):
        found = run(*wanted[key], options)
        results.add(key, found)
        print(line_about(found), flush=True)
    lines, holds = summary(results.runs)
    results.write(lines, holds)
    print("\n".join(lines), f"\nthe claim {'holds' if holds else 'does not hold'}")


if __name__ == "__main__":
    resumable(main)
