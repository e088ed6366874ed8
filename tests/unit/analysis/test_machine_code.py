"""What is counted in assembly, and what it takes."""

import pytest

from tensorwise.analysis.machine_code import MACHINE_CODE_NAMES, MachineCode
from tensorwise.analysis.x86 import LOADED, blocks, cost, instruction, waited
from tensorwise.errors import InputError


def block(*lines: str) -> list:  # type: ignore[type-arg]
    return [instruction(line) for line in lines]


@pytest.mark.parametrize(
    ("text", "kind", "width", "reach", "flops"),
    [
        ("vfmadd231ps\t(%rax,%rcx,4), %zmm1, %zmm2", "arithmetic", 64, "load", 32),
        ("vfmadd213ps\t12(%rax){1to8}, %ymm1, %ymm2", "arithmetic", 32, "broadcast", 16),
        ("mulss\t%xmm3, %xmm0", "arithmetic", 4, None, 1),
        ("addps\t-32(%rsp), %xmm13", "arithmetic", 16, "reload", 4),
        ("vmaxps\t%ymm1, %ymm2, %ymm2", "arithmetic", 32, None, 8),
        ("vaddpd\t%ymm1, %ymm2, %ymm2", "arithmetic", 32, None, 4),
        ("addsd\t%xmm1, %xmm2", "arithmetic", 8, None, 1),
        ("sqrtss\t%xmm1, %xmm1", "divide", 4, None, 1),
        ("movups\t%xmm0, 16(%rdi,%r8,4)", "move", 16, "store", 0),
        ("vmovups\t%ymm0, 96(%rsp)", "move", 32, "spill", 0),
        ("movss\t(%rcx,%rax,4), %xmm3", "move", 4, "load", 0),
        ("vbroadcastss\t4(%rsi), %ymm0", "move", 32, "broadcast", 0),
        ("vbroadcastss\t%xmm1, %ymm0", "shuffle", 32, None, 0),
        ("unpcklps\t%xmm2, %xmm0", "shuffle", 16, None, 0),
        ("vinsertps\t$16, 8(%rcx), %xmm0, %xmm0", "shuffle", 16, "load", 0),
        ("movd\t%xmm3, %ebp", "shuffle", 16, None, 0),
        ("vpaddd\t%ymm1, %ymm2, %ymm3", "integer", 32, None, 0),
        ("cvtdq2ps\t%xmm1, %xmm1", "convert", 16, None, 0),
        ("leaq\t(%rax,%rcx,4), %rdx", "scalar", 8, None, 0),
        ("movslq\t%ebp, %rax", "move", 8, None, 0),
        ("cmpl\t$7, 12(%rdi)", "scalar", 8, "load", 0),
        ("jne\t.LBB5_2", "branch", 8, None, 0),
        ("callq\t*%rax", "call", 8, None, 0),
        ("retq", None, 8, None, 0),
    ],
)
def test_instructions(text: str, kind: str | None, width: int, reach: str | None, flops: int) -> None:
    one = instruction(text)
    assert (one.kind, one.width, one.reach, one.flops) == (kind, width, reach, flops)


def test_functions_of_the_c_library_take_what_they_take() -> None:
    known, other = block("callq\terff@PLT"), block("callq\t*%rax")
    assert cost(known, alone=False).cycles > 2 * cost(other, alone=False).cycles > 0
    assert cost(block("callq\texpf@PLT"), alone=False).cycles < cost(other, alone=False).cycles


def test_gathers_count_lanes() -> None:
    one = instruction("vgatherdps\t(%rsi,%zmm5,4), %zmm0 {%k1}")
    assert (one.kind, one.lanes, one.reach) == ("gather", 16, None)


def test_a_sum_waits_for_itself() -> None:
    alone = block("addss\t(%rax), %xmm0", "addq\t$4, %rax", "cmpq\t%rdx, %rax", "jne\t.LBB0_1")
    assert waited(alone).cycles == 4
    both = block("addss\t(%rax), %xmm0", "addss\t4(%rax), %xmm0", "addq\t$8, %rax", "jne\t.LBB0_1")
    assert waited(both).cycles == 8
    apart = block("addss\t(%rax), %xmm0", "addss\t4(%rax), %xmm1", "addq\t$8, %rax", "jne\t.LBB0_1")
    assert waited(apart).cycles == 4
    assert cost(both, alone=True).limit == "latency"
    assert cost(both, alone=False).limit != "latency"


def test_what_is_written_and_read_again_waits_too() -> None:
    same = block("movss\t(%rdi), %xmm0", "addss\t(%rax), %xmm0", "movss\t%xmm0, (%rdi)", "addq\t$4, %rax")
    assert waited(same).cycles == 8  # to be forwarded, and to be added
    moving = block("movss\t(%rdi), %xmm0", "addss\t(%rax), %xmm0", "movss\t%xmm0, (%rdi)", "addq\t$4, %rdi")
    assert waited(moving).cycles <= 1
    parts = block(
        "movss\t%xmm0, (%rdi)", "movss\t%xmm1, 4(%rdi)", "movsd\t(%rdi), %xmm2", "addps\t%xmm2, %xmm0"
    )
    assert waited(parts).blocked == 1
    wide = block("movss\t%xmm0, (%rdi)", "movss\t%xmm1, 4(%rdi)", "movups\t(%rdi), %xmm2")
    assert waited(wide).blocked == 1


def test_a_pointer_that_is_followed_waits_for_memory() -> None:
    assert waited(block("movq\t(%rax), %rax", "jne\t.LBB0_1")).cycles == LOADED


def test_zeros_wait_for_nothing() -> None:
    assert instruction("vxorps\t%xmm0, %xmm0, %xmm0").reads == ()
    assert instruction("xorl\t%eax, %eax").reads == ()


IR = """
define i32 @main() {
entry:
  br label %body

body:
  %i = phi i32 [ 0, %entry ], [ %k, %body ]
  %k = add i32 %i, 8
  %c = icmp eq i32 %k, 64
  br i1 %c, label %out, label %body

out:
  ret i32 0
}
"""
ASSEMBLY = """
main:
	#APP
	#BLOCK 0 0
	#NO_APP
	xorl	%ecx, %ecx
.LBB0_1:
	vmovups	(%rsi,%rcx,4), %ymm0
	#APP
	#BLOCK 0 1
	#NO_APP
	vaddps	(%rdi,%rcx,4), %ymm0, %ymm0
	vmovups	%ymm0, (%rdx,%rcx,4)
	addq	$8, %rcx
	cmpq	$64, %rcx
	jne	.LBB0_1
	#APP
	#BLOCK 0 2
	#NO_APP
	xorl	%eax, %eax
	retq
.Lfunc_end0:
"""


def test_blocks_are_told_apart_by_their_marks() -> None:
    found = blocks(ASSEMBLY)
    assert {place: len(some) for place, some in found.items()} == {(0, 0): 1, (0, 1): 6, (0, 2): 2}


def test_instructions_count_as_often_as_they_run() -> None:
    code = MachineCode.of(IR, ASSEMBLY)
    numbers = code.numbers
    assert set(numbers) == set(MACHINE_CODE_NAMES)
    assert numbers["all.instructions"] == 1 + 8 * 6 + 2
    assert numbers["arithmetic.32"] == numbers["store.32"] == 8
    assert numbers["all.flops"] == 64
    assert numbers["load.32"] == 16
    assert numbers["memory.loaded"] == 2 * 4 * 64
    assert numbers["memory.stored"] == 4 * 64
    assert numbers["all.cycles"] == pytest.approx(8 * 6 / 5 + 3 / 5)
    assert numbers["all.cycles"] == pytest.approx(
        sum(v for name, v in numbers.items() if name.startswith("cycles."))
    )
    assert (numbers["hot.runs"], numbers["hot.length"]) == (8, 6)
    assert numbers["hot.others"] == 6 + 1 + 2
    assert MachineCode.from_json(code.to_json()).numbers == pytest.approx(numbers, rel=1e-3)


@pytest.mark.parametrize("data", [[], {"cycle": 1.0}, {"all.cycles": "many"}, {"all.cycles": None}])
def test_malformed_counts_are_refused(data: object) -> None:
    with pytest.raises(InputError, match="malformed counts"):
        MachineCode.from_json(data)
