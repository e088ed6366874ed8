"""Devices are described completely, and as numbers that differ where they do."""

from dataclasses import replace

import numpy as np
import pytest

from tensorwise.analysis.hardware import HARDWARE
from tensorwise.device import gpus
from tensorwise.device.hardware import Hardware, described, this_cpu
from tensorwise.errors import InputError
from tensorwise.toolchain.processor import vector_bytes

PAPER = {"T4", "K80", "P100", "V100", "A100-40GB", "HL-100", "E5-2673", "EPYC-7452", "Graviton2"}


def test_all_devices_of_the_paper_are_described() -> None:
    known = described()
    assert known.keys() >= PAPER
    assert all(one.clock_hz and one.cores and one.bandwidth and one.memory_bytes for one in known.values())
    assert all(one.flops and one.l1_bytes and one.l2_bytes for name, one in known.items() if name != "HL-100")


@pytest.mark.parametrize("name", sorted(described()))
def test_peaks_are_what_cores_and_clock_can_give(name: str) -> None:
    one = described()[name]
    if one.flops:  # at most six multiply-adds of a vector a cycle (Kepler), at least a quarter of one
        lanes = one.flops / (2 * one.clock_hz * one.cores * (one.vector_bytes / 4))
        assert 0.25 <= lanes <= 6


def test_gpus_are_seen_with_their_limits() -> None:
    assert gpus.gpu_named("NVIDIA A100-SXM4-80GB").multiprocessors == described()["A100"].cores
    assert "K80" not in gpus.described()  # no program of ours runs there


def test_a_description_is_json() -> None:
    one = described()["T4"]
    assert Hardware.from_json(one.to_json()) == one
    with pytest.raises(InputError, match="clock_hz"):
        Hardware.from_json({key: value for key, value in one.to_json().items() if key != "clock_hz"})
    with pytest.raises(InputError, match="cores: expected int"):
        Hardware.from_json({**one.to_json(), "cores": "many"})
    with pytest.raises(InputError, match="malformed"):
        replace(one, bandwidth=-1.0)
    with pytest.raises(InputError, match="malformed"):
        replace(one, kind="abacus")  # type: ignore[arg-type]


@pytest.mark.skipif(vector_bytes() < 32, reason="vectors are narrower here")
def test_this_cpu_is_described() -> None:
    narrow, wide = this_cpu("narrow", 1, 16), this_cpu("wide", 1, 32)
    assert min(narrow.flops, wide.flops) > 0
    assert narrow.bandwidth == wide.bandwidth > 0
    rows = np.array([HARDWARE.features(one) for one in (narrow, wide)])
    differing = {
        field.name for field, column in zip(HARDWARE.fields, rows.T, strict=True) if np.ptp(column) > 0
    }
    assert differing == {"flops", "vector_bytes"}


def test_all_described_devices_differ() -> None:
    rows = np.array([HARDWARE.features(one) for one in described().values()])
    assert np.isfinite(rows).all()
    assert len(np.unique(rows, axis=0)) == len(rows)
