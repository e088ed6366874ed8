"""Some cases of each door of the fuzz campaign: what comes in ends as a value or as a TensorwiseError."""

import random
import sys
import warnings
from pathlib import Path

import pytest

from tensorwise.errors import TensorwiseError

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "robustness"))

from fuzzing.doors import DOORS

CASES = {"arguments": 4, "binsparse": 12, "parquet": 15, "store": 15}
"""Doors that take longer have fewer than 60."""


@pytest.mark.parametrize("name", DOORS)
def test_whatever_comes_in_ends_as_a_value_or_an_error_of_ours(name: str, tmp_path: Path) -> None:
    door = DOORS[name]
    if not door.works:
        pytest.skip(f"the door {name} needs {door.needs}, which is not installed")
    ended = set()
    for number in range(CASES.get(name, 60)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                door.run(random.Random(f"test {name} {number}"), tmp_path)
                ended.add("ok")
            except TensorwiseError as error:
                str(error).encode()
                ended.add("refused")
            except MemoryError:
                pass
    assert "refused" in ended or name in ("figures", "spool", "arguments", "environment"), (
        "nothing that was changed is wrong"
    )
