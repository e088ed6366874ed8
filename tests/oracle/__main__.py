"""``python -m tests.oracle --examples 100000``: the property test at length; ``--only SEED`` reproduces a case."""

import argparse
import os
import sys
import tempfile
import time

from tensorwise.toolchain.compiler import SANITIZE
from tensorwise.toolchain.threads import available_threads
from tests.oracle.judge import Outcome, judge, prepare
from tests.oracle.run import run
from tests.oracle.sanitize import sanitized


def main() -> None:
    """Judge seeds and exit with status 1 when one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--examples", type=int, default=3000, help="cases to execute")
    parser.add_argument(
        "--seed", type=int, default=0, help="first seed; a run that was stopped says where to go on"
    )
    parser.add_argument("--jobs", type=int, default=available_threads(), help="processes")
    parser.add_argument("--only", type=int, help="print this seed's loops and C, and run it here")
    parser.add_argument(
        "--sanitize",
        action="store_true",
        help="run generated code under AddressSanitizer and UndefinedBehaviorSanitizer",
    )
    options = parser.parse_args()
    if options.sanitize and not os.environ.get(
        SANITIZE
    ):  # again, in a process with the sanitizers' libraries
        os.execve(sys.executable, [sys.executable, "-m", "tests.oracle", *sys.argv[1:]], sanitized())
    with tempfile.TemporaryDirectory() as cache:  # kernels that nobody asks for again
        os.environ.setdefault("TENSORWISE_CACHE_DIR", cache)
        total = only(options.only) if options.only is not None else many(options)
    print(total.coverage.table())
    if options.only is None:
        print(
            "never came up:",
            ", ".join(" x ".join(filter(None, one)) for one in total.coverage.missing()) or "nothing",
        )
    for seed, problem in sorted(total.failures.items()):
        print(f"\nFAILED seed {seed} (python -m tests.oracle --only {seed})\n{problem}")
    raise SystemExit(1 if total.failures else 0)


def only(seed: int) -> Outcome:
    """Show and judge one case."""
    from tests.oracle.cases import draw

    one = prepare(draw(seed))
    print(one.case, *one.texts, sep="\n\n")
    return judge([seed])


def many(options: argparse.Namespace) -> Outcome:
    """Judge as many as asked for, with a line of progress."""
    start, following, failed = time.monotonic(), options.seed, 0

    def progress(total: Outcome, unjudged: int) -> None:
        nonlocal following, failed
        following = unjudged
        for seed in list(total.failures)[failed:]:
            print(f"\nseed {seed} failed: python -m tests.oracle --only {seed}", file=sys.stderr)
        failed = len(total.failures)
        print(
            f"\r{total.coverage.executed} of {options.examples} cases, {failed} failures, "
            f"{time.monotonic() - start:.0f} s, next seed {following} ",
            end="", file=sys.stderr, flush=True,
        )  # fmt: skip

    try:
        return run(options.examples, options.seed, options.jobs, progress)
    except KeyboardInterrupt:
        print(f"\nstopped; go on with --seed {following}", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        print(file=sys.stderr)


if __name__ == "__main__":
    main()
