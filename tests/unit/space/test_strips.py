"""COGNATE's mapper: configs of both spaces as the same seven loops."""

import numpy as np
import pytest

from tensorwise.device.spade import Machine
from tensorwise.program.workload import Workload, workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.space.readings import strings
from tensorwise.space.strips import LOOPS, SPADE, cpu
from tensorwise.tensor.convert import entries_from

SPACE = Machine.load("spade").space


def work(op: str = "spmm", n: int = 256) -> Workload:
    return workload(op, entries_from(((5000, 90_000), ([0], [0]), np.ones(1, np.float32))), n=n)


def test_the_example_of_the_paper() -> None:
    """Appendix E: 4, 1024, split 32 without a barrier is 4, 1024, 32, 6, 7, 2, 4, 1, 3, 5."""
    given = work()
    config = SPACE.complete(
        {"row_panel": 4, "column_panel": 1024, "split": 32, "barrier": False}, given, strict=True
    )
    assert SPADE.strips(given, config).numbers == (4, 1024, 32, 6, 7, 2, 4, 1, 3, 5)


def test_a_barrier_exchanges_rows_and_columns() -> None:
    given = work()
    config = SPACE.complete({"column_panel": "all", "barrier": True}, given, strict=True)
    strips = SPADE.strips(given, config)
    assert strips.order == ("k2", "k3", "j2", "i2", "i1", "j1", "k1")
    assert strips.splits == (256, 90_000, 256)


def test_splits_are_no_longer_than_the_extents() -> None:
    given = work(n=40)
    assert SPADE.strips(given, SPACE.default(given)).splits == (256, 90_000, 40)


@pytest.mark.parametrize("op", ["spmm", "sddmm"])
def test_every_config_of_the_cpu_is_an_order_of_all_loops(op: str) -> None:
    given, rng = work(op), np.random.default_rng(0)
    space, mapper = cpu_space(given.assignment, "A"), cpu(given)
    for config in [space.default(given), *(space.sample(given, rng) for _ in range(50))]:
        strips = mapper.strips(given, config)
        assert sorted(strips.order) == sorted(LOOPS)
        assert strips.order.index("k3") == strips.order.index("k2") + 1
        own = [mapper.loops[loop] for loop in config["order"]]  # type: ignore[union-attr]
        assert [loop for loop in strips.order if loop in own] == own


def test_modes_of_the_cpu_go_by_their_part_in_the_product() -> None:
    """Dense columns are j in our SpMM and k in our SDDMM, and k in COGNATE's."""
    assert cpu(work("spmm")).splits == ("split_i", "split_k", "split_j")
    assert cpu(work("sddmm")).splits == ("split_i", "split_j", "split_k")


def test_a_config_that_lacks_a_choice_is_an_order_of_all_loops_too() -> None:
    """A Param that was added since, or is gone, does not end the reading; unknown values are left out."""
    given = work()
    accelerator, own = SPACE.default(given), cpu_space(given.assignment, "A").default(given)
    for mapper, config in ((SPADE, accelerator), (cpu(given), own)):
        known = mapper.strips(given, config)
        names = [*(name for name in mapper.splits if name), mapper.order, mapper.move]
        for name in names:
            fewer = Config({key: value for key, value in config.items() if key != name})
            found = mapper.strips(given, fewer)
            assert sorted(found.order) == sorted(LOOPS)
            assert found.order == known.order or name == mapper.order
            assert found.splits == known.splits or name in mapper.splits
        assert mapper.strips(given, Config({**config, mapper.move: "hilbert"})).moved == ("own", "own")
    loops = strings(own["order"])
    more = Config({**own, "order": (loops[0], "p", *loops[1:])})
    assert cpu(given).strips(given, more) == cpu(given).strips(given, own)
