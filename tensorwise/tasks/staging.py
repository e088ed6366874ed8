"""Schedules of tasks compiled for a GPU that need not be here: TVM writes CUDA C++, NVRTC makes machine code of it."""

import ast
import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np

from tensorwise.analysis.machine_code import MachineCode
from tensorwise.analysis.tvmscript import constant
from tensorwise.errors import CompilerError, InputError, TensorwiseError
from tensorwise.reading import reading, reason
from tensorwise.space.config import Config
from tensorwise.space.cuda import GpuSpec
from tensorwise.tasks.cutting import Found
from tensorwise.tasks.schedules import Schedules
from tensorwise.tasks.staged import StagedLaunch, StagedProgram, StagedTask
from tensorwise.tasks.targets import gpu_target
from tensorwise.tasks.task import Task, loop_tree, operands
from tensorwise.tasks.tvm_extra import tvm
from tensorwise.toolchain.cubin import resources
from tensorwise.toolchain.gpu import assembled, check_cupy
from tensorwise.toolchain.threads import available_threads

_BEGIN: Final = re.compile(r'^(__forceinline__ |__device__ |static |extern "C")', re.MULTILINE)
"""Where TVM's text has its own headers behind it, which NVRTC has not: some names of theirs are all it uses."""
_PRELUDE: Final = """\
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
typedef unsigned int uint;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
"""
_REFUSED: Final = (CompilerError, InputError, RuntimeError, ValueError, TypeError)
"""Errors of programs that cannot be compiled; the last three are TVM's."""
Refused = Callable[[Sequence[str]], object]
_TAGS: Final = ("blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y")
"""What a launch can be given; with more dimensions, or memory that it asks for, a program is left out."""


def staged(
    task: Task, networks: Sequence[str], gpu: GpuSpec, samples: int, rng: np.random.Generator
) -> tuple[StagedTask, tuple[str, ...]]:
    """Draw up to ``samples`` schedules of a task for a GPU and compile them; return the programs, and reasons for failures.

    Programs that cannot be compiled, or need more resources than a launch may have, are left out.

    Raises:
        MissingExtraError: CuPy, which brings NVRTC, is not installed.
    """
    programs, refused = [], []
    for config, module in Schedules(task, gpu).sample(samples, rng):
        try:
            programs.append(_program(config, module, gpu))
        except _REFUSED as error:
            refused.append(reason(error))
    if not programs and not refused:
        refused.append("TVM draws no schedule of a task")
    return StagedTask(
        Task(task.name, task.id, "", task.facts), tuple(networks), gpu.name, gpu.arch, tuple(operands(task.module)),
        str(tvm.__version__), tuple(programs),
    ), tuple(refused)  # fmt: skip


def stage(
    found: Found, into: Path, gpu: GpuSpec, samples: int, seed: int, refused: Refused = lambda *_: None
) -> int:
    """Write a task's programs into a folder, unless they are there; return how many there are.

    If none could be compiled, nothing is written, and the next call tries again.

    Args:
        found: the task's file; into: the folder.
        gpu, samples: see `staged`; seed: of what is drawn.
        refused: called with the reason, for each program that could not be compiled.

    Raises:
        InputError: the task cannot be read.
        MissingExtraError: CuPy is not installed.
    """
    target = into / f"{found.path.stem}-{gpu.name}-{samples}-{seed}.json"
    if target.exists() and (kept := len(StagedTask.load(target).programs)):
        return kept
    task = Task.load(found.path)
    rng = np.random.default_rng([int(task.id, 16), seed])
    made, reasons = staged(task, found.networks, gpu, samples, rng)
    if made.programs:
        made.save(target)
    else:
        target.unlink(missing_ok=True)  # an earlier release kept it as an answer
    if reasons:
        refused(reasons)
    return len(made.programs)


def stage_all(
    tasks: Iterable[Found],
    into: Path,
    gpu: GpuSpec,
    samples: int,
    seed: int,
    refused: Refused = lambda *_: None,
) -> Iterator[int]:
    """Write the programs of tasks into a folder, on all processors; yield how many each has, as they get ready.

    It can be interrupted and resumed: programs in the folder stay, and are not written again.

    Args: as of `stage`.

    Raises:
        InputError: a task cannot be read.
        CompilerError: a process that compiled is gone.
        MissingExtraError: CuPy is not installed.
    """
    check_cupy("compiling for a GPU")
    # TVM must not be forked, and draws schedules under Python's lock.
    pool = ProcessPoolExecutor(available_threads(), get_context("spawn"))
    try:
        for future in as_completed([pool.submit(_stage, one, into, gpu, samples, seed) for one in tasks]):
            found = future.result()
            if isinstance(found, str):
                raise InputError(found)
            count, reasons = found
            if reasons:
                refused(reasons)
            yield count
    except BrokenProcessPool as error:
        raise CompilerError("a compiling process ended unexpectedly; repeat the command to resume") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _stage(task: Found, into: Path, gpu: GpuSpec, samples: int, seed: int) -> tuple[int, list[str]] | str:
    """`stage`, with the reasons, or what is wrong: errors do not travel between processes."""
    reasons: list[str] = []
    try:
        return stage(task, into, gpu, samples, seed, reasons.extend), reasons
    except (TensorwiseError, OSError) as error:
        return f"{task.path}: {error}"


def codes_on(modules: Sequence[Any], gpu: GpuSpec) -> list[MachineCode | None]:
    """Return what NVRTC makes of scheduled modules for a GPU, which need not be here.

    Of what cannot be compiled, or takes more than launches here have, it is None.

    Raises:
        MissingExtraError: CuPy, which brings NVRTC, is not installed.
    """
    found: list[MachineCode | None] = []
    for module in modules:
        found.append(None)
        with contextlib.suppress(*_REFUSED):
            found[-1] = _program(Config({}), module, gpu).counted
    return found


def _program(config: Config, module: Any, gpu: GpuSpec) -> StagedProgram:
    from tvm.tirx.build import split_host_device_mods

    tree, target = loop_tree(module).text, gpu_target(gpu)
    passes, _, on_device = tvm.tirx.get_default_tir_pipeline(target)
    host, others = split_host_device_mods(passes(tvm.tirx.transform.BindTarget(target)(module)))
    if len(others) != 1:
        raise InputError("a part of the program runs on the CPU")
    (kernels,) = others.values()
    text = tvm.get_global_func("target.build.cuda")(on_device()(kernels), target).inspect_source()
    begin = _BEGIN.search(text)
    if begin is None:
        raise InputError("TVM generated source code without a kernel")
    names = [one.name for one in module["main"].params]
    launches, scratch = read_launches(host.script(show_meta=False), names)
    code, ptx = assembled(_PRELUDE + text[begin.start() :], gpu.arch, "c++17")
    counted = MachineCode.on_gpu(ptx, launches, *resources(code), gpu.multiprocessors)
    return StagedProgram(config, tree, launches, scratch, code, counted)


def read_launches(text: str, names: Sequence[str]) -> tuple[tuple[StagedLaunch, ...], tuple[int, ...]]:
    """Return the launches of a host function, as TVM prints it, and the bytes of what it allocates between them.

    Args:
        names: of the operands, in order.

    Raises:
        InputError: something else happens in it than launches, one after the other.
    """
    with reading("the host function is not understood"):
        return _read_launches(text, names)


def _read_launches(text: str, names: Sequence[str]) -> tuple[tuple[StagedLaunch, ...], tuple[int, ...]]:
    places = {name: place for place, name in enumerate(names)}
    launches: list[StagedLaunch] = []
    scratch: list[int] = []
    begin = text.find('"compute_scope"')
    if begin < 0:
        raise InputError("the host function launches no kernel")
    for line in text[begin:].splitlines()[1:]:
        statement = line.strip()
        if not statement or statement.startswith(("#", "return", "with ")):
            continue
        match _parsed(statement):
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(attr="alloc_buffer")) as call
            ):
                places[name] = len(names) + len(scratch)
                scratch.append(_bytes(call))
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(attr="decl_buffer")) as call
            ):
                given = next((one.value for one in call.keywords if one.arg == "data"), None)
                places[name] = places[_owner(given)]
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=other), attr="view")),
            ):
                places[name] = places[other]
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="call_ffi_kernel")) as call):
                launches.append(_launch(call, places))
            case _:
                raise InputError(f"a part of the program runs on the CPU: {statement[:80]}")
    if not launches:
        raise InputError("the host function launches no kernel")
    return tuple(launches), tuple(scratch)


def _parsed(statement: str) -> ast.stmt:
    try:
        return ast.parse(statement).body[0]
    except (SyntaxError, IndexError) as error:
        raise InputError(f"unsupported statement: {statement[:80]}") from error


def _launch(call: ast.Call, places: dict[str, int]) -> StagedLaunch:
    tags = next(ast.literal_eval(one.value) for one in call.keywords if one.arg == "launch_params")
    if not set(tags) <= set(_TAGS):
        raise InputError(f"unsupported launch parameters: {', '.join(tags)}")
    given = call.args[1:]
    extents = dict(zip(tags, map(constant, given[len(given) - len(tags) :]), strict=True))
    sizes = [extents.get(tag, 1) for tag in _TAGS]
    arguments = tuple(places[_owner(one)] for one in given[: len(given) - len(tags)])
    return StagedLaunch(
        str(ast.literal_eval(call.args[0])), (sizes[0], sizes[1]), (sizes[2], sizes[3]), arguments
    )


def _owner(expr: ast.expr | None) -> str:
    """The buffer of ``buffer.data``."""
    match expr:
        case ast.Attribute(value=ast.Name(id=name), attr="data"):
            return name
    raise InputError(f"not a buffer: {ast.unparse(expr)[:80] if expr else ''}")


def _bytes(call: ast.Call) -> int:
    (shape, *rest) = call.args
    given = [*rest, *(one.value for one in call.keywords if one.arg == "dtype")]
    elem = next((str(one.value) for one in given if isinstance(one, ast.Constant)), "float32")
    extents = shape.elts if isinstance(shape, ast.Tuple) else [shape]
    return math.prod(map(constant, extents)) * np.dtype(elem).itemsize
