"""The C that this package generates and ships gives the right numbers on an emulated aarch64 processor.

``TENSORWISE_AARCH64=full`` runs the whole table, SVE, and more random programs; ``make test-aarch64`` and ``.ci/long`` set
it. Without an emulator the sample is skipped; the full run fails, so that nobody takes it for a pass.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.errors import FormatError, ScheduleError
from tensorwise.lower.program import program_for
from tensorwise.program.workload import Workload, workload
from tensorwise.sparse.kernels import COMPRESSED_KERNELS, SHAPES, SLICED_KERNELS, KernelShape
from tensorwise.sparse.library import library
from tensorwise.sparse.prebuilding import build_level
from tensorwise.sparse.prebuilt import MANIFEST, PROCESSOR_LEVELS
from tensorwise.sparse.prepare import kernel_of
from tensorwise.sparse.slices import sliced_ways
from tensorwise.tensor import orders
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import value_dtype
from tensorwise.tensor.entries import Entries
from tests.aarch64.emulated import CC, EMULATOR, HERE, NEON, SVE, Emulated, bind, emulated, missing, symbol_of
from tests.oracle.cases import draw
from tests.oracle.judge import FRAME, poisoned

FULL: Final = os.environ.get("TENSORWISE_AARCH64") == "full"
if FULL and missing():
    raise RuntimeError(f"TENSORWISE_AARCH64=full needs an emulated aarch64 processor: {missing()}")
pytestmark = pytest.mark.skipif(missing() is not None, reason=f"aarch64 is emulated by qemu: {missing()}")
THREADS: Final = 3
SEEDS: Final = 300 if FULL else 12
"""Random programs that are drawn; about a third is refused."""
DTYPES: Final = ("float32", "float64", "float16", "bfloat16")
MATRICES: Final = {
    "CSR": ("U(i) C(k)", "reorder(i,k{j}) parallel(i,balanced,4){tile}"),
    "CSR, along entries": ("U(i) C(k)", "reorder(i{j},k) parallel(i,balanced,4) tile(k,1x8)"),
    "CSR, 16-bit": ("U(i) C16(k)", "reorder(i,k{j}) parallel(i,dynamic,2) unroll(k,2){tile}"),
    "CSR, merge path": ("U(i) C(k)", "reorder(i,k{j}) parallel(i,merge-path,2){tile}"),
    "CSC": ("U(k) C(i)", "reorder(k,i{j}) parallel(k,balanced,4,private){tile}"),
    "CSC, atomic": ("U(k) C(i)", "reorder(k,i{j}) parallel(k,dynamic,4,atomic)"),
    "COO": ("N(i) S(k)", "reorder(i,k{j}){tile}"),
    "BCSR": ("U(i1) C(k1) U(i0:4) U(k0:4)", "split(i,4) split(k,4) reorder(i1,k1,i0,k0{j}) unroll(i0)"),
    "CSF": ("C(i) C(k)", "reorder(i,k{j}){tile}"),
    "SELL": ("U(i1) P(k#) U(i0:8) S(k)", "split(i,8) reorder(i1,k#,i0{j}) tile(i0,1x8)"),
    "DIA": ("U(i1) C(k-i) U(i0:16)", "split(i,16) reorder(i1,k-i,i0{j}) tile(i0,1x4)"),
    "bit masks": ("U(i1) C(k) B(i0:8)", "split(i,8) reorder(i1,k,i0{j})"),
}
"""Name -> format of A[i,k] and a schedule; ``{j}`` is the loop of a dense operand's columns, ``{tile}`` its vectors."""
TENSORS: Final = {
    "CSF": ("C(i) C(k) C(l)", "reorder(i,k,l,r) parallel(i,dynamic,2) tile(r,2x4)"),
    "CSF, other order": ("U(k) C(l) C(i)", "reorder(k,l,i,r) tile(r,1x8)"),
    "COO": ("N(i) S(k) S(l)", "reorder(i,k,l,r) tile(r,1x4)"),
}


@pytest.fixture(scope="module")
def machine() -> Iterator[Emulated]:
    with emulated(NEON) as one:
        yield one


def matrix(dtype: str, shape: tuple[int, ...] = (53, 47)) -> Entries:
    rng = np.random.default_rng(7)
    count = int(np.prod(shape)) // 12
    flat = np.unique(rng.integers(0, np.prod(shape), count))
    values = rng.standard_normal(len(flat)).astype(value_dtype(dtype))
    return entries_from((shape, np.unravel_index(flat, shape), values))


def _other(index: "re.Match[str]") -> str:
    return "j" if index[0] == "k" else "k"


def table() -> list[tuple[str, Workload, str, str]]:
    """Operations x element types x formats; a sample has each format, and each element type, with each operation."""
    rows = []
    for number, (dtype, (name, (levels, schedule))) in enumerate(product(DTYPES, MATRICES.items())):
        for place, op in enumerate(("spmv", "spmm", "sddmm")):
            if not FULL and (number + place) % len(DTYPES) != number // len(MATRICES):
                continue
            if op == "sddmm" and "along entries" in name:  # it sums along its dense index
                continue
            nest = schedule.format(
                j="" if op == "spmv" else ",j", tile="" if op == "spmv" else " tile(j,2x4)"
            )
            work = workload(op, matrix(dtype), n=None if op == "spmv" else 19)
            format = f"(i,k) -> {levels}"
            if op == "sddmm":  # A's columns are called j there, and what is summed k; its padding is masked
                nest = re.sub(r" tile\(i0,\w+\)", "", nest)
                format, nest = (re.sub(r"\b[jk](?=[#\d,:)-])", _other, text) for text in (format, nest))
            rows.append((f"{op} {dtype} {name}", work, format, nest))
    for dtype, (name, (levels, schedule)) in product(DTYPES, TENSORS.items()):
        work = workload("mttkrp", matrix(dtype, (13, 11, 9)), n=10)
        rows.append((f"mttkrp {dtype} {name}", work, f"(i,k,l) -> {levels}", schedule))
    return rows


def check(machine: Emulated, rows: list[tuple[str, Workload, str, str]]) -> dict[str, str]:
    """Pack, compile and run; return what is wrong by name, refused schedules among it."""
    wrong, bound = {}, {}
    with machine.packing():
        for name, work, format, schedule in rows:
            try:
                bound[name] = bind(program_for(work, format, schedule), work, THREADS), work
            except (FormatError, ScheduleError) as error:
                wrong[name] = f"refused: {error}"
    machine.compile([text for one, _ in bound.values() for text in one.texts])
    rng = np.random.default_rng(3)
    for name, (one, work) in bound.items():
        operands = [
            rng.standard_normal(work.shape(dense)).astype(work.dtype_of(dense)) for dense in work.dense
        ]
        out = np.full(work.output_shape, np.nan, work.output_dtype)
        machine.run(one, operands, out)
        if problem := work.reference(operands).mismatch(out):
            wrong[name] = problem
    return wrong


def test_operations_element_types_and_formats(machine: Emulated) -> None:
    assert check(machine, table()) == {}
    assert machine.call("tw_workers") == THREADS - 1


def test_random_programs(machine: Emulated) -> None:
    cases = []
    for seed in range(SEEDS):
        try:
            case = draw(seed)
            cases.append((case, bind(case.program, case.workload, THREADS)))
        except (FormatError, ScheduleError):
            continue
    assert len(cases) > SEEDS / 4
    machine.compile([text for _, one in cases for text in one.texts])
    wrong = {}
    for case, one in cases:
        out, frame = poisoned(case)
        before = frame.copy()
        machine.run(one, case.operands, out)
        factored = any(part.schedule.factor for part in case.program.parts)
        if problem := case.workload.reference(case.operands).mismatch(out, factored=factored):
            wrong[case.seed] = f"{case}\n{problem}"
        frame[FRAME : FRAME + out.size] = before[FRAME : FRAME + out.size]
        assert np.array_equal(frame, before, equal_nan=True)
    assert wrong == {}


@pytest.mark.parametrize("bits", [128, 256, 512] if FULL else [256])
def test_scalable_vectors(bits: int) -> None:
    names = (
        "spmv float64 CSR",
        "spmm float32 CSR",
        "spmm bfloat16 CSC",
        "sddmm float16 SELL",
        "mttkrp float32 CSF",
    )
    rows = [row for row in table() if FULL or row[0].startswith(names)]
    switches = ",".join(f"sve{width}={'on' if width <= bits else 'off'}" for width in (128, 256, 512))
    with emulated(SVE, {"QEMU_CPU": f"max,{switches}"}) as machine:
        assert check(machine, rows) == {}


def test_conversions_of_halves(machine: Emulated) -> None:
    source = machine.folder / "halves.c"
    prelude = HERE.parents[1] / "tensorwise" / "toolchain" / "prelude.h"
    source.write_text(f'#include "{prelude}"\n{(HERE / "halves.c").read_text()}')
    machine.open("halves", source)
    assert machine.call("halves_wrong") == 0
    assert machine.call("brain_halves_wrong") == 0


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "rectangular"])
def test_orders(machine: Emulated, symmetric: bool) -> None:
    """The order of reverse Cuthill-McKee is the same on every processor."""
    machine.clear()
    machine.open(f"orders-{symmetric}", Path(orders.__file__).with_suffix(".c"))
    shape = (211, 211) if symmetric else (190, 233)
    given = sp.random_array(shape, density=0.012, rng=np.random.default_rng(11))
    entries = entries_from(given + given.T if symmetric else given)
    vertices, expected = orders.reverse_cuthill_mckee_plain(entries)
    row, column = (machine.array(one.astype(np.int32)) for one in entries.coordinates)
    order = machine.array(np.full(sum(shape), -1, np.int32))
    addresses = (array.ctypes.data for array in (row, column, order))
    found = machine.call("tw_order_reverse_cuthill_mckee", *shape, entries.nnz, *addresses)
    assert found == vertices == (shape[0] if symmetric else sum(shape))
    np.testing.assert_array_equal(order[:found], expected)


def test_driver_under_contention(machine: Emulated) -> None:
    """The program that the thread sanitizer checks on the host: the code path of another processor's atomics."""
    folder, toolchain = machine.folder, HERE.parents[1] / "tensorwise" / "toolchain"
    race = HERE.parent / "unit" / "toolchain" / "race.c"
    built = [*machine.compiler.command, "-O2", "-std=gnu11", "-pthread", "-w", "-static", f"-I{toolchain}"]
    subprocess.run([*built, toolchain / "runtime.c", race, "-o", folder / "race"], check=True)
    ran = subprocess.run([EMULATOR, folder / "race"], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr


@pytest.mark.parametrize("element", ["f64", "f32"])
def test_products_in_place(machine: Emulated, element: str) -> None:
    dtype = np.dtype({"f64": np.float64, "f32": np.float32}[element])
    shapes = [shape for shape in SHAPES if FULL or shape.columns in ("vector", "short", "wide", "8")]
    kernels = {shape: kernel_of(shape, element, "i32") for shape in shapes}
    machine.compile([text for text, _, _ in kernels.values()])
    rng = np.random.default_rng(5)
    given = sp.random_array((61, 67), density=0.1, format="csr", rng=rng, dtype=dtype)
    for shape, (text, buffers, sizes) in kernels.items():
        width = (
            ()
            if shape.columns in ("vector", "short")
            else (int(shape.columns) if shape.columns.isdecimal() else 37,)
        )
        lines, minor = given.shape
        x = rng.standard_normal((minor if shape.gather else lines, *width)).astype(dtype)
        expected = (given if shape.gather else given.T) @ x
        out = np.full(expected.shape, np.nan, dtype)
        took = multiply(machine, given, shape, symbol_of(text), tuple(buffers), sizes, x, out)
        assert took >= 0, shape.name
        np.testing.assert_allclose(
            out, expected, rtol=1e-4 if element == "f32" else 1e-12, atol=1e-5, err_msg=shape.name
        )


def test_products_by_prebuilt_kernels(machine: Emulated, tmp_path: Path) -> None:
    """The level ``aarch64``, as ``tensorwise-kernels`` holds it: kernels and their table."""
    folder = build_level(PROCESSOR_LEVELS["aarch64"], tmp_path, CC, [COMPRESSED_KERNELS], ["f64"])
    table = json.loads((folder / MANIFEST).read_text())["tables"]["compressed"]["kernels"]
    rng = np.random.default_rng(9)
    given = sp.random_array((53, 71), density=0.1, format="csr", rng=rng)
    for path in sorted(folder.glob("*-i32.so")):
        machine.ask("open", path)
    for shape in SHAPES:
        row = table[f"f64-i32-{shape.name}"]
        width = (
            ()
            if shape.columns in ("vector", "short")
            else (int(shape.columns) if shape.columns.isdecimal() else 37,)
        )
        x = rng.standard_normal((given.shape[int(shape.gather)], *width))
        expected = (given if shape.gather else given.T) @ x
        out = np.full(expected.shape, np.nan)
        arguments = tuple(row["buffers"]), tuple(row["sizes"]), x, out
        assert multiply(machine, given, shape, f"tw_{row['key']}", *arguments) >= 0, shape.name
        np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12, err_msg=shape.name)


def multiply(
    machine: Emulated,
    given: sp.csr_array,
    shape: KernelShape,
    symbol: str,
    buffers: tuple[str, ...],
    size_names: tuple[str, ...],
    x: np.ndarray,
    out: np.ndarray,
) -> int:
    """Call ``tw_multiply`` with a way laid out as ways.py does; array objects are made by hand."""
    machine.clear()
    threads = THREADS if shape.parallel else 1
    parts = 4 * threads
    indptr, indices, data = map(machine.array, (given.indptr, given.indices, given.data))
    bounds = machine.array(np.zeros(parts + 1, np.int64))
    machine.call("tw_bounds", indptr.ctypes.data, 0, given.shape[0], parts, bounds.ctypes.data)
    extents = {
        "N_i": given.shape[0],
        "N_k": given.shape[1],
        "N_j": out.size // len(out),
        "threads": threads,
        "parts": parts,
    }
    sizes = machine.array(np.array([threads, 1, parts, *(extents[name] for name in size_names)], np.int64))
    pointers = np.zeros(16, np.int64)
    pointers[:2] = machine.ask("address", "tw_parallel"), bounds.ctypes.data
    place = {name: 2 + number for number, name in enumerate(buffers)}
    if "work" in place:
        pointers[place["work"]] = machine.array(np.zeros(threads * out.size, out.dtype)).ctypes.data

    def held(array: np.ndarray) -> int:
        """An array object's fields: data, dimensions, their number and strides."""
        lengths = machine.array(np.array([*array.shape, *array.strides], np.int64)).ctypes.data
        fields = [array.ctypes.data, array.ndim, lengths, lengths + 8 * array.ndim]
        return machine.array(np.array(fields, np.int64)).ctypes.data

    inside, result = machine.array(x), machine.array(out)
    way = [
        *(machine.ask("address", symbol), sizes.ctypes.data, 0, held(indptr), held(indices), held(data)),
        *(given.shape[0], 0, out.dtype.itemsize - 1),
        *(place[name] for name in ("A1_pos", "A1_crd", "A_values", "B_values", "out")),
        *(threads, 1, int("work" in place), 0, 0, 0),
        *pointers,
    ]
    took = machine.call(
        "tw_multiply", machine.array(np.array(way, np.int64)).ctypes.data, held(inside), held(result)
    )
    out[...] = result
    return took


def test_new_values(machine: Emulated) -> None:
    machine.clear()
    rng, driver = np.random.default_rng(1), machine.ask("address", "tw_parallel")
    for dtype, index in product((np.float32, np.float64), (np.int32, np.int64)):
        given = machine.array(rng.standard_normal(500).astype(dtype))
        source = machine.array(rng.integers(0, 501, 700).astype(index))
        out = machine.array(np.full(700, np.nan, dtype))
        wide = int(index is np.int64)
        values, size = given.ctypes.data, given.itemsize
        machine.call("tw_update", driver, 3, 700, source.ctypes.data, wide, values, size, out.ctypes.data)
        np.testing.assert_array_equal(out, np.concatenate([[0], given])[source])
        order = machine.array(rng.permutation(500).astype(index))
        starts = machine.array(np.arange(0, 501, 5).astype(index))
        sums = machine.array(np.full(100, np.nan, dtype))
        addresses = order.ctypes.data, starts.ctypes.data, wide, values, size, sums.ctypes.data
        machine.call("tw_update_add", driver, 3, 100, *addresses)
        wanted = np.add.reduceat(given[order].astype(np.float64), starts[:-1]).astype(dtype)
        np.testing.assert_allclose(sums, wanted, rtol=1e-6)


@pytest.mark.parametrize("element", ["f64", "f32"])
@pytest.mark.parametrize("minor", [67, 70_000])
def test_slices(machine: Emulated, minor: int, element: str) -> None:
    """Packed by the emulated routines as by the host's, and read by the emulated kernel."""
    dtype = np.dtype({"f64": np.float64, "f32": np.float32}[element])
    assert library(True, SLICED_KERNELS) is not None
    rng = np.random.default_rng(7)
    lengths = rng.integers(0, 20, 603)
    indptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    indices = rng.integers(0, minor, indptr[-1]).astype(np.int32)
    data = rng.standard_normal(indptr[-1]).astype(dtype)
    (way,) = sliced_ways((data, indices, indptr), minor, True, THREADS, alone=False)
    host, rows = way.packed, len(lengths)
    shape = KernelShape(True, "vector", slices=f"ordered-{'S16' if minor < 2**16 else 'S'}")
    text, buffers, size_names = kernel_of(shape, element, "i32", 16)
    machine.clear()
    machine.compile([text])
    driver = machine.ask("address", "tw_parallel")
    data, indices, indptr = map(machine.array, (data, indices, indptr))
    packed = {
        name: machine.array(np.zeros_like(array))
        for name, array in zip(
            ("A_i_order", "A1_pos", "A3_crd", "A_values"),
            (host._order, host._positions, host._columns, host._values),
            strict=True,
        )
    }
    order, positions, columns, values = packed.values()
    where = order.ctypes.data, positions.ctypes.data
    slots = machine.call("tw_slice_rows", indptr.ctypes.data, 0, rows, 4, *where)
    assert 4 * slots == values.size
    given = indptr.ctypes.data, indices.ctypes.data, 0, rows, 4, *where
    machine.call("tw_slice_columns", driver, THREADS, *given, columns.itemsize, columns.ctypes.data)
    given = indptr.ctypes.data, 0, rows, 4, *where
    to = dtype.itemsize, values.ctypes.data
    machine.call("tw_slice_values", driver, THREADS, *given, 0, data.ctypes.data, *to)
    numbers = machine.array(np.zeros(values.size, np.int32))
    machine.call("tw_slice_numbers", driver, THREADS, *given, 0, numbers.ctypes.data)
    values[:] = np.nan
    machine.call("tw_update", driver, THREADS, values.size, numbers.ctypes.data, 0, data.ctypes.data, *to)
    for mine, one in zip(packed.values(), (host._order, host._positions, host._columns, host._values)):
        np.testing.assert_array_equal(mine, one)
    x, out = (
        machine.array(rng.standard_normal(minor).astype(dtype)),
        machine.array(np.full(rows, np.nan, dtype)),
    )
    places = {**packed, "B_values": x, "out": out}
    pointers = machine.array(np.array([driver, 0, *(places[name].ctypes.data for name in buffers)], np.int64))
    extents = {"N_i": rows, "N_k": minor}
    sizes = machine.array(np.array([1, 1, 0, *(extents[name] for name in size_names)], np.int64))
    assert machine.call(symbol_of(text), pointers.ctypes.data, sizes.ctypes.data) & 0xFFFFFFFF == 0
    expected = sp.csr_array((data, indices, indptr), shape=(rows, minor)) @ x
    np.testing.assert_allclose(out, expected, rtol=1e-4 if element == "f32" else 1e-12, atol=1e-4)
