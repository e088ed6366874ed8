"""How often blocks run, by loops that are counted by hand."""

import re

import pytest

from tensorwise.analysis.llvm import UNKNOWN, marked, runs

NEST = """
define i32 @main(i32 %count) {
entry:
  %ok = icmp eq i32 %count, 3
  br i1 %ok, label %begin, label %fail

fail:                                             ; preds = %entry
  br label %common.ret

common.ret:
  %what = phi i32 [ -1, %fail ], [ 0, %done ]
  ret i32 %what

begin:
  br label %outer

outer:
  %i = phi i64 [ 0, %begin ], [ %i.next, %last ]
  br label %inner

inner:
  %j = phi i32 [ 2, %outer ], [ %j.next, %inner ]
  %j.next = add nuw nsw i32 %j, 3
  %over = icmp eq i32 %j.next, 14
  br i1 %over, label %last, label %inner

last:
  %i.next = add nuw nsw i64 %i, 1
  %wide = trunc i64 %i.next to i32
  %end = icmp eq i32 %wide, 5
  br i1 %end, label %done, label %outer

done:
  call void @helper()
  br label %common.ret
}

define internal void @helper() {
b0:
  ret void
}
"""
BLOCKS = ["entry", "fail", "common.ret", "begin", "outer", "inner", "last", "done"]


def times(text: str, names: list[str]) -> dict[str, float]:
    found = runs(text)
    return {name: found[0, place].times for place, name in enumerate(names) if (0, place) in found}


def test_loops_multiply() -> None:
    found = times(NEST, BLOCKS)
    assert found == {
        "entry": 1, "fail": 0, "common.ret": 1, "begin": 1, "outer": 5, "inner": 20, "last": 5, "done": 1,
    }  # fmt: skip
    every = runs(NEST)
    assert [place for place, one in every.items() if one.alone] == [(0, 5)]
    assert every[1, 0].times == 1  # what is called runs


def test_marks_stand_behind_phis_and_change_nothing() -> None:
    text = marked(NEST)
    assert runs(text) == runs(NEST)
    lines = text.split("\n")
    marks = [number for number, line in enumerate(lines) if "#BLOCK" in line]
    assert len(marks) == len(BLOCKS) + 1
    assert [re.findall(r"#BLOCK (\d+ \d+)", lines[number])[0] for number in marks] == [
        *(f"0 {place}" for place in range(len(BLOCKS))), "1 0",
    ]  # fmt: skip
    assert not any(" = phi " in lines[number + 1] for number in marks)
    assert "\n".join(line for number, line in enumerate(lines) if number not in marks) == NEST


PARALLEL = """
define i32 @main() {
entry:
  %done = call i32 %launch(ptr nonnull @"lambda")
  ret i32 %done
}

define private i32 @"lambda"(i32 %task_id, ptr %env) {
entry:
  %num_task = load i32, ptr %env, align 4
  %more = add nsw i32 %num_task, 99
  %each = sdiv i32 %more, %num_task
  %next = add nsw i32 %task_id, 1
  %stop = mul nsw i32 %each, %next
  %end = tail call i32 @llvm.smin.i32(i32 %stop, i32 100)
  %begin = mul nsw i32 %each, %task_id
  %some = icmp slt i32 %begin, %end
  br i1 %some, label %body, label %out

body:
  %i = phi i32 [ %begin, %entry ], [ %i.next, %body ]
  %i.next = add nsw i32 %i, 1
  %over = icmp eq i32 %i.next, %end
  br i1 %over, label %out, label %body

out:
  ret i32 0
}
"""


def test_one_task_does_all_of_a_parallel_loop() -> None:
    found = runs(PARALLEL)
    assert found[1, 1].times == 100
    assert found[1, 2].times == 1


def loop(counter: str, condition: str, more: str = "") -> str:
    return f"""
define void @main(i32 %n) {{
entry:
{more}  br label %body

body:
{counter}
{condition}
  br i1 %c, label %out, label %body

out:
  ret void
}}
"""


@pytest.mark.parametrize(
    ("counter", "condition", "expected"),
    [
        (
            "  %i = phi i32 [ 0, %entry ], [ %k, %body ]\n  %k = add i32 %i, 4",
            "  %c = icmp ugt i32 %k, 15",
            4,
        ),
        (
            "  %i = phi i32 [ 8, %entry ], [ %k, %body ]\n  %k = add nsw i32 %i, -1",
            "  %c = icmp eq i32 %k, 0",
            8,
        ),
        ("  %i = phi i32 [ 8, %entry ], [ %k, %body ]\n  %k = sub i32 %i, 2", "  %c = icmp eq i32 0, %k", 4),
        ("  %i = phi i64 [ 0, %entry ], [ %k, %body ]\n  %k = add i64 %i, 1", "  %c = icmp eq i64 %i, 6", 7),
        ("  %c = phi i1 [ false, %entry ], [ true, %body ]", "", 2),
        (
            "  %i = phi i32 [ 0, %entry ], [ %k, %body ]\n  %k = add i32 %i, 1",
            "  %c = icmp eq i32 %k, %n",
            UNKNOWN,
        ),
        (
            "  %i = phi i32 [ 0, %entry ], [ %k, %body ]\n  %k = shl i32 %i, 1",
            "  %c = icmp eq i32 %k, 64",
            UNKNOWN,
        ),
    ],
)
def test_iterations(counter: str, condition: str, expected: float) -> None:
    assert times(loop(counter, condition), ["entry", "body", "out"]) == {
        "entry": 1,
        "body": expected,
        "out": 1,
    }


def test_constants_decide_where_a_branch_goes() -> None:
    text = """
define void @main(i32 %n) {
entry:
  %rest = and i64 64, 7
  %none = icmp eq i64 %rest, 0
  br i1 %none, label %whole, label %scalar

whole:
  br i1 %unknown, label %left, label %right

scalar:
  br label %after

left:
  br label %after

right:
  br label %after

after:
  br label %end

end:
  ret void
}
"""
    names = ["entry", "whole", "scalar", "left", "right", "after", "end"]
    assert times(text, names) == {
        "entry": 1, "whole": 1, "scalar": 0, "left": 0.5, "right": 0.5, "after": 1, "end": 1,
    }  # fmt: skip


def test_conditions_on_counters_hold_as_often_as_they_do() -> None:
    text = """
define void @main(i32 %n) {
entry:
  br label %outer

outer:
  %i = phi i64 [ 0, %entry ], [ %i.next, %last ]
  br label %inner

inner:
  %j = phi i64 [ 0, %outer ], [ %j.next, %after ]
  %sum = add nuw nsw i64 %i, %j
  %low = icmp ugt i64 %i, 1
  %high = icmp ult i64 %j, 6
  %both = select i1 %low, i1 %high, i1 false
  br i1 %both, label %load, label %after

load:
  br label %after

after:
  %j.next = add nuw nsw i64 %j, 1
  %over = icmp eq i64 %j.next, 8
  br i1 %over, label %last, label %inner

last:
  %i.next = add nuw nsw i64 %i, 1
  %end = icmp eq i64 %i.next, 8
  br i1 %end, label %out, label %outer

out:
  ret void
}
"""
    found = times(text, ["entry", "outer", "inner", "load", "after", "last", "out"])
    assert found["inner"] == found["after"] == 64
    assert 0.7 * 36 < found["load"] < 1.3 * 36
    unknown = times(text.replace("%i, 1\n", "%n, 1\n"), ["entry", "outer", "inner", "load"])
    assert unknown["load"] == 32


CHECKED = """
define void @main(ptr %env) {
entry:
  %there = load ptr, ptr %env, align 8
  %slot = getelementptr i8, ptr %env, i64 8
  %from = load ptr, ptr %slot, align 8
CHECK
  br i1 %may.not, label %scalar.preheader, label %vector.body

vector.body:
  %v = phi i64 [ 0, %entry ], [ %v.next, %vector.body ]
  %v.next = add nuw i64 %v, 8
  %whole = icmp eq i64 %v.next, 96
  br i1 %whole, label %scalar.preheader, label %vector.body

scalar.preheader:
  %first = phi i64 [ 0, %entry ], [ 96, %vector.body ]
  br label %scalar

scalar:
  %i = phi i64 [ %i.next, %scalar ], [ %first, %scalar.preheader ]
  %i.next = add nuw nsw i64 %i, 1
  %over = icmp eq i64 %i.next, 100
  br i1 %over, label %out, label %scalar

out:
  ret void
}
"""


@pytest.mark.parametrize(
    "check",
    [
        # As LLVM asks whether arrays overlap: by their ends, or by how far they are apart.
        """  %end = getelementptr i8, ptr %there, i64 400
  %other = getelementptr i8, ptr %from, i64 400
  %one = icmp ult ptr %there, %other
  %two = icmp ult ptr %from, %end
  %may.not = and i1 %one, %two""",
        """  %a = ptrtoint ptr %there to i64
  %b = ptrtoint ptr %from to i64
  %apart = sub i64 %a, %b
  %may.not = icmp ult i64 %apart, 32""",
        "  %may.not = icmp eq i32 %unknown, 0",  # vectors are what it is asked for
    ],
)
def test_the_loop_behind_vectors_does_the_rest(check: str) -> None:
    found = times(CHECKED.replace("CHECK", check), ["entry", "vector.body", "rest", "scalar", "out"])
    assert found == {"entry": 1, "vector.body": 12, "rest": 1, "scalar": 4, "out": 1}


COUNTED = """
define void @main(i32 %n) {
entry:
  br label %body

body:
  %i = phi i64 [ 0, %entry ], [ %i.next, %after ]
  %j = phi i64 [ 0, %entry ], [ 1, %after ]
CONDITION
load:
  br label %after

after:
  %i.next = add nuw nsw i64 %i, 1
  %over = icmp eq i64 %i.next, LENGTH
  br i1 %over, label %out, label %body

out:
  ret void
}
"""


@pytest.mark.parametrize(
    ("condition", "length", "expected"),
    [
        # Padding: what lies before the beginning is a large number without a sign.
        ("%x = add i64 %i, 4294967293\n%k = trunc i64 %x to i32\n%c = icmp ult i32 %k, 64", 64, 61),
        ("%x = add nsw i64 %i, -3\n%c = icmp ult i64 %x, 64", 64, 61),
        ("%x = add nsw i64 %i, -3\n%c = icmp slt i64 %x, 1", 64, 4),
        ("%x = trunc i64 %i to i8\n%k = zext i8 %x to i32\n%c = icmp ugt i32 %k, 200", 256, 55),
        ("%f = freeze i64 %i\n%x = icmp eq i64 %f, 5\n%c = freeze i1 %x", 64, 1),
        ("%c = trunc i64 %i to i1", 64, 32),
        ("%x = icmp ult i64 %i, 16\n%k = select i1 %x, i64 3, i64 %i\n%c = icmp eq i64 %k, 3", 64, 16),
        ("%x = icmp ugt i64 %i, 7\n%k = zext i1 %x to i32\n%c = icmp eq i32 %k, 0", 64, 8),
        ("%x = sub i64 %i, 8\n%k = lshr i64 %x, 60\n%c = icmp eq i64 %k, 0", 64, 56),
        ("%x = icmp ugt i64 %i, 7\n%c = and i1 %x, %unknown", 8, 0),
    ],
)
def test_integers_wrap_around(condition: str, length: int, expected: int) -> None:
    lines = "\n".join(
        "  " + line for line in [*condition.split("\n"), "br i1 %c, label %load, label %after\n"]
    )
    found = times(
        COUNTED.replace("CONDITION", lines).replace("LENGTH", str(length)), ["entry", "body", "load", "after"]
    )
    assert found["body"] == found["after"] == length
    assert found["load"] == pytest.approx(expected, abs=0.15 * length)
    assert (found["load"] == 0) == (expected == 0)


def test_a_counter_of_two_iterations_has_two_values() -> None:
    text = COUNTED.replace("CONDITION", "  %c = icmp eq i64 %j, 1\n  br i1 %c, label %load, label %after\n")
    found = times(text.replace("LENGTH", "2"), ["entry", "body", "load", "after"])
    assert 0 < found["load"] < found["body"] == 2


def test_what_hangs_on_itself_is_not_known() -> None:
    text = COUNTED.replace(
        "CONDITION",
        "  %x = phi i64 [ 0, %entry ], [ %x.next, %after ]\n  %y = add i64 %x, 1\n  %c = icmp eq i64 %y, 3\n"
        "  %x.next = select i1 %c, i64 0, i64 %y\n  br i1 %c, label %load, label %after\n",
    )
    found = times(text.replace("LENGTH", "8"), ["entry", "body", "load", "after"])
    assert found["body"] == 8
    assert 0 <= found["load"] <= 8


def test_switches_go_where_their_value_says() -> None:
    text = """  switch i64 %i, label %load [
    i64 0, label %after
    i64 3, label %after
  ]
"""
    found = times(
        COUNTED.replace("CONDITION", text).replace("LENGTH", "4"), ["entry", "body", "load", "after"]
    )
    assert found["load"] == pytest.approx(2, abs=0.6)
    assert found["after"] == 4


def test_of_what_returns_the_likelier_is_taken() -> None:
    text = """
define void @main(ptr %p) {
entry:
  %null = icmp eq ptr %p, null
  br i1 %null, label %fail, label %work, !prof !3

fail:
  ret void

work:
  ret void
}
!3 = !{!"branch_weights", i32 1, i32 1048575}
"""
    assert times(text, ["entry", "fail", "work"]) == {"entry": 1, "fail": 0, "work": 1}


def test_a_module_without_functions_runs_nothing() -> None:
    assert runs("") == {}
    assert marked("; nothing\n") == "; nothing\n"
