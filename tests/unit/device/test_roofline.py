"""Facts about the machine and the bound that no measurement may beat."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorwise.device import host as host_module
from tensorwise.device import roofline as module
from tensorwise.device.host import CpuTime, cpu_time, foreign_load, host
from tensorwise.device.library import available
from tensorwise.device.roofline import (
    MEMORY_LEVELS,
    Roofline,
    doubted,
    level_holding,
    plausible_s,
    roofline,
    roofline_bound_s,
    share_of_peak,
)
from tensorwise.errors import CompilerError, OutOfTimeError
from tensorwise.program.workload import workload
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.deadline import within
from tensorwise.toolchain.processor import describe_processor
from tests.unit.device import cases


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module._roofline_at.cache_clear()
    monkeypatch.setattr(module, "_PROBE_S", 0.0005)
    monkeypatch.setattr(module, "cache_dir", lambda: tmp_path)
    yield
    module._roofline_at.cache_clear()


def test_host_facts() -> None:
    facts = host()
    assert facts is host()
    assert 1 <= facts.physical_cores <= facts.logical_cores
    assert facts.memory_bytes > 1 << 28
    assert facts.cpu
    assert len(facts.id) == 32
    assert replace(facts, os="another", memory_bytes=1).id == facts.id
    assert replace(facts, l3_bytes=1).id != facts.id


def test_facts_are_read_from_the_kernel_s_files(tmp_path: Path) -> None:
    for name, kind, level, size in (
        ("0", "Data", 1, "48K"),
        ("1", "Instruction", 1, "32K"),
        ("2", "Unified", 2, "2M"),
    ):
        (tmp_path / f"index{name}").mkdir()
        for key, value in (("type", kind), ("level", level), ("size", size)):
            (tmp_path / f"index{name}" / key).write_text(f"{value}\n")
    (tmp_path / "index3").mkdir()
    assert host_module._caches(tmp_path) == {1: 48 << 10, 2: 2 << 20}
    info = "model name : X\nphysical id : 0\ncore id : 0\n\nmodel name : X\nphysical id : 0\ncore id : 0\n"
    (tmp_path / "cpuinfo").write_text(info + "\nphysical id : 1\ncore id : 0\n")
    assert host_module._processor(tmp_path / "cpuinfo") == ("X", 2)
    assert host_module._processor(tmp_path / "absent") == ("", 0)


def test_busy_time_counts_only_our_cpus(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu 9 9 9 9 9 9 9 9\ncpu0 100 200 300 900 50 1 2 3 0 0\ncpu1 1 1 1 1 1 1 1 1\nintr 5\n")
    seconds, cpus = host_module._busy(stat, {0})
    assert cpus == 1
    assert seconds == pytest.approx(606 / os.sysconf("SC_CLK_TCK"))
    assert host_module._busy(stat, {7}) == (0.0, 0)
    assert host_module._busy(tmp_path / "absent", {0}) == (0.0, 0)


def test_foreign_load_is_what_others_used() -> None:
    before = CpuTime(at_s=0, busy_s=100, own_s=10, cpus=2)
    assert foreign_load(before, CpuTime(1.0, 101.5, 11.0, 2)) == pytest.approx(0.25)
    assert foreign_load(before, CpuTime(1.0, 101.0, 11.0, 2)) == 0
    assert foreign_load(before, CpuTime(1.0, 100.5, 11.0, 2)) == 0
    assert foreign_load(before, CpuTime(1.0, 130.0, 10.0, 2)) == 1
    assert foreign_load(before, CpuTime(0.0, 130.0, 10.0, 2)) == 0
    assert foreign_load(replace(before, cpus=0), CpuTime(1.0, 130.0, 10.0, 0)) == 0


def test_another_process_is_noticed_and_our_own_work_is_not() -> None:
    if not cpu_time().cpus:
        pytest.skip("no /proc/stat")
    before = cpu_time()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            time.sleep(0.4)
            assert foreign_load(before) > 0.1
        finally:
            other.kill()
    start = time.process_time()
    before = cpu_time()
    while time.process_time() - start < 0.1:
        pass
    after = cpu_time()
    assert after.own_s - before.own_s >= 0.09


@pytest.mark.parametrize("threads", [1, 2])
def test_rates_are_positive_and_remembered(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "foreign_load", lambda before: 0.0)
    first = roofline(threads)
    assert set(first.bandwidth) == set(MEMORY_LEVELS)
    assert all(0 < rate < float("inf") for rate in first.bandwidth.values())
    assert all(0 < rate < float("inf") for rate in (*first.flops.values(), *first.vectors.values()))
    module._roofline_at.cache_clear()
    monkeypatch.setattr(module, "_measure", lambda threads: pytest.fail("measured again"))
    again = roofline(threads)
    assert again == first


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_reached_now_is_a_share_of_the_best_that_was_seen(threads: int, tmp_path: Path) -> None:
    assert all(0 < share_of_peak(threads) <= 1 for _ in range(3))


@pytest.mark.skipif("fma" not in describe_processor()[1], reason="the instructions looked for are x86's")
@pytest.mark.parametrize("size", module._widths())
def test_a_compiler_leaves_the_chains_of_the_probe_apart(size: str) -> None:
    compiler, fused = default_cache().compiler, module._VECTORS[size]
    text = module._text("float32", size, fused)
    command = [*compiler.command, *compiler.flags, "-S", "-x", "c", "-o", "-", "-"]
    made = subprocess.run(
        command, input=f"#include <stdint.h>\n#define TW_SYMBOL probe\n{text}", capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    assert len(re.findall(r"\bvfmadd\w*ps\b" if fused else r"\bvmulps\b", made)) >= (12 if fused else 6)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"bandwidth": {}, "flops": 3}'])
def test_damaged_memory_is_a_miss(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    path.write_text(text)
    assert module._read_figures(path, 1) is None
    flops = {"float32": 1e9, "float64": 1e9}
    good = {
        "bandwidth": dict.fromkeys(MEMORY_LEVELS, 1e9), "flops": flops, "vectors": dict.fromkeys(module._widths(), 1e9),
        "provisional": False,
    }  # fmt: skip
    path.write_text(json.dumps(good))
    assert module._read_figures(path, 1) is not None
    flops["float32"] = float("nan")
    path.write_text(json.dumps(good))
    assert module._read_figures(path, 1) is None


def rates_of(slow: dict[int, float]) -> Callable[[int], Roofline]:
    def measure(threads: int) -> Roofline:
        return Roofline(
            threads,
            dict.fromkeys(MEMORY_LEVELS, slow[threads]),
            dict.fromkeys(("float32", "float64"), slow[threads]),
            dict.fromkeys(module._widths(), slow[threads]),
        )

    return measure


def test_rates_beside_other_processes_are_scaled_up_and_provisional(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_measure", rates_of({1: 3e9, 2: 4e9}))
    monkeypatch.setattr(module, "foreign_load", lambda before: 0.5)
    monkeypatch.setattr(module, "most_threads", lambda: 2)
    found = roofline(2)
    assert (found.bandwidth["L1"], found.flops["float32"], found.provisional) == (6e9, 6e9, True)
    assert found.vectors["16"] == 6e9
    module._roofline_at.cache_clear()
    monkeypatch.setattr(module, "_measure", lambda threads: pytest.fail("measured again"))
    assert roofline(2) == found


def test_no_more_threads_are_measured_than_run_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of threads that wait for each other on two processors come to no end."""
    monkeypatch.setattr(module, "_measure", rates_of({2: 4e9}))
    monkeypatch.setattr(module, "foreign_load", lambda before: 0.0)
    monkeypatch.setattr(module, "most_threads", lambda: 2)
    found = roofline(1000)
    assert (found.threads, found.bandwidth["L1"]) == (1000, 4e9)
    assert roofline(2) == replace(found, threads=2)
    doubted(1000)


def test_provisional_rates_are_measured_again_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def a_day_later(rate: float, load: float) -> Roofline:
        module._roofline_at.cache_clear()
        for path in tmp_path.glob("roofline*"):
            os.utime(path, (0, 0))
        monkeypatch.setattr(module, "_measure", rates_of({1: rate}))
        monkeypatch.setattr(module, "foreign_load", lambda before: load)
        return roofline(1)

    assert a_day_later(5e9, 0.5).bandwidth["L2"] == 5e9
    slower = a_day_later(4e9, 0.5)
    assert (slower.bandwidth["L2"], slower.provisional) == (5e9, True)
    quiet = a_day_later(4.5e9, 0.0)
    assert (quiet.bandwidth["L2"], quiet.provisional) == (4.5e9, False)
    assert a_day_later(9e9, 0.0) == quiet


def test_a_place_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    module._write_figures(
        tmp_path / "file" / "rates.json", Roofline(1, dict.fromkeys(MEMORY_LEVELS, 1.0), {}, {})
    )


def test_doubted_figures_are_measured_once_more_and_only_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "foreign_load", lambda before: 0.0)
    first = roofline(1)
    faster = {level: 2 * rate for level, rate in first.bandwidth.items()}
    slower = {name: rate / 2 for name, rate in first.flops.items()}
    monkeypatch.setattr(module, "_measure", lambda threads: replace(first, bandwidth=faster, flops=slower))
    doubted(1)
    assert roofline(1) == replace(first, bandwidth=faster, provisional=True)
    monkeypatch.setattr(
        module, "_measure", lambda threads: replace(first, flops={"float32": 1e18, "float64": 1e18})
    )
    doubted(1)
    module._roofline_at.cache_clear()
    assert roofline(1) == replace(first, bandwidth=faster, provisional=True)


def fixed(monkeypatch: pytest.MonkeyPatch, bandwidth: float, flops: float) -> None:
    peak = Roofline(1, dict.fromkeys(MEMORY_LEVELS, bandwidth), {"float32": flops, "float64": flops}, {})
    monkeypatch.setattr(module, "roofline", lambda threads: peak)


def test_bound_counts_what_cannot_be_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a = cases.entries_from(
        ((100, 1000), (np.arange(100), np.full(100, 7)), rng.random(100).astype(np.float32))
    )
    work = workload("spmm", a, n=64)
    fixed(monkeypatch, 1e12, 1e9)
    assert roofline_bound_s(work, 1) == pytest.approx(2 * 6400 / 1e9)
    # values, one row of B (all entries lie in column 7), the output; caches take it in parts
    assert module._least_bytes(work) == 4 * (100 + 64 + 6400)
    fixed(monkeypatch, 1e6, 1e18)
    first = 32 << 10 if not host().l1d_bytes else host().l1d_bytes
    assert roofline_bound_s(work, 1) == pytest.approx(min(4 * 6564, first) / 1e6)
    assert plausible_s(work, 1) == pytest.approx(0.5 * roofline_bound_s(work, 1))
    provisional = replace(module.roofline(1), provisional=True)
    monkeypatch.setattr(module, "roofline", lambda threads: provisional)
    assert plausible_s(work, 1) == pytest.approx(0.25 * roofline_bound_s(work, 1))


def test_the_level_that_holds_some_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = replace(host(), l1d_bytes=1000, l2_bytes=5000, l3_bytes=9000)
    monkeypatch.setattr(module, "host", lambda: facts)
    sizes = (0, 1000, 1001, 5001, 9001)
    assert [level_holding(size, 1) for size in sizes] == ["L1", "L1", "L2", "L3", "DRAM"]
    assert [level_holding(size, 2) for size in sizes] == ["L1", "L1", "L1", "L2", "L2"]
    monkeypatch.setattr(module, "host", lambda: replace(facts, l3_bytes=0))
    assert level_holding(9001, 1) == "L3"  # not known: the size that the probes take it to have


def test_bytes_of_other_operations() -> None:
    rng = np.random.default_rng(1)
    a = cases.tensor((20, 30, 40), 4000, rng)
    work = workload("mttkrp", a, n=8)
    b, d = (len(np.unique(c)) for c in a.coordinates[1:])
    assert module._least_bytes(work) == 4 * (4000 + 8 * b + 8 * d + 20 * 8)
    empty = workload("spmm", cases.tensor((20, 30), 0, rng), n=8)
    assert module._least_bytes(empty) == 4 * 160


def test_no_compiler_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(threads: int) -> Roofline:
        raise CompilerError("none")

    monkeypatch.setattr(module, "roofline", fail)
    assert plausible_s(workload("spmv", cases.matrix("random", np.random.default_rng(2))), 1) == 0.0


def test_library_kernels_are_plausible() -> None:
    rng = np.random.default_rng(3)
    for op, n in (("spmv", None), ("spmm", 64), ("sddmm", 32)):
        work = workload(op, cases.tensor((2000, 2000), 40_000, rng), n=n)
        operands = work.operands(rng)
        out = np.empty(work.output_shape, np.float32)
        for kernel in available(work):
            bound = kernel.bind(work, 2)
            took = []
            for _ in range(10):
                start = time.perf_counter()
                bound.run(operands, out)
                took.append(time.perf_counter() - start)
            if min(took) <= plausible_s(work, 2):  # somebody may have slowed the probes
                doubted(2)
            assert min(took) > plausible_s(work, 2)


def test_forked_children_read_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "foreign_load", lambda before: 0.0)
    rates = dict(roofline(1).bandwidth)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert dict(pool.apply(roofline, (1,)).bandwidth) == rates


def test_an_interrupt_leaves_no_thread_in_freed_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that go on in them crash the process or change what others have there, or wait for each other for ever."""
    roofline(2)  # compiled
    monkeypatch.setattr(module, "_read_figures", lambda path, threads: None)
    monkeypatch.setattr(module, "_PROBE_S", 0.03)  # most of the time threads are running

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def measure_on() -> None:
        while True:
            module._roofline_at.cache_clear()
            roofline(2)

    before, threads = signal.signal(signal.SIGALRM, interrupt), threading.active_count()
    try:
        for step in range(12):
            signal.setitimer(signal.ITIMER_REAL, 0.05 + 0.01 * step)
            with pytest.raises(KeyboardInterrupt):
                measure_on()
            assert threading.active_count() == threads
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_without_time_nothing_is_measured_and_no_bound_is_known(tmp_path: Path) -> None:
    work = workload("spmv", cases.matrix("random", np.random.default_rng(2)))
    with within(0.0):
        with pytest.raises((OutOfTimeError, CompilerError)):
            roofline(1)
        assert roofline_bound_s(work, 1) == 0.0
    assert not list(tmp_path.glob("roofline*"))
    assert roofline(1).flops["float32"] > 0
