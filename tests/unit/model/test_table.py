"""Table and scoring: configs become numbers, embeddings and scores, alike in NumPy and torch."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tensorwise.analysis.nest import ProgramNest
from tensorwise.errors import InputError
from tensorwise.model.reader import Reader
from tensorwise.model.scoring import EMBEDDING, embed, initial, score, shapes, with_unknown_rows
from tensorwise.model.table import UNKNOWN_TOKEN, Encoded, Table
from tensorwise.program.workload import workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import cpu_space
from tensorwise.tensor.convert import entries_from
from tests.contract.toys import GARDEN, TINY, ToyWorkload, draw_many

W = ToyWorkload()
CONFIGS = draw_many(GARDEN, W, 0, 50)


def test_values_are_the_spaces_tokens() -> None:
    table = Table.of(GARDEN)
    encoded = table.encode(CONFIGS)
    assert encoded.values.shape == (50, len(table.listed))
    offset = 0
    for column, param in enumerate(table.listed):
        expected = [param.tokens(config[param.name])[0] for config in CONFIGS]
        assert (encoded.values[:, column] - offset).tolist() == expected
        offset += 1 + param.range.size
    assert offset == table.form.lookups
    (order,) = encoded.orders
    for row, config in zip(order, CONFIGS, strict=True):
        assert row.tolist() == GARDEN.by_name["loops"].encode(config["loops"], W)  # type: ignore[arg-type]


def test_it_is_read_back() -> None:
    for space in (GARDEN, TINY):
        table = Table.of(space)
        again = Table.from_json(json.loads(json.dumps(table.to_json())))
        assert again.id == table.id
        configs = draw_many(space, W, 1, 20)
        for mine, theirs in zip(table.encode(configs).orders, again.encode(configs).orders, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(table.encode(configs).values, again.encode(configs).values)
    assert Table.of(GARDEN).id != Table.of(TINY).id


def test_configs_of_another_table_are_refused() -> None:
    table = Table.of(GARDEN)
    few = dict(list(CONFIGS[0].items())[:3])
    strangers = {
        "have 0 in common": {"layout": "row"},
        "have 3 in common": few,  # of 8: less than half
        "have 8 in common": {**CONFIGS[0], **{f"more{k}": 1 for k in range(9)}},  # of 17
        "tile": {**CONFIGS[0], "tile": "2"},
        "vector": {**CONFIGS[0], "vector": 1},  # True is not 1
        "loops": {**CONFIGS[0], "loops": "i1"},
        "twice": {**CONFIGS[0], "loops": ("i1", "new", "i1")},
    }
    for why, choices in strangers.items():
        with pytest.raises(InputError, match=f"{why}.*|another table of choices.*{why}"):
            table.encode([CONFIGS[1], Config(choices)])
        assert not table.reads(Config(choices))
        assert not table.fits(Config(choices))
    assert table.fits(CONFIGS[0])
    for more in ({"tile": 8}, {"more": 1}):
        assert table.reads(Config({**CONFIGS[0], **more}))
        assert not table.fits(Config({**CONFIGS[0], **more}))
    for rows in (None, [3], [{"name": "x"}], [{"name": "x", "items": ["a"]}]):
        with pytest.raises((InputError, KeyError, TypeError)):
            Table.from_json(rows)


def test_what_is_unknown_is_read_as_unknown() -> None:
    table, config = Table.of(GARDEN), CONFIGS[0]
    names = [param.name for param in table.listed]
    known = table.tokens(table.encode([config]))[0]
    for name in names:
        for one in ({**config, name: "new"}, {key: value for key, value in config.items() if key != name}):
            kinds = {type(value) for value in GARDEN.by_name[name].range}  # type: ignore[attr-defined]
            if name in one and str not in kinds:
                one[name] = 12 if kinds == {int} else config[name]
            expected = np.where(
                [name == key and one.get(key) != config[key] for key in names], UNKNOWN_TOKEN, known
            )
            assert table.tokens(table.encode([Config(one)]))[0].tolist() == expected.tolist()
    (order,) = table.encode([Config({**config, "loops": ("x", "k1", "y", "i1")})]).orders
    assert order[0].tolist() == GARDEN.by_name["loops"].encode(("k1", "i1"), W)  # type: ignore[arg-type]
    for unknown in ({"loops": ("x", "y")}, {}):
        choices = {**{key: value for key, value in config.items() if key != "loops"}, **unknown}
        assert table.encode([Config(choices)]).orders[0].tolist() == [[0.25] * 16 + [1.0]]


def test_readers_take_an_unknown_value_for_an_equal_part_of_each_known_one() -> None:
    reader = Reader(Table.of(TINY), None)
    known = reader.own(
        [{"layout": kind, "balanced": True, "split": 2} for kind in ("row", "column", "block")]
    )
    (unknown,) = reader.own([{"layout": "tile", "balanced": True, "split": 2}])
    np.testing.assert_allclose(unknown, known.mean(axis=0), rtol=1e-6)
    (missing,) = reader.own([{"balanced": True, "split": 2}])
    assert missing.tolist() == unknown.tolist()


@given(
    gone=st.sets(st.sampled_from([*GARDEN.by_name]), max_size=4),
    more=st.dictionaries(st.text(min_size=1), st.integers() | st.booleans() | st.text(), max_size=7),
    place=st.integers(0, len(CONFIGS) - 1),
)
def test_whatever_has_gone_or_come_the_rest_is_read_as_before(
    gone: set[str], more: dict[str, Any], place: int
) -> None:
    """Half of the params at most are gone, and at most as many have come as there were."""
    assume(not more.keys() & GARDEN.by_name.keys() and len(more) - len(gone) <= 8 - 2 * len(gone))
    table = Table.of(GARDEN)
    kept = {name: value for name, value in CONFIGS[place].items() if name not in gone}
    now = replace(GARDEN, params=tuple(param for param in GARDEN.params if param.name not in gone))
    assert table.misfit(now) is None
    assert table.unknown(now) == [f"parameter {name} is gone" for name in GARDEN.by_name if name in gone]
    found, known = table.encode([Config({**more, **kept})]), table.encode([CONFIGS[place]])
    for column, param in enumerate(table.listed):
        row = table.form.lookups + column if param.name in gone else known.values[0, column]
        assert found.values[0, column] == row
    if "loops" not in gone:
        np.testing.assert_array_equal(found.orders[0], known.orders[0])
    weights = initial(table.form, np.random.default_rng(0))
    both = [embed(with_unknown_rows(weights, table.form), one) for one in (found, known)]
    assert np.isfinite(both[0]).all()
    assert gone or (both[0] == both[1]).all()
    np.testing.assert_array_equal(both[1], embed(weights, known))


def test_the_cpus_space() -> None:
    w = workload("spmm", entries_from(np.eye(50, dtype=np.float32)), n=16)
    space = cpu_space(w.assignment)
    table = Table.of(space)
    configs = [space.sample(w, np.random.default_rng(k)) for k in range(30)]
    weights = initial(table.form, np.random.default_rng(0))
    embedded = embed(weights, table.encode(configs))
    assert embedded.shape == (30, EMBEDDING)
    assert len(np.unique(embedded, axis=0)) == len(set(configs))


def test_no_config_at_all() -> None:
    table = Table.of(GARDEN)
    weights = initial(table.form, np.random.default_rng(0))
    nothing = embed(weights, table.encode([]))
    assert nothing.shape == (0, EMBEDDING)
    assert score(weights, np.zeros(EMBEDDING), nothing).shape == (1, 0)


def test_weights_have_their_shapes_and_seeds() -> None:
    table = Table.of(GARDEN)
    first, again, other = (initial(table.form, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert {name: array.shape for name, array in first.items()} == shapes(table.form)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
        assert first[name].dtype == np.float32
        assert not np.array_equal(first[name], other[name])


def test_the_same_in_torch() -> None:
    torch = pytest.importorskip("torch")
    table = Table.of(GARDEN)
    weights, encoded = initial(table.form, np.random.default_rng(0), heads=3), table.encode(CONFIGS)
    pattern = np.random.default_rng(1).standard_normal(EMBEDDING).astype(np.float32)
    shape = len(CONFIGS), len(ProgramNest().fields) + 1
    nests = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    expected = score(weights, pattern, embed(weights, encoded), nests)
    assert not np.allclose(expected, score(weights, pattern, embed(weights, encoded)))
    assert expected.shape == (3, len(CONFIGS))
    tensors = {name: torch.from_numpy(array).requires_grad_() for name, array in weights.items()}
    values, *orders = (torch.from_numpy(array) for array in (encoded.values, *encoded.orders))
    configs = embed(tensors, Encoded(values, tuple(orders)))  # type: ignore[arg-type]
    got = score(tensors, torch.from_numpy(pattern), configs, torch.from_numpy(nests))
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    got.sum().backward()
    assert all(tensor.grad is not None for tensor in tensors.values())
