"""The latency model learns what made-up programs take, goes on after a kill, and says the same without torch."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorwise.analysis.ast import LEAVES
from tensorwise.analysis.code import CODE, UNCOMPILED, Compiled
from tensorwise.analysis.hardware import HARDWARE
from tensorwise.analysis.loop_tree import LoopTree
from tensorwise.analysis.machine_code import MachineCode
from tensorwise.errors import InputError
from tensorwise.model import latency
from tensorwise.model.latency import (
    LATENCY,
    NUM_FOLDS,
    Latencies,
    LatencyModel,
    fine_tuned,
    parts,
    train_latency,
)
from tensorwise.model.program_net import estimate_leaf_times
from tensorwise.model.programs import Programs
from tests.unit.model.latencies import code, hardware, records

torch = pytest.importorskip("torch")

from tensorwise.model.latency_training import LatencyTrainer, LatencyTraining, cmd  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")
SMALL = {"width": 32, "inner": 32, "layers": 1, "embedding": 32, "decoder": (32,)}
PROGRAMS = Programs.of(records())
KNOWN, HELD = PROGRAMS.without(["net2"])
QUICK = LatencyTraining(epochs=30, learning_rate=5e-3)


def trained(programs: Programs = KNOWN, training: LatencyTraining = QUICK, **more: Any) -> LatencyModel:
    sizes = {**SMALL, **more.pop("sizes", {})}
    model = train_latency(programs, training, sizes=sizes, **{"members": 1, **more})
    assert model is not None
    return model


@pytest.fixture(scope="module")
def model() -> LatencyModel:
    return trained(members=2)


def error(model: LatencyModel, programs: Programs) -> float:
    found = model.latencies([row.ast for row in programs], [row.hardware for row in programs])
    return float(np.abs(found.seconds / programs.seconds - 1).mean())


def naive(programs: Programs) -> float:
    """The error of one answer for all."""
    return float(np.abs(np.exp(np.log(KNOWN.seconds).mean()) / programs.seconds - 1).mean())


def test_unseen_networks_are_predicted(model: LatencyModel) -> None:
    assert error(model, HELD) < 0.4 < naive(HELD)


@pytest.mark.parametrize("joining", ["counts", "sum"])
def test_leaves_can_be_joined_either_way(joining: str) -> None:
    assert error(trained(sizes={"joining": joining}), HELD) < 0.5


@pytest.mark.parametrize("loss", ["mse", "mape", "mspe"])
def test_all_losses_learn(loss: Any) -> None:
    assert error(trained(training=replace(QUICK, loss=loss)), HELD) < naive(HELD) / 2


def test_numpy_says_what_torch_was_taught(model: LatencyModel) -> None:
    trainer = LatencyTrainer(
        model.shape, model.labels, QUICK, KNOWN, HELD, model.scales, start=model.members[0]
    )
    alone = replace(model, members=model.members[:1])
    assert trainer._validate() == pytest.approx(error(alone, HELD), rel=1e-3)


def test_an_interval_holds_nine_of_ten(model: LatencyModel) -> None:
    found = model.latencies([row.ast for row in HELD], [row.hardware for row in HELD])
    assert (found.low < found.seconds).all()
    assert (found.seconds < found.high).all()
    inside = (found.low <= HELD.seconds) & (HELD.seconds <= found.high)
    assert inside.mean() >= 0.7
    exactly = model.calibrated(HELD).latencies([row.ast for row in HELD], [row.hardware for row in HELD])
    inside = (exactly.low <= HELD.seconds) & (HELD.seconds <= exactly.high)
    assert 0.9 <= inside.mean() <= 0.9 + 2 / len(HELD)
    with pytest.raises(InputError, match="at least 20"):
        model.calibrated(HELD.where(np.arange(len(HELD)) < 3))


def test_the_interval_of_a_sum_is_narrower_the_less_its_parts_share() -> None:
    seconds, ends = np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 2.0])
    factors = []
    for shared in (0.0, 0.25, 1.0):
        took, low, high = Latencies(seconds, seconds / ends, seconds * ends, shared).together([0, 1], [3, 1])
        assert took == 5.0
        assert took / low == pytest.approx(high / took)
        factors.append(high / took)
    # Three fifths of the time are within a factor of 1.5, two fifths within one of 2.
    own, common = math.hypot(0.6 * math.log(1.5), 0.4 * math.log(2)), 0.6 * math.log(1.5) + 0.4 * math.log(2)
    some = math.sqrt(0.25 * common**2 + 0.75 * own**2)
    assert np.log(factors) == pytest.approx([own, some, common])
    alone = Latencies(seconds, seconds / ends, seconds * ends, 0.25).together([2], [1])
    assert alone == pytest.approx((3, 1.5, 6))
    longer = Latencies(seconds, seconds / ends, seconds * ends, 0.25, level=1.5).together([2], [1])
    assert longer == pytest.approx((4.5, 2.25, 9))


def test_a_sum_takes_what_programs_take_in_the_median(model: LatencyModel) -> None:
    slower = Programs(tuple(replace(row, seconds=1.5 * row.seconds) for row in HELD))
    asked = [row.ast for row in HELD], [row.hardware for row in HELD]
    levels = [model.calibrated(programs).latencies(*asked).level for programs in (HELD, slower)]
    assert levels[1] == pytest.approx(1.5 * levels[0])
    assert levels[0] == pytest.approx(np.median(HELD.seconds / model.latencies(*asked).seconds), rel=0.02)


@pytest.mark.parametrize("common", [0.0, 0.3, 0.9])
def test_what_errors_share_is_found(model: LatencyModel, common: float) -> None:
    alike = replace(model, members=model.members[:1] * 2)  # they never disagree: all errors have one scale
    said = alike.latencies([row.ast for row in KNOWN], [row.hardware for row in KNOWN]).seconds
    rng, rows = np.random.default_rng(1), []
    for k in range(300):
        offset = math.sqrt(common) * rng.standard_normal()
        for place in rng.choice(len(KNOWN), 6, replace=False):
            off = offset + math.sqrt(1 - common) * rng.standard_normal()
            networks = frozenset([f"n{k}-b1"])
            one = replace(
                KNOWN.rows[place], networks=networks, device="one", seconds=said[place] * math.exp(off)
            )
            rows.append(one)
    assert alike.calibrated(Programs(tuple(rows))).intervals["cpu"].shared == pytest.approx(common, abs=0.1)


def test_each_kind_of_device_has_intervals_of_its_own(model: LatencyModel) -> None:
    rng = np.random.default_rng(2)
    gpu = [replace(row, device="g", hardware=replace(row.hardware, name="g", kind="gpu")) for row in HELD]
    said = model.of(Programs(tuple(gpu))).seconds * np.exp(2 * rng.standard_normal(len(gpu)))
    far = [replace(row, seconds=seconds) for row, seconds in zip(gpu, said, strict=True)]
    found = model.calibrated(Programs((*HELD, *far)))
    assert found.intervals.keys() == {"uncompiled", "cpu", "gpu"}  # nobody compiled these
    on_cpu, on_gpu = found.of(HELD), found.of(Programs(tuple(far)))
    assert (on_gpu.high / on_gpu.low).min() > (on_cpu.high / on_cpu.low).max()
    for said_of, seconds in ((on_cpu, HELD.seconds), (on_gpu, said)):
        assert said_of.covering(seconds)["covered"] >= 0.85


def test_programs_with_unknown_numbers_of_leaves_have_an_answer(model: LatencyModel) -> None:
    row = HELD.rows[0]
    many = replace(row.ast, leaves=np.repeat(row.ast.leaves[:1], 9, 0), order=np.arange(9, dtype=np.int32))
    assert 9 not in model.shape.counts
    assert np.isfinite(model.latencies([many], row.hardware).seconds).all()


@pytest.mark.parametrize("factor", [-50, 50])
def test_no_answer_is_far_beyond_what_was_learned(model: LatencyModel, factor: float) -> None:
    strange = [replace(row.ast, leaves=factor * row.ast.leaves) for row in HELD]
    found = model.latencies(strange, hardware("slow")).seconds
    assert found.max() <= 4.01 * KNOWN.seconds.max()
    assert found.min() >= KNOWN.seconds.min() / 4.01


def test_a_leaf_takes_longer_on_a_slower_device() -> None:
    leaves = np.array([row.ast.leaves for row in HELD if len(row.ast.leaves) == 2])
    slow, fast = (
        np.repeat(np.concatenate([HARDWARE.features(hardware(name)), UNCOMPILED])[None], len(leaves), 0)
        for name in ("slow", "fast")
    )
    assert (estimate_leaf_times(leaves, slow) > estimate_leaf_times(leaves, fast)).all()
    twice = np.exp(estimate_leaf_times(np.repeat(leaves, 2, 1), slow)).sum(1)
    np.testing.assert_allclose(twice, 2 * np.exp(estimate_leaf_times(leaves, slow)).sum(1), rtol=1e-5)
    known = np.repeat(
        np.concatenate(
            [HARDWARE.features(hardware("slow")), CODE.features(Compiled(LoopTree(()), code(1e6)))]
        )[None],
        len(leaves),
        0,
    )
    shared = np.exp(estimate_leaf_times(leaves, known)).sum(1)
    np.testing.assert_allclose(shared, shared[0], rtol=1e-5)  # whatever the leaves, the code's cycles
    assert shared[0] == pytest.approx(1e6 * 1e6 / hardware("slow").clock_hz, rel=1e-3)  # on one core


@pytest.mark.parametrize(
    ("iterations", "rounds"), [(0, 32), (1, 32), (8, 4), (32, 1), (33, 64 / 33), (3200, 1)]
)
def test_a_leaf_has_the_cores_that_its_parallel_loops_keep_busy(iterations: int, rounds: float) -> None:
    """Of 32; no parallel loop, or as many iterations, whose last round may leave some idle."""
    leaves, one = HELD.rows[0].ast.leaves[None], replace(hardware("slow"), cores=32)
    dealt = leaves.copy()
    dealt[..., [field.name for field in LEAVES.fields].index("parallel.product")] = np.log2(1 + iterations)
    device = np.concatenate([HARDWARE.features(one), UNCOMPILED])[None]
    apart = estimate_leaf_times(dealt, device) - estimate_leaf_times(leaves, device)
    np.testing.assert_allclose(np.exp(apart), rounds / 32, rtol=1e-4)


def test_cycles_of_code_for_a_gpu_are_those_of_all_of_it() -> None:
    leaves, one = HELD.rows[0].ast.leaves[None], replace(hardware("slow"), kind="gpu", cores=132)
    dealt = leaves.copy()
    dealt[..., [field.name for field in LEAVES.fields].index("gpu.block")] = np.log2(1 + 2)
    launched = MachineCode({**code(1e6).numbers, "gpu.whole.launches": 1.0})
    device = np.concatenate([HARDWARE.features(one), CODE.features(Compiled(LoopTree(()), launched))])[None]
    for some in (leaves, dealt):  # how many blocks there are is in its cycles
        assert np.exp(estimate_leaf_times(some, device)).sum() == pytest.approx(1e12 / one.clock_hz, rel=1e-3)


def test_what_compiled_code_says_is_learned() -> None:
    known, held = Programs.of(records(compiled=True)).without(["net2"])
    model = trained(known, sizes={"joining": "sum"})
    assert error(model, held) < 0.5
    assert error(model, held.uncompiled()) > 2 * error(model, held)
    compiled, without = (
        model.latencies([row.ast for row in some], [row.hardware for row in some])
        for some in (held, held.uncompiled())
    )
    assert np.median(without.high / without.low) > 2 * np.median(compiled.high / compiled.low)
    inside = (without.low <= held.seconds) & (held.seconds <= without.high)
    assert inside.mean() >= 0.7


def test_predictions_do_not_depend_on_their_company(model: LatencyModel) -> None:
    asts = [row.ast for row in HELD.rows[:9]]
    together = model.latencies(asts, hardware("slow")).seconds
    alone = [model.latencies([ast], hardware("slow")).seconds[0] for ast in asts]
    np.testing.assert_allclose(together, alone, rtol=1e-4)
    assert len(model.latencies([], hardware("slow")).seconds) == 0
    with pytest.raises(InputError, match="a device for each of 9"):
        model.latencies(asts, [hardware("slow")])


def test_a_saved_model_says_the_same(model: LatencyModel, tmp_path: Path) -> None:
    model.save(tmp_path)
    again = LatencyModel.load(tmp_path)
    asts = [row.ast for row in HELD]
    assert again.intervals == model.intervals
    for name in ("seconds", "low", "high"):
        first, second = (getattr(one.latencies(asts, hardware("fast")), name) for one in (model, again))
        np.testing.assert_array_equal(first, second)
    assert again.hardware("fast") == hardware("fast")
    assert again.hardware("T4").kind == "gpu"
    with pytest.raises(InputError, match="trained on: fast, slow"):
        again.hardware("abacus")


@pytest.mark.parametrize(
    "change",
    [
        {"features": ["1", "2"]},
        {"members": 0},
        {"members": 3},
        {"shape": {}},
        {"labels": {}},
        {"kind": "mean"},
    ],
)
def test_a_damaged_model_is_refused(model: LatencyModel, tmp_path: Path, change: dict[str, Any]) -> None:
    model.save(tmp_path)
    path = tmp_path / LATENCY.files[0]
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError):
        LatencyModel.load(tmp_path)


def test_a_training_goes_on_after_its_budget(tmp_path: Path) -> None:
    few = replace(QUICK, epochs=4)
    whole = trained(training=few, members=2)
    found = None
    for _ in range(20):
        found = train_latency(KNOWN, few, sizes=SMALL, members=2, checkpoints=tmp_path, budget_s=0)
        if found is not None:
            break
        # a kill: an epoch more each time
        for k in range(2):
            path = tmp_path / f"member-{k}.safetensors"
            trainer = LatencyTrainer(
                whole.shape,
                whole.labels,
                replace(few, seed=k),
                *parts(KNOWN, 0.2, 0, k)[:2],
                whole.scales,
                path,
            )
            if not trainer.done:
                trainer._epoch()
                break
    assert found is not None
    for one, other in zip(whole.members, found.members, strict=True):
        for name, array in one.items():
            np.testing.assert_allclose(array, other[name], rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="other records, settings"):
        train_latency(KNOWN, replace(few, learning_rate=1e-2), sizes=SMALL, members=1, checkpoints=tmp_path)


def test_where_torch_cannot_compute_is_said() -> None:
    with pytest.raises(InputError, match="torch cannot compute on 'abacus'"):
        train_latency(KNOWN, QUICK, torch_device="abacus")


def test_members_learn_from_all_but_what_calibrates() -> None:
    found = [parts(PROGRAMS, 0.4, 0, member) for member in range(6)]
    calibration = found[0][2]
    learned = {row.task for training, _, _ in found for row in training}
    assert learned == set(PROGRAMS.tasks) - set(calibration.tasks)
    assert len({tuple(chosen.tasks) for _, chosen, _ in found}) > 1
    for training, chosen, its in found:
        assert its.tasks == calibration.tasks
        assert not set(training.tasks) & set(chosen.tasks)
        assert len(training) + len(chosen) + len(its) == len(PROGRAMS)


def test_a_single_network_is_learned_from() -> None:
    alone = PROGRAMS.where([row.networks == frozenset({"net2-b1"}) for row in PROGRAMS])
    assert [len(part) for part in parts(alone, 0.2, 0)] == [len(alone), 0, 0]
    model = trained(alone)
    assert error(model, alone) < 0.4
    assert np.isnan(model.latencies([alone.rows[0].ast], alone.rows[0].hardware).low).all()


def test_fine_tuning_learns_a_new_device() -> None:
    source, target = KNOWN.on(["fast"]), PROGRAMS.on(["slow"])
    before = trained(source)
    assert before.devices.keys() == {"fast"}
    tasks = target.tasks[:10]
    measured = target.where([row.task in tasks for row in target])
    rest = target.where([row.task not in tasks for row in target])
    after = fine_tuned(before, source, measured, rest, replace(QUICK, epochs=40))
    assert error(after.model, rest) < error(before, rest) / 2
    assert after.model.devices.keys() == {"fast", "slow"}
    with pytest.raises(InputError, match="at least 5 measured tasks to learn from, got 0"):
        fine_tuned(before, source, target.where([False] * len(target)), rest, QUICK)


def test_each_member_holds_back_other_tasks_of_the_target() -> None:
    source, target = KNOWN.on(["fast"]), PROGRAMS.on(["slow"])
    tasks = target.tasks[:12]
    measured = target.where([row.task in tasks for row in target])
    found = fine_tuned(trained(source), Programs(()), measured, None, replace(QUICK, epochs=5))
    assert sorted(task for held in found.held for task in held) == tasks
    assert len(found.held) == len(found.model.members) == NUM_FOLDS
    assert found.model.devices.keys() == {"slow"}
    said = found.unseen(measured)
    for held, member in zip(found.held, found.model.members, strict=True):
        inside = measured.where([row.task in held for row in measured])
        one = replace(found.model, members=(member,))
        alone = one.latencies([row.ast for row in inside], [row.hardware for row in inside]).seconds
        np.testing.assert_allclose(said[[row.task in held for row in measured]], alone)
    within = found.model.latencies([row.ast for row in measured], [row.hardware for row in measured])
    shares = np.log(within.high / within.seconds), np.abs(np.log(measured.seconds / said))
    assert 0.85 < (shares[1] <= shares[0]).mean() < 0.96
    unknown = target.where([row.task not in tasks for row in target])
    assert np.isnan(found.unseen(unknown)).all()


def test_moments_tell_distributions_apart() -> None:
    rng = np.random.default_rng(0)
    one, same, moved, wide = (
        torch.from_numpy(scale * rng.standard_normal((4000, 8)) + shift)
        for scale, shift in ((0.5, 0), (0.5, 0), (0.5, 1), (2, 0))
    )
    assert float(cmd(one, one)) == 0
    assert float(cmd(one, same)) < 0.2 < min(float(cmd(one, moved)), float(cmd(one, wide)))


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"epochs": 0}, {"loss": "sum"}, {"learning_rate": 0.0}, {"relative": -1.0}):
        with pytest.raises(InputError):
            LatencyTraining(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="heads divide"):
        trained(sizes={"heads": 5})


def test_a_model_that_forgets_begins_at_the_level_of_the_target() -> None:
    """Where leaves' seconds are added, one weight is a factor of them: it is moved, and no other."""
    source, target = KNOWN.on(["fast"]), PROGRAMS.on(["slow"])
    model = trained(source, sizes={"joining": "sum"})
    moved = latency._levelled(model, model.members[0], target)
    free = replace(model, members=(moved,), ends=(-math.inf, math.inf))
    assert np.median(target.seconds / free.of(target).seconds) == pytest.approx(1, rel=1e-4)
    assert [name for name in moved if not np.array_equal(moved[name], model.members[0][name])] == [
        "decoder1.bias"
    ]
    counted = trained(source)
    assert latency._levelled(counted, counted.members[0], target) is counted.members[0]


def test_moments_are_weighed_as_the_paper_says() -> None:
    """CDMPP, equation (4): the difference of the k-th central moments counts by 2**-k, the range being -1 to 1."""
    rng = np.random.default_rng(0)
    one, other = (np.tanh(rng.standard_normal((50, 3)) * wide) for wide in (0.3, 0.9))
    expected = np.linalg.norm(one.mean(0) - other.mean(0))
    for k in (2, 3, 4, 5):
        moments = [((rows - rows.mean(0)) ** k).mean(0) for rows in (one, other)]
        expected += np.linalg.norm(moments[0] - moments[1]) / 2**k
    raw = [torch.from_numpy(np.arctanh(rows)) for rows in (one, other)]
    assert float(cmd(*raw, 5)) == pytest.approx(expected, rel=1e-6)
