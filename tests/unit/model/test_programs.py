"""Records as programs; nothing that is held out is known from elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.model.programs import Programs
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
    assert PROGRAMS.on(["slow"]).devices == ["slow"]
    assert sum(len(places) for places in PROGRAMS.by_leaves().values()) == len(PROGRAMS)
    assert PROGRAMS.context.shape[0] == len(PROGRAMS)
