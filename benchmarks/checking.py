"""Claims about measuring itself, on random matrices of 20 entries a row:

- the ``scipy`` kernel is no slower than the user's own ``A @ B`` (ratio at most 1.05);
- a repeated check of an output costs at most two runs of the default generated kernel.

    python benchmarks/checking.py [--rows 20000] [--threads 2] [--rounds 9] [--out results/checking.json]

Ratios are taken within interleaved rounds.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from corpus import made_by

from tensorwise.device.library import LIBRARY
from tensorwise.device.rounds import Ratio
from tensorwise.device.timing import interleave, measuring_slot
from tensorwise.device.verify import Checker
from tensorwise.program.workload import workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.space.cpu import cpu_space
from tensorwise.tensor.convert import entries_from


def measure(op: str, n: int | None, rows: int, threads: int, rounds: int) -> dict[str, Ratio | str]:
    """Return the ratios of the claims for one operation."""
    rng = np.random.default_rng(0)
    matrix = sp.random_array((rows, rows), density=20 / rows, rng=rng, format="csr", dtype=np.float64)
    matrix = sp.csr_array(matrix, dtype=np.float32)
    work = workload(op, entries_from(matrix), n=n)
    operands = work.operands(rng)
    out = np.empty(work.output_shape, work.output_dtype)
    space = cpu_space(work.assignment, "A")
    generated = GeneratedKernel(space.program(work, space.default(work))).bind(work, threads)
    scipy_kernel = LIBRARY["scipy"]().bind(work, threads)
    checker = Checker(work, operands, rng)
    generated.run(operands, out)
    wrong = checker.check(out)
    assert wrong is None, wrong
    calls = {
        "generated": lambda: generated.run(operands, out),
        "check": lambda: checker.check(out),
        "scipy": lambda: scipy_kernel.run(operands, out),
    }
    if op != "sddmm":
        calls["A @ B"] = lambda: matrix @ operands[0]
    table = interleave(calls, rounds, 60.0, rng)
    found: dict[str, Ratio | str] = {
        "mode": checker.mode,
        "note": table.note,
        "check / generated": table.ratio("check", "generated"),
    }
    if op != "sddmm":
        found["scipy / A @ B"] = table.ratio("scipy", "A @ B")
    return found


def main() -> None:
    """Run and print; write the figures where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = {}
    with measuring_slot() as slot:
        print(slot.note or "no other Tensorwise process is timing")
        for op, n in (("spmv", None), ("spmm", 32), ("spmm", 256), ("sddmm", 32), ("sddmm", 256)):
            found = measure(op, n, given.rows, given.threads, given.rounds)
            for name, value in found.items():
                shown = (
                    value
                    if isinstance(value, str)
                    else f"{value.median:.3f} [{value.low:.3f}, {value.high:.3f}]"
                )
                print(f"{op} n={n}: {name}: {shown}")
            results[f"{op} n={n}"] = {k: v if isinstance(v, str) else asdict(v) for k, v in found.items()}
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(results | made_by(Path(__file__)), indent=1) + "\n")


if __name__ == "__main__":
    main()
