"""The Python door: ``tensorwise.tune`` and ``tensorwise.compile``."""

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from tensorwise.device.device import Device
from tensorwise.errors import InputError
from tensorwise.lower.program import program_for
from tensorwise.model import CostModel
from tensorwise.program.einsum import Assignment, Einsum
from tensorwise.program.schedule import Schedule
from tensorwise.program.workload import Workload, add_extents, einsum_workload
from tensorwise.runtime.generated import GeneratedKernel
from tensorwise.runtime.work import check_work
from tensorwise.store.store import Store
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import is_half, value_dtype
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.format import Format, csf, csr
from tensorwise.toolchain.threads import granted_threads
from tensorwise.tuning.limits import Observe, Progress
from tensorwise.tuning.operator import Operator, bind, default_kernel
from tensorwise.tuning.tune import tune as _tune


def tune(
    A: Any,
    op: str,
    *,
    operands: Mapping[str, Any] | None = None,
    n: int | None = None,
    mode: int = 0,
    budget_s: float | None = None,
    trials: int | None = None,
    expected_calls: float | None = None,
    threads: int | None = None,
    device: str | Device[Workload] = "cpu",
    strategy: str = "genetic",
    model: CostModel | str | os.PathLike[str] | None = "shipped",
    dtype: Any = None,
    store: Store | bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    observe: Observe | None = None,
    report: str | os.PathLike[str] | None = None,
    calls: float | None = None,
) -> Operator:
    """Find the fastest way to run ``op`` on the sparse operand ``A``.

    Args:
        A: SciPy sparse array or matrix, NumPy array, torch sparse tensor, path of a .mtx, .tns, .npz or .h5
            file, or ``Entries``.
        op: ``spmv``, ``spmm``, ``spmv_t``, ``spmm_t`` (A transposed), ``sddmm``, ``mttkrp``, ``ttv``, ``ttm``, or the text
            of an einsum whose sparse operand is called A, such as ``C[i,j] += A[i,k] * B[k,j] * D[i]``.
        operands: the other operands by name, as `compile` takes them: dense arrays or shapes, which tell the extents of
            indices that A lacks, and arrays their dtypes; values are those of a call. A second sparse one is refused.
        n: extent of the indices that neither A nor ``operands`` tell (columns of B, inner dimension of SDDMM, rank).
        mode: output mode of MTTKRP.
        budget_s: wall seconds for all of it (default 30, on a GPU 60, unlimited when ``trials`` is given).
        trials: most candidates to try.
        expected_calls: number of calls that you expect. Costs that occur once, such as conversion, are weighed against what
            these calls save, and the search ends when no candidate is worth measuring; for few calls there is no search.
            If ``trials`` is given, so many candidates are tried in any case.
        threads: threads of a call (default: what this process may use); no more than there are processors.
        device: where it is to run: ``cpu``, ``cuda``, a simulated accelerator (``spade``, ``spade-small``), the name of a
            device that another package brings, or a `Device`, which stays open. Operators of a GPU take and return NumPy
            arrays, those of simulated accelerators return what the simulated program computes.
        strategy: a name of ``tensorwise.search.STRATEGIES``.
        model: the cost model that names candidates: ``shipped``, the one calibrated on this machine or else the bundled
            one; ``none`` or None; a `CostModel`, or the folder of one (see ``tensorwise train``).
        dtype: float32, float64, float16 or bfloat16, for all operands; default A's own. A dict names the dtype of
            some: ``{"A": "bfloat16", "B": "float32"}``; dense ones are otherwise as A. Halves are accumulated in
            float32, and so is the result unless all operands are of the same half type.
        store: where measurements are remembered: a Store, True for the default one, False for nowhere.
        seed: of operands and search.
        progress: called with what is going on and the share of the budget spent.
        observe: called with each candidate that was tried.
        report: path of an HTML page to write about what was found.
        calls: deprecated name of ``expected_calls``.

    Returns:
        The operator; ``operator.result`` holds the numbers, ``operator.report()`` shows them. After
        Ctrl-C it is the best found so far.

    Raises:
        InputError: the operand, the operation or an argument is not usable, or the report cannot be
            written.
    """
    if calls is not None:
        warnings.warn("the argument calls is now called expected_calls", DeprecationWarning, stacklevel=2)
        expected_calls = calls if expected_calls is None else expected_calls
    if report is not None:
        from tensorwise.front.reporting import check_writable

        check_writable(report)  # before the work is done
    operator = _tune(
        A, op, operands=operands, n=n, mode=mode, budget_s=budget_s, trials=trials, expected_calls=expected_calls,
        threads=threads, device=device, strategy=strategy, model=model, dtype=dtype, store=store, seed=seed,
        progress=progress, observe=observe,
    )  # fmt: skip
    if report is not None:
        from tensorwise.front.reporting import report_of

        name = os.path.basename(os.fspath(A)) if isinstance(A, str | os.PathLike) else "the matrix as given"
        report_of(operator, name).save(report)
    return operator


def compile(
    einsum: str | None = None,
    /,
    *,
    schedule: str | None = None,
    format: Format | str | None = None,
    formats: Mapping[str, Format | str] | None = None,
    sizes: Mapping[str, int] | None = None,
    threads: int | None = None,
    dtype: Any = None,
    operands: Mapping[str, Any] | None = None,
    **named: Any,
) -> "Operator | Cascade":
    """Compile an einsum by hand.

    Args:
        einsum: such as ``C[i,j] += A[i,k] * B[k,j]``. Several assignments, separated by semicolons,
            give a `Cascade`; each needs a sparse operand, and what goes from one to the next is dense.
        schedule: such as ``parallel(i,dynamic,64) tile(j,4x8)``; left out together with formats, the
            default program is used; left out with a format, plain loops on one thread.
        format: storage of the first sparse operand, such as ``(i,k) -> U(i) C(k)``, or a hybrid such as
            ``(i,k) -> U(i) C(k); rows>64: (i,k) -> C(i) C(k)`` (then the schedule has two parts as well); formats: by name
            for several. A sparse operand without one is stored as CSR, or CSF from order 3.
        sizes: extents of indices that no operand tells.
        threads: threads of a call (default: what this process may use); no more than there are processors.
        dtype: float32, float64, float16 or bfloat16, for all operands; default that of the sparse operand. A dict
            names the dtype of some; dense ones are otherwise as the first sparse one.
        operands: the same as ``named``, for operands that are called like an argument: ``operands={"sizes": matrix}``.
        named: at least one sparse operand by name: SciPy sparse, torch sparse, ``Entries``, the path of a
            file, ``(shape, coordinates, values)``, or a NumPy array that a format is given for. Dense
            operands may be given as arrays or shapes, which tell sizes only; values are those of a call.

    Returns:
        An operator: call it with the dense operands in the einsum's order. ``print(operator.program)``
        shows its loops, ``operator.source()`` its C.

    Raises:
        InputError, FormatError, ScheduleError: something does not parse or fit; the message says where.
        CompilerError: no C compiler works here.

    >>> import scipy.sparse as sp
    >>> eye = sp.eye_array(3, format="csr")
    >>> double = compile("y[i] += A[i,k] * x[k]", A=2 * eye, schedule="parallel(i,dynamic,64)")
    >>> double(np.array([1.0, 2.0, 3.0]))
    array([2., 4., 6.])
    """
    if einsum is None and isinstance(named.get("einsum"), str):
        einsum = named.pop("einsum")
    if not isinstance(einsum, str):
        raise InputError(
            f"compile takes an einsum first, such as 'C[i] += A[i,k] * B[k]', got {type(einsum).__name__}"
        )
    parsed = Einsum.parse(einsum)
    arguments = {
        "schedule": (schedule, str | Schedule), "format": (format, Format | str), "formats": (formats, Mapping),
        "sizes": (sizes, Mapping), "threads": (threads, int | np.integer), "dtype": (dtype, str | type | np.dtype | Mapping),
        "operands": (operands, Mapping),
    }  # fmt: skip
    for name, (argument, kinds) in arguments.items():
        _check_argument(parsed, name, argument, kinds)
    named = merge_operands(named, operands)
    unknown = [name for name in named if name not in parsed.operands]
    if unknown:
        raise InputError(f"'{parsed}' has no operand {unknown[0]!r}; it has {', '.join(parsed.operands)}")
    indices = {index for assignment in parsed.assignments for index in assignment.indices}
    strange = [index for index in sizes or {} if index not in indices]
    if strange:
        raise InputError(f"'{parsed}' has no index {strange[0]!r}; it has {', '.join(sorted(indices))}")
    given = dict(dtype) if isinstance(dtype, Mapping) else dict.fromkeys(parsed.operands, dtype)
    strange = [name for name in given if name not in parsed.operands]
    if strange:
        raise InputError(f"a dtype is given for {strange[0]!r}; '{parsed}' has {', '.join(parsed.operands)}")
    dtypes = {name: value_dtype(kind) for name, kind in given.items() if kind is not None}
    stored, known = _sort_operands(parsed, named, format, dict(formats or {}), dtypes, dict(sizes or {}))
    chosen = dict(formats or {})
    if format is not None:
        if next(iter(stored)) in chosen:
            raise InputError(f"the format of {next(iter(stored))} is given twice, in format and in formats")
        chosen[next(iter(stored))] = format
    homeless = [name for name in chosen if name not in stored]
    if homeless:
        raise InputError(
            f"a format is given for {homeless[0]!r}, but the sparse operands are {', '.join(stored)}"
        )
    count = granted_threads(threads)
    steps: list[Operator] = []
    rounded = dict(dtypes)  # what each result would be by the operands' dtypes: what the last one is
    for assignment in parsed.assignments:
        output = assignment.output.tensor
        work = _work(assignment, stored, known, rounded)
        natural = work.output_dtype
        last = assignment is parsed.assignments[-1]
        kept = np.dtype(np.float32) if is_half(natural) and not last else natural
        if rounded != dtypes:
            work = _work(assignment, stored, known, dtypes)
        if kept != work.output_dtype:
            dtypes[output] = kept
            work = _work(assignment, stored, known, dtypes)
        rounded[output] = natural
        steps.append(_step(work, chosen, schedule, count))
        if not last and steps[-1].workload.keeps_pattern:
            raise InputError(
                f"'{assignment}' has a value for each entry of {assignment.operands[0]}, but later steps of a cascade read "
                f"{output} as a dense array; write its expression into the later step instead"
            )
        dtypes[output] = kept  # what a later step reads
    return steps[0] if len(steps) == 1 else Cascade(parsed, steps)


def _check_argument(einsum: Einsum, name: str, argument: Any, kinds: Any) -> None:
    """Raise InputError unless an argument of ``compile`` is None or of these kinds; it may have been meant as an operand."""
    strange = argument is not None and not isinstance(argument, kinds)
    if name in ("formats", "sizes", "dtype") and isinstance(argument, Mapping):
        strange = not all(isinstance(key, str) for key in argument)
    if not strange:
        return
    expected = {"threads": "a positive integer", "dtype": "a dtype, or a mapping of names to dtypes"}.get(
        name,
        "a text"
        if name == "schedule"
        else "a format"
        if name == "format"
        else "a mapping with names as keys",
    )
    told = f"the argument {name} of compile is {expected}, got {type(argument).__name__}"
    if name in einsum.operands:
        told += f"; the operand {name} of '{einsum}' is given in operands={{{name!r}: ...}}"
    raise InputError(told)


@final
class Cascade:
    """Several operators that run one after the other; their dense results go from one to the next, halves as float32.

    Attributes:
        einsum: the assignments.
        steps: one operator each.
    """

    def __init__(self, einsum: Einsum, steps: Sequence[Operator]) -> None:
        self.einsum, self.steps = einsum, tuple(steps)
        sparse = {name for step in steps for name in step.workload.sparse}
        self.dense = tuple(name for name in einsum.operands if name not in sparse)
        """Names of the operands of a call, in order."""

    def __call__(self, *operands: np.ndarray) -> Any:
        """Run all steps on the dense operands (in the order of ``dense``); return the last result."""
        if len(operands) != len(self.dense):
            raise InputError(
                f"'{self.einsum}' takes {len(self.dense)} operands ({', '.join(self.dense)}), "
                f"got {len(operands)}"
            )
        values: dict[str, Any] = dict(zip(self.dense, operands, strict=True))
        result: Any = None
        for step in self.steps:
            result = step(*(values[name] for name in step.workload.dense))
            values[step.workload.assignment.output.tensor] = result
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return _cascade, (str(self.einsum), self.steps)

    def __copy__(self) -> "Cascade":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Cascade":
        return self

    def source(self) -> str:
        """Return the C texts of all steps."""
        return "\n".join(step.source() for step in self.steps)

    def __repr__(self) -> str:
        return f"<Cascade {self.einsum}>"


def _cascade(einsum: str, steps: Sequence[Operator]) -> Cascade:
    """Return the cascade that ``pickle`` holds."""
    return Cascade(Einsum.parse(einsum), steps)


def merge_operands(named: Mapping[str, Any], operands: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the operands that are given by name and in ``operands``; raise InputError for one that is given twice."""
    twice = [name for name in operands or {} if name in named]
    if twice:
        raise InputError(f"operand {twice[0]} is given twice, by name and in operands")
    return {**named, **(operands or {})}


def _sort_operands(
    einsum: Einsum,
    operands: Mapping[str, Any],
    format: Format | str | None,
    formats: Mapping[str, Format | str],
    dtypes: Mapping[str, np.dtype],
    sizes: dict[str, int],
) -> tuple[dict[str, Entries], dict[str, int]]:
    """Tell stored operands from dense ones; return those, and the sizes that dense ones add."""
    stored: dict[str, Entries] = {}
    dense: dict[str, tuple[int, ...]] = {}
    for name, chosen in formats.items():
        if not isinstance(chosen, Format | str):
            raise InputError(
                f"the format of {name} is a Format or its text, such as '(i,k) -> U(i) C(k)', got {chosen!r}"
            )
    for name in einsum.operands:
        if name not in operands:
            continue
        given = operands[name]
        if isinstance(given, tuple) and all(isinstance(extent, int) for extent in given):
            dense[name] = given
        elif isinstance(given, np.ndarray) and name not in formats:
            dense[name] = given.shape
        else:
            stored[name] = entries_from(given, dtypes.get(name))
    if not stored and format is not None:  # the format says that an array is meant to be stored
        first = next((name for name in dense if isinstance(operands[name], np.ndarray)), None)
        if first is not None:
            stored[first] = entries_from(operands[first], dtypes.get(first))
            del dense[first]
    if not stored:
        raise InputError(
            f"'{einsum}' was given no sparse operand; give one by name, such as {einsum.operands[0]}=matrix "
            "(a NumPy array also needs its format)"
        )
    accesses = {access.tensor: access for a in einsum.assignments for access in a.accesses}
    for name, shape in dense.items():
        add_extents(sizes, accesses[name], shape)
    return stored, sizes


def _work(
    assignment: Assignment,
    stored: Mapping[str, Entries],
    sizes: Mapping[str, int],
    dtypes: Mapping[str, np.dtype],
) -> Workload:
    sparse = {name: stored[name] for name in assignment.operands if name in stored}
    if not sparse:
        raise InputError(
            f"'{assignment}' has no sparse operand; compute this step with NumPy between two operators"
        )
    extents = {index: size for index, size in sizes.items() if index in assignment.indices}
    named = (*assignment.operands, assignment.output.tensor)
    kinds = {name: dtypes[name] for name in named if name in dtypes and name not in sparse}
    return einsum_workload(Einsum((assignment,)), sparse, extents, kinds)


def _step(
    work: Workload, formats: Mapping[str, Format | str], schedule: str | None, threads: int
) -> Operator:
    sparse = work.sparse
    if schedule is None and not any(name in formats for name in sparse) and len(sparse) == 1:
        return bind(default_kernel(work), work, threads)
    chosen = {name: formats.get(name, csr() if e.order == 2 else csf(e.order)) for name, e in sparse.items()}
    if schedule is None and not any(name in formats for name in sparse):
        schedule = f"reorder({','.join(_order(work.assignment, list(sparse)))})"
    program = program_for(work, chosen, schedule or "")
    check_work(program, work)
    return bind(GeneratedKernel(program), work, threads)


def _order(assignment: Assignment, sparse: Sequence[str]) -> list[str]:
    """Return the indices in the order in which operands store them, as far as these agree; dense ones last."""
    waiting = [list(assignment.access(name).indices) for name in sparse]
    order: list[str] = []
    while any(waiting):
        heads = [indices[0] for indices in waiting if indices]
        free = [i for i in heads if not any(i in indices[1:] for indices in waiting)]
        order.append((free or heads)[0])
        waiting = [[i for i in indices if i != order[-1]] for indices in waiting]
    return [*order, *(index for index in assignment.indices if index not in order)]
