"""All that a schedule may not do is said before a loop is emitted: what passes the check has code."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from tensorwise.errors import ScheduleError
from tensorwise.lower.lower import lower
from tensorwise.lower.program import Program
from tensorwise.program.einsum import Einsum
from tensorwise.program.schedule import Schedule
from tensorwise.tensor.format import Format

EINSUMS = (
    "C[i,j] += A[i,k] * B[k,j]",
    "C[i] += A[i,k] * B[k]",
    "C[i] argmax= A[i,k] * B[k]",
    "C[i,j] mean= A[i,k] * B[k,j]",
    "C[i,k] += A[i,k] * B[i,j] * D[j,k]",
    "G[k,j] += D[i,j] if P[i,j] == A else 0 for A[i,k]",
)
FORMATS = {
    "(i,k) -> U(i) C(k)": "i k",
    "(i,k) -> U(k) C(i)": "k i",
    "(i,k) -> C(i) C(k)": "i k",
    "(i,k) -> U(i1) C(k1) U(i0:4) U(k0:2)": "i1 k1 i0 k0",
    "(i,k) -> U(k1) C(i) B(k0:8)": "k1 i k0",
    "(i,k) -> N(i) S(k)": "i k",
    "(i:length,k) -> U(i) C(k)": "i k",
    "(i,k) -> U(i1) P(k#) U(i0:4) S(k)": "i1 k# i0",
    "(i,k) -> C(k-i) U(i)": "k-i i",
}
BUDGETS = ("copies of the innermost statement", "more than the 49152 of a block")
"""What lowering refuses that no directive says: how large code and shared memory may get."""


def draw(rng: random.Random) -> tuple[str, str, str]:
    """Return an einsum, a format, and a schedule of a few random directives that the parser knows."""
    text, (format, loops) = rng.choice(EINSUMS), rng.choice(list(FORMATS.items()))
    order = [*loops.split(), *(["j"] if "j" in text else [])]
    if rng.random() < 0.3:
        rng.shuffle(order)
    splits = Format.parse(format).splits
    words = [*(f"split({index},{size})" for index, size in splits.items()), f"reorder({','.join(order)})"]
    loop: Callable[[], str] = lambda: rng.choice(order)  # noqa: E731
    gpu = rng.random() < 0.3
    if gpu:
        words.append(f"bind({order[0]},block,{rng.choice([1, 4])})")
    directives: list[Callable[[], str]] = [
        lambda: f"parallel({loop()},{rng.choice(['dynamic', 'balanced', 'merge-path'])},8)",
        lambda: f"tile({loop()},{rng.choice([1, 2])}x{rng.choice([1, 4, 8])})",
        lambda: f"unroll({loop()},{rng.choice([0, 2])})",
        lambda: f"factor({loop()})",
        lambda: f"visit({loop()},length)",
        lambda: "locate(A)",
    ]
    if gpu:
        directives += [
            lambda: f"stage({loop()},8,{rng.choice(['both', 'values'])})",
            lambda: (lambda tiled: f"tile({tiled},1x4) bind({tiled},{rng.choice(['thread', 'lane'])},4)")(
                loop()
            ),
        ]
    words += [rng.choice(directives)() for _ in range(rng.choice([0, 1, 1, 2, 3]))]
    return text, format, " ".join(words)


@pytest.mark.parametrize("seed", range(8))
def test_what_passes_the_check_has_code(seed: int) -> None:
    rng, counts = random.Random(seed), Counter[str]()
    for _ in range(250):
        text, format, schedule = draw(rng)
        stored = Format.parse(format).renamed(("i", "k"))
        for masked in (False, True):
            plan = Program(Einsum.parse(text).single, {"A": stored}, Schedule.parse(schedule)).plan(
                masked=masked
            )
            try:
                plan.check()
            except ScheduleError:
                counts["refused"] += 1
                continue
            refused = ""
            try:
                lower(plan)
                counts["lowered"] += 1
            except ScheduleError as error:
                refused = str(error)
            assert not refused or any(budget in refused for budget in BUDGETS), (text, format, schedule)
    assert counts["lowered"] > 50
    assert counts["refused"] > 50


SPMM, SPMV, BITS = EINSUMS[0], EINSUMS[1], "(i,k) -> U(i) C(k1) B(k0:8)"


@pytest.mark.parametrize(
    ("text", "format", "schedule", "message"),
    [
        (SPMV, BITS, "split(k,8) reorder(i,k1,k0) parallel(k0)", "k0 can only be read in order"),
        (SPMV, BITS, "split(k,8) reorder(i,k1,k0) bind(k0,block)", "k0 can only be read in order"),
        (
            "C[k] += A[i,k]",
            "(i,k) -> U(i) C(k)",
            "reorder(i,k) tile(k,1x4)",
            "only where it is the last one, reduced",
        ),
        (SPMV, "(i,k) -> U(i) C(k)", "reorder(k,i) tile(i,1x4)", "lanes reach k"),
        (
            SPMV,
            "(i,k) -> U(i) C(k1) C(k0:4)",
            "split(k,4) reorder(i,k1,k0) unroll(k0)",
            "k0 is compressed in A",
        ),
        (SPMM, "(i,k) -> U(i) C(k)", "reorder(i,k,j) visit(k,length)", "come as they are stored"),
        (SPMM, "(i,k) -> N(i) S(k)", "reorder(i,k,j) unroll(k,2)", "follows from the position"),
    ],
)
def test_what_is_refused_before_a_loop_is_emitted(
    text: str, format: str, schedule: str, message: str
) -> None:
    stored = Format.parse(format).renamed(("i", "k"))
    plan = Program(Einsum.parse(text).single, {"A": stored}, Schedule.parse(schedule)).plan()
    with pytest.raises(ScheduleError, match=message):
        plan.check()
