"""Records as programs; nothing that is held out is known from elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.model.programs import Programs, context_of
from tests.unit.model.latencies import records

RECORDS = records()
PROGRAMS = Programs.of(RECORDS)


def networks(programs: Programs) -> set[str]:
    return set().union(*(row.networks for row in programs))


def test_no_task_of_a_held_out_network_is_known() -> None:
    known, held = PROGRAMS.without(["net1"])
    assert not set(known.tasks) & set(held.tasks)
    assert "net1-b1" not in networks(known)
    assert {"net0-b1", "net2-b1"} <= networks(held)  # they share tasks with it
    assert len(known) + len(held) == len(PROGRAMS)
    with pytest.raises(InputError, match="no programs are of vgg"):
        PROGRAMS.without(["vgg"])


def test_a_task_is_held_out_wherever_it_was_collected() -> None:
    """Of a folder with other networks, records do not name the one that is held out."""
    shared = next(row for row in PROGRAMS if row.networks == {"net1-b1"})
    elsewhere = replace(shared, networks=frozenset({"net9-b4"}), device="other")
    more = Programs((*PROGRAMS.rows, elsewhere))
    known, held = more.without(["net1"])
    assert shared.task not in known.tasks
    assert elsewhere in held.rows
    first, second = more.divided(0.3, np.random.default_rng(0))
    assert not set(first.tasks) & set(second.tasks)


def test_validation_is_of_whole_networks() -> None:
    training, kept = PROGRAMS.divided(0.3, np.random.default_rng(0))
    assert not set(training.tasks) & set(kept.tasks)
    assert len(kept.tasks) >= 0.3 * len(PROGRAMS.tasks)
    assert not any(row.networks <= networks(kept) for row in training)
    nothing, all_of_it = PROGRAMS.divided(1.0, np.random.default_rng(0))
    assert (len(nothing), len(all_of_it)) == (0, len(PROGRAMS))


def test_a_program_that_was_timed_twice_is_one() -> None:
    again = [replace(record, seconds=record.seconds * 1.5) for record in RECORDS[:7]]
    both = Programs.of([*RECORDS, *again])
    assert len(both) == len(PROGRAMS)
    assert both.noise == pytest.approx(0.5)
    assert np.isnan(PROGRAMS.noise)
    assert np.array_equal(both.seconds, PROGRAMS.seconds)  # the faster one counts


def test_programs_are_told_apart_by_their_code() -> None:
    assert not PROGRAMS.compiled.any()
    programs = Programs.of(records(compiled=True))
    assert programs.compiled.all()
    assert programs.context.shape == PROGRAMS.context.shape
    assert not programs.uncompiled().compiled.any()
    one = records(compiled=True, tasks=8, samples=1, devices=("slow",))[0]
    other = replace(one, workload_id="other", provenance={**one.provenance, "code": {"all.cycles": 7.0}})
    assert len({row.ast.code.tobytes() for row in Programs.of([one, other])}) == 2
    with pytest.raises(InputError, match="malformed counts"):
        Programs.of([replace(one, provenance={**one.provenance, "code": {"odd": 1.0}})])


def test_what_cannot_be_learned_from_is_left_out() -> None:
    failed = replace(RECORDS[0], status="crash", seconds=float("inf"))
    without = replace(RECORDS[1], provenance={"device": "slow"})
    wild = replace(RECORDS[2], spread_s=RECORDS[2].seconds)
    assert len(Programs.of([failed, without, wild, *RECORDS[3:]])) == len(PROGRAMS) - 3


def test_devices_are_compared_by_what_both_ran() -> None:
    assert PROGRAMS.ranks_apart("slow", "fast") > 0.99
    assert np.isnan(PROGRAMS.ranks_apart("slow", "unseen"))


def test_schedules_may_rank_unlike_where_tasks_rank_alike() -> None:
    """On the other device tasks take as long as on the one, but of each the slowest schedule is the fastest."""
    shared = [row for row in PROGRAMS if row.device == "slow"]
    rows = []
    for task in sorted({row.task for row in shared})[:8]:
        size = 1e-3 * 4.0 ** len(rows)
        some = [row for row in shared if row.task == task]
        for place, row in enumerate(some):
            rows.append(replace(row, seconds=size * (1 + 0.01 * place)))
            rows.append(replace(row, device="fast", seconds=size * (1.5 - 0.01 * place)))
    programs = Programs(tuple(rows))
    assert programs.ranks_apart("slow", "fast") > 0.9
    assert programs.ranks_apart("slow", "fast", within_tasks=True) < -0.9
    alone = Programs(tuple(replace(row, config="one") for row in rows[:2]))
    assert np.isnan(alone.ranks_apart("slow", "fast", within_tasks=True))
    assert PROGRAMS.on(["slow"]).devices == ["slow"]
    assert sum(len(places) for places in PROGRAMS.by_leaves().values()) == len(PROGRAMS)
    assert PROGRAMS.context.shape[0] == len(PROGRAMS)


def test_programs_with_other_numbers_of_operands_are_not_read_together() -> None:
    first, second = PROGRAMS.rows[:2]
    wider = replace(second.ast, operands=np.append(second.ast.operands, 1.0))
    both = [first.hardware, second.hardware]
    assert context_of([first.ast, second.ast], both).shape[0] == 2
    with pytest.raises(InputError, match="numbers of operands are not read together"):
        context_of([first.ast, wider], both)
