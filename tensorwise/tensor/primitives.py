"""The compiled packing primitives of ``pack.c``, behind typed functions.

They know linear forms over the stored entries, not formats: ``EntryPositions`` says where each entry goes
without an array of positions being made.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from tensorwise.moved import forward_names
from tensorwise.toolchain.routines import INT, POINTER, SIZE, Routines

_BITS, _QUOTIENT, _REMAINDER, _INDEX = range(4)
_ALL = 2**64 - 1
_FORM: Final = (POINTER, SIZE)
PACKING: Final = Routines(
    "pack entries",
    "tw_pack_",
    {
        "form": (None, (SIZE, *_FORM, POINTER)),
        "compress": (SIZE, (SIZE, *_FORM, POINTER, SIZE, POINTER, SIZE, POINTER, SIZE, POINTER)),
        "group": (SIZE, (SIZE, *_FORM, POINTER, SIZE, SIZE, POINTER, SIZE, POINTER, POINTER)),
        "rank": (None, (SIZE, POINTER, POINTER, SIZE, POINTER)),
        "slots": (None, (SIZE, *_FORM, POINTER, SIZE, POINTER, SIZE, POINTER)),
        "sort": (INT, (SIZE, POINTER, POINTER, POINTER, POINTER, SIZE, INT, INT, INT)),
        "gather": (None, (SIZE, POINTER, POINTER, SIZE, POINTER)),
        "scatter": (None, (SIZE, *_FORM, POINTER, POINTER, SIZE, POINTER)),
        "refill": (None, (SIZE, POINTER, SIZE, POINTER, SIZE, POINTER)),
    },
    Path(__file__).with_name("pack.c"),
)


@dataclass(frozen=True, eq=False)
class Term:
    """``stride * part(source[e])`` for entry e, where part takes bits, a quotient or a remainder.

    ``source`` holds 32 or 64-bit integers that are not negative, one an entry. A term without a
    source is ``stride * e``.
    """

    source: np.ndarray | None
    kind: int = _BITS
    a: int = 0
    b: int = _ALL
    stride: int = 1

    @classmethod
    def index(cls) -> Self:
        """Return the term for the number of the entry itself."""
        return cls(None, _INDEX)

    @classmethod
    def bits(cls, source: np.ndarray, shift: int, width: int) -> Self:
        """Return the term for ``width`` bits of the source from bit ``shift`` on."""
        return cls(source, _BITS, shift, (1 << width) - 1)

    @classmethod
    def quotient(cls, source: np.ndarray, divisor: int) -> Self:
        """Return the term for ``source // divisor``."""
        if divisor & (divisor - 1):
            return cls(source, _QUOTIENT, divisor)
        return cls(source, _BITS, divisor.bit_length() - 1)

    @classmethod
    def remainder(cls, source: np.ndarray, divisor: int) -> Self:
        """Return the term for ``source % divisor``."""
        if divisor & (divisor - 1):
            return cls(source, _REMAINDER, divisor)
        return cls(source, _BITS, 0, divisor - 1)


@dataclass(frozen=True, eq=False)
class EntryPositions:
    """A position for each entry, as a sum of terms; ``count`` positions exist.

    Without terms, every entry stands at position 0 (the root).
    """

    count: int = 1
    terms: tuple[Term, ...] = ()

    def below(self, extent: int, coordinate: Term) -> "EntryPositions":
        """Return the positions in a full level below these: ``position * extent + coordinate``."""
        terms = tuple(replace(term, stride=term.stride * extent) for term in self.terms)
        return EntryPositions(self.count * extent, (*terms, coordinate))


def index_dtype(largest: int) -> type[np.signedinteger]:
    """int32 when ``largest`` is below 2**31, else int64."""
    return np.int32 if largest < 2**31 else np.int64


def evaluate(entries: int, terms: Sequence[Term]) -> np.ndarray:
    """Return the sum of ``terms`` for each entry, (entries,) uint64."""
    out = np.empty(entries, np.uint64)
    PACKING("form", entries, *_terms(terms), _address(out))
    return out


def compress(
    entries: int, parents: EntryPositions, coordinate: Term, extent: int, keep_positions: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Build a compressed level from entries that ascend by (parent, coordinate).

    Returns ``pos`` (parents + 1,), ``crd`` (positions,) and, if asked for, each entry's position.
    """
    index = index_dtype(entries)
    pos = np.empty(parents.count + 1, index)
    crd = np.empty(entries, index_dtype(extent))
    positions = np.empty(entries, index) if keep_positions else None
    stored = PACKING(
        "compress",
        entries,
        *_terms(parents.terms),
        _terms([coordinate])[0],
        parents.count,
        _address(pos),
        pos.itemsize,
        _address(crd),
        crd.itemsize,
        _address(positions),
    )
    return _narrowed(pos, stored), _shortened(crd, stored), positions


def group(
    entries: int, parents: EntryPositions, coordinate: Term, extent: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Build a compressed level from entries that ascend by parent only; extent < 2**31.

    Returns the same as ``compress``. Needs working memory for ``extent`` coordinates; raises MemoryError.
    """
    index = index_dtype(entries)
    pos = np.empty(parents.count + 1, index)
    crd, positions = np.empty(entries, np.int32), np.empty(entries, index)
    stored = PACKING(
        "group",
        entries,
        *_terms(parents.terms),
        _terms([coordinate])[0],
        parents.count,
        extent,
        _address(pos),
        pos.itemsize,
        _address(crd),
        _address(positions),
    )
    return _narrowed(pos, stored), _shortened(crd, stored), positions


def rank(entries: int, key: Term, keys: int) -> np.ndarray:
    """Return for each entry how many entries before it have the same ``key`` (below ``keys``), (entries,)."""
    index = index_dtype(entries)
    count, at = np.zeros(keys, index), np.empty(entries, index)
    PACKING("rank", entries, _terms([key])[0], _address(count), at.itemsize, _address(at))
    return at


def slots(entries: int, parents: EntryPositions, coordinate: Term) -> tuple[np.ndarray, np.ndarray]:
    """Give each parent one slot more than the highest coordinate below it; entries come in any order.

    Returns ``pos`` (parents + 1,) and each entry's position (entries,). There are at most as many slots
    as entries when every slot holds one.
    """
    index = index_dtype(entries)
    pos, at = np.empty(parents.count + 1, index), np.empty(entries, index)
    PACKING(
        "slots",
        entries,
        *_terms(parents.terms),
        _terms([coordinate])[0],
        parents.count,
        _address(pos),
        pos.itemsize,
        _address(at),
    )
    return pos, at


def sort(keys: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return ``keys`` (entries,) uint64 sorted stably by their bits [low, high); overwrites ``keys``."""
    keys2 = np.empty_like(keys)
    swaps = PACKING("sort", len(keys), _address(keys), _address(keys2), None, None, 0, False, low, high)
    return keys2 if swaps % 2 else keys


def sort_with_order(
    keys: np.ndarray, order: np.ndarray | None, low: int, high: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``keys`` (entries,) uint64 sorted stably by their bits [low, high), and the order;
    overwrites both.

    ``order`` holds the entry that each key belongs to; None stands for 0, 1, 2, ...
    """
    known = order is not None
    if order is None:
        order = np.empty(len(keys), index_dtype(len(keys)))
    keys2, order2 = np.empty_like(keys), np.empty_like(order)
    swaps = PACKING(
        "sort", len(keys), *map(_address, (keys, keys2, order, order2)), order.itemsize, known, low, high
    )
    return (keys2, order2) if swaps % 2 else (keys, order)


def gather(entries: int, order: Term, values: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    """Return ``values[order]`` (entries,) of ``dtype``, which is that of ``values``: 2, 4 or 8 bytes.

    ``values`` None stands for 1, 2, 3, ... (a source map).
    """
    out = np.empty(entries, dtype)
    PACKING("gather", entries, _terms([order])[0], _address(values), out.itemsize, _address(out))
    return out


def scatter(
    entries: int, places: EntryPositions, order: Term, values: np.ndarray | None, dtype: np.dtype
) -> np.ndarray:
    """Return (places.count,) zeros of ``dtype`` with ``values[order]`` at the entries' places.

    ``values`` None stands for 1, 2, 3, ... (a source map).
    """
    out = np.zeros(places.count, dtype)
    PACKING(
        "scatter",
        entries,
        *_terms(places.terms),
        _terms([order])[0],
        _address(values),
        out.itemsize,
        _address(out),
    )
    return out


def refill(out: np.ndarray, source: np.ndarray, values: np.ndarray) -> None:
    """Overwrite ``out`` (positions,) with ``values[source - 1]``, and zero where source is zero."""
    PACKING(
        "refill",
        len(out),
        _address(source),
        source.itemsize,
        _address(values),
        values.itemsize,
        _address(out),
    )


class _Term(ctypes.Structure):
    """``tw_pack_term`` of pack.c."""

    _fields_ = (
        ("source", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("kind", ctypes.c_int64),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
        ("stride", ctypes.c_uint64),
    )


def _terms(terms: Sequence[Term]) -> tuple[ctypes.Array[_Term], int]:
    """Return the table of ``terms`` for C and its length; the sources stay with the caller."""
    table = (_Term * len(terms))(
        *(
            _Term(
                _address(term.source),
                0 if term.source is None else term.source.itemsize,
                term.kind,
                term.a,
                term.b,
                term.stride,
            )
            for term in terms
        )
    )
    return table, len(terms)


def _address(array: np.ndarray | None) -> int | None:
    if array is None:
        return None
    if not array.flags.c_contiguous or array.itemsize not in (2, 4, 8) or not array.dtype.isnative:
        raise ValueError(
            f"packing needs contiguous items of 2, 4 or 8 bytes in this machine's order, got {array.dtype}, {array.strides}"
        )
    return array.ctypes.data


def _narrowed(pos: np.ndarray, stored: int) -> np.ndarray:
    return pos.astype(index_dtype(stored), copy=False)


def _shortened(crd: np.ndarray, stored: int) -> np.ndarray:
    """Return the first ``stored`` coordinates; what was reserved beyond goes back."""
    crd.resize(stored, refcheck=False)
    return crd


__getattr__ = forward_names(__name__, {"Form": f"{__name__}:EntryPositions"})
