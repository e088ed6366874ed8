"""The walk over a table: strictness, rules, probabilities, enumeration."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.space.config import Config
from tensorwise.space.params import Choice, Flag, PowerOfTwo
from tensorwise.space.space import Rule
from tests.contract.toys import GARDEN, TINY, ToySpace, ToyWorkload

W: Any = ToyWorkload()
DOC = "A sentence with the reason."


def test_complete_keeps_given_choices_that_fit() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        config = GARDEN.complete({"i_split": 8, "vector": True, "tile": 2}, W, rng, strict=True)
        assert (config["i_split"], config["vector"], config["tile"]) == (8, True, 2)
        assert GARDEN.why_not(config, W) is None


def test_complete_repairs_to_the_nearest_unless_strict() -> None:
    small: Any = ToyWorkload(sizes={"i": 4, "k": 8, "j": 1})
    assert GARDEN.complete({"i_split": 64}, small)["i_split"] == 4
    with pytest.raises(InputError, match=r"i_split: 64 is not allowed here; choose one of 1, 2, 4 \("):
        GARDEN.complete({"i_split": 64}, small, strict=True)
    with pytest.raises(InputError, match="tile: it does not apply"):
        GARDEN.complete({"vector": False, "tile": 4}, W, strict=True)


def test_complete_drops_choices_only_where_rules_need_it() -> None:
    wanted = {"loops": ("k1", "k0", "i1", "i0"), "i_split": 4, "k_split": 4, "parallel": "i1"}
    config = GARDEN.complete(wanted, W)
    assert GARDEN.why_not(config, W) is None
    with pytest.raises(InputError, match="outermost"):
        GARDEN.complete(wanted, W, strict=True)


def test_unsatisfiable_rules_are_named() -> None:
    space = ToySpace("stuck", TINY.params, (Rule("never", "nothing is allowed", lambda config, w: False),))
    with pytest.raises(InputError, match="never"):
        space.default(W)
    assert list(space.enumerate(W)) == []


def test_enumerate_lists_every_valid_config_once() -> None:
    tiny = list(TINY.enumerate(W))
    assert len(tiny) == len(set(tiny)) == TINY.size_bound(W) == 24
    small: Any = ToyWorkload(sizes={"i": 2, "k": 1, "j": 1})
    garden = set(GARDEN.enumerate(small))
    assert all(GARDEN.why_not(config, small) is None for config in garden)
    rng = np.random.default_rng(0)
    assert all(GARDEN.sample(small, rng) in garden for _ in range(300))
    assert len(garden) <= GARDEN.size_bound(small, limit=10)


def test_probabilities_sum_to_one_without_rules() -> None:
    free = ToySpace(
        "free",
        (
            Flag("a", binds="call", doc=DOC),
            Choice(
                "b",
                ("x", "y", "z"),
                binds="call",
                doc=DOC,
                narrow=lambda e, w: ("x", "y") if e["a"] else None,
            ),
            PowerOfTwo(
                "c", 1, 8, binds="call", doc=DOC, narrow=lambda e, w: (1,) if e["b"] == "x" else (1, 2, 4)
            ),
        ),
    )
    configs = list(free.enumerate(W))
    probabilities = {config: math.exp(free.log_probability(config, W)) for config in configs}
    assert sum(probabilities.values()) == pytest.approx(1)
    rng = np.random.default_rng(0)
    counts = Counter(free.sample(W, rng) for _ in range(4000))
    for config, probability in probabilities.items():
        spread = math.sqrt(4000 * probability * (1 - probability))
        assert abs(counts[config] - 4000 * probability) < 5 * spread


def test_mutate_changes_something() -> None:
    rng = np.random.default_rng(0)
    config = GARDEN.default(W)
    for _ in range(50):
        changed = GARDEN.mutate(config, W, rng, rate=0.0)
        assert changed != config
        config = changed


def test_mutation_rate_counts() -> None:
    rng = np.random.default_rng(0)
    config = GARDEN.default(W)

    def differences(rate: float) -> float:
        drawn = [GARDEN.mutate(config, W, rng, rate) for _ in range(60)]
        return float(np.mean([sum(d[name] != config[name] for name in config) for d in drawn]))

    assert differences(0.05) < differences(0.8)


def test_cross_of_equal_parents_is_the_parent() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        config = GARDEN.sample(W, rng)
        assert GARDEN.cross(config, config, W, rng) == config


def test_why_not_names_param_value_allowed_and_reason() -> None:
    config = dict(GARDEN.default(W))
    text = GARDEN.why_not({**config, "i_split": 3}, W)
    assert text is not None
    assert text.startswith("i_split: 3 is not allowed here; choose one of 1, 2, 4")
    assert "cache" in text
    assert "chunk: not chosen" in str(GARDEN.why_not({k: v for k, v in config.items() if k != "chunk"}, W))
    rule = str(GARDEN.why_not({**config, "parallel": "k1"}, W))
    assert rule.startswith("outermost: refused, because only the outermost loop")


def test_parse_orders_names_and_needs_all() -> None:
    config = GARDEN.default(W)
    assert tuple(GARDEN.parse(config.text)) == tuple(param.name for param in GARDEN.params)
    with pytest.raises(InputError, match="lacks chunk"):
        GARDEN.parse({name: value for name, value in config.items() if name != "chunk"})


def test_names_must_be_unique() -> None:
    with pytest.raises(InputError, match="twice"):
        ToySpace("double", (TINY.params[0], TINY.params[0]))


def test_program_refuses_what_is_not_valid() -> None:
    assert GARDEN.program(W, GARDEN.default(W)).startswith("i_split=1")
    with pytest.raises(InputError):
        GARDEN.program(W, Config({**GARDEN.default(W), "i_split": 32768}))


def test_what_is_migrated_obeys_the_rules() -> None:
    work: Any = ToyWorkload()
    outermost = {"loops": ("i1", "i0", "k1", "k0"), "i_split": 4, "k_split": 4, "parallel": "i1", "chunk": 1}
    config = GARDEN.complete(outermost, work, strict=True)
    broken = Config({**config, "parallel": "k1"})  # only the outermost loop can be shared out
    assert GARDEN.migrate(Config({**config, "forgotten": 1}), work) == config
    assert GARDEN.migrate(broken, work) is None
    assert GARDEN.migrate(Config({**broken, "forgotten": 1}), work) is None
