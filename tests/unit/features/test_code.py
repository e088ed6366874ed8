"""Compiled code as numbers."""

import numpy as np

from tensorwise.codegen.machine_code import NAMES, MachineCode
from tensorwise.features.code import CODE, UNCOMPILED


def test_fields_are_the_numbers_of_code() -> None:
    assert [field.name for field in CODE.fields] == list(NAMES)
    assert all(field.doc and field.unit.startswith("log2(1 + ") for field in CODE.fields)


def test_numbers_are_logarithms() -> None:
    numbers = CODE.features(
        MachineCode(dict.fromkeys(NAMES, 0.0) | {"all.cycles": 1023.0, "all.flops": 2.0**40})
    )
    assert numbers.dtype == np.float32
    assert numbers[NAMES.index("all.cycles")] == 10
    assert numbers[NAMES.index("all.flops")] == np.float32(40)
    np.testing.assert_array_equal(CODE.features(MachineCode(dict.fromkeys(NAMES, 0.0))), UNCOMPILED)
