"""What comes from outside as JSON or TOML is checked here, once, before anything uses it.

`parse_json` returns plain values that are safe to walk, to print and to compute with. `conform` compares a value with
a type such as ``tuple[str, ...]`` or a dataclass. `reading` is the door of a format: what its reader raises inside of
it, because the data is not what the reader expected, becomes one InputError that names the file.
"""

import contextlib
import dataclasses
import errno
import functools
import io
import json
import math
import os
import re
import stat
import struct
import sys
import types
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tensorwise.errors import InputError, TensorwiseError
from tensorwise.system import open_flags

DEEPEST: Final = 500
"""Greatest depth of nested lists and objects: deeper ones overflow the stack of a recursive function."""
MOST_BYTES: Final = 256 * 2**20
"""Greatest length of a JSON file or line in bytes: ours are kilobytes, and the largest descriptions a few MiB."""
MOST_PATH_BYTES: Final = 4095
MOST_NAME_BYTES: Final = 255
"""The longest path and name that Linux takes; a longer one makes ``Path.is_file`` raise OSError."""
LONGEST_SHOWN: Final = 80
"""Characters of a wrong value that a message quotes."""

WRONG_DATA: Final = (
    KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError, ZeroDivisionError,
    AssertionError, FloatingPointError, struct.error,
)  # fmt: skip
"""What a reader raises for data of another shape than it expects."""

T = TypeVar("T")
_LONG_NUMBER: Final = re.compile(r"\d{200}|[eE]\+?\d{3}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON; expected finite numbers")


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"an object has the name {shown(twice)} twice")
    return found


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_refuse_twice)


@contextlib.contextmanager
def reading(what: str, mend: str = "") -> Iterator[None]:
    """Turn what a reader raises for malformed data into an InputError; a TensorwiseError passes unchanged.

    Args:
        what: begins the message: the file, and what was expected in it.
        mend: ends the message: what to do.

    >>> with reading("plan.json: no plan", "write it again"):
    ...     {}["devices"]
    Traceback (most recent call last):
    tensorwise.errors.InputError: plan.json: no plan ('devices' is missing); write it again
    """
    try:
        yield
    except TensorwiseError:
        raise
    except WRONG_DATA as error:
        raise InputError(f"{what} ({reason(error)}){f'; {mend}' if mend else ''}") from error


def reason(error: BaseException) -> str:
    """Return in one printable line what an exception says, and not endlessly."""
    if isinstance(error, KeyError) and len(error.args) == 1:
        return f"{shown(error.args[0])} is missing"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # Python advises to allow it
    if isinstance(error, ValueError) and "integer string conversion" in str(error):
        return f"an integer of more than {sys.get_int_max_str_digits()} digits"
    text = " ".join(printable(str(error)).split())
    return text[:200] or type(error).__name__


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return a path that a user gave, with the home directory in the place of ``~``.

    Raises:
        InputError: it is no path, or names a user who does not exist.
    """
    try:
        found = Path(path).expanduser()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{shown(path)} is no path ({reason(error)}); expected a string or os.PathLike"
        ) from error
    name = os.fsencode(found)
    if b"\0" in name:
        raise InputError(f"{shown(str(found))} is no path: it holds a zero byte")
    if len(name) > MOST_PATH_BYTES or max(map(len, name.split(b"/"))) > MOST_NAME_BYTES:
        raise InputError(
            f"{shown(str(found))} is longer than a path may be: {MOST_PATH_BYTES} bytes, and {MOST_NAME_BYTES} a name"
        )
    return found


def printable(text: str) -> str:
    """Return ``text`` without lone surrogates, which no file, terminal or SQLite takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def shown(value: object) -> str:
    """Return a value for a message: quoted, printable, and not endless."""
    try:
        if isinstance(value, str):
            value = value[: LONGEST_SHOWN + 1]
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**256:
            return f"a number of {value.bit_length()} bits"
        text = printable(repr(value))
    except (RecursionError, ValueError):
        return f"a {type(value).__name__}"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def parse_json(text: str | bytes, what: str) -> Any:
    """Return what JSON says: numbers that fit into float64, whole characters, at most ``DEEPEST`` levels, no name twice.

    Args:
        text: UTF-8, if bytes.
        what: begins the message: the file or the field, and what is wrong then: ``a.json holds no plan``.

    Raises:
        InputError: it is no JSON, has a number, a text or a depth that nobody could use, or names a field twice.

    >>> parse_json('{"a": [1, 2.5, null]}', "a.json holds no plan")
    {'a': [1, 2.5, None]}
    >>> parse_json('{"a": 1e999}', "a.json holds no plan")
    Traceback (most recent call last):
    tensorwise.errors.InputError: a.json holds no plan (its JSON cannot be used: a number is too large for float64)
    """
    try:
        if isinstance(text, bytes | bytearray):
            text = text.decode("utf-8")
        if not isinstance(text, str):
            raise TypeError(f"expected text, got {shown(text)}")
        if _SURROGATE.search(text):
            raise ValueError("a character is half of a surrogate pair")
        value = _DECODER.decode(text)
        # What follows walks all values, which most texts are too simple to need.
        deep = text.count("[") + text.count("{") > DEEPEST
        if deep or "\\ud" in text or "\\uD" in text or _LONG_NUMBER.search(text):
            _check_values(value)
    except WRONG_DATA as error:
        raise InputError(f"{what} (its JSON cannot be used: {reason(error)})") from error
    return value


def read_json(path: str | os.PathLike[str], what: str, most_bytes: int = MOST_BYTES) -> Any:
    """Return the JSON in a file; see `parse_json`.

    Args:
        what: phrase of the message that says what is wrong with a refused file, such as ``holds no plan``.
        most_bytes: a longer file is refused.

    Raises:
        InputError: the file cannot be read, or is no JSON.
    """
    return parse_json(read_bytes(path, what, most_bytes), f"{printable(str(path))} {what}")


def read_bytes(path: str | os.PathLike[str], what: str, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file of at most ``most_bytes``; an InputError as of `read_json` for any other."""
    try:
        with open_regular(path) as file:
            data = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"{printable(str(path))} {what} ({reason(error)})") from error
    if len(data) > most_bytes:
        raise InputError(f"{printable(str(path))} {what} (it is longer than {most_bytes} bytes)")
    return data


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a file for reading bytes, if it is one: a pipe could be waited for, and a device be read, without an end.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | open_flags("NONBLOCK", "NOCTTY"))
    try:
        if what := odd_kind(os.fstat(descriptor)):
            raise OSError(errno.EINVAL, f"it is {what}; expected a regular file", os.fspath(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def lines_of(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield the lines of a file, with their ends.

    Raises:
        OSError: as of `open_regular`.
        InputError: a line is longer than ``MOST_BYTES``.
    """
    with open_regular(path) as file:
        while line := file.readline(MOST_BYTES + 1):
            if len(line) > MOST_BYTES:
                raise InputError(f"{printable(str(path))}: a line is longer than {MOST_BYTES} bytes")
            yield line


def odd_kind(status: os.stat_result) -> str:
    """Return what something is that is no regular file, such as ``a folder``; empty: it is one."""
    known = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    kind = stat.S_IFMT(status.st_mode)
    return "" if kind == stat.S_IFREG else known.get(kind, "a device")


def _check_values(value: Any) -> None:
    """Raise ValueError for a depth, a number or a text that cannot be used."""
    level, depth = [value], 0
    while level:
        if depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} lists and objects in each other")
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below += one.keys()
                below += one.values()
            elif isinstance(one, list):
                below += one
            elif isinstance(one, str):
                if _SURROGATE.search(one):
                    raise ValueError("a character is half of a surrogate pair")
            elif isinstance(one, float):
                if not math.isfinite(one):
                    raise ValueError("a number is too large for float64")
            elif isinstance(one, int) and one.bit_length() > 1000:
                raise ValueError(f"an integer of {one.bit_length()} bits; expected at most 1000")
        level, depth = below, depth + 1


@functools.cache
def schema(kind: type) -> dict[str, Any]:
    """Return the fields of a dataclass that its constructor takes, with their types."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def conform(value: Any, kind: Any, where: str) -> Any:
    """Return ``value`` as ``kind`` if it is one: lists become tuples, whole numbers floats where floats are expected.

    Args:
        value: plain, as `parse_json` returns it.
        kind: int, float, str, bool, None, Any, a Literal, a union, ``tuple[X, ...]``, ``tuple[X, Y]``, ``list[X]``,
            ``Mapping[str, X]`` or a dataclass. A bool is no int, and floats are finite.
        where: begins the message: the file and the field.

    Raises:
        InputError: naming the field, what was expected there, and what was given.

    >>> conform([1, 2], tuple[float, ...], "plan: seconds")
    (1.0, 2.0)
    >>> conform(True, int, "plan: threads")
    Traceback (most recent call last):
    tensorwise.errors.InputError: plan: threads: expected int, got True
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return value
    if kind is None or kind is types.NoneType:
        if value is None:
            return None
    elif origin in (Union, types.UnionType):
        for one in inner:
            with contextlib.suppress(InputError):
                return conform(value, one, where)
    elif origin is Literal:
        if isinstance(value, str | int | bool) and value in inner:
            return value
    elif kind is float:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**1023:
            return float(value)
    elif kind is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    elif kind in (str, bool, dict, list):
        if isinstance(value, kind):
            return value
    elif origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        if isinstance(value, list | tuple):
            return tuple(conform(one, inner[0], f"{where}[{k}]") for k, one in enumerate(value))
    elif origin is tuple:
        if isinstance(value, list | tuple) and len(value) == len(inner):
            pairs = zip(value, inner, strict=True)
            return tuple(conform(one, of, f"{where}[{k}]") for k, (one, of) in enumerate(pairs))
    elif origin is list:
        if isinstance(value, list | tuple):
            return [conform(one, inner[0], f"{where}[{k}]") for k, one in enumerate(value)]
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {name: conform(one, inner[1], f"{where}.{printable(name)}") for name, one in value.items()}
    elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return parse_dataclass(kind, value, where)
    else:
        raise AssertionError(f"no rule for {kind}")
    raise InputError(f"{where}: expected {_name(kind)}, got {shown(value)}")


def parse_dataclass(kind: type[T], value: Any, where: str) -> T:
    """Return the dataclass ``kind`` made of a JSON object that has its fields, each of the right type.

    Raises:
        InputError: a field is missing, unknown or of another type, or the constructor refuses one.
    """
    return kind(**fields_of(kind, value, where))


def fields_of(kind: type, value: Any, where: str) -> dict[str, Any]:
    """Return the fields of a JSON object that describes ``kind``, a dataclass; a field with a default may be absent.

    Raises:
        InputError: a field is missing, unknown or of another type.
    """
    needed = {one.name for one in dataclasses.fields(kind) if one.init and _has_no_default(one)}
    return members(value, schema(kind), needed, where)


def members(value: Any, wanted: Mapping[str, Any], needed: Collection[str], where: str) -> dict[str, Any]:
    """Return the members of a JSON object, of the types in ``wanted``; all in ``needed`` are there.

    Raises:
        InputError: a member is missing, unknown or of another type.
    """
    if not isinstance(value, Mapping):
        raise InputError(
            f"{where}: expected an object with the fields {', '.join(wanted)}, got {shown(value)}"
        )
    unknown = [printable(str(name))[:LONGEST_SHOWN] for name in value if name not in wanted]
    if odd := sorted([*unknown, *set(needed).difference(value)]):
        raise InputError(f"{where}: {', '.join(odd[:9])}: missing, or unknown; expected {', '.join(wanted)}")
    return {
        name: conform(value[name], of, f"{where}: {name}") for name, of in wanted.items() if name in value
    }


def _has_no_default(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _name(kind: Any) -> str:
    """Return the name of a type as people write it."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin in (Union, types.UnionType):
        return " or ".join(_name(one) for one in inner)
    if origin in (tuple, list):
        return f"a list of {_name(inner[0])}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"an object of {_name(inner[1])}"
    return "null" if kind in (None, types.NoneType) else str(getattr(kind, "__name__", kind))
