"""What a config says can be read before all of it is chosen."""

import numpy as np
import pytest

from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.space import readings
from tensorwise.space.config import Config, Value
from tensorwise.space.cpu import cpu_space
from tensorwise.tensor.convert import entries_from

EARLIER = {
    "layout": "coordinates",
    "split_i": 4,
    "split_k": 1,
    "split_j": 16,
    "order": ("i1", "k1", "i0", "j1", "j0"),
    "levels_follow_loops": True,
}
KINDS = {"kind_i1": "U", "kind_i0": "U", "kind_k1": "C", "kind_k0": None}


def test_loops_of_indices_that_are_not_split_are_absent() -> None:
    assert readings.present(readings.loops_of(("i", "k")), EARLIER) == ("i1", "i0", "k1")
    assert readings.splits(EARLIER) == {"i": 4, "j": 16}


def test_levels_stand_as_the_loops_or_in_an_order_of_their_own() -> None:
    assert readings.stored_loops({**EARLIER, **KINDS}) == ["i1", "k1", "i0"]
    own = {**EARLIER, **KINDS, "levels_follow_loops": False, "levels": ("k1", "i1", "i0")}
    assert readings.stored_loops(own) == ["k1", "i1", "i0"]
    assert readings.innermost_stored(own) == "i0"


def test_a_list_has_one_loop() -> None:
    whole = {
        **EARLIER,
        "split_i": 1,
        "order": ("i1", "k1", "j1", "j0"),
        "layout": "list",
        "kind_i1": None,
        "kind_k1": None,
    }
    assert readings.nest(whole) == ("i1", "j1", "j0")


def test_copies_of_the_innermost_body() -> None:
    config = {**EARLIER, **KINDS, "parallel": "i1", "tile": "j0", "vectors": 4, "bound": None}
    assert readings.block_loops(config) == ["i0"]
    assert readings.block_copies(config) == 4
    assert readings.block_copies({**config, "tile": "i0"}) == 16
    assert readings.strips(config) == 4 + 2 + 1 + 4
    assert readings.strips({**config, "tile": "none"}) == 1
    assert not readings.gathers(config)
    assert readings.gathers({**config, "tile": "k1"})


MATRIX, TENSOR = (entries_from(np.ones(shape)) for shape in ((40, 30), (8, 7, 6)))
SDDMM, MTTKRP = workload("sddmm", MATRIX, n=32), workload("mttkrp", TENSOR, n=16)


def completed(work: Workload, **choices: Value) -> Config:
    """The default config but for some choices, all of which must be possible."""
    config = cpu_space(work.assignment).complete(choices, work)
    assert {name: config[name] for name in choices} == choices
    return config


@pytest.mark.parametrize(
    ("work", "choices", "loop"),
    [
        (SDDMM, {}, "k1"),
        (SDDMM, {"split_k": 4}, "k1"),
        (SDDMM, {"split_k": 4, "order": ("i1", "k1", "j1", "k0")}, None),  # outputs change between its loops
        (SDDMM, {"order": ("k1", "i1", "j1")}, None),  # the output's indices change as well
        (SDDMM, {"order": ("i1", "k1", "j1")}, None),
        (MTTKRP, {}, "l1"),
        (MTTKRP, {"kind_k1": "C16", "kind_l1": "C16"}, "l1"),
        (MTTKRP, {"kind_k1": "U"}, None),  # a fibre may be empty
        (MTTKRP, {"kind_l1": "U"}, None),
        (MTTKRP, {"layout": "list"}, None),
        (MTTKRP, {"split_l": 2, "order": ("i1", "r1", "k1", "l1", "l0"), "kind_l0": "C"}, "l1"),
        (MTTKRP, {"order": ("i1", "k1", "l1", "r1")}, None),  # the rank changes inside
        (workload("spmv", MATRIX), {}, None),  # both factors change
        (workload("spmm", MATRIX, n=8), {}, None),
        (workload("spmv_t", MATRIX), {}, None),
        (einsum_workload("C[i,j] max= A[i,j] * B[i,k] * D[k,j]", {"A": MATRIX}, {"k": 32}), {}, None),
        (einsum_workload("C[i,j] += A[i,j] + B[i,k]", {"A": MATRIX}, {"k": 32}), {}, None),  # no product
        (einsum_workload("C[i] += A[i,k] * B[k] * D[i]", {"A": MATRIX}, {}), {}, None),  # rows may be empty
        (einsum_workload("C[i] += A[i,k] * B[k] * D[i]", {"A": MATRIX}, {}), {"kind_i1": "C"}, "k1"),
        (einsum_workload("C[i] += A[i,k]", {"A": MATRIX}, {}), {}, None),
    ],
)
def test_the_loop_from_which_on_a_sum_has_factors_of_its_own(
    work: Workload, choices: dict[str, Value], loop: str | None
) -> None:
    config = completed(work, **choices)
    assert (config["factor"] is not None) == (loop is not None)
    if loop is not None:  # and the program that says so is one
        assert readings.separate_sum(config, work) == loop
        program = cpu_space(work.assignment).program(work, {**config, "factor": True})
        assert program.schedule.factor is not None
        assert f"factor({program.schedule.factor.loop})" in program.schedule_text
        program.lowered()
