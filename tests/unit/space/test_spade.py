"""The accelerator's space: COGNATE's 256 configs, and which of them are one program."""

import numpy as np
import pytest

from tensorwise.device.spade import SPADES, Machine
from tensorwise.program.workload import Workload, workload
from tensorwise.space.spade import ALL, TileProgram
from tensorwise.tensor.convert import entries_from

SPACE = Machine.load("spade").space


def work(rows: int, columns: int, n: int = 256, op: str = "spmm") -> Workload:
    return workload(op, entries_from(((rows, columns), ([0], [0]), np.ones(1, np.float32))), n=n)


def programs(work: Workload) -> set[TileProgram]:
    return {SPACE.program(work, config) for config in SPACE.enumerate(work)}


@pytest.mark.parametrize("name", SPADES)
def test_there_are_256_configs_whatever_the_matrix(name: str) -> None:
    space = Machine.load(name).space
    for shape in ((1, 1), (5000, 100_000)):
        assert space.size_bound(work(*shape)) == len(list(space.enumerate(work(*shape)))) == 256


def test_configs_are_cognates() -> None:
    given = work(5000, 100_000)
    values = {param.name: list(param.domain({}, given)) for param in SPACE.params}
    assert values == {
        "row_panel": [4, 32, 256, 2048],
        "column_panel": [1024, 16384, 65536, ALL],
        "reorder": [False, True],
        "split": [32, 256],
        "barrier": [False, True],
        "bypass": [False, True],
    }


def test_the_default_is_spade_base() -> None:
    given = work(5000, 100_000)
    assert SPACE.program(given, SPACE.default(given)) == TileProgram(
        "spmm", 256, 256, 100_000, 256, barrier=False, bypass=False, reorder=False
    )


@pytest.mark.parametrize(
    ("columns", "n", "distinct"),
    [
        (100_000, 256, 224),  # a barrier behind the only panel changes nothing
        (60_000, 256, 160),
        (10_000, 256, 96),
        (1000, 256, 32),
        (100_000, 32, 112),
    ],
)
def test_panels_larger_than_the_matrix_and_splits_wider_than_it_are_all_of_it(
    columns: int, n: int, distinct: int
) -> None:
    assert len(programs(work(5000, columns, n))) == distinct


def test_rows_of_sddmm_are_as_wide_as_its_inner_index() -> None:
    given = work(7, 9, 40, "sddmm")
    program = SPACE.program(given, SPACE.default(given))
    assert (program.primitive, program.width, program.row_panel, program.column_panel) == ("sddmm", 40, 7, 9)


@pytest.mark.parametrize(
    ("width", "split", "strips"),
    [(256, 32, ((32, 8),)), (300, 256, ((256, 1), (44, 1))), (20, 20, ((20, 1),)), (64, 32, ((32, 2),))],
)
def test_strips_have_all_columns_once(width: int, split: int, strips: tuple[tuple[int, int], ...]) -> None:
    found = TileProgram("spmm", width, 4, 4, split, False, False, False).strips
    assert found == strips
    assert sum(columns * times for columns, times in found) == width
