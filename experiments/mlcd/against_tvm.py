"""Compare the choice among versions of GEMM with a tuning compiler's programs; see README.md. Needs the extra tvm.

    python experiments/mlcd/against_tvm.py RECORDS [--full]

RECORDS is the gemm.parquet that `run.py gemm` wrote. First each shape is tuned, then all are compared, in steps of less than
three minutes. Goes on where it was stopped: after Ctrl-C or a kill the same command takes the steps that are left.
"""

import argparse
import json
import os
import sys
import tomllib
from functools import partial
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
# NumPy's BLAS, which checks the results, has a thread that spins for 100 ms: TVM's second one would wait for it.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "24")  # 2^24 cycles: 6 ms
os.environ.pop("OPENBLAS_CORETYPE", None)  # as in run.py
os.environ.pop("OPENBLAS_L2_SIZE", None)

from selections import compiler
from selections.measuring import known
from selections.page import drawn, page
from selections.rivals import chooser, shapes, summary

from benchmarks.corpus import Results, resumable
from tensorwise.model.cases import Cases

HERE = Path(__file__).parent


def main() -> None:
    """Tune and compare what is left, and write the page."""
    values = tomllib.loads((HERE / "values.toml").read_text())
    expected = json.loads((HERE / "expected.json").read_text())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("records", type=Path, help="what GEMM's versions took: gemm.parquet")
    option("--trials", type=int, help="programs that TVM measures for each shape")
    option("--count", type=int, help="only so many shapes, the smallest")
    option("--full", action="store_true", help="the paper's shapes and trials")
    option("--out", type=Path, default=HERE / "results", help="folder of TVM's databases and of the results")
    options = parser.parse_args()
    ranges = values["full" if options.full else "scaled"]
    given = ranges["tvm"] | ({"trials": options.trials} if options.trials else {})
    path = options.out / ("tvm" + "-full" * options.full)
    wanted = shapes(given)[: options.count]
    inputs = [options.records, HERE / "selections" / "compiler.py"]
    results = Results(path.with_suffix(".json"), __doc__ or "", given, inputs=inputs)
    on = compiler.device()
    function = chooser(ranges, Cases.of(chain(*known(options.records.with_suffix("")))), wanted)
    folder = {shape: path / "x".join(map(str, shape)) for shape in wanted}
    seed, sparsities = values["settings"]["seed"], ranges["gemm"]["sparsities"]
    steps = {
        f"tune {shape}": partial(compiler.tuned, shape, folder[shape], given["trials"], on, seed)
        for shape in wanted
    }
    results.work(steps | {
        f"compare {shape}": partial(
            compiler.compared, shape, sparsities, folder[shape], function, on, given["rounds"], given["budget_s"]
        )
        for shape in wanted
    })  # fmt: skip
    told, holds = summary(results.runs, expected)
    results.write(told, holds)
    target = options.out / "results.html"
    target.write_text(drawn(page(options.out, expected), options.out), encoding="utf-8")
    print(*told, f"wrote {target}", sep="\n")


if __name__ == "__main__":
    resumable(main)
