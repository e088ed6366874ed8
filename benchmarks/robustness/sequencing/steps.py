"""The next line of a sequence, drawn at random from what the matrices allow that the lines before it made.

A line is a statement of Python; ``result = ...`` is compared. What follows ``  #~ `` is the expression of its bound.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

from sequencing.making import LAYOUTS, has_duplicates, is_frozen
from sequencing.tables import DERIVATIONS, OBSERVATIONS

FLOATS: Final = ("float64", "float32")
DTYPES: Final = (
    *6 * FLOATS, "complex128", "complex64", "int64", "int32", "int8", "uint8", "bool", "longdouble", "float16",
)  # fmt: skip
OPERAND_DTYPES: Final = (*4 * FLOATS, "complex128", "int64", "int8", "bool", "longdouble", "float16")
NAMES: Final = ("A", "B", "D")
Namespace = Mapping[str, Any]
Maker = Callable[[Random, Namespace], str | None]
"""Returns a line, or None where it does not fit."""


def next_line(rng: Random, names: Namespace) -> str:
    """Return the next line of a sequence whose lines so far left ``names`` with SciPy's classes."""
    if not matrices(names):
        return create(rng, names)
    makers, weights = zip(*STEPS, strict=True)
    for name in find_overlong(names):
        # SciPy itself writes beyond its arrays where such a matrix is indexed. Products read it well.
        return f"{name}.prune()" if rng.random() < 0.5 else multiply(rng, names) or f"{name}.prune()"
    often = multiply_often(rng, names)
    if often is not None and rng.random() < 0.4:
        return often
    while True:
        made = rng.choices(makers, weights)[0](rng, names)
        if made is not None:
            return str(made)


def matrices(names: Namespace) -> dict[str, Any]:
    """Return the sparse matrices by name."""
    return {name: names[name] for name in NAMES if sp.issparse(names.get(name))}


def find_overlong(names: Namespace) -> list[str]:
    """Return the names of matrices with arrays longer than ``indptr`` says, as a transpose has when entries are merged."""
    found = matrices(names).items()
    return [name for name, A in found if A.format in ("csr", "csc", "bsr") and len(A.indices) > A.indptr[-1]]


def pick(rng: Random, names: Namespace, *formats: str) -> tuple[str, Any]:
    """Return one of the matrices, of the formats where some are named; an empty name where there is none."""
    found = [
        (name, A)
        for name, A in matrices(names).items()
        if A.ndim == 2 and (not formats or A.format in formats)
    ]
    return rng.choice(found) if found else ("", None)


def seed(rng: Random) -> int:
    return rng.randrange(10**6)


def draw_dtype(rng: Random, A: Any) -> str:
    """Return a dtype for an operand, often that of the matrix."""
    return str(A.dtype) if rng.random() < 0.6 else rng.choice(OPERAND_DTYPES)


def draw_special(rng: Random) -> str:
    return rng.choice(("", "", "", "", "", "", "zeros", "nan", "inf"))


def draw_operand(rng: Random, A: Any, length: int, *, before: bool = False) -> str:
    """Return the text of an operand for ``A @ x``, or, with ``before``, for ``x @ A``; some have a wrong shape."""
    if rng.random() < 0.06:
        length += rng.choice((-1, 1, 2))
    width = rng.choice((None, None, None, 0, 1, 1, 2, 3, 4, 7, 8, 16, 33, 64))
    length = max(length, 0)
    shape: tuple[int, ...] = (length,) if width is None else (width, length) if before else (length, width)
    if rng.random() < 0.02:
        shape = rng.choice(((), (2, *shape), (1, *shape)))
    layout = "C" if rng.random() < 0.5 else rng.choice(LAYOUTS)
    dtype = draw_dtype(rng, A) if rng.random() < 0.98 else "object"
    special = draw_special(rng)
    tail = f", {special!r}" if special else ""
    return f"operand({seed(rng)}, {shape}, {dtype!r}, {layout!r}{tail})"


def create(rng: Random, names: Namespace) -> str:
    """A new matrix, which may be frozen."""
    line = _create(rng, names)
    name = line[0]
    return f"{line}; {name} = freeze({name})" if rng.random() < 0.12 else line


def _create(rng: Random, names: Namespace) -> str:
    name = rng.choice(NAMES) if matrices(names) else "A"
    size = rng.choice((0, 1, 3, 3, 5, 8, 8, 12, 40))
    m, n = (max(0, size + rng.choice((-1, 0, 0, 0, 2))) for _ in range(2))
    if rng.random() < 0.03:
        m, n = rng.choice(((2000, 15), (15, 2000), (250, 250)))
    count = rng.choice((0, (m * n) // 8, (m * n) // 3, (m * n) // 2, m * n, m + n))
    dtype, special = rng.choice(DTYPES), rng.choice(("", "", "", "", "zeros", "nan", "inf"))
    tail = f", {special!r}" if special else ""
    form = rng.choice(("csr", "csr", "csr", "csc", "csc", "coo", "bsr"))
    cls = f"S.{form}_{rng.choice(('array', 'array', 'matrix'))}"
    way = rng.random()
    if form in ("csr", "csc") and way < 0.7:
        lines, minor = (m, n) if form == "csr" else (n, m)
        kind = rng.choice(("sorted", "sorted", "", "duplicates", "heavy"))
        copy = ", copy=True" if rng.random() < 0.2 else ""
        arrays = f"compressed({seed(rng)}, {lines}, {minor}, {min(count, 6000)}, {dtype!r}, {kind!r}{tail})"
        return f"{name} = {cls}({arrays}, shape=({m}, {n}){copy})"
    if form == "bsr" and m and n:
        blocks = [one for one in BLOCKS if m % one[0] == 0 and n % one[1] == 0]
        block = rng.choice(blocks)
        if way < 0.4:
            return f"{name} = {cls}(numbers({seed(rng)}, ({m}, {n}), {dtype!r}{tail}), blocksize={block})"
        kind = rng.choice(("sorted", "", "duplicates"))
        lines, minor = m // block[0], n // block[1]
        entries = min(count, lines * minor, 2000 // (block[0] * block[1]))
        arrays = f"blocked({seed(rng)}, {lines}, {minor}, {entries}, {block}, {dtype!r}, {kind!r}{tail})"
        return f"{name} = {cls}({arrays}, shape=({m}, {n}))"
    if way < 0.85:
        return f"{name} = {cls}(coordinates({seed(rng)}, {m}, {n}, {min(count, 6000)}, {dtype!r}{tail}), shape=({m}, {n}))"
    if way < 0.9:
        return f"{name} = {cls}(({m}, {n}), dtype={dtype!r})"
    return f"{name} = {cls}(numbers({seed(rng)}, ({m}, {n}), {dtype!r}, 'zeros'))"


def multiply(rng: Random, names: Namespace) -> str | None:
    """A product with a dense operand."""
    name, A = pick(rng, names)
    if A is None:
        return None
    m, n = A.shape
    form, factors, length, before = rng.choice(PRODUCTS)
    x = draw_operand(rng, A, {"n": n, "m": m}[length], before=before)
    text = form.format(A=name, x="x")
    if rng.random() < 0.15:
        text = f"repeat(lambda: {text}, {rng.choice((3, 15, 40))})"
    elif rng.random() < 0.03:
        text = f"in_fork(lambda: {text})"
    return f"x = {x}; result = {text}  #~ magnitude({factors.format(A=name, x='x')})"


BLOCKS: Final = ((1, 1), (2, 2), (3, 3), (4, 4), (6, 6), (8, 8), (2, 3), (4, 1), (5, 5))
"""Sizes of blocks: those of our kernels, and others."""


def multiply_often(rng: Random, names: Namespace) -> str | None:
    """As many products of one frozen matrix as it takes to pack it, and new values before the last ones."""
    found = [name for name, A in matrices(names).items() if is_frozen(A) and str(A.dtype) in FLOATS]
    if not found:
        return None
    name = rng.choice(found)
    A = names[name]
    turned = rng.random() < 0.3
    width = rng.choice((None, None, 1, 3, 8, 64))
    length = A.shape[0 if turned else 1]
    shape = (length,) if width is None else (length, width)
    text = f"{name}.T @ x" if turned else f"{name} @ x"
    factors = f"{name}.T, x" if turned else f"{name}, x"
    layout, special = rng.choice(("C", "C", "F", "strided")), rng.choice(("", "", "", "nan", "zeros"))
    if special == "nan" and has_duplicates(A):
        special = ""  # packed, they are one entry, and Inf - Inf of two is not seen
    x = f"operand({seed(rng)}, {shape}, {str(A.dtype)!r}, {layout!r}, {special!r})"
    new = (
        f"update({name}, numbers({seed(rng)}, {A.data.shape}, {str(A.dtype)!r})); "
        if rng.random() < 0.5
        else ""
    )
    before = f"[{text} for _ in range(60)]; " if new else ""
    return f"x = {x}; {before}{new}result = repeat(lambda: {text}, 60)  #~ magnitude({factors})"


PRODUCTS: Final = (
    *4 * (("{A} @ {x}", "{A}, {x}", "n", False),),
    *2 * (("{x} @ {A}", "{x}, {A}", "m", True),),
    *2 * (("{A}.T @ {x}", "{A}.T, {x}", "m", False),),
    ("{x} @ {A}.T", "{x}, {A}.T", "n", True),
    ("{A}.dot({x})", "{A}, {x}", "n", False),
    ("{A}.T.dot({x})", "{A}.T, {x}", "m", False),
    ("{A}.T @ ({A} @ {x})", "{A}.T, {A}, {x}", "n", False),
    ("{A}.conj().T @ {x}", "{A}.T, {x}", "m", False),
    ("{A}.transpose(copy=True) @ {x}", "{A}.T, {x}", "m", False),
    ("{A} * {x}", "{A}, {x}", "n", False),
    ("{x} * {A}", "{x}, {A}", "m", True),
    ("{A}.multiply({x})", "{A}, {x}", "n", False),
    ("{A}.__matmul__({x})", "{A}, {x}", "n", False),
    ("{A}.__rmatmul__({x})", "{x}, {A}", "m", True),
    ("sla.aslinearoperator({A}) @ {x}", "{A}, {x}", "n", False),
    ("sla.aslinearoperator({A}).T @ {x}", "{A}.T, {x}", "m", False),
    ("np.asarray({x}) @ {A}", "{x}, {A}", "m", True),
)  # fmt: skip
"""Text, factors of its bound, length of the operand, and whether the operand comes first."""


def multiply_into(rng: Random, names: Namespace) -> str | None:
    """``matmul`` with ``out``, ``alpha`` and ``beta``."""
    name, A = pick(rng, names, "csr", "csc", "bsr")
    if A is None or A.dtype.kind not in "fc":
        return None
    m, n = A.shape
    width = rng.choice((None, None, 1, 3, 8))
    tail = () if width is None else (width,)
    dtype = str(A.dtype)
    x = f"x = operand({seed(rng)}, {(n, *tail)}, {dtype!r}, {rng.choice(('C', 'C', 'F', 'strided', 'readonly'))!r})"
    if rng.random() < 0.2:
        return f"{x}; result = matmul({name}, x, alpha={rng.choice((1, 2, -0.5, 0))})  #~ 2 * magnitude({name}, x)"
    shape, given = (m, *tail), dtype
    if rng.random() < 0.1:
        shape = rng.choice(((m + 1, *tail), (m,), (m, 1), (1, m)))
    if rng.random() < 0.08:
        given = rng.choice(FLOATS)
    layout = rng.choice(
        ("C", "C", "C", "F", "strided", "negative", "readonly", "offset", "unaligned", "list")
    )
    out = f"out = operand({seed(rng)}, {shape}, {given!r}, {layout!r}, {rng.choice(('', '', 'nan'))!r})"
    operand_name = "x"
    if m == n and rng.random() < 0.1:
        x, out, operand_name = x.replace("x = ", "out = ", 1), "", "out"
    factors = f"alpha={rng.choice((1, 1, 2.5, -1, 0))}, beta={rng.choice((0, 0, 1, -0.5))}"
    bound = f"6 * magnitude({name}, {operand_name}) + 16 * np.abs(np.nan_to_num(np.asarray(before)))"
    call = f"matmul({name}, {operand_name}, out=out, {factors})"
    if operand_name == "x":
        return f"{x}; {out}; before = np.array(out); result = repeat(lambda: {call}, 2)  #~ {bound}"
    return f"{x}; before = np.array(out); {name} @ before; result = {call}  #~ 6 * magnitude({name}, before)"


def multiply_in_threads(rng: Random, names: Namespace) -> str | None:
    """Two threads multiply while a third replaces the values."""
    name, A = pick(rng, names, "csr", "csc")
    if (
        A is None
        or is_frozen(A)
        or str(A.dtype) not in FLOATS
        or A.data.ndim != 1
        or not np.isfinite(A.data).all()
    ):
        return None
    shape = rng.choice(((A.shape[1],), (A.shape[1], 3)))
    x = f"operand({seed(rng)}, {shape}, {str(A.dtype)!r})"
    return f"result = in_threads({name}, {x}, {seed(rng)}, in_place={rng.random() < 0.3})"


def multiply_sparse(rng: Random, names: Namespace) -> str | None:
    """A product of sparse matrices, or another operation of two."""
    name, A = pick(rng, names)
    other, B = pick(rng, names)
    if A is None:
        return None
    forms = [
        ("{A} @ {A}.T", "{A}, {A}.T"),
        ("{A}.T @ {A}", "{A}.T, {A}"),
        ("{A} + {A}", ""),
        ("{A} * 2", ""),
        ("-{A}", ""),
    ]
    forms += [("{A} @ SP.eye_array({A}.shape[1])", "{A}, SP.eye_array({A}.shape[1])")]
    if A.shape[1] == B.shape[0] or rng.random() < 0.1:
        forms += 2 * [("{A} @ {B}", "{A}, {B}")]
    if A.shape == B.shape:
        forms += [("{A} + {B}", ""), ("{A} != {B}", ""), ("{A}.multiply({B})", "")]
    form, factors = rng.choice(forms)
    text, bound = (one.format(A=name, B=other) for one in (form, factors))
    return f"result = {text}" + (f"  #~ magnitude({bound})" if bound else "")


def observe(rng: Random, names: Namespace) -> str | None:
    """A value of a matrix that does not change it."""
    name, A = pick(rng, names)
    if A is None:
        return None
    m, n = A.shape
    exact = [*OBSERVATIONS]
    if m and n:
        i, j = rng.randrange(m), rng.randrange(n)
        exact += [f"{{A}}[{i}, {j}]", f"{{A}}[{i}]", f"{{A}}[{i}:, :{j}]", f"{{A}}[:, [{j}, 0]]"]
        exact += ["{A}[::-1]", "{A}[{A} > 0]", f"{{A}}[[{i}, {i}], [{j}, 0]]"]
    summed = [
        "{A}.sum()",
        "{A}.sum(axis=0)",
        "{A}.sum(axis=1)",
        "{A}.mean()",
        "{A}.mean(axis=0)",
        "{A}.trace()",
    ]
    if m and n:
        summed += [
            f"{{A}}[{rng.randrange(m)}] @ np.ones({n})",
            f"np.ones({m}) @ {{A}}[:, {rng.randrange(n)}]",
        ]
    if rng.random() < 0.3:
        text = rng.choice(summed).format(A=name)
        return f"result = {text}  #~ np.float64(4 * ({name}.nnz + 2)) * float(np.abs({name}.data).astype(float).sum())"
    return "result = " + rng.choice(exact).format(A=name)


def derive(rng: Random, names: Namespace) -> str | None:
    """A matrix made of another one, which may share its arrays."""
    name, A = pick(rng, names)
    if A is None:
        return None
    target = rng.choice(NAMES)
    m, n = A.shape
    forms = [*DERIVATIONS, f"repickle({{A}}, {rng.choice((2, 4, 5))})"]
    if m > 1 and n > 1:
        i, j = rng.randrange(m), rng.randrange(n)
        forms += [f"{{A}}[{i}:]", f"{{A}}[:, {j}:]", "{A}[::2]", f"{{A}}[[{i}, 0]]", f"{{A}}[:{i}, :{j}]"]
    return f"{target} = {rng.choice(forms).format(A=name)}"


def mutate(rng: Random, names: Namespace) -> str | None:
    """A change of a matrix in place."""
    name, A = pick(rng, names)
    if A is None:
        return None
    m, n = A.shape
    dtype, size = str(A.dtype), A.data.shape
    forms = [
        "{A} *= 2",
        "{A} /= 2",
        "{A}.eliminate_zeros()",
        "{A}.sum_duplicates()",
        "{A}.sort_indices()",
        "{A}.data *= 3",
    ]
    sizes = [max(0, extent + rng.choice((-1, 0, 1))) for extent in (m, n)]
    pointers = getattr(A, "indptr", A.data)
    if pointers.flags.writeable:  # else SciPy's method cuts some arrays, and reads beyond them later
        forms += [f"{{A}}.resize({tuple(sizes)})"]
    values = f"numbers({seed(rng)}, {size}, {dtype!r}, {draw_special(rng)!r})"
    forms += [
        *3 * (f"{{A}}.data[:] = {values}",),
        *3 * (f"{{A}}.data = {values}",),
    ]
    if A.data.flags.writeable or is_frozen(A):
        forms += 3 * [f"update({{A}}, {values})"]
        forms += [f"update({{A}}, numbers(1, ({rng.randrange(9)},), {rng.choice(OPERAND_DTYPES)!r}))"]
    forms += [f"{{A}}.data = {{A}}.data.astype({rng.choice((*FLOATS, 'complex128', 'int64'))!r})"]
    layout = rng.choice(("strided", "negative", "readonly", "swapped", "subclass", "unaligned"))
    forms += 3 * [f"{{A}}.data = operand({seed(rng)}, {size}, {dtype!r}, {layout!r})"]
    if m and n:
        i, j = rng.randrange(m), rng.randrange(n)
        forms += [f"{{A}}[{i}, {j}] = 7", f"{{A}}[{i}, {j}] = 0", f"{{A}}[{i}] = 1", f"{{A}}[:, {j}] = 2"]
        forms += ["{A}.setdiag(5)"]
    if A.format in ("csr", "csc", "bsr") and A.indices.ndim == 1:
        minor = {"csr": n, "csc": m, "bsr": n // A.blocksize[1] if A.format == "bsr" else 0}[A.format]
        if len(A.indices) and minor:
            unsorted = "; {A}.has_canonical_format = False; {A}.has_sorted_indices = False"
            changes = [f"{{A}}.indices = ({minor - 1} - {{A}}.indices).astype({{A}}.indices.dtype)"]
            changes += [f"{{A}}.indices[:] = {minor - 1} - {{A}}.indices"]
            changes += ["{A}.indices = {A}.indices[::-1]", "{A}.indices = {A}.indices[::-1].copy()"]
            forms += [change + unsorted for change in changes]
        forms += ["{A}.indptr = {A}.indptr.copy()"]
        if isinstance(A, sp.sparray):  # matrices narrow indices at once in SciPy, and share no arrays then
            forms += ["widen({A})", "widen({A})", "{A}.indices = {A}.indices.astype('int64')"]
        forms += ["{A}.has_canonical_format = False", "{A}.has_sorted_indices = False"]
        forms += [
            "{A}.indptr = np.append(np.minimum({A}.indptr[:-1], {A}.indptr[-1] // 2), {A}.indptr[-1:])",
            "{A}.prune()",
        ]
        others = [B.data for other, B in matrices(names).items() if other != name]
        if (
            A.data.flags.owndata
            and A.data.ndim == 1
            and not any(
                one is A.data or one.base is A.data or np.may_share_memory(A.data, one) for one in others
            )
        ):
            forms += ["grow_in_place({A}.data, 5)", "{A}.data = np.concatenate(({A}.data, {A}.data[:2]))"]
    return rng.choice(forms).format(A=name)


def limit(rng: Random, names: Namespace) -> str | None:
    """Another limit of threads."""
    return f"limit_threads({rng.choice((1, 2, None))})"


STEPS: Final[tuple[tuple[Maker, float], ...]] = (
    (create, 1), (multiply, 8), (multiply_into, 1), (multiply_in_threads, 0.08), (multiply_sparse, 1), (observe, 2),
    (derive, 2), (mutate, 3), (limit, 0.2),
)  # fmt: skip
