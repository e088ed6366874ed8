"""Claim: calling a tuned operator, with its checks and the allocation of the output, costs at most 4 microseconds
over the bare C call with arguments laid out before.

    python benchmarks/call_overhead.py [--rounds 25] [--rows 32] [--threads 1]

On a tiny matrix; the variants are called in interleaved rounds and the difference is taken round by round.
"""

import argparse
import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from corpus import RESULTS, Results

from tensorwise.device.timing import interleave, measuring_slot
from tensorwise.program.workload import workload
from tensorwise.runtime.generated import BoundProgram
from tensorwise.tensor.convert import entries_from
from tensorwise.tuning.operator import Operator, bind, default_kernel

LIMIT_S = 4e-6
CASES = {
    "spmv float32": ("spmv", None, "float32"),
    "spmv float64": ("spmv", None, "float64"),
    "spmm n=8 float32": ("spmm", 8, "float32"),
    "spmm n=8 float64": ("spmm", 8, "float64"),
}


def bare(operator: Operator, operand: np.ndarray, out: np.ndarray) -> Any:
    """Return the C call alone, its arguments laid out."""
    bound = operator._bound
    assert isinstance(bound, BoundProgram)
    (call,) = bound._main
    pointers = (ctypes.c_void_p * len(call.pointers))(*call.pointers)
    for place, array in zip(call.places, (operand, out), strict=True):
        pointers[place] = array.ctypes.data
    function, sizes = call.function, call.sizes
    return lambda: function(pointers, sizes)


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return seconds of each variant, and what the operator's call costs over the bare one."""
    op, n, dtype = CASES[case]
    rng = np.random.default_rng(0)
    matrix = sp.random_array((options.rows, options.rows), density=0.1, rng=rng, dtype=np.float64).astype(
        dtype
    )
    work = workload(op, entries_from(matrix), n=n)
    operator = bind(default_kernel(work), work, options.threads)
    (operand,) = work.operands(rng)
    out = np.empty(work.output_shape, work.output_dtype)
    np.testing.assert_allclose(operator(operand), matrix @ operand, rtol=1e-4, atol=1e-5)
    calls = {
        "bare": bare(operator, operand, out),
        "call": lambda: operator(operand),
        "call with out": lambda: operator(operand, out=out),
        "@": lambda: operator @ operand,
        "scipy": lambda: matrix @ operand,
    }
    with measuring_slot() as slot:
        table = interleave(calls, options.rounds, 60.0, rng)
    over = {name: table.samples(name) - table.samples("bare") for name in calls if name != "bare"}
    return {
        "seconds": {name: table.median(name) for name in calls},
        "over_bare_s": {name: float(np.median(difference)) for name, difference in over.items()},
        "over_bare_iqr_s": {
            name: float(np.subtract(*np.percentile(d, (75, 25)))) for name, d in over.items()
        },
        "note": "; ".join(filter(None, (slot.note, table.note))),
    }


def main() -> None:
    """Measure, print and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="forget what the result file holds")
    parser.add_argument("--out", type=Path, default=RESULTS / "call_overhead.json")
    options = parser.parse_args()
    settings = {"rounds": options.rounds, "rows": options.rows, "threads": options.threads}
    results = Results(options.out, __doc__ or "", settings, options.fresh, inputs=[Path(__file__)])
    for case in results.left(CASES):
        found = measure(case, options)
        results.add(case, found)
        told = (f"{name} {1e6 * seconds:.2f} us" for name, seconds in found["over_bare_s"].items())
        print(f"bare {1e6 * found['seconds']['bare']:.2f} us; over it: {', '.join(told)}; {found['note']}")
    worst = max(found["over_bare_s"]["call"] for found in results.runs.values())
    lines = [f"at most {1e6 * worst:.2f} us over the bare call (limit {1e6 * LIMIT_S:g} us)"]
    results.write(lines, worst <= LIMIT_S)
    print(*lines)


if __name__ == "__main__":
    main()
