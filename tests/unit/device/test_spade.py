"""The simulated accelerator: what it computes, and how its seconds follow from machine and program."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device.expectation import expected
from tensorwise.device.spade import COUNTERS, MACHINES, SPADES, Machine, Simulation, SpadeDevice
from tensorwise.errors import InputError
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.tensor.convert import entries_from

SMALL = Machine.load("spade-small")


def work(
    op: str = "spmm", shape: tuple[int, int] = (300, 400), density: float = 0.05, n: int = 64
) -> Workload:
    matrix = sp.random_array(shape, density=density, rng=np.random.default_rng(0), dtype=np.float32)
    return workload(op, entries_from(matrix), n=n)


def of(lists: list[list[int]], columns: int, op: str = "spmm", n: int = 32) -> Workload:
    """Ones at the columns that are listed for each row."""
    rows = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
    places = np.array([column for one in lists for column in one], np.int64)
    return workload(
        op, entries_from(((len(lists), columns), (rows, places), np.ones(len(rows), np.float32))), n=n
    )


def config(workload: Workload, machine: Machine = SMALL, **choices: Any) -> Config:
    return machine.space.complete(choices, workload, strict=True)


def simulate(workload: Workload, machine: Machine = SMALL, **choices: Any) -> Simulation:
    return SpadeDevice(machine).run(workload, config(workload, machine, **choices))


def changed(**numbers: Any) -> Machine:
    return replace(SMALL, **numbers)


def assert_right(workload: Workload, machine: Machine, chosen: Config) -> None:
    operands = workload.operands(np.random.default_rng(1))
    with SpadeDevice(machine) as device:
        simulation = device.run(workload, chosen, operands)
        assert simulation.output is not None
        assert expected(workload, operands).mismatch(simulation.output) is None
        assert device.run(workload, chosen) == Simulation(simulation.seconds, simulation.counters)
    passes = sum(times for _, times in machine.space.program(workload, chosen).strips)
    assert simulation.counters["entries"] == workload.entries.nnz * passes


@pytest.mark.parametrize("op", ["spmm", "sddmm"])
@pytest.mark.parametrize("name", SPADES)
def test_numbers_are_those_of_the_dense_reference(op: str, name: str) -> None:
    given, machine, rng = work(op, n=300), Machine.load(name), np.random.default_rng(2)
    for chosen in [machine.space.default(given), *(machine.space.sample(given, rng) for _ in range(12))]:
        assert_right(given, machine, chosen)


@pytest.mark.parametrize("op", ["spmm", "sddmm"])
@pytest.mark.parametrize("n", [1, 16, 31, 33, 257, 300])
def test_widths_need_not_be_multiples_of_the_split_or_of_a_line(op: str, n: int) -> None:
    given = work(op, (40, 30), 0.2, n)
    for split in SMALL.splits:
        assert_right(given, SMALL, config(given, split=split, column_panel=64, reorder=True))


@pytest.mark.parametrize("op", ["spmm", "sddmm"])
@pytest.mark.parametrize(
    "lists",
    [[[]], [[0]], [[], [], [3]], [[3], [], []], [[0, 1, 2, 3, 4]], [[], [0, 4], [], [1], []], [[2]] * 50],
)
def test_odd_matrices(op: str, lists: list[list[int]]) -> None:
    given = of(lists, 5, op)
    for chosen in SMALL.space.enumerate(given):
        if chosen["row_panel"] in (2, 32) and chosen["column_panel"] in (64, "all"):
            assert_right(given, SMALL, chosen)


def test_a_matrix_without_entries_takes_the_start_only() -> None:
    given = of([[], [], []], 5)
    assert simulate(given).seconds == SMALL.startup_s
    assert simulate(given).counters == dict.fromkeys(COUNTERS, 0)


def test_the_same_question_gets_the_same_answer() -> None:
    given, rng = work(n=256), np.random.default_rng(3)
    configs = [SMALL.space.sample(given, rng) for _ in range(8)]
    first = [one.seconds for one in SpadeDevice(SMALL).measure(given, configs)]
    other = SpadeDevice("spade-small")
    again = [one.seconds for one in other.measure(given, configs[::-1])][::-1]
    assert first == again == [one.seconds for one in other.measure(given, configs)]
    assert len(set(first)) > 1


def test_configs_that_come_to_the_same_program_take_the_same() -> None:
    given = work(n=32)
    assert SMALL.space.program(given, config(given, split=32)) == SMALL.space.program(
        given, config(given, split=256)
    )
    wide, every = (simulate(given, column_panel=c, barrier=True) for c in (1024, "all"))
    assert wide == every
    assert wide.counters["barriers"] == 0


# -- what seconds depend on ----------------------------------------------------------------------------


def test_more_bandwidth_is_never_slower_and_pays_where_memory_is_what_limits() -> None:
    given = work(shape=(2000, 4000), density=0.01, n=256)
    taken = [simulate(given, changed(memory_bytes_per_s=b)).seconds for b in (5e9, 10e9, 20e9, 40e9, 80e9)]
    assert taken == sorted(taken, reverse=True)
    assert taken[0] > 1.8 * taken[1] > 2.5 * taken[2]


def test_a_faster_clock_takes_as_many_cycles_in_less_time_where_memory_keeps_up() -> None:
    given = work()
    slow = simulate(given)
    factor = 2
    fast = simulate(
        given,
        changed(
            clock_hz=SMALL.clock_hz * factor, memory_bytes_per_s=SMALL.memory_bytes_per_s * factor,
            memory_s=SMALL.memory_s / factor, memory_queue_s=SMALL.memory_queue_s / factor, startup_s=0.0,
        ),
    )  # fmt: skip
    assert fast.counters == slow.counters
    assert fast.seconds * factor == pytest.approx(slow.seconds - SMALL.startup_s)
    assert simulate(given, changed(clock_hz=SMALL.clock_hz * factor)).seconds < slow.seconds


def test_latency_costs() -> None:
    given = work(n=256)
    taken = [simulate(given, changed(memory_s=s)).seconds for s in (20e-9, 100e-9, 500e-9)]
    assert taken == sorted(taken)
    assert taken[2] > taken[0]


def test_all_operations_are_issued_one_a_cycle_at_most() -> None:
    given = work(n=256)
    found = simulate(given)
    assert found.counters["operations"] == given.entries.nnz * 16
    assert found.counters["cycles"] >= found.counters["operations"] / SMALL.elements


def test_memory_gives_no_more_than_is_usable() -> None:
    given = work(shape=(4000, 4000), density=0.005, n=256)
    counters = simulate(given).counters
    moved = 64 * (counters["read_lines"] + counters["written_lines"])
    taken_s = counters["cycles"] / SMALL.clock_hz
    assert moved / taken_s <= 1.01 * SMALL.memory_usable * SMALL.memory_bytes_per_s
    assert moved / taken_s > 0.5 * SMALL.memory_usable * SMALL.memory_bytes_per_s


# -- panels, barriers, bypass, order -------------------------------------------------------------------


def test_a_panel_goes_to_one_element() -> None:
    """With as many rows as a panel has, one element does all of the work; small panels share it."""
    given = work(shape=(128, 2000))
    machine = changed(memory_bytes_per_s=1e12)
    alone, shared = (simulate(given, machine, row_panel=panel) for panel in (128, 8))
    assert alone.counters["entries"] == shared.counters["entries"]
    assert alone.seconds > 4 * shared.seconds


def test_tiles_are_those_that_have_entries() -> None:
    given = of([[0, 70], [1], [], [], [300], []], 320)
    assert simulate(given, row_panel=2, column_panel=64).counters["tiles"] == 3
    assert simulate(given, row_panel=8, column_panel=64).counters["tiles"] == 3
    assert simulate(given, row_panel=8, column_panel="all").counters["tiles"] == 1


def test_there_is_a_barrier_behind_each_column_panel_that_has_entries() -> None:
    given = of([[0, 70], [1], [], [], [300], []], 320)
    found = simulate(given, row_panel=2, column_panel=64, barrier=True)
    assert found.counters["barriers"] == 3
    assert found.seconds > simulate(given, row_panel=2, column_panel=64).seconds


def test_barriers_pay_where_a_column_panel_fits_into_the_last_cache_and_all_columns_do_not() -> None:
    """Without them each element walks through all columns for each of its row panels."""
    given = work(shape=(1024, 8192), density=0.05, n=32)
    machine = changed(l1_bytes=0, l2_bytes=0, last_bytes=4096 * 128, victim_bytes=0)
    apart, together = (simulate(given, machine, column_panel=1024, barrier=b) for b in (False, True))
    assert together.counters["row_reads"] < 0.5 * apart.counters["row_reads"]
    assert together.seconds < apart.seconds


def test_bypassing_leaves_the_caches_to_the_other_operand() -> None:
    given = work(shape=(3000, 300), density=0.02, n=256)
    cached, bypassing = (simulate(given, bypass=b).counters for b in (False, True))
    assert cached["buffer_hits"] == cached["victim_hits"] == 0
    assert bypassing["buffer_hits"] > 0
    assert bypassing["row_reads"] < cached["row_reads"]


def test_bypassing_costs_where_rows_return_more_often_than_the_victim_cache_holds_them() -> None:
    """What KRO shows in the paper: partial sums of a large row panel come back in each column panel."""
    given = work(shape=(1024, 4096), density=0.05, n=32)
    cached, bypassing = (simulate(given, row_panel=128, column_panel=64, bypass=b) for b in (False, True))
    assert bypassing.counters["row_reads"] > cached.counters["row_reads"]
    assert bypassing.seconds > cached.seconds
    large = changed(victim_bytes=128 * 128, buffer_lines=32)
    assert simulate(given, large, row_panel=128, column_panel=64, bypass=True).seconds < bypassing.seconds


def test_results_are_written_once_where_nothing_returns() -> None:
    given = work(shape=(500, 400), n=32)
    for bypass in (False, True):
        counters = simulate(given, bypass=bypass, column_panel="all").counters
        rows = np.count_nonzero(np.diff(given.entries.row_pointers()))
        assert counters["written_lines"] == 2 * rows


def test_caches_as_large_as_all_data_read_each_row_once() -> None:
    given = work(shape=(400, 300), n=64)
    machine = changed(last_bytes=2**28, l2_bytes=0, l1_bytes=0)
    counters = simulate(given, machine).counters
    touched = sum(len(np.unique(array)) for array in given.entries.coordinates)
    assert counters["row_reads"] == touched
    assert counters["read_lines"] == 4 * touched + counters["sparse_lines"]


def test_reordering_finds_the_band_of_a_shuffled_matrix() -> None:
    band = sp.diags_array(
        [np.ones(3000, np.float32)] * 9, offsets=range(-4, 5), shape=(3000, 3000), format="csr"
    )
    shuffle = np.random.default_rng(4).permutation(3000)
    given = workload("spmm", entries_from(band[shuffle][:, shuffle]), n=256)
    as_it_is, reordered = (simulate(given, reorder=r) for r in (False, True))
    assert reordered.counters["row_reads"] < 0.5 * as_it_is.counters["row_reads"]
    assert reordered.seconds < as_it_is.seconds


def test_narrow_passes_read_the_matrix_again_each_time() -> None:
    given = work(n=256)
    wide, narrow = (simulate(given, split=split).counters for split in (256, 32))
    assert narrow["sparse_lines"] == 8 * wide["sparse_lines"]
    assert narrow["entries"] == 8 * wide["entries"]
    assert narrow["operations"] == wide["operations"]


# -- limits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [
    workload("spmv", entries_from(np.eye(4, dtype=np.float32))),
    workload("spmm", entries_from(np.eye(4)), n=16),
    workload("mttkrp", entries_from(np.ones((2, 2, 2), np.float32)), n=16),
])  # fmt: skip
def test_what_the_accelerator_cannot_compute_is_refused(given: Workload) -> None:
    (found,) = SpadeDevice(SMALL).measure(given, [SMALL.space.default(given)])
    assert found.status == "refused"
    assert "float32" in found.note


def test_operands_that_do_not_fit_are_refused() -> None:
    given = work()
    with pytest.raises(InputError, match="operand B"):
        SpadeDevice(SMALL).run(given, config(given), [np.zeros((3, 3), np.float32)])


@pytest.mark.parametrize(
    ("numbers", "hint"),
    [({"elements": 0}, "elements"), ({"loads": 100}, "loads"), ({"l1_bytes": -1}, "l1_bytes"),
     ({"stores": 1.5}, "whole number"), ({"line_bytes": 128}, "lines of 64"), ({"memory_usable": 1.5}, "usable")],
)  # fmt: skip
def test_machines_that_cannot_be_are_refused(numbers: dict[str, Any], hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        changed(**numbers)


def test_machine_files_have_all_fields_and_no_others(tmp_path: Any) -> None:
    text = (MACHINES / "spade.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("clock_hz", "clock"))
    with pytest.raises(InputError, match="clock, clock_hz"):
        Machine.load(path)
    with pytest.raises(InputError, match="spade-small"):
        Machine.load("spade-large")
    path.write_text(text.replace("elements = 32", "elements = 33"))
    assert Machine.load(path).id != Machine.load("spade").id == SpadeDevice().id


def test_queues_of_one_still_work() -> None:
    given = work(n=48)
    machine = changed(
        operations=1, stations=1, loads=1, sparse_loads=1, stores=1, registers=1, buffer_lines=1
    )
    assert_right(given, machine, config(given, machine, bypass=True, column_panel=64))
    assert simulate(given, machine).seconds > simulate(given).seconds
