"""Operators in files: they come back the same, and nothing that a file holds is believed."""

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors import safe_open
from safetensors.numpy import save_file

import tensorwise as tw
from tensorwise.device.guards import guarded
from tensorwise.device.library import LIBRARY
from tensorwise.errors import InputError
from tensorwise.program.workload import workload
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tuning.operator import Operator, bind, default_kernel
from tensorwise.tuning.saving import MAX_REPORT_CHARACTERS, _checksum

Edit = Callable[[dict[str, object]], None]


def entries(shape: tuple[int, ...], seed: int = 0, dtype: str = "float32") -> Entries:
    rng = np.random.default_rng(seed)
    dense = rng.random(shape) * (rng.random(shape) < 0.2)
    return entries_from(dense.astype(dtype))


def operator(op: str = "spmm", order: int = 2, kernel: str = "tensorwise") -> Operator:
    a = entries((12, 9, 7, 5, 4)[:order])
    work = workload(op, a, n=None if op in ("spmv", "ttv") else 8, mode=1 if op == "mttkrp" else 0)
    return bind(LIBRARY[kernel]() if kernel in LIBRARY else default_kernel(work), work, 1)


def same(a: Operator, b: Operator) -> None:
    operands = a.workload.operands(np.random.default_rng(3))
    first, second = a(*operands), b(*operands)
    if sp.issparse(first):
        first, second = first.toarray(), second.toarray()
    np.testing.assert_array_equal(first, second)


def edited(path: Path, edit: Edit) -> None:
    """Change the description of a saved operator, and mend the checksum."""
    with safe_open(path, framework="numpy") as file:
        description = json.loads(file.metadata()["tensorwise"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    edit(description)
    text = json.dumps(description)
    save_file(arrays, path, metadata={"tensorwise": text, "checksum": _checksum(text, arrays)})


@pytest.mark.parametrize(
    ("op", "order"),
    [("spmv", 2), ("spmm", 2), ("sddmm", 2), ("mttkrp", 3), ("mttkrp", 4), ("mttkrp", 5), ("ttv", 3)],
)
@pytest.mark.parametrize("kernel", ["tensorwise", "scipy"])
def test_round_trip(op: str, order: int, kernel: str, tmp_path: Path) -> None:
    before = operator(op, order, kernel)
    before.save(tmp_path / "o.tw")
    after = tw.load(tmp_path / "o.tw")
    assert (after.kernel, after.format, after.schedule) == (before.kernel, before.format, before.schedule)
    assert (after.workload.op, after.workload.id) == (before.workload.op, before.workload.id)
    assert after.result is None
    assert os.listdir(tmp_path) == ["o.tw"]  # nothing unfinished is left
    same(before, after)


def test_hybrids(tmp_path: Path) -> None:
    made = tw.compile(
        "y[i] += M[i,k] * x[k]", M=entries((12, 9)), format="(i,k) -> U(i) C(k); columns>2/4: (i,k) -> C(i1) C(k) U(i0:4)",
        schedule="parallel(i,balanced,2); reorder(i1,k,i0) unroll(i0)",
    )  # fmt: skip
    made.save(tmp_path / "o.tw")
    after = tw.load(tmp_path / "o.tw")
    assert after.program == made.program
    assert "columns>2/4" in after.format
    same(made, after)


def test_by_hand_with_blocks(tmp_path: Path) -> None:
    made = tw.compile(
        "y[i] max= M[i,k] * x[k]", M=entries((12, 9)), format="(i,k) -> U(i1) C(k1) U(i0:2) U(k0:4)",
        schedule="parallel(i1,balanced,2)", threads=2,
    )  # fmt: skip
    made.save(tmp_path / "o.tw")
    after = tw.load(tmp_path / "o.tw")
    assert after.program == made.program
    same(made, after)


def test_lanes_along_diagonals_from_a_file(tmp_path: Path) -> None:
    rows, columns = 300, 200
    stored = np.arange(columns), np.arange(columns), np.ones(columns, np.float32)
    matrix = sp.csr_array((stored[2], (stored[0], stored[1])), shape=(rows, columns))
    made = tw.compile(
        "C[i,j] += A[i,k] * B[k,j]",
        A=matrix,
        B=(columns, 16),
        format="(i,k) -> C(k-i) U(i)",
        schedule="split(i,3) reorder(k-i,i0,i1,j) tile(i1,1x4)",
        threads=1,
    )
    made.save(tmp_path / "o.tw")
    loaded = tw.load(tmp_path / "o.tw")
    (dense,) = guarded([np.random.default_rng(0).random((columns, 16), np.float32)])
    (out,) = guarded([np.zeros((rows, 16), np.float32)])  # what goes past either ends this process
    np.testing.assert_array_equal(loaded(dense, out=out), matrix @ dense)


def test_special_values_and_empty_operands(tmp_path: Path) -> None:
    for dense in (np.array([[np.nan, 0, np.inf], [0, -np.inf, 0]]), np.zeros((3, 4))):
        work = workload("spmv", entries_from(dense))
        before = bind(default_kernel(work), work, 1)
        before.save(tmp_path / "o.tw")
        np.testing.assert_array_equal(tw.load(tmp_path / "o.tw").workload.entries.values, work.entries.values)


def test_values_of_another_matrix_with_the_same_pattern(tmp_path: Path) -> None:
    before = operator()
    before.save(tmp_path / "o.tw")
    twice = before.workload.entries.with_values(before.workload.entries.values * 2)
    (B,) = before.workload.operands(np.random.default_rng(0))
    np.testing.assert_allclose(tw.load(tmp_path / "o.tw", twice)(B), 2 * before(B), rtol=1e-6)
    with pytest.raises(InputError, match="another matrix"):
        tw.load(tmp_path / "o.tw", entries((12, 9), seed=1))
    with pytest.raises(InputError, match="another matrix"):
        tw.load(tmp_path / "o.tw", entries((9, 12)))


def test_another_machine(tmp_path: Path) -> None:
    path = tmp_path / "o.tw"
    before = operator()
    before.save(path)
    edited(path, lambda d: d["machine"].update(host_id="0" * 32, host="Abacus 3000"))  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"Abacus 3000.*check_machine=False"):
        tw.load(path)
    same(before, tw.load(path, check_machine=False))


def test_threads_are_at_most_what_the_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "o.tw"
    operator().save(path)
    edited(path, lambda d: d.update(threads=512))
    monkeypatch.setenv("TENSORWISE_NUM_THREADS", "1")
    assert tw.load(path).threads == 1


def test_every_flipped_byte_and_every_cut_is_noticed(tmp_path: Path) -> None:
    path, broken = tmp_path / "o.tw", tmp_path / "broken.tw"
    before = operator()
    before.save(path)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in (*range(12), *rng.integers(0, len(data), 60)):
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        broken.write_bytes(changed)
        try:
            after = tw.load(broken)
        except InputError:
            continue
        same(before, after)  # a byte of the header that means nothing, as padding
    for length in (0, 1, 7, 8, 100, len(data) // 2, len(data) - 1):
        broken.write_bytes(data[:length])
        with pytest.raises(InputError):
            tw.load(broken)


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "x.tw"
    with pytest.raises(InputError, match="does not exist"):
        tw.load(path)
    with pytest.raises(InputError, match="regular file"):
        tw.load(tmp_path)
    save_file({"weight": np.ones(3)}, path)
    with pytest.raises(InputError, match="no operator"):
        tw.load(path)
    np.savez(path, a=np.ones(3))
    path.write_text("<html>")
    with pytest.raises(InputError, match="cannot be read"):
        tw.load(path)


EDITS: dict[str, Edit] = {
    "newer layout": lambda d: d.update(schema=99),
    "no layout": lambda d: d.pop("schema"),
    "no schedule": lambda d: d.pop("schedule"),
    "bad schedule": lambda d: d.update(schedule="parallel(q)"),
    "schedule of work without end": lambda d: d.update(schedule="unroll(k,1000000000)"),
    "bad format": lambda d: d.update(formats={"A": "(i,k) -> U(i)"}),
    "format of a list": lambda d: d.update(formats=[1]),
    "other einsum": lambda d: d.update(einsum="C[i] += A[i,k] * B[k]"),
    "einsum no text": lambda d: d.update(einsum=7),
    "op of another einsum": lambda d: d.update(op="spmv"),
    "unknown kernel": lambda d: d.update(kernel="os.system"),
    "kernel of a list": lambda d: d.update(kernel=["scipy"]),
    "no size": lambda d: d.update(sizes={}),
    "negative size": lambda d: d["sizes"].update(j=-4),  # type: ignore[attr-defined]
    "fractional size": lambda d: d["sizes"].update(j=2.5),  # type: ignore[attr-defined]
    "size of another shape": lambda d: d["sizes"].update(i=13),  # type: ignore[attr-defined]
    "smaller shape": lambda d: d["sparse"]["A"].update(shape=[2, 2]),  # type: ignore[index]
    "other pattern": lambda d: d["sparse"]["A"].update(pattern_id="0" * 32),  # type: ignore[index]
    "other dtype": lambda d: d["sparse"]["A"].update(dtype="object"),  # type: ignore[index]
    "no arrays": lambda d: d.update(sparse={"Z": {"shape": [1, 1], "dtype": "float32", "pattern_id": ""}}),
    "no operand": lambda d: d.update(sparse={}),
    "operands of a list": lambda d: d.update(sparse=[1]),
    "too many threads": lambda d: d.update(threads=10**9),
    "no threads": lambda d: d.update(threads=0),
    "threads no number": lambda d: d.update(threads=None),
    "no machine": lambda d: d.pop("machine"),
}


@pytest.mark.parametrize("what", EDITS)
def test_a_malicious_description_is_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / "o.tw"
    operator().save(path)
    edited(path, EDITS[what])
    with pytest.raises(InputError, match=r"o\.tw"):
        tw.load(path)


def test_arrays_that_lead_out_of_the_operand_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "o.tw"
    operator("spmm").save(path)
    with safe_open(path, framework="numpy") as file:
        text = file.metadata()["tensorwise"]
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    columns = arrays["A.1"]
    for changed in (
        columns + np.int32(columns.max() + 1),
        columns - np.int32(1 + columns.max()),
        columns[:-1],
    ):
        wrong = {**arrays, "A.1": np.ascontiguousarray(changed)}
        save_file(wrong, path, metadata={"tensorwise": text, "checksum": _checksum(text, wrong)})
        with pytest.raises(InputError, match=r"o\.tw"):
            tw.load(path)


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        operator().save(tmp_path / "no" / "o.tw")
    with pytest.raises(InputError, match="cannot be written"):
        operator().save(tmp_path)
    assert os.listdir(tmp_path) == []


def test_an_old_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "o.tw"
    operator("spmv").save(path)
    operator("spmm").save(path)
    assert tw.load(path).workload.op == "spmm"


def test_numbers_of_entries_are_saved(tmp_path: Path) -> None:
    """A row of E for each entry is found by its number, also in what is loaded."""
    rng = np.random.default_rng(0)
    stored = entries_from((rng.random((6, 5)) < 0.5) * rng.standard_normal((6, 5)))
    numbered = replace(stored, numbers=rng.permutation(stored.nnz).astype(np.int32))
    each = rng.standard_normal(stored.nnz)
    wanted = np.zeros(6)
    np.add.at(wanted, stored.coordinates[0], stored.values * each[numbered.numbers])
    operator = tw.compile("C[i] += A[i,k] * E[A]", A=numbered)
    np.testing.assert_allclose(operator(each), wanted)
    operator.save(tmp_path / "numbered.tw")
    np.testing.assert_allclose(tw.load(tmp_path / "numbered.tw")(each), wanted)
    np.testing.assert_allclose(tw.load(tmp_path / "numbered.tw", stored)(each), wanted)


def test_the_report_is_saved_with_the_operator(tmp_path: Path) -> None:
    tuned = tw.tune(entries((30, 20)), "spmv", trials=1, budget_s=5, threads=1, store=False)
    tuned.save(tmp_path / "o.tw")
    loaded = tw.load(tmp_path / "o.tw")
    assert loaded.report() == tuned.report()
    assert pickle.loads(pickle.dumps(loaded)).report() == tuned.report()  # noqa: S301
    with pytest.raises(InputError, match="write the page where it is tuned"):
        loaded.report().save(tmp_path / "r.html")
    for report, shown in (("a\x1b[2Jb\nc", "a[2Jb\nc"), ("x" * 200_000, "x" * MAX_REPORT_CHARACTERS)):
        edited(tmp_path / "o.tw", lambda it, text=report: it.update(report=text))  # type: ignore[misc]
        assert tw.load(tmp_path / "o.tw").report() == shown
    edited(tmp_path / "o.tw", lambda it: it.pop("report"))  # as files of before have none
    old = tw.load(tmp_path / "o.tw")
    assert old.report() == repr(old)
