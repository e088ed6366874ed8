"""The differential campaign: what it counts, goes on with, and notices; and that directed draws are rare combinations."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tensorwise.errors import CompilerError, FormatError, ScheduleError
from tensorwise.tensor.remap import Axis
from tensorwise.toolchain import compiler
from tests.oracle import campaign
from tests.oracle.campaign import Tally, batch, trials
from tests.oracle.cases import DIRECTED, FOCI, draw
from tests.oracle.sanitize import libraries, sanitized

needs_sanitizers = pytest.mark.skipif(not libraries(), reason="gcc has no libasan and libubsan here")


def test_directed_draws_have_what_they_ask_for() -> None:
    met: Counter[tuple[str, str]] = Counter()
    asked: Counter[str] = Counter()
    for seed in range(DIRECTED, DIRECTED + 96):
        try:
            program = draw(seed).program
        except (FormatError, ScheduleError):
            continue
        focus = FOCI[seed % len(FOCI)]
        asked[focus.stored] += focus.met(program)
        tile = program.schedule.tile
        axis = Axis.from_name(tile.loop) if tile else None
        for format in program.formats.values():
            parts = {one.part for one in format.axes}
            stored = next((part for part in ("diagonal", "slot") if part in parts), "levels")
            met[stored, axis.part if axis else ""] += 1
    for part in ("outer", "inner", "whole"):
        assert met["diagonal", part] >= 2, met
        assert met["levels", part] >= 2, met
    assert asked["diagonal"] >= 18, asked  # of 24: some einsums have no room for it
    assert asked["levels"] >= 18, asked
    assert len(set(FOCI)) == len(FOCI) == 192


def test_other_seeds_draw_as_they_always_have() -> None:
    assert str(draw(727000615).program.schedule) == SCHEDULES[727000615]
    assert str(draw(880004875).program.schedule) == SCHEDULES[880004875]


SCHEDULES = {
    727000615: "split(i,3) split(j,16) reorder(k-i,i0,j1,i1,j0) parallel(k-i,dynamic,7) tile(i1,1x4)",
    880004875: "split(i,32) split(k,16) reorder(i0,i1,k1,k0) tile(i1,4x1)",
}


def test_a_program_runs_on_many_shapes_and_patterns() -> None:
    case = draw(5)
    some = list(trials(case))
    assert len(some) >= 2 * campaign.PATTERNS
    assert {trial.threads for trial in some} == {1, 2}
    shapes = {tuple(trial.case.workload.sizes.items()) for trial in some}
    assert 2 <= len(shapes) <= campaign.SHAPES
    again = list(trials(draw(5)))
    for one, other in zip(some, again, strict=True):
        assert one.case.workload.id == other.case.workload.id, "a seed gives the same trials"


def test_a_batch_counts_and_notices_wrong_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "PATTERNS", 2)
    batch(2, 2)
    *_, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert last["done"] == 4
    assert last["programs"] + last["refused"] == 2
    assert last["cases"] > 8
    monkeypatch.setattr(campaign, "draw_dense", lambda *_: np.ones(1))
    batch(2, 1)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert any("failed" in line for line in said)


def test_a_campaign_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ran(first: int, seeds: int, cpu: int, cache: str) -> Tally:
        asked.append(first)
        return Tally(cases=100, programs=seeds)

    monkeypatch.setattr(campaign, "run_batch", ran)
    path = tmp_path / "result.json"
    assert campaign.campaign(300, 1000, 1, path)["cases"] == 300
    assert campaign.campaign(500, 1000, 1, path)["cases"] == 500
    assert asked == [1000 + number * campaign.SEEDS for number in range(5)]
    assert campaign.campaign(500, 1000, 1, path)["cases"] == 500
    assert len(asked) == 5, "there is nothing left to do"
    monkeypatch.setattr(campaign, "digest", lambda *_: "another tree")
    assert campaign.campaign(100, 1000, 1, path)["cases"] == 100
    assert asked[5:] == [1000], "what is known of other code counts for nothing"


def test_what_passed_may_be_kept_for_a_laxer_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed runs again; other code is begun anew whatever is said."""
    asked: list[tuple[int, int]] = []
    failing = {campaign.DIRECTED + 1001}

    def ran(first: int, seeds: int, cpu: int, cache: str) -> Tally:
        asked.append((first, seeds))
        inside = [seed for seed in failing if first <= seed % campaign.DIRECTED < first + seeds]
        return Tally(
            cases=100, programs=seeds, failures=[{"seed": seed, "problem": "nan"} for seed in inside]
        )

    monkeypatch.setattr(campaign, "run_batch", ran)
    path, trees = tmp_path / "result.json", {"tree": "a", "code": "c"}
    monkeypatch.setattr(campaign, "digest", lambda out=(): trees["code" if out else "tree"])
    assert len(campaign.campaign(200, 1000, 1, path)["failures"]) == 1
    trees["tree"], failing = "b", set()
    done = campaign.campaign(300, 1000, 1, path, carry="laxer")
    assert (done["cases"], done["failures"], done["tree"]) == (300, [], "b")
    assert asked[2:] == [(1001, 1), (1000 + 2 * campaign.SEEDS, campaign.SEEDS)]
    assert [(one["cases"], one["tree"], len(one["failed"]), one["carried"]) for one in done["earlier"]] == [
        (200, "a", 1, "laxer")
    ]
    trees |= {"tree": "d", "code": "e"}
    assert campaign.campaign(100, 1000, 1, path, carry="laxer")["cases"] == 100


OVERRUN = """
import ctypes, numpy as np
from tensorwise.toolchain.cache import default_cache
(kernel,) = default_cache().get(["int TW_SYMBOL(void *const *b, const int64_t *s) { ((float *)b[0])[s[0]] = 1; return 0; }"])
a = np.zeros(1025, np.float32)
for place in (1024, 1025):
    pointers, sizes = (ctypes.c_void_p * 1)(a.ctypes.data), (ctypes.c_int64 * 1)(place)
    print(kernel.function(pointers, sizes), flush=True)
"""


@needs_sanitizers
def test_code_that_leaves_its_array_ends_a_sanitized_process(tmp_path: Path) -> None:
    environment = {
        **sanitized(),
        "TENSORWISE_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    found = subprocess.run(
        [sys.executable, "-c", OVERRUN], capture_output=True, text=True, env=environment, check=False
    )
    assert found.returncode != 0
    assert found.stdout == "0\n"
    assert "heap-buffer-overflow" in found.stderr


def test_sanitized_code_is_not_made_for_a_process_that_cannot_load_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setenv(compiler.SANITIZE, "address")
    with pytest.raises(CompilerError, match="LD_PRELOAD"):
        compiler.find_compiler()
    monkeypatch.setenv(compiler.SANITIZE, "memory")
    with pytest.raises(CompilerError, match="expected address, undefined"):
        compiler.find_compiler()
    monkeypatch.setenv(compiler.SANITIZE, "undefined")
    assert "-fsanitize=undefined" in compiler.find_compiler().flags
