"""``python -m tests.oracle.campaign --cases 1000000``: each drawn program on many sets of operands, under sanitizers.

A case is a program and a set of operands. A program is drawn as in ``tests.oracle``, every second one with a rare
combination on purpose, compiled once for each kernel that its operands need (many kernels to a compilation), and run on
patterns of several shapes (extents 0 and 1, odd ones, multiples of its splits), each with several dense operands (NaN and
Inf among them), on one and two threads, with indices of 32 and 64 bits. Results are compared with the dense reference
within its bound of rounding errors. Generated code, packing and the parallel driver run under AddressSanitizer and
UndefinedBehaviorSanitizer: a process that touches what is not its own dies, and is a failure.

The result is written after each batch, and the same command goes on where it stopped while the code is the same.
"""

import argparse
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tensorwise.errors import FormatError, InputError, ScheduleError, UnprovenError
from tensorwise.lower.program import PlanKey, Program, kernel_text
from tensorwise.program.workload import Workload
from tensorwise.runtime.generated import BoundProgram
from tensorwise.runtime.packed import PackedOperands, packed_parts
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.pack import pack
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.compiler import find_compiler
from tests.oracle.cases import DIRECTED, Case, draw, draw_dense, draw_entries
from tests.oracle.judge import poisoned
from tests.oracle.sanitize import libraries, sanitized

ROOT: Final = Path(__file__).resolve().parents[2]
RESULT: Final = ROOT / "benchmarks" / "robustness" / "differential.json"
CODE: Final = (
    "tensorwise/lower",
    "tensorwise/program",
    "tensorwise/runtime",
    "tensorwise/tensor",
    "tensorwise/toolchain",
    "tests/oracle",
)
"""What a result depends on."""
JUDGES: Final = ("tensorwise/program/reference.py", "tests/oracle")
"""What of it says what is right; the rest is what is tried."""
SEEDS: Final = 24
"""Programs a process: their kernels are compiled together, and stay loaded until it ends."""
SHAPES, PATTERNS, OPERANDS = 4, 16, 4
"""Of each program: shapes of its operands, patterns of each shape, and dense operands of each pattern."""
MOST_POINTS: Final = 3000
"""Product of the extents: the reference is dense."""
WIDE: Final = 0.25
"""Share of shapes whose indices have 64 bits."""
TIED: Final = (-np.inf, np.inf, np.nan, 0.0, 1.0, 1.0)
"""What operands of arguments are drawn from, every second time."""
CACHE_BYTES: Final = 2**28
"""Kernels are not asked for again; what packs and runs in parallel is."""
BATCH_S: Final = 900.0
"""A batch that takes longer hangs."""


@dataclass(frozen=True)
class Trial:
    """A program with a packed pattern, to be run on several dense operands."""

    case: Case
    parts: Sequence[PackedOperands]
    threads: int
    number: int
    special: bool


def trials(case: Case) -> Iterator[Trial]:
    """Yield patterns for a case's program; those that its formats cannot store are left out."""
    rng = np.random.default_rng([case.seed, 1])
    for shape in range(SHAPES):
        sizes = _sizes(case, rng, shape)
        wide = rng.random() < WIDE
        for pattern in range(PATTERNS):
            special = bool(rng.random() < 0.25)
            number = shape * PATTERNS + pattern
            try:
                work = _workload(case, sizes, special, np.random.default_rng([case.seed, 2, number]))
                parts = _packed(case.program, work, 1 + pattern % 2, wide)
            except (FormatError, ScheduleError, InputError) as error:
                if isinstance(error, UnprovenError):
                    raise
                break
            yield Trial(replace(case, workload=work), parts, 1 + pattern % 2, number, special)


def _packed(program: Program, work: Workload, threads: int, wide: bool) -> Sequence[PackedOperands]:
    """Pack a pattern, with indices of 64 bits if asked for (which hybrids, packed part by part, are not)."""
    if not wide or program.remainder is not None:
        return packed_parts(program, work, threads)[0]
    tensors = {
        name: _widened(pack(entries, program.formats[name], values=name in work.valued))
        for name, entries in work.sparse.items()
    }
    return [PackedOperands(program, work, threads, tensors)]


def _widened(tensor: Tensor) -> Tensor:
    """The same tensor with 64-bit positions and coordinates, where their type is not a format's own."""
    arrays = tuple(
        {name: array.astype(np.int64) if array.dtype == np.int32 else array for name, array in level.items()}
        for level in tensor.arrays
    )
    return replace(tensor, arrays=arrays)


def _sizes(case: Case, rng: np.random.Generator, shape: int) -> dict[str, int]:
    """Extents of a shape: those drawn, odd ones, multiples of the splits, or one that is 0 or 1."""
    work = case.workload
    bounds, splits = case.program.schedule.bounds, case.program.schedule.splits
    sizes = dict(work.sizes)
    for index in sizes:
        if shape == 1:
            sizes[index] = int(rng.choice([3, 5, 7, 9, 11, 13, 17, 19, 23, 31]))
        elif shape == 2:
            sizes[index] = splits.get(index, 4) * int(rng.integers(1, 4))
        elif shape == 3:
            sizes[index] = int(rng.choice([0, 1, 2, 33])) if rng.random() < 0.4 else int(rng.integers(2, 12))
    sizes |= bounds
    for access in work.assignment.accesses:  # the same tensor, read in two ways
        first = work.assignment.access(access.tensor)
        for a, b in zip(first.indices, access.indices, strict=True):
            if b in sizes:
                sizes[b] = sizes[a]
    while math.prod(sizes.values()) > MOST_POINTS:
        largest = max((extent, index) for index, extent in sizes.items() if index not in bounds)[0]
        if largest < 2:
            break
        sizes = {i: e // 2 if e == largest and i not in bounds else e for i, e in sizes.items()}
    return sizes


def _workload(case: Case, sizes: dict[str, int], special: bool, rng: np.random.Generator) -> Workload:
    """Return the case's computation on another pattern of these sizes."""
    work, sparse = case.workload, {}
    for name, given in work.sparse.items():
        shape = tuple(sizes[index] for index in work.assignment.access(name).indices)
        entries = entries_from(draw_entries(rng, shape, given.dtype, special, set()))
        if given.numbers is not None:
            entries = replace(entries, numbers=rng.permutation(entries.nnz).astype(given.numbers.dtype))
        sparse[name] = entries
    return Workload(work.op, work.einsum, sparse, sizes, work.dtypes)


def texts_of(trial: Trial) -> list[str]:
    """Return the C texts that a trial may need: its own, and the masked one where it watches for NaN."""
    plans = [packed.plan(packed.program, None) for packed in trial.parts]
    texts = [kernel_text(PlanKey(plan))[0] for plan in plans]
    if any(plan.padded and not plan.masked for plan in plans):
        masked = [packed.plan(packed.program.masked(), True) for packed in trial.parts]
        texts.extend(kernel_text(PlanKey(plan))[0] for plan in masked)
    return texts


def run_trial(trial: Trial) -> tuple[int, str | None]:
    """Run a trial on its dense operands; return how many there were, and what was wrong."""
    case, work = trial.case, trial.case.workload
    bound = BoundProgram(case.program, work, trial.threads, trial.parts)
    factored = any(part.schedule.factor for part in case.program.parts)
    rng = np.random.default_rng([case.seed, 3, trial.number])
    for number in range(OPERANDS):
        special = trial.special and number % 2 == 1
        drawn = dict(zip(work.dense, work.operands(rng), strict=True)) if work.assignment.chosen else {}
        operands = [
            drawn[name]
            if name in work.assignment.chosen
            else draw_dense(rng, work.shape(name), work.dtype_of(name), special, set())
            for name in work.dense
        ]
        if work.assignment.argument is not None and number % 2 == 1:  # the same extremes, many times
            operands = [
                one if name in work.assignment.chosen else rng.choice(TIED, one.shape).astype(one.dtype)
                for name, one in zip(work.dense, operands, strict=True)
            ]
        out = np.empty(work.output_shape, work.output_dtype)
        out[...] = poisoned(replace(case, workload=work))[0]
        bound.run(operands, out)
        problem = work.reference(operands).mismatch(out, factored=factored)
        if problem:
            return number + 1, f"pattern {trial.number}, operands {number}, {dict(work.sizes)}: {problem}"
        if not work.dense:
            return 1, None
    return OPERANDS, None


def batch(first: int, seeds: int) -> None:
    """Run the programs of some seeds, and print what happens as lines of JSON."""
    ready: dict[int, list[Trial]] = {}
    texts: dict[str, None] = {}
    refused = 0
    for number in range(first, first + seeds):
        seed = number + DIRECTED * (number % 2)  # every second draw is directed
        _say(drawing=number)
        try:
            case = draw(seed)
            ready[seed] = list(trials(case))
            for trial in ready[seed]:
                texts |= dict.fromkeys(texts_of(trial))
        except UnprovenError as error:
            _say(failed=seed, problem=f"not proved: {error}")
        except (FormatError, ScheduleError):
            ready.pop(seed, None)
            refused += 1
    start = time.monotonic()
    default_cache().get(list(texts), on_error="none")
    compile_s = time.monotonic() - start
    cases = 0
    for seed, some in ready.items():
        _say(running=seed % DIRECTED, cases=cases)
        for trial in some:
            try:
                count, problem = run_trial(trial)
            except Exception as error:
                count, problem = 1, f"pattern {trial.number}: {type(error).__name__}: {error}"
            cases += count
            if problem:
                _say(failed=seed, problem=problem)
                break
    _say(
        done=first + seeds,
        cases=cases,
        programs=len(ready),
        refused=refused,
        kernels=len(texts),
        compile_s=compile_s,
    )


def _say(**said: object) -> None:
    print(json.dumps(said), flush=True)


# -- the parent ------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What the batches came to."""

    cases: int = 0
    programs: int = 0
    refused: int = 0
    kernels: int = 0
    compile_s: float = 0.0
    failures: list[dict[str, object]] = field(default_factory=list)


def run_batch(first: int, seeds: int, cpu: int, cache: str) -> Tally:
    """Run a batch in sanitized processes of its own, a new one behind each seed that kills one."""
    tally, end = Tally(), first + seeds
    while first < end:
        at, cases = first, 0
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "tests.oracle.campaign", "--batch", str(first), str(end - first)]
            environment = {**sanitized(), "TENSORWISE_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
            environment["TENSORWISE_CACHE_BYTES"] = str(CACHE_BYTES)
            log = Path(folder) / "stderr"
            with log.open("w") as stderr:
                process = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment, cwd=ROOT,
                    start_new_session=True,
                )  # fmt: skip
                with _pinned(process.pid, cpu):
                    ended = threading.Timer(BATCH_S, process.kill)
                    ended.start()
                    assert process.stdout is not None
                    for line in process.stdout:
                        said = json.loads(line)
                        at, cases = said.get("running", said.get("drawing", at)), said.get("cases", cases)
                        if "failed" in said:
                            tally.failures.append({"seed": said["failed"], "problem": said["problem"]})
                        if "done" in said:
                            tally.programs += said["programs"]
                            tally.refused += said["refused"]
                            tally.kernels += said["kernels"]
                            tally.compile_s += said["compile_s"]
                            at = said["done"] - 1
                    process.wait()
                    ended.cancel()
            tally.cases += cases
            if process.returncode:
                said_last = log.read_text()[-6000:]
                tally.failures.append(
                    {
                        "seed": at,
                        "problem": f"the process ended with {process.returncode}",
                        "stderr": said_last,
                    }
                )
        first = at + 1
    return tally


class _pinned:  # noqa: N801 - used as a statement
    """Keep a process and its children on one processor: batches run side by side."""

    def __init__(self, pid: int, cpu: int) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(pid, {cpu})

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def digest(leaving_out: Sequence[str] = ()) -> str:
    """Return the SHA-256 of the files that results depend on, but for some files and folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *CODE], cwd=ROOT, check=True, capture_output=True
    ).stdout
    found = hashlib.sha256()
    for name in sorted(one.decode() for one in listed.split(b"\0") if one):
        if (ROOT / name).is_file() and not name.startswith(tuple(leaving_out)):
            found.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return found.hexdigest()


def started(path: Path, seed: int, carry: str = "") -> dict[str, Any]:
    """Return the result to go on with: that of an interrupted run of the same code, or a new one.

    Args:
        carry: why what passed by earlier judges passes by these, too; kept with the result. What failed is run again.
    """
    tree, code = digest(), digest(JUDGES)
    if path.exists():
        known: dict[str, Any] = json.loads(path.read_text())
        if known.get("tree") == tree and known.get("first_seed") == seed:
            return known
        if carry and known.get("code") == code and known.get("first_seed") == seed:
            again = [failure["seed"] % DIRECTED for failure in known["failures"]]
            earlier = {
                "cases": known["cases"],
                "tree": known["tree"],
                "failed": known["failures"],
                "carried": carry,
            }
            return {
                **known, "tree": tree, "failures": [], "again": again, "earlier": [*known.get("earlier", ()), earlier]
            }  # fmt: skip
    return {
        "cases": 0, "programs": 0, "refused": 0, "kernels": 0, "compile_s": 0.0, "wall_s": 0.0, "first_seed": seed,
        "next_seed": seed, "failures": [], "sanitizers": "address,undefined", "tree": tree, "code": code,
        "compiler": find_compiler().version, "machine": platform.platform(), "processor": _processor(),
    }  # fmt: skip


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine()
    )


def campaign(cases: int, seed: int, jobs: int, path: Path, carry: str = "") -> dict[str, Any]:
    """Run batches until so many cases have run; the result is written behind each."""
    result = started(path, seed, carry)
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    free = [cpus[number % len(cpus)] for number in range(jobs)]
    running: dict[Future[Tally], tuple[int, int]] = {}
    done: set[int] = set()
    following, begin, before_s = int(result["next_seed"]), time.monotonic(), float(result["wall_s"])
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(jobs) as pool:
        for number in result.pop("again", ()):
            result["failures"] += run_batch(number, 1, cpus[0], cache).failures
            path.write_text(json.dumps(result, indent=1) + "\n")
        while running or result["cases"] < cases:
            while free and result["cases"] < cases:
                cpu = free.pop()
                running[pool.submit(run_batch, following, SEEDS, cpu, cache)] = (following, cpu)
                following += SEEDS
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                first, cpu = running.pop(future)
                free.append(cpu)
                tally = future.result()
                for name in ("cases", "programs", "refused", "kernels", "compile_s"):
                    result[name] += getattr(tally, name)
                result["failures"] += tally.failures
                done.add(first)
                while result["next_seed"] in done:
                    result["next_seed"] += SEEDS
            result["wall_s"] = round(before_s + time.monotonic() - begin, 1)
            result["date"] = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(result, indent=1) + "\n")
            print(
                f"\r{result['cases']} of {cases} cases, {result['programs']} programs, {len(result['failures'])} failures, "
                f"{result['wall_s']:.0f} s ", end="", file=sys.stderr, flush=True,
            )  # fmt: skip
    print(file=sys.stderr)
    return result


def main() -> None:
    """Run the campaign; exit with status 1 when a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.campaign", description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000, help="programs times sets of operands")
    parser.add_argument("--seed", type=int, default=50_000_000, help="first seed")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes, each on one processor"
    )
    parser.add_argument(
        "--out", type=Path, default=RESULT, help="result, with which the same command goes on"
    )
    parser.add_argument(
        "--carry", default="", metavar="WHY",
        help="keep what passed by another reference of the same code, because WHY (it has become laxer)",
    )  # fmt: skip
    parser.add_argument("--batch", type=int, nargs=2, metavar=("SEED", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.batch:
        batch(*options.batch)
        return
    if not libraries():
        raise SystemExit(
            "gcc has no libasan and libubsan here; install them (Debian: apt install libgcc-12-dev)"
        )
    result = campaign(options.cases, options.seed, options.jobs, options.out, options.carry)
    for failure in result["failures"]:
        print(f"\nseed {failure['seed']}: {failure['problem']}\n{failure.get('stderr', '')}")
    raise SystemExit(1 if result["failures"] else 0)


if __name__ == "__main__":
    main()
