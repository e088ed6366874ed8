"""Storage that is decided: all choices that are left read the same format."""

from itertools import product

import numpy as np
import pytest

from tensorwise.errors import ScheduleError
from tensorwise.lower.program import program_for
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.generated import BoundProgram, GeneratedKernel
from tensorwise.space.cpu import CpuSpace, cpu_space
from tensorwise.tensor.entries import Entries
from tensorwise.tuning.sharing import common, keeping, starts
from tests.unit.device.cases import tensor

SHAPES = {3: (30, 9, 70), 4: (9, 8, 40, 6), 5: (5, 6, 4, 30, 4)}


def works(a: Entries, n: int = 16) -> list[Workload]:
    return [workload("mttkrp", a, n=n, mode=mode) for mode in range(a.order)]


def space_of(work: Workload) -> CpuSpace:
    return cpu_space(work.assignment)


@pytest.fixture(params=SHAPES)
def a(request: pytest.FixtureRequest) -> Entries:
    return tensor(SHAPES[request.param], 300, np.random.default_rng(request.param))


def test_every_config_of_every_mode_stores_the_same(a: Entries) -> None:
    rng = np.random.default_rng(0)
    modes = works(a)
    suits = common(space_of(modes[0]), modes[0])
    wild = [space_of(modes[0]).sample(modes[0], rng) for _ in range(10)]
    for config, work in product([*suits, *wild], modes):
        wanted = space_of(modes[0]).program(modes[0], config).format_text
        space = keeping(space_of(work), config)
        found = starts(space, work)
        if config in suits:
            assert found
        if found:  # the rule about work may leave nothing of what was drawn
            found += [space.sample(work, rng) for _ in range(5)]
        assert {space.program(work, one).format_text for one in found} <= {wanted}
        assert all(space_of(work).why_not(one, work) is None for one in found)


def test_what_suits_all_modes(a: Entries) -> None:
    work = works(a)[0]
    texts = [space_of(work).program(work, c).format_text for c in common(space_of(work), work)]
    assert len(set(texts)) == a.order + 1
    longest = "iklmn"[int(np.argmax(a.shape))]
    assert f"-> U({longest})" in texts[0]
    assert "N(" in texts[-1]


def test_starts_place_the_dense_loop_and_the_threads(a: Entries) -> None:
    work = works(a)[1]
    space = keeping(space_of(work), common(space_of(work), work)[0])
    found = starts(space, work)
    assert found[0]["parallel"] != "none"
    assert len({one["order"] for one in found}) == a.order
    assert {one["parallel"] for one in found} >= {"none"}
    assert {one["reduction"] for one in found} >= {"private", "atomic"}


def bound(work: Workload, format: str, schedule: str) -> BoundProgram:
    return GeneratedKernel(program_for(work, format, schedule)).bind(work, 2)


def test_programs_share_packed_operands() -> None:
    a = tensor((20, 15, 12), 400, np.random.default_rng(1))
    first, second, _ = works(a, n=8)
    csf = "(i,k,l) -> C(i) C(k) C(l)"
    one = bound(first, csf, "reorder(i,r,k,l) parallel(i,dynamic,4) tile(r,1x8)")
    two = one.sharing(
        program_for(second, csf, "reorder(i,k,r,l) parallel(i,dynamic,4,private) tile(r,1x8)"), second
    )
    assert two.tensors["A"] is one.tensors["A"]
    rng = np.random.default_rng(2)
    for work, kernel in ((first, one), (second, two)):
        operands = work.operands(rng)
        out = np.empty(work.output_shape, work.output_dtype)
        kernel.run(operands, out)
        np.testing.assert_allclose(out, work.reference(operands).value, rtol=1e-4, atol=1e-5)
    assert one.bytes_held == one.tensors["A"].nbytes
    kernel = GeneratedKernel(two.program)
    assert two.bytes_held == two.tensors["A"].nbytes + kernel.workspace_bytes(second, 2)
    assert kernel.workspace_bytes(second, 2) == 2 * 15 * 8 * 4


def test_other_formats_and_other_entries_cannot_share() -> None:
    rng = np.random.default_rng(3)
    a, b = tensor((6, 5, 4), 30, rng), tensor((6, 5, 4), 30, rng)
    work = works(a)[0]
    one = bound(work, "(i,k,l) -> C(i) C(k) C(l)", "")
    with pytest.raises(
        ScheduleError, match=r"C\(k\) C\(i\) C\(l\) cannot share .* C\(i\) C\(k\) C\(l\); pack"
    ):
        one.sharing(program_for(work, "(i,k,l) -> C(k) C(i) C(l)", ""), work)
    with pytest.raises(ScheduleError, match="same Entries"):
        one.sharing(one.program, works(b)[0])
