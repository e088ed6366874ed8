"""Warps that are run as far as control and addresses go: counts that can be told by hand."""

from pathlib import Path

import numpy as np
import pytest

from tensorwise.analysis.gpu_code import BEGIN, COSTS, GPU_CODE_NAMES, counts
from tensorwise.analysis.machine_code import MachineCode
from tensorwise.analysis.ptx import PtxInstruction, kernels
from tensorwise.analysis.warps import DRAWN, MAX_BLOCKS_RUN, Warps
from tensorwise.errors import InputError
from tensorwise.tasks.staged import StagedLaunch

TEXT = Path(__file__).with_name("kernels.ptx").read_text()
KERNELS = {kernel.name: kernel for kernel in kernels(TEXT)}


def counted(name: str, grid: int, *block: int) -> dict[str, float]:
    return Warps(KERNELS[name], (grid, 1), (block[0], (*block, 1)[1])).counted()


def test_lanes_beyond_the_end_do_nothing() -> None:
    found = counted("copied", 3, 128)  # 384 of 450: all
    assert found["flops"] == 384
    assert (found["load"], found["loaded"], found["stored"]) == (12, 48, 48)
    one = Warps(KERNELS["copied"], (1, 1), (100, 1)).counted()  # the last warp has four lanes
    assert (one["flops"], one["load"], one["loaded"]) == (100, 4, 13)
    beyond = Warps(
        KERNELS["copied"], (15, 1), (32, 1)
    )  # each warp is a block; the last has the elements from 448
    assert beyond.counted()["flops"] <= 450


def test_each_lane_of_a_stride_needs_a_sector() -> None:
    found = counted("strided", 3, 64)
    assert (found["load"], found["loaded"]) == (6, 6 * 4)
    assert (found["store"], found["stored"]) == (6, 6 * 32)


def test_loops_run_as_often_as_they_do() -> None:
    found = counted("summed", 2, 32)
    assert (found["load"], found["loaded"]) == (2 * 1000, 2 * 1000 * 8)
    assert found["flops"] == 2 * 32 * (2 * 1000 + 1)
    # In order each load is waited for; where values alone wait, instructions are what an iteration takes.
    assert 1000 * 400 < found["alone"] < 1000 * 450
    assert 1000 * 9 <= found["flowing"] < 1000 * 12


def test_lanes_that_meet_in_a_bank_take_turns() -> None:
    found = counted("transposed", 1, 32, 4)
    assert (found["shared.store"], found["shared.stored"]) == (4, 4)
    assert (found["shared.load"], found["shared.loaded"]) == (4, 4 * 32)
    assert found["barrier"] == 4


def test_a_warp_goes_on_as_long_as_one_of_its_lanes_does() -> None:
    found = counted("parted", 1, 32)
    assert found["arithmetic"] == 3  # rounds of the lanes that have most of them
    assert found["flops"] == 2 * 8 * (1 + 2 + 3)


def test_places_that_were_divided() -> None:
    found = counted("rowed", 2, 96)
    numbers = np.arange(192)
    taken = (numbers % 7 < 3) & (numbers // 7 < 20)
    assert found["flops"] == taken.sum()
    sectors = [
        np.unique(numbers[warp : warp + 32][taken[warp : warp + 32]] // 8).size for warp in range(0, 192, 32)
    ]
    assert found["loaded"] == sum(sectors)
    written = numbers // 7 * 8 + numbers % 7
    sectors = [
        np.unique(written[warp : warp + 32][taken[warp : warp + 32]] // 8).size for warp in range(0, 192, 32)
    ]
    assert found["stored"] == sum(sectors)


def test_some_warps_stand_for_all() -> None:
    few, many = counted("summed", DRAWN, 32), counted("summed", 100 * DRAWN, 32)
    for name in ("instructions", "loaded", "flops"):
        assert many[name] == pytest.approx(100 * few[name])
    for name in ("alone", "flowing"):
        assert many[name] == few[name]


@pytest.mark.parametrize(
    ("text", "given", "wanted"),
    [
        ("mul.hi.s32 %r9, %r1, -1840700269", [700, -700, 2**31 - 1], [-300, 299, -920350135]),
        ("mul.hi.u32 %r9, %r1, -1840700269", [700, 2**31 - 1], [400, 1227133512]),
        ("mad.lo.s32 %r9, %r1, 96, 5", [3, 2**30], [293, 5]),
        ("mul.wide.s32 %rd9, %r1, 4", [2**30, -1], [2**32, -4]),
        ("shr.u32 %r9, %r1, 31", [-1, 1], [1, 0]),
        ("shr.s32 %r9, %r1, 31", [-1, 1], [-1, 0]),
        ("cvt.u64.u32 %rd9, %r1", [-1], [2**32 - 1]),
        ("cvt.s64.s32 %rd9, %r1", [-1], [-1]),
        ("cvt.u16.u32 %rs9, %r1", [70000], [70000 - 65536]),
        ("sub.s32 %r9, %r1, 2147483647", [-2], [2**31 - 1]),
        ("div.s32 %r9, %r1, 7", [-15, 15], [-2, 2]),
        ("rem.s32 %r9, %r1, 7", [-15, 15], [-1, 1]),
        ("setp.lt.u32 %p9, %r1, 5", [-1, 4], [0, 1]),
        ("setp.lt.s32 %p9, %r1, 5", [-1, 7], [1, 0]),
        ("setp.gt.and.s32 %p9, %r1, 5, %p1", [6, 5], [1, 0]),
        ("setp.gt.or.s32 %p9, %r1, 5, %p2", [6, 5], [1, 0]),
        ("selp.b32 %r9, %r1, 3, %p1", [5], [5]),
        ("bfe.u32 %r9, %r1, 4, 2", [0b110101], [0b11]),
        ("fma.rn.f32 %f9, %f1, %f2, %f3", [5], [0]),
        ("cvt.rn.f32.s32 %f9, %r1", [5], [0]),
    ],
)  # fmt: skip
def test_integers(text: str, given: list[int], wanted: list[int]) -> None:
    warps = Warps(KERNELS["parted"], (1, 1), (32, 1))
    lanes = np.resize(np.array(given, np.int64), 32)
    warps._registers |= {"%r1": lanes, "%p1": np.ones(32, np.int64), "%p2": np.zeros(32, np.int64)}
    assert warps._result(PtxInstruction.of(text))[: len(given)].tolist() == wanted


def test_an_endless_kernel_is_left() -> None:
    text = ".visible .entry endless()\n{\n$L1:\n\tbra.uni \t$L1;\n\tret;\n}\n"
    (kernel,) = kernels(text)
    assert Warps(kernel, (1, 1), (32, 1)).counted()["branch"] == MAX_BLOCKS_RUN


def test_what_costs_adds_up() -> None:
    launch = StagedLaunch("summed", (264, 1), (32, 1), (0, 1))
    found = counts(TEXT, [launch], 32, 0, 132)
    parts = sum(found[f"cycles.{name}"] for name in (*COSTS, "waiting", "blocks"))
    assert found["cycles"] == pytest.approx(BEGIN + parts)
    assert (found["whole.blocks"], found["whole.threads"], found["whole.resident"]) == (264, 32, 32)
    twice = counts(TEXT, [launch, launch], 32, 0, 132)
    assert twice["cycles"] - BEGIN == pytest.approx(2 * parts)
    assert twice["whole.launches"] == 2
    # Half as many multiprocessors take twice as long, but for waiting: these have room for all blocks at once.
    half = counts(TEXT, [launch], 32, 0, 66)
    assert half["cycles.global"] == pytest.approx(2 * found["cycles.global"])
    assert half["cycles.waiting"] == found["cycles.waiting"]
    # A thread with many registers leaves room for few blocks.
    assert counts(TEXT, [launch], 255, 0, 132)["whole.resident"] == 8
    with pytest.raises(InputError, match="no kernel nothing"):
        counts(TEXT, [StagedLaunch("nothing", (1, 1), (32, 1), ())], 32, 0, 132)


def test_code_for_a_gpu_is_code() -> None:
    code = MachineCode.on_gpu(TEXT, [StagedLaunch("copied", (3, 1), (128, 1), (0, 1))], 16, 0, 132)
    assert code.for_gpu
    assert code.numbers["all.flops"] == 384
    assert code.numbers["memory.loaded"] == 32 * 48
    assert code.numbers["gpu.loaded"] == 48
    assert {name for name in code.numbers if name.startswith("gpu.")} == {
        f"gpu.{name}" for name in GPU_CODE_NAMES
    }
    assert MachineCode.from_json(code.to_json()).numbers == pytest.approx(code.numbers, rel=1e-3)
