"""This CPU as a device for TVM's programs, given by an instruction set and a number of threads.

Programs are compiled here and run in a forked process, so that one that crashes or hangs loses only its result. Before
each timed run, operands but the first are evicted from the caches, as in TVM's own measurements: in a network, the weights
were last used in the previous pass, but the activations just before. On a shared machine, other processes slow down most
runs by varying amounts, so the fastest run is used, and runs are repeated until the fastest ones agree. While another
virtual machine uses the same cores, all runs are equally slow; such periods are waited out.
"""

import contextlib
import json
import mmap
import os
import re
import select
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from tensorwise.analysis.llvm import marked
from tensorwise.analysis.machine_code import MachineCode
from tensorwise.device.device import Candidate, Device, Measurement, Status
from tensorwise.device.fastest import BOUT, agreed, fastest
from tensorwise.device.hardware import Hardware, this_cpu
from tensorwise.device.host import cpu_time, foreign_load, host
from tensorwise.device.roofline import share_of_peak
from tensorwise.device.timing import measuring_slot
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.space.config import Config
from tensorwise.tasks.targets import ISAS, cpu_target
from tensorwise.tasks.task import Task, agreeing, drawn, operands
from tensorwise.toolchain.processor import describe_processor
from tensorwise.toolchain.threads import available_threads, most_threads

_NEEDED: Final = {"sse": "sse2", "avx2": "avx2", "avx512": "avx512bw"}
_WIDTHS: Final = {"sse": 16, "avx2": 32, "avx512": 64}
"""Bytes of a vector."""
MAX_CPU_THREADS: Final = 1024
"""More threads than a machine has processors."""
_SETTING: Final = re.compile(rf"tvm-({'|'.join(ISAS)})-([1-9][0-9]{{0,3}})t")
_FULL: Final = re.compile(rf"{_SETTING.pattern}-(\w+)")
COLD, WARM = "weights-cold-5", "warm-5"
"""How is measured; part of a device's id."""
MAX_ROUNDS: Final = 24
"""The programs of a batch take turns, at most so often, BOUT times in a process that is forked, until rounds agree."""
RUNS_S: Final = 0.3
"""One that has run for so long after a bout runs no more: a collection would spend its time on the slowest."""
OWN_CORE_SHARE: Final = 0.75
"""Of a core that is shared with a neighbour a program has a half, where nobody is there nearly all."""
PATIENCE_S, NAP_S = 10.0, 0.05
"""How long a batch waits at most, in all, for processors of its own, and how long until it looks again."""
ROUND_S, MOST = 0.02, 10
"""In a round a program runs until it and emptying the caches have taken so long, and at most so often."""
FLUSH: Final = "cache_flush_cpu_non_first_arg"
"""What TVM calls the function that throws all operands but the first out of the caches."""
BATCH_S: Final = 1e-3
"""Warm programs are called so long for one reading of the clock."""


@final
class TvmCpu(Device[Task]):
    """This CPU, restricted to an instruction set and a number of threads.

    Args:
        isa: a name of ISAS; threads: of a call.
        limit_s: seconds after which a program that runs, or is compiled, for the first time is given up.
        cold: whether operands but the first leave the caches before each run; else all of them stay where the last run
            left them.

    Raises:
        InputError: the processor lacks the instruction set, or it is unknown; or there are more than MAX_CPU_THREADS.
    """

    def __init__(self, isa: str, threads: int, limit_s: float = 20.0, *, cold: bool = True) -> None:
        from tensorwise.tasks.tvm_extra import tvm

        if isa not in ISAS or threads < 1:
            raise InputError(
                f"expected an instruction set ({', '.join(ISAS)}) and at least one thread, got {isa!r} and {threads}"
            )
        _check_isa(isa)
        _check_threads(threads)
        self.isa, self.threads, self.limit_s, self.cold = isa, threads, limit_s, cold
        protocol = COLD if cold else WARM
        self.name = full_name(f"tvm-{isa}-{threads}t")
        self.id = content_id(["tvm", tvm.__version__, host().id, isa, str(threads), protocol])
        self._provenance = {
            **host().facts, "isa": isa, "threads": threads, "cache": protocol, "tvm": tvm.__version__,
        }  # fmt: skip

    @cached_property
    def provenance(self) -> Mapping[str, object]:
        """What a Record says about the device besides the times."""
        return self._provenance

    @cached_property
    def hardware(self) -> Hardware:
        """The device's description for models; measured at the first use on a machine."""
        return this_cpu(self.name, self.threads, _WIDTHS[self.isa])

    def share(self) -> float:
        """Return the share of their best rate that the device's processors reach now: a half where they are shared."""
        return share_of_peak(self.threads)

    def measure(
        self,
        workload: Task,
        candidates: Sequence[Candidate],
        *,
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        """Yield a measurement for each config; see :class:`Device`. There are no libraries."""
        configs = [one for one in candidates if isinstance(one, Config)]
        from tensorwise.tasks.schedules import Schedules

        schedules = Schedules(workload)
        modules = []
        for config in configs:
            with contextlib.suppress(InputError):
                modules.append((config, schedules.module(config)))
        known = dict(
            zip((config for config, _ in modules), self.time(self.build([m for _, m in modules]), workload))
        )
        for config in configs:
            yield known.get(config, Measurement.failed("refused", "TVM refuses this schedule"))

    def build(self, modules: Sequence[Any]) -> list[Any]:
        """Compile scheduled modules; what TVM refuses to compile is None. Any number of threads can run them.

        All processors are used, and none is when this returns: nothing may compile while something is timed.
        """
        # LLVM runs without Python's lock.
        with ThreadPoolExecutor(available_threads()) as pool:
            return list(pool.map(lambda module: _compiled(module, self.isa, ready=True), modules))

    def time(self, built: Sequence[Any], task: Task) -> list[Measurement]:
        """Run what ``build`` returned; the results of the first that runs are those that others must give."""
        from tensorwise.tasks.tvm_extra import tvm

        rng = np.random.default_rng(0)
        with measuring_slot() as slot:
            arrays = [drawn(shape, elem, rng) for shape, elem in operands(task.module)]
            kept = mmap.mmap(-1, arrays[-1].nbytes + 1)  # shared with the processes that are forked
            # here: each process would take long to copy them
            given = [tvm.runtime.tensor(array) for array in arrays]
            before = cpu_time()
            found = list(
                in_children(
                    lambda place: [_checked(built[place], given, self.threads, kept)],
                    [one is not None for one in built],
                    self.limit_s,
                )
            )

            def timed(place: int) -> list[float]:
                return _timed(built[place], given, self.threads, found[place].seconds, self.cold)

            found = in_turns(found, timed, self.limit_s, share=self.share)
            load = foreign_load(before)
        note = (
            "" if load < 0.1 and slot.exclusive else f"others used {load:.0%} of the processors; {slot.note}"
        )
        return [_noted(one, note) for one in found]


def _compiled(module: Any, isa: str, *, ready: bool = False) -> Any:
    """A scheduled module, compiled, and ``ready`` to run here; None where TVM refuses."""
    from tensorwise.tasks.tvm_extra import tvm

    try:
        found = tvm.compile(module, target=cpu_target(isa))
        if ready:
            found["main"]  # its machine code is made when it is first asked for: not while it is timed
        return found
    except (RuntimeError, ValueError, TypeError):  # TVM's errors are of these kinds
        return None


def codes_of(modules: Sequence[Any], isa: str) -> list[MachineCode | None]:
    """Return what LLVM makes of scheduled modules with an instruction set, which this machine need not have.

    What TVM refuses to compile is None.
    """

    def code(module: Any) -> MachineCode | None:
        built = _compiled(module, isa)
        return None if built is None else code_of(built)

    with ThreadPoolExecutor(available_threads()) as pool:
        return list(pool.map(code, modules))


def code_of(built: Any) -> MachineCode:
    """Return what LLVM made of a module that is compiled."""
    from tensorwise.tasks.tvm_extra import tvm

    ir = built.mod.inspect_source("ll")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "marked.ll"
        path.write_text(marked(ir))
        assembly = tvm.runtime.load_module(str(path)).inspect_source("asm")
    return MachineCode.of(ir, assembly)


def isa_of(hardware: Hardware) -> str | None:
    """Return the instruction set with vectors as wide as a CPU's, a name of ISAS; None for a GPU, or where none is."""
    fitting = (isa for isa, width in _WIDTHS.items() if width == hardware.vector_bytes)
    return next(fitting, None) if hardware.kind == "cpu" else None


def full_name(name: str) -> str:
    """Return what a device is called in records and models: a setting of this CPU, ``tvm-avx2-1t``, by this machine, too.

    Other names stay as they are.
    """
    return f"{name}-{host().id[:4]}" if _SETTING.fullmatch(name) else name


def machine_of(name: str) -> str:
    """Return the machine that a device is a setting of, ``84cc`` of ``tvm-avx2-1t-84cc``; others are their own."""
    found = _FULL.fullmatch(name)
    return found[3] if found else name


def hardware_here(name: str) -> Hardware | None:
    """Return what a setting of this CPU is made of, by its full name; None where it is none. TVM is not needed.

    Raises:
        InputError: the processor lacks the instruction set, or there are more than MAX_CPU_THREADS.
    """
    found = _FULL.fullmatch(name)
    if found is None or found[3] != host().id[:4]:
        return None
    isa, threads, _ = found.groups()
    _check_isa(isa)
    _check_threads(int(threads))
    return this_cpu(name, int(threads), _WIDTHS[isa])


def _check_isa(isa: str) -> None:
    if _NEEDED[isa] not in describe_processor()[1]:
        raise InputError(f"this processor lacks the instruction set {isa}; choose another --isa")


def _check_threads(threads: int) -> None:
    if threads > MAX_CPU_THREADS:
        raise InputError(f"a setting of this CPU has at most {MAX_CPU_THREADS} threads, got {threads}")


def check_measurable(threads: Sequence[int]) -> None:
    """Refuse more threads than this machine has processors: their times would not be those of so many processors.

    Raises:
        InputError: one is larger than the number of processors of this process.
    """
    if max(threads) > (most := most_threads()):
        raise InputError(
            f"{max(threads)} threads cannot be measured here, where {most} run in parallel; expected at most {most}"
        )


def in_turns(
    found: Sequence[Measurement],
    timed: Callable[[int], list[float]],
    limit_s: float,
    most_s: float = RUNS_S,
    share: Callable[[], float] = lambda: 1.0,
) -> list[Measurement]:
    """Time programs in turns until their rounds agree, or they had MAX_ROUNDS; see `fastest`.

    A round during which the processors reached less than OWN_CORE_SHARE of their peak is used for the fastest run only.

    Args:
        found: of each program its first run, or why it has none: that remains what is said of it.
        timed: called with a program's place, in a child, for one round: returns seconds of runs.
        most_s: seconds of runs, all in all, after which a program has no further rounds, once it had some.
        share: of what the processors can do what they do now, see `share_of_peak`. It is waited for them, but no longer than
            PATIENCE_S; then all rounds count.
    """
    rounds: list[list[Measurement]] = [[] for _ in found]
    counted: list[list[Measurement]] = [[] for _ in found]
    waited_s, shared = 0.0, False
    for _ in range(0, MAX_ROUNDS, BOUT):
        left = [
            place
            for place, (one, had) in enumerate(zip(found, counted, strict=True))
            if one.ok
            and all(its.ok for its in rounds[place])
            and not agreed(_seconds(had))
            and (not had or sum(sum(its.samples) for its in had) < most_s)
        ]
        if not left:
            break
        while share() < OWN_CORE_SHARE and waited_s < PATIENCE_S:
            time.sleep(NAP_S)
            waited_s += NAP_S
        left *= BOUT
        turns = list(in_children(lambda turn, left=left: timed(left[turn]), [True] * len(left), limit_s))  # type: ignore[misc]
        own, over = share() >= OWN_CORE_SHARE, waited_s >= PATIENCE_S
        shared |= over and not own
        for place, its in zip(left, turns, strict=True):
            rounds[place].append(its)
            if own or over:
                counted[place].append(its)
    note = "its processors are shared with others" if shared else ""
    return [_noted(_together(its), note) if its else one for one, its in zip(found, rounds, strict=True)]


def _together(rounds: Sequence[Measurement]) -> Measurement:
    failed = [one for one in rounds if not one.ok]
    return failed[0] if failed else fastest(_seconds(rounds))


def _noted(one: Measurement, note: str) -> Measurement:
    """A measurement that says something before what it says already; one that failed says why it did."""
    return replace(one, note="; ".join(filter(None, (note, one.note)))) if one.ok else one


def _seconds(rounds: Sequence[Measurement]) -> list[float]:
    """The seconds of the fastest run of each round."""
    return [min(one.samples) for one in rounds]


def use_threads(threads: int) -> None:
    """Have programs of TVM run on so many threads in this process; called before the first one runs."""
    os.environ["TVM_NUM_THREADS"] = str(threads)  # read when the first parallel loop runs


def _checked(built: Any, given: Sequence[Any], threads: int, kept: mmap.mmap) -> float:
    """Run a program for the first time; return its seconds. Raises ValueError for a wrong result."""
    use_threads(threads)
    given[-1].copyfrom(np.zeros(given[-1].shape, given[-1].dtype))
    start = time.perf_counter()
    built["main"](*given)
    first = time.perf_counter() - start
    found = given[-1].numpy()
    if kept[0]:
        agreeing(found, np.frombuffer(kept, found.dtype, found.size, 1).reshape(found.shape))
    else:
        kept[1 : 1 + found.nbytes] = found.tobytes()
        kept[0] = 1
    return first


def _timed(built: Any, given: Sequence[Any], threads: int, first: float, cold: bool) -> list[float]:
    """Return the seconds of some runs, one round, of a program whose first run took ``first``."""
    from tensorwise.tasks.tvm_extra import tvm

    use_threads(threads)
    if threads > 1:
        built["main"](*given)
        keep_off_workers()
    number, flush, flush_s = int(np.clip(BATCH_S / max(first, 1e-9), 1, 1000)), "", 0.0
    if cold:
        number, flush = 1, FLUSH
        start = time.perf_counter()
        tvm.get_global_func(FLUSH)(*given)
        flush_s = time.perf_counter() - start
    repeat = int(np.clip(ROUND_S / (number * first + flush_s), 1, MOST))
    timed = built.mod.time_evaluator("main", tvm.cpu(), number=number, repeat=repeat, f_preproc=flush)
    return [float(sample) for sample in timed(*given).results]


def keep_off_workers() -> None:
    """Keep this thread off the processors to which TVM has bound its workers, once there are any.

    Otherwise Linux may run it on one of these for a long time, and the program takes twice as long.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    workers = {int(name) for name in os.listdir("/proc/self/task")} - {os.getpid()}
    theirs = set().union(*(os.sched_getaffinity(worker) for worker in workers))
    if left := os.sched_getaffinity(0) - theirs:
        os.sched_setaffinity(0, left)


def in_children(
    run: Callable[[int], list[float]], there: Sequence[bool], limit_s: float
) -> Iterator[Measurement]:
    """Yield what each call of ``run`` gives, seconds of some runs, made in a child.

    One that dies or is silent for too long is replaced.
    """
    place = 0
    while place < len(there):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            _serve(run, range(place, len(there)), there, read, write)
        os.close(write)
        try:
            with os.fdopen(read, "rb", buffering=0) as answers:
                for answer in _lines(answers, limit_s):
                    yield answer
                    place += 1
                    if answer.status in ("crash", "timeout"):
                        break
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _serve(
    run: Callable[[int], list[float]],
    places: range,
    there: Sequence[bool],
    read: int,
    write: int,
) -> None:
    """What a child does: never returns."""
    try:
        os.close(read)
        with os.fdopen(write, "w", buffering=1) as answers:
            for place in places:
                try:
                    answer: object = run(place) if there[place] else {"refused": "TVM cannot compile it"}
                except ValueError as error:
                    answer = {"wrong": str(error)}
                except MemoryError:
                    answer = {"memory": "no memory for its operands"}
                print(json.dumps(answer), file=answers)
            print("null", file=answers)
    finally:
        os._exit(0)


def _lines(answers: Any, limit_s: float) -> Iterator[Measurement]:
    """Read a child's answers as measurements; its end or silence is the last one."""
    pending = b""
    while True:
        while b"\n" in pending:
            line, pending = pending.split(b"\n", 1)
            answer = json.loads(line)
            if answer is None:
                return
            if isinstance(answer, list):
                yield Measurement.of(answer)
            else:
                ((how, note),) = answer.items()
                yield Measurement.failed(how, note)
        ready, _, _ = select.select([answers], [], [], limit_s)
        data = os.read(answers.fileno(), 1 << 16) if ready else b""
        if not data:
            status: Status = "crash" if ready else "timeout"
            yield Measurement.failed(
                status, "its process ended" if ready else f"no answer within {limit_s:g} s"
            )
            return
        pending += data
