"""What lines of a sequence are made of: operands, entries of matrices, and calls in a fork or on threads.

Every function gives equal values for equal arguments, so that a sequence is the text of its lines.
"""

import copy
import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import scipy.sparse as sp

from tensorwise.errors import InputError

LAYOUTS: Final = (
    "C", "F", "strided", "negative", "readonly", "broadcast", "unaligned", "offset", "matrix", "list", "tuple", "subclass",
    "swapped", "masked",
)  # fmt: skip
"""How an operand lies in memory, or what carries it."""
SPECIALS: Final = ("", "nan", "inf", "zeros", "ones")
FORK_LIMIT_S: Final = 20.0
"""Seconds after which a fork's call counts as hanging."""


class Subclass(np.ndarray):
    """An array of a class of its own, as other packages have."""


def numbers(seed: int, shape: tuple[int, ...], dtype: str, special: str = "") -> np.ndarray:
    """Return C-contiguous numbers of ``dtype``; ``special`` puts NaN, infinities or zeros among them."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    if kind.kind == "b":
        made = rng.random(shape) < 0.6
    elif kind.kind in "iu":
        made = rng.integers(0 if kind.kind == "u" else -5, 6, shape).astype(kind)
    elif kind.kind == "c":
        made = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)
    elif kind.kind == "O":
        made = rng.integers(-5, 6, shape).astype(object)
    else:
        made = np.asarray(rng.standard_normal(shape)).astype(kind)
    made = np.asarray(made)
    if special == "ones":
        made = np.ones(shape, kind)
    chosen = rng.random(shape) < 0.3
    if special == "zeros":
        made[chosen] = 0
    elif special in ("nan", "inf") and kind.kind in "fc":
        made[chosen] = np.nan if special == "nan" else np.inf
        made[rng.random(shape) < 0.1] = -np.inf
    return made


def operand(seed: int, shape: tuple[int, ...], dtype: str, layout: str = "C", special: str = "") -> Any:
    """Return an operand of `numbers` that lies in memory as ``layout``, one of `LAYOUTS`, says."""
    made = numbers(seed, shape, dtype, special)
    if layout == "F":
        return np.asfortranarray(made)
    if layout == "strided":
        wide = np.zeros(tuple(2 * extent + 1 for extent in shape), made.dtype)
        view = wide[tuple(slice(0, 2 * extent, 2) for extent in shape)]
        view[...] = made
        return view
    if layout == "negative":
        return made[tuple(slice(None, None, -1) for _ in shape)]
    if layout == "readonly":
        made.flags.writeable = False
        return made
    if layout == "broadcast":
        one = made[tuple(slice(0, 1) for _ in shape)]
        return np.broadcast_to(one, shape) if one.size else made
    if layout in ("unaligned", "offset"):
        by = 1 if layout == "unaligned" else made.itemsize
        if made.dtype.kind == "O":
            return made
        view = np.zeros(made.nbytes + by, np.uint8)[by:].view(made.dtype).reshape(shape)
        view[...] = made
        return view
    if layout == "swapped":
        return made.astype(made.dtype.newbyteorder())
    wrap: dict[str, Callable[[Any], Any]] = {
        "matrix": lambda a: np.asmatrix(a) if a.ndim <= 2 else a,
        "list": lambda a: a.tolist(),
        "tuple": lambda a: tuple(a.tolist()),
        "subclass": lambda a: a.view(Subclass),
        "masked": lambda a: np.ma.masked_array(a),
    }
    return wrap.get(layout, lambda a: a)(made)


def compressed(
    seed: int, lines: int, minor: int, count: int, dtype: str, kind: str = "", special: str = ""
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return data, indices and indptr of a CSR or CSC matrix.

    Args:
        lines: rows of a CSR matrix.
        minor: columns of a CSR matrix.
        count: entries.
        kind: ``sorted``; ``duplicates`` (unsorted, some twice); ``heavy`` (all in one line); else unsorted, none twice.
    """
    rng = np.random.default_rng(seed)
    if lines == 0 or minor == 0:
        count = 0
    if kind in ("duplicates", "heavy"):
        rows = rng.integers(0, max(lines, 1), count)
        columns = rng.integers(0, max(minor, 1), count)
        if kind == "heavy":
            rows[:] = rng.integers(0, max(lines, 1))
    else:
        flat = rng.permutation(lines * minor)[:count]
        rows, columns = flat // max(minor, 1), flat % max(minor, 1)
    order = np.lexsort((columns, rows)) if kind == "sorted" else np.argsort(rows, kind="stable")
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=lines)[:lines])))
    data = numbers(seed + 1, (len(rows),), dtype, special)
    return data, columns[order].astype(np.int32), indptr.astype(np.int32)


def blocked(
    seed: int,
    lines: int,
    minor: int,
    count: int,
    block: tuple[int, int],
    dtype: str,
    kind: str = "",
    special: str = "",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return data, indices and indptr of a BSR matrix of ``lines`` by ``minor`` blocks; see `compressed`."""
    _, indices, indptr = compressed(seed, lines, minor, count, dtype, kind)
    return numbers(seed + 1, (len(indices), *block), dtype, special), indices, indptr


def coordinates(
    seed: int, m: int, n: int, count: int, dtype: str, special: str = ""
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return data and coordinates of a COO matrix, some of them twice."""
    rng = np.random.default_rng(seed)
    if m == 0 or n == 0:
        count = 0
    places = rng.integers(0, max(m, 1), count), rng.integers(0, max(n, 1), count)
    return numbers(seed + 1, (count,), dtype, special), places


def widen(A: Any) -> None:
    """Give a compressed matrix int64 indices."""
    A.indices, A.indptr = A.indices.astype(np.int64), A.indptr.astype(np.int64)


def grow_in_place(array: np.ndarray, more: int) -> None:
    """Append zeros to an array object, whose memory may move."""
    before = len(array)
    array[:0] = 0  # raises where it is read-only, before anything is done
    array.resize(before + more, refcheck=False)
    array[before:] = 0


def repeat(call: Callable[[], Any], times: int) -> list[Any]:
    """Return the results of several calls."""
    return [call() for _ in range(times)]


def repickle(A: Any, protocol: int) -> Any:
    """Return A after a round trip through pickle, with arrays that may be written to."""

    def again(array: np.ndarray) -> Any:  # an array from a pickle of protocol 5 does not own its memory
        return pickle.loads(pickle.dumps(array.copy(), protocol))  # noqa: S301

    return _made_writeable(pickle.loads(pickle.dumps(A, protocol)), again)  # noqa: S301


def copied(A: Any) -> Any:
    """Return a shallow copy of A, with arrays that may be written to."""
    return _made_writeable(copy.copy(A), np.copy)


def _made_writeable(A: Any, again: Callable[[np.ndarray], Any]) -> Any:
    """Replace read-only arrays of A by copies: our classes do so for a frozen array, the model of one does not."""
    for name in ("data", "indices", "indptr"):
        array = vars(A).get(name)
        if isinstance(array, np.ndarray) and not array.flags.writeable:
            setattr(A, name, again(array))
    return A


def matmul(A: Any, x: Any, out: Any = None, alpha: float = 1, beta: float = 0) -> Any:
    """Return ``A.matmul(...)`` where A has that method, else what it is documented to return; ``out`` comes back with it."""
    if hasattr(A, "matmul"):
        result = A.matmul(x, out=out, alpha=alpha, beta=beta)
        return result, out is None or result is out
    if out is None:
        if beta != 0:
            raise InputError("beta without out")
        made = A @ x
        return made if alpha == 1 else alpha * made, True
    made = A @ x
    if (
        not isinstance(out, np.ndarray)
        or out.shape != made.shape
        or out.dtype != made.dtype
        or not out.flags.writeable
    ):
        raise InputError("out does not fit")
    scaled = made if alpha == 1 else made * made.dtype.type(alpha)
    out[...] = scaled if beta == 0 else scaled + out * made.dtype.type(beta)
    return out, True


def freeze(A: Any) -> Any:
    """Return ``A.freeze()`` where A has that method, else what it is documented to return."""
    if A.ndim != 2 or A.format not in ("csr", "csc", "bsr"):
        return A.copy()
    if hasattr(A, "freeze"):
        return A.freeze()
    made = copy.copy(A)
    memory = [np.array(one, order="C") for one in (A.data, A.indices, A.indptr)]
    made.data, made.indices, made.indptr = (one.view() for one in memory)
    for one in (made.data, made.indices, made.indptr):
        one.flags.writeable = False
    made.__dict__["_frozen_model"] = memory[0], made.data, made.indices, made.indptr
    return made


def is_frozen(A: Any) -> bool:
    """Whether A is what the model of `freeze` made, with arrays that nobody replaced."""
    known = vars(A).get("_frozen_model")
    return (
        known is not None
        and known[1].base is known[0]
        and known[1] is A.data
        and known[2] is A.indices
        and known[3] is A.indptr
    )


def has_duplicates(A: Any) -> bool:
    """Whether a CSR, CSC or BSR matrix has two entries at one place."""
    lines = np.repeat(np.arange(len(A.indptr) - 1), np.diff(A.indptr))
    return len(set(zip(lines.tolist(), A.indices.tolist(), strict=False))) < len(lines)


def update(A: Any, values: np.ndarray) -> None:
    """Call ``A.update(values)`` where A has that method, else do what it is documented to do."""
    if hasattr(A, "update"):
        A.update(values)
    elif values.shape != A.data.shape or not np.can_cast(values.dtype, A.data.dtype, "same_kind"):
        raise InputError("values do not fit")
    elif is_frozen(A):
        np.copyto(vars(A)["_frozen_model"][0], values, casting="same_kind")
    elif not A.data.flags.writeable:
        raise InputError("read-only")
    else:
        np.copyto(A.data, values, casting="same_kind")


def in_fork(call: Callable[[], Any]) -> Any:
    """Return what ``call`` returns in a fork of this process; raises what it raises, and TimeoutError where it hangs."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            try:
                sent = pickle.dumps((call(), None))
            except Exception as error:
                sent = pickle.dumps((None, error))
            while sent:
                sent = sent[os.write(write, sent) :]
        finally:
            os._exit(0)
    os.close(write)
    got, end = b"", time.monotonic() + FORK_LIMIT_S
    while select.select([read], [], [], max(0.0, end - time.monotonic()))[0]:
        piece = os.read(read, 1 << 16)
        if not piece:
            break
        got += piece
    else:
        os.kill(child, signal.SIGKILL)
    os.close(read)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise TimeoutError(f"a call in a fork ended by signal {os.WTERMSIG(status)}")
    result, error = pickle.loads(got)  # noqa: S301
    if error is not None:
        raise error
    return result


def in_threads(A: Any, x: np.ndarray, seed: int, *, in_place: bool = False, times: int = 20) -> str:
    """Multiply on two threads while a third replaces ``A.data``, and leave A as it was.

    Returns:
        ``"right"`` where each result is that of one of the values, else what is wrong. With ``in_place`` values change
        during products, and no result is judged.
    """
    before = A.data
    values = [before.copy(), numbers(seed, before.shape, str(before.dtype))]
    matrices = [with_data(A, one) for one in values]
    rights = [dense(one) @ x for one in matrices]
    bounds = [magnitude(one, x) * np.finfo(before.dtype).eps for one in matrices]
    A.data = values[0].copy() if in_place else values[0]
    results: list[Any] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def guarded(function: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                function()
            except BaseException as error:
                errors.append(error)

        return run

    def multiply() -> None:
        for _ in range(times):
            results.append(A @ x)

    def replace() -> None:
        at = 0
        while not done.is_set():
            at ^= 1
            if in_place:
                A.data[:] = values[at]
            else:
                A.data = values[at]

    multipliers = [threading.Thread(target=guarded(multiply)) for _ in range(2)]
    replacer = threading.Thread(target=guarded(replace))
    for thread in (*multipliers, replacer):
        thread.start()
    for thread in multipliers:
        thread.join()
    done.set()
    replacer.join()
    A.data = before
    if errors:
        raise errors[0]
    if in_place:
        return "right"
    for result in results:
        if not any(
            np.all(np.abs(result - right) <= bound) for right, bound in zip(rights, bounds, strict=True)
        ):
            return f"{result} is none of {rights}"
    return "right"


def with_data(A: Any, data: np.ndarray) -> Any:
    """Return a SciPy matrix of A's pattern and other values."""
    made = (sp.csr_array if A.format == "csr" else sp.csc_array)(A.shape)
    made.data, made.indices, made.indptr = data, A.indices, A.indptr
    return made


def dense(A: Any) -> np.ndarray:
    """Return a matrix as a dense array of the widest type of its kind; entries at one place are added."""
    if not sp.issparse(A):
        made = np.asarray(A)
        return made.astype(_wide(made.dtype))
    places = A.tocoo()
    made = np.zeros(A.shape, _wide(places.dtype))
    np.add.at(made, places.coords, places.data)
    return made


def _wide(dtype: np.dtype) -> Any:
    return np.clongdouble if dtype.kind == "c" else np.longdouble


def magnitude(*factors: Any) -> Any:
    """Return the bound of the error of a product of matrices and vectors: the product of their absolute values, times terms.

    Multiplied by the machine epsilon of the result's type it bounds how far two results may lie apart, whatever the order of
    additions (Higham, Accuracy and Stability of Numerical Algorithms, section 3.5).
    """
    with np.errstate(all="ignore"):
        product, terms = None, 2
        for factor in reversed(factors):
            size = _absolute(factor)
            terms += 2 + (size.shape[-1] if size.ndim else 0)
            if sp.issparse(factor):
                terms += factor.nnz  # duplicates are terms, too
            product = size if product is None else size @ product
        return np.asarray(2 * terms * product)


def _absolute(factor: Any) -> np.ndarray:
    if sp.issparse(factor):
        places = factor.tocoo()
        made = np.zeros(factor.shape, np.longdouble)
        np.add.at(made, places.coords, _absolute(places.data))
        return made
    return np.abs(dense(factor))  # widened first: the least int64 has no absolute value
