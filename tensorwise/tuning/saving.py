"""Operators in files: what was chosen, as JSON, beside the stored entries, in one safetensors file.

A file holds no code and nothing that is unpickled. It is not trusted: everything in it is validated as if
a user had typed it, the operand is packed and the kernel compiled anew.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tensorwise.device.host import host
from tensorwise.device.libraries.base import LibraryKernel
from tensorwise.device.library import LIBRARY
from tensorwise.errors import CompilerError, InputError, MissingExtraError, TensorwiseError
from tensorwise.ids import content_id
from tensorwise.lower.program import program_for
from tensorwise.program.workload import Workload, einsum_workload
from tensorwise.reading import WRONG_DATA, conform, parse_json, reading, reason, user_path
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.kernel import Kernel
from tensorwise.runtime.work import check_work
from tensorwise.tensor.checks import checked_integers, coordinate_dtype
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import value_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.toolchain.compiler import find_compiler
from tensorwise.toolchain.threads import available_threads
from tensorwise.tuning.operator import Operator, bind
from tensorwise.version import __version__
from tensorwise.writing import replacing

SCHEMA: Final = 2
"""Version of the file's layout; a reader takes its own and older ones. 2 has numbers of entries; others are written as 1."""
KEY: Final = "tensorwise"
"""Name of the description in the safetensors header; beside it lies the ``checksum``."""
MOST_THREADS: Final = 4096
MAX_REPORT_CHARACTERS: Final = 100_000
"""Of a report's text in a file, which anybody may have written; ours have a few thousand."""
INTEGERS: Final = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
"""dtypes of matrices whose values are kept as floating-point numbers, ..."""
LONG: Final = "longdouble"
"""... and another one, whose name in NumPy depends on the machine."""


def save(operator: Operator, path: str | os.PathLike[str]) -> None:
    """Write ``operator`` to ``path``: its sparse operand and how it is run, not the packed form.

    The file appears whole or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    from safetensors.numpy import save as serialized  # only operators that are saved or loaded need it

    text, arrays = described(operator)
    data = serialized(arrays, metadata={KEY: text, "checksum": _checksum(text, arrays)})
    try:
        with replacing(user_path(path)) as file:
            file.write(data)
    except OSError as error:
        raise InputError(f"{path}: the operator cannot be written ({error.strerror or error})") from error


def load(
    path: str | os.PathLike[str], matrix: Any = None, *, check_machine: bool = True, rounding: bool = False
) -> Operator:
    """Read an operator that ``Operator.save`` wrote: pack its operand again and compile it through the cache.

    Args:
        path: the file.
        matrix: the sparse operand, of the same pattern, whose values are to be used in place of the
            stored ones; anything that ``tune`` takes.
        check_machine: refuse a file written on other hardware, where the choice may be a poor one.
        rounding: round values of ``matrix`` to the dtype that was tuned; otherwise a matrix of a wider dtype is refused.

    Returns:
        The operator; ``result`` is None, and ``report()`` is the text of the report when it was tuned. It runs on the
        threads it was tuned for, or on as many as this process may use if these are fewer.

    Raises:
        InputError: the file is missing, damaged or no operator; it belongs to another machine or matrix.
        MissingExtraError: the chosen library is not installed here.
        CompilerError: the chosen kernel is generated code, and no compiler works here.
    """
    kernel, work, threads, report = read_operator(path, matrix, check_machine, rounding)
    operator = bind(kernel, work, threads)
    operator.saved_report = report
    return operator


def reduce_operator(operator: Operator) -> tuple[Any, ...]:
    """Return what ``pickle`` holds of an operator: `unpickled`, and its arguments."""
    return unpickled, described(operator)


def unpickled(description: str, arrays: Mapping[str, np.ndarray]) -> Operator:
    """Return the operator that ``pickle`` holds, validated as that of a file is."""
    read = _loaded(description, "the operator")
    kernel, work, threads, _ = _parsed(read, arrays, "the operator")
    operator = bind(kernel, work, min(threads, available_threads()))
    operator.saved_report = _report(read)
    return operator


def _report(description: Mapping[str, Any]) -> str:
    """Return the report in a description: text of others, so that no control character is taken."""
    given = str(description.get("report", ""))[:MAX_REPORT_CHARACTERS]
    return "".join(one for one in given if one.isprintable() or one == "\n")


def described(operator: Operator) -> tuple[str, dict[str, np.ndarray]]:
    """Return what an operator is: how it is run, as JSON, and the entries of its sparse operands."""
    arrays: dict[str, np.ndarray] = {}
    for name, entries in operator.workload.sparse.items():
        arrays[f"{name}.values"] = entries.values
        for mode, coordinates in enumerate(entries.coordinates):
            arrays[f"{name}.{mode}"] = np.ascontiguousarray(coordinates)
        if entries.numbers is not None:
            arrays[f"{name}.numbers"] = np.ascontiguousarray(entries.numbers)
    return json.dumps(_description(operator), sort_keys=True, allow_nan=False), arrays


def read_operator(
    path: str | os.PathLike[str], matrix: Any, check_machine: bool, rounding: bool = False
) -> tuple[Kernel, Workload, int, str]:
    """Read a file that ``save`` wrote and return kernel, workload, number of threads and the report; nothing is run.

    See `load`.

    Raises:
        InputError: the file is missing, damaged or no operator, or belongs to another machine or matrix.
    """
    description, arrays = _read_file(user_path(path))
    kernel, work, threads, wrote = _parsed(description, arrays, str(path))
    if check_machine and wrote["host_id"] != host().id:
        raise InputError(
            f"{path}: tuned on another machine ({wrote['host'][:80]}; this is {host().cpu}); tune again "
            "here, or load it anyway with check_machine=False (--any-machine)"
        )
    if matrix is not None:
        work = _with_matrix(work, matrix, str(path), rounding)
    return kernel, work, min(threads, available_threads()), _report(description)


def _parsed(
    description: Mapping[str, Any], arrays: Mapping[str, np.ndarray], where: str
) -> tuple[Kernel, Workload, int, dict[str, str]]:
    """Return kernel, workload, threads, and the machine that wrote them."""
    try:
        work = _workload(description, arrays)
        kernel = _kernel(description, work)
        threads = conform(description["threads"], int, "threads")
        wrote = {key: str(description["machine"][key]) for key in ("host_id", "host")}
        if not 1 <= threads <= MOST_THREADS:
            raise ValueError(f"{threads} threads")
    except (TensorwiseError, *WRONG_DATA) as error:
        if isinstance(error, MissingExtraError | CompilerError):
            raise
        raise InputError(f"{where}: no usable operator: {reason(error)}; save it again") from error
    return kernel, work, threads, wrote


def _description(operator: Operator) -> dict[str, Any]:
    work, program = operator.workload, operator.program
    if not isinstance(operator._kernel, GeneratedKernel | LibraryKernel):
        raise InputError(
            "only operators that run on a CPU can be saved, copied to other processes or pickled; keep the format and the "
            "schedule of this one (operator.result.best) and compile them again"
        )
    compiler = "none"
    with contextlib.suppress(CompilerError):
        compiler = find_compiler().id
    return {
        "schema": SCHEMA if work.renumbered else 1,
        "version": __version__,
        "op": work.op,
        "einsum": str(work.einsum),
        "sizes": {index: int(extent) for index, extent in work.sizes.items()},
        "sparse": {
            name: {
                "shape": [int(extent) for extent in entries.shape],
                "nnz": entries.nnz,
                "dtype": str(entries.dtype),
                "given": None
                if entries.given is None
                else LONG
                if entries.given.kind == "f"
                else entries.given.name,
                "pattern_id": entries.pattern_id,
            }
            for name, entries in work.sparse.items()
        },
        "dtypes": {name: dtype.name for name, dtype in work.dtypes.items()},
        "kernel": operator.kernel,
        "formats": program.format_texts if program else {},
        "schedule": operator.schedule,
        "threads": operator.threads,
        "report": operator.saved_report if operator.result is None else operator.result.text(),
        "machine": {"host": host().cpu, "host_id": host().id, "compiler_id": compiler},
    }


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return description and arrays of a file; raise InputError where its checksum is wrong."""
    from safetensors import safe_open

    if not path.is_file():
        what = "is no regular file" if path.exists() else "does not exist"
        raise InputError(f"{path}: {what}; expected an operator that Operator.save wrote")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            names = list(file.keys()) if KEY in metadata else []
            if any(file.get_slice(name).get_dtype() == "BF16" for name in names):
                value_dtype("bfloat16")  # which safetensors needs NumPy to know
            # What a header says of sizes was compared with the file's own by safe_open.
            arrays = {name: file.get_tensor(name) for name in names}
    except MissingExtraError:
        raise
    except Exception as error:  # safetensors' own, OSError, and TypeError for types that NumPy lacks
        raise InputError(f"{path}: cannot be read as an operator ({_short(error)})") from error
    if KEY not in metadata:
        raise InputError(f"{path}: a safetensors file, but no operator that Operator.save wrote")
    if metadata.get("checksum") != _checksum(metadata[KEY], arrays):
        raise InputError(f"{path}: damaged (its checksum is wrong); save the operator again")
    return _loaded(metadata[KEY], str(path)), arrays


def _loaded(text: str, where: str) -> dict[str, Any]:
    """Return a description of a layout that this version reads."""
    with reading(f"{where}: its description cannot be read", "save the operator again"):
        description: dict[str, Any] = parse_json(text, f"{where}: its description cannot be read")
        schema = description["schema"]
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        raise InputError(
            f"{where}: layout {str(schema)[:20]!r} is not known to this version, which reads up to {SCHEMA}; "
            "use a newer Tensorwise, or tune again"
        )
    return description


def _workload(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Workload:
    sparse: dict[str, Entries] = {}
    for name, facts in description["sparse"].items():
        shape = tuple(facts["shape"])
        coordinates = [arrays[f"{name}.{mode}"] for mode in range(len(shape))]
        entries = entries_from((shape, coordinates, arrays[f"{name}.values"]), facts["dtype"])
        if entries.pattern_id != facts["pattern_id"]:
            raise InputError(f"the entries of {name} are not those that were saved")
        numbers = arrays.get(f"{name}.numbers")
        sparse[name] = _numbered(_as_given(entries, facts.get("given")), numbers)
    dtypes = {name: value_dtype(dtype) for name, dtype in description.get("dtypes", {}).items()}
    work = einsum_workload(description["einsum"], sparse, description["sizes"], dtypes)
    if work.op != description["op"]:
        raise InputError(f"'{work.einsum}' is {work.op}, not {description['op']!r}")
    return work


def _kernel(description: Mapping[str, Any], work: Workload) -> Kernel:
    name = description["kernel"]
    if name in LIBRARY:
        return LIBRARY[name]()
    if name != GeneratedKernel.name:
        raise InputError(f"unknown kernel {name!r}; known: {', '.join([GeneratedKernel.name, *LIBRARY])}")
    program = program_for(work, dict(description["formats"]), str(description["schedule"]))
    check_work(program, work)
    return GeneratedKernel(program)


def _as_given(entries: Entries, given: str | None) -> Entries:
    """Return entries whose matrix was of another dtype, if it was."""
    if given is None:
        return entries
    if given == LONG:
        return replace(entries, given=np.dtype(np.longdouble))
    if given not in INTEGERS:
        raise InputError(f"{given!r} is no dtype that a matrix is kept for")
    low, high = (0, 1) if given == "bool" else (0, 2**64) if given.startswith("u") else (-(2**63), 2**63)
    values = entries.values
    if not ((values == np.trunc(values)) & (values >= low) & (values <= high)).all():
        raise InputError(f"values are not of {given}")
    return replace(entries, given=np.dtype(given))


def _numbered(entries: Entries, numbers: np.ndarray | None) -> Entries:
    """Return entries with numbers of their own, if they have some."""
    if numbers is None:
        return entries
    given = checked_integers(numbers, "numbers")
    if not np.array_equal(np.sort(given), np.arange(entries.nnz)):
        raise InputError(f"numbers of {entries.nnz} entries are no permutation of them")
    return replace(entries, numbers=given.astype(coordinate_dtype((entries.nnz, 1))))


def _with_matrix(work: Workload, matrix: Any, path: str, rounding: bool) -> Workload:
    if len(work.sparse) != 1:
        raise InputError(
            f"{path}: the operator has {len(work.sparse)} sparse operands; load it without a matrix"
        )
    ((name, stored),) = work.sparse.items()
    given = entries_from(matrix, stored.dtype) if rounding else entries_from(matrix)
    if not rounding and not np.can_cast(given.dtype, stored.dtype):
        raise InputError(
            f"{path}: computes in {stored.dtype}, which would round the {given.dtype} values of the matrix given; allow it "
            f"with rounding=True, or tune the matrix in {given.dtype}"
        )
    if given.dtype != stored.dtype:
        given = given.astype(stored.dtype)
    if given.pattern_id != stored.pattern_id:
        raise InputError(
            f"{path}: tuned for another matrix ({stored!r} there, {given!r} given); tune this one, or load "
            "without a matrix for the stored one"
        )
    return replace(work, sparse={name: replace(given, numbers=stored.numbers)})


def _checksum(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    parts: list[str | np.ndarray] = [text]
    for name in sorted(arrays):
        parts += [name, arrays[name]]
    return content_id(parts)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
