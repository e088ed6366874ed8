"""Targets: programs of CPUs import nothing of a GPU, and a schedule that deals loops to one finds it by name."""

import subprocess
import sys

import pytest

from tensorwise.errors import ScheduleError
from tensorwise.lower import ir, target
from tensorwise.lower.plan import Plan
from tensorwise.lower.program import Program
from tensorwise.program.einsum import Einsum
from tensorwise.program.schedule import Schedule
from tensorwise.tensor.format import Format

SPMM = Einsum.parse("C[i,j] += A[i,k] * B[k,j]").single
CSR = {"A": Format.parse("(i,k) -> U(i) C(k)")}
CPU, GPU = "parallel(i,dynamic,64)", "parallel(i,pieces,64) bind(i,block,8) tile(j,1x32) bind(j,thread,32)"


def test_programs_of_cpus_import_nothing_of_gpus() -> None:
    text = """
import sys
from tests.unit.lower.test_target import CPU, CSR, GPU, SPMM, Program, Schedule
def loaded():
    return [name for name in ("gpu", "teams", "pieces", "launch") if "tensorwise.lower." + name in sys.modules]
cpu, gpu = (Program(SPMM, CSR, Schedule.parse(text)) for text in (CPU, GPU))
assert "TW_SYMBOL" in cpu.source() and str(cpu)
assert not loaded() and "tensorwise.lower.cuda" not in sys.modules
assert "__global__" in gpu.source() and str(gpu)
assert len(loaded()) == 4
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_another_target_checks_lowers_and_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a schedule's loops are dealt to is a row: the module that it names is asked."""
    kernel = Program(SPMM, CSR, Schedule.parse(CPU)).lowered()
    asked: list[str] = []

    def check(plan: Plan) -> None:
        asked.append(str(plan.schedule))
        if plan.schedule.tile is None:
            raise ScheduleError("a tile is wanted")

    def lower(plan: Plan) -> ir.LoweredFunction:
        return kernel

    another = target.Target(check, lower, lambda made: f"{len(made.buffers)} buffers")
    monkeypatch.setitem(target.TARGETS._rows, "gpu", another)
    program = Program(SPMM, CSR, Schedule.parse(GPU))
    assert program.lowered() is kernel
    assert program.source() == f"{len(kernel.buffers)} buffers"
    program.plan().check()
    assert asked == [str(program.schedule)]
    with pytest.raises(ScheduleError, match="a tile is wanted"):
        Program(SPMM, CSR, Schedule.parse("bind(i,block,8)")).plan().check()
