"""Names of settings of this CPU: short ones mean this machine, and what they are made of is measured here."""

import pytest

from tensorwise.device.hardware import described
from tensorwise.device.host import host
from tensorwise.errors import InputError
from tensorwise.tasks import cpu
from tensorwise.tasks.cpu import full_name, hardware_here


@pytest.fixture(autouse=True)
def with_sse_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "describe_processor", lambda: ("", ("sse2",)))
    monkeypatch.setattr(cpu, "this_cpu", lambda name, *made: (name, *made))


def test_short_names_mean_this_machine() -> None:
    own = host().id[:4]
    assert full_name("tvm-avx512-16t") == f"tvm-avx512-16t-{own}"
    for other in ("T4", "tvm-avx2-0t", "tvm-mmx-1t", f"tvm-avx2-1t-{own}", ""):
        assert full_name(other) == other


def test_settings_of_this_machine_are_measured() -> None:
    name = full_name("tvm-sse-2t")
    assert hardware_here(name) == (name, 2, 16)
    for other in ("tvm-sse-2t", "tvm-sse-2t-none", "none", *described()):
        assert hardware_here(other) is None


def test_an_instruction_set_that_is_not_here_is_refused() -> None:
    with pytest.raises(InputError, match="lacks the instruction set avx512"):
        hardware_here(full_name("tvm-avx512-1t"))
