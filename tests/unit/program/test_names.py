"""Names: whatever the language accepts works, whatever C, CUDA C++, the prelude or our own variables are called."""

import keyword
import re
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.sparse import csr_array

import tensorwise as tw
from tensorwise.errors import InputError
from tensorwise.lower.builder import RESERVED
from tensorwise.lower.program import PlanKey, Program, kernel_text, program_for
from tensorwise.program.workload import Workload, einsum_workload
from tensorwise.runtime.generated import BoundProgram
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.toolchain.cache import PRELUDE, default_cache

SCHEDULES = (
    ("{i},{k} -> U({i}) C({k})", "parallel({i},dynamic,4) tile({j},2x4)"),
    ("{i},{k} -> U({i}1) U({i}0:32) C({k})", "split({i},32) reorder({i}1,{i}0,{j},{k})"),
    ("{i},{k} -> C({k}) U({i})", "reorder({k},{i},{j}) parallel({k},dynamic,2,private)"),
)
OWN = (
    "A C N lo hi main stop end acc total fits rest ahead first inside place left ap av ae k i0 watched given_ sizes buffers "
    "S_ N_ n_A A_values A_pos1 A1_pos C_values TW_SYMBOL f64x4 int64_t e_p _x __builtin_trap tw_f32x4 errno"
)


def matrix() -> Entries:
    rng = np.random.default_rng(0)
    return entries_from(((rng.random((70, 11)) < 0.3) * rng.standard_normal((70, 11))).astype(np.float32))


def usable(word: str) -> bool:
    return not keyword.iskeyword(word) and not keyword.issoftkeyword(word)


def words() -> tuple[list[str], list[str]]:
    """Names of tensors and of indices: of C and CUDA, of the prelude, of ours."""
    prelude = sorted(set(re.findall(r"\b[A-Za-z_]\w{2,30}\b", PRELUDE)))[::40]
    everything = [*dict.fromkeys([*sorted(RESERVED), *OWN.split(), *prelude])]
    every = [word for word in everything if usable(word)]
    return every, [word for word in every if re.fullmatch("[A-Za-z]+", word)]


def cases() -> Iterator[tuple[Workload, Program]]:
    """Each name is a sparse and a dense operand and the output, each index is free, stored and reduced."""
    tensors, indices = words()
    entries = matrix()
    for number in range(len(tensors)):
        i, j, k = (indices[(number + place) % len(indices)] for place in range(3))
        names = [tensors[(number + place + 7) % len(tensors)] for place in range(3)]
        a, b, c = (name if name not in (i, j, k) else f"{name}_" for name in names)
        c = c.lstrip("_") or "C"
        if len({a, b, c}) < 3:
            continue
        work = einsum_workload(f"{c}[{i},{j}] += {a}[{i},{k}] * {b}[{k},{j}]", {a: entries}, {j: 5})
        format, schedule = SCHEDULES[number % len(SCHEDULES)]
        spelled = f"({format.format(i=i, k=k)}".replace(" ->", ") ->")
        yield work, program_for(work, spelled, schedule.format(i=i, j=j, k=k))


def test_names_of_tensors_and_indices_that_others_have() -> None:
    drawn = list(cases())
    assert len(drawn) > 100
    plans = [program.plan(work.elem, sizes=work.sizes) for work, program in drawn]
    default_cache().get([kernel_text(PlanKey(plan))[0] for plan in plans], on_error="none")
    for work, program in drawn:
        operands, out = work.operands(np.random.default_rng(1)), np.full((70, 5), np.nan, np.float32)
        BoundProgram(program, work, 2).run(operands, out)
        assert work.reference(operands).mismatch(out) is None, program.name


@pytest.mark.parametrize(("i", "k"), [("p", "v"), ("v", "e"), ("e", "p")])
def test_variables_are_not_called_like_sizes(i: str, k: str) -> None:
    """A position of S_ would be s_p, as the extent of the inner part of p is."""
    work = einsum_workload(f"C[{i}] += S_[{i},{k}] * B[{k}]", {"S_": matrix()}, {})
    for format, schedule in (
        (f"({i},{k}) -> U({i}1) U({i}0:32) C({k})", f"split({i},32)"),
        (f"({i},{k}) -> U({i}) C({k}1) C({k}0:32)", f"split({k},32) reorder({i},{k}1,{k}0)"),
    ):
        out, operands = np.full(70, np.nan, np.float32), work.operands(np.random.default_rng(1))
        BoundProgram(program_for(work, format, schedule), work, 2).run(operands, out)
        assert work.reference(operands).mismatch(out) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("C[i,j] += i[i,k] * B[k,j]", "i names both an operand and an index"),
        (
            "C[i,j] += A[i,k] * k[k,j]",
            "k is an operand, and the number of one of its entries is the first index",
        ),
        (
            "C[i,j] += A[i,k] * k[j,i]",
            "k is an operand, and the number of one of its entries is the first index",
        ),
        ("C[i] += A[k,i] * k[i,j]", "only dense tensors have a row for each of its entries"),
        ("C[i] += A[i,k] * i[k]", "uses i as an index, so that it has to be a sparse operand"),
        ("C[i] += lambda[i,k] * x[k]", "cannot read"),
        ("C[i] += A[i,k] * None[k]", "cannot read"),
        ("C[True] += A[True,k] * x[k]", "cannot read"),
        ("C[i] += A[i,k] * μ[k]", "cannot use the names"),
        ("C[é] += A[é,k] * x[k]", "cannot use the names"),
        ("C[i_] += A[i_,k] * x[k]", "indices are letters"),
        ("_C[i] += A[i,k] * x[k]", "cannot read"),
    ],
)
def test_names_that_cannot_be_used_are_refused(text: str, message: str) -> None:
    a = csr_array(np.eye(4, dtype=np.float32))
    names = dict.fromkeys(("A", "k", "i", "lambda"), a)
    given = {name: operand for name, operand in names.items() if f" {name}[" in text}
    if text.endswith("i[k]"):
        given["i"] = (4,)  # type: ignore[assignment]
    with pytest.raises(InputError, match=message):
        tw.compile(text, operands=given or {"A": a})
