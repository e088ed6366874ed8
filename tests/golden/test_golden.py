"""Generated sources of typical programs, loops and C, as they were when somebody last looked at them.

``pytest tests/golden --update-golden`` writes them anew; the diff is then for a person to read. A refactor
leaves them unchanged, or says why not.
"""

import difflib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tensorwise.lower import ir
from tensorwise.lower.c import print_c
from tensorwise.lower.cuda import print_cuda
from tensorwise.lower.loops import printed
from tensorwise.lower.lower import lower
from tensorwise.lower.program import Program
from tensorwise.program.einsum import Einsum
from tensorwise.program.ops import NAMED, mttkrp
from tensorwise.program.schedule import Schedule
from tensorwise.tensor.format import Format

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Golden:
    """A program as text; ``masked`` asks for the form that consults the source map, ``halves`` names tensors."""

    einsum: str
    format: str
    schedule: str
    elem: str = "f32"
    masked: bool = False
    halves: str = ""

    def lowered(self) -> ir.LoweredFunction:
        """The loop IR, for 32-bit indices and any sizes."""
        formats = {"A": Format.parse(self.format, "A")}
        program = Program(Einsum.parse(self.einsum).single, formats, Schedule.parse(self.schedule))
        halves = dict(pair.split(":") for pair in self.halves.split())
        return lower(program.plan(self.elem, masked=self.masked or None, halves=halves))


PROGRAMS = {
    "spmv": Golden(NAMED["spmv"], "(i,k) -> U(i) C(k)", "reorder(i,k) parallel(i,balanced,4) tile(k,1x4)"),
    "spmm": Golden(NAMED["spmm"], "(i,k) -> U(i) C(k)", "reorder(i,j,k) parallel(i,balanced,4) tile(j,8x8)"),
    "sddmm": Golden(NAMED["sddmm"], "(i,j) -> U(i) C(j)", "reorder(i,j,k) parallel(i,balanced,4) tile(k,2x8)"),
    "mttkrp": Golden(
        mttkrp(3), "(i,k,l) -> U(i) C(k) C(l)", "reorder(i,r,k,l) parallel(i,balanced,4) tile(r,2x8)"
    ),
    "spmv_serial": Golden(NAMED["spmv"], "(i,k) -> U(i) C(k)", "unroll(k,4) prefetch(B,16)", "f64"),
    "spmm_bcsr": Golden(
        NAMED["spmm"],
        "(i,k) -> U(i1) C(k1) U(i0:2) U(k0:2)",
        "split(i,2) split(k,2) reorder(i1,j,k1,i0,k0) parallel(i1,dynamic,8) tile(j,1x8) unroll(i0) unroll(k0)",
    ),
    "spmv_bcsr_masked": Golden(
        NAMED["spmv"],
        "(i,k) -> U(i1) C(k1) U(i0:2) U(k0:2)",
        "split(i,2) split(k,2) reorder(i1,k1,i0,k0) parallel(i1,dynamic,8) unroll(i0) unroll(k0)",
        masked=True,
    ),
    "spmm_column_blocks": Golden(
        NAMED["spmm"],
        "(i,k) -> U(k1) U(i) C(k0:1024)",
        "split(k,1024) reorder(k1,i,j,k0) parallel(i,dynamic,32) tile(j,4x8)",
    ),
    "spmv_csc_private": Golden(NAMED["spmv"], "(i,k) -> U(k) C(i)", "reorder(k,i) parallel(k,balanced,4,private)"),
    "spmv_csc_atomic": Golden(NAMED["spmv"], "(i,k) -> U(k) C(i)", "reorder(k,i) parallel(k,dynamic,64)", "f64"),
    "spmm_dcsr": Golden(NAMED["spmm"], "(i,k) -> C(i) C(k)", "reorder(i,j,k) parallel(i,balanced,4) tile(j,4x8)"),
    "mttkrp_csf": Golden(
        mttkrp(3, 1), "(i,k,l) -> C(k) C(i) C(l)", "reorder(k,i,r,l) parallel(k,dynamic,4) tile(r,2x8)"
    ),
    "max_mul": Golden(
        "C[i,j] max= A[i,k] * B[k,j]", "(i,k) -> U(i) C(k)", "reorder(i,j,k) parallel(i,balanced,4) tile(j,2x8)"
    ),
    "argmax": Golden("C[i,j] argmax= A[i,k] * B[k,j]", "(i,k) -> U(i) C(k)", "reorder(i,j,k) parallel(i)"),
    "argmax_lanes": Golden(
        "P[i,j] argmax= B[k,j] for A[i,k]", "(i,k) -> U(i) C(k)", "reorder(i,j,k) parallel(i,balanced,4) tile(j,2x8)"
    ),
    "gspmm_located": Golden(
        "G[k,j] += D[i,j] if P[i,j] == A else 0 for A[i,k]",
        "(i,k) -> U(i) C(k)",
        "split(j,32) reorder(j1,i,k,j0) parallel(j1,dynamic,1) locate(A)",
    ),
    "gspmm_chosen": Golden(
        "G[k,j] += D[i,j] if P[i,j] == A else 0 for A[i,k]", "(i,k) -> U(k) C(i)",
        "reorder(k,j,i) parallel(k,balanced,4) tile(j,2x8)",
    ),
    "gsddmm_heads": Golden(
        "C[A,h] += Q[i,h,d] * K[k,h,d] for A[i,k]", "(i,k) -> U(i) C(k)",
        "reorder(i,k,h,d) parallel(i,balanced,4) tile(d,2x8)",
    ),
    "attention": Golden(
        "C[i,h,d] += exp(S[A,h] - M[i,h]) / Z[i,h] * X[k,h,d] for A[i,k]", "(i,k) -> U(i) C(k)",
        "reorder(i,h,d,k) parallel(i,balanced,4) tile(d,2x8)", "f64",
    ),
    "spmv_discordant": Golden(NAMED["spmv"], "(i,k) -> U(i) C(k)", "reorder(k,i)"),
    "spmm_bf16": Golden(
        NAMED["spmm"], "(i,k) -> U(i) C(k)", "reorder(i,j,k) parallel(i,balanced,4) tile(j,4x8) prefetch(B,8)",
        halves="A:bf16 B:bf16 C:bf16",
    ),
    "spmv_csc_f16": Golden(
        NAMED["spmv"], "(i,k) -> U(k) C(i)", "reorder(k,i) parallel(k,dynamic,64)", halves="A:f16 B:f16 C:f16"
    ),
    "spmv_f16_gathered": Golden(
        NAMED["spmv"], "(i,k) -> U(i) C(k)", "reorder(i,k) parallel(i,balanced,4) tile(k,1x8)", halves="B:f16"
    ),
    "spmv_merge_path": Golden(NAMED["spmv"], "(i,k) -> U(i) C(k)", "reorder(i,k) parallel(i,merge-path,4) unroll(k,4)"),
    "spmm_merge_path": Golden(
        NAMED["spmm"], "(i,k) -> C(i1) C(k) U(i0:4)",
        "split(i,4) reorder(i1,j,k,i0) parallel(i1,merge-path,4) tile(j,1x8) unroll(i0)",
    ),
    "cuda_spmm": Golden(
        NAMED["spmm"], "(i,k) -> U(i) C(k)",
        "reorder(i,j,k) bind(i,block,4) bind(j,block) tile(j,2x32) bind(j,thread,32) stage(k,32) visit(i,length)",
    ),
    "cuda_gsddmm": Golden(
        "C[A] += U[k,j] * V[i,j] for A[i,k]", "(i,k) -> N(i) S(k)",
        "reorder(i,k,j) bind(i,block,16) tile(j,1x32) bind(j,lane,8) bound(j,64)",
    ),
    "cuda_gspmm_max_split": Golden(
        "C[i,j] max= U[k,j] for A[i,k]", "(i,k) -> U(i) C(k)",
        "reorder(i,j,k) parallel(i,pieces,64) bind(i,block,2) tile(j,1x64) bind(j,thread,64) stage(k,16,indices)",
    ),
    "sddmm_csc": Golden(NAMED["sddmm"], "(i,j) -> U(j) C(i)", "reorder(j,i,k) parallel(j,balanced,4) tile(k,2x8)"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_generated_sources_are_unchanged(name: str, request: pytest.FixtureRequest) -> None:
    golden = PROGRAMS[name]
    kernel = golden.lowered()
    head = f"# {golden.format}\n# {golden.schedule}\n"
    on_gpu = any(map(ir.launches, kernel.body))
    code = (".cu", print_cuda(kernel)[0]) if on_gpu else (".c", print_c(kernel))
    for suffix, text in ((".loops", f"{head}{printed(kernel)}\n"), code):
        path = FOLDER / f"{name}{suffix}"
        if request.config.getoption("--update-golden"):
            path.write_text(text)
            continue
        assert path.is_file(), f"{path.name} is missing; pytest tests/golden --update-golden writes it"
        diff = difflib.unified_diff(
            path.read_text().splitlines(), text.splitlines(), "before", "now", lineterm=""
        )
        lines = list(diff)
        assert not lines, "\n".join([f"{path.name} would change:", *lines])


def test_no_file_is_left_over() -> None:
    kept = {path.name for path in FOLDER.iterdir() if path.suffix in (".c", ".cu", ".loops")}
    code = {name: ".cu" if name.startswith("cuda_") else ".c" for name in PROGRAMS}
    assert kept == {f"{name}{suffix}" for name in PROGRAMS for suffix in (code[name], ".loops")}
