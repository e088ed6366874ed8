"""The checker accepts every right output and finds the mistakes kernels make."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorwise.device import verify
from tensorwise.device.expectation import expected, restricted, subset
from tensorwise.device.library import LIBRARY
from tensorwise.device.verify import Checker, poison
from tensorwise.errors import InputError
from tensorwise.program.einsum import Einsum
from tensorwise.program.workload import Workload, workload
from tests.unit.device import cases

CASES = dict(cases.workloads(np.random.default_rng(21)))
SAMPLED = {"full_terms": -1, "full_elements": -1, "sample_terms": 60}
LARGE = {
    "spmm": workload("spmm", cases.tensor((400, 300), 3000, np.random.default_rng(1)), n=24),
    "sddmm": workload("sddmm", cases.tensor((400, 300), 3000, np.random.default_rng(2)), n=24),
    "mttkrp": workload("mttkrp", cases.tensor((200, 30, 20), 3000, np.random.default_rng(3)), n=12),
    "mttkrp mode 2": workload(
        "mttkrp", cases.tensor((20, 30, 200), 3000, np.random.default_rng(4)), n=12, mode=2
    ),
    "mttkrp order 4": workload("mttkrp", cases.tensor((150, 9, 8, 7), 2000, np.random.default_rng(5)), n=12),
    "ttm": workload("ttm", cases.tensor((40, 30, 20), 3000, np.random.default_rng(6)), n=12),
    "spmm float64": workload(
        "spmm", cases.tensor((400, 300), 3000, np.random.default_rng(7), "float64"), n=24
    ),
}


def right(work: Workload, operands: list[np.ndarray]) -> np.ndarray:
    """An output with the rounding errors of its dtype."""
    out = np.empty(work.output_shape, work.output_dtype)
    LIBRARY["scipy"]().bind(work, 1).run(operands, out)
    return out


def checker(work: Workload, operands: list[np.ndarray], seed: int = 0, **limits: int) -> Checker:
    return Checker(work, operands, np.random.default_rng(seed), **limits)


@pytest.mark.parametrize("spoil", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_fast_expectation_equals_the_reference(case: str, spoil: bool) -> None:
    work, rng = CASES[case], np.random.default_rng(1)
    operands = work.operands(rng)
    if spoil:
        operands = cases.spoiled(operands, rng)
    slow, fast = work.reference(operands), expected(work, operands)
    assert slow.factors == fast.factors
    for part in ("value", "magnitude", "terms"):
        np.testing.assert_allclose(
            getattr(fast, part), getattr(slow, part), rtol=1e-12, atol=1e-14, err_msg=part
        )


@pytest.mark.parametrize("limits", [{}, SAMPLED], ids=["full", "sampled"])
@pytest.mark.parametrize("spoil", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_right_outputs_pass(case: str, spoil: bool, limits: dict[str, int]) -> None:
    work, rng = CASES[case], np.random.default_rng(2)
    operands = work.operands(rng)
    if spoil:
        operands = cases.spoiled(operands, rng)
    with np.errstate(invalid="ignore"):
        out = right(work, operands)
    for seed in range(3):
        check = checker(work, operands, seed, **limits)
        assert check.check(out) is None
        assert check.check(out) is None


@pytest.mark.parametrize("case", CASES)
def test_full_verification_finds_any_wrong_element(case: str) -> None:
    work, rng = CASES[case], np.random.default_rng(3)
    operands = work.operands(rng)
    check, out = checker(work, operands), right(work, operands)
    assert check.mode == "full"
    bound = work.reference(operands).bound(work.output_dtype)
    for place in rng.integers(out.size, size=min(20, out.size)) if out.size else []:
        for wrong in (out.flat[place] + 4 * bound.flat[place] + 1e-30, np.nan, np.inf):
            broken = out.copy()
            broken.flat[place] = wrong
            assert check.check(broken) is not None


@pytest.mark.parametrize("case", LARGE)
def test_sampled_verification_finds_what_kernels_get_wrong(case: str) -> None:
    work = LARGE[case]
    for seed in range(5):
        rng = np.random.default_rng(seed)
        operands = work.operands(rng)
        check, out = checker(work, operands, seed, **SAMPLED), right(work, operands)
        assert check.mode == "sampled"
        assert "projection" in check.coverage
        assert check.check(out) is None

        left_out = out.copy()
        poison(left_out[-1:])
        assert check.check(left_out) is not None
        unwritten = out.copy()
        unwritten.flat[rng.integers(out.size)] = np.nan
        assert check.check(unwritten) is not None
        assert check.check(np.roll(out, 1, axis=-1)) is not None
        assert check.check(np.roll(out, 1, axis=0)) is not None
        assert check.check(np.zeros_like(out)) is not None
        assert check.check(-out) is not None
        row = int(np.argmax(np.abs(out).reshape(out.shape[0], -1).sum(1)))
        other = (row + 1 + int(rng.integers(out.shape[0] - 1))) % out.shape[0]
        swapped = out.copy()
        swapped[other] = out[row] + 1e-3
        assert check.check(swapped) is not None
        doubled = out.copy()
        doubled[row] *= 2
        assert check.check(doubled) is not None


@pytest.mark.parametrize("case", LARGE)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), data=st.data())
def test_a_single_wrong_element_is_found_above_the_projection_bound(
    case: str, seed: int, data: st.DataObject
) -> None:
    work, rng = LARGE[case], np.random.default_rng(0)
    operands = work.operands(rng)
    check, out = checker(work, operands, seed, **SAMPLED), right(work, operands)
    place = data.draw(st.integers(0, out.size - 1))
    reference = expected(work, operands)
    # every weight is at least 0.5; the row's bound is at most 1.5 / 4 of the sum of its elements' bounds,
    # whose 4 is slack that a projection does without
    if work.keeps_pattern:
        row = work.entries.coordinates[0] == work.entries.coordinates[0][place]
        total = reference.bound(work.dtype)[row].sum()
    else:
        rank = work.output_shape[-1]
        total = reference.bound(work.dtype).reshape(-1, rank)[place // rank].sum()
    broken = out.copy()
    # in float64 the sum itself rounds as much as the kernel does
    factor = 2 if work.dtype == np.float32 else 40
    broken.flat[place] += data.draw(st.sampled_from([1, -1])) * (factor * total + 1e-30)
    assert check.check(broken) is not None


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_wrong_element_of_the_sample_is_found_above_its_own_bound(seed: int) -> None:
    work, rng = LARGE["sddmm"], np.random.default_rng(0)
    operands = work.operands(rng)
    check, out = checker(work, operands, seed, **SAMPLED), right(work, operands)
    for place in (0, out.size - 1):  # always in the sample
        broken = out.copy()
        broken[place] += 3 * expected(work, operands).bound(work.dtype)[place]
        assert check.check(broken) is not None


@pytest.mark.parametrize("case", ["mttkrp", "mttkrp order 4"])
def test_a_projection_over_few_columns_still_sees_rows_and_last_columns(case: str) -> None:
    work, rng = LARGE[case], np.random.default_rng(5)
    operands = work.operands(rng)
    check, out = checker(work, operands, projection_terms=work.terms // 4, **SAMPLED), right(work, operands)
    assert "columns" in check.coverage
    assert check.check(out) is None
    for wrong in (np.roll(out, 1, axis=0), np.where(np.arange(12) == 11, 0, out).astype(np.float32)):
        assert check.check(wrong) is not None


def test_more_entries_than_weights_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_WEIGHTS", 97)
    work, rng = LARGE["sddmm"], np.random.default_rng(5)
    operands = work.operands(rng)
    check, out = checker(work, operands, **SAMPLED), right(work, operands)
    assert check.check(out) is None
    for shift in (1, 96, 97):
        assert check.check(np.roll(out, shift)) is not None
    for place in range(0, out.size, 101):
        broken = out.copy()
        broken[place] += 1
        assert check.check(broken) is not None


def test_without_a_projection_elements_not_written_are_found() -> None:
    work, rng = LARGE["sddmm"], np.random.default_rng(6)
    operands = work.operands(rng)
    check, out = checker(work, operands, projection_terms=0, **SAMPLED), right(work, operands)
    assert "not written" in check.coverage
    assert check.check(out) is None
    for place in range(0, out.size, 97):
        broken = out.copy()
        broken[place] = np.nan
        assert "not written" in str(check.check(broken))


@pytest.mark.parametrize(
    "text",
    [
        "C[i] max= A[i,k] * B[k]",
        "C[i,j] min= A[i,k] + B[k,j]",
        "C[i,j] mean= A[i,k] * B[k,j]",
        "C[i] argmax= A[i,k] * B[k]",
        "C[i,j] += A[i,k] / B[k,j]",
        "C[j,i] += A[i,k] * B[k,j]",
        "C[j] max= A[i,k] * B[k,j]",
    ],
)
@pytest.mark.parametrize("limits", [{}, SAMPLED], ids=["full", "sampled"])
def test_operations_that_are_no_sum_of_products(text: str, limits: dict[str, int]) -> None:
    rng = np.random.default_rng(7)
    einsum = Einsum.parse(text)
    work = Workload("einsum", einsum, {"A": cases.tensor((50, 40), 300, rng)}, {"i": 50, "k": 40, "j": 9})
    operands = work.operands(rng)
    out = work.reference(operands).value.astype(work.output_dtype)
    check = checker(work, operands, **limits)
    assert check.check(out) is None
    first = out.copy()
    first.flat[0] += 1
    assert check.check(first) is not None
    poison(first)
    assert check.check(first) is not None
    if "/" not in text:
        first = out.copy()
        poison(first.reshape(-1)[out.size // 2 :][:1])
        assert check.check(first) is not None


def test_shapes_and_dtypes_are_compared() -> None:
    work = LARGE["spmm"]
    operands = work.operands(np.random.default_rng(8))
    check, out = checker(work, operands), right(work, operands)
    assert "shape" in str(check.check(out[:-1]))
    assert "dtype" in str(check.check(out.astype(np.float64)))


def test_messages_name_the_place() -> None:
    work = LARGE["spmm"]
    operands = work.operands(np.random.default_rng(8))
    out = right(work, operands)
    out[17, 3] += 100
    assert "(17, 3)" in str(checker(work, operands).check(out))
    assert "row 17" in str(checker(work, operands, **SAMPLED).check(out))


@pytest.mark.parametrize("index", ["i", "j"])
def test_restriction_keeps_the_chosen_outputs(index: str) -> None:
    work = CASES["spmm random n=7 float64"]
    operands = work.operands(np.random.default_rng(9))
    chosen = np.array([0, 2, 5, 6])
    part, few = restricted(work, operands, index, chosen)
    whole = work.reference(operands).value.take(chosen, axis="ij".index(index))
    np.testing.assert_array_equal(part.reference(few).value, whole)
    with pytest.raises(InputError, match="no index of the output"):
        restricted(work, operands, "k", chosen)


def test_restriction_of_a_tensor_and_subset_of_entries() -> None:
    work = CASES["mttkrp (5, 6, 4, 3) mode 1 float64"]
    operands = work.operands(np.random.default_rng(10))
    chosen = np.array([1, 5])
    part, few = restricted(work, operands, "k", chosen)
    np.testing.assert_array_equal(part.reference(few).value, work.reference(operands).value[chosen])
    work = CASES["sddmm random n=20 float64"]
    operands = work.operands(np.random.default_rng(11))
    part, few, rows = subset(work, operands, chosen)
    np.testing.assert_array_equal(part.reference(few).value, work.reference(operands).value[rows])


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "C[i,f] += L[k,f] * E[A,f] for A[i,k]",
        "C[i,f] argmax= L[k,f] for A[i,k]",
        "C[i,f] += D[k,f] if P[k,f] == A else 0 for A[i,k]",
        "C[A,f] = L[k,f] * E[A,f] for A[i,k]",
        "C[A] += D[i,f] if P[i,f] == A else 0 for A[i,k]",
    ],
)
def test_a_sample_knows_the_numbers_of_entries(text: str, numbered: bool) -> None:
    rng = np.random.default_rng(14)
    entries = cases.tensor((30, 20), 200, rng)
    if numbered:
        entries = replace(entries, numbers=rng.permutation(entries.nnz).astype(np.int32))
    sizes = {"i": 30, "k": 20, "f": 3}
    work = Workload("einsum", Einsum.parse(text), {"A": entries}, sizes)
    operands = work.operands(rng)
    if "P" in work.dense:  # of each row an entry that it has
        row = entries.coordinates["ik".index(work.assignment.access("P").indices[0])]
        numbers = np.arange(200) if entries.numbers is None else entries.numbers
        chosen = operands[work.dense.index("P")]
        chosen[row] = numbers[:, None]
    out = work.reference(operands).value.astype(work.output_dtype)
    check = checker(work, operands, **SAMPLED)
    assert check.check(out) is None
    assert check.check(out[::-1].copy()) is not None
    if work.keeps_pattern:
        part, few, rows = subset(work, operands, np.array([3, 50, 199]))
    else:
        rows = np.array([0, 7, 29])
        part, few = restricted(work, operands, "i", rows)
    np.testing.assert_array_equal(part.reference(few).value, work.reference(operands).value[rows])


def test_no_entries_but_many_elements() -> None:
    work = workload("spmm", cases.tensor((3000, 20), 0, np.random.default_rng(12)), n=8)
    operands = work.operands(np.random.default_rng(13))
    check = checker(work, operands, **SAMPLED)
    out = np.zeros(work.output_shape, np.float32)
    assert check.check(out) is None
    out[2000, 3] = 1e-3
    assert check.check(out) is not None


def test_poison_is_never_a_result() -> None:
    floats, integers = np.zeros(3, np.float32), np.zeros(3, np.int64)
    poison(floats)
    poison(integers)
    assert np.isnan(floats).all()
    assert (integers < 0).all()
