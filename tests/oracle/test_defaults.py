"""Whatever einsum is accepted, its default program is legal, compiles and gives the right numbers, as drawn ones do."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tensorwise.errors import CompilerError, FormatError
from tensorwise.lower.program import PlanKey, Program, kernel_text
from tensorwise.program.einsum import Einsum
from tensorwise.program.workload import Workload, einsum_workload
from tensorwise.runtime.generated import BoundProgram
from tensorwise.runtime.packed import PackedOperands, packed_parts
from tensorwise.space.cpu import cpu_space_of
from tensorwise.tensor.convert import entries_from
from tensorwise.toolchain.cache import default_cache
from tests.oracle.einsums import draw_einsum
from tests.oracle.widened import widened

THREADS = 2
DEFAULTS, SAMPLES = 110, 60


def drawn(seed: int) -> tuple[Workload, list[np.ndarray], np.random.Generator]:
    """A random einsum with operands for it."""
    rng = np.random.default_rng(seed)
    text, sparse = draw_einsum(rng)
    assignment = Einsum.parse(text).single
    kind = np.dtype(str(rng.choice(["f4", "f8", "f4", "f8", "f2"])))
    most = 1 if rng.random() < 0.05 else 19 if rng.random() < 0.1 and len(assignment.indices) < 4 else 8
    sizes = {index: int(rng.integers(1, most + 1)) for index in assignment.indices}
    entries = {}
    for name in sparse:
        shape = tuple(sizes[index] for index in assignment.access(name).indices)
        density = float(rng.choice([0.0, 0.4, 1.0], p=[0.05, 0.85, 0.1]))
        entries[name] = entries_from(
            ((rng.random(shape) < density) * rng.standard_normal(shape)).astype(kind)
        )
        if rng.random() < 0.5:
            numbers = rng.permutation(entries[name].nnz).astype(np.int32)
            entries[name] = replace(entries[name], numbers=numbers)
    stored = assignment.indices_of(sparse)
    work = einsum_workload(
        text, entries, {index: size for index, size in sizes.items() if index not in stored}
    )
    return work, work.operands(rng), rng


Case = tuple[int, Workload, list[np.ndarray], Program, list[PackedOperands]]


def prepared(seeds: range, sampled: bool) -> Iterator[Case]:
    """The cases of these seeds; every third one has 64-bit indices. FormatError refuses samples only."""
    for seed in seeds:
        work, operands, rng = drawn(seed)
        space = cpu_space_of(work)
        config = space.sample(work, rng) if sampled else space.default(work)
        program = space.program(work, config)
        try:
            parts, _ = packed_parts(program, work, THREADS)
        except FormatError:
            if not sampled:
                raise
            continue
        yield seed, work, operands, program, [widened(part) for part in parts] if seed % 3 == 0 else parts


@pytest.mark.parametrize(
    ("seeds", "sampled"), [(range(DEFAULTS), False), (range(1000, 1000 + SAMPLES), True)]
)
def test_programs_of_random_einsums_are_legal_and_right(seeds: range, sampled: bool) -> None:
    cases = list(prepared(seeds, sampled))
    assert len(cases) > 0.9 * len(seeds)
    keys = [PlanKey(part.plan(part.program, None)) for *_, parts in cases for part in parts]
    texts = [kernel_text(key)[0] for key in keys]
    assert any("const int64_t *restrict const A_source" in text for text in texts)
    assert any("const int32_t *restrict const A_source" in text for text in texts)
    default_cache().get(texts, on_error="none")  # together
    problems = []
    for seed, work, operands, program, parts in cases:
        told = f"seed {seed}: {work.assignment} {dict(work.sizes)} {work.dtype_text}\n{program.name}"
        try:
            bound = BoundProgram(program, work, THREADS, parts)
        except CompilerError as error:
            problems.append(f"{told}\n{error}")
            continue
        out = np.empty(work.output_shape, work.output_dtype)
        out.fill(np.nan if out.dtype.kind == "f" else -7)
        bound.run(operands, out)
        factored = any(part.schedule.factor for part in program.parts)
        if (problem := work.reference(operands).mismatch(out, factored=factored)) is not None:
            problems.append(f"{told}\n{problem}")
    assert not problems, f"{len(problems)} of {len(cases)}:\n" + "\n\n".join(problems[:5])
