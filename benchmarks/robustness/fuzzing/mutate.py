"""Mutations that keep most of an input's structure: of bytes, texts, JSON values and arrays."""

import contextlib
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "7",
    "255",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "1" + "0" * 40,
    "9" * 400,
    "1e308",
    "1e309",
    "-1e999",
    "1e-320",
    "nan",
    "inf",
    "-inf",
    "0.5",
    "1.5",
    "1D3",
    "1d999",
    "0x10",
    "1_0",
    ".",
    "-",
    "+",
    "1.",
    ".1",
    "1e",
    "--1",
    "1" * 5000,
)
"""Spellings of numbers at the edges of types, and of none."""
PIECES = (
    "\0",
    "\n",
    "\r\n",
    "\t",
    " ",
    ",",
    ";",
    ":",
    "#",
    "%",
    "%%",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    '"',
    "'",
    "\\",
    "/",
    "..",
    "é",
    "漢",
    "\u2028",
    "\ufeff",
    "²",
    "٣",
    "İ",
    "ß",
    "null",
    "true",
    "NaN",
    "Infinity",
    "None",
    "__class__",
    "lambda: 0",
    "T.",
    "0" * 30,
    "a" * 300,
    "((((" * 20,
    "[" * 60,
    "$(id)",
    "%s%n",
    "${x}",
    "C(",
    "U(",
    "split(",
    "i0",
    "k1",
    "+=",
)
"""Pieces of texts that some grammar gives a meaning."""
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**30,
    10**400,
    0.0,
    -0.0,
    0.5,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    "",
    "x",
    "0",
    "nan",
    "a" * 1000,
    "\ud800",
    "\0",
    "é",
    "float32",
    "O",
    "V8",
    "(9,9)f4",
    "f4,f4",
    [],
    {},
    [1],
    [[]],
    [None],
    {"a": 1},
    ["x"] * 50,
    [0.5, "x"],
    [[1, 2], [3]],
)
"""JSON values, and some that only Python spells."""
DTYPES = (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "bool",
    "object",
    "S4",
    "U4",
    "datetime64[s]",
    "V8",
    ">i4",
    ">f8",
    "longdouble",
    "i4,f8",
)


def bytes_of(rng: random.Random, data: bytes, others: Sequence[bytes] = (b"",)) -> bytes:
    """Return ``data`` after one to six changes; ``others`` are inputs of which parts are spliced in."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(found) + 1)
        end = min(len(found), at + rng.choice((1, 1, 2, 4, 16, 64)))
        kind = rng.randrange(10)
        if kind == 0 and found:
            found[at - 1] ^= 1 << rng.randrange(8)
        elif kind == 1 and found:
            found[at - 1] = rng.randrange(256)
        elif kind == 2:
            del found[at:end]
        elif kind == 3:
            found[at:at] = found[at:end] * rng.choice((1, 2, 50))
        elif kind == 4:
            found[at:end] = rng.choice(PIECES).encode("utf-8", "surrogatepass")
        elif kind == 5:
            found[at:at] = rng.choice(NUMBERS).encode()
        elif kind == 6:
            del found[at:]
        elif kind == 7:
            other = rng.choice(others)
            cut = rng.randrange(len(other) + 1)
            found[at:end] = other[cut : cut + rng.randrange(200)]
        elif kind == 8:
            found = bytearray(_renumbered(rng, bytes(found)))
        else:
            found[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
    return bytes(found[: 2**20])


def _renumbered(rng: random.Random, data: bytes) -> bytes:
    """Put another number in the place of one."""
    begin = rng.randrange(len(data) + 1)
    while begin < len(data) and not 48 <= data[begin] <= 57:
        begin += 1
    end = begin
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    return data[:begin] + rng.choice(NUMBERS).encode() + data[end:]


def text_of(rng: random.Random, text: str, others: Sequence[str] = ("",)) -> str:
    """Return a text after some changes; what is no UTF-8 any more becomes halves of surrogate pairs."""
    data = bytes_of(rng, text.encode("utf-8", "surrogatepass"), [one.encode() for one in others])
    return data.decode("utf-8", rng.choice(("surrogateescape", "replace", "ignore")))


def json_of(rng: random.Random, value: Any) -> Any:
    """Return a copy of a JSON value in which one to three places are changed."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = _changed(rng, value)
    return value


def _changed(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        found, name = dict(value), rng.choice(list(value))
        kind = rng.randrange(12)
        if kind == 0:
            del found[name]
        elif kind == 1:
            found[rng.choice(("extra", "", "\ud800", name + "x", "0"))] = found.pop(name)
        elif kind == 2:
            found[rng.choice(("extra", "device", "x" * 2000))] = rng.choice(VALUES)
        else:
            found[name] = _changed(rng, found[name])
        return found
    if isinstance(value, list | tuple) and value and rng.random() < 0.85:
        items, at = list(value), rng.randrange(len(value))
        kind = rng.randrange(8)
        if kind == 0:
            del items[at]
        elif kind == 1:
            items.insert(at, rng.choice(VALUES))
        elif kind == 2:
            items += items[: rng.choice((1, 100))]
        else:
            items[at] = _changed(rng, items[at])
        return items
    if isinstance(value, str) and rng.random() < 0.5:
        return text_of(rng, value)
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.3:
        return rng.choice((-value, value + 1, value * 1000, value - 0.5 if abs(value) < 1e300 else value))
    if rng.random() < 0.02:
        for _ in range(rng.choice((3, 100, 400))):
            value = [value]
        return value
    return rng.choice(VALUES)


def array_of(rng: random.Random, array: np.ndarray) -> Any:
    """Return an array with other values, length, dimensions, dtype, order or container."""
    try:
        found: Any = np.array(array)
    except ValueError:  # an earlier change made it ragged
        return array
    for _ in range(rng.choice((1, 1, 2))):
        with (
            contextlib.suppress(TypeError, ValueError, OverflowError, RuntimeError),
            np.errstate(all="ignore"),
        ):
            found = _other(rng, found)
    return found


def _other(rng: random.Random, found: Any) -> Any:
    for _ in range(1):
        if isinstance(found, np.ndarray) and not isinstance(found, np.ma.MaskedArray):
            found = np.array(found)
        kind = rng.randrange(12)
        size = getattr(found, "size", 0)
        if kind <= 2 and isinstance(found, np.ndarray) and size and found.dtype.kind in "iuf":
            flat = found.reshape(-1)
            info = np.iinfo(found.dtype) if found.dtype.kind in "iu" else np.finfo(found.dtype)
            chosen = rng.choice((-1, 0, 1, 2, info.min, info.max, size, 5, 2**31, 1 << 40))
            flat[rng.randrange(size)] = found.dtype.type(min(max(chosen, info.min), info.max))
            found = flat.reshape(found.shape)
        elif kind == 3 and isinstance(found, np.ndarray):
            with np.errstate(all="ignore"):
                try:
                    found = found.astype(rng.choice(DTYPES))
                except (TypeError, ValueError):
                    found = found.astype("S4")
        elif kind == 4:
            found = found[: rng.randrange(size + 1)] if getattr(found, "ndim", 0) else found
        elif kind == 5 and isinstance(found, np.ndarray):
            found = np.concatenate([found.reshape(-1)] * rng.choice((0, 2, 3)) or [np.empty(0)])
        elif kind == 6 and isinstance(found, np.ndarray):
            found = rng.choice(
                (found[None], found.reshape(-1)[::-1], found.T, found.reshape(-1, 1), found[..., None, None])
            )
        elif kind == 7 and isinstance(found, np.ndarray):
            found = found.tolist()
        elif kind == 8 and isinstance(found, np.ndarray) and found.dtype.kind == "f" and size:
            found.reshape(-1)[rng.randrange(size)] = rng.choice((np.nan, np.inf, -np.inf, -0.0, 1e-310))
        elif kind == 9 and isinstance(found, np.ndarray):
            found = np.ma.masked_array(found)
        elif kind == 10:
            return rng.choice(
                (None, 0, 1.5, "x", {}, object(), [], [[1], [2, 3]], {1, 2}, b"ab", np.float64(1), ())
            )
        elif kind == 11 and isinstance(found, np.ndarray):
            found = np.broadcast_to(
                np.zeros((), found.dtype if found.dtype.kind != "V" else "f4"),
                rng.choice(((5,), (0,), (3, 3))),
            )
    return found
