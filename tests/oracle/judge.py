"""Run drawn programs in the interpreter and compiled, and hold both against the dense reference."""

import faulthandler
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tensorwise.errors import FormatError, ScheduleError, UnprovenError
from tensorwise.lower.plan import Plan
from tensorwise.lower.program import PlanKey, kernel_text
from tensorwise.runtime.generated import BoundProgram, GeneratedKernel
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.runtime.kernel import BoundKernel, Kernel
from tensorwise.runtime.packed import PackedOperands, packed_parts
from tensorwise.tensor.elements import is_float
from tensorwise.toolchain.cache import default_cache
from tests.oracle.cases import Case, draw
from tests.oracle.coverage import Coverage
from tests.oracle.widened import widened

THREADS = 3
FRAME = 64
"""Elements before and behind an output that must stay as they are."""


@dataclass
class Outcome:
    """What became of some seeds: coverage, and what went wrong by seed."""

    coverage: Coverage = field(default_factory=Coverage)
    failures: dict[int, str] = field(default_factory=dict)

    def merge(self, other: "Outcome") -> None:
        """Add what another process found."""
        self.coverage.merge(other.coverage)
        self.failures |= other.failures


@dataclass(frozen=True)
class Prepared:
    """A case with the C texts that running it may need: its own, and the masked one where it watches for NaN."""

    case: Case
    texts: tuple[str, ...]
    features: frozenset[str]


def judge(seeds: Iterable[int], diary: Path | None = None) -> Outcome:
    """Draw the case of each seed and run it; refused draws are counted, anything else unexpected fails.

    Args:
        diary: file that names the seed being run, for whoever finds this process dead.
    """
    faulthandler.enable()
    outcome = Outcome()
    prepared = []
    for seed in seeds:
        outcome.coverage.drawn += 1
        try:
            prepared.append(prepare(draw(seed)))
        except UnprovenError as error:  # what lowering makes is right, or it refuses with a reason
            outcome.failures[seed] = f"not proved to stay inside its arrays: {error}"
        except (FormatError, ScheduleError) as error:
            outcome.coverage.refuse(error)
        except Exception:
            outcome.failures[seed] = f"drawing or lowering:\n{traceback.format_exc()}"
    texts = [text for one in prepared for text in one.texts]
    default_cache().get(texts, on_error="none")
    for one in prepared:
        if diary is not None:
            diary.write_text(str(one.case.seed))
        features = set(one.features)
        problem = verdict(one, features)
        outcome.coverage.add(one.case, features)
        if problem is not None:
            outcome.failures[one.case.seed] = f"{one.case}\n{problem}"
    return outcome


def prepare(case: Case) -> Prepared:
    """Lower a case; raises FormatError or ScheduleError when its program is refused."""
    parts = _packed(case)
    plans = [packed.plan(packed.program, None) for packed in parts]
    texts = [kernel_text(PlanKey(plan))[0] for plan in plans]
    features = {feature for plan, text in zip(plans, texts, strict=True) for feature in _features(plan, text)}
    watching = [plan.padded and not plan.masked for plan in plans]
    if any(watching):
        masked = [packed.plan(packed.program.masked(), True) for packed in parts]
        texts.extend(kernel_text(PlanKey(plan))[0] for plan in masked)
    if len(parts) > 1 and plans[0].keep_pattern:
        features.add("hybrid in a kept pattern")
    if any(watching) and not all(watching):
        features.add("hybrid of watched and plain")
    return Prepared(case, tuple(texts), frozenset(features))


def verdict(one: Prepared, features: set[str]) -> str | None:
    """Return None when both ways of running a case give the right numbers, else what is wrong."""
    case = one.case
    for text, compiled in zip(one.texts, default_cache().get(one.texts, on_error="none"), strict=True):
        if compiled is None:
            return f"does not compile: {default_cache().failures[default_cache().key(text)]}\n{text}"
    interpreter = InterpretedKernel(case.program, np.random.default_rng(case.seed))
    expected = case.workload.reference(case.operands)
    factored = any(part.schedule.factor for part in case.program.parts)
    given = [operand.copy() for operand in case.operands]
    kernels: list[tuple[Kernel, int]] = [(interpreter, 1), (GeneratedKernel(case.program), 2)]
    for kernel, times in kernels:
        try:
            bound = _bound(kernel, case)
            for again in range(times):  # the second run meets what the first one left behind
                out, frame = poisoned(case)
                before = frame.copy()
                if again:
                    bound.ready(case.operands, out)()
                else:
                    bound.run(case.operands, out)
                if problem := expected.mismatch(out, factored=factored):
                    return f"{kernel.name}: {problem}"
                frame[FRAME : FRAME + out.size] = before[FRAME : FRAME + out.size]
                if not np.array_equal(frame, before, equal_nan=True):
                    return f"{kernel.name}: wrote outside the output"
        except Exception:
            return f"{kernel.name}:\n{traceback.format_exc()}"
        if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(given, case.operands)):
            return f"{kernel.name}: changed an operand"
        if getattr(bound, "_masked", None) is not None:
            features.add("watched, then masked")
    return None


def _packed(case: Case) -> list[PackedOperands]:
    parts, _ = packed_parts(case.program, case.workload, THREADS)
    return [widened(part) for part in parts] if case.wide else parts


def _bound(kernel: Kernel, case: Case) -> BoundKernel:
    if case.wide and isinstance(kernel, GeneratedKernel):
        return BoundProgram(case.program, case.workload, THREADS, _packed(case))
    return kernel.bind(case.workload, THREADS)


def poisoned(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return an output full of what no kernel writes, and the larger array that it is cut from."""
    dtype, shape = case.workload.output_dtype, case.workload.output_shape
    size = int(np.prod(shape))
    frame = np.full(size + 2 * FRAME, np.nan if is_float(dtype) else np.iinfo(dtype).min, dtype)
    return frame[FRAME : FRAME + size].reshape(shape), frame


def _features(plan: Plan, text: str) -> set[str]:
    """What a program does, by its plan and text."""
    schedule, found = plan.schedule, set()
    if schedule.parallel:
        found.add(schedule.parallel.policy)
    found |= {
        "unrolled in copies" if factor else "unrolled completely" for factor in schedule.unrolls.values()
    }
    if plan.padded:
        found.add("masked" if plan.masked else "watched")
    tile = schedule.tile
    if tile and tile.lanes > 1 and any(tile.loop.rstrip("01") in f.modes for f in plan.formats.values()):
        last = {f.axes[-1].name for f in plan.formats.values() if not f.levels[-1].full}
        found.add("lanes along a compressed level" if tile.loop in last else "lanes over stored levels")
    if plan.assignment.argument and tile and tile.lanes > 1:
        found.add("arguments in lanes")
    if "restrict const work" in text and plan.assignment.output.tensor in plan.halves:
        found.add("partial results of halves")
    marks = {
        "tw_search": "searched",
        "restrict const carries": "carries",
        "tw_atomic": "atomic",
        "restrict const work": "private",
        "rest = (": "overlapping strips",
        " held0_ ": "vectors held before a loop",
        "tw_gather_": "gathered by words",
    }
    return found | {feature for mark, feature in marks.items() if mark in text}
