"""Random programs give the same numbers in the interpreter, compiled, and by the dense reference."""

import os

import pytest

from tensorwise.toolchain.threads import available_threads
from tests.oracle.cases import DIRECTED
from tests.oracle.run import complete, run

EXAMPLES = int(os.environ.get("TENSORWISE_ORACLE", "1500"))
"""Cases that are executed, refused draws not counted."""


def test_random_programs_agree_with_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    total = run(EXAMPLES, seed=0, jobs=available_threads())
    if EXAMPLES >= 1500:  # a few combinations have one chance in a thousand
        complete(total, seed=total.coverage.drawn)
    total.merge(run(EXAMPLES // 6, seed=DIRECTED, jobs=available_threads()))  # rare combinations on purpose
    with capsys.disabled():
        print("\n" + total.coverage.table())
    problems = [
        f"python -m tests.oracle --only {seed}\n{text}" for seed, text in sorted(total.failures.items())
    ]
    assert not problems, f"{len(problems)} seeds failed\n\n" + "\n\n".join(problems[:5])
    assert total.coverage.executed >= EXAMPLES
    if EXAMPLES >= 1500:
        assert not total.coverage.missing()
