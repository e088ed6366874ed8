"""JSON, types and paths from outside: what cannot be used is refused, with the place and what was expected and given."""

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from tensorwise.analysis.tvmscript import read_tvmscript
from tensorwise.errors import InputError, StoreError
from tensorwise.reading import DEEPEST, conform, parse_dataclass, parse_json, read_json, reading, user_path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nan",
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e999",
        "[1e400]",
        "9" * 400,
        "[" + "9" * 5000 + "]",
        '"\\ud800"',
        '{"\\udfff": 1}',
        "[" * 5000,
        "[" * (DEEPEST + 2) + "]" * (DEEPEST + 2),
        '{"a":' * 600 + "1" + "}" * 600,
        "\ud800",
        b"\xff",
        b"\xef\xbb\xbf{}",
        5,
        None,
        ["x"],
        '{"a": 1, "a": 2}',
        '[{"b": {"a": 1, "c": 2, "a": 1}}]',
        '{"a": 1, "\\u0061": 2}',
    ],
)
def test_json_that_cannot_be_used(text: Any) -> None:
    with pytest.raises(InputError, match=r"^a plan \(its JSON cannot be used: "):
        parse_json(text, "a plan")


@pytest.mark.parametrize("value", [None, True, 1, 2**70, -1.5, "é\U0001f600", [[[]]], {"a": {"b": [1, "x"]}}])
def test_json_that_can(value: Any) -> None:
    assert parse_json(json.dumps(value), "a plan") == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode(), "a plan") == value


@dataclass(frozen=True)
class Plan:
    name: str
    kind: Literal["a", "b"]
    threads: int = 1
    seconds: float = 1.0
    n: int | None = None
    loops: tuple[str, ...] = ()
    shares: Mapping[str, float] | None = None


def test_a_plan_is_what_it_says() -> None:
    plan = parse_dataclass(
        Plan, {"name": "x", "kind": "b", "seconds": 2, "loops": ["i"], "shares": {"a": 1}}, "plan"
    )
    assert plan == Plan("x", "b", 1, 2.0, None, ("i",), {"a": 1.0})
    assert isinstance(plan.seconds, float)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threads": True}, "plan: threads: expected int, got True"),
        ({"threads": 1.0}, "threads: expected int, got 1.0"),
        ({"threads": "2"}, "expected int, got '2'"),
        ({"seconds": 10**400}, "seconds: expected float"),
        ({"seconds": True}, "expected float"),
        ({"kind": "c"}, "expected 'a' or 'b', got 'c'"),
        ({"kind": []}, "kind: expected"),
        ({"name": None}, "name: expected str, got None"),
        ({"n": "x"}, "n: expected int or null"),
        ({"loops": "ik"}, "a list of str"),
        ({"loops": [1]}, r"loops\[0\]: expected str, got 1"),
        ({"shares": {"a": "b"}}, r"shares: expected an object of float or null"),
        ({"more": 1}, "plan: more: missing, or unknown; expected name"),
        ({"kind": ...}, "plan: kind: missing"),
    ],
)
def test_what_is_wrong_with_a_plan_is_named(change: dict[str, Any], message: str) -> None:
    given = {"name": "x", "kind": "a", **change}
    with pytest.raises(InputError, match=message):
        parse_dataclass(Plan, {name: value for name, value in given.items() if value is not ...}, "plan")


@pytest.mark.parametrize("value", [None, 1, "x", [], [1]])
def test_a_plan_is_an_object(value: Any) -> None:
    with pytest.raises(InputError, match="plan: expected an object with the fields name, kind"):
        parse_dataclass(Plan, value, "plan")


def test_a_door_turns_what_readers_raise_into_one_error_and_lets_ours_pass() -> None:
    for error in (
        KeyError("x"),
        TypeError("y"),
        IndexError(),
        AttributeError(),
        OverflowError(),
        RecursionError(),
        ZeroDivisionError(),
    ):
        with pytest.raises(InputError, match=r"^a file \(.*\); mend it$"), reading("a file", "mend it"):
            raise error
    with pytest.raises(StoreError), reading("a file"):
        raise StoreError("as it was")
    with pytest.raises(MemoryError), reading("a file"):
        raise MemoryError


def test_files_and_paths(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent", tmp_path / "\udcff", tmp_path / ("e" * 300), "a\0b"):
        with pytest.raises(InputError, match="holds no plan"):
            read_json(path, "holds no plan")
    (tmp_path / "long").write_text(" " * 100)
    with pytest.raises(InputError, match="longer than 10 bytes"):
        read_json(tmp_path / "long", "holds no plan", 10)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as heard:
        heard.bind(str(tmp_path / "heard"))
        for name, kind in (("pipe", "a pipe"), ("link", "a device"), (".", "a folder")):
            with pytest.raises(InputError, match=f"holds no plan .it is {kind}; expected a regular file"):
                read_json(tmp_path / name, "holds no plan")
        with pytest.raises(InputError, match="holds no plan"):
            read_json(tmp_path / "heard", "holds no plan")
    for wrong in ("~nobody-of-this-name/x", "a\0b", "e" * 300, "/".join(["d"] * 3000), 5, None):
        with pytest.raises(InputError):
            user_path(wrong)  # type: ignore[arg-type]
    assert user_path("~") == Path.home()


def test_messages_are_whole_text() -> None:
    assert str(InputError("half \ud800 of a pair")).encode() == b"half \\ud800 of a pair"


def test_a_rule_that_is_missing_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        conform(1, set[int], "plan")


@pytest.mark.parametrize(
    "expr",
    [
        "().__class__",
        "T.__class__",
        "T.float32.__globals__",
        "(lambda: 1)()",
        "[i for i in A]",
        "A.dtype",
        "eval('1')",
        "__import__('os')",
        "T.max(*A)",
        "2 ** 999999",
        "1 << 99999",
        "f'{i}'",
        "T.if_then_else(i, x=1)",
        "i if i else 2",
        "max(i, 2)",
        "A[i].x",
        "9" * 400,
    ],
)
def test_nothing_in_a_program_of_tvm_is_run(expr: str) -> None:
    text = f'@T.prim_func\ndef main(A: T.Buffer((64,), "int32")):\n    for i in range(8):\n        A[{expr}] = 1\n'
    with pytest.raises(InputError):
        read_tvmscript(text, np.random.default_rng(0))
