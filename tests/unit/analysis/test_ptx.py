"""PTX as NVRTC prints it, read."""

from pathlib import Path

import pytest

from tensorwise.analysis.ptx import PtxInstruction, kernels

TEXT = Path(__file__).with_name("kernels.ptx").read_text()


def test_kernels_have_blocks_that_jumps_end() -> None:
    found = {kernel.name: kernel for kernel in kernels(TEXT)}
    assert list(found) == ["copied", "strided", "summed", "transposed", "parted", "rowed"]
    assert [one.shared_bytes for one in found.values()] == [0, 0, 0, 4096, 0, 0]
    loop = found["summed"].blocks[found["summed"].labels["$L__BB2_1"]]
    assert [one.name for one in loop] == ["mul", "add", "ld", "add", "add", "add", "add", "setp", "bra"]
    for kernel in found.values():
        assert sum(one.name == "ret" for block in kernel.blocks for one in block) == 1
        for block in kernel.blocks:
            assert not any(one.name in ("bra", "ret") for one in block[:-1])


@pytest.mark.parametrize(
    ("text", "results", "reads", "space", "touched", "address"),
    [
        ("ld.global.nc.v2.f32 \t{%f7, %f8}, [%rd5+8]", ("%f7", "%f8"), ("%rd5",), "global", 8, "%rd5+8"),
        ("st.shared.v4.f32 \t[%r7], {%f1, %f2, %f3, %f4}", (), ("%r7", "%f1", "%f2", "%f3", "%f4"), "shared", 16, "%r7"),
        ("ld.local.u8 \t%rs1, [%rd2+-3]", ("%rs1",), ("%rd2",), "local", 1, "%rd2+-3"),
        ("cp.async.ca.shared.global \t[%r1], [%rd1], 16", (), ("%r1", "%rd1"), "global", 16, "%rd1"),
    ],
)  # fmt: skip
def test_accesses(
    text: str, results: tuple[str, ...], reads: tuple[str, ...], space: str, touched: int, address: str
) -> None:
    one = PtxInstruction.of(text)
    assert one.touches
    assert (one.results, one.reads, one.space, one.bytes, one.address) == (
        results,
        reads,
        space,
        touched,
        address,
    )


def test_guards_and_what_goes_to_no_memory() -> None:
    jump = PtxInstruction.of("@!%p3 bra \t$L__BB0_2")
    assert (jump.name, jump.guard, jump.unless, jump.operands) == ("bra", "%p3", True, ("$L__BB0_2",))
    assert jump.reads == ("%p3",)
    assert not PtxInstruction.of("ld.param.u64 \t%rd1, [copied_param_0]").touches
    assert not PtxInstruction.of("cp.async.wait_group 0").touches
    both = PtxInstruction.of("shfl.sync.down.b32 \t%r9|%p2, %r6, %r8, %r7, %r4")
    assert both.results == ("%r9", "%p2")
    assert PtxInstruction.of("ret").operands == ()
