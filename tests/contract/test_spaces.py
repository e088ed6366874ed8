"""What every Space promises. Add a space as a row of SPACES."""

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tensorwise.device.spade import Machine
from tensorwise.errors import InputError
from tensorwise.program.einsum import Einsum
from tensorwise.program.ops import NAMED, mttkrp
from tensorwise.program.workload import workload as named_workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.space.cuda import cuda_space
from tensorwise.space.space import Space
from tensorwise.space.versions import Version, Versions
from tensorwise.tensor.convert import entries_from
from tests.contract.toys import GARDEN, TINY, WIDE, ToyEntries, ToyWorkload


@dataclass(frozen=True)
class Case:
    """A space with workloads that it must serve, built when the test runs."""

    space: Callable[[], Space]
    workloads: Callable[[], list[Any]]


def toy_workloads() -> list[Any]:
    """An ordinary workload, a tiny one and a lopsided one."""
    return [
        ToyWorkload(),
        ToyWorkload("toy-2", sizes={"i": 1, "k": 1, "j": 1}, entries=ToyEntries((1, 1), 1)),
        ToyWorkload("toy-3", sizes={"i": 3, "k": 1_000_000, "j": 5}, entries=ToyEntries((3, 1_000_000), 9)),
    ]


def real_workloads(op: str, *shapes: tuple[int, ...]) -> list[Any]:
    """Workloads of ``op`` on small random operands of these shapes."""
    rng = np.random.default_rng(0)
    made = []
    for shape in shapes:
        places = [rng.integers(0, extent, 40) for extent in shape]
        made.append(named_workload(op, entries_from((shape, places, rng.standard_normal(40))), n=24))
    return made


def versions() -> Versions:
    """Three versions of one function: a space with one choice."""
    listed = [Version(name, lambda a, b: a + b) for name in ("plus", "sum", "add")]
    return Versions.of("add", listed, lambda a, b: (a, b), {"a": "1", "b": "1"})


SPACES: dict[str, Case] = {
    "garden": Case(lambda: GARDEN, toy_workloads),
    "tiny": Case(lambda: TINY, toy_workloads),
    "wide": Case(lambda: WIDE, toy_workloads),
    "cpu spmm": Case(
        lambda: cpu_space(Einsum.parse(NAMED["spmm"]).single),
        lambda: real_workloads("spmm", (60, 50), (1, 1), (3, 10_000)),
    ),
    "cpu mttkrp": Case(
        lambda: cpu_space(Einsum.parse(mttkrp(4)).single),
        lambda: real_workloads("mttkrp", (9, 8, 7, 6), (1, 20, 2, 2)),
    ),
    "spade": Case(
        lambda: Machine.load("spade").space, lambda: real_workloads("spmm", (60, 50), (1, 1), (3, 100_000))
    ),
    "cuda spmm": Case(
        lambda: cuda_space(Einsum.parse(NAMED["spmm"]).single),
        lambda: real_workloads("spmm", (60, 50), (1, 1), (3, 10_000)),
    ),
    "cuda sddmm": Case(
        lambda: cuda_space(Einsum.parse(NAMED["sddmm"]).single),
        lambda: real_workloads("sddmm", (60, 50), (1, 1)),
    ),
    "cuda mttkrp": Case(
        lambda: cuda_space(Einsum.parse(mttkrp(3, 1)).single),
        lambda: real_workloads("mttkrp", (9, 8, 7)),
    ),
    "versions": Case(versions, lambda: [versions().call(1.0, 2.0)]),
}

DRAWS = 40

pytestmark = pytest.mark.parametrize("case", SPACES.values(), ids=SPACES.keys())


def test_default_is_valid_and_always_the_same(case: Case) -> None:
    space = case.space()
    for workload in case.workloads():
        default = space.default(workload)
        assert space.why_not(default, workload) is None
        assert space.default(workload) == default


def test_whatever_is_made_is_valid(case: Case) -> None:
    space, rng = case.space(), np.random.default_rng(1)
    for workload in case.workloads():
        parent = space.default(workload)
        for _ in range(DRAWS):
            config = space.sample(workload, rng)
            made = [config, space.mutate(config, workload, rng), space.cross(config, parent, workload, rng)]
            for one in made:
                assert space.why_not(one, workload) is None, (one, space.why_not(one, workload))
                assert tuple(one) == tuple(param.name for param in space.params)
            parent = config


def test_neighbours_are_valid_distinct_and_not_the_config_itself(case: Case) -> None:
    space, rng = case.space(), np.random.default_rng(2)
    for workload in case.workloads():
        config = space.sample(workload, rng)
        neighbours = space.neighbours(config, workload)
        assert len(set(neighbours)) == len(neighbours)
        assert config not in neighbours
        for one in neighbours:
            assert space.why_not(one, workload) is None


def test_what_is_valid_does_not_depend_on_what_was_asked_before(case: Case) -> None:
    """Domains are remembered by the choices that decided them; here each is computed anew."""
    space, rng = case.space(), np.random.default_rng(9)
    workloads = case.workloads()
    asked = [space.sample(workload, rng) for workload in workloads for _ in range(DRAWS)]
    mixed = [Config({**a, name: b[name]}) for a, b in itertools.pairwise(asked) for name in list(a)[::3]]
    verdicts = set()
    for workload in workloads:
        for config in (*asked, *mixed):
            valid = all(config[param.name] in param.domain(config, workload) for param in space.params)
            valid = valid and all(rule.predicate(config, workload) for rule in space.rules)
            assert space.allows(config, workload) == (space.why_not(config, workload) is None) == valid
            verdicts.add(valid)
    assert True in verdicts


def test_a_config_moves_between_workloads_by_repair(case: Case) -> None:
    space, rng = case.space(), np.random.default_rng(3)
    workloads = case.workloads()
    for workload in workloads:
        for other in workloads:
            config = space.sample(workload, rng)
            assert space.why_not(space.complete(config, other), other) is None
            assert space.why_not(space.mutate(config, other, rng), other) is None
            assert space.why_not(space.cross(config, space.default(other), other, rng), other) is None
            assert space.complete(config, workload) == config


def test_a_config_of_an_older_or_newer_table_is_migrated(case: Case) -> None:
    space = case.space()
    for workload in case.workloads():
        default = space.default(workload)
        assert space.migrate(default, workload) is default
        last = space.params[-1].name
        older = Config({name: value for name, value in default.items() if name != last})
        newer = Config({"forgotten": 7, **default})
        assert not any(space.recognizes(one) for one in (older, newer))
        assert space.recognizes(default)
        assert space.migrate(older, workload) == default
        assert space.migrate(newer, workload) == default
        odd = {**default, space.params[0].name: "odd"}
        for wrong in (Config(odd), Config({**odd, "forgotten": 7})):
            assert not space.recognizes(wrong)
            assert space.migrate(wrong, workload) is None
        rng = np.random.default_rng(0)
        for config in (space.sample(workload, rng) for _ in range(20)):
            found = space.migrate(Config({**config, "forgotten": 7}), workload)
            assert found == config


def test_same_seed_same_configs(case: Case) -> None:
    space = case.space()
    for workload in case.workloads():
        runs = []
        for _ in range(2):
            rng, made = np.random.default_rng(4), []
            config = space.default(workload)
            for _ in range(8):
                other = space.sample(workload, rng)
                config = space.cross(space.mutate(config, workload, rng), other, workload, rng)
                made += [other, config]
            runs.append(made)
        assert runs[0] == runs[1]


def test_encoding_and_tokens_have_one_length(case: Case) -> None:
    space, rng = case.space(), np.random.default_rng(5)
    assert len(set(space.encoding_names)) == len(space.encoding_names)
    for workload in case.workloads():
        for _ in range(DRAWS):
            config = space.sample(workload, rng)
            vector, tokens = space.encode(config, workload), space.tokens(config)
            assert vector.shape == (len(space.encoding_names),)
            assert vector.dtype == np.float32
            assert np.isfinite(vector).all()
            assert tokens.shape == (len(space.token_sizes),)
            assert (tokens >= 0).all()
            assert (tokens < space.token_sizes).all()


def test_distinct_configs_have_distinct_encodings_and_tokens(case: Case) -> None:
    space, rng = case.space(), np.random.default_rng(6)
    workload = case.workloads()[0]
    configs = list({space.sample(workload, rng) for _ in range(DRAWS)})
    assert len({space.encode(config, workload).tobytes() for config in configs}) == len(configs)
    assert len({space.tokens(config).tobytes() for config in configs}) == len(configs)


def test_json_round_trip(case: Case) -> None:
    space, rng = case.space(), np.random.default_rng(7)
    for workload in case.workloads():
        config = space.sample(workload, rng)
        again = space.parse(config.text)
        assert again == config
        assert hash(again) == hash(config)
        assert again.id == config.id
        assert tuple(again) == tuple(config)
        assert Config(json.loads(json.dumps(json.loads(config.text)))) == config


def test_log_probability_is_negative_and_finite(case: Case) -> None:
    space, rng = case.space(), np.random.default_rng(8)
    for workload in case.workloads():
        config, log_probability = space.sample_with_log_probability(workload, rng)
        assert np.isfinite(log_probability)
        assert log_probability <= 0
        assert log_probability == space.log_probability(config, workload)


def test_bad_configs_are_refused_with_a_readable_reason(case: Case) -> None:
    space = case.space()
    workload = case.workloads()[0]
    default = dict(space.default(workload))
    name = space.params[0].name
    for bad, hint in (
        ({**default, "no_such_name": 1}, "no_such_name"),
        ({**default, name: 2.5}, name),
        ({**default, name: "nonsense-value"}, name),
        ({key: value for key, value in default.items() if key != name}, name),
    ):
        problem = space.why_not(bad, workload)
        assert problem is not None
        assert hint in problem
        with pytest.raises(InputError, match=hint):
            space.check(bad, workload)
        with pytest.raises(InputError, match=hint):
            space.encode(bad, workload)
    with pytest.raises(InputError, match="no_such_name"):
        space.complete({"no_such_name": 1}, workload)
    with pytest.raises(InputError, match=name):
        space.complete({name: 2.5}, workload)


def test_every_param_and_rule_gives_its_reason(case: Case) -> None:
    space = case.space()
    for param in space.params:
        assert len(param.doc.split()) >= 5, param.name
    for rule in space.rules:
        assert rule.reason, rule.name


def test_size_bound_is_an_upper_bound(case: Case) -> None:
    space, rng = case.space(), np.random.default_rng(9)
    for workload in case.workloads():
        seen = {space.sample(workload, rng) for _ in range(DRAWS)}
        assert (
            len(seen)
            <= space.size_bound(workload, limit=50)
            <= math.prod(param.cardinality for param in space.params)
        )
