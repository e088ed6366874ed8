"""GPU programs without a GPU: interpreted, and as CUDA text thread by thread, against the dense reference."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tensorwise.lower.program import PlanKey
from tensorwise.program.workload import Workload, workload
from tensorwise.runtime.interpreted import InterpretedKernel
from tensorwise.runtime.kernel import BoundKernel
from tensorwise.runtime.launched import BoundLaunched, LaunchedKernel, cuda_text
from tensorwise.space.cuda import cuda_space
from tensorwise.toolchain.cubin import resources
from tensorwise.toolchain.gpu import PRELUDE, source
from tests.simt.cases import CASES, Case, entries
from tests.simt.gpu import COMPILER, STREAM, ShimGpu
from tests.unit.space.test_cuda import WORKLOADS

KINDS = ("drawn", "empty", "rows")
NVCC = shutil.which("nvcc")


def _order(case: Case) -> int:
    return case.format.partition(")")[0].count(",") + 1


def _workload(case: Case, kind: str, seed: int = 0, dtype: str = "f4") -> Workload:
    return case.workload(entries(_order(case), kind, np.random.default_rng(seed), dtype))


def _mismatch(bound: BoundKernel, workload: Workload, seed: int) -> str | None:
    operands = workload.operands(np.random.default_rng(seed))
    out = np.empty(workload.output_shape, workload.output_dtype)
    out.fill(np.nan if out.dtype.kind == "f" else -7)
    bound.run(operands, out)
    return workload.reference(operands).mismatch(out)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_interpreter_agrees_with_the_reference_and_sees_no_race(case: Case) -> None:
    rng = np.random.default_rng(1)
    for kind in KINDS:
        workload = _workload(case, kind)
        assert (
            _mismatch(InterpretedKernel(case.program(workload), rng).bind(workload), workload, 2) is None
        ), kind


@pytest.fixture(scope="module")
def bound(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, str, str], tuple[BoundLaunched, Workload]]:
    """Every case on every operand, bound before the first runs: they are compiled together."""
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    gpu = ShimGpu(tmp_path_factory.mktemp("simt"))
    found = {}
    for number, case in enumerate(CASES):
        for kind in KINDS:
            workload = _workload(
                case, kind, dtype="f8" if number % 7 == 3 and "bound" not in case.schedule else "f4"
            )
            kernel = LaunchedKernel(case.program(workload), gpu).bind(workload)
            found[str(case), kind, workload.elem] = kernel, workload
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cuda_text_run_thread_by_thread_agrees_with_the_reference(
    case: Case, bound: dict[tuple[str, str, str], tuple[BoundLaunched, Workload]]
) -> None:
    mine = {key: value for key, value in bound.items() if key[0] == str(case)}
    assert len(mine) >= len(KINDS)
    for (_, kind, elem), (kernel, work) in mine.items():
        assert _mismatch(kernel, work, 3) is None, (kind, elem)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_addresses_do_as_well_as_arrays(
    case: Case, bound: dict[tuple[str, str, str], tuple[BoundLaunched, Workload]]
) -> None:
    for (name, kind, _), (kernel, work) in bound.items():
        if name != str(case):
            continue
        operands = [
            np.ascontiguousarray(operand.T if by_columns else operand)
            for operand, (_, by_columns) in zip(
                work.operands(np.random.default_rng(4)), kernel.dense, strict=True
            )
        ]
        out = np.full(work.output_shape, 7, work.output_dtype)
        addresses = {name: one.ctypes.data for one, (name, _) in zip(operands, kernel.dense, strict=True)}
        assert kernel.at is not None
        kernel.at({**addresses, "out": out.ctypes.data}, STREAM)
        if kernel.unreached is not None:
            out.reshape(-1)[kernel.unreached] = 0
        assert work.reference(work.operands(np.random.default_rng(4))).mismatch(out) is None, kind


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_what_the_space_draws_is_right_as_cuda_text(tmp_path: Path) -> None:
    gpu, rng = ShimGpu(tmp_path), np.random.default_rng(7)
    drawn = []
    for work in WORKLOADS:
        space = cuda_space(work.assignment)
        configs = (config for config in (space.sample(work, rng) for _ in range(200)))
        small = [config for config in configs if (config["threads"] or 1) * config["teams"] <= 128][:3]
        for config in small:
            drawn.append((config, work, LaunchedKernel(space.program(work, config), gpu).bind(work)))
    assert len(drawn) > 2 * len(WORKLOADS)
    for config, work, kernel in drawn:
        assert _mismatch(kernel, work, 3) is None, (str(work.assignment), config)


def test_a_launch_whose_threads_wait_for_ever_is_reported(tmp_path: Path) -> None:
    from tensorwise.errors import MeasurementError

    if COMPILER is None:
        pytest.skip("no C++ compiler")
    gpu = ShimGpu(tmp_path)
    body = 'extern "C" __global__ void TW_SYMBOL_0() { if (threadIdx.x) tw_meet<4>(); }'
    name = gpu.load(source(body, "int"), ["tw_kernel_0"])["tw_kernel_0"]
    with pytest.raises(MeasurementError, match="for ever"):
        gpu.launch(name, (1, 1), (4, 1), [])


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_cuda_text_compiles(arch: str, tmp_path: Path) -> None:
    """A few programs of each group; ptxas reports registers and spills of every launch."""
    texts = []
    for number, case in enumerate(CASES[::9] if arch == "sm_80" else CASES[::25]):
        workload = _workload(case, "drawn", dtype="f8" if number % 2 else "f4")
        program = case.program(workload)
        plans = [part.plan(workload.elem, sizes=workload.sizes, masked=True) for part in program.parts]
        texts += [
            cuda_text(PlanKey(plan))[0].replace("TW_SYMBOL", f"k{len(texts)}_{n}")
            for n, plan in enumerate(plans)
        ]
    said = _assembled("\n".join([f"#define TW_INT int\n{PRELUDE}", *texts]), arch, tmp_path)
    assert len(re.findall(r"Used \d+ registers", said)) == sum(text.count("__global__") for text in texts)


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
def test_what_the_space_draws_does_not_spill(tmp_path: Path) -> None:
    """Its budget of registers is an estimate; ptxas knows."""
    rng, texts = np.random.default_rng(5), []
    work = workload("spmm", entries(2, "drawn", rng), n=256)
    space = cuda_space(work.assignment)
    for number, config in enumerate([space.default(work), *(space.sample(work, rng) for _ in range(9))]):
        plan = space.program(work, config).plan(work.elem, sizes=work.sizes)
        texts.append(cuda_text(PlanKey(plan))[0].replace("TW_SYMBOL", f"k{number}"))
    said = _assembled("\n".join([f"#define TW_INT int\n{PRELUDE}", *texts]), "sm_80", tmp_path)
    assert set(re.findall(r"(\d+) bytes spill stores", said)) == {"0"}
    told = resources((tmp_path / "all.cubin").read_bytes())
    assert told == (max(map(int, re.findall(r"Used (\d+) registers", said))), 0)


@pytest.mark.skipif(NVCC is None, reason="no nvcc")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_machine_code_tells_registers_and_spills(arch: str, tmp_path: Path) -> None:
    """An array whose places are known at run time only lies in memory, as what is spilled does."""
    body = "float a[64]; for (int i = 0; i < n; ++i) a[i % 64] = x[i]; x[n] = a[n % 64] + a[n % 7];"
    said = _assembled(f'extern "C" __global__ void kept(float *x, int n) {{ {body} }}', arch, tmp_path)
    (frame,), (registers,) = (
        re.findall(r"(\d+) bytes stack frame", said),
        re.findall(r"Used (\d+) registers", said),
    )
    assert int(frame) > 0
    assert resources((tmp_path / "all.cubin").read_bytes()) == (int(registers), int(frame))


def _assembled(text: str, arch: str, folder: Path) -> str:
    """Compile CUDA text for one kind of GPU; return what ptxas says of registers, spills and shared memory."""
    file = folder / "all.cu"
    file.write_text(text)
    command = [
        NVCC or "nvcc",
        f"-arch={arch}",
        "-cubin",
        "-Xptxas",
        "-v",
        "-o",
        str(folder / "all.cubin"),
        str(file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return done.stderr
